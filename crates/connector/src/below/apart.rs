//! Calls of libhdf5 in an API context of their own.
//!
//! During a call, libhdf5 caches properties of the lists that it has read: how memory is allocated for variable-length elements,
//! which function handles an overflow in a conversion. Functions for connectors share the context of the call that they run in. A
//! call that reads a default list first would therefore decide these properties for elements that are read later.

use std::ffi::{CStr, c_void};
use std::ptr;

use h5logfs_host::at_end::AtEnd;
use h5logfs_host::types::Status;

use crate::library::Library;

/// The functions of HDF5 2.0 and later.
const LATER: [&CStr; 2] = [c"H5VLopen_lib_context", c"H5VLclose_lib_context"];
/// The functions of HDF5 1.14, which take no argument.
const EARLIER: [&CStr; 2] = [c"H5VLstart_lib_state", c"H5VLfinish_lib_state"];

/// Runs `call` in an API context of its own.
pub fn apart<R>(library: &Library, call: impl FnOnce() -> R) -> R {
    type Open = unsafe extern "C-unwind" fn(*mut *mut c_void) -> Status;
    type Close = unsafe extern "C-unwind" fn(*mut c_void) -> Status;
    type Start = unsafe extern "C-unwind" fn() -> Status;
    let functions = |names: [&CStr; 2]| {
        let [open, close] = names.map(|name| library.function(name));
        open.zip(close)
    };
    if let Some((open, close)) = functions(LATER) {
        let mut state = ptr::null_mut();
        // SAFETY: a library that exports functions of these names gives them these types. The context is closed once, if it was
        // opened.
        let open = unsafe { std::mem::transmute::<*const c_void, Open>(open) };
        let close = unsafe { std::mem::transmute::<*const c_void, Close>(close) };
        let is_open = library.quietly(|_| unsafe { open(&mut state) }) >= 0;
        let _outer = AtEnd(|| {
            if is_open {
                library.quietly(|_| unsafe { close(state) });
            }
        });
        return call();
    }
    let Some((start, finish)) = functions(EARLIER) else {
        return call();
    };
    // SAFETY: as above.
    let start = unsafe { std::mem::transmute::<*const c_void, Start>(start) };
    let finish = unsafe { std::mem::transmute::<*const c_void, Start>(finish) };
    let is_open = library.quietly(|_| unsafe { start() }) >= 0;
    let _outer = AtEnd(|| {
        if is_open {
            library.quietly(|_| unsafe { finish() });
        }
    });
    call()
}
