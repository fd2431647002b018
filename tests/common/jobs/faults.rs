//! Faults under a job: full or broken disks, for all ranks or for one, files that cannot be created, incorrect
//! programs. `tests/programs/faults.rs` checks the errors on every rank. This module prepares the disk, and looks at
//! the files through a mount.
//!
//! Each fault runs on a number of nodes, or on this machine for 0.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

use crate::common::guard::Guard;
use crate::common::mpirun::{Job, program};
use crate::common::nodes::Place;
use crate::common::readers::said;
use crate::common::settled::{is_silent, settle_by_command};
use crate::common::{Mounted, PROGRAM, User, can_mount, errno, is_root, names_in};

const RANKS: u64 = 4;
const COLUMNS: u64 = 1024;

/// A job of `tests/programs/faults.rs`.
pub struct Run {
    pub job: Job,
    /// Directory of its files.
    dir: PathBuf,
    notes: TempDir,
}

impl Run {
    pub fn start(place: &Place, scenario: &str, dir: &Path) -> Self {
        let notes = tempfile::tempdir().unwrap();
        let (to, beside) = (dir.to_str().unwrap(), notes.path().to_str().unwrap());
        let arguments = [scenario, to, beside];
        Run {
            job: Job::start_at(place, RANKS as u32, &program("writer-faults"), &arguments),
            dir: dir.to_owned(),
            notes,
        }
    }

    /// Waits until the job pauses at a stage.
    #[track_caller]
    pub fn at(&mut self, stage: &str) {
        self.at_either(stage, stage);
    }

