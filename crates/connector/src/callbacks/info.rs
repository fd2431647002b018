//! The connector's information in file access property lists.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use h5logfs_host::types::{FAILURE, SUCCESS, Status};
use h5logfs_host::{Kind, with_return_address};

use crate::below::info::Info;
use crate::library::Library;

/// Copies information: as it never changes, a copy is another reference.
pub unsafe extern "C-unwind" fn copy(info: *const c_void) -> *mut c_void {
    if info.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the information comes from this connector.
    unsafe { Info::share(info) }.into_raw()
}

/// Orders the information of two lists. Null comes first.
pub unsafe extern "C-unwind" fn compare(
    order: *mut c_int,
    one: *const c_void,
    other: *const c_void,
) -> Status {
    if one.is_null() || other.is_null() {
        // SAFETY: the library gives a place for the answer.
        unsafe { order.write(other.is_null() as c_int - one.is_null() as c_int) };
        return SUCCESS;
    }
    // SAFETY: the information comes from this connector.
    let (one, other) = unsafe { (Info::share(one), Info::share(other)) };
    let compared = one.library.caught(Kind::Other, || one.compare(&other));
    let Some(compared) = compared else {
        return FAILURE;
    };
    // SAFETY: as above.
    unsafe { order.write(compared as c_int) };
    SUCCESS
}

/// Drops a reference to information.
pub unsafe extern "C-unwind" fn free(info: *mut c_void) -> Status {
    if info.is_null() {
        return SUCCESS;
    }
    // SAFETY: the information comes from this connector, and the library gives its reference up.
    let info = unsafe { Info::from_raw(info) };
    let library = info.library;
    let freed = library.caught(Kind::Other, || {
        drop(info);
        Ok(SUCCESS)
    });
    freed.unwrap_or(FAILURE)
}

/// Formats information as a string.
pub unsafe extern "C-unwind" fn to_string(info: *const c_void, text: *mut *mut c_char) -> Status {
    if info.is_null() {
        // SAFETY: the library gives a place for the text.
        unsafe { text.write(ptr::null_mut()) };
        return SUCCESS;
    }
    // SAFETY: the information comes from this connector.
    let info = unsafe { Info::share(info) };
    let Some(written) = info.library.caught(Kind::Other, || info.to_text()) else {
        return FAILURE;
    };
    // SAFETY: as above.
    unsafe { text.write(written) };
    SUCCESS
}

with_return_address! {
    /// Parses an information string.
    from_string(_text: *const c_char, _info: *mut *mut c_void) -> Status = from_string_for, register "rdx", "x2"
}

unsafe extern "C-unwind" fn from_string_for(
    text: *const c_char,
    info: *mut *mut c_void,
    caller: usize,
) -> Status {
    let parsed = Library::serve(caller, Kind::Other, |library| {
        // SAFETY: libhdf5 passes a C string.
        Info::of_text(library, unsafe { CStr::from_ptr(text) })
    });
    let Some(parsed) = parsed else {
        return FAILURE;
    };
    // SAFETY: libhdf5 gives a place for the information.
    unsafe { info.write(parsed.into_raw()) };
    SUCCESS
}
