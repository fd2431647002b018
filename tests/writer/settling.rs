//! The writer's option `settle`: the close leaves an ordinary HDF5 file, or the log and an error that says why.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills, and of random programs for each number of ranks,
//! `H5LOGFS_TEST_SEED` the first seed.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::amount::{cases, first_seed};
use crate::common::jobs::faults::Run;
use crate::common::jobs::kill::Pattern;
use crate::common::jobs::random::settled_programs_on;
use crate::common::killed::Shown;
use crate::common::nodes::Place;
use crate::common::numbers::Numbers;
use crate::common::readers::Python;
use crate::common::settled::settle_by_command;
use crate::common::{User, can_mount};

#[test]
fn settled_programs_read_like_their_logs() {
    settled_programs_on(&Place::Here, &[2, 3, 4], cases(6));
}

#[test]
fn a_close_settles_the_file_or_leaves_the_log() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&Place::Here, "settling", dir.path());
    let is_log = |run: &Run, name: &str| {
        run.shows_closed(name, 1);
        assert!(settle_by_command(&run.path(name)).contains(": settled: "));
        run.is_settled(name, 1);
    };
    run.at("settled");
    run.is_settled("settled.h5", 2);
    run.is_settled("twice.h5", 2);
    run.go("settled");
    run.at("refused");
    run.is_settled("refused.h5", 2);
    run.go("refused");
    run.at("locked");
    is_log(&run, "locked.h5");
    is_log(&run, "both.h5");
    run.go("locked");
    run.at("memory");
    is_log(&run, "large.h5");
    run.go("memory");
    run.at("full");
    for name in ["full-0.h5", "full-100.h5", "full-1000.h5"] {
        is_log(&run, name);
    }
    run.go("full");
    for subfiles in ["Number(2)", "PerNode"] {
        run.at(subfiles);
        run.shows_closed("parts.h5", 1);
        std::fs::remove_file(run.path("parts.h5")).unwrap();
        std::fs::remove_dir_all(run.path("parts.h5.subfiles")).unwrap();
        run.go(subfiles);
    }
    run.job.succeed();
}

/// Kills a job while it settles its file. Returns the state of the file.
fn kill_settling(seed: u64, usual: Duration, python: &Python) -> &'static str {
    let mut numbers = Numbers(seed);
    let flushes = 10 + numbers.below(10);
    let mut pattern = Pattern::start_settling(&Place::Here, flushes);
    pattern.wait_until_closed();
    let delay = usual.mul_f64(numbers.below(1100) as f64 / 1000.0);
    thread::sleep(delay);
    pattern.victim.job.kill();
    assert!(!pattern.has_journal());
    let wanted = Shown::Flush(flushes + 1);
    let about = format!("seed {seed}: killed {delay:?} after the close");
    assert_eq!(pattern.shown(python, false), wanted, "{about}");
    let said = settle_by_command(&pattern.places().log());
    assert_eq!(pattern.read(python), wanted, "{about}, then {said}");
    if said.contains("settled already") {
        "settled"
    } else {
        "a log"
    }
}

/// A job killed while it settles its file leaves the closed log or the settled file.
#[test]
fn killed_while_it_settles_a_job_leaves_the_log_or_the_settled_file() {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let mut whole = Pattern::start_settling(&Place::Here, 15);
    whole.wait_until_closed();
    let start = Instant::now();
    whole.victim.wait_for("closed");
    // On a busy machine the job may be faster than this test.
    let usual = start.elapsed().max(Duration::from_millis(20));
    whole.victim.job.wait();
    assert_eq!(whole.read(&python), Shown::Flush(16));
    let first = first_seed() + 50_000;
    let mut left = BTreeMap::new();
    for seed in first..first + cases(4) as u64 {
        *left.entry(kill_settling(seed, usual, &python)).or_insert(0) += 1;
    }
    eprintln!("{left:?}; the close settles in {usual:?}");
}
