//! Files that claim more than they have: extents, chunks, counts, lengths of any size. Whoever reads one, in whatever way, has an
//! answer or an error soon, and in bounded memory: nothing counts what a file merely claims.
//!
//! Each file is read through a mount, by the file driver and by the VOL connector, and by each command. The bound is one of
//! processor time, so that it is the same on a busy machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::amount::{either, first_seed, told};
use crate::common::connector::Connector;
use crate::common::damaged::Log;
use crate::common::driver::Driver;
use crate::common::encoder::filter::Filter;
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, said};
use crate::common::unclosed;
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// Seconds of processor time of one process.
const SECONDS: u64 = 10;
/// What a process may have, in KiB: twice the options below, the libraries, and the stacks of its threads.
const MEMORY: u64 = 3 << 20;
const OPTIONS: [&str; 4] = ["--cache-size", "64M", "--index-memory", "64M"];
/// A machine may be so busy that it takes so long by the clock.
const PATIENCE: Duration = Duration::from_secs(100);
/// The most bytes that a command writes for a file of some KB: what is not sparse of a canonical file.
const MOST_WRITTEN: u64 = 300 << 20;

/// 2^46 more than an ordinary side, as one turned bit makes it.
const HUGE: u64 = (1 << 46) + 6;

// --- files ---------------------------------------------------------------------------------------

/// Logs that are sound, but for what they claim.
fn made() -> Vec<Log> {
    let u8s = |name: &str, id, dims: &[u64]| Dataset::new(name, id, Type::U8, dims);
    let small = Entry::one(0, &[0, 0, 2, 0], &[1, 1, 1, 10], (0..10).collect());
    let log = |name: &str, datasets: Vec<Dataset>, entries: Vec<Entry>| {
        let dir = tempfile::tempdir().unwrap();
        LogFile::with(datasets, entries).write(&dir.path().join("log.h5"));
        Log::of_dir(name, dir.path(), "log.h5")
    };
    let sides = [4, 3, HUGE, 10];
    let flat = |id| u8s(&format!("d{id}"), id, &[HUGE]);
    let claiming = |count: u64| Entry::one(0, &[0, 0, 0, 0], &[1, 1, count, 10], Vec::new());
    vec![
        log("extent", vec![u8s("d", 0, &sides)], vec![small.clone()]),
        log(
            "chunks of one element",
            vec![u8s("d", 0, &sides).chunked(&[1, 1, 1, 1])],
            vec![small.clone()],
        ),
        log(
            "filters",
            vec![u8s("d", 0, &sides).filtered(&[Filter::deflate(1)])],
            vec![small.clone()],
        ),
        log(
            "many datasets",
            (0..300).map(flat).collect(),
            vec![Entry::one(7, &[HUGE - 2], &[2], vec![1, 2])],
        ),
        log(
            "an entry of more than the log has",
            vec![u8s("d", 0, &sides)],
            vec![small.clone(), claiming(HUGE / 2).claiming(2048, 1 << 40)],
        ),
        log(
            "a stream of more than it can hold",
            vec![u8s("d", 0, &sides).chunked(&[1, 1, 1, 10])],
            vec![claiming(HUGE / 2).claiming(2048, 100), small],
        ),
        of_a_job("a job", "[4,3,70368744177670,10]", None),
        of_a_job(
            "a job with chunks",
            "[4,3,70368744177670,10]",
            Some("[1,1,1,1]"),
        ),
    ]
}

