//! Failed creations, replaced files, and files that are removed, with and without subfiles.
//! `tests/programs/creation.rs` checks the errors on every rank; this module looks at the files through a mount.

use std::fs;
use std::path::Path;

use crate::common::jobs::faults::Run;
use crate::common::nodes::Place;
use crate::common::{User, can_mount};

fn start(scenario: &str, dir: &Path) -> Option<Run> {
    can_mount(User::Caller).then(|| Run::start(&Place::Here, scenario, dir))
}

/// Names in a directory that belong neither to logs nor to their subfiles.
fn strange_names(dir: &Path) -> Vec<String> {
    let found = fs::read_dir(dir).unwrap().flatten();
    let names = found.map(|f| f.file_name().into_string().unwrap());
    let is_usual = |name: &String| {
        let log = name.strip_suffix(".subfiles").unwrap_or(name);
        log.ends_with(".h5") && !log.starts_with('.')
    };
    names.filter(|name| !is_usual(name)).collect()
}

#[test]
fn a_creation_that_fails_leaves_everything_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    Run::start(&Place::Here, "nothing-left", dir.path())
        .job
        .succeed();
}

#[test]
fn a_file_is_where_its_path_led_when_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    Run::start(&Place::Here, "ways-that-go", dir.path())
        .job
        .succeed();
    assert_eq!(strange_names(dir.path()), [""; 0]);
}

#[test]
fn what_is_replaced_is_gone_and_its_readers_read_on() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut run) = start("replaced", dir.path()) else {
        return;
    };
    run.at("closed");
    for before in 0..5 {
        for kind in 0..2 {
            let name = format!("{before}-{kind}.h5");
            run.shows_closed(&name, 2);
            let subfiles = run.path(&format!("{name}.subfiles"));
            assert_eq!(subfiles.exists(), kind == 1, "{name}");
        }
    }
    assert_eq!(strange_names(dir.path()), [""; 0]);
    run.go("closed");
    run.job.succeed();
}

#[test]
fn a_job_that_dies_while_it_replaces_a_log_leaves_the_old_one() {
    for scenario in ["dies-before-its-journal", "dies-before-its-file"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut run) = start(scenario, dir.path()) else {
            return;
        };
        let succeeded = run.job.wait().success();
        let said = run.job.said();
        assert!(!succeeded && !said.contains("it lives"), "{said}");
        let names = strange_names(dir.path());
        let is_kept = |name: &&String| name.starts_with(".old.h5.h5logfs-old-");
        let log = names.iter().filter(is_kept).min_by_key(|name| name.len());
        let log = log.unwrap_or_else(|| panic!("{scenario}: {names:?}"));
        run.shows(log, 1);
    }
}

#[test]
fn of_jobs_that_want_one_name_one_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&Place::Here, "contested", dir.path());
    run.at("closed");
    assert_eq!(strange_names(dir.path()), [""; 0]);
    run.go("closed");
    run.job.succeed();
}

#[test]
fn no_option_takes_the_file_of_a_job_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut run) = start("in-use", dir.path()) else {
        return;
    };
    run.at("closed");
    for name in ["whole.h5", "parts.h5"] {
        run.shows_closed(name, 2);
    }
    assert_eq!(strange_names(dir.path()), [""; 0]);
    run.go("closed");
    run.job.succeed();
}

#[test]
fn a_log_that_is_taken_away_fails_at_the_next_flush() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut run) = start("taken-away", dir.path()) else {
        return;
    };
    run.at("closed");
    for name in ["file", "journal", "master", "first", "second", "folder"] {
        run.shows_closed(&format!("{name}.h5"), 4);
    }
    run.go("closed");
    run.job.succeed();
}
