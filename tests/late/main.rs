//! Logs on file systems that show other nodes' writes late, and in another order. A job runs on some nodes, readers on
//! another one. A reader sees a whole flush or an older one, but never goes back to an older one. The ranks of most
//! jobs are threads (`rows`, `team`); `readers` also has jobs of `mpirun`, and reader programs.
//!
//! `H5LOGFS_TEST_CASES` is the number of random jobs.

#[path = "../common/mod.rs"]
mod common;

mod clocks;
mod closes;
mod model;
mod node;
mod readers;
mod stale;

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::amount::{cases, first_seed};
use common::element::{WIDTH, element};
use common::following::Seen;
use common::rows::{Course, Job};
use common::team::{Member, team};
use common::{Mounted, PROGRAM, User, can_mount, messages, tested_program, wait_until};
use h5logfs_catalog::Catalog;
use h5logfs_catalog::direct::{self, Opened};
use h5logfs_catalog::workers::{Limits, Workers};
use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::Result;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_output::nfs::check_nodes;
use h5logfs_output::{Fsync, Options, Ranks, Subfiles};
use h5logfs_scan::{InProcess, scan};
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use model::{Cluster, Mode};
use node::Node;

const NAME: &str = "log.h5";
/// Text of the error for data that is not there yet.
const NO_MATCH: &str = "do not match their checksum";

/// A file system of several nodes. Readers run on the last one.
struct Place {
    cluster: Arc<Mutex<Cluster>>,
    nodes: Vec<Node>,
}

impl Place {
    fn new(nodes: usize, mode: Mode, seed: u64) -> Self {
        let cluster = Arc::new(Mutex::new(Cluster::new(nodes, mode, seed)));
        let nodes = (1..=nodes).map(|number| Node::new(&cluster, number));
        Place {
            nodes: nodes.collect(),
            cluster,
        }
    }

    /// The log's path for each of `ranks` ranks. Each rank has a node of its own. No rank runs on the readers' node.
    fn paths(&self, ranks: usize) -> Vec<PathBuf> {
        let writers = &self.nodes[..self.nodes.len() - 1];
        let writers = writers.iter().cycle().take(ranks);
        writers.map(|node| node.path().join(NAME)).collect()
    }

    fn reader(&self) -> &Path {
        self.nodes[self.nodes.len() - 1].path()
    }

    fn path(&self) -> PathBuf {
        self.reader().join(NAME)
    }

    /// The node of readers must look up all files again, and its open files are invalid.
    fn lose(&self) {
        self.cluster.lock().unwrap().lose(self.nodes.len());
    }

    fn settle(&self) {
        self.cluster.lock().unwrap().settle();
    }
}

fn open(path: &Path) -> Result<Arc<View>> {
    open_with(path, &Settings::default())
}

fn open_with(path: &Path, settings: &Settings) -> Result<Arc<View>> {
    let (dir, name) = SourceDir::of_file(path)?;
    let snapshot = scan(ScanRequest::alone(&dir, &name, settings))?;
    let budget = Budget::new(MemoryLimits::each(64 << 20));
    View::open(&dir, snapshot, Arc::new(budget), None)
}

/// The flush that a reader sees; `None` where the elements do not all belong to one flush. Fails where something is
/// unreadable.
type Shown = Result<Option<u64>>;

fn shown(view: &View, ranks: usize) -> Shown {
    let snapshot = view.snapshot();
    let worst = snapshot.diagnostics.iter().map(|d| d.severity).max();
    assert!(worst <= Some(Severity::Note), "{:?}", snapshot.diagnostics);
    let rows = snapshot.datasets.iter().find(|d| d.name == "/rows");
    let flushes = match &snapshot.journal {
        Some(_) => snapshot.flushes,
        None => rows.map_or(0, |rows| rows.dims[0]),
    };
    if flushes == 0 {
        assert!(snapshot.datasets.is_empty());
        return Ok(Some(0));
    }
    let total = ranks as u64 * WIDTH;
    let mut is_whole = true;
    for (name, dims) in [("/rows", vec![flushes, total]), ("/now", vec![total])] {
        let mut datasets = snapshot.datasets.iter();
        let number = datasets.position(|dataset| dataset.name == name).unwrap();
        assert_eq!(snapshot.datasets[number].dims, dims);
        for chunk in 0..view.grid(number).len() {
            let flush = if name == "/rows" { chunk + 1 } else { flushes };
            let bytes = view.chunks().stored(ChunkId::new(number, chunk))?;
            let elements = bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b));
            is_whole &= is_row(flush, elements);
        }
    }
    Ok(is_whole.then_some(flushes))
}

fn is_row(flush: u64, row: impl Iterator<Item = f64>) -> bool {
    let mut columns = 0..;
    row.zip(&mut columns)
        .all(|(value, column)| value == element(flush, column))
}

