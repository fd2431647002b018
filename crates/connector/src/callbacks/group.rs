//! Groups.

use std::ffi::c_char;

use h5logfs_host::Kind;
use h5logfs_host::types::{Id, Status};

use crate::arguments::{GroupSpecific, Handle, Location, Opaque, Optional, Requests, kind};
use crate::object::{Effect, Object};

passed_child! {
    /// `H5Gcreate`.
    Writes create = H5VLgroup_create(name: *const c_char, lcpl: Id, gcpl: Id, gapl: Id) at name by gapl, kind::GROUP, Group;
    /// `H5Gopen`.
    Reads open = H5VLgroup_open(name: *const c_char, gapl: Id) at name by gapl, kind::GROUP, Group;
}

passed! {
    /// `H5Gget_*`.
    Reads get = H5VLgroup_get(args: *mut Opaque), Group;
    /// `H5Giterate` and `H5Gget_objinfo`.
    Runs optional = H5VLgroup_optional(args: *mut Optional), Group;
}

/// `H5Fmount`, `H5Funmount`, `H5Gflush`, `H5Grefresh`.
pub unsafe extern "C-unwind" fn specific(
    handle: Handle,
    args: *mut GroupSpecific,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`. The arguments belong to the operation.
    let (object, mut args_below) = unsafe { (Object::of_handle(handle), *args) };
    let operation = args_below.operation;
    object.answer(Kind::Group, || {
        if operation == GroupSpecific::MOUNT {
            // SAFETY: the operation selects this part of the union; the child is a file of this connector.
            unsafe {
                let child = Object::of_handle(args_below.arguments.mount.child);
                object.below.check_like(&child.below)?;
                let sessions = [&object.session, &child.session].into_iter().flatten();
                sessions.for_each(|session| session.set_special());
                args_below.arguments.mount.child = child.below.under;
            }
        }
        // SAFETY: see the head of `callbacks`.
        let status = object.pass(Effect::Reads, requests, |f, under, vol| unsafe {
            (f.H5VLgroup_specific)(under, vol, &mut args_below, dxpl, requests)
        })?;
        if operation == GroupSpecific::FLUSH {
            return object.flushed(status);
        }
        Ok(status)
    })
}

/// `H5Gclose`.
pub unsafe extern "C-unwind" fn close(handle: Handle, dxpl: Id, requests: Requests) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        super::close(handle, requests, |f, under, vol| {
            (f.H5VLgroup_close)(under, vol, dxpl, requests)
        })
    }
}
