//! Programs read through the daemon of a mount, and with the file driver, what a job on other nodes writes meanwhile: ranks
//! that are threads, or a job of `mpirun` on two nodes, each with its own mount of the file system.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::*;
use crate::common::driver::Driver;
use crate::common::jobs::kill::{PER_NODE, Pattern};
use crate::common::killed::{Places, RANKS};
use crate::common::nodes::{self, Nodes};
use crate::common::readers::Python;

/// A process that runs `tests/tools/late.py`.
struct Reader {
    way: String,
    process: Child,
    said: PathBuf,
}

impl Reader {
    fn start(way: &str, python: &Python, kind: &str, log: &Path, notes: &Path, ranks: u32) -> Self {
        let way = format!("{} {way}", python.name);
        let said = notes.join(format!("said by {way}"));
        let output = File::create(&said).unwrap();
        let mut command = python.tool("late.py");
        command.arg(kind).args([log, notes]).arg(ranks.to_string());
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Reader {
            process: command.spawn().unwrap(),
            way,
            said,
        }
    }

    fn lines(&self) -> Vec<String> {
        let said = fs::read_to_string(&self.said).unwrap();
        // The last one may be in the making.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Waits for the end. What it has seen, if that is in order.
    fn wait(&mut self, last: u64) -> Seen {
        let status = self.process.wait().unwrap();
        let (lines, mut seen) = (self.lines(), Seen::default());
        assert!(status.success(), "{}: {}", self.way, lines.join("\n"));
        for line in &lines {
            seen.reads += 1;
            let numbers = line.strip_prefix("flush ").and_then(|rest| {
                let (flush, before) = rest.split_once(" of ")?;
                Some((flush.parse::<u64>().ok()?, before.parse::<u64>().ok()?))
            });
            match numbers {
                Some((flush, before)) => {
                    assert!(flush >= seen.last, "{}: {}", self.way, lines.join("\n"));
                    seen.behind += u64::from(flush < before);
                    seen.last = flush;
                }
                None if line.starts_with("error: ") => {
                    seen.refused += 1;
                    eprintln!("{}: {line}", self.way);
                }
                None => panic!("{}: {}", self.way, lines.join("\n")),
            }
        }
        assert_eq!(seen.last, last, "{}: {}", self.way, lines.join("\n"));
        seen
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Readers of one log: with a mount of the directory, and with the file driver.
struct Readers {
    all: Vec<Reader>,
    notes: PathBuf,
    _mounted: Mounted,
    _driver: Driver,
}

impl Readers {
    fn start(dir: &Path, notes: &Path, kind: &str, ranks: u32) -> Self {
        let mounted = Mounted::new(dir, "");
        let driver = Driver::new();
        let by_mount = |python: Python| {
            let log = mounted.join("log.h5");
            Reader::start("by a mount", &python, kind, &log, notes, ranks)
        };
        let by_driver = |python: Python| {
            let log = dir.join("log.h5");
            Reader::start("by the driver", &python, kind, &log, notes, ranks)
        };
        let through = Python::all().into_iter().map(by_mount);
        Readers {
            all: through.chain(driver.python().map(by_driver)).collect(),
            notes: notes.to_owned(),
            _mounted: mounted,
            _driver: driver,
        }
    }

    /// Waits until each has looked so many times more, and has begun the last of these looks by now.
    fn wait_for(&self, looks: usize) {
        let before: Vec<usize> = self.all.iter().map(|r| r.lines().len()).collect();
        wait_until("the readers have looked", || {
            let mut all = self.all.iter().zip(&before);
            all.all(|(reader, before)| reader.lines().len() >= before + looks)
        });
    }

    /// Ends them when they show this flush.
    fn end(mut self, last: u64) -> Seen {
        let new = self.notes.join("new");
        fs::write(&new, last.to_string()).unwrap();
        fs::rename(new, self.notes.join("stop")).unwrap();
        let mut sum = Seen::default();
        for reader in &mut self.all {
            let seen = reader.wait(last);
            eprintln!("{}: {seen:?}", reader.way);
            sum.add_all(&seen);
        }
        sum
    }
}

/// With NFS's promises a flush may be seen as soon as it is on the disk.
fn check_late(mode: Mode, seen: &Seen) {
    let is_late = seen.behind > 0 || mode == Mode::CloseToOpen;
    assert!(is_late, "the file system shows everything at once");
}

/// Ranks are threads of this process.
fn threads_write(mode: Mode, seed: u64, flushes: u64) {
    if !can_mount(User::Caller) {
        return;
    }
    let place = Place::new(3, mode, seed);
    let notes = tempfile::tempdir().unwrap();
    let mut job = Job::create(&place.paths(2), &options(seed));
    job.flush(Course::default());
    place.settle();
    let readers = Readers::start(place.reader(), notes.path(), "rows", 2);
    readers.wait_for(1);
    for step in 1..flushes {
        job.flush(course(seed + step));
        let acknowledged = (1..=job.flushes).map(|flush| format!("{flush}\n"));
        fs::write(
            notes.path().join("acknowledged"),
            acknowledged.collect::<String>(),
        )
        .unwrap();
        readers.wait_for(1);
        // What the readers have open meanwhile is opened again.
        place.lose();
        readers.wait_for(1);
    }
    place.settle();
    check_late(mode, &readers.end(job.flushes));
}

#[test]
fn programs_see_whole_flushes_where_an_open_shows_what_was_closed() {
    (1..=rounds(1).min(10)).for_each(|seed| threads_write(Mode::CloseToOpen, seed, 12));
}

#[test]
fn programs_see_whole_flushes_where_anything_may_be_late() {
    (1..=rounds(1).min(10)).for_each(|seed| threads_write(Mode::AnyTime, seed, 12));
}

/// Two nodes, each of which has its own mount of the file system at `dir`. The third one is this machine. `None`, having said
/// why, where there can be no nodes.
pub fn two_nodes(place: &Place, dir: &Path) -> Option<nodes::Place> {
    let mounts: Vec<&Path> = place.nodes.iter().map(Node::path).collect();
    let nodes = Nodes::with_mounts(2, &mounts)?;
    for (node, own) in mounts.iter().enumerate().take(2) {
        let mut bind = nodes.on(node, "mount");
        bind.arg("--bind").args([own, dir]);
        assert!(bind.status().unwrap().success());
    }
    Some(nodes::Place::Nodes(nodes))
}

/// Two ranks on each of two nodes. The readers are on this machine. The job closes the log, or is killed.
fn mpirun_writes(mode: Mode, seed: u64, subfiles: u32, looks: usize, closes: bool) {
    const FLUSHES: u64 = 1_000_000;
    if !can_mount(User::Caller) {
        return;
    }
    let place = Place::new(3, mode, seed);
    let places = Places::new();
    let Some(nodes) = two_nodes(&place, places.logs.path()) else {
        return;
    };
    let options = ["pause=100", "checksums"];
    let mut pattern = Pattern::start_in(places, &nodes, FLUSHES, subfiles, &options);
    let began = pattern.victim.wait_for("1");
    assert!(began, "{}", pattern.victim.job.said());
    place.settle();
    let notes = pattern.places().notes.path().to_owned();
    let readers = Readers::start(place.reader(), &notes, "pattern", RANKS);
    readers.wait_for(looks / 2);
    place.lose();
    readers.wait_for(looks - looks / 2);
    if closes {
        fs::write(notes.join("end"), "").unwrap();
        let closed = pattern.victim.wait_for("closed");
        assert!(closed, "{}", pattern.victim.job.said());
    }
    pattern.victim.job.kill();
    place.settle();
    let acknowledged = pattern.acknowledged();
    let mut last = acknowledged;
    if !closes {
        last = open(&place.path()).unwrap().snapshot().flushes;
        // It may have been about to return from one more.
        let is_right = last == acknowledged || last == acknowledged + 1;
        assert!(is_right, "{last} after {acknowledged}");
    }
    check_late(mode, &readers.end(last));
}

#[test]
fn a_job_on_two_nodes() {
    mpirun_writes(Mode::CloseToOpen, 1, PER_NODE, 12, true);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn jobs_on_two_nodes() {
    for seed in 0..rounds(4).min(12) {
        let subfiles = [0, 2, PER_NODE][seed as usize % 3];
        mpirun_writes(
            Mode::CloseToOpen,
            seed,
            subfiles,
            30,
            seed.is_multiple_of(2),
        );
        mpirun_writes(Mode::AnyTime, seed, subfiles, 30, false);
    }
}
