//! `h5logfs recover` on files that it cannot recover. It names the kind of the file, and the next step for the user.
//! `inspect` and `check` report on the job of an unclosed log.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::PROGRAM;
use crate::common::metadata_image::ImageLog;
use crate::common::people::{ALICE, BOB, can_be_others, copy, corpus, set_mode};
use crate::common::readers::said;
use crate::common::unclosed::{Crc, Log};

fn run(command: &[&str], dir: &Path) -> Output {
    let mut program = Command::new(PROGRAM);
    program.args(command).current_dir(dir).output().unwrap()
}

#[track_caller]
fn assert_says(output: &Output, good: bool, words: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.success(), good, "{said}");
    for word in words {
        assert!(said.contains(word), "no \"{word}\" in: {said}");
    }
}

#[test]
fn what_is_no_log_of_the_writer_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in [
        "corpus/fill.log.h5",
        "corpus/fill.expected.h5",
        "corpus/crash_flush.log.h5",
        "corpus/crash_noflush.log.h5",
        "corpus/subfile.log.h5",
        "corpus/subfile.log.h5.subfiles",
        "corpus-pnetcdf/records-cdf1-np1/file.nc",
        "corpus-pnetcdf/records-cdf1-np1/file.nc_0_0.data",
    ] {
        copy(
            &corpus(name),
            &at(Path::new(name).file_name().unwrap().to_str().unwrap()),
        );
    }
    fs::write(at("text"), "a text\n").unwrap();
    fs::write(at("gone.h5.h5logfs-journal"), "").unwrap();
    for (name, words) in [
        ("none.h5", "none.h5: No such file or directory"),
        (
            "gone.h5",
            "its journal gone.h5.h5logfs-journal is: the log was moved or removed",
        ),
        (".", "is a directory"),
        ("text", "neither HDF5 nor a log of h5logfs's writer"),
        (
            "fill.expected.h5",
            "plain HDF5: there is nothing to recover",
        ),
        ("file.nc", "h5logfs reads these as they are"),
        (
            "crash_flush.log.h5",
            "The Log VOL connector leaves such a file when its job ends before the close",
        ),
        (
            "crash_noflush.log.h5",
            "it is empty: there is nothing to recover",
        ),
        (
            "subfile.log.h5.subfiles/subfile.log.h5.0",
            "is a part of the log",
        ),
        ("file.nc_0_0.data", "is a part of the log"),
    ] {
        let output = run(&["recover", name], dir.path());
        assert_says(&output, false, &[words, "1 of 1 files were not recovered"]);
        let names_journal = name != "gone.h5" && said(&output).contains("journal");
        assert!(!names_journal, "{name}: {}", said(&output));
    }
    // A log that another writer has closed is no error.
    let before = fs::read(at("fill.log.h5")).unwrap();
    let output = run(&["recover", "fill.log.h5"], dir.path());
    assert_says(
        &output,
        true,
        &["fill.log.h5: already closed, nothing to do"],
    );
    assert_eq!(fs::read(at("fill.log.h5")).unwrap(), before);
}

#[test]
fn a_log_without_its_journal_or_beside_another_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::usual(&dir.path().join("log.h5"));
    let journal = fs::read(log.journal_path()).unwrap();
    let refused = run(&["recover", "log.h5.h5logfs-journal"], dir.path());
    assert_says(
        &refused,
        false,
        &["is a part of the log", "log.h5: give that"],
    );
    fs::remove_file(log.journal_path()).unwrap();
    let refused = run(&["recover", "log.h5"], dir.path());
    assert_says(
        &refused,
        false,
        &["it was not closed", "is not there: copy that beside it"],
    );
    fs::write(log.journal_path(), &journal).unwrap();
    let closed = run(&["recover", "log.h5"], dir.path());
    assert_says(&closed, true, &["recovered 2 flushes"]);
    // The journal of another log beside a closed one.
    let mut other = Log::begin(&dir.path().join("other.h5"));
    other.journal.clear();
    other.said = Crc::default();
    let id = "ff".repeat(16);
    other.line(&format!(
        r#"{{"journal":1,"file":"{id}","writer":"","ranks":1,"subfiles":0,"config":0}}"#
    ));
    let begun = other.journal.clone();
    other.line(r#"{"commit":{"flush":1,"ends":[8192]}}"#);
    fs::write(log.journal_path(), &other.journal).unwrap();
    let closed = run(&["recover", "log.h5"], dir.path());
    assert_says(&closed, true, &["already closed, nothing to do"]);
    assert!(log.journal_path().exists());
    // The begun log has no flush. Its job may have wanted to replace this one.
    fs::write(log.journal_path(), begun).unwrap();
    let closed = run(&["recover", "log.h5"], dir.path());
    assert_says(
        &closed,
        true,
        &["removed its journal, which is of another log"],
    );
    assert!(!log.journal_path().exists());
}

#[test]
fn a_user_who_may_not_recover_is_told_of_the_owner() {
    if !can_be_others() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o777);
    let log = Log::usual(&dir.path().join("log.h5"));
    BOB.owns(&log.path(), 0o644);
    BOB.owns(&log.journal_path(), 0o644);
    let by = |name: &str| {
        let mut command = ALICE.command(PROGRAM);
        command
            .args(["recover", name])
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    let words = [
        "Permission denied",
        "The owner of the log has to recover it",
    ];
    assert_says(&by("log.h5"), false, &words);
    set_mode(&log.path(), 0o600);
    assert_says(&by("log.h5"), false, &["log.h5: Permission denied"]);
}

