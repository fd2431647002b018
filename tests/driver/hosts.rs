//! Programs that know nothing of logs, and use their process freely: they fork, reap children, close descriptors,
//! have threads, unload libraries, end without a close, or lack resources. The connector and the driver reach the same
//! code, so some programs have one of them, another one each day.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::amount::{each_variant, either};
use crate::common::clock::settle;
use crate::common::hosts::{DATASET, Hdf5, Stage};
use crate::common::readers::{Python, corpus, project};
use crate::common::{User, can_act, is_root, names_in};

/// Runs a C program with these arguments, then the expected file, then logs.
#[track_caller]
fn run(stage: &Stage, name: &str, arguments: &[&Path], logs: usize) {
    let Some(hdf5) = Hdf5::find() else { return };
    let mut host = Command::new(hdf5.program(name));
    host.args(arguments).args(stage.logs(logs));
    stage.run(host);
}

/// The usual call: the expected file, and logs.
#[track_caller]
fn reads(name: &str, logs: usize) {
    let stage = Stage::new();
    run(&stage, name, &[&stage.expected], logs);
}

/// Calls the host. The first argument selects what it does.
#[track_caller]
fn reads_in_a_way(name: &str, way: &str, logs: usize) {
    let stage = Stage::new();
    run(&stage, name, &[Path::new(way), &stage.expected], logs);
}

/// Runs a test with one of the plug-ins.
fn with_a_plug_in(mut run: impl FnMut(Stage)) {
    each_variant(&["driver", "connector"], |plug_in| {
        run(match *plug_in {
            "driver" => Stage::new(),
            _ => Stage::of_connector(),
        });
    });
}

/// The usual call with one of the plug-ins.
#[track_caller]
fn reads_with_a_plug_in(name: &str, logs: usize) {
    with_a_plug_in(|stage| run(&stage, name, &[&stage.expected], logs));
}

#[test]
fn a_serial_program_reads() {
    reads_with_a_plug_in("read", 2);
}

#[test]
fn a_host_that_reaps_all_children_sees_none_of_ours() {
    reads_in_a_way("reap", "reaper", 5);
}

#[test]
fn a_host_that_inherits_orphans_sees_none_of_ours() {
    reads_in_a_way("reap", "subreaper", 5);
}

#[test]
fn a_host_that_ignores_its_children_reads() {
    reads_in_a_way("reap", "ignore", 3);
}

#[test]
fn a_host_that_blocks_all_signals_gets_none_of_ours() {
    reads_in_a_way("reap", "block", 3);
}

#[test]
fn system_calls_are_interrupted() {
    reads("alarms", 5);
}

#[test]
fn a_host_closes_what_it_does_not_know() {
    let stage = Stage::new();
    run(
        &stage,
        "close_all",
        &[Path::new("before"), &stage.expected, &stage.expected],
        4,
    );
}

#[test]
fn a_host_closes_the_descriptors_of_open_logs() {
    let stage = Stage::new();
    // The host's directory stays unchanged, too.
    let directory = stage.path().join("of the host");
    fs::create_dir(&directory).unwrap();
    for own in [&stage.expected, &directory] {
        for dataset in [DATASET, "/in_place", "/deflated"] {
            let arguments = [
                Path::new("during"),
                &stage.expected,
                own,
                Path::new(dataset),
            ];
            run(&stage, "close_all", &arguments, 2);
        }
    }
    assert_eq!(names_in(&directory), [""; 0]);
}

#[test]
fn both_processes_read_after_a_fork() {
    reads_with_a_plug_in("forks", 2);
}

#[test]
fn eight_threads_read() {
    reads_with_a_plug_in("threads", 3);
}

#[test]
fn libhdf5_and_the_plug_in_are_unloaded() {
    let Some(hdf5) = Hdf5::find() else { return };
    with_a_plug_in(|stage| run(&stage, "unload", &[&hdf5.library(), Path::new(DATASET)], 2));
}

#[test]
fn programs_end_without_a_close() {
    for way in ["return", "exit", "_exit", "quick", "thread", "child"] {
        with_a_plug_in(|stage| run(&stage, "leave", &[Path::new(way), &stage.expected], 1));
    }
}

