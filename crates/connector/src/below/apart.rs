//! Calls that do not change what libhdf5 remembers for the call that we are in.
//!
//! Within a call libhdf5 keeps properties of the lists that it has looked at: how memory is given to sequences, what a conversion
//! calls on an overflow. The functions for connectors go on with the same. So one that looks at a default list before the
//! elements are read would decide for these, too.

use std::ffi::{CStr, c_void};
use std::ptr;

use h5logfs_host::at_end::AtEnd;
use h5logfs_host::types::Status;

use crate::library::Library;

/// `H5VLopen_lib_context` and `H5VLclose_lib_context`, since HDF5 2.
const LATER: [&CStr; 2] = [c"H5VLopen_lib_context", c"H5VLclose_lib_context"];
/// What they were called before, without an argument.
const EARLIER: [&CStr; 2] = [c"H5VLstart_lib_state", c"H5VLfinish_lib_state"];

/// Calls with a state of the library of its own.
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
        // SAFETY: the functions have these types where a library has them, and a state is closed where it was opened.
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
    // SAFETY: see above.
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
