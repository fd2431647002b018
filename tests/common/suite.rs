//! The tests of h5py itself, which come with it.

use std::collections::BTreeMap;

use super::readers::{Python, said};

/// What comes of each test.
pub type Outcomes = BTreeMap<String, String>;

/// Runs them all.
pub fn outcomes(python: &Python) -> Outcomes {
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
    // Some of them leave files behind.
    command.env("TMPDIR", dir.path());
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
    assert!(outcomes.len() > 800, "{text}");
    outcomes
}

/// The tests that come out in another way with a plug-in than without.
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

/// How many passed, failed and so on.
pub fn count(outcomes: &Outcomes) -> String {
    let count = |outcome: &str| outcomes.values().filter(|o| *o == outcome).count();
    format!(
        "{} passed, {} failed, {} errors",
        count("PASSED"),
        count("FAILED"),
        count("ERROR")
    )
}
