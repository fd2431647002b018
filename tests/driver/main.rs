//! The HDF5 file driver, in programs with HDF5 1.14 and later: h5py and netCDF4 of the current Python.

#[path = "../common/mod.rs"]
mod common;

mod corpus;
mod damaged;
mod errors;
mod options;
mod plain;
mod suite;
mod writing;
