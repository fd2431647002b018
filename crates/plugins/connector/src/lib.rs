//! The entry points of the VOL connector for serial programs.

#![warn(missing_docs)]

use std::ffi::{c_int, c_void};

use h5logfs_host::with_return_address;
use h5logfs_vol_connector::Plugin;

/// Returns the kind of this plug-in. libhdf5 asks every library in `HDF5_PLUGIN_PATH`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn H5PLget_plugin_type() -> c_int {
    h5logfs_vol_connector::PLUGIN_TYPE
}

with_return_address! {
    /// Returns the table of callbacks, an `H5VL_class_t` that lives as long as the process.
    #[unsafe(no_mangle)]
    H5PLget_plugin_info() -> *const c_void = info_for, register "rdi", "x0"
}

unsafe extern "C-unwind" fn info_for(caller: usize) -> *const c_void {
    h5logfs_host::keep_panics_quiet();
    h5logfs_vol_connector::class_for(Plugin::Serial, caller)
}
