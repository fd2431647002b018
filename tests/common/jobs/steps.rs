//! HDF5 programs with the VOL connector that write steps without flushing (`tests/c/steps`), and what remains of the
//! steps after any kind of end.
//!
//! Each rank notes when it began a step and when it had written it. A flush happens within a call, so expectations
//! depend on the last completed calls: a machine that gives a program no time does not make a test fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::amount::{either, first_seed, told};
use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::killed::{Places, RANKS, Victim};
use crate::common::mpirun::{Job, Mpi, Rank};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// The library that writes the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// HDF5, in C.
    Hdf5,
    /// HDF5 in C, where ranks make a common call only every 50th step.
    Apart,
    NetCdf,
    Fortran,
    H5py,
}

/// A program with [`RANKS`] ranks, or a process without MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub library: Library,
    pub is_parallel: bool,
}

/// The end of a program that is not killed, and the step after which it ends.
pub type Ending = Option<(&'static str, usize)>;

impl Way {
    pub const fn parallel(library: Library) -> Self {
        Way {
            library,
            is_parallel: true,
        }
    }

    pub const fn alone(library: Library) -> Self {
        Way {
            library,
            is_parallel: false,
        }
    }

    /// The tool's mode for the resulting file: see `tests/tools/steps.py`.
    fn mode(self) -> &'static str {
        match self.library {
            Library::Apart => "parts",
            Library::NetCdf => "whole",
            Library::Hdf5 | Library::Fortran | Library::H5py => "marks",
        }
    }

    /// The program, without its first two arguments. `None`, with the reason, where it is missing.
    fn program(self, ending: Ending) -> Option<(PathBuf, Vec<String>)> {
        let how = if self.is_parallel { "ranks" } else { "alone" };
        let mut arguments = vec![how.to_owned()];
        let hdf5 = Hdf5::find()?;
        let (library, manner) = match self.library {
            Library::Fortran => {
                let program = hdf5.fortran("steps", &["steps/notes.c", "steps/notes.h"])?;
                return Some((program, arguments));
            }
            Library::NetCdf => ("netcdf", "together"),
            Library::Apart => ("hdf5", "apart"),
            Library::Hdf5 | Library::H5py => ("hdf5", "together"),
        };
        let (ending, step) = ending.unwrap_or(("never", 0));
        arguments.insert(0, library.to_owned());
        arguments.extend([manner, ending].map(str::to_owned));
        arguments.push(step.to_string());
        let libraries = ["-lnetcdf", "-lhdf5_hl", "-lhdf5"];
        Some((hdf5.compiled_from("steps", &libraries), arguments))
    }

    fn command(self, places: &Places, ending: Ending) -> Option<Command> {
        let files = [places.log(), places.notes.path().to_owned()];
        if self.library == Library::H5py {
            let mut command = Python::new()?.tool("steps.py");
            command.arg("write").args(files);
            command.args(ending.map(|(_, step)| step.to_string()));
            return Some(command);
        }
        let (program, arguments) = self.program(ending)?;
        let mut command = if self.is_parallel {
            Mpi::of_build().run(RANKS, &program)
        } else {
            Command::new(program)
        };
        command.args(files).args(arguments);
        Some(command)
    }
}

/// Where programs run, and what reads their files.
pub struct Stage {
    /// A mount of the directory of all logs, if mounting is possible.
    mounted: Option<Mounted>,
    dir: PathBuf,
    connector: Connector,
    _driver: Driver,
    reader: Python,
}

impl Stage {
    /// A stage for logs below this directory. `None`, with the reason, where nothing can read them.
    pub fn at(dir: &Path) -> Option<Self> {
        let driver = Driver::new();
        let reader = driver.python()?;
        Some(Stage {
            mounted: can_mount(User::Caller).then(|| Mounted::new(dir, "")),
            dir: dir.to_owned(),
            connector: Connector::new(),
            _driver: driver,
            reader,
        })
    }

    /// Starts a program with these options of the connector, and a flush every `every` seconds.
    pub fn start(&self, way: Way, ending: Ending, every: f64, options: &str) -> Option<Running> {
        let places = Places {
            logs: tempfile::tempdir_in(&self.dir).unwrap(),
            notes: tempfile::tempdir().unwrap(),
        };
        let mut command = way.command(&places, ending)?;
        let vol = format!("h5logfs flush_every={every}s{options}");
        command.envs(self.connector.used_as(&vol));
        let job = Job::launch(command);
        let mut victim = Victim { job, places };
        assert!(victim.wait_for("ready"), "{}", victim.job.said());
        let ranks = if way.is_parallel {
            victim.ranks()
        } else {
            vec![Rank::new(victim.job.pid())]
        };
        Some(Running {
            way,
            every,
            victim,
            ranks,
        })
    }

