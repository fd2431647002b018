//! A soak test: programs of all kinds read a mount while its files appear, change and disappear.
//!
//! Each read must return the content of some state of its file, or fail for an expected reason; memory and
//! descriptors must not grow. It takes two minutes, or `H5LOGFS_SOAK_SECONDS`.

#[path = "../common/mod.rs"]
mod common;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use h5logfs_common::error::Error;
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::amount::told;
use crate::common::burst::log::{Channel, Generation, Job, Memory, Request};
use crate::common::burst::{Classic, Type as ClassicType, Variable};
use crate::common::encoder::{Dataset, Entry, Filter, Log, LogFile, Type, subfile_dir};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, said};
use crate::common::settled::{settle, unsettle};
use crate::common::{Mounted, User, can_mount, wait_until};

const MIB: u64 = 1 << 20;
/// Small, so that something is always evicted.
const CACHE_SIZE: u64 = 16 * MIB;
const INDEX_MEMORY: u64 = 16 * MIB;
/// The daemon's memory besides the limits: threads with a chunk each, the tree of names, the allocator's share, code.
const BESIDES: u64 = 128 * MIB;
/// Limit of the memory growth from a quarter of the time to the end.
const GROWTH: u64 = 24 * MIB;

/// Limit of the memory growth from start to end after the daemon has dropped its caches: fragmented heaps, threads,
/// the tree of names.
const KEPT: u64 = 12 * MIB;

/// Limit of additional descriptors at the end; a leaked file takes at least one.
const SPARE: usize = 4;

const COLUMNS: u64 = 256;
const CLASSIC_COLUMNS: u64 = 64;

fn seconds() -> u64 {
    told("H5LOGFS_SOAK_SECONDS").unwrap_or(120)
}

/// Set after a failure: then all threads end.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

struct Alarm;

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            HAS_FAILED.store(true, Ordering::Relaxed);
        }
    }
}

fn is_over(end: Instant) -> bool {
    HAS_FAILED.load(Ordering::Relaxed) || Instant::now() >= end
}

// --- files and their states ----------------------------------------------------------------------

/// The way a file is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Chunks assembled from columns.
    Columns,
    /// Rows, which are served in place.
    Rows,
    /// Filtered chunks.
    Filtered,
    Subfiles,
    /// Rows, in a log that is settled and restored.
    Settled,
    /// netCDF with logs.
    Burst,
    /// A plain file.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Gone,
    Whole,
    /// The file was cut: nothing is certain about bytes past the cut.
    Cut,
}

/// A file that appears and disappears. Each element of its dataset holds the number of its state, and its place.
#[derive(Debug)]
struct Slot {
    kind: Kind,
    /// Path relative to the source.
    path: PathBuf,
    state: u64,
    condition: Condition,
}

impl Slot {
    /// The byte that fills a plain file.
    fn byte(&self) -> u8 {
        (self.state % 255) as u8 + 1
    }
}

fn slots() -> Vec<Slot> {
    let kinds = [
        Kind::Columns,
        Kind::Rows,
        Kind::Filtered,
        Kind::Subfiles,
        Kind::Settled,
        Kind::Burst,
        Kind::Plain,
    ];
    let dirs = ["", "deep", "deep/deeper"];
    let slots = dirs.iter().flat_map(|dir| {
        kinds.iter().map(move |kind| {
            let name = match kind {
                Kind::Burst => "burst.nc".to_owned(),
                Kind::Plain => "plain.txt".to_owned(),
                kind => format!("{kind:?}.h5").to_lowercase(),
            };
            Slot {
                kind: *kind,
                path: Path::new(dir).join(name),
                state: 0,
                condition: Condition::Gone,
            }
        })
    });
    slots.collect()
}

/// The rows `first..last` of a state.
fn values(state: u64, first: u64, last: u64, columns: std::ops::Range<u64>) -> Vec<u8> {
    let rows = (first..last).flat_map(|row| {
        let row = columns.clone().map(move |column| row * COLUMNS + column);
        row.flat_map(move |place| (state << 32 | place).to_le_bytes())
    });
    rows.collect()
}

