//! `h5logfs ls`: which files are listed, and what is told of them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::common::people::{copy, corpus};
use crate::common::readers::said;
use crate::common::unclosed::Log;
use crate::common::{Mounted, PROGRAM, User, can_mount};

fn ls(dir: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    let program = program.arg("ls").args(arguments).current_dir(dir);
    program.output().unwrap()
}

/// The logs of a listing: path and state, in its order.
fn listed(dir: &Path, arguments: &[&str]) -> Vec<(String, String)> {
    let output = ls(dir, &[&["--json"], arguments].concat());
    assert!(output.status.success(), "{}", said(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let pair = |row: &Value| (text(row, "path"), text(row, "state"));
    rows.iter().map(pair).collect()
}

fn pairs<const N: usize>(rows: [(&str, &str); N]) -> Vec<(String, String)> {
    rows.map(|(path, state)| (path.to_owned(), state.to_owned()))
        .into()
}

#[test]
fn logs_are_listed_with_their_states_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["below", "linked"] {
        fs::create_dir(at(name)).unwrap();
    }
    for (from, to) in [
        ("corpus/fill.log.h5", "closed.h5"),
        ("corpus/fill.expected.h5", "plain.h5"),
        ("corpus/subfile.log.h5", "below/subfile.log.h5"),
        (
            "corpus/subfile.log.h5.subfiles",
            "below/subfile.log.h5.subfiles",
        ),
        ("corpus-pnetcdf/records-cdf1-np1/file.nc", "file.nc"),
        (
            "corpus-pnetcdf/records-cdf1-np1/file.nc_0_0.meta",
            "file.nc_0_0.meta",
        ),
        (
            "corpus-pnetcdf/records-cdf1-np1/file.nc_0_0.data",
            "file.nc_0_0.data",
        ),
    ] {
        copy(&corpus(from), &at(to));
    }
    fs::write(at("text"), "a text\n").unwrap();
    let whole = fs::read(at("closed.h5")).unwrap();
    fs::write(at("cut.h5"), &whole[..whole.len() / 2]).unwrap();
    std::os::unix::fs::symlink(at("below"), at("linked/below")).unwrap();
    let (_dead, alive) = (Log::usual(&at("dead.h5")), Log::usual(&at("alive.h5")));
    let journal = File::open(alive.journal_path()).unwrap();
    flock(&journal, FlockOperation::LockExclusive).unwrap();

    let here = [
        ("alive.h5", "running"),
        ("closed.h5", "closed"),
        ("cut.h5", "unreadable"),
        ("dead.h5", "left"),
        ("file.nc", "closed"),
    ];
    assert_eq!(listed(dir.path(), &[]), pairs(here));
    let below = ("below/subfile.log.h5", "closed");
    let all = [here[0], below, here[1], here[2], here[3], here[4]];
    assert_eq!(listed(dir.path(), &["-r"]), pairs(all));
    let by_state = [here[2], here[3], here[0], here[1], here[4]];
    assert_eq!(listed(dir.path(), &["--sort", "state"]), pairs(by_state));
    let mut turned = here;
    turned.reverse();
    assert_eq!(listed(dir.path(), &["--reverse"]), pairs(turned));

    let files = [("dead.h5", "left"), ("text", "unreadable")];
    assert_eq!(listed(dir.path(), &["text", "dead.h5"]), pairs(files));
    // A link that the user names is followed, and called by its name.
    std::os::unix::fs::symlink(at("dead.h5"), at("linked/last.h5")).unwrap();
    let named = [("closed.h5", "closed"), ("linked/last.h5", "left")];
    assert_eq!(
        listed(dir.path(), &["linked/last.h5", "closed.h5"]),
        pairs(named)
    );
    let output = ls(dir.path(), &["none", "closed.h5"]);
    let (text, words) = (
        String::from_utf8_lossy(&output.stdout),
        "none: No such file",
    );
    assert!(!output.status.success() && said(&output).contains(words));
    assert!(text.contains("closed.h5"), "{text}");
}

/// What the table tells is what `inspect` and the file system tell.
#[test]
fn the_table_tells_of_size_coverage_and_flush() {
    let dir = tempfile::tempdir().unwrap();
    copy(&corpus("corpus/fill.log.h5"), &dir.path().join("closed.h5"));
    let log = Log::usual(&dir.path().join("log.h5"));
    let output = ls(dir.path(), &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "STATE", "LAYOUT", "DATASETS", "SIZE", "COVERED", "WRITTEN", "FILE"
        ]
    );
    let closed = &lines[1];
    assert_eq!(
        closed[..7],
        ["closed", "Log", "VOL", "9", "64.03", "KiB", "13.1"]
    );
    let left = &lines[2];
    assert_eq!(left[..2], ["left", "unclosed"]);
    assert!(text.contains("flush 2, "), "{text}");

    let output = ls(dir.path(), &["--json", "log.h5"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows[0]["flush"], 2);
    let written = fs::metadata(log.journal_path())
        .unwrap()
        .modified()
        .unwrap();
    let told: String = rows[0]["written"].as_str().unwrap().into();
    let seconds = Command::new("date").args(["+%s", "-d", &told]).output();
    let seconds = String::from_utf8(seconds.unwrap().stdout).unwrap();
    let since = written.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(seconds.trim(), since.as_secs().to_string());
}

#[test]
fn elements_that_cannot_be_read_are_told() {
    let dir = tempfile::tempdir().unwrap();
    copy(
        &corpus("corpus/bad_foff.log.h5"),
        &dir.path().join("bad.h5"),
    );
    let output = ls(dir.path(), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("elements cannot be read"));
}

#[test]
fn a_mount_has_no_logs() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    copy(&corpus("corpus/fill.log.h5"), &dir.path().join("closed.h5"));
    let mounted = Mounted::new(dir.path(), "");
    let output = ls(dir.path(), &[mounted.join("").to_str().unwrap()]);
    let words = dir.path().to_str().unwrap();
    assert!(!output.status.success() && said(&output).contains(words));
}
