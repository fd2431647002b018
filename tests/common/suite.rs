//! Test suites of h5py and of other programs.

use std::collections::BTreeMap;
use std::process::Command;

use super::readers::{Python, said};

/// The outcome of each test.
pub type Outcomes = BTreeMap<String, String>;

/// Runs the tests of h5py.
pub fn outcomes(python: &Python) -> Outcomes {
    outcomes_of(python, "h5py", 800)
}

/// Runs the tests of a package, at least `least` of them.
pub fn outcomes_of(python: &Python, package: &str, least: usize) -> Outcomes {
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
    command.args(["--pyargs", package]);
    told(command, least)
}

/// Runs the tests of modules that pytest cannot collect by itself.
pub fn outcomes_of_modules(python: &Python, modules: &[&str], least: usize) -> Outcomes {
    let mut command = python.tool("unittests.py");
    command.args(modules);
    told(command, least)
}

/// Runs tests in an empty directory, at least `least` of them.
fn told(mut command: Command, least: usize) -> Outcomes {
    let dir = tempfile::tempdir().unwrap();
    // Some tests leave files behind.
    command.current_dir(dir.path()).env("TMPDIR", dir.path());
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
    let outcomes: Outcomes = text.lines().filter_map(line).collect();
    assert!(outcomes.len() > least, "{text}");
    outcomes
}

/// The tests whose outcome differs with a plug-in.
pub fn differing(with: &Outcomes, without: &Outcomes) -> Vec<String> {
    let tests = without
        .keys()
        .chain(with.keys().filter(|test| !without.contains_key(*test)));
    let differing = tests.filter(|test| with.get(*test) != without.get(*test));
    differing
        .map(|test| {
            format!(
                "{test}: {:?}, without {:?}",
                with.get(test),
                without.get(test)
            )
        })
        .collect()
}

/// Numbers of passed tests, failed tests, and so on.
pub fn count(outcomes: &Outcomes) -> String {
    let count = |outcome: &str| outcomes.values().filter(|o| *o == outcome).count();
    format!(
        "{} passed, {} failed, {} errors",
        count("PASSED"),
        count("FAILED"),
        count("ERROR")
    )
}
