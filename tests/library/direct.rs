//! Logs opened one by one, as by the file driver and the Python package.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::clock::settle;
use crate::common::encoder::{Dataset, Entry, LogFile, Type, read_whole};
use h5logfs_catalog::direct::{self, OpenLog, Opened, Options};
use h5logfs_catalog::workers::{Limits, Workers};
use h5logfs_common::error::Error;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ScanRequest, Scanner, Settings};
use h5logfs_log::source_dir::SourceDir;
use tempfile::TempDir;

const CHUNK: usize = 4096;
const CHUNKS: usize = 64;

/// A log in which each chunk is made of two records, so that chunks are assembled and kept.
fn log(value: u8) -> (TempDir, PathBuf) {
    let dataset = Dataset::new("a", 0, Type::U8, &[(CHUNK * CHUNKS) as u64]);
    let half = CHUNK / 2;
    let records = (0..2 * CHUNKS).map(|n| {
        let start = [(n * half) as u64];
        Entry::one(0, &start, &[half as u64], vec![value; half])
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let dataset = dataset.chunked(&[CHUNK as u64]);
    LogFile::with(vec![dataset], records.collect()).write(&path);
    (dir, path)
}

fn open(path: &Path, options: &str) -> OpenLog {
    let mut options = Options::parse(options.as_ref()).unwrap();
    options.scans.program = crate::common::PROGRAM.into();
    match direct::open(path, &options).unwrap() {
        Opened::Log(log) => log,
        Opened::Plain => panic!("{}: no log", path.display()),
    }
}

/// Reads the whole log; returns the number of chunks made.
fn chunks_made(log: &OpenLog) -> u64 {
    let made = || {
        let counts = log.view().budget().counts();
        counts.misses + counts.ahead
    };
    let before = made();
    read_whole(log.view()).unwrap();
    made() - before
}

#[test]
fn a_log_that_is_opened_again_finds_the_chunks_that_it_left() {
    let (dir, path) = log(7);
    // Other tests of this process have other limits, and so another memory.
    let options = "index_dir=none,cache_size=17M";
    let fresh = open(&path, options);
    assert_eq!(chunks_made(&fresh), CHUNKS as u64);
    drop(fresh);
    // A file just written may be rewritten without a trace.
    assert_eq!(chunks_made(&open(&path, options)), CHUNKS as u64);
    settle(dir.path());
    assert_eq!(chunks_made(&open(&path, options)), CHUNKS as u64);
    let again = open(&path, options);
    assert_eq!(chunks_made(&again), 0);
    // Another opening finds the chunks of an open log. Other options make another view, with chunks of its own.
    assert_eq!(chunks_made(&open(&path, options)), 0);
    let other = format!("{options},incomplete_attribute=off");
    assert_eq!(chunks_made(&open(&path, &other)), CHUNKS as u64);
    drop(again);
    let (_other, changed) = log(8);
    fs::copy(changed, &path).unwrap();
    let changed = open(&path, options);
    assert_eq!(chunks_made(&changed), CHUNKS as u64);
    assert!(read_whole(changed.view()).unwrap().ends_with(&[8; CHUNK]));
}

#[test]
fn little_stays_when_all_logs_are_closed() {
    let (dir, path) = log(7);
    settle(dir.path());
    let options = "index_dir=none,cache_size=18M";
    let log = open(&path, options);
    let budget = std::sync::Arc::clone(log.view().budget());
    chunks_made(&log);
    assert!(budget.used() > (CHUNK * CHUNKS) as u64);
    drop(log);
    assert!((1..=64 << 20).contains(&budget.used()), "{}", budget.used());
    // The memory of these limits is freed once there are others.
    let kept = std::sync::Arc::downgrade(&budget);
    drop(budget);
    drop(open(&path, "index_dir=none,cache_size=19M"));
    assert!(kept.upgrade().is_none());
}

#[test]
fn a_log_that_is_handed_over_is_not_scanned_again() {
    let (_dir, path) = log(7);
    let (_other, another) = log(8);
    let scans = |log: &OpenLog| log.view().budget().stats().scans.get();
    let first = open(&path, "index_dir=none,cache_size=18M");
    let before = scans(&first);
    let (taken, second) = direct::hand_over(&path, first, || {
        let not_meant = open(&another, "index_dir=none,cache_size=18M");
        assert_eq!(scans(&not_meant), before + 1);
        let with_others = open(&path, "index_dir=none,cache_size=18M,chunk=1M");
        assert_eq!(scans(&with_others), before + 2);
        let taken = open(&path, "index_dir=none,cache_size=18M");
        assert_eq!(scans(&taken), before + 2);
        (taken, open(&path, "index_dir=none,cache_size=18M"))
    });
    assert_eq!(scans(&taken), before + 3);
    assert!(!std::ptr::eq(&**taken.view(), &**second.view()));
    assert_eq!(
        scans(&open(&path, "index_dir=none,cache_size=18M")),
        before + 4
    );
}

/// A job may create its file again while a reader looks at it.
#[test]
fn a_log_that_becomes_empty_before_it_is_scanned_has_changed() {
    let (_dir, path) = log(7);
    std::fs::write(&path, b"").unwrap();
    let (dir, name) = SourceDir::of_file(&path).unwrap();
    let limits = Limits::of(crate::common::PROGRAM.into(), 1);
    let settings = Settings::default();
    let request = ScanRequest::alone(&dir, &name, &settings);
    let scanned = Workers::once(limits).scan(&Task::unlimited(), request);
    assert!(
        matches!(&scanned, Err(Error::Changed { path: changed }) if *changed == path),
        "{scanned:?}"
    );
}
