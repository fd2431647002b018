//! The functions of libhdf5 that the driver calls.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use h5logfs_host::library::text;
use h5logfs_host::types::{Address, Id, Status};

use crate::declared::{PublicPart, Usage};

h5logfs_host::functions! {
    /// Functions of libhdf5 by their documented names.
    pub struct Functions for "h5logfs_driver" {
        H5Pcopy: fn(Id) -> Id,
        H5Pclose: fn(Id) -> Status,
        H5Pset_fapl_sec2: fn(Id) -> Status,
        H5Pget_driver_config_str: fn(Id, *mut c_char, usize) -> isize,
        H5FDopen: fn(*const c_char, c_uint, Id, Address) -> *mut PublicPart,
        H5FDclose: fn(*mut PublicPart) -> Status,
        H5FDcmp: fn(*const PublicPart, *const PublicPart) -> c_int,
        H5FDquery: fn(*const PublicPart, *mut c_ulong) -> Status,
        H5FDget_eoa: fn(*mut PublicPart, Usage) -> Address,
        H5FDset_eoa: fn(*mut PublicPart, Usage, Address) -> Status,
        H5FDget_eof: fn(*mut PublicPart, Usage) -> Address,
        H5FDget_vfd_handle: fn(*mut PublicPart, Id, *mut *mut c_void) -> Status,
        H5FDread: fn(*mut PublicPart, Usage, Id, Address, usize, *mut c_void) -> Status,
        H5FDwrite: fn(*mut PublicPart, Usage, Id, Address, usize, *const c_void) -> Status,
        H5FDflush: fn(*mut PublicPart, Id, bool) -> Status,
        H5FDtruncate: fn(*mut PublicPart, Id, bool) -> Status,
        H5FDlock: fn(*mut PublicPart, bool) -> Status,
        H5FDunlock: fn(*mut PublicPart) -> Status,
        H5FDdelete: fn(*const c_char, Id) -> Status,
        H5FDctl: fn(*mut PublicPart, u64, u64, *const c_void, *mut *mut c_void) -> Status,
    }
}

/// The libhdf5 that uses the driver.
pub type Library = h5logfs_host::Library<Functions>;

/// The configuration string of the driver in a file access property list.
pub fn configuration(library: &Library, fapl: Id) -> Vec<u8> {
    library.nested(|f| {
        // SAFETY: `fapl` is an identifier of this library, and the buffer has as many bytes as the call is told.
        text(|buffer, len| unsafe { (f.H5Pget_driver_config_str)(fapl, buffer, len) })
    })
}

/// Calls `act` with a copy of a file access property list that has the default driver.
pub fn with_default_driver<R>(
    library: &Library,
    fapl: Id,
    failed: R,
    call: impl FnOnce(&Functions, Id) -> R,
) -> R {
    // SAFETY: `fapl` is an identifier of this library.
    let copy = library.nested(|f| unsafe { (f.H5Pcopy)(fapl) });
    if copy < 0 {
        return failed;
    }
    // SAFETY: `copy` is a file access property list.
    let set = library.nested(|f| unsafe { (f.H5Pset_fapl_sec2)(copy) });
    let result = match set {
        0.. => library.nested(|f| call(f, copy)),
        _ => failed,
    };
    // SAFETY: this code has made `copy`, and closes it once.
    library.nested(|f| unsafe { (f.H5Pclose)(copy) });
    result
}
