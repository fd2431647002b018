//! A writer under faults: `writer-faults SCENARIO FOLDER NOTES`, under `mpirun`.
//!
//! Every rank checks its errors. Where the test changes the disk or looks at the files, the job pauses: rank 0
//! creates `NOTES/at.STAGE` and waits for `NOTES/go.STAGE`.
//!
//! Each flush of a file adds a row per rank to `/rows`. The values are a function of flush, rank and column.

mod creation;
mod settling;

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use h5logfs_writer::{
    Dataset, DatasetSpec, Error, Fsync, Kind, Options, Result, Selection, Subfiles, Writer,
};
use mpi::collective::SystemOperation;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const COLUMNS: u64 = 1024;

fn main() {
    // Without this, a failing rank would wait for the others in MPI_Finalize.
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, dir, notes] = &arguments[..] else {
        panic!("writer-faults SCENARIO FOLDER NOTES");
    };
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let job = Job {
        rank: world.rank() as u32,
        ranks: world.size() as u32,
        world,
        dir: dir.into(),
        notes: notes.into(),
    };
    match &scenario[..] {
        "full-disk" => full_disk(&job, Subfiles::None),
        "full-disk-subfiles" => full_disk(&job, Subfiles::Number(2)),
        "disk-of-a-node" => disk_of_a_node(&job),
        "server-of-a-node" => server_of_a_node(&job),
        "one-file-of-nodes" => one_file_of_nodes(&job),
        "server-of-all" => server_of_all(&job),
        "file-size" => file_size(&job),
        "swapped" => swapped(&job),
        "in-the-way" => in_the_way(&job),
        "misuse" => misuse(&job),
        "differences" => differences(&job),
        "several" => several(&job),
        "close" => closes_that_fail(&job),
        "nothing-left" => creation::leave_nothing(&job),
        "replaced" => creation::replace(&job),
        "contested" => creation::contest(&job),
        "dies-before-its-journal" => creation::die(&job, 100),
        "dies-before-its-file" => creation::die(&job, 4096),
        "in-use" => creation::in_use(&job),
        "ways-that-go" => creation::ways_that_go(&job),
        "taken-away" => creation::taken_away(&job),
        "settling" => settling::run(&job),
        "unasked" => unasked(&job),
        other => panic!("no scenario {other}"),
    }
}

struct Job {
    world: SimpleCommunicator,
    rank: u32,
    ranks: u32,
    dir: PathBuf,
    notes: PathBuf,
}

impl Job {
    /// Lets the test act while all ranks wait.
    fn pause(&self, stage: &str) {
        self.world.barrier();
        if self.rank == 0 {
            File::create(self.notes.join(format!("at.{stage}"))).unwrap();
        }
        // Each rank polls by itself: in an MPI barrier it would not yield its core.
        let (go, start) = (self.notes.join(format!("go.{stage}")), Instant::now());
        while !go.exists() {
            let late = start.elapsed() > Duration::from_secs(100);
            assert!(!late, "nobody lets the job go on at {stage}");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.world.barrier();
    }

    /// Checks that all ranks have the same result, word for word.
    #[track_caller]
    fn agreed(&self, what: &impl Debug) {
        let mut sum = 0u64;
        for byte in format!("{what:?}").bytes() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let (mut least, mut most) = (0, 0);
        let world = &self.world;
        world.all_reduce_into(&sum, &mut least, SystemOperation::min());
        world.all_reduce_into(&sum, &mut most, SystemOperation::max());
        assert_eq!(least, most, "rank {} has {what:?}", self.rank);
    }

    /// Checks that a collective call failed with the same words on all ranks.
    #[track_caller]
    fn failed<T>(&self, result: Result<T>, operation: &str, on: Option<u32>, words: &str) {
        let error = result.err().expect("a failure");
        self.agreed(&error);
        let Error::Failed {
            operation: found,
            rank,
            reason,
            ..
        } = &error
        else {
            panic!("{error:?} is no failure");
        };
        assert_eq!(*found, operation, "{error}");
        assert!(on.is_none_or(|on| on == *rank), "{error}");
        let said = reason.to_string();
        assert!(said.contains(words), "{words:?} is not in: {error}");
        if let Some((_, errno)) = said.split_once("(os error ") {
            let errno = errno.split(')').next().unwrap().parse().unwrap();
            assert_eq!(reason.kind(), Kind::of_number(errno), "{error}");
        }
    }

    /// Checks that a flush or close reports a refused write.
    #[track_caller]
    fn refused(&self, result: Result<()>, by: u32, words: &str) {
        let error = result.expect_err("a refusal");
        self.agreed(&error);
        let Error::Refused { rank, reason, .. } = &error else {
            panic!("{error:?} is no refusal");
        };
        assert_eq!(*rank, by, "{error}");
        assert!(
            reason.to_string().contains(words),
            "{words:?} is not in: {error}"
        );
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn create(&self, name: &str, options: Options) -> Result<Rows<'_>> {
        let mut file = Writer::create(self.path(name), &self.world, options)?;
        let spec = DatasetSpec::new::<u64>(&[0, COLUMNS]).unlimited(0);
        let rows = file.dataset("/rows", spec)?;
        Ok(Rows {
            job: self,
            file,
            rows,
            flushes: 0,
        })
    }

    /// Reopens a file of [`Rows`].
    fn open(&self, name: &str) -> Result<Rows<'_>> {
        self.open_with(name, Options::default())
    }

