//! Files that are no logs: programs see the same as without the driver.

use std::process::Command;

use crate::common::driver::Driver;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::readers::{Python, said};

/// The output of the tool, in its own directory.
fn printed(python: &Python) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = python.tool("plainfiles.py");
    let output = command.arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn plain_files_are_those_of_the_default_driver() {
    let driver = Driver::new();
    let (Some(with), Some(without)) = (driver.python(), Python::new()) else {
        return;
    };
    let code = "import h5py, sys; print(h5py.File(sys.argv[1], 'w').driver)";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.h5");
    assert_eq!(
        with.run(code, &[&file]),
        "unknown\n",
        "the driver is not used"
    );
    assert_eq!(without.run(code, &[&file]), "sec2\n");
    let (with, without) = (printed(&with), printed(&without));
    assert!(without.lines().count() > 150, "{without}");
    let differing: Vec<_> = with
        .lines()
        .zip(without.lines())
        .filter(|(a, b)| a != b)
        .collect();
    assert!(differing.is_empty(), "with and without: {differing:#?}");
    assert_eq!(with.lines().count(), without.lines().count());
}

/// The disk state of a file that the program is writing is unreadable. libhdf5 has it open.
#[test]
fn a_file_that_the_program_writes_is_opened_again() {
    let Some(hdf5) = Hdf5::find() else { return };
    let (dir, driver) = (tempfile::tempdir().unwrap(), Driver::new());
    let mut program = Command::new(hdf5.compiled("connector", "again"));
    // The program that would look at its bytes is missing.
    program
        .envs(driver.used())
        .env("H5LOGFS_PROGRAM", "/bin/false");
    succeed(program.arg(dir.path().join("a.h5")));
}