    /// The content of files, in these modes.
    fn show(&self, files: &[(&str, PathBuf)]) -> Vec<Shown> {
        let mut tool = self.reader.tool("steps.py");
        tool.arg("show");
        for (mode, path) in files {
            tool.arg(mode).arg(path);
        }
        let output = tool.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.lines().map(Shown::of).collect()
    }
}

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    /// Rows of the dataset, if it exists.
    rows: Option<u64>,
    /// Number of steps of each rank.
    ranks: Vec<usize>,
}

impl Shown {
    fn of(line: &str) -> Self {
        let found: Value = serde_json::from_str(line).unwrap();
        let ranks = found["ranks"].as_array().unwrap().iter();
        Shown {
            rows: found["rows"].as_u64(),
            ranks: ranks
                .map(|steps| steps.as_u64().unwrap() as usize)
                .collect(),
        }
    }

    /// Number of steps that all ranks have.
    fn steps(&self) -> usize {
        self.ranks.iter().copied().min().unwrap_or(0)
    }

    fn of_rank(&self, rank: usize) -> usize {
        self.ranks.get(rank).copied().unwrap_or(0)
    }
}

/// A running program.
pub struct Running {
    way: Way,
    every: f64,
    pub victim: Victim,
    pub ranks: Vec<Rank>,
}

/// The present time on the clock of programs.
pub fn now() -> f64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    since.as_secs_f64()
}

impl Running {
    /// Number of steps that all ranks have written.
    pub fn steps(&self) -> usize {
        self.notes().done()
    }

    fn notes(&self) -> Notes {
        let dir = self.victim.places.notes.path();
        let ranks = (0..self.ranks.len()).map(|rank| Notes::of_rank(dir, rank));
        Notes {
            ranks: ranks.collect(),
            stride: if self.way.library == Library::Apart {
                50
            } else {
                1
            },
        }
    }

    /// Time at which all ranks had noted their last step.
    pub fn last_step(&self) -> f64 {
        let notes = self.notes();
        let last = notes.ranks.iter().filter_map(|steps| steps.last());
        last.map(|step| step.written).fold(f64::INFINITY, f64::min)
    }

    /// Kills all processes at once. Returns the time.
    pub fn kill(&mut self, first: u64) -> f64 {
        let killed = now();
        self.victim.kill(&mut self.ranks, first);
        killed
    }

    /// Judges the content after the end of a program that was active until `end`: it must be right, equal in all ways
    /// of reading, and not lose more than it may.
    pub fn judge(&self, stage: &Stage, end: f64, about: &str) -> Left {
        let (places, mode) = (&self.victim.places, self.way.mode());
        let log = places.log();
        let recovered = Copied::of(places.logs.path(), &[]);
        let taken = Copied::of(places.logs.path(), &["--unflushed"]);
        let mut files = vec![
            (mode, log.clone()),
            (mode, recovered.log()),
            ("parts", taken.log()),
        ];
        if let Some(mounted) = &stage.mounted {
            let place = log.strip_prefix(&stage.dir).unwrap();
            files.push((mode, mounted.join(place)));
        }
        let mut shown = stage.show(&files);
        let unflushed = shown.remove(2);
        let whole = shown[0].clone();
        assert!(
            shown.iter().all(|same| *same == whole),
            "{about}: {shown:?}"
        );
        let notes = self.notes().until(end);
        let left = Left {
            whole: whole.steps(),
            written: notes.done(),
            age: notes.age_of_lost(&whole, end),
            age_unflushed: notes.age_of_lost(&unflushed, end),
        };
        let about = format!("{about}: {left:?}");
        if whole.rows.is_some() {
            for copied in [&recovered, &taken] {
                assert!(copied.is_good, "{about}: {}", copied.said);
            }
            self.check_told(places, &about);
        }
        let sure = notes.flushed(self.every, end);
        assert!(
            whole.steps() >= sure,
            "{about}, and not {sure} steps: {notes:?}"
        );
        // Unflushed data belongs to a dataset of some flush.
        let with_unflushed = self.ranks.iter().enumerate();
        for (rank, _) in with_unflushed.filter(|_| whole.rows.is_some()) {
            let (there, sure) = (unflushed.of_rank(rank), notes.spilled(rank, self.every));
            assert!(
                there >= sure,
                "{about}: with what no flush covers {there} steps of rank {rank}, and not {sure}: {notes:?}"
            );
        }
        left
    }

    /// Checks the commands' output for an unclosed log.
    fn check_told(&self, places: &Places, about: &str) {
        let (good, said) = places.h5logfs("check");
        assert!(good, "{about}: {said}");
        let mut inspect = Command::new(PROGRAM);
        let output = inspect.args(["inspect", "--json"]).arg(places.log());
        let found: Value = serde_json::from_slice(&output.output().unwrap().stdout).unwrap();
        // netCDF flushes once.
        let is_unasked = self.way.library != Library::NetCdf && !found["unclosed"].is_null();
        if is_unasked {
            assert_eq!(found["unclosed"]["asked"], 0, "{about}: {found}");
            let words = "an automatic one: its program has requested none";
            assert!(
                found["warnings"].to_string().contains(words),
                "{about}: {found}"
            );
        }
    }
}

