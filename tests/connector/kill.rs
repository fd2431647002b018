//! HDF5 programs under the connector whose processes are all killed at once, at random instants: what was acknowledged as
//! flushed is there, and nothing else. They close their file now and then, and open it again to append; so the file has
//! been closed already, or is just being closed or opened.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills, `H5LOGFS_TEST_SEED` the first seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, pidfd_send_signal};
use tempfile::TempDir;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::Hdf5;
use crate::common::mpirun::{Job, Rank, cases, first_seed};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, said};
use crate::common::{PROGRAM, wait_until};

const RANKS: u32 = 4;

/// What a file shows, as `tests/tools/flushes.py` sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Flush(u64),
    /// It cannot be opened as HDF5.
    Nothing,
}

/// A job of `tests/c/connector/flushes.c`.
struct Victim {
    job: Job,
    logs: TempDir,
    notes: TempDir,
    // The job loads what lies there.
    _connector: Connector,
}

impl Victim {
    fn start(hdf5: &Hdf5, flushes: u64, cycle: u64, small_buffer: bool) -> Self {
        let (logs, notes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let connector = Connector::new();
        let mut mpirun = Command::new("mpirun");
        mpirun
            .args(["-n", &RANKS.to_string()])
            .arg(hdf5.compiled("connector", "flushes"))
            .args([&logs.path().join("log.h5"), notes.path()])
            .args([flushes, cycle].map(|number| number.to_string()));
        mpirun.envs(connector.used());
        if small_buffer {
            // Less than a rank writes between two flushes.
            mpirun.env("H5LOGFS_BUFFER_LIMIT", "64K");
        }
        Victim {
            job: Job::launch(mpirun),
            logs,
            notes,
            _connector: connector,
        }
    }

    fn log(&self) -> PathBuf {
        self.logs.path().join("log.h5")
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.notes.path().join("acknowledged")).unwrap_or_default();
        // The last one may be in the making.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// The last flush that has returned on all ranks.
    fn acknowledged(&self) -> u64 {
        let lines = self.lines();
        lines
            .iter()
            .filter_map(|l| l.parse().ok())
            .max()
            .unwrap_or(0)
    }

    /// Waits until the job has come to a point, or to its end.
    fn wait_for(&mut self, line: &str) {
        let start = Instant::now();
        while !self.lines().iter().any(|l| l == line) {
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(!late, "no {line}: {}", self.job.said());
            if self.job.has_ended() {
                return;
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits until all ranks are there.
    fn ranks(&mut self) -> Vec<Rank> {
        self.wait_for("ready");
        let number = |rank| {
            let pid = fs::read_to_string(self.notes.path().join(format!("pid.{rank}")));
            Pid::from_raw(pid.unwrap().parse().unwrap()).unwrap()
        };
        (0..RANKS).map(|rank| Rank::new(number(rank))).collect()
    }

    /// Kills all ranks at once, one of them first.
    fn kill(&mut self, ranks: &mut [Rank], first: u64) {
        ranks.rotate_left(first as usize);
        for rank in ranks.iter() {
            // It may have come to its end.
            let _ = pidfd_send_signal(&rank.handle, Signal::KILL);
        }
        self.job.wait_for_killed();
        wait_until("the ranks are gone", || ranks.iter().all(Rank::has_ended));
    }

    fn shown(&self, python: &Python, file: &Path) -> Shown {
        let output = python.tool("flushes.py").arg(file).output().unwrap();
        match output.status.code() {
            Some(0) => {
                let flush = String::from_utf8_lossy(&output.stdout);
                Shown::Flush(flush.trim().parse().unwrap())
            }
            Some(3) => Shown::Nothing,
            _ => panic!("{}", said(&output)),
        }
    }

    fn h5logfs(&self, command: &str) -> (bool, String) {
        let output = Command::new(PROGRAM).arg(command).arg(self.log()).output();
        let output = output.unwrap();
        let said = said(&output);
        assert!(!said.contains("panicked"), "{said}");
        (output.status.success(), said)
    }
}

/// One kill, and what follows it. Returns what happened, in a line.
fn kill_once(seed: u64, hdf5: &Hdf5, python: &Python) -> String {
    let mut numbers = Numbers(seed);
    let flushes = 10 + numbers.below(40);
    let cycle = 1 + numbers.below(8);
    let flush = 1 + numbers.below(flushes);
    let closed = (flush / cycle * cycle).max(cycle.min(flushes));
    let mut victim = Victim::start(hdf5, flushes, cycle, seed.is_multiple_of(3));
    // Close and append are short: they are aimed at.
    let (point, most) = match seed % 6 {
        0 => ("ready".to_owned(), 20_000),
        1 => ("ready".to_owned(), 400_000),
        2 => (format!("closing {closed}"), 40_000),
        3 => (format!("closed {closed}"), 10_000),
        _ => (flush.to_string(), 6_000),
    };
    let mut ranks = victim.ranks();
    victim.wait_for(&point);
    let delay = Duration::from_micros(numbers.below(most));
    thread::sleep(delay);
    victim.kill(&mut ranks, numbers.below(u64::from(RANKS)));

    let acknowledged = victim.acknowledged();
    let shown = victim.shown(python, &victim.log());
    let about = format!(
        "seed {seed}: killed {delay:?} after {point}, {acknowledged} of {flushes} acknowledged, {shown:?}"
    );
    match shown {
        Shown::Flush(shown) => {
            assert!(
                (acknowledged..=acknowledged + 1).contains(&shown),
                "{about}"
            );
            let (good, said) = victim.h5logfs("check");
            assert!(good, "{about}: {said}");
        }
        Shown::Nothing => assert_eq!(acknowledged, 0, "{about}"),
    }
    recover(&victim, shown, python, &about);
    about
}

/// After the recovery a log is an ordinary one, and shows the same.
fn recover(victim: &Victim, shown: Shown, python: &Python, about: &str) {
    let (good, said) = victim.h5logfs("recover");
    // What was not made completely may lack what a recovery needs.
    assert!(good || shown == Shown::Nothing, "{about}: {said}");
    if good {
        let now = victim.shown(python, &victim.log());
        let empty = shown == Shown::Nothing && now == Shown::Flush(0);
        assert!(now == shown || empty, "{about}; recovered, then {now:?}");
    }
}

#[test]
fn killed_programs_leave_what_they_flushed() {
    let driver = Driver::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), driver.python()) else {
        return;
    };
    let first = first_seed();
    for seed in first..first + cases(12) as u64 {
        eprintln!("{}", kill_once(seed, hdf5, &python));
    }
}
