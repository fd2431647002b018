//! Ordinary, unchanged programs: of h5py, netCDF4, xarray and h5netcdf, of parallel netCDF-C, and of Fortran with
//! HDF5's own modules. Their files with the connector equal those without it.

use std::path::Path;

use crate::common::amount::each_variant;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::nodes::Place;
use crate::common::readers::Python;
use crate::common::twice::{Twice, by_ranks};

/// A program of `tests/tools/programs.py`.
#[track_caller]
fn of_python(way: &str) {
    let Some(python) = Python::new() else { return };
    let twice = Twice::new();
    twice.run(|dir, variables| {
        let python = python.with_variables(variables.to_vec());
        let printed = succeed(python.tool("programs.py").arg(way).arg(dir.join("file.h5")));
        assert_eq!(printed, "");
    });
    twice.compare();
}

#[test]
fn programs_of_python() {
    let programs = [
        "h5py",
        "netcdf4",
        "xarray-netcdf4",
        "xarray-h5netcdf",
        "h5netcdf",
    ];
    each_variant(&programs, |program| of_python(program));
}

/// A program that takes the name of its file, run by several ranks.
#[track_caller]
fn of_mpi(program: &Path) {
    each_variant(&[1, 3], |ranks| {
        let twice = Twice::new();
        twice.run(|dir, variables| {
            let file = dir.join("file.h5").to_str().unwrap().to_owned();
            by_ranks(&Place::Here, *ranks, program, &[file], variables);
        });
        twice.compare();
    });
}

#[test]
fn parallel_netcdf() {
    if let Some(hdf5) = Hdf5::find() {
        of_mpi(&hdf5.compiled_from("netcdf", &["-lnetcdf", "-lhdf5_hl", "-lhdf5"]));
    }
}

#[test]
fn parallel_fortran() {
    if let Some(program) = Hdf5::find().and_then(|hdf5| hdf5.fortran("heat", &[])) {
        of_mpi(&program);
    }
}
