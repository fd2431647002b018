//! Jobs whose processes are all killed at once, at random instants: what was acknowledged as flushed
//! is there, and nothing else; before and after `h5logfs recover`, which is killed as well.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills of each test, `H5LOGFS_TEST_SEED` the first seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, pidfd_send_signal};
use tempfile::TempDir;

use crate::common::mpirun::{Job, Rank, cases, first_seed, program};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, wait_until};

const RANKS: u32 = 4;

/// What a file shows, as `tests/tools/pattern.py` sees it.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Flush(u64),
    /// It cannot be opened as HDF5.
    Nothing,
}

/// A job of `tests/programs/pattern.rs`, and its directories.
struct Victim {
    job: Job,
    subfiles: u32,
    sessions: u64,
    /// `log.h5` and what belongs to it: this is mounted.
    logs: TempDir,
    /// Process numbers and acknowledgements.
    notes: TempDir,
}

impl Victim {
    fn start(flushes: u64, subfiles: u32, sessions: u64) -> Self {
        let (logs, notes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = logs.path().join("log.h5");
        let numbers = [flushes, subfiles.into(), sessions].map(|n| n.to_string());
        let mut arguments = vec![log.to_str().unwrap(), notes.path().to_str().unwrap()];
        arguments.extend(numbers.iter().map(String::as_str));
        Victim {
            job: Job::start(RANKS, &program("writer-pattern"), &arguments),
            subfiles,
            sessions,
            logs,
            notes,
        }
    }

    fn log(&self) -> PathBuf {
        self.logs.path().join("log.h5")
    }

    fn journal(&self) -> PathBuf {
        self.logs.path().join("log.h5.h5logfs-journal")
    }

    fn has_journal(&self) -> bool {
        self.journal().exists()
    }

    /// A file that gets data with each flush.
    fn data_file(&self) -> PathBuf {
        match self.subfiles {
            0 => self.log(),
            _ => self.logs.path().join("log.h5.subfiles/log.h5.0"),
        }
    }

    /// Waits for the next write that makes a file longer, as closely as may be.
    fn wait_until_grown(&self, path: &Path) {
        let len = || fs::metadata(path).map_or(0, |m| m.len());
        let (before, start) = (len(), Instant::now());
        // At its end the job writes no more, or cuts the file.
        while len() == before && start.elapsed() < Duration::from_secs(1) {}
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.notes.path().join("acknowledged")).unwrap_or_default();
        // The last one may be in the making.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// The last flush that has returned on all ranks; the close is one more.
    fn acknowledged(&self) -> u64 {
        let lines = self.lines();
        let flushes = lines.iter().filter_map(|l| l.parse().ok());
        let last = flushes.max().unwrap_or(0);
        last + u64::from(lines.iter().any(|l| l == "closed"))
    }

    /// Waits until the job has come to a point; `false` where it ended before.
    fn wait_for(&mut self, line: &str) -> bool {
        let start = Instant::now();
        loop {
            if self.lines().iter().any(|l| l == line) {
                return true;
            }
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(!late, "no {line}: {}", self.job.said());
            if self.job.has_ended() {
                return false;
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
        // What a rank was just writing comes to its end, though mpirun does not wait for it.
        wait_until("the ranks are gone", || ranks.iter().all(Rank::has_ended));
    }

    /// What the log shows through a mount of its own, so that nothing is remembered.
    fn shown(&self, python: &Python, closed: bool) -> Shown {
        let mounted = Mounted::new(self.logs.path(), "");
        let mut command = python.tool("pattern.py");
        command.arg(mounted.join("log.h5")).arg(RANKS.to_string());
        if closed {
            command.arg(self.log());
        }
        let output = command.output().unwrap();
        match output.status.code() {
            Some(0) => {
                let last = String::from_utf8_lossy(&output.stdout);
                Shown::Flush(last.trim().parse().unwrap())
            }
            Some(3) => Shown::Nothing,
            _ => panic!("{}", said(&output)),
        }
    }

    /// Runs one of the project's commands on the log; whether it succeeded, and what it said.
    fn h5logfs(&self, command: &str) -> (bool, String) {
        let output = Command::new(PROGRAM).arg(command).arg(self.log()).output();
        let output = output.unwrap();
        let said = said(&output);
        assert!(!said.contains("panicked"), "{said}");
        (output.status.success(), said)
    }

    /// Starts a recovery and kills it; whether it had come to its end.
    fn kill_recovery(&self, after: Duration) -> bool {
        let mut recovery = Command::new(PROGRAM)
            .arg("recover")
            .arg(self.log())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(after);
        let _ = recovery.kill();
        recovery.wait().unwrap().success()
    }
}

/// A time of less than `most` microseconds.
fn micros(numbers: &mut Numbers, most: u64) -> Duration {
    Duration::from_micros(numbers.below(most))
}

/// When a job is killed: some time after it has come to a point, and has written after that.
struct Moment {
    /// As the job says it.
    point: String,
    grown: Option<PathBuf>,
    delay: Duration,
}

impl Moment {
    /// Creation, close, and the moments between the steps of a flush are short: they are aimed at.
    fn of_one_session(seed: u64, flush: u64, victim: &Victim, numbers: &mut Numbers) -> Self {
        let flush = flush.to_string();
        let (point, grown, delay) = match seed % 7 {
            0 => ("ready", None, 8_000),
            1 => ("closing", None, 60_000),
            2 => ("ready", None, 200_000),
            3 => (&flush[..], Some(victim.journal()), 100),
            4 => (&flush[..], Some(victim.data_file()), 100),
            _ => (&flush[..], None, 4_000),
        };
        Moment {
            point: point.to_owned(),
            grown,
            delay: micros(numbers, delay),
        }
    }

    /// A job is killed when it leaves the file, when it opens it again, and a little later.
    fn of_sessions(seed: u64, flush: u64, victim: &Victim, numbers: &mut Numbers) -> Self {
        let session = 1 + numbers.below(victim.sessions - 1);
        let (point, grown, delay) = match seed % 5 {
            0 => (format!("leaving {session}"), None, 60_000),
            1 => (format!("opening {session}"), None, 10_000),
            2 => (format!("opening {session}"), None, 40_000),
            3 => (
                format!("opening {session}"),
                Some(victim.data_file()),
                1_000,
            ),
            _ => (flush.to_string(), None, 20_000),
        };
        Moment {
            point,
            grown,
            delay: micros(numbers, delay),
        }
    }
}

/// One kill, and what follows it. Returns what happened, in a line.
fn kill_once(seed: u64, subfiles: u32, sessions: bool, python: &Python) -> String {
    let mut numbers = Numbers(seed);
    let flushes = 10 + numbers.below(60);
    let number = if sessions { 2 + numbers.below(4) } else { 1 };
    let mut victim = Victim::start(flushes, subfiles, number);
    let flush = 1 + numbers.below(flushes);
    let moment = if sessions {
        Moment::of_sessions(seed, flush, &victim, &mut numbers)
    } else {
        Moment::of_one_session(seed, flush, &victim, &mut numbers)
    };
    let Moment {
        point,
        grown,
        delay,
    } = moment;
    let mut ranks = victim.ranks();
    victim.wait_for(&point);
    if let Some(grown) = &grown {
        victim.wait_until_grown(grown);
    }
    thread::sleep(delay);
    victim.kill(&mut ranks, numbers.below(u64::from(RANKS)));

    let acknowledged = victim.acknowledged();
    let closed = !victim.has_journal() && acknowledged > 0;
    let shown = victim.shown(python, closed);
    let about = format!(
        "seed {seed}: killed {delay:?} after {point}{}, {acknowledged} of {} acknowledged, {shown:?} {}",
        if grown.is_some() { " and a write" } else { "" },
        flushes + 1,
        if closed { "closed" } else { "unclosed" },
    );
    match shown {
        Shown::Flush(shown) => {
            let expected = acknowledged..=acknowledged + 1;
            assert!(expected.contains(&shown), "{about}");
            let (good, said) = victim.h5logfs("check");
            assert!(good, "{about}: {said}");
            let (good, said) = victim.h5logfs("inspect");
            assert!(good, "{about}: {said}");
            assert!(closed || said.contains("not closed"), "{about}: {said}");
        }
        Shown::Nothing => {
            assert_eq!(acknowledged, 0, "{about}");
            let (good, said) = victim.h5logfs("inspect");
            assert!(!good && said.contains("log.h5"), "{about}: {said}");
        }
    }
    if !closed {
        recover(&victim, shown, &mut numbers, python, &about);
    }
    about
}

/// Recovers a log, at first only for a moment each time.
fn recover(victim: &Victim, shown: Shown, numbers: &mut Numbers, python: &Python, about: &str) {
    // A recovery can make an empty file of what was not made completely.
    let same = |now: &Shown| *now == shown || (shown == Shown::Nothing && *now == Shown::Flush(0));
    let mut recovered = false;
    for _ in 0..2 {
        recovered = recovered || victim.kill_recovery(micros(numbers, 15_000));
        // The journal goes last: what is killed after that has done it.
        recovered = recovered || !victim.has_journal();
        let now = victim.shown(python, recovered);
        assert!(same(&now), "{about}; recovery killed, then {now:?}");
    }
    let (good, said) = if recovered {
        (true, String::new())
    } else {
        victim.h5logfs("recover")
    };
    // What was not made completely may lack what a recovery needs.
    assert!(good || shown == Shown::Nothing, "{about}: {said}");
    if good {
        assert!(!victim.has_journal(), "{about}");
        let now = victim.shown(python, true);
        assert!(same(&now), "{about}; recovered, then {now:?}");
    } else {
        assert!(said.contains("log.h5"), "{about}: {said}");
    }
}

fn kill_at_random(subfiles: u32, sessions: bool, offset: u64) {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let first = first_seed() + offset;
    for seed in first..first + cases(5) as u64 {
        eprintln!("{}", kill_once(seed, subfiles, sessions, &python));
    }
}

/// While the job runs, no command takes its file from it, and after its death the commands say so.
#[test]
fn a_running_job_is_told_from_a_dead_one() {
    let mut victim = Victim::start(1_000_000, 0, 1);
    let mut ranks = victim.ranks();
    assert!(victim.wait_for("3"));
    let writer = ranks[0].pid.as_raw_pid();
    let state = |victim: &Victim| {
        let mut inspect = Command::new(PROGRAM);
        let output = inspect
            .args(["inspect", "--json"])
            .arg(victim.log())
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let unclosed = &report["unclosed"];
        assert_eq!(unclosed["job"]["pid"], writer, "{unclosed}");
        assert!(unclosed["flush"].as_u64().unwrap() >= 3);
        unclosed["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&victim), "running");
    let (good, said) = victim.h5logfs("check");
    assert!(good && said.contains("its job is running"), "{said}");
    let (good, said) = victim.h5logfs("recover");
    let who = format!("is still running: process {writer} ");
    assert!(!good && said.contains(&who), "{said}");
    for target in [victim.log(), victim.journal()] {
        let mut export = Command::new(PROGRAM);
        export
            .args(["export", "--force"])
            .arg(victim.log())
            .arg(&target);
        let output = export.output().unwrap();
        let refusal = crate::common::readers::said(&output);
        assert!(
            !output.status.success() && refusal.contains("is not written over"),
            "{refusal}"
        );
    }
    // It goes on.
    let next = (victim.acknowledged() + 3).to_string();
    assert!(victim.wait_for(&next));
    victim.kill(&mut ranks, 0);
    assert_eq!(state(&victim), "ended");
    let (good, said) = victim.h5logfs("check");
    assert!(good && said.contains("its job has ended"), "{said}");
    for words in ["recovered ", "closed already, nothing to do"] {
        let (good, said) = victim.h5logfs("recover");
        assert!(good && said.contains(words), "{said}");
    }
}

#[test]
fn killed_ranks_leave_what_they_flushed() {
    kill_at_random(0, false, 0);
}

#[test]
fn killed_ranks_leave_what_they_flushed_in_one_subfile() {
    kill_at_random(1, false, 10_000);
}

#[test]
fn killed_ranks_leave_what_they_flushed_in_subfiles() {
    kill_at_random(3, false, 20_000);
}

/// A killed append loses nothing that was there.
#[test]
fn killed_ranks_leave_what_they_appended_to() {
    kill_at_random(0, true, 30_000);
}

#[test]
fn killed_ranks_leave_what_they_appended_to_in_subfiles() {
    kill_at_random(3, true, 40_000);
}
