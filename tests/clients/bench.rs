//! The reading benchmark at its smallest scale. Each workload runs, reads the right data, notices wrong data, and
//! leaves nothing behind. Times are not checked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::make::built_driver;
use crate::common::mpirun::program;
use crate::common::readers::{Python, said, whole_corpus};
use crate::common::{PROGRAM, User, can_mount, wait_until};

/// The benchmark with its own directory; `None` where it cannot run.
fn bench(dir: &TempDir) -> Option<Command> {
    if !can_mount(User::Caller) {
        return None;
    }
    let python = Python::new()?;
    let mut command = Command::new(program("bench_reading"));
    command.args(["--scale", "small", "--rounds", "1", "--program", PROGRAM]);
    command.arg("--python").arg(python.command().get_program());
    command.arg("--driver").arg(built_driver());
    command.arg("--dir").arg(dir.path());
    Some(command)
}

fn json(path: &Path) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    report["workloads"].as_array().unwrap().clone()
}

fn is_empty(dir: &TempDir) -> bool {
    fs::read_dir(dir.path()).unwrap().next().is_none()
}

#[test]
#[ignore = "make test-all"]
fn every_workload_runs_and_reads_what_was_generated() {
    let (dir, results) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(mut bench) = bench(&dir) else { return };
    let path = results.path().join("bench.json");
    bench.arg("--json").arg(&path);
    if let Some(corpus) = whole_corpus() {
        bench.arg("--corpus").arg(corpus);
    }
    succeed(&mut bench);
    assert!(is_empty(&dir), "something is left behind");

    let listed = bench.arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let listed = listed.lines().filter_map(|l| l.split_whitespace().next());
    let workloads = json(&path);
    let ran: Vec<&str> = workloads
        .iter()
        .filter_map(|w| w["name"].as_str())
        .collect();
    assert_eq!(ran, listed.collect::<Vec<_>>());
    for workload in &workloads {
        check(workload);
    }
}

/// Checks that figures exist and are numbers. Contents must have been compared, unless the workload only lists the log.
fn check(workload: &Value) {
    assert_eq!(workload["failed"], Value::Null, "{workload}");
    if workload["skipped"] != Value::Null {
        assert!(
            ["adios", "arrays", "corpus", "known", "scorpio"]
                .contains(&workload["name"].as_str().unwrap()),
            "{workload}"
        );
        return;
    }
    let rows = workload["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{workload}");
    for row in rows {
        assert!(row["measured"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Several workloads use the same log, which is compared once.
    const NOT_COMPARED: [&str; 5] = ["hyperslabs", "columns", "readers", "listing", "known"];
    let name = workload["name"].as_str().unwrap();
    let expected = !NOT_COMPARED.contains(&name);
    assert_eq!(
        workload["contents_agree"].as_bool(),
        expected.then_some(true),
        "{workload}"
    );
}

/// The decoder is made from the format page alone, and reads logs of one flush.
#[test]
fn generated_logs_are_logs() {
    let dir = TempDir::new().unwrap();
    let Some(python) = Python::new() else { return };
    let mut decoder = python.tool("logvol.py");
    decoder.arg("--foreign");
    for workload in [
        "gzip-parts",
        "blocks-1d",
        "blocks-3d",
        "ten-floats",
        "climate",
    ] {
        let (log, plain) = (dir.path().join(workload), dir.path().join("plain"));
        let plain = plain.with_extension(workload);
        let mut generate = Command::new(program("bench_reading"));
        generate.args(["generate", "--scale", "small", workload]);
        succeed(generate.arg(&log));
        succeed(Command::new(PROGRAM).arg("export").args([&log, &plain]));
        decoder.args([&log, &plain]);
    }
    let flags = succeed(&mut decoder);
    // Plain entries, MUL and MUL|ENC, the last two also with REF, and all of them with REC.
    for kind in ["00:", "01:", "05:", "15:", "21:", "25:", "31:", "35:"] {
        assert!(flags.contains(kind), "no entry {kind} in {flags}");
    }
}

/// The output of a command, which must succeed.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

/// The test changes one byte of each native file secretly.
#[test]
fn contents_that_differ_are_reported() {
    let (dir, results) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(mut bench) = bench(&dir) else { return };
    let damaging = results.path().join("damaging");
    let script = format!(
        "#!/bin/sh\n'{PROGRAM}' \"$@\" || exit\n[ \"$1\" = export ] || exit 0\n\
         for last; do :; done\nprintf '\\377' | dd of=\"$last\" bs=1 seek=100000 conv=notrunc status=none\n"
    );
    fs::write(&damaging, script).unwrap();
    fs::set_permissions(&damaging, PermissionsExt::from_mode(0o755)).unwrap();
    let path = results.path().join("bench.json");
    bench.arg("--program").arg(&damaging);
    bench.args(["--only", "blocks-1d"]).arg("--json").arg(&path);
    let output = bench.output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    assert_eq!(json(&path)[0]["contents_agree"], false, "{}", said(&output));
}

#[test]
fn an_interrupted_benchmark_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    let Some(mut bench) = bench(&dir) else { return };
    let mut process = bench
        .args(["--rounds", "1000", "--only", "slabs"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mounts = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.matches(dir.path().to_str().unwrap()).count()
    };
    wait_until("something is mounted", || mounts() > 0);
    let pid = Pid::from_raw(process.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert!(!process.wait().unwrap().success());
    wait_until("nothing is mounted", || mounts() == 0);
    assert!(is_empty(&dir), "something is left behind");
}
