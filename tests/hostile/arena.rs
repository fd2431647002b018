//! A shared mount, an attacker and a victim.
//!
//! ```text
//! #[test]
//! fn the_attack() {
//!     let Some(arena) = Arena::new() else { return };      // says why the test is skipped
//!     make_files_in(&arena.source(ALICE));                 // as root
//!     arena.give(ALICE);                                   // they are the attacker's
//!     arena.attack("the attack", |attack| {                // in a thread that has ALICE's rights
//!         while !attack.is_over() {
//!             let _ = fs::read(arena.shown(ALICE).join("log.h5"));
//!         }
//!     });
//! }
//! ```
//!
//! While the attack runs, BOB reads uncached pages of a healthy log and opens new logs. [`Arena::attack`] prints a
//! table row (attack; reads: median, worst; opens of new logs: median, worst; refused; peak memory), and fails where
//! a limit is exceeded. An attack that ends by itself need not check the clock. Others last a second, in a whole run
//! three, or `H5LOGFS_ATTACK_SECONDS`. [`Attack::together`] starts many threads.
//!
//! | variable | meaning |
//! |---|---|
//! | `H5LOGFS_ATTACK_SECONDS` | duration of an attack that could go on for ever |
//! | `H5LOGFS_ATTACK_LATENCY_MS` | limit of the victim's reads and opens (2000: other programs may use this machine)
//! |
//! | `H5LOGFS_TEST_PROGRAM` | another build of h5logfs, which is attacked instead |
//!
//! Attacks of more than some seconds are `#[ignore]`d; `make attack` runs these, too. `H5LOGFS_TEST_PROGRAM=… make
//! attack` gives the figures of an older build.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tempfile::TempDir;

use crate::common::amount::{either, is_whole, told};
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::numbers::Numbers;
use crate::common::people::{ALICE, BOB, Person, open_source, ready};
use crate::common::{Mounted, is_running};

const MIB: u64 = 1 << 20;
/// The default `cache_size` and `index_memory`, and the daemon's own needs.
pub const MEMORY: u64 = (256 + 256 + 192) * MIB;

/// The victim's healthy log, and a plain file.
const LOG: &str = "log.h5";
const PLAIN: &str = "plain";
/// The file from which the victim makes new logs.
const SMALL: &str = "small.h5";

/// The least number of the victim's steps, even if the attack ends at once.
const STEPS: usize = 20;

/// Attacks are measured one at a time, even if tests are threads of one process.
static ALONE: Mutex<()> = Mutex::new(());

