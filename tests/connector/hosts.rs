//! Programs that know nothing of logs, and use their process freely. `tests/driver/hosts.rs` has more of them, which
//! reach the same code.

use std::path::Path;
use std::process::Command;

use crate::common::hosts::{DATASET, Hdf5, Stage};
use crate::common::readers::{Python, corpus};

/// Runs a C program with these arguments, then logs.
#[track_caller]
fn run(stage: &Stage, name: &str, arguments: &[&Path], logs: usize) {
    let Some(hdf5) = Hdf5::find() else {
        return;
    };
    let mut host = Command::new(hdf5.program(name));
    host.args(arguments).args(stage.logs(logs));
    stage.run(host);
}

#[test]
fn a_program_reads() {
    let stage = Stage::of_connector();
    run(&stage, "read", &[&stage.expected], 2);
}

#[test]
fn both_processes_read_after_a_fork() {
    let stage = Stage::of_connector();
    run(&stage, "forks", &[&stage.expected], 2);
}

#[test]
fn eight_threads_read() {
    let stage = Stage::of_connector();
    run(&stage, "threads", &[&stage.expected], 2);
}

#[test]
fn libhdf5_and_the_plug_in_are_unloaded() {
    let Some(hdf5) = Hdf5::find() else {
        return;
    };
    let stage = Stage::of_connector();
    run(&stage, "unload", &[&hdf5.library(), Path::new(DATASET)], 2);
}

#[test]
fn programs_end_without_a_close() {
    for way in ["return", "exit", "_exit", "quick", "thread", "child"] {
        let stage = Stage::of_connector();
        run(&stage, "leave", &[Path::new(way), &stage.expected], 1);
    }
}

#[test]
fn thousands_of_opens_leave_nothing_behind() {
    let stage = Stage::of_connector();
    let log = corpus().join("nd_1rank.log.h5");
    let [expected, truncated] =
        ["nd_1rank.expected.h5", "truncated.log.h5"].map(|name| corpus().join(name));
    let arguments: [&Path; 5] = [Path::new("3000"), &expected, &log, &expected, &truncated];
    run(&stage, "rounds", &arguments, 0);
}

#[test]
fn processes_of_multiprocessing_read() {
    let Some(python) = Python::new() else {
        return;
    };
    for start in ["fork", "spawn"] {
        let stage = Stage::of_connector();
        let mut host = python.tool("hosts.py");
        host.arg(start).arg(&stage.expected).args(stage.logs(2));
        stage.run(host);
    }
}
