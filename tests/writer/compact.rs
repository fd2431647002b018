//! `h5logfs-compact-mpi`: the file that several processes make, and the rest after a failure.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills, `H5LOGFS_TEST_SEED` the first seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::COMPACT_MPI;
use crate::common::amount::{cases, first_seed};
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::jobs::compact::{self, Killed, by_threads, ended, others_than};
use crate::common::mpirun::{Job, Mpi};
use crate::common::nodes::Place;
use crate::common::numbers::Numbers;
use crate::common::readers::{check_all, corpus};

fn program() -> &'static Path {
    Path::new(COMPACT_MPI)
}

/// Starts the program in `ranks` processes.
fn start(ranks: u32, log: &Path, out: &Path, options: &[&str]) -> Job {
    compact::start(program(), &Place::Here, ranks, log, out, options)
}

/// Checks that `ranks` ranks make the same file as threads.
fn makes_the_same(ranks: u32, log: &Path, dir: &Path, options: &[&str]) -> Result<(), String> {
    compact::makes_the_same(program(), &Place::Here, ranks, log, dir, options)
}

/// A log with more datasets than the ranks make parts in a round: each dataset is a part.
fn many_datasets(path: &Path) {
    let lens = 1..=41;
    let dataset = |n: u64| {
        Dataset::new(&format!("d{n:02}"), n as i32 - 1, Type::U8, &[64 * n]).chunked(&[64])
    };
    let entry = |n: u64| {
        Entry::one(
            n as i32 - 1,
            &[0],
            &[64 * n],
            Numbers(n).bytes(64 * n as usize),
        )
    };
    LogFile::with(
        lens.clone().map(dataset).collect(),
        lens.map(entry).collect(),
    )
    .write(path);
}

/// Two datasets, the second with a chunk whose data is missing from the file. Of two ranks, the second makes it.
fn damaged(dir: &Path) -> PathBuf {
    let path = dir.join("damaged.h5");
    let entry = |id, start| Entry::one(id, &[start], &[32], vec![7; 256]);
    let dataset = |name: &str, id| Dataset::new(name, id, Type::F64, &[96]).chunked(&[32]);
    let datasets = vec![dataset("a", 0), dataset("b", 1)];
    let lost = entry(1, 32).claiming(1 << 40, 256);
    LogFile::with(datasets, vec![entry(0, 0), entry(1, 0), lost, entry(1, 64)]).write(&path);
    path
}

#[test]
fn ranks_make_the_same_file_as_threads() {
    const COMPRESSED: [&str; 3] = ["--deflate", "4", "--shuffle"];
    let dir = tempfile::tempdir().unwrap();
    let names = ["userblock", "zero_scalar", "objref", "subfile", "deflate"];
    let runs = [(1, &COMPRESSED[..]), (2, &["--verify"]), (4, &COMPRESSED)];
    let runs = names
        .iter()
        .flat_map(|name| runs.map(|(ranks, options)| (name, ranks, options)));
    check_all(runs.collect(), |(name, ranks, options)| {
        let log = corpus().join(format!("{name}.log.h5"));
        makes_the_same(ranks, &log, dir.path(), options)
    });
}

#[test]
fn several_rounds_make_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("many.h5");
    many_datasets(&log);
    for (ranks, options) in [
        (1, &[][..]),
        (2, &["--jobs", "2", "--verify"]),
        (4, &["--shuffle", "--verify"]),
    ] {
        makes_the_same(ranks, &log, dir.path(), options).unwrap();
    }
}

#[test]
fn an_error_of_one_rank_ends_all_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (log, out) = (damaged(dir.path()), dir.path().join("out.h5"));
    let (status, said) = ended(start(2, &log, &out, &[]));
    assert_eq!(status, Some(1), "{said}");
    let message = format!(
        "cannot write {}: rank 1: {}: dataset /b: chunk [1]",
        out.display(),
        log.display()
    );
    assert_eq!(said.matches(&message).count(), 1, "{said}");
    assert_eq!(said.matches("h5logfs-compact-mpi: ").count(), 1, "{said}");
    assert_eq!(others_than("damaged.h5", dir.path()), [""; 0]);
    let (status, said) = ended(start(2, &dir.path().join("none.h5"), &out, &[]));
    assert_eq!(status, Some(1));
    assert_eq!(
        said.matches("No such file or directory").count(),
        1,
        "{said}"
    );
}

#[test]
fn damaged_chunks_are_listed_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = damaged(dir.path());
    let expected = by_threads(&log, &dir.path().join("threads.h5"), &["--skip-damaged"]);
    let out = dir.path().join("ranks.h5");
    let (status, said) = ended(start(2, &log, &out, &["--skip-damaged", "--verify"]));
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(
        said.matches("left out: dataset /b: chunk [1]: ").count(),
        1,
        "{said}"
    );
    let message = format!(
        "1 parts of datasets cannot be read and are missing from {}",
        out.display()
    );
    assert_eq!(said.matches(&message).count(), 1, "{said}");
    assert!(fs::read(&out).unwrap() == expected);
}

#[test]
fn what_cannot_be_is_refused_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = damaged(dir.path());
    let mine = dir.path().join("mine");
    fs::write(&mine, "mine").unwrap();
    let cases = vec![
        (
            Path::new("-"),
            "--shuffle",
            1,
            "cannot write to standard output",
        ),
        (
            &mine,
            "--shuffle",
            1,
            "exists already (--force replaces it)",
        ),
        (&log, "--force", 1, "is not overwritten"),
        (&mine, "--unknown", 2, "unexpected argument '--unknown'"),
    ];
    check_all(cases, |(out, option, status, message)| {
        let (found, said) = ended(start(2, &log, out, &[option]));
        let as_expected = found == Some(status) && said.matches(message).count() == 1;
        as_expected.then_some(()).ok_or(said)
    });
    let mut unlike = Command::new(Mpi::of_build().command("mpirun"));
    unlike
        .args(["-n", "1", COMPACT_MPI])
        .args([&log, &dir.path().join("one")]);
    unlike
        .args([":", "-n", "1", COMPACT_MPI])
        .args([&log, &dir.path().join("two")]);
    let (status, said) = ended(Job::launch(unlike));
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(
        said.matches("have different arguments").count(),
        1,
        "{said}"
    );
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
    assert_eq!(others_than("mine", dir.path()), ["damaged.h5"]);
}

#[test]
fn killed_ranks_leave_the_old_file_or_the_new_one() {
    let killed = Killed::new(program(), Place::Here);
    for seed in (first_seed()..).take(cases(4)) {
        killed.kill(seed);
    }
}
