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

/// Has a release of openpmd-api write each series with both of its backends, and compares the trees whole.
fn both_backends_write_the_same_tree(release: &Python, reader: &Python) {
    let source = tempfile::tempdir().unwrap();
    let mut tool = release.tool("openpmdtrees.py");
    let made = tool.arg("make").arg(source.path()).output().unwrap();
    assert!(made.status.success(), "{}: {}", release.name, said(&made));
    let mounted = Mounted::new(source.path(), "bp=directory");
    let mut tool = reader.tool("openpmdtrees.py");
    tool.arg("same").args([source.path(), mounted.path()]);
    let compared = tool.output().unwrap();
    let said = said(&compared);
    assert!(compared.status.success(), "{}: {said}", release.name);
}

#[test]
fn trees_are_those_of_the_hdf5_backend() {
    let (Some(python), true) = (python(), can_mount(User::Caller)) else {
        return;
    };
    both_backends_write_the_same_tree(&python, &python);
}

#[test]
#[ignore = "needs packages of their own: make test-long"]
fn trees_of_earlier_releases_are_those_of_their_hdf5_backend() {
    let (Some(python), true) = (python(), can_mount(User::Caller)) else {
        return;
    };
    for release in Python::earlier_openpmd() {
        both_backends_write_the_same_tree(&release, &python);
    }
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
