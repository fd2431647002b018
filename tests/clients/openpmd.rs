//! Series written by openpmd-api with ADIOS2: its HDF5 backend, and openPMD-viewer, find the same in their HDF5 files
//! as in the directories.

use crate::common::driver::Driver;
use crate::common::readers::{Python, said};
use crate::common::{Mounted, User, can_mount};
use tempfile::TempDir;

/// The Python; `None` where openPMD's packages are missing.
fn python() -> Option<Python> {
    let python = Python::new()?;
    let looked = python
        .command()
        .args(["-c", "import openpmd_api, openpmd_viewer"])
        .output();
    if looked.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!(
        "skipped: {} has no packages of openPMD; `make setup` installs them",
        python.name
    );
    None
}

/// Series of all encodings.
fn series(python: &Python) -> TempDir {
    let source = tempfile::tempdir().unwrap();
    let made = python
        .tool("openpmd.py")
        .arg("make")
        .arg(source.path())
        .output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", said(&made));
    source
}

#[test]
fn series_are_the_same_in_a_mount() {
    let (Some(python), true) = (python(), can_mount(User::Caller)) else {
        return;
    };
    let source = series(&python);
    let mounted = Mounted::new(source.path(), "bp=directory");
    let mut tool = python.tool("openpmd.py");
    tool.arg("same").args([source.path(), mounted.path()]);
    let compared = tool.output().unwrap();
    assert!(compared.status.success(), "{}", said(&compared));
}

/// openpmd-api itself contains an HDF5 that loads no drivers.
#[test]
fn the_viewer_finds_the_same_by_the_file_driver() {
    let Some(python) = python() else { return };
    let (source, links) = (series(&python), tempfile::tempdir().unwrap());
    let driver = Driver::new();
    let reader = python.with_variables(driver.used());
    let mut tool = reader.tool("openpmd.py");
    tool.arg("view").args([source.path(), links.path()]);
    let compared = tool.output().unwrap();
    assert!(compared.status.success(), "{}", said(&compared));
}
