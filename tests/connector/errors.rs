//! Errors are on the error stack of the calling library, which prints them once. `driver/errors.rs` has those of reading.

use crate::common::connector::Connector;
use crate::common::readers::project;

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
