//! A VOL connector for HDF5, loaded at run time. Any program with HDF5 1.14.0 to 2.x works through it.
//!
//! ```sh
//! export HDF5_VOL_CONNECTOR=h5logfs HDF5_PLUGIN_PATH=/usr/lib/h5logfs/plugins
//! ```
//!
//! New files become logs if the options say so. A log opened for reading is shown as its canonical file, through the file driver.
//! A log of h5logfs opened for writing is appended to. All other files pass through to the connector below, the native one unless
//! the program names another.
//!
//! # Layers
//!
//! Each layer uses only layers below it. `tests/library/layers.rs` checks it.
//!
//! | layer | contents |
//! |---|---|
//! | `class` | the table of callbacks |
//! | `callbacks` | functions that libhdf5 calls |
//! | `object`, then `context` | the connector's objects, and the contexts with which libhdf5 wraps objects |
//! | `copies` | `H5Ocopy` from and to logs |
//! | `opening` | files created or opened as logs |
//! | `session` | an open log, and the hooks through which calls reach it |
//! | `log` | a log that this process writes |
//! | `below` | objects of the connector below, and access property lists |
//! | `ranks` | ranks that open a file together |
//! | `library` | functions of libhdf5 that the connector calls |
//! | `arguments` | argument structures declared by HDF5 |
//! | `options`, then `pattern` | options of new logs |
//!
//! `crates/plugins/connector` and `crates/plugins/connector-mpi` make the shared objects that libhdf5 loads: the former for
//! serial programs, the latter for programs with parallel HDF5. Both may lie in one directory. [`class_for`] decides which of
//! them serves a library.
//!
//! **Several libhdf5 in one process.** They share one copy of a plug-in ([`h5logfs_host`]). So the connector links none of them
//! and keeps no state outside its objects. Each object keeps its library, and calls no other.
//!
//! **The host.** The connector starts no threads and installs no signal handlers. It prints one line on standard error, if the
//! options of the environment are wrong (`below/misspelt.rs`). Errors go to the error stack of the library that called. A panic
//! becomes an error.

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

/// `H5PL_TYPE_VOL`, the kind of plug-in.
pub const PLUGIN_TYPE: c_int = 1;

/// The two plug-ins of the connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// For programs without MPI. Also for parallel programs if the other plug-in is not installed.
    Serial,
    /// For programs with parallel HDF5.
    Parallel,
}

/// The file name of [`Plugin::Parallel`].
const PARALLEL_FILE: &str = "libh5logfs_connector_mpi.so";

/// Returns the table of callbacks for the libhdf5 with code at the address `caller`: an `H5VL_class_t` that lives as long as the
/// process. If this plug-in does not serve that library, the table is one that the library rejects, and libhdf5 passes the
/// plug-in over.
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
    // Both functions exist from HDF5 1.14.0 on. Earlier versions have other structures.
    if library.symbol(c"H5VLdataset_read").is_none() || library.symbol(c"H5FDctl").is_none() {
        return false;
    }
    let is_parallel = library.symbol(c"H5Pset_fapl_mpio").is_some();
    match plugin {
        Plugin::Parallel => is_parallel,
        Plugin::Serial => !is_parallel || !has_parallel_plugin(),
    }
}

/// Whether the plug-in for parallel programs is installed in the directory of this one.
fn has_parallel_plugin() -> bool {
    let path = Object::path_of_code(has_parallel_plugin as *const () as usize);
    path.is_some_and(|path| path.with_file_name(PARALLEL_FILE).exists())
}