impl Seen {
    /// Records a read after `flushes` flushes had returned.
    fn add(&mut self, found: Shown, flushes: u64) {
        self.reads += 1;
        match found {
            Ok(Some(flush)) => {
                assert!(flush >= self.last, "flush {flush} after {}", self.last);
                assert!(flush <= flushes);
                self.behind += u64::from(flush < flushes);
                self.last = flush;
            }
            Ok(None) => self.mixed += 1,
            Err(error) => {
                let said = error.to_string();
                if said.contains(NO_MATCH) {
                    self.late += 1;
                    return;
                }
                // The journal of an append has replaced the one before.
                let is_replaced = said.contains("a journal without a first line");
                let may_be = self.last == 0 || is_replaced || self.mixed > 0;
                assert!(may_be, "after flush {}: {said}", self.last);
                self.refused += 1;
            }
        }
    }
}

/// Options of job `number`.
fn options(number: u64) -> Options {
    Options {
        checksums: true,
        subfiles: match number % 3 {
            0 => Subfiles::None,
            1 => Subfiles::PerNode,
            _ => Subfiles::Number(2),
        },
        fsync: match number % 2 {
            0 => Fsync::Close,
            _ => Fsync::Flush,
        },
        ..Options::default()
    }
}

/// Settings of readers for job `number`: all data verified, the newest data only, or none.
fn settings(number: u64) -> Settings {
    let all = Settings::default();
    let compared = [all.compared, 20_000, 0][number as usize % 3];
    Settings { compared, ..all }
}

fn course(number: u64) -> Course {
    Course {
        spills: number.is_multiple_of(3),
        fails_first: number % 4 == 1,
    }
}

/// The numbers of random jobs. A job depends on remainders of its number, so they are consecutive.
fn rounds(whole: usize) -> Range<u64> {
    first_seed()..first_seed() + cases(whole) as u64
}

/// Readers repeatedly open the log, one with a catalog and one without, while a job writes it. The job dies once, and
/// another one continues.
fn run(number: u64, mode: Mode) -> Seen {
    let ranks = 1 + (number % 4) as usize;
    let place = Place::new(ranks + 1, mode, number);
    let options = options(number);
    let mut job = Job::create(&place.paths(ranks), &options);
    let dir = SourceDir::open(place.reader()).unwrap();
    let settings = settings(number);
    let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default());
    let catalog = catalog.with_settings(settings.clone());
    let in_catalog = || {
        catalog
            .open(Path::new(NAME))
            .and_then(|view| shown(&view, ranks))
    };
    let alone = || open_with(&place.path(), &settings).and_then(|view| shown(&view, ranks));
    let (mut fresh, mut kept) = (Seen::default(), Seen::default());
    for step in 0..12 {
        if step == 8 {
            job.die();
            if mode == Mode::AnyTime {
                // An append continues what its node sees.
                place.settle();
            }
            job = Job::append(&place.paths(ranks), &options);
        }
        job.flush(course(number + step));
        for _ in 0..4 {
            fresh.add(alone(), job.flushes);
            // A catalog remembers a failed open for ten seconds.
            if fresh.last > 0 && kept.refused == 0 {
                kept.add(in_catalog(), job.flushes);
            }
        }
    }
    place.settle();
    let last = Some(job.flushes);
    assert_eq!(alone().unwrap(), last);
    if kept.refused == 0 {
        wait_until("the catalog shows the last flush", || {
            in_catalog().unwrap() == last
        });
    }
    fresh.add_all(&kept);
    assert!(fresh.late == 0 || settings.compared < Settings::default().compared);
    fresh
}

fn whole_flushes(mode: Mode) {
    if !can_mount(User::Caller) {
        return;
    }
    let mut all = Seen::default();
    rounds(5).for_each(|number| all.add_all(&run(number, mode)));
    eprintln!("{mode:?}: {all:?}");
    assert_eq!(all.mixed, 0);
    assert!(all.behind > 0, "the file system shows everything at once");
}

#[test]
fn a_reader_sees_whole_flushes_where_an_open_shows_what_was_closed() {
    whole_flushes(Mode::CloseToOpen);
}

#[test]
fn a_reader_sees_whole_flushes_where_anything_may_be_late() {
    whole_flushes(Mode::AnyTime);
}

