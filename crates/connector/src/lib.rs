//! An HDF5 VOL connector that is loaded at run time: any program with HDF5 1.14.0 to 2.x works through it.
//!
//! ```sh
//! export HDF5_VOL_CONNECTOR=h5logfs HDF5_PLUGIN_PATH=/usr/lib/h5logfs/plugins
//! ```
//!
//! New files become logs, where the options say so. A log that is opened for reading is its canonical file, by the file
//! driver's code; one of ours that is opened for writing is appended to. All other files pass through to the connector
//! below, which is HDF5's native one unless the program says otherwise.
//!
//! # Layers
//!
//! Each layer uses only those below it. `tests/library/layers.rs` checks it.
//!
//! | layer | contents |
//! |---|---|
//! | `class` | the table of callbacks |
//! | `callbacks` | what libhdf5 calls |
//! | `object`, then `context` | what libhdf5 holds of an object of ours, and of what it wraps objects with |
//! | `copies` | `H5Ocopy`, from and to logs |
//! | `opening` | which files are created or opened as logs |
//! | `session` | an open log: the hooks through which calls reach it |
//! | `log` | a log that this process writes |
//! | `below` | objects of the connector below, what a file access property list says of it |
//! | `ranks` | which ranks open a file together |
//! | `library` | the functions of libhdf5 that the connector calls |
//! | `arguments` | the structures that HDF5 declares for their arguments |
//! | `options`, then `pattern` | options of new logs |
//!
//! `crates/plugins/connector` and `crates/plugins/connector-mpi` make the objects that libhdf5 loads: the former for serial
//! programs, the latter for those with parallel HDF5. Both may lie in one directory: [`class_for`] tells which of them
//! serves a library.
//!
//! **Several libhdf5 in one process.** Two of them share one copy of a plug-in ([`h5logfs_host`]). So this links none and
//! keeps no state outside its objects. Each object keeps the library that it belongs to, and calls no other.
//!
//! **The host.** No threads, no signal handlers, no lines on standard error but one: that the options of the environment
//! are wrong (`below/misspelt.rs`). Errors go to the error stack of the library
//! that called. A panic becomes an error.

#![warn(missing_docs)]

pub mod arguments;
mod below;
mod callbacks;
mod class;
mod context;
mod copies;
pub mod library;
mod log;
mod object;
mod opening;
pub mod options;
pub mod pattern;
pub mod ranks;
mod session;

use std::ffi::{c_int, c_void};

use h5logfs_host::caller::Object;

use class::Class;

/// `H5PL_TYPE_VOL`: what kind of plug-in this is.
pub const PLUGIN_TYPE: c_int = 1;

/// For which programs a plug-in is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// Programs without MPI, and parallel ones where the other plug-in is not installed.
    Serial,
    /// Programs with parallel HDF5.
    Parallel,
}

/// The file of [`Plugin::Parallel`].
const PARALLEL_FILE: &str = "libh5logfs_connector_mpi.so";

/// The table of callbacks for the libhdf5 that holds the code at `caller`: an `H5VL_class_t` that lives as long as the
/// process. A plug-in that does not serve this library gives one that it does not take, and is passed over.
pub fn class_for(plugin: Plugin, caller: usize) -> *const c_void {
    let class: &'static Class = if serves(plugin, caller) {
        &class::CONNECTOR
    } else {
        &class::DECLINED
    };
    (&raw const *class).cast()
}

fn serves(plugin: Plugin, caller: usize) -> bool {
    let Some(library) = Object::of_code(caller) else {
        return false;
    };
    // From 1.14.0 on. What has no such function has other structures.
    if library.symbol(c"H5VLdataset_read").is_none() || library.symbol(c"H5FDctl").is_none() {
        return false;
    }
    let is_parallel = library.symbol(c"H5Pset_fapl_mpio").is_some();
    match plugin {
        Plugin::Parallel => is_parallel,
        Plugin::Serial => !is_parallel || !has_parallel_plugin(),
    }
}

/// Whether the plug-in for parallel programs lies beside this code.
fn has_parallel_plugin() -> bool {
    let path = Object::path_of_code(has_parallel_plugin as *const () as usize);
    path.is_some_and(|path| path.with_file_name(PARALLEL_FILE).exists())
}
