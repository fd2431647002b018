//! `h5logfs recover` on what it cannot recover: it says what the file is, and what to do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::people::{ALICE, BOB, can_be_others, copy, corpus, set_mode};
use crate::common::unclosed::{Crc, Log};
use crate::common::{PROGRAM, messages};

fn run(command: &[&str], dir: &Path) -> Output {
    let mut program = Command::new(PROGRAM);
    program.args(command).current_dir(dir).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &messages(output)
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
            "fill.log.h5",
            "a log that another writer has closed: there is nothing to recover",
        ),
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
    fs::write(log.journal_path(), &other.journal).unwrap();
    let closed = run(&["recover", "log.h5"], dir.path());
    assert_says(&closed, true, &["closed already, nothing to do"]);
    assert!(log.journal_path().exists());
}

#[test]
fn who_may_not_recover_is_told_who_may() {
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
