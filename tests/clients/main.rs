//! The programs that read mounts: h5py with two versions of libhdf5, netCDF4, xarray, h5dump, ncdump.

#[path = "../common/mod.rs"]
mod common;

mod adios;
mod bench;
mod claims;
mod corpus;
mod damaged;
mod everybody;
mod many;
mod mutants;
mod netcdf;
mod openpmd;
mod paraview;
mod scorpio;
mod table;
mod tiles;
