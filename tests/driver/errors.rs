//! An unreadable file or element is an exception with the reason, and nothing else is printed: with the driver, and with
//! the connector.

use std::path::Path;
use std::process::Command;

use crate::common::amount::each_variant;
use crate::common::cases::{Reader, Way};
use crate::common::driver::Driver;
use crate::common::readers::{Python, corpus, project, said};

/// Runs a test with a Python that uses one of the plug-ins, another one each day.
pub fn with_a_plug_in(run: impl Fn(&Python)) {
    each_variant(&[Way::Driver, Way::Connector], |way| {
        if let Some(reader) = Reader::new(*way, &corpus(), "") {
            run(&reader.python);
        }
    });
}

/// Each of two libhdf5 in one process reads, and has its own errors, in any order of use.
#[test]
fn an_error_goes_to_the_library_that_called() {
    let code = "
import sys
import h5py, netCDF4
assert h5py.version.hdf5_version != netCDF4.__hdf5libversion__, 'one libhdf5 is there twice'
good, bad = sys.argv[1:]
def by_h5py():
    with h5py.File(good) as f, h5py.File(bad) as g:
        assert f['T'][...].shape
        for name in ('a', 'r'):
            try:
                g[name][...]
                sys.exit('no error')
            except OSError as e:
                assert bad in str(e) and f'dataset /{name}: chunk [0, 0]: ' in str(e), e
def by_netcdf():
    with netCDF4.Dataset(good) as f, netCDF4.Dataset(bad) as g:
        assert f['T'][...].shape
        for name in ('a', 'r'):
            try:
                g[name][...]
                sys.exit('no error')
            except RuntimeError as e:
                assert str(e) == 'NetCDF: HDF error', e
for _ in range(3):
    by_h5py()
    by_netcdf()
    by_netcdf()
    by_h5py()
for write in (lambda: h5py.File(good, 'r+'), lambda: netCDF4.Dataset(good, 'r+')):
    try:
        write()
        sys.exit('no error')
    except OSError:
        pass
# Files of both are open at the same time.
one, other = h5py.File(good), netCDF4.Dataset(good)
assert (one['T'][...] == other['T'][...]).all()
other.close()
assert one['T'][...].shape
";
    let corpus = corpus();
    let files = ["netcdf4_wrf.log.h5", "bad_size0.log.h5"].map(|name| corpus.join(name));
    with_a_plug_in(|python| {
        let output = python.command().args(["-c", code]).args(&files).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        assert_eq!(text, "");
    });
}

/// libhdf5 prints errors by itself unless a program disables that: once, when the program's call fails.
#[test]
fn errors_are_printed_once_and_by_libhdf5() {
    let code = "
import sys
sys.path.insert(0, sys.argv[1])
from libhdf5 import lib
path = sys.argv[2].encode()
assert lib.H5Fopen(path, 0, 0) < 0
assert lib.H5Fopen(path + b'-', 0, 0) < 0
assert lib.H5Fopen(sys.argv[3].encode(), 1, 0) < 0
";
    let files = ["truncated.log.h5", "tiny.log.h5"].map(|name| corpus().join(name));
    with_a_plug_in(|python| {
        let mut command = python.command();
        command
            .args(["-c", code])
            .arg(project().join("tests/tools"));
        let output = command.args(&files).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        for (part, times) in [
            ("HDF5-DIAG", 3),
            ("truncated.log.h5: ", 1),
            ("truncated.log.h5-', errno = 2", 1),
            ("this is a log, which HDF5 programs can only read", 1),
        ] {
            assert_eq!(text.matches(part).count(), times, "{part}: {text}");
        }
    });
}

/// C programs may contain copies of libhdf5's variables.
#[test]
fn errors_reach_a_program_that_holds_the_error_numbers() {
    let driver = Driver::new();
    let Some(python) = Python::new() else { return };
    let code = "
import glob, importlib.util, os
packages = os.path.dirname(os.path.dirname(importlib.util.find_spec('h5py').origin))
print(glob.glob(os.path.join(packages, 'h5py.libs', 'libhdf5-*.so*'))[0])
";
    let library = python.run(code, &[]);
    let library = Path::new(library.trim());
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let mut cc = Command::new("cc");
    cc.arg(project().join("tests/c/error_numbers.c"));
    cc.arg("-o").arg(&program).arg(library);
    let dir = library.parent().unwrap();
    cc.arg(format!("-Wl,-rpath,{}", dir.display()));
    let built = cc.output().unwrap();
    assert!(built.status.success(), "{}", said(&built));
    let mut command = Command::new(&program);
    command.args(["tiny", "truncated"].map(|name| corpus().join(format!("{name}.log.h5"))));
    let output = command.envs(driver.used()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "open\nnot open\n");
    let sentence = "truncated.log.h5: H5Fopen(): unable to open file: truncated file";
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches(sentence).count(), 1, "{text}");
}
