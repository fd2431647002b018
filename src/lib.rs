//! Mounts a directory of log-layout files and serves each as canonical, chunked HDF5, byte for byte.
//!
//! HPC codes write fastest when every process appends what it has to a log. This crate is the other
//! half: it shows the log as the HDF5 file that the program meant, made on the fly.
//!
//! ```text
//! log file ─scan─▶ Snapshot ─▶ View ◀─read_at─ fs ◀─FUSE─ h5dump, h5py, ncdump, MATLAB, …
//!                               │ miss
//!                               └▶ index ─▶ log
//! ```
//!
//! * [`scan`] walks a log file once with libhdf5 and yields a [`snapshot::Snapshot`]: plain data, in
//!   it the metadata of the canonical file (the *image*) and where the log keeps its tables.
//! * [`worker`] does the same in a process that has no rights, for files that nobody vouches for.
//! * [`view::View`] is the canonical file as random-access bytes: the image, B-tree nodes computed
//!   from their position, and chunks assembled from the records that touch them.
//! * [`index`] finds these records; [`log`] reads them, one module a layout.
//! * [`catalog`] maps paths to views, and knows when a file has changed.
//! * [`fs`] serves a catalog through FUSE; [`cli`] is the command line.
//!
//! Modules use what stands below them in this list of the way from a request to the log, never what
//! stands above: `cli`, `fs`, `catalog`, `worker`, `scan` and `view`, `index`, `snapshot`, `log`.
//!
//! ```no_run
//! use h5logfs::{catalog::Catalog, log::source::Folder, view::cache::MemoryLimits};
//!
//! let (folder, name) = Folder::of_file("run.h5".as_ref())?;
//! let view = Catalog::new(folder, MemoryLimits::default()).open(&name)?;
//! let mut signature = [0; 8];
//! view.read_at(0, &mut signature)?;
//! # Ok::<(), h5logfs::error::Error>(())
//! ```

pub mod boxes;
mod buffers;
#[cfg(feature = "mpi")]
pub mod capi;
pub mod catalog;
pub mod cli;
pub mod closing;
pub mod error;
pub mod filters;
#[cfg(feature = "mount")]
pub mod fs;
mod hdf5_sys;
mod image;
pub mod index;
pub mod journal;
pub mod log;
mod parallel;
pub mod scan;
pub mod snapshot;
pub mod stats;
pub mod view;
pub mod worker;
#[cfg(feature = "mpi")]
pub mod writer;
