//! Committed datatypes.

use std::ffi::c_char;

use h5logfs_host::Kind;
use h5logfs_host::types::{Id, Status};

use crate::arguments::{DatatypeSpecific, Handle, Location, Opaque, Optional, Requests, kind};
use crate::object::{Effect, Object};

passed_child! {
    /// `H5Tcommit`.
    Writes commit = H5VLdatatype_commit(name: *const c_char, datatype: Id, lcpl: Id, tcpl: Id, tapl: Id) at name by tapl, kind::DATATYPE, Datatype;
    /// `H5Topen`.
    Reads open = H5VLdatatype_open(name: *const c_char, tapl: Id) at name by tapl, kind::DATATYPE, Datatype;
}

passed! {
    /// `H5Tget_create_plist` and the like.
    Reads get = H5VLdatatype_get(args: *mut Opaque), Datatype;
    /// Operations of the native connector.
    Changes optional = H5VLdatatype_optional(args: *mut Optional), Datatype;
}

/// `H5Tflush`, `H5Trefresh`.
pub unsafe extern "C-unwind" fn specific(
    handle: Handle,
    args: *mut DatatypeSpecific,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let (object, operation) = unsafe { (Object::of_handle(handle), (*args).operation) };
    object.answer(Kind::Datatype, || {
        // SAFETY: see the head of `callbacks`.
        let status = object.pass(Effect::Reads, requests, |f, under, vol| unsafe {
            (f.H5VLdatatype_specific)(under, vol, args, dxpl, requests)
        })?;
        if operation == DatatypeSpecific::FLUSH {
            return object.flushed(status);
        }
        Ok(status)
    })
}

/// `H5Tclose`.
pub unsafe extern "C-unwind" fn close(handle: Handle, dxpl: Id, requests: Requests) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        super::close(handle, requests, |f, under, vol| {
            (f.H5VLdatatype_close)(under, vol, dxpl, requests)
        })
    }
}
