//! Options, and programs that name the driver themselves.

use crate::common::driver::Driver;
use crate::common::readers::{Python, corpus, project};

#[test]
fn a_program_names_the_driver_for_one_file() {
    let driver = Driver::new();
    let Some(python) = Python::new() else { return };
    let python = python.with_variables(driver.known());
    let code = "
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import libhdf5
from libhdf5 import lib
path = sys.argv[2].encode()
lib.H5Eset_auto2(0, None, None)
def opened(config, flags=0):
    fapl = libhdf5.access_list()
    assert lib.H5Pset_driver_by_name(fapl, b'h5logfs', config) >= 0, libhdf5.errors()
    file = lib.H5Fopen(path, flags, fapl)
    said = libhdf5.errors()
    lib.H5Pclose(fapl)
    return file, said
for config in (None, b''):
    file, _ = opened(config)
    assert file > 0
    handle = ctypes.c_void_p()
    assert lib.H5Fget_vfd_handle(file, 0, ctypes.byref(handle)) < 0
    print(libhdf5.errors()[0].split('/')[-1])
    lib.H5Fclose(file)
for config, flags in ((b'no_such_option=1', 0), (b'', 1)):
    file, said = opened(config, flags)
    assert file < 0
    print(said[0].split('/')[-1])
# The default driver takes no notice of it.
assert lib.H5Fopen(path, 1, 0) > 0
";
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("tiny.log.h5");
    std::fs::copy(corpus().join("tiny.log.h5"), &log).unwrap();
    let said = python.run(code, &[&project().join("tests/tools"), &log]);
    let lines: Vec<&str> = said.lines().collect();
    let no_handle = "tiny.log.h5: this is a log: a descriptor would give its own bytes, not those of the HDF5 file that \
                     is read";
    assert_eq!(lines[..2], [no_handle; 2]);
    assert!(
        lines[2].starts_with("the configuration of the h5logfs driver: ")
            && lines[2].contains("no_such_option"),
        "{said}"
    );
    assert!(lines[3].contains("can only read"), "{said}");
}

#[test]
fn a_bad_option_in_the_environment_is_told() {
    let driver = Driver::new();
    let Some(python) = driver.python() else {
        return;
    };
    let python = python.with_variables(vec![("HDF5_DRIVER_CONFIG", "no_such_option=1".into())]);
    let code = "
import h5py, sys
try:
    h5py.File(sys.argv[1])
except OSError as e:
    print(e)
";
    let said = python.run(code, &[&corpus().join("tiny.log.h5")]);
    assert!(
        said.contains("(the configuration of the h5logfs driver: ")
            && said.contains("no_such_option"),
        "{said}"
    );
}
