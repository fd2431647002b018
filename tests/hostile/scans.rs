//! Files that cost a scan much.

use std::fs;
use std::os::unix::fs::chown;
use std::process::{Command, Output};

use crate::arena::Arena;
use crate::common::encoder::{Dataset, Entry, Log, LogFile, Type};
use crate::common::people::{ALICE, CAROL};
use crate::common::readers::project;
use crate::common::{messages, tested_program};

/// A log of `count` subfiles, each with one row.
fn subfiles(count: u64) -> LogFile {
    let dataset = Dataset::new("data", 0, Type::I32, &[count, 4]);
    let mut file = LogFile::new(vec![dataset]);
    file.subfiled = true;
    file.logs = (0..count)
        .map(|row| Log {
            tables: vec![vec![vec![Entry::one(0, &[row, 0], &[1, 4], vec![1; 16])]]],
        })
        .collect();
    file
}

/// The output of `inspect` for a log with this number of subfiles.
fn inspected(count: u64, scan_memory: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    subfiles(count).write(&log);
    let mut command = Command::new(tested_program());
    let command = command.args(["inspect", "--scan-memory", scan_memory]);
    command.arg(&log).output().unwrap()
}

fn all_are_found(count: u64, output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let found = format!("{count} records, {count} blocks");
    assert!(text.contains(&found), "{text}{}", messages(output));
}

/// A scan needs no memory for closed files.
#[test]
fn subfiles_by_the_hundred() {
    all_are_found(700, &inspected(700, "256M"));
}

#[test]
#[ignore = "making the files takes ten seconds"]
fn subfiles_by_the_thousand() {
    all_are_found(4500, &inspected(4500, "2G"));
}

/// Two owners together request more concurrent scans than there are, for five seconds each.
#[test]
#[ignore = "keeps the processors busy for ten seconds"]
fn scans_without_end_of_two_owners() {
    let Some(arena) = Arena::with("scan_workers=3") else {
        return;
    };
    let name = |number: usize| format!("loop-{number}.h5");
    for number in 0..4 {
        let without_end = project().join("tests/hostile/heap-loop.log.h5");
        fs::copy(without_end, arena.source(ALICE).join(name(number))).unwrap();
    }
    arena.give(ALICE);
    for number in 2..4 {
        let file = arena.source(ALICE).join(name(number));
        chown(file, Some(CAROL.uid), Some(CAROL.gid)).unwrap();
    }
    arena.attack_on_time("scans without end of two owners", |attack| {
        attack.together(4, |number| {
            let _ = fs::read(arena.shown(ALICE).join(name(number)));
        });
    });
}