    fn open_with(&self, name: &str, options: Options) -> Result<Rows<'_>> {
        let mut file = Writer::open(self.path(name), &self.world, options)?;
        let rows = file.open_dataset::<u64>("/rows")?;
        let flushes = file.dims(rows)?[0] / u64::from(self.ranks);
        Ok(Rows {
            job: self,
            file,
            rows,
            flushes,
        })
    }
}

/// A file with a dataset. Each flush adds a row per rank to the dataset.
struct Rows<'j> {
    job: &'j Job,
    file: Writer,
    rows: Dataset,
    /// Number of flushes, including the one being filled.
    flushes: u64,
}

impl Rows<'_> {
    /// Makes room for the next flush; returns the start of this rank's row, and the row.
    fn next(&mut self) -> ([u64; 2], Vec<u64>) {
        let (rank, ranks) = (u64::from(self.job.rank), u64::from(self.job.ranks));
        let before = self.flushes * ranks;
        self.flushes += 1;
        self.file
            .extend(self.rows, &[before + ranks, COLUMNS])
            .unwrap();
        let value = |i| self.flushes * 1_000_003 + rank * 10_007 + i * 31;
        ([before + rank, 0], (0..COLUMNS).map(value).collect())
    }

    fn fill(&mut self) {
        let (at, row) = self.next();
        let (rows, selection) = (self.rows, Selection::block(&at, &[1, COLUMNS]));
        self.file.write(rows, selection, &row).unwrap();
    }

    fn fill_and_flush(&mut self) {
        self.fill();
        self.file.flush().unwrap();
    }

    /// Closes the file on a disk that is full at first.
    fn close_with_ever_more_room(&mut self, stage: &str) {
        let mut attempt = 0;
        loop {
            self.job.pause(&format!("{stage}-{attempt}"));
            match self.file.close() {
                Ok(()) => return,
                Err(error) => {
                    self.job.agreed(&error);
                    assert!(matches!(error, Error::Failed { .. }), "{error:?}");
                    let told = error.to_string();
                    let cause = told.contains("full.h5") && told.contains(FULL);
                    assert!(cause && told.lines().count() == 1, "{told}");
                }
            }
            attempt += 1;
        }
    }

    /// Fills a row that is lent to the writer, and flushes.
    fn fill_and_flush_lent(&mut self) -> Result<()> {
        let (at, row) = self.next();
        let mut batch = self.file.batch();
        batch.write(self.rows, Selection::block(&at, &[1, COLUMNS]), &row)?;
        batch.flush()
    }
}

fn with_subfiles(subfiles: Subfiles) -> Options {
    Options {
        subfiles,
        ..Options::default()
    }
}

// --- flushes that are not asked for ---------------------------------------------------------------

/// An automatic flush is due in each definition, so every second definition makes one. Messages for the program wait
/// for a flush that the program makes, and so do rows without a place.
fn unasked(job: &Job) {
    let options = Options {
        flush_every: Some(Duration::from_nanos(1)),
        ..Options::default()
    };
    let mut rows = job.create("unasked.h5", options).unwrap();
    let spec = DatasetSpec::new::<u32>(&[0]).unlimited(0);
    let events = rows.file.dataset("/events", spec).unwrap();
    rows.file
        .append(events, &vec![job.rank; job.rank as usize])
        .unwrap();
    if job.rank == 1 {
        let refused = rows.file.write(rows.rows, Selection::All, &[0u64; 1]);
        assert!(matches!(refused, Err(Error::Write { .. })));
        // Some ranks do not define the attribute.
        rows.file.attribute("/", "rank", 1u32).unwrap();
    }
    (0..3).for_each(|_| rows.fill());
    job.pause("unasked");
    job.refused(rows.file.flush(), 1, "/rows");
    let before: u64 = (0..u64::from(job.rank)).sum();
    let own = before..before + u64::from(job.rank);
    assert_eq!(rows.file.appended(events), Ok(own));
    job.pause("asked");
    rows.file.close().unwrap();
    job.pause("closed");
}