/// The remaining files, recovered.
struct Copied {
    dir: TempDir,
    is_good: bool,
    said: String,
}

impl Copied {
    fn of(logs: &Path, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut from = logs.as_os_str().to_owned();
        from.push("/.");
        succeed(Command::new("cp").arg("-a").arg(from).arg(dir.path()));
        let mut recover = Command::new(PROGRAM);
        let output = recover
            .arg("recover")
            .args(options)
            .arg(dir.path().join("log.h5"))
            .output()
            .unwrap();
        Copied {
            dir,
            is_good: output.status.success(),
            said: said(&output),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log.h5")
    }
}

/// A step of a rank.
#[derive(Debug, Clone, Copy)]
struct Step {
    begun: f64,
    written: f64,
}

/// The steps written by ranks.
#[derive(Debug)]
struct Notes {
    ranks: Vec<Vec<Step>>,
    /// Ranks make a common call every `stride` steps.
    stride: usize,
}

/// Tolerance between two clocks.
const CLOCKS: f64 = 0.005;

/// How much later than due a flush may be.
const SLACK: f64 = 0.5;

impl Notes {
    fn of_rank(dir: &Path, rank: usize) -> Vec<Step> {
        let lines = fs::read_to_string(dir.join(format!("steps.{rank}"))).unwrap_or_default();
        let steps = lines.lines().enumerate().map(|(number, line)| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[0], number.to_string());
            let [begun, written] = [1, 2].map(|place| words[place].parse().unwrap());
            Step { begun, written }
        });
        steps.collect()
    }

    /// Without steps written after this.
    fn until(mut self, end: f64) -> Self {
        for steps in &mut self.ranks {
            steps.retain(|step| step.written <= end);
        }
        self
    }

    /// Number of steps that all ranks have written.
    fn done(&self) -> usize {
        self.ranks.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Number of steps that a flush must have if the program was killed at `end`: those that were old enough. The
    /// first rank requests a flush in one common call, and it happens in the next one.
    fn flushed(&self, every: f64, end: f64) -> usize {
        let call = self.done().saturating_sub(1) / self.stride;
        let (Some(before), Some(first)) = (call.checked_sub(1), self.ranks.first()) else {
            return 0;
        };
        let told = first[before * self.stride].begun;
        let sure = (told - every).min(end - every - SLACK) - CLOCKS;
        let old = first.iter().take_while(|step| step.written <= sure);
        old.count()
    }

    /// Number of a rank's steps that must be on disk: those old enough at its last step.
    fn spilled(&self, rank: usize, every: f64) -> usize {
        let steps = &self.ranks[rank];
        let last = steps.last().map_or(0.0, |last| last.begun);
        let old = steps
            .iter()
            .take_while(|step| step.written <= last - every - CLOCKS);
        old.count()
    }

    /// Age of the oldest lost step.
    fn age_of_lost(&self, shown: &Shown, end: f64) -> f64 {
        let ranks = self.ranks.iter().enumerate();
        let lost = ranks.filter_map(|(rank, steps)| steps.get(shown.of_rank(rank)));
        lost.map(|step| end - step.written).fold(0.0, f64::max)
    }
}

/// What remains of a program's steps.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    /// Number of steps of all ranks that are shown.
    pub whole: usize,
    /// Number of steps written.
    pub written: usize,
    /// Age of the oldest lost step in seconds; 0 if none is lost.
    pub age: f64,
    /// Age of the oldest lost step when unflushed data is included.
    pub age_unflushed: f64,
}

/// Kills a program at random times: once in a normal run, 200 times in a whole one.
pub fn kill_at_random(stage: &Stage, way: Way) {
    const EVERY: f64 = 1.0;
    let kills = told("H5LOGFS_TEST_CASES").unwrap_or(either(1, 200));
    let first = first_seed();
    let (mut oldest, mut oldest_unflushed) = (0.0_f64, 0.0_f64);
    for seed in first..first + kills {
        let mut numbers = Numbers(seed);
        // Some before the first flush.
        let delay = match numbers.below(4) {
            0 => numbers.below(1_500),
            _ => numbers.within(1_500, 4_000),
        };
        let options = if numbers.one_in(3) {
            // Less than a rank writes between two flushes.
            ";buffer_limit=64K"
        } else {
            ""
        };
        let Some(mut running) = stage.start(way, None, EVERY, options) else {
            return;
        };
        thread::sleep(Duration::from_millis(delay));
        let killed = running.kill(numbers.below(u64::from(RANKS)) % running.ranks.len() as u64);
        let about = format!("seed {seed}, {way:?}{options}, killed after {delay} ms");
        let left = running.judge(stage, killed, &about);
        eprintln!("{about}: {left:?}");
        oldest = oldest.max(left.age);
        oldest_unflushed = oldest_unflushed.max(left.age_unflushed);
    }
    eprintln!(
        "{way:?}: {kills} kills; the oldest step that was lost was {oldest:.2} s old, and where what no flush covers was taken in \
         {oldest_unflushed:.2} s"
    );
}
