//! Jobs whose processes are all killed at once, at random times. Exactly the acknowledged flushes must be there,
//! before and after `h5logfs recover`, which is killed as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::amount::{cases, first_seed};
use crate::common::killed::{Places, RANKS, Shown, Victim};
use crate::common::mpirun::{Job, program};
use crate::common::nodes::Place;
use crate::common::numbers::Numbers;
use crate::common::readers::Python;
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// One subfile per node.
pub const PER_NODE: u32 = u32::MAX;

/// A job of `tests/programs/pattern.rs`.
pub struct Pattern {
    pub victim: Victim,
    subfiles: u32,
    sessions: u64,
}

impl Pattern {
    /// Starts a job with these flushes in these sessions.
    pub fn start(place: &Place, flushes: u64, subfiles: u32, sessions: u64) -> Self {
        Self::start_with(Places::new(place), place, flushes, subfiles, sessions, &[])
    }

    /// Starts a job that settles its file at the close.
    pub fn start_settling(place: &Place, flushes: u64) -> Self {
        Self::start_with(Places::new(place), place, flushes, 0, 1, &["settle"])
    }

    /// Starts a job with pauses between flushes, and a subfile per node.
    pub fn start_slowly(place: &Place, flushes: u64, pause: Duration) -> Self {
        let pause = format!("pause={}", pause.as_millis());
        Self::start_with(Places::new(place), place, flushes, PER_NODE, 1, &[&pause])
    }

    /// Starts a job with these options, in directories that nodes may see at other paths.
    pub fn start_in(
        places: Places,
        place: &Place,
        flushes: u64,
        subfiles: u32,
        options: &[&str],
    ) -> Self {
        Self::start_with(places, place, flushes, subfiles, 1, options)
    }

    fn start_with(
        places: Places,
        place: &Place,
        flushes: u64,
        subfiles: u32,
        sessions: u64,
        options: &[&str],
    ) -> Self {
        let log = places.log();
        let subfiles_text = match subfiles {
            PER_NODE => "node".to_owned(),
            number => number.to_string(),
        };
        let numbers = [flushes.to_string(), subfiles_text, sessions.to_string()];
        let notes = places.notes.path().to_str().unwrap();
        let mut arguments = vec![log.to_str().unwrap(), notes];
        arguments.extend(numbers.iter().map(String::as_str));
        arguments.extend(options);
        let job = Job::start_at(place, RANKS, &program("writer-pattern"), &arguments);
        Pattern {
            victim: Victim { job, places },
            subfiles,
            sessions,
        }
    }

    pub fn places(&self) -> &Places {
        &self.victim.places
    }

    pub fn journal(&self) -> PathBuf {
        self.places().logs.path().join("log.h5.h5logfs-journal")
    }

    pub fn has_journal(&self) -> bool {
        self.journal().exists()
    }

    /// Whether the log is shown as unclosed. A journal beside a file that proves its close does not count.
    fn is_unclosed(&self) -> bool {
        self.has_journal() && self.places().h5logfs("inspect").1.contains("not closed")
    }

    /// A file that grows with each flush.
    fn data_file(&self) -> PathBuf {
        match self.subfiles {
            0 => self.places().log(),
            _ => self.places().logs.path().join("log.h5.subfiles/log.h5.0"),
        }
    }

    /// Waits, as precisely as possible, for the next write that extends a file.
    fn wait_until_grown(&self, path: &Path) {
        let len = || fs::metadata(path).map_or(0, |m| m.len());
        let (before, start) = (len(), Instant::now());
        // At its end the job stops writing, or truncates the file.
        while len() == before && start.elapsed() < Duration::from_secs(1) {}
    }

    /// The last flush that has returned on all ranks; the close is one more.
    pub fn acknowledged(&self) -> u64 {
        self.places().acknowledged() + u64::from(self.places().has("closed"))
    }

    /// The content of the log through a new mount, which has nothing cached.
    pub fn shown(&self, python: &Python, closed: bool) -> Shown {
        let mounted = Mounted::new(self.places().logs.path(), "");
        let mut command = python.tool("pattern.py");
        command.arg(mounted.join("log.h5")).arg(RANKS.to_string());
        if closed {
            command.arg(self.places().log());
        }
        let output = command.output().unwrap();
        Shown::by(&output)
    }

    /// Waits until the log is closed, just before it is settled.
    pub fn wait_until_closed(&mut self) {
        self.victim.wait_for("closing");
        while self.has_journal() && !self.victim.job.has_ended() {}
    }

    /// The content of an ordinary file, read directly.
    pub fn read(&self, python: &Python) -> Shown {
        let mut command = python.tool("pattern.py");
        command.arg(self.places().log()).arg(RANKS.to_string());
        Shown::by(&command.output().unwrap())
    }