/// A log that was not closed.
fn of_a_job(name: &str, dims: &str, chunk: Option<&str>) -> Log {
    let dir = tempfile::tempdir().unwrap();
    let chunk = chunk.map_or(String::new(), |chunk| format!(r#","chunk":{chunk}"#));
    let definition = format!(
        r#"{{"path":"/d","layout":{{"datatype":{{"integer":{{"size":1,"signed":false}}}},"dims":{dims},"max_dims":{dims}{chunk}}}}}"#
    );
    let mut log = unclosed::Log::of_datasets(&dir.path().join("log.h5"), &[definition]);
    let block = unclosed::Block {
        dataset: 0,
        start: vec![1, 1, HUGE - 1, 0],
        count: vec![1, 1, 1, 10],
        values: (0..10).collect(),
    };
    log.extent_of(0, &[block]);
    log.commit();
    Log::of_dir(name, dir.path(), "log.h5")
}

/// A log in which a few numbers are larger: they may be extents, chunk shapes, counts, ranks, lengths, sizes, offsets.
fn larger(log: &Log, random: &mut Numbers) -> Log {
    let mut log = log.clone();
    let changes = random.within(1, 3);
    for _ in 0..changes {
        let file = random.index(log.files.len());
        let bytes = &mut log.files[file].1;
        let places: Vec<(usize, usize, bool)> = numbers(bytes).collect();
        if places.is_empty() {
            continue;
        }
        let (at, len, is_big) = random.pick(&places);
        let mut number = [0; 8];
        let place = &mut bytes[at..at + len];
        if is_big {
            place.reverse();
        }
        number[..len].copy_from_slice(place);
        let old = u64::from_le_bytes(number);
        let new = match random.below(10) {
            0 => old | 1 << 46,
            1 => old | 1 << 31,
            2 => old << random.within(1, 60),
            3 => i64::MAX as u64,
            4 => u64::from(u32::MAX),
            5 => old + 1,
            6 => old.saturating_mul(1000),
            7 => 1 << random.within(8, 62),
            8 => i32::MAX as u64,
            _ => old | 1 << random.below(63),
        };
        place.copy_from_slice(&new.to_le_bytes()[..len]);
        if is_big {
            place.reverse();
        }
    }
    log
}

/// Where numbers may be: place, bytes, and whether they are big-endian. Those of data are few among them, since most are not
/// followed by zeros.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = (usize, usize, bool)> {
    let is_number = |part: &[u8], len: usize| {
        let (low, high) = part[..len].split_at(2);
        let little = low != [0; 2] && high.iter().all(|byte| *byte == 0);
        let (high, low) = part[..len].split_at(len - 2);
        let big = low != [0; 2] && high.iter().all(|byte| *byte == 0);
        match (little, big) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        }
    };
    let windows = bytes.windows(8).enumerate();
    windows.flat_map(move |(at, part)| {
        let found = [8, 4].map(|len| is_number(part, len).map(|big| (at, len, big)));
        found.into_iter().flatten()
    })
}

// --- ways ----------------------------------------------------------------------------------------

/// A program that is told files.
struct Reader {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reader {
    fn new(python: &Python) -> Self {
        let mut child = python
            .tool("whole.py")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let questions = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Reader {
            child,
            questions,
            answers,
        }
    }

    /// Processor time so far: of itself, and of its children that have ended.
    fn cpu(&self) -> Duration {
        cpu(self.child.id())
    }

