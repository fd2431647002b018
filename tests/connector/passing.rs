//! Files that are no logs: programs get the same answers, and write the same, as without the connector.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::connector::Connector;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::mpirun::{Job, Mpi};
use crate::common::readers::{Python, said};

type Variables = Vec<(&'static str, OsString)>;

/// The results of a program: its output, the number of printed errors, and its files.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    printed: String,
    errors: usize,
    files: Vec<(String, Vec<u8>)>,
}

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Runs a program in its own directory, whose path always has the same length.
fn left(program: &Path, variables: Variables) -> Left {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .arg(dir.path())
        .envs(variables)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    Left {
        printed: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8_lossy(&output.stderr)
            .matches("HDF5-DIAG")
            .count(),
        files: files(dir.path()),
    }
}

#[track_caller]
fn check_same(with: &Left, without: &Left, way: &str) {
    assert_eq!(with.printed, without.printed, "{way}");
    assert_eq!(with.errors, without.errors, "{way}: errors are printed");
    let names = |left: &Left| {
        left.files
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(with), names(without), "{way}");
    for ((name, with), (_, without)) in with.files.iter().zip(&without.files) {
        assert!(with == without, "{way}: other bytes in {name}");
    }
}

/// Many HDF5 functions with their results.
#[test]
fn a_program_of_c_works_as_without_the_connector() {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("connector", "passing");
    let without = left(&program, Vec::new());
    assert!(
        without.printed.lines().count() > 60 && without.errors > 5,
        "{without:?}"
    );
    assert_eq!(without.files.len(), 2);
    let connector = Connector::new();
    for information in [
        "h5logfs",
        "h5logfs under_vol=0;under_info={}",
        "h5logfs fsync=flush",
    ] {
        let mut variables = connector.used_as(information);
        variables.push(("H5LOGFS_MATCH", "".into()));
        check_same(&left(&program, variables), &without, information);
    }
}

/// The disk state of a file that the program is writing is unreadable. libhdf5 has it open.
#[test]
fn a_file_that_the_program_writes_is_opened_again() {
    let Some(hdf5) = Hdf5::find() else { return };
    let (dir, connector) = (tempfile::tempdir().unwrap(), Connector::new());
    let mut program = Command::new(hdf5.compiled("connector", "again"));
    // The program that would look at its bytes is missing.
    program
        .envs(connector.passing())
        .env("H5LOGFS_PROGRAM", "/bin/false");
    succeed(program.arg(dir.path().join("a.h5")));
}

/// HDF5's own pass-through connector prints errors twice, and its files name the native connector.
#[test]
fn it_works_above_and_below_another_connector() {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("connector", "passing");
    let without = left(&program, Vec::new());
    let connector = Connector::new();
    for information in [
        // libhdf5 finds its pass-through connector by number if that is already in use.
        "pass_through under_vol=18485;under_info={under_vol=1;under_info={under_vol=0;under_info={}};fsync=none}",
        "pass_through under_vol=18485;under_info={under_vol=0;under_info={};fsync=none}",
    ] {
        let mut variables = connector.used_as(information);
        variables.push(("H5LOGFS_MATCH", "".into()));
        let mut with = left(&program, variables);
        assert!(
            with.errors > without.errors,
            "{information}: it is not used"
        );
        with.errors = without.errors;
        with.printed = with
            .printed
            .replace("another connector", "the same connector");
        check_same(&with, &without, information);
    }
}

fn left_by_ranks(program: &Path, variables: Variables) -> Left {
    let dir = tempfile::tempdir().unwrap();
    let mut mpirun = Mpi::of_build().run(3, program);
    mpirun.arg(dir.path()).envs(variables);
    let printed = Job::launch(mpirun).succeed();
    Left {
        printed,
        errors: 0,
        files: files(dir.path()),
    }
}

