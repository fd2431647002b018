//! The HDF5 file driver, in programs with HDF5 1.14 and later: h5py and netCDF4 of the current Python, programs of C.

#[path = "../common/mod.rs"]
mod common;

mod errors;
mod flushes;
mod hosts;
mod log_dirs;
mod options;
mod parallel;
mod plain;
mod sets;
mod writing;
