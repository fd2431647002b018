//! Random programs of ADIOS2, read through a real mount: what they have put, and what ADIOS2's own reader finds.

use std::path::Path;

use crate::common::amount::{either, first_seed, told};
use crate::common::readers::{Python, said};
use crate::common::{Mounted, User, can_mount};

/// `H5LOGFS_TEST_CASES` sets the number of programs, `H5LOGFS_TEST_SEED` the first one.
#[test]
fn random_programs_are_shown_as_they_were_put() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let source = tempfile::tempdir().unwrap();
    let numbers = [
        first_seed(),
        told("H5LOGFS_TEST_CASES").unwrap_or(either(40, 1000)),
    ];
    let numbers = numbers.map(|number| number.to_string());
    let tool = |command: &str| {
        let mut tool = python.tool("adios.py");
        tool.arg(command).arg(source.path());
        tool
    };
    let made = tool("make").args(&numbers).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let mounted = Mounted::new(source.path(), "");
    let checked = tool("check").arg(mounted.path()).args(&numbers).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
}

/// All steps that had ended are there, and nothing else. `H5LOGFS_TEST_CASES` and `H5LOGFS_TEST_SEED` as above.
#[test]
fn programs_that_are_killed_leave_their_steps() {
    let Some(python) = Python::new() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(either(6, 300));
    let mut tool = python.tool("adioskill.py");
    tool.args([Path::new(env!("CARGO_BIN_EXE_h5logfs")), dir.path()]);
    let numbers = [first_seed(), count].map(|number| number.to_string());
    let output = tool.args(numbers).output().unwrap();
    let said = said(&output);
    eprintln!("{said}");
    assert!(output.status.success(), "{said}");
}