// --- full disks ----------------------------------------------------------------------------------

const FULL: &str = "No space left on device";

/// The disk is full at the creation, then in a flush, then in the close, with a little more room at each attempt. The
/// same happens again when the file is reopened, and at its second close.
fn full_disk(job: &Job, subfiles: Subfiles) {
    let options = || with_subfiles(subfiles);
    let mut attempt = 0;
    let mut rows = loop {
        job.pause(&format!("create-{attempt}"));
        match job.create("full.h5", options()) {
            Ok(rows) => break rows,
            Err(error) => job.failed(Err::<(), _>(error), "create", None, FULL),
        }
        attempt += 1;
    };
    job.pause("created");
    rows.fill_and_flush();
    job.pause("fill");
    // Two attempts, with more data the second time. Nothing may be lost.
    rows.fill();
    job.failed(rows.file.flush(), "flush", None, FULL);
    job.failed(rows.fill_and_flush_lent(), "flush", None, FULL);
    job.pause("free");
    rows.file.flush().unwrap();
    // The close must make these datasets, although no rank writes to them.
    for number in 0..40 {
        let spec = DatasetSpec::new::<f32>(&[10]);
        rows.file.dataset(&format!("/more/{number}"), spec).unwrap();
    }
    rows.file.flush().unwrap();
    rows.close_with_ever_more_room("close");
    job.pause("closed");
    let mut attempt = 0;
    let mut rows = loop {
        job.pause(&format!("open-{attempt}"));
        match job.open("full.h5") {
            Ok(rows) => break rows,
            Err(error) => job.failed(Err::<(), _>(error), "open", None, FULL),
        }
        attempt += 1;
    };
    job.pause("opened");
    rows.fill_and_flush();
    rows.close_with_ever_more_room("close-again");
    job.pause("closed-again");
}

/// The disk of one node, with its subfile, is read-only at the creation, and full in two flushes.
fn disk_of_a_node(job: &Job) {
    let create = || job.create("own.h5", with_subfiles(Subfiles::PerNode));
    job.pause("create");
    job.failed(create(), "create", None, "Read-only file system");
    job.pause("write");
    flush_in_vain(job, create().unwrap(), FULL);
}

/// One node's file server rejects its open files in two flushes.
fn server_of_a_node(job: &Job) {
    let rows = job.create("own.h5", with_subfiles(Subfiles::PerNode));
    flush_in_vain(job, rows.unwrap(), "Stale file handle");
}

/// The file server rejects the open files of all nodes in two flushes.
fn server_of_all(job: &Job) {
    let options = Options {
        fsync: Fsync::Flush,
        ..with_subfiles(Subfiles::PerNode)
    };
    let rows = job.create("own.h5", options);
    flush_in_vain(job, rows.unwrap(), "Permission denied");
}

/// Nodes would share a file on a file system that cannot merge their writes. Each node writes a file of its own
/// instead.
fn one_file_of_nodes(job: &Job) {
    let create = |subfiles| job.create("own.h5", with_subfiles(subfiles));
    let refused = create(Subfiles::None);
    job.failed(refused, "create", None, "several nodes of the job");
    job.pause("refused");
    let mut rows = create(Subfiles::PerNode).unwrap();
    rows.fill_and_flush();
    rows.file.close().unwrap();
    job.pause("closed");
}

/// Two flushes fail with these words, and the third succeeds.
fn flush_in_vain(job: &Job, mut rows: Rows<'_>, words: &str) {
    rows.fill_and_flush();
    job.pause("fill");
    for _ in 0..2 {
        rows.fill();
        job.failed(rows.file.flush(), "flush", None, words);
    }
    job.pause("free");
    rows.file.flush().unwrap();
    job.pause("flushed");
    rows.fill();
    rows.file.close().unwrap();
    job.pause("closed");
}

// --- one rank that cannot write ------------------------------------------------------------------

