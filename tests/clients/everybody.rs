//! A log read in all ways: through a mount, by the file driver, by the VOL connector, by the Python package, and by
//! each command. Each gives an answer or an error soon, in bounded memory.
//!
//! The time limit is in processor time, which a busy machine does not change. A process that waits for ever is killed
//! after [`PATIENCE`].

use std::fs;
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::answering::{Answering, most_memory};
use crate::common::connector::Connector;
use crate::common::damaged::Log;
use crate::common::driver::Driver;
use crate::common::ended::end_of;
use crate::common::package::Package;
use crate::common::readers::Python;
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// Limit of the processor time for one log, of a process and those that it waits for.
pub const MOST_TIME: Duration = Duration::from_secs(10);
/// Limit of the elapsed time, which may be long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// Each process's limits for chunks and for indexes, in MiB.
const LIMIT: u64 = 64;
/// Limit of a daemon's or command's memory, in KiB: both limits, memory without accounting, chunks made ahead (each
/// at most as large as a limit), and the program itself.
const MOST_MEMORY: u64 = (5 * LIMIT + 64) << 10;
/// Additional memory of a Python program.
const PYTHON_MEMORY: u64 = 256 << 10;
/// Address space of a command, in KiB: memory, libraries, and thread stacks.
const MOST_ADDRESSES: u64 = 3 << 20;
/// The most bytes that a command writes for a file of some KB: the non-sparse part of a canonical file.
const MOST_WRITTEN: u64 = 300 << 20;

/// Answers of HDF5 programs about a log, by way.
pub type Answers = Vec<(&'static str, String)>;

/// A program's answer about a file.
fn ask(reader: &mut Answering, file: &Path) -> Result<String, String> {
    reader.ask(&file.display().to_string(), PATIENCE)
}

/// Processor time of a process and its ended children.
fn cpu(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    // utime, stime, cutime and cstime, in ticks of 10 ms.
    let ticks = fields.split(' ').skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// A way in which an HDF5 program opens logs.
struct Way {
    name: &'static str,
    /// A mount, if there is one.
    mounted: Option<Mounted>,
    python: Python,
    /// Options with which the package opens the files.
    package: Option<String>,
    reader: Option<Answering>,
}

/// Results for one log.
struct Outcome {
    answer: Result<String, String>,
    took: Duration,
    /// Memory of the process with the views, in KiB.
    memory: u64,
    /// Whether the daemon, if any, still runs.
    is_served: bool,
}

impl Way {
    fn read(&mut self, source: &Path, name: &str) -> Outcome {
        let path = match &self.mounted {
            Some(mounted) => mounted.join(name),
            None => source.join(name),
        };
        let daemon = self.mounted.as_ref().map(|m| m.daemon.as_raw_pid() as u32);
        let reader = self.reader.get_or_insert_with(|| {
            let mut command = self.python.tool("whole.py");
            command.args(&self.package);
            Answering::new(command)
        });
        let reads = reader.process();
        let used = || cpu(reads) + daemon.map(cpu).unwrap_or_default();
        let before = used();
        let answer = ask(reader, &path);
        let has_views = daemon.unwrap_or(reads);
        Outcome {
            took: used().saturating_sub(before),
            memory: most_memory(has_views).unwrap_or(0),
            is_served: daemon.is_none_or(|daemon| most_memory(daemon).is_some()),
            answer,
        }
    }

    fn most_memory(&self) -> u64 {
        match &self.mounted {
            Some(_) => MOST_MEMORY,
            None => MOST_MEMORY + PYTHON_MEMORY,
        }
    }
}

/// Runs a command of the program. Fails where it exceeds the limits.
fn run(arguments: &[&str], file: &Path, out: Option<&Path>) -> Result<(String, Used), String> {
    let limits = format!("ulimit -v {MOST_ADDRESSES}; exec \"$@\"");
    let mut said = tempfile::tempfile().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &limits, "sh", PROGRAM]).args(arguments);
    command.arg(file).args(out).stdin(Stdio::null());
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.stdout(said.try_clone().unwrap());
    command.stderr(said.try_clone().unwrap());
    let begin = Instant::now();
    let ended = end_of(command.spawn().unwrap(), PATIENCE);
    said.rewind().unwrap();
    let mut text = Vec::new();
    said.take(1 << 20).read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let used = Used {
        cpu: ended.cpu,
        memory: ended.memory,
    };
    let is_over = matches!(ended.status.code(), Some(0 | 1 | 4));
    if is_over && used.cpu <= MOST_TIME && used.memory <= MOST_MEMORY {
        return Ok((text, used));
    }
    Err(format!(
        "{arguments:?}: {} after {:?}, {used:?}: {}",
        ended.status,
        begin.elapsed(),
        text.chars().take(300).collect::<String>()
    ))
}

