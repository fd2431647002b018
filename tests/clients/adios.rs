//! Random programs of ADIOS2, read through a real mount: what they have put, and what ADIOS2's own reader finds.

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