/// A log whose journal describes this job.
fn log_of(job: &str) -> (TempDir, Log) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::usual(&dir.path().join("log.h5"));
    let lines = std::mem::take(&mut log.journal);
    log.said = Crc::default();
    for (number, line) in lines.lines().enumerate() {
        let text = &line[9..];
        let end = text.len() - 1;
        match number {
            0 => log.line(&format!(r#"{},"job":{job}}}"#, &text[..end])),
            _ => log.line(text),
        }
    }
    log.save();
    (dir, log)
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().to_owned()
}

/// Data after the last flush of the usual log: extents of an incomplete flush, without proofs.
fn unflushed() -> Value {
    serde_json::json!({"bytes": 0, "ranks": 0, "unknown_datasets": [], "apart": 12, "incomplete": 0})
}

#[test]
fn a_job_that_runs_and_one_that_has_ended_are_told_apart() {
    let host = host();
    let job = format!(
        r#"{{"host":"{host}","pid":4711,"user":"anna","batch":"SLURM_JOB_ID=88","since":86400}}"#
    );
    let (dir, log) = log_of(&job);
    let who = format!("process 4711 of anna on {host} (SLURM_JOB_ID=88), since 1970-01-02");
    let tell = |state: &str, words: &[&str]| {
        for command in ["check", "inspect"] {
            let output = run(&[command, "log.h5"], dir.path());
            assert_says(
                &output,
                true,
                &["not closed: shown as flush 2 left it", &who],
            );
            assert_says(&output, true, words);
        }
        let output = run(&["inspect", "--json", "log.h5"], dir.path());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let job: Value = serde_json::from_str(&job).unwrap();
        let unflushed = unflushed();
        let expected =
            serde_json::json!({"flush": 2, "state": state, "job": job, "unflushed": unflushed});
        assert_eq!(report["unclosed"], expected);
    };
    tell(
        "ended",
        &[
            "its job has ended (",
            "): `h5logfs recover log.h5` closes it",
        ],
    );
    let journal = File::open(log.journal_path()).unwrap();
    flock(&journal, FlockOperation::LockExclusive).unwrap();
    tell("running", &["its job is running ("]);
    let output = run(&["recover", "log.h5"], dir.path());
    assert_says(&output, false, &["is still running: ", &who]);
    let running = said(&run(&["inspect", "log.h5"], dir.path()));
    assert!(!running.contains("recover"), "{running}");
    drop(journal);
    tell("ended", &["its job has ended"]);
    assert!(run(&["recover", "log.h5"], dir.path()).status.success());
    let output = run(&["inspect", "--json", "log.h5"], dir.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.get("unclosed"), None);
    assert_says(
        &run(&["check", "log.h5"], dir.path()),
        true,
        &["log.h5: good"],
    );
}

#[test]
fn a_job_of_another_node_may_run_where_locks_are_not_seen() {
    let (dir, _log) = log_of(r#"{"host":"elsewhere","pid":1}"#);
    let output = run(&["check", "log.h5"], dir.path());
    let words = [
        "process 1 on elsewhere",
        "unless locks of that node are not visible here",
    ];
    assert_says(&output, true, &words);
}

#[test]
fn a_journal_need_not_say_who_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let _log = Log::usual(&dir.path().join("log.h5"));
    let output = run(&["inspect", "--json", "log.h5"], dir.path());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({"flush": 2, "state": "ended", "unflushed": unflushed()});
    assert_eq!(report["unclosed"], expected);
    let output = run(&["check", "log.h5"], dir.path());
    assert_says(
        &output,
        true,
        &["its job has ended: `h5logfs recover log.h5` closes it"],
    );
}

/// Other layouts have no journal, so nothing is known.
#[test]
fn other_layouts_say_nothing_of_jobs() {
    for log in [
        "corpus/fill.log.h5",
        "corpus-pnetcdf/records-cdf1-np1/file.nc",
    ] {
        let log = corpus(log);
        let output = run(
            &["inspect", "--json", log.to_str().unwrap()],
            Path::new("/"),
        );
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report.is_object() && report.get("unclosed").is_none());
    }
}

/// libhdf5 reads the metadata of such a log with all rights of the command.
#[test]
fn the_log_of_an_hdf5_program_is_recovered_by_its_owner() {
    if !can_be_others() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o777);
    let path = dir.path().join("log.h5");
    let image = dir.path().join("image.h5");
    hdf5::File::create(&image)
        .unwrap()
        .create_group("g")
        .unwrap();
    let mut log = ImageLog::begin(&path);
    log.set_image(&fs::read(&image).unwrap());
    log.flush();
    drop(log);
    let journal = path.with_file_name("log.h5.h5logfs-journal");
    BOB.owns(&path, 0o644);
    BOB.owns(&journal, 0o644);
    let refused = run(&["recover", "log.h5"], dir.path());
    let words = format!("an HDF5 program of user {} has written", BOB.uid);
    assert_says(&refused, false, &[&words]);
    assert_says(&run(&["check", "log.h5"], dir.path()), true, &["good"]);
    let mut command = BOB.command(PROGRAM);
    let recovered = command.args(["recover", "log.h5"]).current_dir(dir.path());
    assert_says(
        &recovered.output().unwrap(),
        true,
        &["recovered 1 flush of"],
    );
}