/// Resources used by a command.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    cpu: Duration,
    /// Peak memory in KiB.
    memory: u64,
}

/// Reading commands, without the file.
const READING: [&[&str]; 8] = [
    &["inspect"],
    &["inspect", "--json"],
    &["inspect", "--tree"],
    &["check"],
    &["settle", "--dry-run"],
    &["compact", "--skip-damaged", "--verify", "--force"],
    &["export", "--force"],
    &["report", "--force"],
];
/// Commands that change the file.
const CHANGING: [&[&str]; 3] = [&["recover"], &["settle"], &["settle", "--undo"]];

pub struct Everybody {
    source: tempfile::TempDir,
    ways: Vec<Way>,
    /// Reads without h5logfs.
    native: Python,
    pub found: Found,
}

/// Results for all logs.
#[derive(Default)]
pub struct Found {
    wrong: Vec<String>,
    /// Logs on which libhdf5 dies even without h5logfs.
    native: Vec<String>,
    longest: Duration,
    /// Peak memory by program, in KiB.
    memory: Vec<(&'static str, u64)>,
}

/// Plug-ins and packages that programs load.
pub struct Loaded {
    driver: Driver,
    connector: Connector,
    package: Package,
    old: Python,
    new: Python,
}

impl Loaded {
    /// The programs. `None` without h5py, after printing what is missing.
    pub fn new() -> Option<Self> {
        let (old, new) = (Python::old()?, Python::new()?);
        Some(Loaded {
            driver: Driver::new(),
            connector: Connector::serial(),
            package: Package::new(),
            old,
            new,
        })
    }
}

impl Everybody {
    pub fn new(loaded: &Loaded) -> Self {
        let source = tempfile::tempdir().unwrap();
        let options =
            format!("cache_size={LIMIT}M,index_memory={LIMIT}M,index_dir=none,netcdf=hdf5");
        let way = |name, python| Way {
            name,
            python,
            mounted: None,
            package: None,
            reader: None,
        };
        let with = |mut variables: Vec<(&'static str, std::ffi::OsString)>| {
            variables.push(("HDF5_DRIVER_CONFIG", options.as_str().into()));
            loaded.new.with_variables(variables)
        };
        let package = Way {
            package: Some(options.clone()),
            ..way("package", loaded.package.used_by(&loaded.new))
        };
        let mut ways = vec![
            way("driver", with(loaded.driver.used())),
            way("connector", with(loaded.connector.used())),
            package,
        ];
        if can_mount(User::Caller) {
            let mounted = Some(Mounted::new(source.path(), &options));
            ways.push(Way {
                mounted,
                ..way("mount", loaded.old.clone())
            });
        }
        Everybody {
            source,
            ways,
            native: loaded.new.clone(),
            found: Found::default(),
        }
    }

    /// Reads a log in all ways. Returns the answers.
    pub fn read(&mut self, log: &Log, number: usize) -> Answers {
        let dir = self.source.path().join(format!("log{number}"));
        log.lay_out(&dir);
        let name = format!("log{number}/{}", log.path());
        let mut answers = Vec::new();
        for number in 0..self.ways.len() {
            answers.extend(self.read_by(number, log, &name));
        }
        answers.extend(self.command_all(log, &self.source.path().join(&name)));
        fs::remove_dir_all(&dir).unwrap();
        answers
    }