/// Data that is not verified when the log is opened is verified when it is read.
#[test]
fn data_that_are_late_are_an_error_until_they_come() {
    if !can_mount(User::Caller) {
        return;
    }
    let nothing = Settings {
        compared: 0,
        ..Settings::default()
    };
    let mut late = 0;
    for seed in 0..4 {
        let place = Place::new(2, Mode::AnyTime, seed);
        let mut job = Job::create(&place.paths(1), &options(0));
        (0..4).for_each(|step| job.flush(course(step)));
        let mut views = Vec::new();
        for _ in 0..6 {
            let Ok(view) = open_with(&place.path(), &nothing) else {
                continue;
            };
            match shown(&view, 1) {
                Ok(flush) => assert!(flush.is_some(), "seed {seed}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains(NO_MATCH), "{said}");
                    let names = [NAME, "rank 0", "in flush", "dataset /"];
                    assert!(names.iter().all(|name| said.contains(name)), "{said}");
                    late += 1;
                }
            }
            views.push(view);
        }
        place.settle();
        // Views opened earlier can read what they could not read before.
        for view in &views {
            let flush = shown(view, 1).unwrap();
            assert_eq!(flush, Some(view.snapshot().flushes));
        }
    }
    eprintln!("{late} reads came too early");
    assert!(late > 0);
}

/// Bytes that this thread has requested from the system.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    read.unwrap().parse().unwrap()
}

/// A scan verifies only the flushes that the previous scan has not seen.
#[test]
fn what_a_daemon_has_seen_is_not_compared_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let mut job = Job::create(&[path.clone(), path.clone()], &options(1));
    let held = || SourceDir::open(dir.path()).unwrap();
    let limits = MemoryLimits::each(64 << 20);
    let catalog = Catalog::new(held(), limits, InProcess::default());
    let workers = Workers::pooled(Limits {
        program: PROGRAM.into(),
        ..Limits::default()
    });
    let by_workers = Catalog::new(held(), limits, workers.unwrap());
    let opened = |catalog: &Catalog| {
        let before = bytes_read();
        let view = catalog.open(Path::new(NAME)).unwrap();
        (bytes_read() - before, view)
    };
    let has_known = |view: &View| view.snapshot().sealed.as_ref().unwrap().goes_on;
    let data = |flushes: u64| flushes * 2 * 2 * WIDTH * 8;
    (0..40).for_each(|_| job.flush(Course::default()));
    let (first, view) = opened(&catalog);
    assert!(first > data(40) && !has_known(&view), "{first}");
    drop(opened(&by_workers));
    for flush in 41..44 {
        job.flush(Course::default());
        let (next, view) = opened(&catalog);
        assert_eq!(view.snapshot().flushes, flush);
        // The rest is the journal, the headers, the entries.
        assert!(next < first - data(35), "{next} of {first}");
        assert!(has_known(&view) && has_known(&opened(&by_workers).1));
        assert_eq!(shown(&view, 2).unwrap(), Some(flush));
    }
    // This view verified nothing when it was read.
    let usual = opened(&catalog).1.log_bytes_read();
    // Data verified by a read, not by the open, is known, too.
    let lazy = Catalog::new(held(), limits, InProcess::default()).with_settings(Settings {
        compared: 0,
        ..Settings::default()
    });
    let read = || {
        let (_, view) = opened(&lazy);
        assert!(shown(&view, 2).unwrap().is_some());
        view.log_bytes_read()
    };
    let first = read();
    assert!(first > usual + data(40), "{first}, usually {usual}");
    job.flush(Course::default());
    let again = read();
    assert!(again < usual + data(5), "{again}, usually {usual}");
    // The catalog knows nothing of another journal's flushes.
    drop(job);
    let copy = dir.path().join("copy.h5");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let mut job = Job::append(&[path.clone(), path.clone()], &options(1));
    job.flush(Course::default());
    let (again, view) = opened(&catalog);
    assert!(!has_known(&view), "{again}");
    assert_eq!(shown(&view, 2).unwrap(), Some(45));
}

/// This shows that the tests' file system is bad enough.
#[test]
fn without_checksums_a_reader_may_see_what_was_never_written() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut mixed = 0;
    for seed in 0..4 {
        let place = Place::new(2, Mode::AnyTime, seed);
        let mut job = Job::create(&place.paths(1), &Options::default());
        for step in 0..6 {
            job.flush(course(step));
            for _ in 0..6 {
                let found = open(&place.path()).and_then(|view| {
                    // The tables are incomplete, and the elements unreadable.
                    if view.snapshot().has_unreadable {
                        return Ok(Some(0));
                    }
                    shown(&view, 1)
                });
                mixed += u32::from(matches!(found, Ok(None)));
            }
        }
    }
    eprintln!("{mixed} of 144 reads showed elements of no flush");
    assert!(mixed > 0);
}

