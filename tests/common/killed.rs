//! A killed parallel job: its acknowledged flushes, and its ranks.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use tempfile::TempDir;

use super::mpirun::{Job, Rank};
use super::nodes::Place;
use super::readers::said;
use super::{PROGRAM, wait_until};

pub const RANKS: u32 = 4;

/// The content of a file as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Flush(u64),
    /// HDF5 cannot open the file.
    Nothing,
}

impl Shown {
    /// The content according to a tool of `tests/tools`.
    pub fn by(output: &Output) -> Self {
        match output.status.code() {
            Some(0) => {
                let flush = String::from_utf8_lossy(&output.stdout);
                Shown::Flush(flush.trim().parse().unwrap())
            }
            Some(3) => Shown::Nothing,
            _ => panic!("{}", said(output)),
        }
    }
}

/// The directories of a job that writes `log.h5`.
pub struct Places {
    /// `log.h5` and its companions.
    pub logs: TempDir,
    /// Process numbers and acknowledgements.
    pub notes: TempDir,
}

impl Places {
    pub fn new(place: &Place) -> Self {
        Places {
            logs: place.dir(),
            notes: tempfile::tempdir().unwrap(),
        }
    }

    pub fn log(&self) -> PathBuf {
        self.logs.path().join("log.h5")
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.notes.path().join("acknowledged")).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Whether the job has reached a point.
    pub fn has(&self, line: &str) -> bool {
        self.lines().iter().any(|l| l == line)
    }

    /// The last flush that has returned on all ranks.
    pub fn acknowledged(&self) -> u64 {
        let lines = self.lines();
        let flushes = lines.iter().filter_map(|l| l.parse().ok());
        flushes.max().unwrap_or(0)
    }

    /// Runs an h5logfs command on the log. Returns whether it succeeded, and its output.
    pub fn h5logfs(&self, command: &str) -> (bool, String) {
        let output = Command::new(PROGRAM).arg(command).arg(self.log()).output();
        let output = output.unwrap();
        let said = said(&output);
        assert!(!said.contains("panicked"), "{said}");
        (output.status.success(), said)
    }
}

/// A running job of [`RANKS`] ranks.
pub struct Victim {
    pub job: Job,
    pub places: Places,
}

impl Victim {
    /// Waits until the job has reached a point; `false` where it ended before.
    pub fn wait_for(&mut self, line: &str) -> bool {
        self.wait_long_for(line, Duration::from_secs(60))
    }

    /// Waits until the job has reached a point, with another time limit.
    pub fn wait_long_for(&mut self, line: &str, most: Duration) -> bool {
        let start = Instant::now();
        loop {
            if self.places.has(line) {
                return true;
            }
            let late = start.elapsed() > most;
            assert!(!late, "no {line}: {}", self.job.said());
            if self.job.has_ended() {
                return false;
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits until all ranks have started.
    pub fn ranks(&mut self) -> Vec<Rank> {
        self.wait_for("ready");
        let number = |rank| {
            let own = fs::read_to_string(self.places.notes.path().join(format!("pid.{rank}")));
            let pid = self.job.rank(rank, own.unwrap().parse().unwrap());
            pid.unwrap_or_else(|| panic!("no rank {rank}: {}", self.job.said()))
        };
        (0..RANKS).map(|rank| Rank::new(number(rank))).collect()
    }

    /// Kills all ranks at once, starting with rank `first`.
    pub fn kill(&mut self, ranks: &mut [Rank], first: u64) {
        ranks.rotate_left(first as usize);
        for rank in ranks.iter() {
            // It may have ended.
            let _ = pidfd_send_signal(&rank.handle, Signal::KILL);
        }
        self.job.wait_for_killed();
        // mpirun does not wait until the system calls of killed ranks are done.
        wait_until("the ranks are gone", || ranks.iter().all(Rank::has_ended));
    }
}
