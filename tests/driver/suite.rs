//! The tests of h5py itself, which come with it: they pass and fail with the driver as they do without.

use std::collections::BTreeMap;

use crate::common::driver::Driver;
use crate::common::readers::{Python, said};

/// What comes of each test.
fn outcomes(python: &Python) -> BTreeMap<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let mut command = python.command();
    command.args([
        "-m",
        "pytest",
        "-rA",
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
    ]);
    command.args(["--pyargs", "h5py"]).current_dir(dir.path());
    let output = command.output().unwrap();
    let text = said(&output);
    let line = |line: &str| {
        let (outcome, test) = line.split_once(' ')?;
        let known = ["PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS"];
        let test = test.split(" - ").next()?;
        known
            .contains(&outcome)
            .then(|| (test.to_owned(), outcome.to_owned()))
    };
    let outcomes: BTreeMap<_, _> = text.lines().filter_map(line).collect();
    assert!(outcomes.len() > 800, "{text}");
    outcomes
}

/// A minute and a half: run by `make test-h5py`.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5py_come_out_as_without_the_driver() {
    let driver = Driver::new();
    let (Some(with), Some(without)) = (driver.python(), Python::new()) else {
        return;
    };
    let (with, without) = (outcomes(&with), outcomes(&without));
    let differing: Vec<_> = without
        .iter()
        .filter(|(test, outcome)| with.get(*test) != Some(outcome))
        .map(|(test, outcome)| format!("{test}: {outcome}, with the driver {:?}", with.get(test)))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    assert_eq!(with.len(), without.len());
    let count = |outcome: &str| with.values().filter(|o| *o == outcome).count();
    eprintln!(
        "{} passed, {} failed, {} errors",
        count("PASSED"),
        count("FAILED"),
        count("ERROR")
    );
}
