//! Reading logs by programs that ask for more than elements. `clients/table.rs` compares all elements.

use std::process::Command;

use crate::common::PROGRAM;
use crate::common::clock::settle;
use crate::common::connector::Connector;
use crate::common::hosts::{Hdf5, Stage};
use crate::common::mpirun::{Job, Mpi};
use crate::common::readers::{Python, corpus, said};

/// A program hears of the list that it has given, not of the driver that shows the log.
#[test]
fn a_program_is_told_what_it_has_asked_for() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let code = "
import sys
import h5py
path = sys.argv[1]
for driver in ('sec2', 'stdio', 'core'):
    with h5py.File(path, driver=driver, rdcc_nbytes=12345, libver='v110') as f, h5py.File(path) as g:
        fapl = f.id.get_access_plist()
        print(f.driver, fapl.get_cache()[2], fapl.get_libver_bounds()[0] == h5py.h5f.LIBVER_V110, f.mode, f == g)
        print(f.filename == path, f.libver, f['r'].file == f, h5py.is_hdf5(path), f['a'].id.get_offset() is not None)
";
    let log = corpus().join("tiny.log.h5");
    let lines = python.run(code, &[&log]);
    let told: Vec<&str> = lines.lines().step_by(2).collect();
    let expected = ["sec2", "stdio", "core"].map(|driver| format!("{driver} 12345 True r True"));
    assert_eq!(told, expected);
    assert!(
        lines
            .lines()
            .skip(1)
            .step_by(2)
            .all(|line| line.starts_with("True ")),
        "{lines}"
    );
}

/// libhdf5 follows an external link by the driver of the containing file, past all connectors. A log behind a plain
/// file is shown if the file driver is set, too.
#[test]
fn plain_files_refer_to_logs() {
    let connector = Connector::new();
    let Some(python) = connector.passing_python() else {
        return;
    };
    let python = python.with_variables(vec![("HDF5_DRIVER", "h5logfs".into())]);
    let dir = tempfile::tempdir().unwrap();
    let log = corpus().join("nd_1rank.log.h5");
    let expected = corpus().join("nd_1rank.expected.h5");
    let code = "
import os, sys
import h5py
dir, log, expected = sys.argv[1:]
with h5py.File(expected) as f:
    wanted = f['d2'][...]
path = os.path.join(dir, 'plain.h5')
with h5py.File(path, 'w') as f:
    f['link'] = h5py.ExternalLink(log, '/d2')
    layout = h5py.VirtualLayout(wanted.shape, wanted.dtype)
    layout[...] = h5py.VirtualSource(log, 'd2', wanted.shape)
    f.create_virtual_dataset('virtual', layout)
with h5py.File(path) as f:
    for way in ('link', 'virtual'):
        assert (f[way][...] == wanted).all(), way
    assert f['link'].file.filename == log
";
    python.run(code, &[dir.path(), &log, &expected]);
}

#[test]
fn objects_are_copied_from_a_log_to_a_plain_file() {
    let connector = Connector::new();
    let Some(python) = connector.passing_python() else {
        return;
    };
    let code = "
import h5py, sys
log, expected, copy = sys.argv[1:]
with h5py.File(log) as f, h5py.File(copy, 'w') as to, h5py.File(expected) as wanted:
    for name in f:
        f.copy(name, to)
        assert (to[name][...] == wanted[name][...]).all(), name
    assert len(to) > 3
";
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.h5");
    let files = ["nd_1rank.log.h5", "nd_1rank.expected.h5"].map(|name| corpus().join(name));
    python.run(code, &[&files[0], &files[1], &copy]);
}

#[track_caller]
fn ranks_read(directory: &str, program: &str) {
    let Some(hdf5) = Hdf5::find() else { return };
    let stage = Stage::of_connector();
    let logs = stage.logs(2);
    settle(stage.path());
    let mut mpirun = Mpi::of_build().run(3, &hdf5.compiled(directory, program));
    mpirun.arg(&stage.expected).args(logs);
    mpirun.envs(stage.environment());
    assert_eq!(Job::launch(mpirun).succeed(), "");
}

#[test]
fn parallel_ranks_read_their_shares() {
    ranks_read("hosts", "share");
}

/// Collective transfers are only for files by MPI-IO, which a log is not.
#[test]
fn parallel_ranks_read_collectively() {
    ranks_read("connector", "collective");
}

/// Without the file driver in the environment, and with it.
#[test]
fn the_file_driver_and_the_connector_go_together() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let both = python.with_variables(vec![("HDF5_DRIVER", "h5logfs".into())]);
    let name = "nd_1rank";
    let log = corpus().join(format!("{name}.log.h5"));
    both.same(&log, &corpus().join(format!("{name}.expected.h5")))
        .unwrap();
}

/// Debian's libhdf5 1.10 has no connectors.
#[test]
fn an_old_library_sees_nothing() {
    let connector = Connector::new();
    let Some(old) = Python::old() else { return };
    let old = old.with_variables(connector.used());
    let code = "
import h5py, sys
with h5py.File(sys.argv[1], 'r') as f:
    print('_LOG' in f)
";
    assert_eq!(old.run(code, &[&corpus().join("tiny.log.h5")]), "True\n");
}

/// netCDF-C crashes on a dimension scale without dimensions (`docs/reports/netcdf-c-null-dataspace.md`).
#[test]
fn netcdf_without_a_plug_in_takes_or_refuses_a_log() {
    let connector = Connector::new();
    let (Some(python), Some(plain)) = (connector.python(), Python::new()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.nc");
    let code = "
import netCDF4, sys
with netCDF4.Dataset(sys.argv[1], 'w') as f:
    f.createDimension('time', None)
    f.createDimension('x', 3)
    f.createDimension('without a variable', 2)
    for name, dims in ('x', ['x']), ('time', ['time']), ('T', ['time', 'x']), ('U', ['time', 'without a variable']):
        f.createVariable(name, 'f4', dims)
    f['T'][:] = [[1, 2, 3]]
";
    python.run(code, &[&log]);
    let checked = plain.tool("logvol.py").arg(&log).output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
    let open = "
import netCDF4, sys
try:
    print(netCDF4.Dataset(sys.argv[1]).variables)
except OSError as e:
    assert 'NetCDF' in str(e)
";
    plain.run(open, &[&log]);
    if let Ok(output) = Command::new("ncdump").arg("-h").arg(&log).output() {
        assert!(output.status.code().is_some(), "{}", said(&output));
    }
}

/// A dimension of netCDF without coordinates has a dataset that nobody writes, and that is no gap.
#[test]
fn dimensions_without_coordinates_are_complete() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.nc");
    let code = "
import sys, netCDF4
with netCDF4.Dataset(sys.argv[1], 'w') as f:
    f.createDimension('x', 5)
    f.createDimension('time', None)
    f.createVariable('v', 'f4', ('time', 'x'))[0:3] = 1
    f.createVariable('half', 'f4', ('x',))[0:2] = 1
";
    python.run(code, &[&path]);
    let says = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).arg(&path).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let told = says(&["inspect", "--incomplete"]);
    assert!(told.contains("1 of 4 logged datasets"), "{told}");
    assert!(told.contains("/half [5]: 40.0 % covered"), "{told}");
    // 17 of 20 elements of variables.
    let listed = says(&["ls"]);
    assert!(listed.contains("85.0 %"), "{listed}");
}