    fn read_by(&mut self, number: usize, log: &Log, name: &str) -> Option<(&'static str, String)> {
        let way = &mut self.ways[number];
        let outcome = way.read(self.source.path(), name);
        let Outcome { took, memory, .. } = outcome;
        let within = took <= MOST_TIME && memory <= way.most_memory();
        self.found.longest = self.found.longest.max(took);
        self.found.had(way.name, memory);
        let what = format!("{}: {}", log.name, way.name);
        if let (Ok(answer), true) = (&outcome.answer, within) {
            return Some((way.name, answer.clone()));
        }
        way.reader = None;
        let what = format!("{what}: {took:?}, {memory} KiB, {:?}", outcome.answer);
        let ours = way.mounted.is_some() && (memory > MOST_MEMORY || !outcome.is_served);
        if !ours && self.is_native(name) {
            self.found.native.push(what);
        } else {
            self.found.wrong.push(what);
        }
        None
    }

    /// Whether libhdf5 alone crashes or hangs on the file.
    fn is_native(&self, name: &str) -> bool {
        let mut reader = Answering::new(self.native.tool("whole.py"));
        let answer = ask(&mut reader, &self.source.path().join(name));
        answer.is_err() || cpu(reader.process()) > MOST_TIME
    }

    fn command_all(&mut self, log: &Log, file: &Path) -> Answers {
        let limits = [format!("{LIMIT}M"), format!("{LIMIT}M")];
        let options = ["--cache-size", &limits[0], "--index-memory", &limits[1]];
        let out = file.with_file_name("out.h5");
        let page = file.with_file_name("page.html");
        let mut answers = Vec::new();
        for arguments in READING {
            let makes = ["compact", "export"].contains(&arguments[0]);
            let reports = ["-o", page.to_str().unwrap()];
            let reports = &reports[..if arguments[0] == "report" { 2 } else { 0 }];
            let all = [arguments, &options, reports].concat();
            let ran = run(&all, file, makes.then_some(out.as_path()));
            answers.extend(self.found.take(log, arguments[0], ran));
            let written = out.metadata().map_or(0, |made| made.blocks() * 512);
            if written > MOST_WRITTEN {
                let what = format!("{}: {arguments:?}: {written} bytes written", log.name);
                self.found.wrong.push(what);
            }
        }
        let ls = run(&["ls"], file.parent().unwrap(), None);
        answers.extend(self.found.take(log, "ls", ls));
        for arguments in CHANGING {
            let ran = run(arguments, file, None);
            answers.extend(self.found.take(log, arguments[0], ran));
        }
        answers
    }
}

impl Found {
    fn had(&mut self, name: &'static str, memory: u64) {
        match self.memory.iter_mut().find(|(known, _)| *known == name) {
            Some((_, most)) => *most = memory.max(*most),
            None => self.memory.push((name, memory)),
        }
    }

    /// Takes a command's answer.
    fn take(
        &mut self,
        log: &Log,
        name: &'static str,
        ran: Result<(String, Used), String>,
    ) -> Option<(&'static str, String)> {
        match ran {
            Ok((said, used)) => {
                self.longest = self.longest.max(used.cpu);
                self.had(name, used.memory);
                Some((name, said))
            }
            Err(reason) => {
                self.wrong.push(format!("{}: {reason}", log.name));
                None
            }
        }
    }

    /// Merges the results of another reader.
    pub fn with(mut self, other: Found) -> Self {
        self.wrong.extend(other.wrong);
        self.native.extend(other.native);
        self.longest = self.longest.max(other.longest);
        for (name, memory) in other.memory {
            self.had(name, memory);
        }
        self
    }

    /// Fails the test with all errors.
    pub fn check(&self) {
        eprintln!("{:?} of processor time at most", self.longest);
        for (name, memory) in &self.memory {
            eprintln!("{name}: {} MiB at most", memory >> 10);
        }
        for what in &self.native {
            eprintln!("of libhdf5 itself: {what}");
        }
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}
