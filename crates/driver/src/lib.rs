//! An HDF5 file driver that is loaded at run time: any program with HDF5 1.14.0 to 2.x opens a log by its own path.
//!
//! ```sh
//! export HDF5_DRIVER=h5logfs HDF5_PLUGIN_PATH=/usr/lib/h5logfs/plugins
//! h5dump run42/output.h5
//! ```
//!
//! A log that is opened for reading is its canonical file: the same bytes as a mount shows. All other files, and a log
//! whose program replaces it, are passed on to libhdf5's own default driver. A log that is opened for writing is
//! refused. `HDF5_DRIVER_CONFIG`, or the configuration of `H5Pset_driver_by_name`, takes options as `mount -o` does.
//!
//! # What programs see
//!
//! * A log is not locked, so its readers do not stop the job that writes it. It has no POSIX descriptor.
//! * A log of one file may be replaced by a program that says so. A log that is not closed, one with companion files, and
//!   such a file itself, may not. `H5Fdelete` deletes a log with its subfiles and its journal, unless a job writes it, and
//!   of a netCDF file with burst-buffer logs nothing: no lock tells whether a job writes these.
//! * Programs that ask for the driver's name do not hear `sec2`. h5py calls it `unknown`, and its mode `a` then tries to
//!   make a file after *any* failure to open one: of a file that may not be written it says that it exists.
//! * netCDF-C reads the first bytes of a file itself, and asks libhdf5 only for files that begin as HDF5 does. It reads
//!   netCDF classic files by itself, without their burst-buffer logs, and knows no log that is not closed. `mode=` in
//!   a URL does not change that. h5py and h5netcdf read all of them. Of an error netCDF-C says only "HDF error".
//! * libhdf5 before 1.14 knows no drivers of this kind. It takes no notice of `HDF5_DRIVER`, and shows the log's own bytes.
//! * A program to which libhdf5 was linked statically has to export its symbols (`-rdynamic`). Otherwise it opens no file
//!   by this driver.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | `class` | the table of callbacks |
//! | `declared` | what HDF5 declares of an open file |
//! | `library` | the functions of libhdf5 that it calls |
//! | `open` | what a path is opened as |
//! | `memory` | files in memory, for the connector |
//! | `written` | plain files that libhdf5 writes |
//! | `file` | an open file |
//! | `callbacks` | what libhdf5 calls |
//!
//! `crates/plugins/driver` makes the object that libhdf5 loads. The VOL connector registers the same class in the
//! library that has loaded it.
//!
//! **Several libhdf5 in one process.** Two of them share one copy of a plug-in ([`h5logfs_host`]). So this links none and
//! keeps no state outside its files, but for the names of files in memory, which no two sessions share, and the numbers of
//! descriptors by which plain files are written. Each file keeps the library that opened it, and calls no other.
//!
//! **The host.** No threads, no signal handlers, no lines on standard error. Errors go to the error stack of the library
//! that called. A panic becomes an error.

#![warn(missing_docs)]

mod callbacks;
mod class;
mod declared;
mod file;
mod library;
mod memory;
mod open;
mod written;

use std::ffi::{CStr, c_int, c_void};

pub use file::read_only;
pub use memory::{Announced, Withdrawn, Written, announce};
pub use open::{check_replaceable, delete_log, path_of};
pub use written::{is_written, note};

/// `H5PL_TYPE_VFD`: what kind of plug-in this is.
pub const PLUGIN_TYPE: c_int = 2;

/// The table of callbacks, an `H5FD_class_t` that lives as long as the process.
pub fn class() -> *const c_void {
    (&raw const class::DRIVER).cast()
}

/// The table of callbacks of the driver of sessions. A name that was announced ([`announce`]) is a file in memory to it.
/// It opens all else for the links and the virtual datasets of such a file: a log is read even if that file is written.
pub fn session_class() -> *const c_void {
    (&raw const class::SESSION_DRIVER).cast()
}

/// The name of that driver.
pub const SESSION_DRIVER: &CStr = class::SESSION_NAME;

/// The table of callbacks of the driver of files that are opened once more: libhdf5 takes no file of this driver for one
/// that it has open. So each shows its log as it was when it was opened.
pub fn fresh_class() -> *const c_void {
    (&raw const class::FRESH_DRIVER).cast()
}

/// The name of that driver.
pub const FRESH_DRIVER: &CStr = class::FRESH_NAME;