/// One rank may write only a few bytes past the present end.
fn file_size(job: &Job) {
    // SAFETY: the handler is the system's own.
    unsafe { ignore_file_size_signal() };
    let cases = [
        ("first", 0, Subfiles::None, false),
        ("third", 2, Subfiles::None, false),
        ("lent", 1, Subfiles::None, true),
        ("subfile", 2, Subfiles::Number(2), false),
        ("subfile-lent", 3, Subfiles::Number(3), true),
    ];
    for (name, culprit, subfiles, lent) in cases {
        let file = format!("{name}.h5");
        let mut rows = job.create(&file, with_subfiles(subfiles)).unwrap();
        rows.fill_and_flush();
        let limit = getrlimit(Resource::Fsize);
        let all = |size: Option<u64>| Rlimit {
            current: size.or(limit.current),
            maximum: limit.maximum,
        };
        if job.rank == culprit {
            setrlimit(Resource::Fsize, all(Some(12 << 10))).unwrap();
        }
        const TOO_LARGE: &str = "File too large";
        if lent {
            let flushed = rows.fill_and_flush_lent();
            job.failed(flushed, "flush", Some(culprit), TOO_LARGE);
        } else {
            rows.fill();
            job.failed(rows.file.flush(), "flush", Some(culprit), TOO_LARGE);
        }
        // The flush fails once more, with another row in it.
        rows.fill();
        job.failed(rows.file.flush(), "flush", Some(culprit), TOO_LARGE);
        job.pause(&format!("{name}-limited"));
        setrlimit(Resource::Fsize, all(None)).unwrap();
        rows.file.flush().unwrap();
        job.pause(&format!("{name}-flushed"));
        rows.fill();
        rows.file.close().unwrap();
        job.pause(&format!("{name}-closed"));
    }
}

/// Ignores SIGXFSZ, which would end the process. The write then fails instead.
///
/// # Safety
/// No other thread may handle signals.
unsafe fn ignore_file_size_signal() {
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    const SIGXFSZ: i32 = 25;
    const SIG_IGN: usize = 1;
    // SAFETY: the caller's promise.
    unsafe { signal(SIGXFSZ, SIG_IGN) };
}