    /// Waits until the job pauses at one of two stages.
    #[track_caller]
    fn at_either<'s>(&mut self, one: &'s str, other: &'s str) -> &'s str {
        let start = Instant::now();
        loop {
            let there = |stage: &str| self.notes.path().join(format!("at.{stage}")).exists();
            if let Some(stage) = [one, other].into_iter().find(|stage| there(stage)) {
                return stage;
            }
            let late = start.elapsed() > Duration::from_secs(60) || self.job.has_ended();
            assert!(
                !late,
                "it comes neither to {one} nor to {other}: {}",
                self.job.said()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn go(&self, stage: &str) {
        File::create(self.notes.path().join(format!("go.{stage}"))).unwrap();
    }

    /// Makes a job flush `own.h5` while writing is impossible, and again afterwards.
    #[track_caller]
    pub fn flush_again(mut self, take_away: impl FnOnce(), give_back: impl FnOnce()) {
        self.at("fill");
        self.shows("own.h5", 1);
        take_away();
        self.go("fill");
        self.at("free");
        self.shows("own.h5", 1);
        give_back();
        self.go("free");
        self.at("flushed");
        self.shows("own.h5", 3);
        self.go("flushed");
        self.at("closed");
        self.shows_closed("own.h5", 4);
        self.go("closed");
        self.job.succeed();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Checks that a file, read through a mount, holds exactly this number of flushes.
    #[track_caller]
    pub fn shows(&self, name: &str, flushes: u64) {
        self.shows_of(RANKS, name, flushes);
    }

    /// Checks the same for a file of this number of ranks.
    #[track_caller]
    fn shows_of(&self, ranks: u64, name: &str, flushes: u64) {
        let mounted = Mounted::new(&self.dir, "");
        Self::holds(&mounted.join(name), ranks, flushes);
    }

    /// Checks that an HDF5 file holds exactly these flushes of these ranks.
    #[track_caller]
    fn holds(path: &Path, ranks: u64, flushes: u64) {
        let file = hdf5::File::open(path).unwrap();
        let rows = file.dataset("rows").unwrap();
        assert_eq!(rows.shape(), [(flushes * ranks) as usize, COLUMNS as usize]);
        let values = rows.read_raw::<u64>().unwrap();
        for (row, values) in values.chunks(COLUMNS as usize).enumerate() {
            let (flush, rank) = (row as u64 / ranks + 1, row as u64 % ranks);
            let wanted = (0..COLUMNS).map(|i| flush * 1_000_003 + rank * 10_007 + i * 31);
            let same = values.iter().copied().eq(wanted);
            let name = path.display();
            assert!(same, "{name}: other values of rank {rank} in flush {flush}");
        }
    }

    /// Checks a file that must be closed, so that its journal is gone.
    #[track_caller]
    pub fn shows_closed(&self, name: &str, flushes: u64) {
        assert!(!self.journal(name).exists(), "{name} still has its journal");
        self.shows(name, flushes);
        let checked = Command::new(PROGRAM)
            .arg("check")
            .arg(self.path(name))
            .output();
        let said = said(&checked.unwrap());
        assert!(said.contains(": good") && !said.contains("note"), "{said}");
        // It is HDF5 without a mount.
        hdf5::File::open(self.path(name)).unwrap();
    }

    /// Checks that an ordinary file holds this number of flushes, without a mount.
    #[track_caller]
    pub fn is_settled(&self, name: &str, flushes: u64) {
        assert!(!self.journal(name).exists(), "{name} still has its journal");
        let path = self.path(name);
        assert!(settle_by_command(&path).contains("settled already"));
        Self::holds(&path, RANKS, flushes);
        is_silent(&path).unwrap();
    }

    pub fn journal(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.h5logfs-journal"))
    }
}

// --- full disks ----------------------------------------------------------------------------------

/// A small disk, removed when dropped.
pub struct Disk {
    pub dir: TempDir,
    _guard: Guard,
}

const BALLAST: &str = "ballast";
const PAGE: u64 = 4096;

impl Disk {
    /// A disk. `None`, after printing the reason, where the test may not mount one.
    pub fn new() -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: only root can mount a small disk");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let guard = Guard::of_mount(dir.path());
        let size = c"size=4m";
        let none = MountFlags::empty();
        let mounted = rustix::mount::mount("tmpfs", dir.path(), "tmpfs", none, size);
        if let Err(e) = mounted {
            eprintln!("skipped: a small disk cannot be mounted: {e}");
            return None;
        }
        Some(Disk { dir, _guard: guard })
    }

    /// Fills the disk except for `left` pages.
    pub fn fill(&self, left: u64) {
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true);
        let ballast = options.open(self.dir.path().join(BALLAST)).unwrap();
        let mut len = ballast.metadata().unwrap().len();
        loop {
            let written = ballast.write_at(&[0x55; PAGE as usize], len);
            match errno(written) {
                None => len += PAGE,
                Some(Errno::NOSPC) => break,
                other => panic!("{other:?}"),
            }
        }
        ballast.set_len(len.saturating_sub(left * PAGE)).unwrap();
    }

    pub fn free(&self) {
        fs::remove_file(self.dir.path().join(BALLAST)).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

fn full_disk(nodes: u32, scenario: &str) {
    let Some(disk) = Disk::new().filter(|_| can_mount(User::Caller)) else {
        return;
    };
    // Nodes see what was mounted before.
    let Some(place) = Place::of(nodes) else {
        return;
    };
    let mut run = Run::start(&place, scenario, disk.dir.path());
    let attempts = with_ever_more_room(&mut run, &disk, "create", "created", |run| {
        // A file that could not be created does not exist, nor do its companions.
        assert!(names_in(&run.dir).iter().all(|name| name == BALLAST));
    });
    assert!(attempts > 1, "created with {attempts} pages");
    disk.free();
    run.go("created");
    run.at("fill");
    run.shows("full.h5", 1);
    disk.fill(1);
    run.go("fill");
    run.at("free");
    run.shows("full.h5", 1);
    disk.free();
    run.go("free");
    let attempts = with_ever_more_room(&mut run, &disk, "close", "closed", |run| {
        run.shows("full.h5", 3);
    });
    assert!(attempts > 1, "closed with {attempts} pages");
    run.shows_closed("full.h5", 3);
    run.go("closed");
    let attempts = with_ever_more_room(&mut run, &disk, "open", "opened", |run| {
        run.shows_closed("full.h5", 3);
    });
    assert!(attempts > 0, "opened without room for its journal");
    run.shows("full.h5", 3);
    disk.free();
    run.go("opened");
    let attempts = with_ever_more_room(&mut run, &disk, "close-again", "closed-again", |run| {
        run.shows("full.h5", 4);
    });
    assert!(attempts > 1, "closed again with {attempts} pages");
    run.shows_closed("full.h5", 4);
    run.go("closed-again");
    run.job.succeed();
}

/// Lets the job retry something until it succeeds, with one more free page each time. Before each attempt everything
/// must be unchanged. Returns the number of failures.
fn with_ever_more_room(
    run: &mut Run,
    disk: &Disk,
    attempt: &str,
    done: &str,
    as_before: impl Fn(&Run),
) -> u64 {
    run.at(&format!("{attempt}-0"));
    for pages in 0.. {
        as_before(run);
        disk.fill(pages);
        run.go(&format!("{attempt}-{pages}"));
        let next = format!("{attempt}-{}", pages + 1);
        if run.at_either(done, &next) == done {
            return pages;
        }
    }
    unreachable!("the disk is small");
}

pub fn a_full_disk(nodes: u32) {
    full_disk(nodes, "full-disk");
}

pub fn a_full_disk_with_subfiles(nodes: u32) {
    full_disk(nodes, "full-disk-subfiles");
}

// --- one rank that cannot write ------------------------------------------------------------------

/// Each file fails with one flush in it, is flushed `more` times, and closed with one more.
fn one_rank_fails(nodes: u32, scenario: &str, names: &[&str], failed: &str, more: u64) {
    let Some(place) = Place::of(nodes).filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&place, scenario, dir.path());
    for name in names {
        let file = format!("{name}.h5");
        let stages = [
            (format!("{name}-{failed}"), 1),
            (format!("{name}-flushed"), 1 + more),
        ];
        for (stage, flushes) in stages {
            run.at(&stage);
            assert!(run.journal(&file).exists());
            run.shows(&file, flushes);
            // The job closes nothing.
            let mut recovery = Command::new(PROGRAM);
            recovery.arg("recover").arg(run.path(&file));
            let said = said(&recovery.output().unwrap());
            assert!(said.contains("still running"), "{said}");
            run.go(&stage);
        }
        let closed = format!("{name}-closed");
        run.at(&closed);
        run.shows_closed(&file, 2 + more);
        run.go(&closed);
    }
    run.job.succeed();
}

pub fn a_rank_that_may_write_no_further(nodes: u32) {
    let names = ["first", "third", "lent", "subfile", "subfile-lent"];
    one_rank_fails(nodes, "file-size", &names, "limited", 2);
}

pub fn a_rank_whose_disk_fails(nodes: u32) {
    let names = [
        "data-full",
        "data-broken",
        "sub-full",
        "sub-broken",
        "journal-full",
        "journal-broken",
    ];
    one_rank_fails(nodes, "swapped", &names, "swapped", 1);
}

// --- files that cannot be made -------------------------------------------------------------------

pub fn files_that_are_in_the_way(nodes: u32) {
    let Some(place) = Place::of(nodes).filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&place, "in-the-way", dir.path());
    let write = |path: PathBuf| File::create(path)?.write_all(b"in the way");
    type Act<'a> = &'a dyn Fn(&Run) -> io::Result<()>;
    let cases: [(&str, Act<'_>, Act<'_>); 7] = [
        (
            "folder",
            &|run| write(run.path("folder.h5.subfiles")),
            &|run| fs::remove_file(run.path("folder.h5.subfiles")),
        ),
        (
            "subfile",
            &|run| fs::create_dir_all(run.path("subfile.h5.subfiles/subfile.h5.1")),
            &|run| {
                assert_eq!(names_in(&run.path("subfile.h5.subfiles")), ["subfile.h5.1"]);
                fs::remove_dir(run.path("subfile.h5.subfiles/subfile.h5.1"))
            },
        ),
        ("existing", &|run| write(run.path("existing.h5")), &|run| {
            assert_eq!(fs::read(run.path("existing.h5"))?, b"in the way");
            fs::remove_file(run.path("existing.h5"))
        }),
        (
            // An earlier job's log, with data that may still be wanted.
            "unclosed",
            &|run| {
                write(run.path("unclosed.h5"))?;
                write(run.journal("unclosed.h5"))
            },
            &|run| {
                assert_eq!(fs::read(run.journal("unclosed.h5"))?, b"in the way");
                fs::remove_file(run.journal("unclosed.h5"))?;
                fs::remove_file(run.path("unclosed.h5"))
            },
        ),
        ("orphan", &|run| write(run.journal("orphan.h5")), &|run| {
            fs::remove_file(run.journal("orphan.h5"))
        }),
        (
            "journal",
            &|run| fs::create_dir(run.journal("journal.h5")),
            &|run| fs::remove_dir(run.journal("journal.h5")),
        ),
        ("missing-log", &|_| Ok(()), &|run| {
            fs::create_dir(run.path("missing"))
        }),
    ];
    for (name, block, free) in cases {
        let file = match name {
            "missing-log" => "missing/log.h5".to_owned(),
            name => format!("{name}.h5"),
        };
        run.at(&format!("{name}-block"));
        block(&run).unwrap();
        let before = names_in(&run.dir);
        run.go(&format!("{name}-block"));
        run.at(&format!("{name}-free"));
        assert_eq!(names_in(&run.dir), before);
        free(&run).unwrap();
        run.go(&format!("{name}-free"));
        run.at(&format!("{name}-closed"));
        run.shows_closed(&file, 1);
        run.go(&format!("{name}-closed"));
    }
    run.at("replaced");
    run.shows_closed("folder.h5", 2);
    assert!(!run.path("folder.h5.subfiles/folder.h5.0").exists());
    run.go("replaced");
    run.at("hinted");
    assert!(!run.path("hinted.h5").exists());
    run.shows_closed("many.h5", 1);
    run.go("hinted");
    run.job.succeed();
}

// --- programs that are wrong ---------------------------------------------------------------------

pub fn programs_that_are_wrong(nodes: u32) {
    let Some(place) = Place::of(nodes).filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&place, "misuse", dir.path());
    run.at("refused");
    // Six flushes without the refused writes, six more, and that of the close.
    run.shows_closed("refused.h5", 13);
    run.go("refused");
    run.at("buffer");
    run.shows_closed("buffer.h5", 6);
    let mounted = Mounted::new(dir.path(), "");
    let file = hdf5::File::open(mounted.join("buffer.h5")).unwrap();
    for name in ["wide", "lent"] {
        let elements = file.dataset(name).unwrap().read_raw::<u64>().unwrap();
        assert!(elements.into_iter().eq(0..4 * COLUMNS), "{name}");
    }
    drop((file, mounted));
    run.go("buffer");
    run.at("different-options");
    assert!(!run.path("different-options.h5").exists());
    run.go("different-options");
    run.at("closed");
    run.shows_closed("closed.h5", 1);
    run.go("closed");
    run.job.succeed();
}

/// A program learns later about the faults of automatic flushes.
pub fn flushes_that_are_not_asked_for() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&Place::Here, "unasked", dir.path());
    run.at("unasked");
    run.shows("unasked.h5", 1);
    run.go("unasked");
    run.at("asked");
    run.shows("unasked.h5", 3);
    run.go("asked");
    run.at("closed");
    run.shows_closed("unasked.h5", 3);
    run.go("closed");
    run.job.succeed();
}

