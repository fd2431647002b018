//! The program `h5logfs`: the command line and the file system.
//!
//! ```text
//! log file ─scan─▶ Snapshot ─▶ View ◀─read_at─ fs ◀─FUSE─ h5dump, h5py, ncdump, MATLAB, …
//!                               │ miss
//!                               └▶ index ─▶ log
//! ```
//!
//! * [`fs`] serves a catalog of log files through FUSE.
//! * [`cli`] has one module for each subcommand.
//!
//! Other programs can build on the crates `h5logfs-log` and `h5logfs-view` (logs, and views of them), `h5logfs-catalog` (from
//! paths to views), `h5logfs-arrays` (arrays of numbers), `h5logfs-scan` (libhdf5) and `h5logfs-writer` (MPI).

pub mod cli;
pub mod fs;
