//! Objects of any kind.

use std::ffi::{CStr, c_char, c_int};

use h5logfs_host::Kind;
use h5logfs_host::types::{DEFAULT, Id, Status};

use crate::arguments::{Handle, Location, ObjectGet, ObjectSpecific, Optional, Requests};
use crate::copies::{Copy, copy_object};
use crate::library::Functions;
use crate::object::{Changed, Effect, Object, pass_two};

passed_at! {
    /// `H5Oget_info`, `H5Iget_name` and the like. The library itself wraps a file that this returns.
    Reads get = H5VLobject_get(args: *mut ObjectGet), Object;
    /// Operations of the native connector.
    Configures optional = H5VLobject_optional(args: *mut Optional), Object;
}

/// `H5Oopen`.
pub unsafe extern "C-unwind" fn open(
    handle: Handle,
    location: *const Location,
    opened_type: *mut c_int,
    dxpl: Id,
    requests: Requests,
) -> Handle {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    let opened = object.library().caught(Kind::Object, || {
        // SAFETY: see the head of `callbacks`.
        let open = |f: &Functions, under, vol| unsafe {
            (f.H5VLobject_open)(under, location, vol, opened_type, dxpl, requests)
        };
        // SAFETY: see the head of `callbacks`.
        let links = unsafe { (*location).links() };
        let under = object.with_links(links, || object.call(Effect::Reads, open));
        // SAFETY: the library gives a place for the type. It is filled if an object was opened.
        object.opened(under, requests, || unsafe { *opened_type })
    });
    opened.unwrap_or(std::ptr::null_mut())
}

/// `H5Ocopy`.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C-unwind" fn copy(
    source: Handle,
    source_location: *const Location,
    source_name: *const c_char,
    target: Handle,
    target_location: *const Location,
    target_name: *const c_char,
    ocpypl: Id,
    lcpl: Id,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let (source, target) = unsafe { (Object::of_handle(source), Object::of_handle(target)) };
    target.answer(Kind::Object, || {
        if source.session.is_some() || target.session.is_some() {
            // SAFETY: the library gives the locations, and C strings.
            let copy = unsafe {
                let source_name = CStr::from_ptr(source_name);
                let (from, to) = ((*source_location).from, (*target_location).from);
                let target_path = Changed::link(target_name);
                Copy {
                    source_session: source.session_at(
                        Some(Changed::Object(source_name)),
                        from,
                        DEFAULT,
                    )?,
                    target_session: target.changed_at(target_path, to, DEFAULT)?,
                    source: &source.below,
                    source_location: &*source_location,
                    source_name,
                    target: &target.below,
                    target_location: &*target_location,
                    target_name: CStr::from_ptr(target_name),
                    ocpypl,
                    lcpl,
                    dxpl,
                }
            };
            if let Some(status) = copy_object(&copy)? {
                return Ok(status);
            }
        }
        // SAFETY: see the head of `callbacks`.
        pass_two(
            Some(source),
            Some(target),
            requests,
            |f, source, target, vol| unsafe {
                (f.H5VLobject_copy)(
                    source,
                    source_location,
                    source_name,
                    target,
                    target_location,
                    target_name,
                    vol,
                    ocpypl,
                    lcpl,
                    dxpl,
                    requests,
                )
            },
        )
    })
}

/// `H5Oincr_refcount`, `H5Oexists_by_name`, `H5Ovisit`, `H5Oflush`, `H5Orefresh`.
pub unsafe extern "C-unwind" fn specific(
    handle: Handle,
    location: *const Location,
    args: *mut ObjectSpecific,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let (object, operation) = unsafe { (Object::of_handle(handle), (*args).operation) };
    let effect = match operation {
        ObjectSpecific::CHANGE_COUNT => Effect::Writes,
        ObjectSpecific::VISIT => Effect::Runs,
        _ => Effect::Reads,
    };
    object.answer(Kind::Object, || {
        // SAFETY: see the head of `callbacks`.
        let links = unsafe { (*location).links() };
        let status = object.with_links(links, || {
            // SAFETY: see the head of `callbacks`.
            object.pass(effect, requests, |f, under, vol| unsafe {
                (f.H5VLobject_specific)(under, location, vol, args, dxpl, requests)
            })
        })?;
        if operation == ObjectSpecific::FLUSH {
            return object.flushed(status);
        }
        Ok(status)
    })
}
