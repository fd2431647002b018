//! Jobs of `h5logfs-compact-mpi`, and what they leave after the loss of a rank or node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use tempfile::TempDir;

use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::mpirun::{Job, Rank};
use crate::common::nodes::Place;
use crate::common::numbers::Numbers;
use crate::common::readers::said;
use crate::common::{PROGRAM, names_in, wait_until};

/// Starts the program in `ranks` processes.
pub fn start(
    program: &Path,
    place: &Place,
    ranks: u32,
    log: &Path,
    out: &Path,
    options: &[&str],
) -> Job {
    let paths = [log, out].map(|path| path.to_str().unwrap());
    Job::start_at(place, ranks, program, &[options, &paths].concat())
}

/// The exit status and the output of the job.
pub fn ended(mut job: Job) -> (Option<i32>, String) {
    let status = job.wait();
    (status.code(), job.said())
}

/// The bytes of the file made by threads.
pub fn by_threads(log: &Path, out: &Path, options: &[&str]) -> Vec<u8> {
    let mut command = Command::new(PROGRAM);
    command.args(["compact", "--force"]).args(options);
    let output = command.args([log, out]).output().unwrap();
    assert!(fs::exists(out).unwrap(), "{}", said(&output));
    fs::read(out).unwrap()
}

/// Checks that `ranks` ranks make the same file as threads.
pub fn makes_the_same(
    program: &Path,
    place: &Place,
    ranks: u32,
    log: &Path,
    dir: &Path,
    options: &[&str],
) -> Result<(), String> {
    let name = log.file_stem().unwrap().to_str().unwrap();
    let out = |by: &str| dir.join(format!("{name}.{ranks}.{}.{by}", options.len()));
    let expected = by_threads(log, &out("threads"), options);
    let (status, said) = ended(start(program, place, ranks, log, &out("ranks"), options));
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

/// Names in a directory, without this one.
pub fn others_than(name: &str, dir: &Path) -> Vec<String> {
    let mut names = names_in(dir);
    names.retain(|other| other != name);
    names
}

/// A log that takes a while to compress: 24 parts of one chunk each.
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

/// Slow options.
const SLOW: [&str; 3] = ["--deflate", "9", "--verify"];

/// A log, and the targets of jobs that lose a rank.
pub struct Killed {
    program: &'static Path,
    place: Place,
    logs: TempDir,
    outs: TempDir,
    expected: Vec<u8>,
    /// Duration of an undisturbed job.
    time: Duration,
}

/// Ranks of these jobs.
const RANKS: u32 = 3;

/// Content of `out` before a job.
const OLD: &[u8] = b"an older file";

impl Killed {
    /// Makes the log.
    pub fn new(program: &'static Path, place: Place) -> Self {
        let logs = tempfile::tempdir().unwrap();
        let log = logs.path().join("log.h5");
        large(&log);
        let begun = Instant::now();
        makes_the_same(program, &place, RANKS, &log, logs.path(), &SLOW).unwrap();
        Killed {
            program,
            place,
            expected: fs::read(logs.path().join("log.3.3.ranks")).unwrap(),
            time: begun.elapsed(),
            outs: tempfile::tempdir().unwrap(),
            logs,
        }
    }

    fn out(&self) -> PathBuf {
        self.outs.path().join("out.h5")
    }

    /// Kills one rank, or all, at a random time.
    pub fn kill(&self, seed: u64) {
        let mut numbers = Numbers(seed);
        let mut job = self.start();
        let victims = match numbers.below(u64::from(RANKS) + 1) as u32 {
            RANKS => 0..RANKS,
            one => one..one + 1,
        };
        let victims: Vec<Rank> = victims.map(|victim| self.rank(&job, victim)).collect();
        // Mostly while a temporary file exists.
        if !numbers.one_in(4) {
            self.wait_until_written();
        }
        // Threads take the same time.
        let most = self.time.as_micros() as u64 / 2;
        thread::sleep(Duration::from_micros(numbers.below(most)));
        for victim in victims {
            let _ = pidfd_send_signal(&victim.handle, Signal::KILL);
        }
        job.wait_for_killed();
        self.check(&job);
    }

    /// Kills a node, counted from 0, in the middle of a job.
    pub fn kill_node(&mut self, victim: usize) {
        let mut job = self.start();
        self.wait_until_written();
        self.place.nodes_mut().kill(victim);
        job.end_without_node();
        let status = job.wait();
        assert!(!status.success(), "{}", job.said());
        self.check(&job);
    }

    fn rank(&self, job: &Job, number: u32) -> Rank {
        let rank = || job.rank_of(self.program, number, &["scan-zygote", "remove-at-end"]);
        wait_until("the rank has begun", || rank().is_some());
        Rank::new(rank().unwrap())
    }

    fn start(&self) -> Job {
        fs::write(self.out(), OLD).unwrap();
        let log = self.logs.path().join("log.h5");
        let options = [&SLOW[..], &["--force"]].concat();
        start(
            self.program,
            &self.place,
            RANKS,
            &log,
            &self.out(),
            &options,
        )
    }

    /// Waits for a temporary file with content, or for the file itself.
    fn wait_until_written(&self) {
        let is_written = |name: &String| {
            let path = self.outs.path().join(name);
            path.metadata().is_ok_and(|m| m.len() > OLD.len() as u64)
        };
        wait_until("elements are written", || {
            names_in(self.outs.path()).iter().any(is_written)
        });
    }

    /// Checks that only the old or the new file exists.
    fn check(&self, job: &Job) {
        let found = fs::read(self.out()).unwrap();
        assert!(found == OLD || found == self.expected, "{}", job.said());
        wait_until("there is no temporary file", || {
            others_than("out.h5", self.outs.path()).is_empty()
        });
    }
}
