//! Attributes. The native file holds their elements.

use std::ffi::{c_char, c_void};

use h5logfs_host::Kind;
use h5logfs_host::types::{Id, Status};

use crate::arguments::{AttributeSpecific, Handle, Location, Opaque, Optional, Requests, kind};
use crate::object::{Changed, Effect, Object};

passed_child! {
    /// `H5Acreate`.
    Writes create = H5VLattr_create(name: *const c_char, datatype: Id, space: Id, acpl: Id, aapl: Id), kind::ATTRIBUTE, Attribute;
    /// `H5Aopen`.
    Reads open = H5VLattr_open(name: *const c_char, aapl: Id), kind::ATTRIBUTE, Attribute;
}

passed! {
    /// `H5Aread`.
    Reads read = H5VLattr_read(memory_type: Id, buf: *mut c_void), Attribute;
    /// `H5Awrite`.
    Writes write = H5VLattr_write(memory_type: Id, buf: *const c_void), Attribute;
    /// `H5Aget_*`.
    Reads get = H5VLattr_get(args: *mut Opaque), Attribute;
    /// `H5Aiterate1`.
    Runs optional = H5VLattr_optional(args: *mut Optional), Attribute;
}

/// `H5Adelete`, `H5Aexists`, `H5Aiterate`, `H5Arename`.
pub unsafe extern "C-unwind" fn specific(
    handle: Handle,
    location: *const Location,
    args: *mut AttributeSpecific,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let (object, operation) = unsafe { (Object::of_handle(handle), (*args).operation) };
    let effect = match operation {
        AttributeSpecific::EXISTS => Effect::Reads,
        AttributeSpecific::ITERATE => Effect::Runs,
        _ => Effect::Writes,
    };
    object.answer(Kind::Attribute, || {
        // SAFETY: see the head of `callbacks`.
        let (links, path) = unsafe { ((*location).links(), (*location).path()) };
        if effect == Effect::Writes {
            // SAFETY: see the head of `callbacks`.
            object.changed_at(
                path.map(Changed::Object),
                unsafe { (*location).from },
                links,
            )?;
        }
        object.with_links(links, || {
            // SAFETY: see the head of `callbacks`.
            object.pass(effect, requests, |f, under, vol| unsafe {
                (f.H5VLattr_specific)(under, location, vol, args, dxpl, requests)
            })
        })
    })
}

/// `H5Aclose`.
pub unsafe extern "C-unwind" fn close(handle: Handle, dxpl: Id, requests: Requests) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        super::close(handle, requests, |f, under, vol| {
            (f.H5VLattr_close)(under, vol, dxpl, requests)
        })
    }
}
