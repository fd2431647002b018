//! Random programs of the writer under `mpirun`, compared with the same programs written by libhdf5 alone. Files are
//! read through a mount by old and new programs, and decoded from their bytes: closed files, and unclosed files
//! before and after recovery.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::amount::first_seed;
use crate::common::mpirun::{Job, program};
use crate::common::nodes::Place;
use crate::common::readers::{Python, said};
use crate::common::settled::{is_silent, settle_by_command};
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// The way a job writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Usual,
    /// The job ends at the first program that leaves its file open after two flushes.
    Abort,
    /// The last close settles the file, if it has no subfiles.
    Settle,
}

impl Mode {
    fn argument(self) -> Option<&'static str> {
        match self {
            Mode::Usual => None,
            Mode::Abort => Some("--abort"),
            Mode::Settle => Some("--settle"),
        }
    }
}

/// The files of a job, and what they should be.
struct Written {
    /// `logs/SEED.h5`, with `SEED.json`; `earlier/SEED.h5`, which are recovered to an earlier flush.
    dir: TempDir,
    /// `SEED.h5`, and `SEED.earlier.h5`.
    meant: TempDir,
    cases: Vec<Case>,
}

/// A file written by a program.
struct Case {
    seed: u64,
    closed: bool,
    has_subfiles: bool,
    /// Number of complete flushes.
    flushes: usize,
    /// For an unclosed file: a flush before the last one. None if the file was closed before: its flushes then have
    /// other numbers, and only those of the last job can be told apart.
    earlier: Option<usize>,
    /// For an unclosed file: the earlier flushes in its journal, if each round is one.
    shown: Range<usize>,
    /// Whether each round is the flush of that number.
    numbered: bool,
}

impl Written {
    /// Makes a job write the programs of some seeds.
    fn by(place: &Place, ranks: u32, number: usize, mode: Mode) -> Self {
        let dir = place.dir();
        let logs = dir.path().join("logs");
        fs::create_dir(&logs).unwrap();
        fs::create_dir(dir.path().join("earlier")).unwrap();
        let first = first_seed();
        let (from, many) = (first.to_string(), number.to_string());
        let mut arguments = vec![logs.to_str().unwrap(), &from, &many];
        arguments.extend(mode.argument());
        let mut job = Job::start_at(place, ranks, &program("writer-random"), &arguments);
        let status = job.wait();
        let mut written = Written {
            dir,
            meant: tempfile::tempdir().unwrap(),
            cases: Vec::new(),
        };
        for seed in first..first + number as u64 {
            if written.program(seed).exists() {
                let case = Case::of(seed, &written.program(seed));
                written.cases.push(case);
            }
        }
        let aborted =
            mode == Mode::Abort && written.cases.iter().any(|c| !c.closed && c.flushes >= 2);
        assert_eq!(status.success(), !aborted, "{}", job.said());
        assert!(aborted || written.cases.len() == number);
        written
    }

    fn program(&self, seed: u64) -> PathBuf {
        self.log(seed).with_extension("json")
    }

    fn log(&self, seed: u64) -> PathBuf {
        self.dir.path().join(format!("logs/{seed}.h5"))
    }

    fn earlier(&self, seed: u64) -> PathBuf {
        self.dir.path().join(format!("earlier/{seed}.h5"))
    }

    fn meant(&self, seed: u64) -> PathBuf {
        self.meant.path().join(format!("{seed}.h5"))
    }

    fn meant_earlier(&self, seed: u64) -> PathBuf {
        self.meant.path().join(format!("{seed}.earlier.h5"))
    }

    fn meant_at(&self, seed: u64, flush: usize) -> PathBuf {
        self.meant.path().join(format!("{seed}.at.{flush}.h5"))
    }

    /// Makes the files that the programs mean.
    fn make_meant(&self, python: &Python) {
        let mut command = python.tool("serial.py");
        for case in &self.cases {
            let seed = case.seed;
            let flushes = case.flushes.to_string();
            command.args([self.program(seed), flushes.into(), self.meant(seed)]);
            if let Some(earlier) = case.earlier {
                let flushes = earlier.to_string();
                command.args([self.program(seed), flushes.into(), self.meant_earlier(seed)]);
            }
            for flush in case.shown.clone() {
                let flushes = flush.to_string();
                command.args([
                    self.program(seed),
                    flushes.into(),
                    self.meant_at(seed, flush),
                ]);
            }
        }
        succeed(&mut command);
    }

    /// Reads all files through a mount: also each flush of unclosed files, or, if `recovered`, the files recovered to
    /// earlier flushes.
    fn check_through_a_mount(&self, recovered: bool) {
        let mounted = Mounted::new(self.dir.path(), "");
        let mut pairs = Vec::new();
        for case in &self.cases {
            let seed = case.seed;
            let log = mounted.join(format!("logs/{seed}.h5"));
            pairs.push([self.program(seed), log, self.meant(seed)]);
            if recovered && case.earlier.is_some() {
                let log = mounted.join(format!("earlier/{seed}.h5"));
                pairs.push([self.program(seed), log, self.meant_earlier(seed)]);
            }
            for flush in case.shown.clone().filter(|_| !recovered) {
                let log = mounted.join(format!(".h5logfs/at/{flush}/logs/{seed}.h5"));
                pairs.push([self.program(seed), log, self.meant_at(seed, flush)]);
            }
        }
        for python in Python::all() {
            succeed(python.tool("meant.py").args(pairs.iter().flatten()));
        }
        for [_, log, _] in &pairs {
            let dump = Command::new("h5dump").arg(log).output().unwrap();
            let complaint = String::from_utf8_lossy(&dump.stderr);
            assert!(dump.status.success() && complaint.is_empty(), "{complaint}");
        }
    }

