//! Runs programs on recorded files, and judges the possible states after a crash.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::common::amount::{either, first_seed, told};
use super::common::mpirun::{Job, Mpi, configure, program};
use super::common::readers::said;
use super::common::unseen::without_locks;
use super::common::{PROGRAM, messages};
use super::history::Disk;
use super::history::History;
use super::images::{self, Changes, Image, Seen};
use super::judge::{Case, Verdict, Work, judge};
use super::promise::Promise;
use super::recorder::{Recorder, SAID};

/// The log of a scenario.
pub const NAME: &str = "log.h5";

/// The file for reports that do not matter.
pub const SILENT: &str = "/dev/null";

/// Properties of a scenario's log.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub ranks: usize,
    /// Lost elements are recognisable.
    pub is_exact: bool,
    pub work: Work,
}

impl Kind {
    /// Judges the state that a crash has left. `is_of_kill`: processes were killed, and the power was not lost.
    pub fn judge(
        self,
        disk: &Disk,
        promise: &Promise,
        is_of_kill: bool,
    ) -> Result<Verdict, String> {
        let case = Case {
            name: NAME,
            ranks: self.ranks,
            promise,
            is_of_kill,
            is_exact: self.is_exact || is_of_kill,
            work: self.work,
        };
        judge(disk, case)
    }
}

/// The place in which programs run.
pub struct Stage<'a> {
    pub recorder: &'a Recorder,
    pub kind: Kind,
}

impl Stage<'_> {
    /// Runs the program `writer-crash`, whose first flush is `flush` + 1.
    pub fn write(&self, flush: u64, options: &str, steps: &str) {
        let said = self.recorder.join(SAID);
        self.write_to(NAME, said.to_str().unwrap(), flush, options, steps);
    }

    /// Runs the program on a log with another name. Its reports go to the file `said`.
    pub fn write_to(&self, name: &str, said: &str, flush: u64, options: &str, steps: &str) {
        let path = self.recorder.join(name);
        run_writer(self.kind.ranks, &path, said, flush, options, steps);
    }

    /// Runs the program, which may fail. Returns whether it succeeded. Fails with its output if it was killed.
    pub fn attempt(&self, flush: u64, options: &str, steps: &str) -> Result<bool, String> {
        let (path, said) = (self.recorder.join(NAME), self.recorder.join(SAID));
        let dir = tempfile::tempdir().unwrap();
        let said = said.to_str().unwrap();
        ended(&mut writer(dir.path(), &path, said, flush, options, steps))
    }

    /// Runs a command, as [`Stage::attempt`] does.
    pub fn attempt_command(&self, arguments: &[&str]) -> Result<bool, String> {
        let mut command = Command::new(PROGRAM);
        ended(command.current_dir(self.recorder.path()).args(arguments))
    }

    /// Runs the program so that neither it nor its children see locks of others.
    pub fn write_unseen(&self, flush: u64, options: &str, steps: &str) {
        let (path, said) = (self.recorder.join(NAME), self.recorder.join(SAID));
        let said = said.to_str().unwrap();
        let locks = Locks::Unseen;
        run_writer_with(locks, self.kind.ranks, &path, said, flush, options, steps);
    }

    /// Runs a command, which must succeed.
    fn run(&self, arguments: &[&str]) {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.recorder.path());
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Runs a command that syncs its results.
    pub fn command(&self, arguments: &[&str]) {
        self.run(arguments);
        let history = self.recorder.history();
        assert!(history.is_held(history.0.len()), "{arguments:?}");
    }

    /// Settles the log, and restores it. The new names may be on disk or not.
    pub fn settle_and_undo(&self) {
        self.run(&["settle", NAME]);
        self.run(&["settle", "--undo", NAME]);
    }

    /// Recovers the log with all its flushes.
    pub fn recover(&self, flush: u64) {
        self.command(&["recover", NAME]);
        self.recorder.say(format!("synced {flush}"));
    }
}

/// Runs the program `writer-crash` on the log at `path`, whose first flush is `flush` + 1. It must succeed.
pub fn run_writer(ranks: usize, path: &Path, said: &str, flush: u64, options: &str, steps: &str) {
    run_writer_with(Locks::Seen, ranks, path, said, flush, options, steps);
}