/// Objects that differ between ranks end the flushes, but lose nothing flushed. Attributes that differ are left out.
pub fn definitions_that_differ(nodes: u32) {
    let Some(place) = Place::of(nodes).filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&place, "differences", dir.path());
    run.at("different");
    let unclosed = ["name", "order", "extent", "dims", "filter", "more"]
        .map(|name| format!("different-{name}.h5"));
    unclosed.iter().for_each(|name| run.shows(name, 1));
    run.shows("dying.h5", 2);
    run.shows_closed("late.h5", 1);
    run.shows_closed("attributes.h5", 5);
    assert_eq!(run.job.said(), "");
    run.job.kill();
    // All of them can be closed after the job has ended.
    let command = |arguments: &[&Path]| {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    };
    for name in unclosed.iter().map(String::as_str).chain(["dying.h5"]) {
        command(&[Path::new("recover"), &run.path(name)]);
        run.shows_closed(name, if name == "dying.h5" { 2 } else { 1 });
    }
    // The file lacks exactly what was left out.
    let attributes = |name: &str, object: &str| {
        let exported = run.path("exported.h5");
        command(&[Path::new("export"), &run.path(name), &exported]);
        let file = hdf5::File::open(&exported).unwrap();
        let names = match object {
            "/" => file.attr_names(),
            dataset => file.dataset(dataset).unwrap().attr_names(),
        };
        let mut names = names.unwrap();
        names.sort();
        drop(file);
        fs::remove_file(exported).unwrap();
        names
    };
    assert_eq!(
        attributes("attributes.h5", "/"),
        ["ended", "started", "title"]
    );
    assert_eq!(attributes("attributes.h5", "/rows"), ["units"]);
    assert_eq!(attributes("dying.h5", "/"), [""; 0]);
    assert_eq!(attributes("different-more.h5", "/"), [""; 0]);
}

// --- several files -------------------------------------------------------------------------------

pub fn several_files_at_once(nodes: u32) {
    let Some(place) = Place::of(nodes).filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&place, "several", dir.path());
    run.at("half");
    for name in ["half-0.h5", "half-1.h5"] {
        run.shows_of(RANKS / 2, name, 4);
        assert!(!run.journal(name).exists());
    }
    run.shows("all.h5", 4);
    run.go("half");
    run.at("all");
    run.shows_closed("all.h5", 4);
    run.go("all");
    run.job.succeed();
}

// --- closes that fail ----------------------------------------------------------------------------

pub fn closes_that_fail(nodes: u32) {
    let Some(place) = Place::of(nodes).filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::start(&place, "close", dir.path());
    for name in ["small", "large"] {
        let file = format!("{name}.h5");
        let (limited, closed) = (format!("{name}-limited"), format!("{name}-closed"));
        run.at(&limited);
        run.shows(&file, 1);
        run.go(&limited);
        run.at(&closed);
        run.shows_closed(&file, 1);
        run.go(&closed);
    }
    run.job.succeed();
}