    /// Starts a recovery and kills it. Returns whether it had finished.
    fn kill_recovery(&self, after: Duration) -> bool {
        let mut recovery = Command::new(PROGRAM)
            .arg("recover")
            .arg(self.places().log())
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

/// The time of a kill: a delay after a point of the job, and after a write that follows it.
struct Moment {
    /// The point in the words of the job.
    point: String,
    grown: Option<PathBuf>,
    delay: Duration,
}

impl Moment {
    /// Creation, close, and the steps of a flush are short, so kills aim at them.
    fn of_one_session(seed: u64, flush: u64, pattern: &Pattern, numbers: &mut Numbers) -> Self {
        let flush = flush.to_string();
        let (point, grown, delay) = match seed % 7 {
            0 => ("ready", None, 8_000),
            1 => ("closing", None, 60_000),
            2 => ("ready", None, 200_000),
            3 => (&flush[..], Some(pattern.journal()), 100),
            4 => (&flush[..], Some(pattern.data_file()), 100),
            _ => (&flush[..], None, 4_000),
        };
        Moment {
            point: point.to_owned(),
            grown,
            delay: micros(numbers, delay),
        }
    }

    /// A kill when the job leaves the file, reopens it, a little later, or at the final close.
    fn of_sessions(seed: u64, flush: u64, pattern: &Pattern, numbers: &mut Numbers) -> Self {
        let session = 1 + numbers.below(pattern.sessions - 1);
        let (point, grown, delay) = match seed % 5 {
            0 if numbers.one_in(2) => ("closing".to_owned(), None, 60_000),
            0 => (format!("leaving {session}"), None, 60_000),
            1 => (format!("opening {session}"), None, 10_000),
            2 => (format!("opening {session}"), None, 40_000),
            3 => (
                format!("opening {session}"),
                Some(pattern.data_file()),
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

/// Kills one job and checks the rest. Returns a line about what happened.
fn kill_once(place: &Place, seed: u64, subfiles: u32, sessions: bool, python: &Python) -> String {
    let mut numbers = Numbers(seed);
    let flushes = 10 + numbers.below(60);
    let number = if sessions { 2 + numbers.below(4) } else { 1 };
    let mut pattern = Pattern::start(place, flushes, subfiles, number);
    let flush = 1 + numbers.below(flushes);
    let moment = if sessions {
        Moment::of_sessions(seed, flush, &pattern, &mut numbers)
    } else {
        Moment::of_one_session(seed, flush, &pattern, &mut numbers)
    };
    let Moment {
        point,
        grown,
        delay,
    } = moment;
    let mut ranks = pattern.victim.ranks();
    pattern.victim.wait_for(&point);
    if let Some(grown) = &grown {
        pattern.wait_until_grown(grown);
    }
    thread::sleep(delay);
    pattern
        .victim
        .kill(&mut ranks, numbers.below(u64::from(RANKS)));
    place.forget();
    let acknowledged = pattern.acknowledged();
    let closed = acknowledged > 0 && !pattern.is_unclosed();
    let shown = pattern.shown(python, closed);
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
            let (good, said) = pattern.places().h5logfs("check");
            assert!(good, "{about}: {said}");
            let (good, said) = pattern.places().h5logfs("inspect");
            assert!(good, "{about}: {said}");
            assert!(closed || said.contains("not closed"), "{about}: {said}");
        }
        Shown::Nothing => {
            assert_eq!(acknowledged, 0, "{about}");
            let (good, said) = pattern.places().h5logfs("inspect");
            assert!(!good && said.contains("log.h5"), "{about}: {said}");
        }
    }
    if !closed || pattern.has_journal() {
        recover(&pattern, shown, &mut numbers, python, &about);
    }
    about
}

/// Recovers a log. The first attempts are killed soon.
fn recover(pattern: &Pattern, shown: Shown, numbers: &mut Numbers, python: &Python, about: &str) {
    // Recovery may turn an incomplete creation into an empty file.
    let same = |now: &Shown| *now == shown || (shown == Shown::Nothing && *now == Shown::Flush(0));
    let mut recovered = false;
    for _ in 0..2 {
        recovered = recovered || pattern.kill_recovery(micros(numbers, 15_000));
        // The journal is removed last: a recovery killed afterwards has finished.
        recovered = recovered || !pattern.has_journal();
        let now = pattern.shown(python, recovered);
        assert!(same(&now), "{about}; recovery killed, then {now:?}");
    }
    let (good, said) = if recovered {
        (true, String::new())
    } else {
        pattern.places().h5logfs("recover")
    };
    // An incomplete creation may lack what a recovery needs.
    assert!(good || shown == Shown::Nothing, "{about}: {said}");
    if good {
        assert!(!pattern.has_journal(), "{about}");
        let now = pattern.shown(python, true);
        assert!(same(&now), "{about}; recovered, then {now:?}");
    } else {
        assert!(said.contains("log.h5"), "{about}: {said}");
    }
}

/// Kills jobs with these subfiles. With `sessions` they reopen their file.
pub fn kill_at_random(place: &Place, subfiles: u32, sessions: bool, offset: u64) {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let first = first_seed() + offset;
    for seed in first..first + cases(5) as u64 {
        eprintln!("{}", kill_once(place, seed, subfiles, sessions, &python));
    }
}
