//! Jobs whose processes are all killed at once, at random times. `tests/cluster` has them on several nodes.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills of each test, `H5LOGFS_TEST_SEED` the first seed.

use std::process::Command;

use crate::common::PROGRAM;
use crate::common::amount::each_variant;
use crate::common::jobs::kill::{Pattern, kill_at_random};
use crate::common::nodes::Place;

/// While the job runs, no command takes its file; after its death the commands report that.
#[test]
fn a_running_job_is_told_from_a_dead_one() {
    let mut pattern = Pattern::start(&Place::Here, 1_000_000, 0, 1);
    let mut ranks = pattern.victim.ranks();
    assert!(pattern.victim.wait_for("3"));
    let writer = ranks[0].pid.as_raw_pid();
    let state = |pattern: &Pattern| {
        let mut inspect = Command::new(PROGRAM);
        let output = inspect
            .args(["inspect", "--json"])
            .arg(pattern.places().log())
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let unclosed = &report["unclosed"];
        assert_eq!(unclosed["job"]["pid"], writer, "{unclosed}");
        assert!(unclosed["flush"].as_u64().unwrap() >= 3);
        unclosed["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&pattern), "running");
    let (good, said) = pattern.places().h5logfs("check");
    assert!(good && said.contains("its job is running"), "{said}");
    let (good, said) = pattern.places().h5logfs("recover");
    let who = format!("is still running: process {writer} ");
    assert!(!good && said.contains(&who), "{said}");
    for target in [pattern.places().log(), pattern.journal()] {
        let mut export = Command::new(PROGRAM);
        export
            .args(["export", "--force"])
            .arg(pattern.places().log())
            .arg(&target);
        let output = export.output().unwrap();
        let refusal = crate::common::readers::said(&output);
        assert!(
            !output.status.success() && refusal.contains("is not overwritten"),
            "{refusal}"
        );
    }
    // The job continues.
    let next = (pattern.acknowledged() + 3).to_string();
    assert!(pattern.victim.wait_for(&next));
    pattern.victim.kill(&mut ranks, 0);
    assert_eq!(state(&pattern), "ended");
    let (good, said) = pattern.places().h5logfs("check");
    assert!(good && said.contains("its job has ended"), "{said}");
    for words in ["recovered ", "already closed, nothing to do"] {
        let (good, said) = pattern.places().h5logfs("recover");
        assert!(good && said.contains(words), "{said}");
    }
}

/// Also in subfiles. A killed append loses no earlier data.
#[test]
fn killed_ranks_leave_what_they_flushed() {
    let variants = [
        (0, false, 0),
        (1, false, 10_000),
        (3, false, 20_000),
        (0, true, 30_000),
        (3, true, 40_000),
    ];
    each_variant(&variants, |(subfiles, sessions, offset)| {
        kill_at_random(&Place::Here, *subfiles, *sessions, *offset);
    });
}
