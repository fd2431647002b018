//! Tokens, which identify objects within a file.

use std::ffi::{c_char, c_int};

use h5logfs_host::Kind;
use h5logfs_host::types::Status;

use crate::arguments::{Handle, Token};
use crate::object::Object;

/// Orders two tokens.
pub unsafe extern "C-unwind" fn compare(
    handle: Handle,
    one: *const Token,
    other: *const Token,
    order: *mut c_int,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || {
        // SAFETY: see the head of `callbacks`.
        Ok(object
            .below
            .quietly(|f, under, vol| unsafe { (f.H5VLtoken_cmp)(under, vol, one, other, order) }))
    })
}

/// Formats a token as text.
pub unsafe extern "C-unwind" fn to_string(
    handle: Handle,
    object_type: c_int,
    token: *const Token,
    text: *mut *mut c_char,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || {
        // SAFETY: see the head of `callbacks`.
        Ok(object.below.quietly(|f, under, vol| unsafe {
            (f.H5VLtoken_to_str)(under, object_type, vol, token, text)
        }))
    })
}

/// Parses a token.
pub unsafe extern "C-unwind" fn from_string(
    handle: Handle,
    object_type: c_int,
    text: *const c_char,
    token: *mut Token,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || {
        // SAFETY: see the head of `callbacks`.
        Ok(object.below.quietly(|f, under, vol| unsafe {
            (f.H5VLtoken_from_str)(under, object_type, vol, text, token)
        }))
    })
}
