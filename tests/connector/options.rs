//! Options, and programs that name the connector themselves.

use std::ffi::OsString;

use crate::common::connector::Connector;
use crate::common::readers::{Python, project, said};

fn fails(variables: Vec<(&'static str, OsString)>, words: &str) {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    let python = python.with_variables(variables);
    let code = "
import sys
sys.path.insert(0, sys.argv[1])
from libhdf5 import lib
assert lib.H5Fcreate(sys.argv[2].encode(), 2, 0, 0) < 0
";
    let mut command = python.command();
    command
        .args(["-c", code])
        .arg(project().join("tests/tools"));
    let output = command.arg(&path).output().unwrap();
    let text = said(&output);
    assert!(text.contains(words), "{words}: {text}");
    assert!(!path.exists(), "{words}");
}

#[test]
fn a_bad_option_in_the_information_is_told() {
    let connector = Connector::new();
    for (information, words) in [
        (
            "h5logfs speed=high",
            "unknown option speed: expected one of under_vol, under_info, match,",
        ),
        (
            "h5logfs fsync=often",
            "fsync=often: expected none, close or flush",
        ),
        (
            "h5logfs under_vol=0;under_info={",
            "under_info={: expected {…}",
        ),
        (
            "h5logfs under_vol=300",
            "under_vol=300: there is no such connector",
        ),
    ] {
        fails(connector.used_as(information), words);
    }
}

/// libhdf5 would continue with native files after the first call.
#[test]
fn with_bad_options_no_file_is_made_and_logs_are_read() {
    let connector = Connector::new();
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    let good = python.clone().with_variables(connector.used());
    good.run(
        "import h5py, sys; h5py.File(sys.argv[1], 'w')['x'] = 7",
        &[&log],
    );
    let code = "
import h5py, os, sys
for path, mode in (('new.h5', 'w'), ('new.h5', 'w'), ('new.h5', 'a'), ('log.h5', 'a')):
    try:
        h5py.File(os.path.join(sys.argv[1], path), mode)
    except OSError as e:
        assert 'unknown option buffer_limt: expected one of' in str(e), e
    else:
        raise Exception(path)
assert os.listdir(sys.argv[1]) == ['log.h5']
assert h5py.File(os.path.join(sys.argv[1], 'log.h5'), 'r')['x'][()] == 7
";
    let bad = python.with_variables(connector.used_as("h5logfs buffer_limt=1M"));
    let output = bad
        .command()
        .args(["-c", code])
        .arg(dir.path())
        .output()
        .unwrap();
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let told = text
        .matches("h5logfs: the information of the h5logfs connector: unknown option buffer_limt");
    assert_eq!(told.count(), 1, "{text}");
}

#[test]
fn a_bad_option_in_the_environment_is_told() {
    let connector = Connector::new();
    for (variable, value) in [
        ("H5LOGFS_BUFFER_LIMIT", "little"),
        ("H5LOGFS_FSYNC", "always"),
        ("H5LOGFS_SUBFILES", "0"),
        ("H5LOGFS_SHARE_SELECTIONS", "maybe"),
        ("H5LOGFS_ENCODE_SELECTIONS", "2"),
        ("H5LOGFS_SETTLE", "later"),
        ("H5LOGFS_DISCARD_UNCLOSED", "1"),
        ("H5LOGFS_CHECKSUMS", "on"),
        ("H5LOGFS_FLUSH_EVERY", "never"),
        ("H5LOGFS_FLUSH_BYTES", "few"),
    ] {
        let mut variables = connector.used();
        variables.push((variable, value.into()));
        fails(variables, &format!("{variable}={value}: expected "));
    }
}

/// A program names the connector for one file; its information is kept, compared and written.
#[test]
fn a_program_names_the_connector_itself() {
    let connector = Connector::new();
    let Some(python) = Python::new() else { return };
    let python = python.with_variables(connector.known());
    let code = "
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import libhdf5
from libhdf5 import lib
path = sys.argv[2].encode()
lib.H5VLregister_connector_by_name.restype = ctypes.c_int64
lib.H5VLregister_connector_by_name.argtypes = [ctypes.c_char_p, ctypes.c_int64]
lib.H5Pset_vol.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
lib.H5Pequal.argtypes = [ctypes.c_int64, ctypes.c_int64]
for function in (lib.H5VLconnector_str_to_info, lib.H5VLconnector_info_to_str):
    function.argtypes = None
connector = lib.H5VLregister_connector_by_name(b'h5logfs', 0)
assert connector > 0
def listed(text):
    info = ctypes.c_void_p()
    if text is not None:
        assert lib.H5VLconnector_str_to_info(text, ctypes.c_int64(connector), ctypes.byref(info)) >= 0, libhdf5.errors()
        told = ctypes.c_char_p()
        assert lib.H5VLconnector_info_to_str(info, ctypes.c_int64(connector), ctypes.byref(told)) >= 0
        print(told.value.decode())
    fapl = libhdf5.access_list()
    assert lib.H5Pset_vol(fapl, connector, info) >= 0
    return fapl
texts = (None, b'', b'under_vol=0;under_info={};match=none', b'match=none', b'match=*.nc;fsync=flush')
lists = [listed(text) for text in texts]
print([[lib.H5Pequal(a, b) for a in lists] for b in lists])
file = lib.H5Fcreate(path, 2, 0, lists[3])
assert file > 0, libhdf5.errors()
assert lib.H5Fclose(file) >= 0
# The usual connector is still the native one.
file = lib.H5Fopen(path, 1, 0)
assert file > 0 and lib.H5Fclose(file) >= 0
for fapl in lists:
    assert lib.H5Pclose(fapl) >= 0
";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.h5");
    let told = python.run(code, &[&project().join("tests/tools"), &file]);
    let lines: Vec<&str> = told.lines().collect();
    let none = "under_vol=0;under_info={};match=none";
    let more = "under_vol=0;under_info={};match=*.nc;fsync=flush";
    assert_eq!(lines[..4], ["under_vol=0;under_info={}", none, none, more]);
    let equal =
        "[[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]";
    assert_eq!(lines[4], equal);
}