fn log_file(kind: Kind, state: u64) -> LogFile {
    let rows = 256 + 64 * (state % 5);
    let filters = [Filter::shuffle(8), Filter::deflate(6)];
    let dataset = Dataset::new("data", 0, Type::U64, &[rows, COLUMNS]);
    let dataset = match kind {
        Kind::Filtered => dataset.chunked(&[32, COLUMNS]).filtered(&filters),
        _ => dataset,
    };
    let in_rows = |at: u64| {
        let bytes = values(state, at, at + 32, 0..COLUMNS);
        let stored = match kind {
            Kind::Filtered => crate::common::encoder::filter::apply(&filters, &bytes),
            _ => bytes,
        };
        Entry::one(0, &[at, 0], &[32, COLUMNS], stored)
    };
    let in_columns = |at: u64| {
        let bytes = values(state, 0, rows, at..at + 32);
        Entry::one(0, &[0, at], &[rows, 32], bytes)
    };
    let entries: Vec<Entry> = match kind {
        Kind::Columns => (0..COLUMNS / 32).map(|n| in_columns(32 * n)).collect(),
        _ => (0..rows / 32).map(|n| in_rows(32 * n)).collect(),
    };
    if kind != Kind::Subfiles {
        return LogFile::with(vec![dataset], entries);
    }
    let mut file = LogFile::new(vec![dataset]);
    file.subfiled = true;
    let half = entries.len() / 2;
    let halves = [&entries[..half], &entries[half..]];
    file.logs = halves
        .map(|entries| Log {
            tables: vec![vec![entries.to_vec()]],
        })
        .to_vec();
    file
}

/// A netCDF file with the whole state, which its log has, too.
fn burst(state: u64) -> Job {
    let rows = 8 + 8 * (state % 5);
    let mut classic = Classic {
        version: 2,
        dimensions: vec![("y".into(), rows), ("x".into(), CLASSIC_COLUMNS)],
        attributes: Vec::new(),
        variables: vec![Variable {
            name: "data".into(),
            dimensions: vec![0, 1],
            attributes: Vec::new(),
            kind: ClassicType::Int,
            begin: 0,
        }],
        records: Some(0),
    };
    classic.place(|| 0);
    let numbers = (0..rows * CLASSIC_COLUMNS).map(|place| (state << 12 | place) as i128);
    let mut base = classic.header(classic.records);
    base.resize(classic.variables[0].begin as usize, 0);
    base.extend(numbers.clone().flat_map(|n| ClassicType::Int.integer(n)));
    let entry = crate::common::burst::log::Entry {
        variable: 0,
        request: Request::Vara,
        pieces: vec![vec![(0, rows, 1), (0, CLASSIC_COLUMNS, 1)]],
        memory: Memory::Int,
        values: numbers
            .map(crate::common::burst::log::Value::Integer)
            .collect(),
    };
    let generation = Generation {
        number: 0,
        age: 1000,
        big_endian: false,
        nodes: vec![vec![Channel::new(0, vec![entry])]],
    };
    Job {
        classic,
        base,
        generations: vec![generation],
    }
}

/// The mounted directory, and one beside it in which files are made.
struct Churn {
    source: PathBuf,
    staging: PathBuf,
    numbers: Numbers,
    slots: Vec<Slot>,
    done: BTreeMap<&'static str, u64>,
}

impl Churn {
    fn step(&mut self) {
        let at = self.numbers.below(self.slots.len() as u64) as usize;
        let choice = self.numbers.below(20);
        let whole = self.slots[at].condition == Condition::Whole;
        let what = match choice {
            0..=1 => self.remove(at),
            2..=7 if whole && self.slots[at].kind == Kind::Settled => self.turn(at),
            2..=4 if whole => self.append(at),
            5..=7 if whole => self.cut(at),
            8..=9 if self.slots[at].condition != Condition::Gone => self.change_mode(at),
            10 => self.move_dir(),
            _ => self.replace(at),
        };
        *self.done.entry(what).or_default() += 1;
    }

