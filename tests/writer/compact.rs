//! `h5logfs-compact-mpi`: the file that several processes make, and what is left where they make none.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills, `H5LOGFS_TEST_SEED` the first seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use tempfile::TempDir;

use crate::COMPACT_MPI;
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::mpirun::{Job, Mpi, Rank, cases, first_seed};
use crate::common::numbers::Numbers;
use crate::common::readers::{check_all, corpus, said};
use crate::common::{PROGRAM, wait_until};

/// How the names of temporary files begin.
const UNFINISHED: &str = ".h5logfs-unfinished-";

/// Starts the program, as many times as there are ranks.
fn start(ranks: u32, log: &Path, out: &Path, options: &[&str]) -> Job {
    let paths = [log, out].map(|path| path.to_str().unwrap());
    Job::start(ranks, Path::new(COMPACT_MPI), &[options, &paths].concat())
}

/// The exit status, and what the job printed.
fn ended(mut job: Job) -> (Option<i32>, String) {
    let status = job.wait();
    (status.code(), job.said())
}

/// The bytes of the file that threads make.
fn by_threads(log: &Path, out: &Path, options: &[&str]) -> Vec<u8> {
    let mut command = Command::new(PROGRAM);
    command.args(["compact", "--force"]).args(options);
    let output = command.args([log, out]).output().unwrap();
    assert!(fs::exists(out).unwrap(), "{}", said(&output));
    fs::read(out).unwrap()
}

/// Fails unless so many ranks make the same file as threads.
fn makes_the_same(ranks: u32, log: &Path, dir: &Path, options: &[&str]) -> Result<(), String> {
    let name = log.file_stem().unwrap().to_str().unwrap();
    let out = |by: &str| dir.join(format!("{name}.{ranks}.{}.{by}", options.len()));
    let expected = by_threads(log, &out("threads"), options);
    let (status, said) = ended(start(ranks, log, &out("ranks"), options));
    if status != Some(0) {
        return Err(format!(
            "{} by {ranks} ranks, {options:?}: {said}",
            log.display()
        ));
    }
    let same = fs::read(out("ranks")).unwrap() == expected;
    same.then_some(()).ok_or_else(|| {
        format!(
            "{} by {ranks} ranks, {options:?}: other bytes",
            log.display()
        )
    })
}

/// Names in a directory, but for this one.
fn others_than(name: &str, dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|other| other != name).collect()
}

/// A log of more datasets than the ranks make parts in a round: each is a part of its own.
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

/// A log that takes a while to compress: 24 parts of a chunk each.
fn large(path: &Path) {
    const CHUNK: u64 = 4 << 20;
    let pattern: Vec<u8> = Numbers(1).bytes(1 << 10);
    let entry = |n| {
        Entry::one(
            0,
            &[n * CHUNK],
            &[CHUNK],
            pattern.repeat(CHUNK as usize / pattern.len()),
        )
    };
    let dataset = Dataset::new("d", 0, Type::U8, &[24 * CHUNK]).chunked(&[CHUNK]);
    LogFile::with(vec![dataset], (0..24).map(entry).collect()).write(path);
}

/// Two datasets, of which the second has a chunk whose data are not in the file. With two ranks it is the second's.
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
        "1 parts of datasets cannot be read, and are not in {}",
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
        (&log, "--force", 1, "is not written over"),
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

/// Options that take a while.
const SLOW: [&str; 3] = ["--deflate", "9", "--verify"];

/// The log and the targets of jobs that lose a rank.
struct Killed {
    logs: TempDir,
    outs: TempDir,
    expected: Vec<u8>,
    /// How long a job takes that loses none.
    time: Duration,
}

/// What `out` has before a job.
const OLD: &[u8] = b"an older file";

impl Killed {
    fn new() -> Self {
        let logs = tempfile::tempdir().unwrap();
        let log = logs.path().join("log.h5");
        large(&log);
        let begun = Instant::now();
        makes_the_same(3, &log, logs.path(), &SLOW).unwrap();
        Killed {
            expected: fs::read(logs.path().join("log.3.3.ranks")).unwrap(),
            time: begun.elapsed(),
            outs: tempfile::tempdir().unwrap(),
            logs,
        }
    }

    fn out(&self) -> PathBuf {
        self.outs.path().join("out.h5")
    }

    /// Whether there is a temporary file with something in it.
    fn is_written(&self) -> bool {
        let entries = fs::read_dir(self.outs.path()).unwrap().flatten();
        let mut unfinished =
            entries.filter(|e| e.file_name().to_str().unwrap().starts_with(UNFINISHED));
        unfinished.any(|file| file.metadata().is_ok_and(|m| m.len() > 0))
    }

    /// Kills a rank at a moment of the seed.
    fn kill(&self, victim: u32, seed: u64) {
        let mut numbers = Numbers(seed);
        fs::write(self.out(), OLD).unwrap();
        let log = self.logs.path().join("log.h5");
        let options = [&SLOW[..], &["--force"]].concat();
        let mut job = start(3, &log, &self.out(), &options);
        let program = Path::new(COMPACT_MPI);
        let rank = || job.rank_of(program, victim, "scan-zygote");
        wait_until("the rank has begun", || rank().is_some());
        let rank = Rank::new(rank().unwrap());
        // Mostly while there is a temporary file.
        if !numbers.one_in(4) {
            wait_until("elements are written", || self.is_written());
        }
        // The time is that of threads, too.
        let most = self.time.as_micros() as u64 / 2;
        thread::sleep(Duration::from_micros(numbers.below(most)));
        let _ = pidfd_send_signal(&rank.handle, Signal::KILL);
        job.wait_for_killed();
        let found = fs::read(self.out()).unwrap();
        eprintln!("seed {seed} {}", if found == OLD { "old" } else { "new" });
        assert!(
            found == OLD || found == self.expected,
            "seed {seed}: {}",
            job.said()
        );
        // The other ranks are told to end, and remove it.
        wait_until("there is no temporary file", || {
            others_than("out.h5", self.outs.path()).is_empty()
        });
    }
}

#[test]
fn a_killed_rank_leaves_the_old_file_or_the_new_one() {
    let killed = Killed::new();
    for seed in (first_seed()..).take(cases(4)) {
        killed.kill((seed % 3) as u32, seed);
    }
}
