//! The entry points of the file driver.

#![warn(missing_docs)]

use std::ffi::{c_int, c_void};

/// Returns the kind of this plug-in. libhdf5 asks every library in `HDF5_PLUGIN_PATH`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn H5PLget_plugin_type() -> c_int {
    h5logfs_file_driver::PLUGIN_TYPE
}

/// Returns the table of callbacks, an `H5FD_class_t` that lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn H5PLget_plugin_info() -> *const c_void {
    h5logfs_host::keep_panics_quiet();
    h5logfs_file_driver::class()
}
