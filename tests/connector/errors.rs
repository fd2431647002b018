//! Errors are on the error stack of the calling library, which prints them once.

use crate::common::connector::Connector;
use crate::common::readers::{corpus, project, reads_the_rest};

#[test]
fn what_is_lost_or_damaged_is_refused_and_the_rest_is_read() {
    let connector = Connector::new();
    if let Some(python) = connector.python() {
        let open = "h5py.File(path, 'r')";
        reads_the_rest(&python, &corpus(), "import h5py", open, "OSError");
    }
}

#[test]
fn errors_are_printed_once_and_by_libhdf5() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
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
    let output = python
        .command()
        .args(["-c", code])
        .arg(project().join("tests/tools"))
        .args(files)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let count = |part: &str| text.matches(part).count();
    assert_eq!(count("HDF5-DIAG"), 3, "{text}");
    assert_eq!(count("truncated.log.h5: "), 1, "{text}");
    assert_eq!(count("truncated.log.h5-', errno = 2"), 1, "{text}");
    assert_eq!(
        count("this is a log, which HDF5 programs can only read"),
        1,
        "{text}"
    );
}

/// A creation disables printing during its own libhdf5 calls, and then enables it again.
#[test]
fn creations_that_fail_are_printed_once() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let code = "
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from libhdf5 import lib
number = ctypes.c_int64
lib.H5Screate.restype = lib.H5Dcreate2.restype = number
lib.H5Dcreate2.argtypes = [number, ctypes.c_char_p] + 5 * [number]
file, space = lib.H5Fcreate(sys.argv[2].encode(), 2, 0, 0), lib.H5Screate(0)
datatype = number.in_dll(lib, 'H5T_NATIVE_INT_g').value
made = [lib.H5Dcreate2(file, b'a', datatype, space, 0, 0, 0) for _ in range(3)]
assert made[0] > 0 > max(made[1:]), made
assert lib.H5Fclose(file) >= 0
";
    let dir = tempfile::tempdir().unwrap();
    let output = python
        .command()
        .args(["-c", code])
        .arg(project().join("tests/tools"))
        .arg(dir.path().join("log.h5"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("HDF5-DIAG").count(), 2, "{text}");
}

/// Each of two libhdf5 in one process has its own errors.
#[test]
fn an_error_goes_to_the_library_that_called() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let code = "
import sys
import h5py, netCDF4
bad, log = sys.argv[1:]
for _ in range(3):
    with h5py.File(bad) as f:
        try:
            f['a'][...]
            sys.exit('no error')
        except OSError as e:
            assert bad in str(e) and 'dataset /a: chunk [0, 0]: ' in str(e), e
    with netCDF4.Dataset(bad) as f:
        try:
            f['a'][...]
            sys.exit('no error')
        except RuntimeError as e:
            assert str(e) == 'NetCDF: HDF error', e
    for write in (lambda: h5py.File(log, 'r+'), lambda: netCDF4.Dataset(log, 'r+')):
        try:
            write()
            sys.exit('no error')
        except OSError:
            pass
";
    let files = ["bad_size0.log.h5", "tiny.log.h5"].map(|name| corpus().join(name));
    let output = python.command().args(["-c", code]).args(files).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text, "");
}
