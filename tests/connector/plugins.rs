//! The plug-in that serves each program. libhdf5 asks the files of a directory in no known order.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::connector::{Connector, PARALLEL};
use crate::common::hosts::{Hdf5, succeed};
use crate::common::make::{built_connector, built_driver, built_parallel_connector};
use crate::common::readers::Python;

/// The plug-in that a C program with parallel HDF5 uses.
fn used(plugins: &Path) -> Option<String> {
    let program = Hdf5::find()?.compiled("connector", "which");
    let connector = Connector::serial();
    let mut command = Command::new(program);
    command
        .envs(connector.used())
        .env("HDF5_PLUGIN_PATH", plugins);
    Some(succeed(&mut command))
}

/// A directory in which files are created in this order, which is also the order of their names.
fn directory(plugins: &[&Path]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for plugin in plugins {
        symlink(plugin, dir.path().join(plugin.file_name().unwrap())).unwrap();
    }
    dir
}

#[test]
fn a_parallel_library_gets_the_parallel_plug_in() {
    let (driver, serial, parallel) = (
        built_driver(),
        built_connector(),
        built_parallel_connector(),
    );
    if !parallel.exists() {
        eprintln!("skipped: the feature mpi builds {PARALLEL}");
        return;
    }
    for order in [
        [&driver, &serial, &parallel],
        [&parallel, &serial, &driver],
        [&serial, &parallel, &driver],
    ] {
        let dir = directory(&order.map(|path| path.as_path()));
        let Some(used) = used(dir.path()) else { return };
        assert_eq!(used, "libh5logfs_connector_mpi.so\n");
    }
}

#[test]
fn a_parallel_library_makes_do_with_the_serial_plug_in() {
    let connector = Connector::serial();
    if let Some(used) = used(&connector.plugins()) {
        assert_eq!(used, "libh5logfs_connector.so\n");
    }
}

/// Each of two libraries in one process gets its plug-in, and registers the class once.
#[test]
fn a_serial_library_gets_the_serial_plug_in() {
    let connector = Connector::new();
    let Some(python) = connector.passing_python() else {
        return;
    };
    let code = "
import os, sys
import h5py, netCDF4
h5py.File(sys.argv[1] + '/a.h5', 'w').close()
netCDF4.Dataset(sys.argv[1] + '/a.nc', 'w').close()
sys.path.insert(0, sys.argv[2])
import libhdf5
name = b'h5logfs'
libhdf5.lib.H5VLget_connector_id_by_name.restype = libhdf5.ctypes.c_int64
print(libhdf5.lib.H5VLget_connector_id_by_name(name) > 0)
";
    let dir = tempfile::tempdir().unwrap();
    let tools = crate::common::readers::project().join("tests/tools");
    assert_eq!(python.run(code, &[dir.path(), &tools]), "True\n");
    // The parallel plug-in alone declines, and there is no connector.
    let parallel = built_parallel_connector();
    if parallel.exists() {
        let alone = directory(&[&parallel]);
        let mut command = Python::new().unwrap().command();
        command
            .envs(connector.used())
            .env("HDF5_PLUGIN_PATH", alone.path());
        let path = dir.path().join("b.h5");
        let code = "import h5py, sys; h5py.File(sys.argv[1], 'w')";
        let output = command.args(["-c", code]).arg(&path).output().unwrap();
        assert!(!output.status.success());
        assert!(!path.exists());
    }
}

/// The entry points of a plug-in are in no other one.
#[test]
fn a_plug_in_has_its_own_entry_points_and_needs_no_libhdf5() {
    for plugin in [
        built_driver(),
        built_connector(),
        built_parallel_connector(),
    ] {
        if !plugin.exists() {
            continue;
        }
        let symbols = succeed(
            Command::new("nm")
                .args(["-D", "--defined-only"])
                .arg(&plugin),
        );
        let names: Vec<&str> = symbols
            .lines()
            .filter_map(|line| line.rsplit(' ').next())
            .collect();
        assert_eq!(
            names,
            ["H5PLget_plugin_info", "H5PLget_plugin_type"],
            "{}",
            plugin.display()
        );
        let needed = succeed(Command::new("readelf").arg("-d").arg(&plugin));
        assert!(!needed.contains("hdf5"), "{needed}");
        assert!(needed.contains("NODELETE"), "{needed}");
        assert!(fs::metadata(&plugin).unwrap().is_file());
    }
}

/// The module of a site sets `HDF5_PLUGIN_PATH` for everybody. What programs of PyPI write and read stays as it is. The wheel of
/// netCDF4 looks for its filters only where the variable is not set, so the documents tell users to append its directory.
#[test]
fn a_module_for_everybody_leaves_programs_as_they_are() {
    let Some(python) = Python::new() else { return };
    let code = "
import os, sys
import netCDF4
import h5py, numpy as np, xarray
os.chdir(sys.argv[1])
with h5py.File('plain.h5', 'w') as file:
    file.create_dataset('x', data=np.arange(100.0), compression='gzip')
assert h5py.File('plain.h5')['x'][:].sum() == 4950
xarray.Dataset({'x': ('t', np.arange(100.0))}).to_netcdf('plain.nc')
for engine in ['netcdf4', 'h5netcdf']:
    assert xarray.open_dataset('plain.nc', engine=engine).x.sum() == 4950
for name in ['zlib', 'zstd', 'bzip2', 'blosc_lz4']:
    try:
        with netCDF4.Dataset(name + '.nc', 'w') as file:
            file.createDimension('t', 100)
            file.createVariable('x', 'f8', ('t',), compression=name)[:] = np.arange(100.0)
        assert netCDF4.Dataset(name + '.nc')['x'][:].sum() == 4950
        print(name)
    except RuntimeError as e:
        assert 'undefined filter' in str(e), e
";
    let filters = "import netCDF4, os; print(os.path.dirname(netCDF4.__file__) + '/plugins')";
    let filters = python.run(filters, &[]);
    let connector = Connector::new();
    let plugins = connector.plugins().display().to_string();
    for (path, written) in [
        (plugins.clone(), "zlib\n"),
        (
            format!("{plugins}:{}", filters.trim()),
            "zlib\nzstd\nbzip2\nblosc_lz4\n",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let python = python.with_variables(vec![("HDF5_PLUGIN_PATH", path.into())]);
        assert_eq!(python.run(code, &[dir.path()]), written);
    }
}
