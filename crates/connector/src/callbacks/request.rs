//! Asynchronous requests of the connector below. The native connector has none.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, Id, Status};

use crate::arguments::{Handle, Opaque, Optional};
use crate::library::Functions;
use crate::object::Object;

/// `H5VL_REQUEST_STATUS_IN_PROGRESS`.
const IN_PROGRESS: c_int = 0;

/// Calls the connector below. Frees the request if `ends` says that it has ended.
///
/// # Safety
///
/// As for all callbacks: see the head of `callbacks`.
unsafe fn ask(
    handle: Handle,
    call: impl FnOnce(&Functions, *mut c_void, Id) -> Status,
    ends: impl FnOnce() -> bool,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    let info = Arc::clone(&object.below.info);
    let asked = info.library.caught(Kind::Other, || {
        let status = object.below.quietly(call);
        if status >= 0 && ends() {
            // SAFETY: the request has ended, and nothing uses it afterwards.
            unsafe { Object::free(handle) };
        }
        Ok(status)
    });
    asked.unwrap_or(FAILURE)
}

/// Waits for a request.
pub unsafe extern "C-unwind" fn wait(handle: Handle, timeout: u64, outcome: *mut c_int) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(
            handle,
            |f, under, vol| (f.H5VLrequest_wait)(under, vol, timeout, outcome),
            || *outcome != IN_PROGRESS,
        )
    }
}

/// Registers a function to call at the end of a request.
pub unsafe extern "C-unwind" fn notify(
    handle: Handle,
    callback: Option<unsafe extern "C-unwind" fn()>,
    context: *mut c_void,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(
            handle,
            |f, under, vol| (f.H5VLrequest_notify)(under, vol, callback, context),
            || true,
        )
    }
}

/// Cancels a request.
pub unsafe extern "C-unwind" fn cancel(handle: Handle, outcome: *mut c_int) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(
            handle,
            |f, under, vol| (f.H5VLrequest_cancel)(under, vol, outcome),
            || *outcome != IN_PROGRESS,
        )
    }
}

/// Queries the error stack and the execution time of a request.
pub unsafe extern "C-unwind" fn specific(handle: Handle, args: *mut Opaque) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(
            handle,
            |f, under, vol| (f.H5VLrequest_specific)(under, vol, args),
            || false,
        )
    }
}

/// Operations of the connector below.
pub unsafe extern "C-unwind" fn optional(handle: Handle, args: *mut Optional) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(
            handle,
            |f, under, vol| (f.H5VLrequest_optional)(under, vol, args),
            || false,
        )
    }
}

/// Frees a request.
pub unsafe extern "C-unwind" fn free(handle: Handle) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(
            handle,
            |f, under, vol| (f.H5VLrequest_free)(under, vol),
            || true,
        )
    }
}