    /// What it says of a file, and what that took.
    fn read(&mut self, file: &Path) -> Result<(String, Duration), String> {
        let before = self.cpu();
        writeln!(self.questions, "{}", file.display()).map_err(|e| e.to_string())?;
        let answer = self.answers.recv_timeout(PATIENCE);
        let answer = answer.map_err(|e| format!("no answer: {e}"))?;
        Ok((answer, self.cpu().saturating_sub(before)))
    }
}

/// What a process and its ended children have used of processors.
fn cpu(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    // utime, stime, cutime and cstime, in ticks of 10 ms.
    let ticks = fields.split(' ').skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Runs a command of the program within the bounds.
fn run(arguments: &[&str], file: &Path, out: Option<&Path>) -> Result<String, String> {
    let limits = format!("ulimit -t {SECONDS}; ulimit -v {MEMORY}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limits, "sh", PROGRAM]).args(arguments);
    command.arg(file).args(out);
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let child = command.spawn().unwrap();
    let number = rustix::process::Pid::from_child(&child);
    let (tell, ended) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(number, rustix::process::Signal::KILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(tell);
    watch.join().unwrap();
    match output.status.code() {
        Some(0 | 1) => Ok(said(&output)),
        _ => Err(format!(
            "{arguments:?}: {} after {:?}: {}",
            output.status,
            begin.elapsed(),
            said(&output).chars().take(300).collect::<String>()
        )),
    }
}

/// Those that read, with the options before the file.
const READING: [&[&str]; 7] = [
    &["inspect"],
    &["inspect", "--json"],
    &["inspect", "--tree"],
    &["check"],
    &["settle", "--dry-run"],
    &["compact", "--skip-damaged", "--verify", "--force"],
    &["export", "--force"],
];
/// Those that change the file.
const CHANGING: [&[&str]; 3] = [&["recover"], &["settle"], &["settle", "--undo"]];

struct Everybody {
    source: tempfile::TempDir,
    /// Where each way finds what is in the source.
    readers: Vec<(&'static str, Option<Mounted>, Python, Option<Reader>)>,
    wrong: Vec<String>,
    longest: Duration,
}

impl Everybody {
    fn new(drivers: (&Driver, &Connector), old: &Python, new: &Python) -> Self {
        let source = tempfile::tempdir().unwrap();
        let options = "cache_size=64M,index_memory=64M,index_dir=none,netcdf=hdf5";
        let with = |mut variables: Vec<(&'static str, std::ffi::OsString)>| {
            variables.push(("HDF5_DRIVER_CONFIG", options.into()));
            new.with_variables(variables)
        };
        let (driver, connector) = drivers;
        let mut readers = vec![
            ("driver", None, with(driver.used()), None),
            ("connector", None, with(connector.used()), None),
        ];
        if can_mount(User::Caller) {
            let mounted = Mounted::new(source.path(), options);
            readers.push(("mount", Some(mounted), old.clone(), None));
        }
        Everybody {
            source,
            readers,
            wrong: Vec::new(),
            longest: Duration::ZERO,
        }
    }

    /// All read a log. Returns what the programs of HDF5 say of it.
    fn read(&mut self, log: &Log, number: usize) -> Vec<(&'static str, String)> {
        let dir = self.source.path().join(format!("log{number}"));
        log.lay_out(&dir);
        let name = format!("log{number}/{}", log.files[0].0);
        let file = self.source.path().join(&name);
        let mut answers = Vec::new();
        for (way, mounted, python, reader) in &mut self.readers {
            let path = match mounted {
                Some(mounted) => mounted.join(&name),
                None => file.clone(),
            };
            let daemon = mounted.as_ref().map(|m| m.daemon.as_raw_pid() as u32);
            let before = daemon.map(cpu).unwrap_or_default();
            let answer = reader
                .get_or_insert_with(|| Reader::new(python))
                .read(&path);
            let served = daemon.map(cpu).unwrap_or_default().saturating_sub(before);
            match answer {
                Ok((answer, took)) => {
                    let took = took + served;
                    self.longest = self.longest.max(took);
                    if took > Duration::from_secs(SECONDS) {
                        self.wrong.push(format!("{}: {way}: {took:?}", log.name));
                    }
                    answers.push((*way, answer));
                }
                Err(reason) => {
                    *reader = None;
                    // libhdf5 itself may die of the file that it is shown.
                    if way != &"mount" || daemon.is_none_or(|d| cpu(d) == Duration::ZERO) {
                        self.wrong.push(format!("{}: {way}: {reason}", log.name));
                    }
                }
            }
        }
        answers.extend(self.command_all(log, &file));
        fs::remove_dir_all(&dir).unwrap();
        answers
    }

    fn command_all(&mut self, log: &Log, file: &Path) -> Vec<(&'static str, String)> {
        let out = file.with_file_name("out.h5");
        let mut answers = Vec::new();
        let mut check = |name: &'static str, ran: Result<String, String>| match ran {
            Ok(said) => answers.push((name, said)),
            Err(reason) => self.wrong.push(format!("{}: {reason}", log.name)),
        };
        for arguments in READING {
            let mut all = arguments.to_vec();
            all.extend(OPTIONS);
            let makes = ["compact", "export"].contains(&arguments[0]);
            check(
                arguments[0],
                run(&all, file, makes.then_some(out.as_path())),
            );
            if let Ok(made) = out.metadata() {
                let written = made.blocks() * 512;
                if written > MOST_WRITTEN {
                    check(arguments[0], Err(format!("{written} bytes were written")));
                }
            }
        }
        let page = file.with_file_name("page.html");
        let mut report = vec!["report", "--force", "-o", page.to_str().unwrap()];
        report.extend(OPTIONS);
        check("report", run(&report, file, None));
        check("ls", run(&["ls"], file.parent().unwrap(), None));
        for arguments in CHANGING {
            check(arguments[0], run(arguments, file, None));
        }
        answers
    }

    fn finish(&self) {
        eprintln!("{:?} of processor time at most", self.longest);
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

/// What `whole.py` has counted.
fn counted(answer: &str) -> Vec<u64> {
    let words = answer.split([' ', ',']);
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn what_a_log_claims_is_not_counted() {
    let (Some(old), Some(new)) = (Python::old(), Python::new()) else {
        return;
    };
    let (driver, connector) = (Driver::new(), Connector::serial());
    let mut everybody = Everybody::new((&driver, &connector), &old, &new);
    for (number, log) in made().iter().enumerate() {
        let answers = everybody.read(log, number);
        eprintln!("{}: {answers:?}", log.name);
        if log.name == "extent" {
            // The chunk that was written, and no other.
            let counts = answers
                .iter()
                .filter(|(way, _)| ["driver", "connector"].contains(way));
            for (way, answer) in counts {
                assert_eq!(counted(answer), [2, 0, 1], "{way}: {answer}");
            }
        }
    }
    everybody.finish();
}

#[test]
fn damage_that_claims_more_is_an_answer_or_an_error_soon() {
    let (Some(old), Some(new)) = (Python::old(), Python::new()) else {
        return;
    };
    let (driver, connector) = (Driver::new(), Connector::serial());
    let mut everybody = Everybody::new((&driver, &connector), &old, &new);
    let logs = Log::every();
    let number = told("H5LOGFS_TEST_CASES").unwrap_or(either(8, 2000));
    let first = first_seed();
    for case in 0..number {
        let mut random = Numbers(first.wrapping_mul(1 << 20).wrapping_add(case));
        let log = &logs[random.index(logs.len())];
        let mut damaged = larger(log, &mut random);
        damaged.name = format!("{} (case {case})", log.name);
        everybody.read(&damaged, case as usize);
    }
    everybody.finish();
}