#[test]
fn mounts_and_the_driver_show_whole_flushes() {
    if !can_mount(User::Caller) {
        return;
    }
    let place = Place::new(2, Mode::AnyTime, 7);
    let mut job = Job::create(&place.paths(1), &options(0));
    job.flush(Course::default());
    place.settle();
    let mounted = Mounted::new(place.reader(), "");
    let mut options = direct::Options::parse(OsStr::new("")).unwrap();
    options.scans.program = PROGRAM.into();
    let by_driver = || match direct::open(&place.path(), &options)? {
        Opened::Log(log) => shown(log.view(), 1),
        Opened::Plain => panic!("a plain file"),
    };
    let by_mount = || {
        let file = hdf5::File::open(mounted.join(NAME)).unwrap();
        let rows = file.dataset("rows").unwrap().read_raw::<f64>().unwrap();
        let now = file.dataset("now").unwrap().read_raw::<f64>().unwrap();
        let flushes = (rows.len() as u64) / WIDTH;
        let rows = rows.chunks(WIDTH as usize).zip(1..);
        let mut rows = rows.map(|(row, flush)| is_row(flush, row.iter().copied()));
        let is_whole = rows.all(|good| good) && is_row(flushes, now.into_iter());
        is_whole.then_some(flushes)
    };
    let (mut driver, mut mount) = (Seen::default(), Seen::default());
    for step in 0..10 {
        job.flush(course(step));
        for _ in 0..3 {
            driver.add(by_driver(), job.flushes);
            mount.add(Ok(by_mount()), job.flushes);
        }
    }
    assert_eq!((driver.mixed, mount.mixed), (0, 0));
    assert!(driver.behind > 0 && mount.behind > 0);
    place.settle();
    let last = Some(job.flushes);
    assert_eq!(by_driver().unwrap(), last);
    wait_until("the mount shows the last flush", || by_mount() == last);
}

/// A reader's open file has disappeared on the file server.
#[test]
fn a_log_that_another_node_replaces_is_an_error_or_the_new_one() {
    if !can_mount(User::Caller) {
        return;
    }
    let place = Place::new(2, Mode::CloseToOpen, 3);
    let mut job = Job::create(&place.paths(1), &options(1));
    (0..3).for_each(|_| job.flush(Course::default()));
    place.settle();
    let dir = SourceDir::open(place.reader()).unwrap();
    let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default());
    let old = catalog.open(Path::new(NAME)).unwrap();
    let mut job = job.replace(&place.paths(1));
    job.flush(Course::default());
    let changed = shown(&old, 1).unwrap_err().to_string();
    assert!(changed.contains("changed since it was opened"), "{changed}");
    place.settle();
    wait_until("the new log is shown", || {
        let view = catalog.open(Path::new(NAME));
        view.and_then(|view| shown(&view, 1)).ok() == Some(Some(1))
    });
}

/// Data that never arrives is lost, not late.
#[test]
fn data_that_never_match_are_told_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let mut job = Job::create(std::slice::from_ref(&path), &options(0));
    (0..3).for_each(|_| job.flush(Course::default()));
    drop(job);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.write_all_at(&[0; 100], len - 300).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(tested_program());
        let output = command.args(arguments).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &messages(&output);
        (output.status.success(), said)
    };
    let diagnostic = |severity| {
        let view = open(&path).unwrap();
        let snapshot = view.snapshot();
        assert_eq!(snapshot.flushes, 2);
        let mut found = snapshot.diagnostics.iter();
        found.any(|d| d.severity == severity && d.to_string().contains("not all of flush 3"))
    };
    assert!(diagnostic(Severity::Note));
    let (is_good, said) = run(&["check"]);
    assert!(is_good && said.contains("may show late"), "{said}");
    let journal = h5logfs_log::journal::path_of(&path);
    let journal = std::fs::File::options().write(true).open(journal).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    journal.set_modified(long_ago).unwrap();
    assert!(diagnostic(Severity::Lost));
    let (is_good, said) = run(&["check"]);
    assert!(
        !is_good && said.contains("do not match their checksum"),
        "{said}"
    );
    let (is_done, said) = run(&["recover"]);
    assert!(!is_done && said.contains("--last-flush 2"), "{said}");
    let (is_done, said) = run(&["recover", "--last-flush", "2"]);
    assert!(is_done, "{said}");
}

#[test]
fn nodes_that_share_a_file_are_told() {
    // Three nodes: with a file each, with one that two of them share, and with one for all.
    for (files, good) in [
        ([0, 1, 2], [true; 3]),
        ([0, 1, 1], [true, false, false]),
        ([0; 3], [false; 3]),
    ] {
        let check = |member: Member| {
            let ranks = Ranks::new(member);
            let file_ranks = ranks.split(files[ranks.rank() as usize]);
            check_nodes(&ranks, &file_ranks).is_ok()
        };
        let checked: Vec<bool> = std::thread::scope(|scope| {
            let ranks: Vec<_> = team(3)
                .into_iter()
                .map(|rank| scope.spawn(move || check(rank)))
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert_eq!(checked, good);
    }
}
