//! Blobs: elements of variable length, and references.

use std::ffi::c_void;

use h5logfs_host::Kind;
use h5logfs_host::types::{Id, Status};

use crate::arguments::{Handle, Opaque, Optional};
use crate::library::Functions;
use crate::object::Object;

/// Calls the connector below.
///
/// # Safety
///
/// As for all callbacks: see the head of `callbacks`.
unsafe fn ask(handle: Handle, call: impl FnOnce(&Functions, *mut c_void, Id) -> Status) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || Ok(object.below.quietly(call)))
}

/// Stores a blob.
pub unsafe extern "C-unwind" fn put(
    handle: Handle,
    buf: *const c_void,
    size: usize,
    blob: *mut c_void,
    context: *mut c_void,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(handle, |f, under, vol| {
            (f.H5VLblob_put)(under, vol, buf, size, blob, context)
        })
    }
}

/// Reads a blob.
pub unsafe extern "C-unwind" fn get(
    handle: Handle,
    blob: *const c_void,
    buf: *mut c_void,
    size: usize,
    context: *mut c_void,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(handle, |f, under, vol| {
            (f.H5VLblob_get)(under, vol, blob, buf, size, context)
        })
    }
}

/// Deletes a blob, or asks whether it is null.
pub unsafe extern "C-unwind" fn specific(
    handle: Handle,
    blob: *mut c_void,
    args: *mut Opaque,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(handle, |f, under, vol| {
            (f.H5VLblob_specific)(under, vol, blob, args)
        })
    }
}

/// Operations of the connector below.
pub unsafe extern "C-unwind" fn optional(
    handle: Handle,
    blob: *mut c_void,
    args: *mut Optional,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        ask(handle, |f, under, vol| {
            (f.H5VLblob_optional)(under, vol, blob, args)
        })
    }
}