/// A known log, a plain file, a broken log, and a missing file.
#[track_caller]
fn rounds(count: &str) {
    let log = corpus().join("nd_1rank.log.h5");
    let [expected, truncated] =
        ["nd_1rank.expected.h5", "truncated.log.h5"].map(|name| corpus().join(name));
    let arguments: [&Path; 5] = [Path::new(count), &expected, &log, &expected, &truncated];
    with_a_plug_in(|stage| run(&stage, "rounds", &arguments, 0));
}

#[test]
fn thousands_of_opens_leave_nothing_behind() {
    rounds(either("3000", "10000"));
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_thousand_opens_leave_nothing_behind() {
    rounds("100000");
}

#[test]
fn few_descriptors() {
    reads_in_a_way("limits", "descriptors", 30);
}

#[test]
fn no_process_can_be_started() {
    let user = if is_root() {
        User::Nobody
    } else {
        User::Caller
    };
    if !can_act(user) {
        return;
    }
    let stage = Stage::of(user);
    // One of them must be known.
    stage.logs(3);
    settle(stage.path());
    run(
        &stage,
        "limits",
        &[Path::new("processes"), &stage.expected],
        3,
    );
}

#[test]
fn standard_streams_are_closed() {
    reads_in_a_way("limits", "stdio", 7);
}

#[test]
fn paths_depend_on_the_working_directory() {
    let stage = Stage::new();
    let names = stage.logs(3);
    let mut arguments = vec![stage.path(), &stage.expected];
    arguments.extend(
        names
            .iter()
            .map(|path| Path::new(path.file_name().unwrap())),
    );
    run(&stage, "places", &arguments, 0);
}

/// The host survives even if the scanning program dies before it has read anything.
#[test]
fn the_program_that_scans_is_another_one() {
    for (program, words) in [
        ("/nowhere/h5logfs", "/nowhere/h5logfs"),
        ("/bin/true", "scan"),
        ("/bin/cat", "scan"),
        ("/bin/yes", "scan"),
    ] {
        let mut stage = Stage::new();
        stage.scan_with(program);
        run(&stage, "refuse", &[Path::new(words)], 2);
    }
}

#[track_caller]
fn python(way: &str, logs: usize) {
    let Some(python) = Python::new() else { return };
    let stage = Stage::new();
    let mut host = python.tool("hosts.py");
    host.arg(way).arg(&stage.expected).args(stage.logs(logs));
    stage.run(host);
}

#[test]
fn processes_of_multiprocessing_read() {
    let Some(python) = Python::new() else { return };
    for start in ["fork", "spawn"] {
        with_a_plug_in(|stage| {
            let mut host = python.tool("hosts.py");
            host.arg(start).arg(&stage.expected).args(stage.logs(3));
            stage.run(host);
        });
    }
}

#[test]
fn threads_of_python_read_while_it_forks() {
    python("threads", 3);
}

#[test]
fn dask_reads() {
    for scheduler in ["dask-threads", "dask-processes"] {
        python(scheduler, 3);
    }
}

/// h5py and netCDF4 have a libhdf5 each.
#[test]
fn two_libraries_read_after_a_fork() {
    let Some(python) = Python::new() else { return };
    let stage = Stage::new();
    let copy = stage.path().join("copy.nc");
    fs::copy(corpus().join("netcdf4_wrf.log.h5"), &copy).unwrap();
    let mut host = python.tool("hosts.py");
    host.arg("both")
        .arg(corpus().join("netcdf4_wrf.expected.h5"))
        .arg(copy);
    stage.run(host);
}

/// Each host belongs to a test.
#[test]
fn all_hosts_are_run() {
    let tests = [include_str!("hosts.rs"), include_str!("parallel.rs")].concat();
    for name in names_in(&project().join("tests/c/hosts")) {
        if let Some(name) = name.strip_suffix(".c") {
            assert!(
                tests.contains(&format!("{name:?}")),
                "{name} is run by no test"
            );
        }
    }
}
