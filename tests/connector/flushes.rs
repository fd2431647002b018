//! Each flush of a log equals the same program's file at that time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::PROGRAM;
use crate::common::amount::{cases, first_seed};
use crate::common::connector::Connector;
use crate::common::readers::{Python, said};

const FLUSHES: u64 = 8;

/// Runs the program with this seed.
fn run(python: &Python, file: &Path, seed: u64, copies: Option<&Path>) {
    let mut tool = python.tool("flushing.py");
    tool.arg(file)
        .args([seed, FLUSHES].map(|n| n.to_string()))
        .args(copies);
    let output = tool.output().unwrap();
    assert!(output.status.success(), "seed {seed}: {}", said(&output));
}

#[test]
fn every_flush_is_what_the_file_of_the_same_program_was() {
    let Some(python) = Python::new() else { return };
    let connector = Connector::new();
    let with_connector = python.with_variables(connector.used_as("h5logfs buffer_limit=64K"));
    let dir = tempfile::tempdir().unwrap();
    let mut pairs: Vec<(PathBuf, PathBuf)> = Vec::new();
    for seed in (first_seed()..).take(cases(18)) {
        let at = |name: &str| dir.path().join(format!("{seed}-{name}"));
        let (copies, log) = (at("copies"), at("log.h5"));
        fs::create_dir(&copies).unwrap();
        run(&python, &at("native.h5"), seed, Some(&copies));
        run(&with_connector, &log, seed, None);
        for flush in 1..=FLUSHES {
            let shown = at(&format!("{flush}.h5"));
            let mut export = Command::new(PROGRAM);
            export.args(["export", "--at-flush", &flush.to_string()]);
            let output = export.args([&log, &shown]).output().unwrap();
            assert!(
                output.status.success(),
                "flush {flush} of seed {seed}: {}",
                said(&output)
            );
            pairs.push((shown, copies.join(format!("{flush}.h5"))));
        }
    }
    python.assert_same(&pairs);
}