    /// Decodes the closed files from their bytes. If unclosed files were recovered, these are all.
    fn check_layout(&self, python: &Python, recovered: bool) -> String {
        let mut pairs = Vec::new();
        for case in &self.cases {
            if case.closed || recovered {
                pairs.push([self.log(case.seed), self.meant(case.seed)]);
            }
            if recovered && case.earlier.is_some() {
                pairs.push([self.earlier(case.seed), self.meant_earlier(case.seed)]);
            }
        }
        succeed(python.tool("logvol.py").args(pairs.iter().flatten()))
    }

    /// Recovers unclosed files, and copies of them to an earlier flush.
    fn recover(&self) {
        for case in self.cases.iter().filter(|c| !c.closed) {
            let (log, copy) = (self.log(case.seed), self.earlier(case.seed));
            if let Some(earlier) = case.earlier {
                copy_log(&log, &copy);
                let flush = earlier.to_string();
                let recovered = h5logfs(&["recover", "--last-flush", &flush], &copy);
                let says = format!("recovered {earlier} flushes");
                assert!(recovered.contains(&says), "{recovered}");
                assert!(!journal(&copy).exists());
            }
            let recovered = h5logfs(&["recover"], &log);
            let says = format!("recovered {} flushes", case.flushes);
            assert!(!case.numbered || recovered.contains(&says), "{recovered}");
            assert!(!journal(&log).exists());
        }
    }

    /// h5logfs commands find nothing wrong, and report what is unclosed.
    fn check_by_commands(&self) {
        for case in &self.cases {
            let log = self.log(case.seed);
            assert_eq!(journal(&log).exists(), !case.closed);
            let checked = h5logfs(&["check"], &log);
            assert!(checked.contains(": good"), "{checked}");
            let unclosed = if case.numbered {
                format!("not closed: shown as flush {} left it", case.flushes)
            } else {
                "not closed: shown as flush ".to_owned()
            };
            assert_eq!(checked.contains(&unclosed), !case.closed, "{checked}");
        }
    }
}

impl Case {
    fn of(seed: u64, program: &Path) -> Self {
        let program: Value = serde_json::from_slice(&fs::read(program).unwrap()).unwrap();
        let closed = program["closed"].as_bool().unwrap();
        let rounds = program["rounds"].as_array().unwrap();
        let flushes = rounds.len() - usize::from(!closed);
        let reopened = |round: &Value| round["steps"][0].get("reopen").cloned();
        let was_closed = |round: &Value| reopened(round).is_some_and(|r| r["closed"] == true);
        let numbered = !rounds.iter().any(was_closed);
        // An append keeps the state that it began with.
        let first = rounds.iter().rposition(|round| reopened(round).is_some());
        let first = first.unwrap_or(0);
        let dropped = flushes - first;
        let earlier = !closed && numbered && dropped > 0;
        let earlier = earlier.then(|| first + seed as usize % dropped);
        let shown = if closed || !numbered {
            0..0
        } else {
            first.max(1)..flushes
        };
        Case {
            seed,
            closed,
            has_subfiles: program["subfiles"] != 0,
            flushes,
            earlier,
            shown,
            numbered,
        }
    }
}

/// Runs a command that must succeed; returns its output.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

#[track_caller]
fn h5logfs(arguments: &[&str], file: &Path) -> String {
    succeed(Command::new(PROGRAM).args(arguments).arg(file))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn journal(log: &Path) -> PathBuf {
    with_suffix(log, ".h5logfs-journal")
}

/// Copies an unclosed log: the file, its journal, its subfiles.
fn copy_log(from: &Path, to: &Path) {
    for suffix in ["", ".h5logfs-journal"] {
        fs::copy(with_suffix(from, suffix), with_suffix(to, suffix)).unwrap();
    }
    let (from, to) = (with_suffix(from, ".subfiles"), with_suffix(to, ".subfiles"));
    if from.exists() {
        fs::create_dir(&to).unwrap();
        for file in fs::read_dir(from).unwrap().flatten() {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// Writes programs, and reads their files in every way.
pub fn programs_on(place: &Place, ranks: u32, number: usize, mode: Mode) {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let written = Written::by(place, ranks, number, mode);
    written.make_meant(&python);
    written.check_through_a_mount(false);
    written.check_by_commands();
    written.check_layout(&python, false);
    written.recover();
    written.check_through_a_mount(true);
    let flags = written.check_layout(&python, true);
    eprint!("{ranks} ranks, {} programs, {flags}", written.cases.len());
}

/// With the option `settle` the close leaves an ordinary file. It reads like the view of the log without the option.
pub fn settled_programs_on(place: &Place, ranks: &[u32], number: usize) {
    let pythons = Python::all();
    if !can_mount(User::Caller) {
        return;
    }
    let mut jobs = Vec::new();
    let mut files = Vec::new();
    for ranks in ranks {
        let logs = Written::by(place, *ranks, number, Mode::Usual);
        let settled = Written::by(place, *ranks, number, Mode::Settle);
        let mounted = Mounted::new(logs.dir.path(), "");
        let cases = settled.cases.iter();
        for Case { seed, .. } in cases.filter(|case| case.closed && !case.has_subfiles) {
            let view = mounted.join(format!("logs/{seed}.h5"));
            files.push([logs.program(*seed), settled.log(*seed), view]);
        }
        jobs.push((mounted, logs, settled));
    }
    assert!(!files.is_empty());
    for python in &pythons {
        succeed(python.tool("meant.py").args(files.iter().flatten()));
    }
    for [_, file, _] in &files {
        is_silent(file).unwrap();
        assert!(settle_by_command(file).contains("settled already"));
    }
    eprintln!("{} files", files.len());
}