/// A source of several users, mounted by root for all of them.
pub struct Arena {
    pub mounted: Mounted,
    source: TempDir,
    private: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Arena {
    /// An arena with default options; `None` where this is impossible.
    pub fn new() -> Option<Self> {
        Arena::with("")
    }

    /// An arena with further options.
    pub fn with(options: &str) -> Option<Self> {
        if !ready() {
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let source = open_source();
        let private = tempfile::tempdir().unwrap();
        let messages = private.path().join("log");
        let usual = format!("allow_other,index_dir=none,log_file={}", messages.display());
        let options = [usual.as_str(), options];
        let options = &options[..if options[1].is_empty() { 1 } else { 2 }];
        for person in [ALICE, BOB] {
            fs::create_dir(source.path().join(person.name)).unwrap();
        }
        let of_victim = source.path().join(BOB.name);
        healthy_log().write(&of_victim.join(LOG));
        small_log().write(&of_victim.join(SMALL));
        fs::write(of_victim.join(PLAIN), vec![7; MIB as usize]).unwrap();
        let arena = Arena {
            mounted: Mounted::new(source.path(), &options.join(",")),
            source,
            private,
            _alone: alone,
        };
        arena.give(ALICE);
        arena.give(BOB);
        let all = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: all,
            maximum: all,
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        Some(arena)
    }

    /// A person's directory in the source.
    pub fn source(&self, person: Person) -> PathBuf {
        self.source.path().join(person.name)
    }

    /// A person's directory in the mount.
    pub fn shown(&self, person: Person) -> PathBuf {
        self.mounted.join(person.name)
    }

    /// Gives everything in the person's directory to this person; all may read it.
    pub fn give(&self, person: Person) {
        let dir = self.source(person);
        let owner = format!("{}:{}", person.uid, person.gid);
        for (program, argument) in [("chown", owner.as_str()), ("chmod", "u=rwX,go=rX")] {
            let mut command = Command::new(program);
            command.args(["-R", argument]).arg(&dir);
            assert!(command.status().unwrap().success());
        }
    }

    /// The daemon's messages.
    pub fn messages(&self) -> String {
        fs::read_to_string(self.private.path().join("log")).unwrap()
    }

    /// ALICE attacks while BOB reads. Fails where BOB is refused something, or the daemon takes too much memory. In a
    /// whole run, in which each attack has the machine for itself, a slow read or open of BOB's fails, too.
    pub fn attack<T: Send>(&self, name: &str, work: impl FnOnce(&Attack) -> T + Send) -> T {
        let (outcome, report) = self.watched(name, work);
        report.check(is_whole());
        outcome
    }

    /// An attack on the time of others. The test has the machine for itself: see `.config/nextest.toml`.
    pub fn attack_on_time<T: Send>(&self, name: &str, work: impl FnOnce(&Attack) -> T + Send) -> T {
        let (outcome, report) = self.watched(name, work);
        report.check(true);
        outcome
    }

    fn watched<T: Send>(&self, name: &str, work: impl FnOnce(&Attack) -> T + Send) -> (T, Report) {
        let victim = Victim::of(self);
        // The first reader's one-time work does not belong to the attack.
        for step in [Victim::read, Victim::open_new] {
            BOB.act(|| step(&victim, 0)).unwrap();
        }
        let daemon = Daemon::watch(self.mounted.daemon);
        let stop = AtomicBool::new(false);
        let (outcome, reads, opens) = thread::scope(|scope| {
            // The others stop even if the attack fails the test.
            let _stop = Stop(&stop);
            let reads = scope.spawn(|| BOB.act(|| victim.repeat(Victim::read, &stop)));
            let opens = scope.spawn(|| BOB.act(|| victim.repeat(Victim::open_new, &stop)));
            let outcome = ALICE.act(|| work(&Attack::new()));
            stop.store(true, Ordering::Relaxed);
            (outcome, reads.join().unwrap(), opens.join().unwrap())
        });
        let report = Report {
            name: name.to_owned(),
            reads,
            opens,
            peak: daemon.peak(),
        };
        println!("{}", report.row());
        (outcome, report)
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A log with chunks of 1 MiB, each assembled from 16 columns.
fn healthy_log() -> LogFile {
    let (rows, columns, width) = (2048, 1024, 64);
    let dataset = Dataset::new("data", 0, Type::U64, &[rows, columns]).chunked(&[128, columns]);
    let entries = (0..columns / width).map(|number| {
        let data = vec![number as u8; (rows * width * 8) as usize];
        Entry::one(0, &[0, number * width], &[rows, width], data)
    });
    LogFile::with(vec![dataset], entries.collect())
}

fn small_log() -> LogFile {
    let dataset = Dataset::new("data", 0, Type::I32, &[16]);
    let entry = Entry::one(0, &[0], &[16], vec![1; 64]);
    LogFile::with(vec![dataset], vec![entry])
}

/// A running attack.
pub struct Attack {
    end: Instant,
}

impl Attack {
    fn new() -> Self {
        let seconds = told("H5LOGFS_ATTACK_SECONDS").unwrap_or(either(1, 3));
        Attack {
            end: Instant::now() + Duration::from_secs(seconds),
        }
    }

    /// Whether an endless attack has lasted long enough.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Does `work` in `count` threads at once, with the attacker's rights.
    pub fn together(&self, count: usize, work: impl Fn(usize) + Sync) {
        let work = &work;
        thread::scope(|scope| {
            for number in 0..count {
                scope.spawn(move || work(number));
            }
        });
    }
}

/// BOB, who only wants to read.
struct Victim {
    source: PathBuf,
    shown: PathBuf,
}

impl Victim {
    fn of(arena: &Arena) -> Self {
        Victim {
            source: arena.source(BOB),
            shown: arena.shown(BOB),
        }
    }

    /// Opens the log, and reads 128 KiB that are not in the kernel's cache.
    fn read(&self, step: u64) -> io::Result<()> {
        let file = File::open(self.shown.join(LOG))?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        let mut buf = vec![0; 128 << 10];
        let places = file.metadata()?.len() - buf.len() as u64;
        file.read_exact_at(&mut buf, Numbers(step).below(places))?;
        let mut plain = [0; 1];
        File::open(self.shown.join(PLAIN))?.read_exact_at(&mut plain, 0)
    }

    /// Makes a log unknown to the daemon, reads it through the mount, and lists the directory.
    fn open_new(&self, step: u64) -> io::Result<()> {
        let name = format!("new-{step}.h5");
        fs::copy(self.source.join(SMALL), self.source.join(&name))?;
        let read = fs::read(self.shown.join(&name));
        fs::remove_file(self.source.join(&name))?;
        read?;
        fs::read_dir(&self.shown)?.try_for_each(|entry| entry.map(drop))
    }

    /// Repeats `act` until the attack is over.
    fn repeat(&self, act: fn(&Self, u64) -> io::Result<()>, stop: &AtomicBool) -> Experience {
        let mut experience = Experience::default();
        for step in 1.. {
            let start = Instant::now();
            let outcome = act(self, step);
            experience.times.push(start.elapsed());
            experience
                .failures
                .extend(outcome.err().map(|e| e.to_string()));
            if stop.load(Ordering::Relaxed) && experience.times.len() >= STEPS {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        experience.times.sort_unstable();
        experience
    }
}

/// The victim's experience; times are sorted.
#[derive(Debug, Default)]
struct Experience {
    times: Vec<Duration>,
    failures: Vec<String>,
}

impl Experience {
    fn median(&self) -> Duration {
        self.times[self.times.len() / 2]
    }

    fn worst(&self) -> Duration {
        self.times[self.times.len() - 1]
    }

    fn cells(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!("{:.1} ms | {:.1} ms", ms(self.median()), ms(self.worst()))
    }
}

/// Results of an attack.
#[derive(Debug)]
struct Report {
    name: String,
    reads: Experience,
    opens: Experience,
    peak: u64,
}

impl Report {
    /// Attack; reads: median, worst; opens of new logs: median, worst; refused; peak memory.
    fn row(&self) -> String {
        let (reads, opens) = (self.reads.cells(), self.opens.cells());
        let refused = self.reads.failures.len() + self.opens.failures.len();
        let peak = self.peak / MIB;
        format!(
            "| {} | {reads} | {opens} | {refused} | {peak} MiB |",
            self.name
        )
    }

    fn check(&self, in_time: bool) {
        let name = &self.name;
        for (what, seen) in [("read", &self.reads), ("open", &self.opens)] {
            if let Some(first) = seen.failures.first() {
                let times = seen.failures.len();
                panic!("{name}: the victim could not {what} {times} times, first: {first}");
            }
        }
        assert!(self.peak <= MEMORY, "{name}: {} MiB", self.peak / MIB);
        let limit = told("H5LOGFS_ATTACK_LATENCY_MS").unwrap_or(2000);
        for (what, seen) in [("a read", &self.reads), ("an open", &self.opens)] {
            let worst = seen.worst();
            assert!(
                !in_time || worst <= Duration::from_millis(limit),
                "{name}: {what} took {worst:?}"
            );
        }
    }
}

/// Monitors the daemon's memory. To protect the machine, a daemon with four times its limit is killed.
struct Daemon {
    stop: std::sync::Arc<AtomicBool>,
    watching: JoinHandle<u64>,
}

impl Daemon {
    fn watch(daemon: Pid) -> Self {
        let process = Path::new("/proc").join(daemon.as_raw_pid().to_string());
        // Resets the peak to the present resident size.
        fs::write(process.join("clear_refs"), "5").unwrap();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let watching = thread::spawn(move || {
            let mut peak = 0;
            while is_running(daemon) {
                // A process that has just ended has no memory.
                peak = peak_memory(&process).unwrap_or(peak);
                if peak > 4 * MEMORY {
                    let _ = kill_process(daemon, Signal::KILL);
                }
                if told.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
            peak
        });
        Daemon { stop, watching }
    }

    /// Peak resident memory.
    fn peak(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.watching.join().unwrap()
    }
}

fn peak_memory(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes << 10)
}