#[test]
fn parallel_ranks_work_as_without_the_connector() {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("connector", "ranks");
    let without = left_by_ranks(&program, Vec::new());
    assert_eq!(without.files.len(), 4);
    let with = left_by_ranks(&program, Connector::new().passing());
    check_same(&with, &without, "three ranks");
}

/// The output of the tool, in its own directory.
fn printed(python: &Python) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = python.tool("plainfiles.py");
    succeed(command.arg(dir.path()))
}

#[test]
fn h5py_works_as_without_the_connector() {
    let connector = Connector::new();
    let (Some(with), Some(without)) = (connector.passing_python(), Python::new()) else {
        return;
    };
    let (with, without) = (printed(&with), printed(&without));
    assert!(without.lines().count() > 150, "{without}");
    let lines = with.lines().zip(without.lines());
    let differing: Vec<_> = lines.filter(|(a, b)| a != b).collect();
    assert!(differing.is_empty(), "with and without: {differing:#?}");
    assert_eq!(with.lines().count(), without.lines().count());
}

/// netCDF4 has its own libhdf5.
#[test]
fn netcdf_works_as_without_the_connector() {
    let connector = Connector::new();
    let (Some(with), Some(without)) = (connector.passing_python(), Python::new()) else {
        return;
    };
    let code = "
import sys
import netCDF4
import numpy as np
path = sys.argv[1] + '/file.nc'
with netCDF4.Dataset(path, 'w') as f:
    f.history = 'made by a test'
    f.createDimension('time', None)
    f.createDimension('x', 30)
    kind = f.createCompoundType(np.dtype([('a', 'i4'), ('b', 'f8')]), 'kind')
    group = f.createGroup('deep').createGroup('deeper')
    v = group.createVariable('v', 'f4', ('time', 'x'), zlib=True, chunksizes=(4, 30), fill_value=-1)
    for step in range(10):
        v[step] = np.arange(30) + step
        f.sync()
    s = f.createVariable('names', str, ('x',))
    s[3] = 'a text'
    c = f.createVariable('pairs', kind, ('x',))
    c[:] = np.array([(i, i / 2) for i in range(30)], kind.dtype)
with netCDF4.Dataset(path, 'a') as f:
    f['deep/deeper/v'][12] = 5
    f.createVariable('more', 'i8', ('x',))[:] = 7
with netCDF4.Dataset(path) as f:
    print(f, f['deep/deeper'], f['names'][3:5], f['pairs'][7], f['more'][0])
    print(f['deep/deeper/v'][:].tolist())
try:
    netCDF4.Dataset(sys.argv[1] + '/nothing.nc')
except OSError as e:
    print(type(e).__name__, e.errno)
";
    let run = |python: &Python| {
        let dir = tempfile::tempdir().unwrap();
        python.run(code, &[dir.path()])
    };
    assert_eq!(run(&with), run(&without));
}

/// xarray writes by h5netcdf and by netCDF4, in one process with two libhdf5.
#[test]
fn xarray_works_as_without_the_connector() {
    let connector = Connector::new();
    let (Some(with), Some(without)) = (connector.passing_python(), Python::new()) else {
        return;
    };
    let code = "
import sys
import numpy as np, xarray as xr
data = xr.Dataset({'t': (('time', 'x'), np.arange(200.0).reshape(20, 10))}, coords={'x': np.arange(10) * 3})
for engine in ('h5netcdf', 'netcdf4'):
    path = f'{sys.argv[1]}/{engine}.nc'
    data.to_netcdf(path, engine=engine, encoding={'t': {'zlib': True}}, unlimited_dims=['time'])
    for reader in ('h5netcdf', 'netcdf4'):
        with xr.open_dataset(path, engine=reader) as got:
            assert got.identical(data), (engine, reader)
            print(engine, reader, got.t.sum().item())
";
    let run = |python: &Python| {
        let dir = tempfile::tempdir().unwrap();
        python.run(code, &[dir.path()])
    };
    assert_eq!(run(&with), run(&without));
}