/// One rank's open file is swapped for a full device, or one that cannot be written.
fn swapped(job: &Job) {
    const FULL: &str = "/dev/full";
    // Nothing is mapped at addresses as low as the offsets in a small file.
    const BROKEN: &str = "/proc/self/mem";
    let journal = |name: &str| format!("{name}.h5.h5logfs-journal");
    let own = |name: &str| format!("{name}.h5");
    let second = |name: &str| format!("{name}.h5.subfiles/{name}.h5.1");
    type Swapped<'a> = (&'a str, u32, Subfiles, &'a dyn Fn(&str) -> String);
    const NO_SPACE: &str = "No space left on device";
    const IO_ERROR: &str = "Input/output error";
    let two = Subfiles::Number(2);
    let cases: [(Swapped<'_>, &str, &str); 6] = [
        (("data-full", 1, Subfiles::None, &own), FULL, NO_SPACE),
        (("data-broken", 3, Subfiles::None, &own), BROKEN, IO_ERROR),
        (("sub-full", 3, two, &second), FULL, NO_SPACE),
        (("sub-broken", 2, two, &second), BROKEN, IO_ERROR),
        (
            ("journal-full", 0, Subfiles::None, &journal),
            FULL,
            NO_SPACE,
        ),
        (("journal-broken", 0, two, &journal), BROKEN, IO_ERROR),
    ];
    for ((name, culprit, subfiles, file), device, words) in cases {
        let mut rows = job.create(&own(name), with_subfiles(subfiles)).unwrap();
        rows.fill_and_flush();
        let swap = (job.rank == culprit).then(|| Swap::new(&job.path(&file(name)), device));
        rows.fill();
        // Definitions must reach the journal as well.
        rows.file.attribute("/rows", "made", 2u32).unwrap();
        job.failed(rows.file.flush(), "flush", Some(culprit), words);
        // A journal that could not be restored before is restored now. This fails on a device.
        job.failed(rows.file.flush(), "flush", Some(culprit), name);
        job.failed(rows.file.close(), "flush", Some(culprit), name);
        job.pause(&format!("{name}-swapped"));
        drop(swap);
        rows.file.flush().unwrap();
        job.pause(&format!("{name}-flushed"));
        rows.fill();
        rows.file.close().unwrap();
        job.pause(&format!("{name}-closed"));
    }
}

/// Another file in place of an open one. Dropping restores the original.
struct Swap {
    /// Descriptors, with copies of the originals.
    kept: Vec<(i32, OwnedFd)>,
}

impl Swap {
    fn new(path: &Path, device: &str) -> Self {
        let wanted = fs::metadata(path).unwrap();
        let device = OpenOptions::new().write(true).open(device).unwrap();
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let numbers = open.filter_map(|fd| fd.file_name().to_str()?.parse().ok());
        let is_it = |number: &i32| {
            let found = fs::metadata(format!("/proc/self/fd/{number}"));
            found.is_ok_and(|f| (f.dev(), f.ino()) == (wanted.dev(), wanted.ino()))
        };
        let numbers: Vec<i32> = numbers.filter(is_it).collect();
        assert!(!numbers.is_empty(), "{} is not open", path.display());
        let mut kept = Vec::new();
        for number in numbers {
            // SAFETY: it is open, and its owner does not close it during the swap.
            let owner = unsafe { BorrowedFd::borrow_raw(number) };
            kept.push((number, rustix::io::fcntl_dupfd_cloexec(owner, 0).unwrap()));
            replace(number, device.as_fd());
        }
        Swap { kept }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        for (number, file) in &self.kept {
            replace(*number, file.as_fd());
        }
    }
}

/// Makes a descriptor owned by other code refer to another file.
fn replace(number: i32, file: BorrowedFd<'_>) {
    use std::mem::ManuallyDrop;
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is open, and stays open, because `owner` is not dropped here.
    let mut owner = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::dup2(file, &mut owner).unwrap();
}

// --- files that cannot be made -------------------------------------------------------------------

/// The test puts something in the way of each file, and removes it again.
fn in_the_way(job: &Job) {
    let two = || with_subfiles(Subfiles::Number(2));
    let replacing = || Options {
        overwrite: true,
        ..Options::default()
    };
    let cases: [(&str, Options, u32, &str); 7] = [
        ("folder", two(), 0, "need a directory of this name"),
        ("subfile", two(), 0, "subfile.h5.1 does not belong to"),
        ("existing", Options::default(), 0, "it exists already"),
        (
            "unclosed",
            Options::default(),
            0,
            "journal does not belong to",
        ),
        (
            "orphan",
            Options::default(),
            0,
            "journal does not belong to",
        ),
        ("journal", replacing(), 0, "a directory of this name"),
        ("missing/log", Options::default(), 0, "does not exist"),
    ];
    for (name, options, culprit, words) in cases {
        let (file, stage) = (format!("{name}.h5"), name.replace('/', "-"));
        job.pause(&format!("{stage}-block"));
        let created = job.create(&file, options.clone());
        job.failed(created, "create", Some(culprit), words);
        job.pause(&format!("{stage}-free"));
        let mut rows = job.create(&file, options).unwrap();
        rows.fill_and_flush();
        rows.file.close().unwrap();
        job.pause(&format!("{stage}-closed"));
    }
    // Replaceable files are replaced, including subfiles.
    let mut rows = job.create("folder.h5", replacing()).unwrap();
    rows.fill_and_flush();
    rows.fill();
    rows.file.close().unwrap();
    job.pause("replaced");
    let hinted = Options {
        hints: vec![("a".into(), "b\0".into())],
        ..Options::default()
    };
    job.failed(job.create("hinted.h5", hinted), "create", None, "zero byte");
    no_descriptors(job);
    job.pause("hinted");
}

/// One rank may open no more files.
fn no_descriptors(job: &Job) {
    let limit = getrlimit(Resource::Nofile);
    for culprit in [0, 2] {
        if job.rank == culprit {
            let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
            let lower = Rlimit {
                // The limit counts the open directory, too.
                current: Some(open - 1),
                maximum: limit.maximum,
            };
            setrlimit(Resource::Nofile, lower).unwrap();
        }
        let created = job.create("many.h5", Options::default());
        job.failed(created, "create", Some(culprit), "");
        setrlimit(Resource::Nofile, limit).unwrap();
    }
    let mut rows = job.create("many.h5", Options::default()).unwrap();
    rows.fill_and_flush();
    rows.file.close().unwrap();
}

// --- programs that are wrong ---------------------------------------------------------------------

fn misuse(job: &Job) {
    refused_writes(job);
    full_buffers(job);
    different_options(job);
    after_the_close(job);
}

/// Invalid writes on one or two ranks. Only these writes are missing afterwards.
fn refused_writes(job: &Job) {
    let mut rows = job.create("refused.h5", Options::default()).unwrap();
    let data = rows.rows;
    type Attempt = fn(&mut Writer, Dataset) -> Result<()>;
    let attempts: [(Attempt, &str); 6] = [
        (
            |file, data| file.write(data, Selection::block(&[0, 0], &[1, 4]), &[0u64; 3]),
            "3 elements for a selection of 4",
        ),
        (
            |file, data| file.write(data, Selection::block(&[0, 0], &[1 << 40, 1]), &[0u64; 1]),
            "out of the extent",
        ),
        (
            |file, data| file.write(data, Selection::block(&[0, 0], &[1, 4]), &[0f64; 4]),
            "elements of type f64 were written to a dataset of u64",
        ),
        (
            |file, data| file.write(data, Selection::block(&[0], &[1]), &[0u64; 1]),
            "start [0] and count [1] for 2 dimensions",
        ),
        (
            |file, _| file.write(Dataset::from_id(77), Selection::All, &[0u64; 1]),
            "no dataset 77",
        ),
        (
            |file, data| {
                let mut batch = file.batch();
                batch.write(data, Selection::Points(&[0, COLUMNS]), &[0u64; 1])
            },
            "out of the extent",
        ),
    ];
    for (number, (attempt, words)) in attempts.into_iter().enumerate() {
        let culprit = number as u32 % job.ranks;
        rows.fill();
        // If several ranks fail, the first one is reported.
        if job.rank == culprit || job.rank + 1 == job.ranks {
            let error = attempt(&mut rows.file, data).expect_err("a refusal");
            let kind = matches!(error, Error::Write { .. } | Error::Definition { .. });
            assert!(kind && error.to_string().contains(words), "{error:?}");
            if let Error::Write { dataset, .. } = &error {
                assert_eq!(dataset, "/rows");
            }
        }
        job.refused(rows.file.flush(), culprit, words);
        // The error is reported once.
        rows.fill_and_flush();
    }
    rows.fill();
    if job.rank == 1 {
        let wrong = rows.file.write(data, Selection::All, &[0u64; 1]);
        assert!(matches!(wrong, Err(Error::Write { .. })));
    }
    // The file is closed in spite of the error.
    job.refused(rows.file.close(), 1, "/rows");
    let closed = Err(Error::Closed {
        file: job.path("refused.h5"),
    });
    assert_eq!(rows.file.flush(), closed);
    job.pause("refused");
}

/// A full buffer goes to the file. Appended rows have no place there before the flush. A rank whose buffer is full of
/// such rows keeps them, and accepts more after a flush.
fn full_buffers(job: &Job) {
    let limit = 3 * COLUMNS * 8;
    let options = Options {
        buffer_limit: limit,
        ..Options::default()
    };
    let mut rows = job.create("buffer.h5", options).unwrap();
    for _ in 0..5 {
        rows.fill();
        assert!((1..limit).contains(&rows.file.buffered()));
    }
    rows.file.flush().unwrap();
    assert_eq!(rows.file.buffered(), 0);
    let spec = DatasetSpec::new::<u64>(&[0, COLUMNS]).unlimited(0);
    let appended = rows.file.dataset("/appended", spec).unwrap();
    let two = vec![7u64; 2 * COLUMNS as usize];
    rows.file.append(appended, &two).unwrap();
    let held = rows.file.buffered();
    assert_eq!(held, 2 * COLUMNS * 8);
    // The flush has defined this extent, but its rows no longer fit.
    let (at, row) = rows.next();
    let selection = Selection::block(&at, &[1, COLUMNS]);
    for _ in 0..2 {
        match rows.file.write(rows.rows, selection, &row) {
            Err(Error::BufferFull {
                limit: told,
                held: full,
                wanted,
                ..
            }) => {
                assert_eq!((told, full), (limit, held));
                assert!(wanted >= COLUMNS * 8 && held + wanted > limit);
            }
            other => panic!("{other:?} with a full buffer"),
        }
        assert_eq!(rows.file.buffered(), held);
    }
    rows.file.flush().unwrap();
    assert_eq!(rows.file.buffered(), 0);
    rows.file.write(rows.rows, selection, &row).unwrap();
    rows.file.flush().unwrap();
    // Data larger than the buffer goes to the file at once, or is lent.
    let many = 4;
    let spec = || DatasetSpec::new::<u64>(&[many, COLUMNS]);
    let wide = rows.file.dataset("/wide", spec()).unwrap();
    let lent = rows.file.dataset("/lent", spec()).unwrap();
    let values: Vec<u64> = (0..many * COLUMNS).collect();
    if job.rank == 0 {
        rows.file.write(wide, Selection::All, &values).unwrap();
        assert_eq!(rows.file.buffered(), 0);
    }
    let mut batch = rows.file.batch();
    if job.rank == 0 {
        batch.write(lent, Selection::All, &values).unwrap();
    }
    batch.flush().unwrap();
    rows.file.close().unwrap();
    job.pause("buffer");
}

/// One rank has other options.
fn different_options(job: &Job) {
    let options = Options {
        share_selections: job.rank != 1,
        ..Options::default()
    };
    let created = job.create("different-options.h5", options);
    const WORDS: &str = "its option `share_selections` is false, and that of rank 0 is true";
    job.failed(created, "create", Some(1), WORDS);
    job.pause("different-options");
}

fn after_the_close(job: &Job) {
    let mut rows = job.create("closed.h5", Options::default()).unwrap();
    rows.fill_and_flush();
    rows.file.close().unwrap();
    let (file, data) = (&mut rows.file, rows.rows);
    let row = vec![0u64; COLUMNS as usize];
    let closed = Err(Error::Closed {
        file: job.path("closed.h5"),
    });
    let at = Selection::block(&[0, 0], &[1, COLUMNS]);
    assert_eq!(file.write(data, at, &row), closed);
    let mut batch = file.batch();
    assert_eq!(batch.write(data, at, &row), closed);
    assert_eq!(batch.flush(), closed);
    assert_eq!(file.group("/late"), closed);
    assert_eq!(file.flush(), closed);
    assert_eq!(file.close(), closed);
    job.pause("closed");
}

// --- definitions that differ ---------------------------------------------------------------------

fn differences(job: &Job) {
    different_objects(job);
    different_attributes(job);
    // The test kills the job here. It has one file whose flush lacks an attribute, and one unflushed row.
    let mut dying = job.create("dying.h5", Options::default()).unwrap();
    dying.file.attribute("/", "rank", job.rank).unwrap();
    dying.fill();
    job.refused(dying.file.flush(), 1, "attribute rank of /");
    dying.fill_and_flush();
    dying.fill();
    job.pause("different");
}

/// One rank defines other objects: nothing can be flushed any more, and the error names the object.
fn different_objects(job: &Job) {
    type Define = fn(&mut Writer, u32);
    let cases: [(&str, Define, u32, &str); 6] = [
        (
            "name",
            |file, rank| {
                file.group(if rank == 2 { "/other" } else { "/one" })
                    .unwrap();
            },
            2,
            "rank 2 does not define group /one, rank 0 does",
        ),
        (
            "order",
            |file, rank| {
                let names = if rank == 1 {
                    ["/b", "/a"]
                } else {
                    ["/a", "/b"]
                };
                names.iter().for_each(|name| file.group(name).unwrap());
            },
            1,
            "rank 1 defines group /b where rank 0 defines group /a",
        ),
        (
            "extent",
            |file, rank| {
                let rows = 20 + u64::from(rank == 0);
                file.extend(Dataset::from_id(0), &[rows, COLUMNS]).unwrap();
            },
            1,
            "rank 1 extends dataset /rows to [20, 1024], rank 0 extends dataset /rows to [21, 1024]",
        ),
        (
            "dims",
            |file, rank| {
                let spec = DatasetSpec::new::<f64>(&[4, 5 + u64::from(rank / 3)]);
                file.dataset("/grid", spec).unwrap();
            },
            3,
            "rank 3 defines dataset /grid with extent [4, 6], rank 0 with extent [4, 5]",
        ),
        (
            "filter",
            |file, rank| {
                let spec = DatasetSpec::new::<f64>(&[4]).chunk(&[4]);
                let spec = if rank == 2 { spec.deflate(6) } else { spec };
                file.dataset("/packed", spec).unwrap();
            },
            2,
            "rank 2 defines dataset /packed with filters [deflate 6], rank 0 with filters []",
        ),
        (
            // An additional definition, and a different attribute. The attribute does not prevent the flush.
            "more",
            |file, rank| {
                file.attribute("/", "rank", rank).unwrap();
                if rank >= 2 {
                    file.dataset("/air/t", DatasetSpec::new::<f64>(&[4]))
                        .unwrap();
                }
            },
            2,
            "rank 2 defines group /air, rank 0 does not",
        ),
    ];
    for (name, define, culprit, words) in cases {
        let mut rows = job
            .create(&format!("different-{name}.h5"), Options::default())
            .unwrap();
        rows.fill_and_flush();
        rows.fill();
        define(&mut rows.file, job.rank);
        job.failed(rows.file.flush(), "flush", Some(culprit), words);
        job.failed(rows.file.flush(), "flush", Some(culprit), words);
        job.failed(rows.file.close(), "flush", Some(culprit), words);
    }
    // Later definitions of the other ranks are no difference.
    let mut rows = job.create("late.h5", Options::default()).unwrap();
    rows.fill();
    let define = |file: &mut Writer| file.group("/late").unwrap();
    if job.rank == 2 {
        define(&mut rows.file);
    }
    job.failed(rows.file.flush(), "flush", Some(2), "defines group /late");
    if job.rank != 2 {
        define(&mut rows.file);
    }
    rows.file.close().unwrap();
}

/// Different attributes are left out, and reported once. Their names are free again.
fn different_attributes(job: &Job) {
    let mut rows = job.create("attributes.h5", Options::default()).unwrap();
    let started = format!("10:00:0{}", job.rank);
    rows.file.attribute("/", "title", "the same").unwrap();
    rows.file.attribute("/", "started", started).unwrap();
    rows.fill();
    job.refused(
        rows.file.flush(),
        1,
        r#"attribute started of / (rank 1 defines it as "10:00:01", rank 0 as "10:00:00")"#,
    );
    rows.fill_and_flush();
    // The same attributes in another order do not differ.
    let mut names = ["started", "ended"];
    names.rotate_left(job.rank as usize % 2);
    for name in names {
        rows.file.attribute("/", name, "agreed").unwrap();
    }
    rows.fill_and_flush();
    // Several attributes differ, and some of them exist on one rank only. A write is refused in the same flush.
    rows.file.attribute("/rows", "rank", job.rank / 2).unwrap();
    if job.rank == 1 {
        rows.file.attribute("/rows", "lonely", 1.5).unwrap();
    }
    if job.rank != 3 {
        rows.file.attribute("/", "missing", "here").unwrap();
    }
    rows.file.attribute("/rows", "units", "K").unwrap();
    rows.fill();
    if job.rank == 3 {
        let wrong = rows.file.write(rows.rows, Selection::All, &[0u64; 1]);
        assert!(matches!(wrong, Err(Error::Write { .. })));
    }
    let flushed = rows.file.flush();
    let error = flushed.clone().unwrap_err().to_string();
    for words in [
        "attributes.h5: flushed without a write that rank 3 refused: dataset /rows: ",
        "; and without 3 attributes, the first of them lonely of /rows (rank 1 defines it as 1.5 (f64), rank 0 does not)",
    ] {
        assert!(error.contains(words), "{error}");
    }
    job.refused(flushed, 3, "");
    // The close is complete, and reports the difference.
    if job.rank == 2 {
        rows.file.attribute("/", "late", [1, 2]).unwrap();
    }
    rows.fill();
    job.refused(
        rows.file.close(),
        2,
        "attribute late of / (rank 2 defines it as [1, 2] (i32), rank 0 does not)",
    );
}

// --- several files -------------------------------------------------------------------------------

/// Two files of half the ranks each, and one of all of them, open at the same time.
fn several(job: &Job) {
    let half = job.rank / (job.ranks / 2);
    let color = Color::with_value(half as i32);
    let part = job.world.split_by_color(color).unwrap();
    let part = Job {
        rank: part.rank() as u32,
        ranks: part.size() as u32,
        world: part,
        dir: job.dir.clone(),
        notes: job.notes.clone(),
    };
    let mut own = part
        .create(&format!("half-{half}.h5"), Options::default())
        .unwrap();
    let mut all = job.create("all.h5", Options::default()).unwrap();
    for round in 0..4 {
        own.fill();
        all.fill();
        // The two halves use another order. No rank waits for a rank of the other half.
        if half == round % 2 {
            own.file.flush().unwrap();
        }
        all.file.flush().unwrap();
        if half != round % 2 {
            own.file.flush().unwrap();
        }
    }
    own.file.close().unwrap();
    job.pause("half");
    all.file.close().unwrap();
    job.pause("all");
}

// --- closes that fail ----------------------------------------------------------------------------

/// The table does not fit. At first it is small, and the first rank writes all of it. Then it is the last rank's alone.
fn closes_that_fail(job: &Job) {
    // SAFETY: the handler is the system's own.
    unsafe { ignore_file_size_signal() };
    let last = job.ranks - 1;
    for (name, marks, limited) in [("small", 2500, 0), ("large", 300_000, last)] {
        close_without_room(job, name, marks, limited);
    }
}

/// Closes a log whose last rank has `entries` entries of its own. The rank `limited` can write only to the start of a
/// file.
fn close_without_room(job: &Job, name: &str, entries: u64, limited: u32) {
    let options = Options {
        deflate_selections: false,
        ..Options::default()
    };
    let file = format!("{name}.h5");
    let mut rows = job.create(&file, options).unwrap();
    let spec = DatasetSpec::new::<u8>(&[2 * entries]);
    let marks = rows.file.dataset("/marks", spec).unwrap();
    rows.fill();
    if job.rank == job.ranks - 1 {
        for i in 0..entries {
            let at = [2 * i];
            let selection = Selection::block(&at, &[1]);
            rows.file.write(marks, selection, &[1u8]).unwrap();
        }
    }
    rows.file.flush().unwrap();
    let limit = getrlimit(Resource::Fsize);
    if job.rank == limited {
        let small = Rlimit {
            current: Some(20 << 10),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Fsize, small).unwrap();
    }
    for _ in 0..2 {
        let closed = rows.file.close();
        job.failed(closed, "close", Some(limited), "File too large");
    }
    job.pause(&format!("{name}-limited"));
    setrlimit(Resource::Fsize, limit).unwrap();
    rows.file.close().unwrap();
    job.pause(&format!("{name}-closed"));
}
