//! An HDF5 file driver, loaded at run time: any program with HDF5 1.14.0 to 2.x opens a log by its own path.
//!
//! ```sh
//! export HDF5_DRIVER=h5logfs HDF5_PLUGIN_PATH=/usr/lib/h5logfs/plugins
//! h5dump run42/output.h5
//! ```
//!
//! A log opened for reading is its canonical file: the same bytes that a mount shows. All other files, and a log that the
//! program replaces, go to libhdf5's own default driver. Opening a log for writing is refused. `HDF5_DRIVER_CONFIG`, or the
//! configuration of `H5Pset_driver_by_name`, takes options like `mount -o`.
//!
//! # What programs see
//!
//! * A log is not locked, so its readers do not stop the job that writes it. It has no POSIX descriptor.
//! * A program that truncates a file may replace a closed log of one file. It may not replace an unclosed log, a log with
//!   companion files, or a companion file. `H5Fdelete` deletes a log with its subfiles and its journal, unless a job writes it.
//!   It refuses to delete any part of a netCDF file with burst-buffer logs: no lock tells whether a job writes them.
//! * The driver's name is not `sec2`. h5py calls it `unknown`, and its mode `a` then tries to make a file after *any* failure
//!   to open one: of a file without write permission it says that it exists.
//! * netCDF-C reads the first bytes of a file itself, and asks libhdf5 only for files that begin as HDF5 does. It reads
//!   netCDF classic files by itself, without their burst-buffer logs, and does not recognize unclosed logs. `mode=` in a URL
//!   does not change that. h5py and h5netcdf read all of them. netCDF-C reports any error as "HDF error".
//! * libhdf5 before 1.14 does not know such drivers. It ignores `HDF5_DRIVER`, and shows the log's own bytes.
//! * A program that was linked to libhdf5 statically must export its symbols (`-rdynamic`). Otherwise the driver opens no
//!   file.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | `class` | the table of callbacks |
//! | `declared` | HDF5's declarations about an open file |
//! | `library` | the functions of libhdf5 that the driver calls |
//! | `open` | opening, replacing and deleting a path |
//! | `memory` | files in memory, for the connector |
//! | `written` | plain files that libhdf5 writes |
//! | `file` | an open file |
//! | `callbacks` | the callbacks for libhdf5 |
//!
//! `crates/plugins/driver` makes the object that libhdf5 loads. The VOL connector registers the same class in the library
//! that has loaded it.
//!
//! **Several libhdf5 in one process.** Two of them share one copy of a plug-in ([`h5logfs_host`]). So this crate is linked to
//! none, and keeps no state outside its files except the names of files in memory, which are unique to a session, and the
//! descriptors by which plain files are written. Each file keeps the library that opened it, and calls no other.
//!
//! **The host.** No threads, no signal handlers, no lines on standard error. Errors go to the error stack of the calling
//! library. A panic becomes an error.

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
pub use open::{check_replaceable, delete_log, is_member, parse_options, path_of};
pub use written::{is_written, note};

/// `H5PL_TYPE_VFD`: the kind of this plug-in.
pub const PLUGIN_TYPE: c_int = 2;

/// The table of callbacks, an `H5FD_class_t` that lives as long as the process.
pub fn class() -> *const c_void {
    (&raw const class::DRIVER).cast()
}

/// The table of callbacks of the driver of sessions. It opens an announced name ([`announce`]) as a file in memory. All other
/// names are targets of links and virtual datasets of such a file: a log is readable even if that file is written.
pub fn session_class() -> *const c_void {
    (&raw const class::SESSION_DRIVER).cast()
}

/// Name of the driver of sessions.
pub const SESSION_DRIVER: &CStr = class::SESSION_NAME;

/// The table of callbacks of the driver for files that are opened once more. libhdf5 reuses no open file for a file of this
/// driver. So each file shows its log as it was when it was opened.
pub fn fresh_class() -> *const c_void {
    (&raw const class::FRESH_DRIVER).cast()
}

/// Name of the driver for files that are opened once more.
pub const FRESH_DRIVER: &CStr = class::FRESH_NAME;