/// Whether a process sees locks of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locks {
    Seen,
    Unseen,
}

fn run_writer_with(
    locks: Locks,
    ranks: usize,
    path: &Path,
    said: &str,
    flush: u64,
    options: &str,
    steps: &str,
) {
    if ranks > 1 {
        let flush = flush.to_string();
        let mut command = Mpi::of_build().run(ranks as u32, &program("writer-crash"));
        command.args([path.to_str().unwrap(), said, &flush, options]);
        command
            .args(steps.split(' '))
            .env("H5LOGFS_PROGRAM", PROGRAM);
        if locks == Locks::Unseen {
            without_locks(&mut command);
        }
        Job::launch(command).succeed();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = writer(dir.path(), path, said, flush, options, steps);
    if locks == Locks::Unseen {
        without_locks(&mut command);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
}

/// The program `writer-crash` as a single process, which may use the directory `dir` for itself.
fn writer(dir: &Path, path: &Path, said: &str, flush: u64, options: &str, steps: &str) -> Command {
    let mut command = Command::new(program("writer-crash"));
    configure(&mut command, dir);
    command.env("H5LOGFS_PROGRAM", PROGRAM);
    command.args([path.to_str().unwrap(), said, &flush.to_string(), options]);
    command.args(steps.split(' '));
    command
}

/// Waits for a program to end. Returns whether it succeeded.
pub fn ended(command: &mut Command) -> Result<bool, String> {
    let output = command.output().unwrap();
    match output.status.signal() {
        None => Ok(output.status.success()),
        Some(_) => Err(messages(&output)),
    }
}

/// Keeps the other tests of this process waiting. A thread that starts programs would briefly hand them the locks of
/// another thread.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs programs, and judges the possible crash states. Prints a row of the table, and the violations. Returns their
/// number.
pub fn check(name: &str, kind: Kind, drive: impl FnOnce(&Stage<'_>)) -> usize {
    let _one = alone();
    let recorder = Recorder::new();
    drive(&Stage {
        recorder: &recorder,
        kind,
    });
    try_images(name, &recorder.history(), |disk, image, promise| {
        kind.judge(disk, promise, image.is_of_kill())
    })
}

/// Judges the states of a recorded history.
pub fn try_images(
    name: &str,
    history: &History,
    judge: impl Fn(&Disk, Image, &Promise) -> Result<Verdict, String>,
) -> usize {
    let changes = Changes::of(history);
    let seed = first_seed();
    let most = told("H5LOGFS_TEST_CASES").unwrap_or(either(12, 1000));
    let all = images::all(history, &changes, either(2, 6), seed);
    let mut seen = Seen::default();
    let mut tried: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut violations: BTreeMap<String, Vec<(Image, String)>> = BTreeMap::new();
    for image in images::some(all, most, seed) {
        let disk = image.disk(history, &changes);
        let promise = Promise::at(history, image.end);
        if !seen.add((&disk, &promise, image.is_of_kill())) {
            continue;
        }
        match judge(&disk, image, &promise) {
            Ok(verdict) => *tried.entry(verdict).or_default() += 1,
            Err(e) => violations.entry(shape(&e)).or_default().push((image, e)),
        }
    }
    let number: usize = violations.values().map(Vec::len).sum();
    let images = number + tried.values().sum::<usize>();
    let operations = history.0.len();
    eprintln!(
        "{name:44} | {operations:4} operations | {images:5} images {tried:?} | {number} violations"
    );
    for found in violations.values() {
        let (image, e) = &found[0];
        let times = found.len();
        eprintln!("  {times} times, first of {name}, {image}: {e}");
        tell(history, *image);
    }
    number
}

/// A message without numbers and variable names.
fn shape(message: &str) -> String {
    let known = message.replace(char::is_numeric, "");
    let words = known.split_whitespace();
    words
        .filter(|word| !word.contains('/'))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Prints the operations that led to an image.
fn tell(history: &History, image: Image) {
    let from = image.end.saturating_sub(25);
    for at in from..history.0.len().min(image.end + 2) {
        let mark = if at >= image.end { "not: " } else { "" };
        eprintln!("    {mark}{at}: {}", history.describe(at));
    }
}