    /// The further files of a slot.
    fn others(&self, at: usize) -> Vec<PathBuf> {
        let path = self.source.join(&self.slots[at].path);
        match self.slots[at].kind {
            Kind::Subfiles => vec![subfile_dir(&path)],
            Kind::Burst => ["0_0.meta", "0_0.data"]
                .map(|end| PathBuf::from(format!("{}_{end}", path.display())))
                .to_vec(),
            _ => Vec::new(),
        }
    }

    /// Makes another state. A file in several parts is removed first, so that states are not mixed.
    fn replace(&mut self, at: usize) -> &'static str {
        let others = self.others(at);
        if !others.is_empty() {
            self.remove(at);
        }
        let slot = &mut self.slots[at];
        slot.state += 1;
        slot.condition = Condition::Whole;
        let name = slot.path.file_name().unwrap().to_str().unwrap();
        let staged = self.staging.join(name);
        match slot.kind {
            Kind::Burst => {
                let path = format!("/data/{name}");
                burst(slot.state).write(&self.staging, name, &self.staging, &path);
            }
            Kind::Plain => fs::write(&staged, vec![slot.byte(); 100_000]).unwrap(),
            kind => log_file(kind, slot.state).write(&staged),
        }
        for other in others {
            let name = other.file_name().unwrap();
            fs::rename(self.staging.join(name), other).unwrap();
        }
        fs::rename(staged, self.source.join(&self.slots[at].path)).unwrap();
        "replaced"
    }

    fn remove(&mut self, at: usize) -> &'static str {
        let slot = &mut self.slots[at];
        slot.condition = Condition::Gone;
        // The file may already be gone.
        let _ = fs::remove_file(self.source.join(&slot.path));
        for other in self.others(at) {
            let _ = fs::remove_dir_all(&other).or_else(|_| fs::remove_file(&other));
        }
        "removed"
    }

    /// Turns the log into an ordinary file, or back, in place. A program that another thread starts has our descriptors
    /// until it runs, and with them the lock of the file.
    fn turn(&mut self, at: usize) -> &'static str {
        let path = self.source.join(&self.slots[at].path);
        let is_locked = |error: &Error| error.to_string().contains("as its lock shows");
        let mut turned = "";
        wait_until("no started program has the lock", || {
            turned = match unsettle(&path) {
                Ok(()) => "made logs again",
                Err(error) if is_locked(&error) => return false,
                Err(_) => match settle(&path) {
                    Ok(_) => "settled",
                    Err(error) if is_locked(&error) => return false,
                    Err(error) => panic!("{error}"),
                },
            };
            true
        });
        turned
    }

    /// Appends useless bytes; to a plain file, more of its byte.
    fn append(&mut self, at: usize) -> &'static str {
        let slot = &self.slots[at];
        let path = self.source.join(&slot.path);
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(&[slot.byte(); 1000]).unwrap();
        "appended to"
    }

    /// Cuts one of its files at a random place.
    fn cut(&mut self, at: usize) -> &'static str {
        self.slots[at].condition = Condition::Cut;
        let path = self.source.join(&self.slots[at].path);
        let mut files = vec![path];
        for other in self.others(at) {
            match fs::read_dir(&other) {
                Ok(inside) => files.extend(inside.map(|file| file.unwrap().path())),
                Err(_) => files.push(other),
            }
        }
        let path = self.numbers.pick(&files.iter().collect::<Vec<_>>());
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(self.numbers.below(len)).unwrap();
        "cut"
    }

    fn change_mode(&mut self, at: usize) -> &'static str {
        let mode = self.numbers.pick(&[0o600, 0o640, 0o444]);
        let path = self.source.join(&self.slots[at].path);
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        "changed in mode"
    }

    /// Moves a directory away, and back after a moment.
    fn move_dir(&mut self) -> &'static str {
        let (here, there) = (self.source.join("deep"), self.source.join("moved"));
        fs::rename(&here, &there).unwrap();
        thread::sleep(Duration::from_millis(30));
        fs::rename(&there, &here).unwrap();
        "folders moved"
    }
}

// --- readers -------------------------------------------------------------------------------------

/// Expected errors of a read: the file changed, is gone, or is damaged.
const EXPECTED: [Errno; 3] = [Errno::NOENT, Errno::STALE, Errno::IO];

/// Reads until the time is over; failures are counted by reason.
fn reads_of_pieces(files: &[PathBuf], seed: u64, end: Instant) -> BTreeMap<String, u64> {
    let mut numbers = Numbers(seed);
    let mut outcomes = BTreeMap::new();
    while !is_over(end) {
        let path = &files[numbers.below(files.len() as u64) as usize];
        let outcome = match read_pieces(path, &mut numbers) {
            Ok(()) => "right".to_owned(),
            Err(e) => {
                let errno = Errno::from_io_error(&e);
                let expected = errno.is_some_and(|errno| EXPECTED.contains(&errno));
                assert!(expected, "{}: {e}", path.display());
                e.kind().to_string()
            }
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    outcomes
}

/// Reads random pieces of a file that stays open. A repeated read must return the same: whatever happens to the name,
/// an open file keeps its content.
fn read_pieces(path: &Path, numbers: &mut Numbers) -> std::io::Result<()> {
    let file = File::open(path)?;
    let size = file.metadata()?.len().max(1);
    let mut seen: HashMap<(u64, usize), Vec<u8>> = HashMap::new();
    let mut places = Vec::new();
    for _ in 0..30 {
        let again = !places.is_empty() && numbers.one_in(3);
        let (offset, len) = if again {
            numbers.pick(&places)
        } else {
            (numbers.below(size), 1 + numbers.below(100_000) as usize)
        };
        if numbers.one_in(10) {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        let mut bytes = vec![0; len];
        let there = file.read_at(&mut bytes, offset)?;
        bytes.truncate(there);
        if path.ends_with("plain.txt") {
            check_plain(path, &bytes);
        }
        let before = seen.entry((offset, len)).or_insert_with(|| bytes.clone());
        let common = before.len().min(bytes.len());
        assert!(
            before[..common] == bytes[..common],
            "{} has changed",
            path.display()
        );
        places.push((offset, len));
    }
    Ok(())
}

/// A plain file has the same byte everywhere. A page read while the file is cut has zeros after the rest, as from any
/// network file system.
fn check_plain(path: &Path, bytes: &[u8]) {
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let mut there = bytes[..bytes.len() - zeros].to_vec();
    there.dedup();
    assert!(there.len() <= 1, "{} has bytes {there:?}", path.display());
}

/// Programs that read whole files, and list everything.
fn other_programs(mounted: &Path, files: &[PathBuf], seed: u64, end: Instant) -> u64 {
    let mut numbers = Numbers(seed);
    let mut runs = 0;
    while !is_over(end) {
        let path = &files[numbers.below(files.len() as u64) as usize];
        let (program, option, path, action) = match numbers.below(3) {
            0 => ("ls", Some("-lR"), mounted, None),
            1 => ("find", None, mounted, Some("-ls")),
            _ => ("cat", None, path.as_path(), None),
        };
        let mut command = User::Caller.command(program);
        command.args(option).arg(path).args(action);
        let output = command.env("LC_ALL", "C").stdout(Stdio::null()).output();
        let output = output.unwrap();
        for line in said(&output).lines() {
            let reasons = EXPECTED.map(|errno| std::io::Error::from(errno).to_string());
            let expected = reasons.iter().any(|reason| {
                let reason = reason.split(" (os").next().unwrap();
                line.ends_with(reason)
            });
            assert!(expected, "{program}: {line}");
        }
        runs += 1;
    }
    runs
}

/// A reading program that does not outlive the test.
struct Reader {
    name: &'static str,
    process: Option<Child>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn python_readers(files: &[PathBuf]) -> Vec<Reader> {
    let logs = files.iter().filter(|file| !file.ends_with("plain.txt"));
    let logs: Vec<&PathBuf> = logs.collect();
    let pythons = Python::all();
    let readers = pythons.iter().chain(pythons.last()).zip(1..);
    readers
        .map(|(python, seed)| {
            let mut command = python.tool("soak.py");
            command
                .arg(seconds().to_string())
                .arg(seed.to_string())
                .args(&logs);
            let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Reader {
                name: python.name,
                process: Some(piped.spawn().unwrap()),
            }
        })
        .collect()
}

/// libhdf5's messages about files that were cut and are no log any more, and about failed reads.
const EXPECTED_OF_LIBHDF5: [&str; 9] = [
    "ENOENT",
    "ESTALE",
    "EIO",
    "file signature not found",
    "truncated file",
    "unable to",
    // The name is gone. libhdf5 2 does not report errno there.
    "can't retrieve stat info for file",
    // An ordinary file is cut while it is opened. libhdf5 reads zeros past the end.
    "ring type mismatch",
    "message type not found",
];

/// The readers' own counts. Fails where one of them has read something wrong, or failed for another reason.
fn finish(mut reader: Reader) -> u64 {
    let name = reader.name;
    let output = reader.process.take().unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {}", said(&output));
    let counts: Value = serde_json::from_slice(&output.stdout).unwrap();
    eprintln!("{name}: {counts}");
    for reason in counts["failed"].as_object().unwrap().keys() {
        let expected = EXPECTED_OF_LIBHDF5
            .iter()
            .any(|words| reason.contains(words));
        assert!(expected, "{name}: {reason}");
    }
    counts["right"].as_u64().unwrap()
}

// --- the daemon ----------------------------------------------------------------------------------

#[derive(Debug, Clone, Copy)]
struct Sample {
    memory: u64,
    descriptors: usize,
}

fn sample(mounted: &Mounted) -> Sample {
    let process = Path::new("/proc").join(mounted.daemon.as_raw_pid().to_string());
    let status = fs::read_to_string(process.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    Sample {
        memory: kilobytes << 10,
        descriptors: fs::read_dir(process.join("fd")).unwrap().count(),
    }
}

/// The daemon's resources without clients and caches: the least of several samples, because other programs of this
/// machine may come by.
fn idle(mounted: &Mounted) -> Sample {
    wait_until("all files are closed", || {
        number(&stats(mounted), "/opens/handles") == 0
    });
    let looks = (0..5).map(|_| {
        mounted.send(Signal::HUP);
        thread::sleep(Duration::from_millis(500));
        sample(mounted)
    });
    let least = |a: Sample, b: Sample| Sample {
        memory: a.memory.min(b.memory),
        descriptors: a.descriptors.min(b.descriptors),
    };
    looks.reduce(least).unwrap()
}

fn stats(mounted: &Mounted) -> Value {
    serde_json::from_slice(&fs::read(mounted.join(".h5logfs/stats")).unwrap()).unwrap()
}

fn number(stats: &Value, pointer: &str) -> u64 {
    stats.pointer(pointer).and_then(Value::as_u64).unwrap()
}

/// Samples the daemon twice a second, and signals it now and then.
fn watch(mounted: &Mounted, end: Instant) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !is_over(end) {
        thread::sleep(Duration::from_millis(500));
        samples.push(sample(mounted));
        let now = stats(mounted);
        assert!(number(&now, "/memory/cache_size/used") <= CACHE_SIZE);
        assert!(number(&now, "/memory/index_memory/used") <= INDEX_MEMORY);
        match samples.len() % 60 {
            20 => mounted.send(Signal::USR1),
            40 => mounted.send(Signal::HUP),
            _ => {}
        }
    }
    samples
}

fn most(samples: &[Sample]) -> u64 {
    samples.iter().map(|sample| sample.memory).max().unwrap()
}

fn check_memory(samples: &[Sample]) {
    let quarter = samples.len() / 4;
    let (early, late) = (&samples[quarter..2 * quarter], &samples[3 * quarter..]);
    let (early, late, all) = (most(early), most(late), most(samples));
    eprintln!(
        "memory: {} MiB in the second quarter, {} MiB in the last, {} MiB at most",
        early / MIB,
        late / MIB,
        all / MIB
    );
    assert!(all <= CACHE_SIZE + INDEX_MEMORY + BESIDES, "{all} bytes");
    assert!(late <= early + GROWTH, "from {early} to {late} bytes");
}

/// Complaints that the daemon may have: files that are gone, have changed, or were cut, in the words of each
/// detector.
const COMPLAINTS: [&str; 21] = [
    "changed since it was opened",
    "it was settled since it was opened",
    "it was settled when it was opened",
    "No such file",
    "suppressed",
    // HDF5 files.
    "the file ends before",
    "truncated file",
    "file signature not found",
    // netCDF files and their logs. Most of them move with their directory, and some are appended to.
    "its logs were written for",
    "changed after its logs were",
    "its logs are of no use without",
    "bytes are too few for the header of a metadata log",
    "are there and complete, and are shown",
    "entries are lost",
    "are not in the data log",
    "past the end of",
    "is not there",
    // A file that is cut or rewritten during its scan.
    "unable to get link info",
    // A log that was made an ordinary file between its look-up and its open.
    "not a log file: plain file",
    "Input/output error",
    // Another program's new mount namespace holds the mount, too.
    "files are still open",
];

fn check_log(log: &Path) {
    let text = fs::read_to_string(log).unwrap();
    let mut unexpected: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("ERROR") || line.contains("WARN"))
        .filter(|line| !COMPLAINTS.iter().any(|words| line.contains(words)))
        .collect();
    unexpected.sort_unstable();
    unexpected.dedup();
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

#[test]
#[ignore = "make test-all"]
fn soak() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, staging) = (dir.path().join("source"), dir.path().join("staging"));
    fs::create_dir_all(source.join("deep/deeper")).unwrap();
    fs::create_dir(&staging).unwrap();
    let slots = slots();
    let count = slots.len();
    let mut churn = Churn {
        source: source.clone(),
        staging,
        numbers: Numbers(1),
        slots,
        done: BTreeMap::new(),
    };
    for at in 0..count {
        churn.replace(at);
    }
    let log = dir.path().join("log");
    let options = format!(
        "cache_size={CACHE_SIZE},index_memory={INDEX_MEMORY},index_dir={},log_file={}",
        dir.path().join("kept").display(),
        log.display()
    );
    let mounted = Mounted::new(&source, &options);
    let files = churn.slots.iter().map(|slot| mounted.join(&slot.path));
    let files: Vec<PathBuf> = files.collect();
    // The first opens also open the files that the daemon keeps open.
    for file in &files {
        fs::read(file).unwrap();
    }
    let fresh = idle(&mounted);

    let end = Instant::now() + Duration::from_secs(seconds());
    let readers = python_readers(&files);
    let samples = Mutex::new(Vec::new());
    let done = thread::scope(|scope| {
        for seed in 1..3 {
            let files = &files;
            scope.spawn(move || {
                let _alarm = Alarm;
                let outcomes = reads_of_pieces(files, seed, end);
                eprintln!("pieces: {outcomes:?}");
                assert!(outcomes.get("right").is_some_and(|right| *right > 0));
            });
        }
        scope.spawn(|| {
            let _alarm = Alarm;
            let runs = other_programs(mounted.path(), &files, 3, end);
            eprintln!("other programs: {runs}");
        });
        scope.spawn(|| {
            let _alarm = Alarm;
            *samples.lock().unwrap() = watch(&mounted, end);
        });
        let churning = scope.spawn(move || {
            let _alarm = Alarm;
            while !is_over(end) {
                churn.step();
                thread::sleep(Duration::from_millis(20 + churn.numbers.below(100)));
            }
            churn.done
        });
        churning.join().unwrap()
    });
    eprintln!("files: {done:?}");
    for reader in readers {
        assert!(finish(reader) > 0, "a reader has read nothing");
    }
    let samples = samples.into_inner().unwrap();
    check_memory(&samples);
    let now = stats(&mounted);
    let most = samples.iter().map(|sample| sample.descriptors).max();
    let last = idle(&mounted);
    eprintln!("idle: {fresh:?} at the start, {last:?} at the end; {most:?} descriptors at most");
    let descriptors = fresh.descriptors + SPARE;
    assert!(last.descriptors <= descriptors, "{fresh:?}, {last:?}");
    assert!(last.memory <= fresh.memory + KEPT, "{fresh:?}, {last:?}");
    assert_eq!(number(&now, "/scans/worker_failures"), 0);
    mounted.send(Signal::TERM);
    mounted.expect_gone();
    check_log(&log);
}
