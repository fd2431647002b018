//! Unflushed data after the death of a job. It is reported, kept, included, shown or discarded, as the user wants.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_log::journal::kept::path_of_kept;
use h5logfs_log::journal::unflushed::Summary;
use h5logfs_log::journal::{self, Unflushed};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::names::spill_dir;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_output::files::Files;
use h5logfs_output::{Options, Ranks, Subfiles};
use h5logfs_scan::closing::{
    Asked, Did, Handled, How, KeptFile, KeptState, Outcome, Unflushing, recover,
};
use h5logfs_scan::scan;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use tempfile::TempDir;

use crate::common::element::{WIDTH, attribute, element};
use crate::common::encoder::read_whole;
use crate::common::rows::{Course, Job};

/// The files into which ranks write on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A single rank, into the data file.
    Alone,
    /// Two ranks on different nodes, into spill files.
    Nodes,
    /// Two ranks of the writer. Their entries leave the memory.
    Writer,
    /// Two ranks, each into a subfile.
    Subfiles,
}

const WAYS: [Way; 4] = [Way::Alone, Way::Nodes, Way::Writer, Way::Subfiles];

impl Way {
    fn ranks(self) -> usize {
        if self == Way::Alone { 1 } else { 2 }
    }

    fn columns(self) -> u64 {
        self.ranks() as u64 * WIDTH
    }

    fn begin(self, path: &Path, checksums: bool) -> Job {
        let options = Options {
            subfiles: match self {
                Way::Subfiles => Subfiles::Number(2),
                _ => Subfiles::None,
            },
            checksums,
            ..Options::default()
        };
        let paths = vec![path.to_owned(); self.ranks()];
        match self {
            Way::Writer => Job::create_as_writer(&paths, &options),
            _ => Job::create(&paths, &options),
        }
    }
}

/// A log of two flushes, after which each rank has written the third row and rewritten `/now`.
struct Left {
    dir: TempDir,
    way: Way,
}

impl Left {
    fn new(way: Way, checksums: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let left = Left { dir, way };
        let mut job = way.begin(&left.path(), checksums);
        (0..2).for_each(|_| {
            job.flush(Course {
                spills: true,
                ..Course::default()
            })
        });
        job.write(Course {
            spills: true,
            ..Course::default()
        });
        job.spill();
        job.leave();
        let is_apart = [Way::Nodes, Way::Writer].contains(&way);
        assert_eq!(spill_dir(&left.path()).exists(), is_apart);
        left
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("log.h5")
    }

    fn kept(&self) -> PathBuf {
        path_of_kept(&self.path(), 1)
    }

    fn bytes(&self) -> u64 {
        2 * self.way.columns() * 8
    }

    fn summary(&self) -> Summary {
        summary(&self.path())
    }

    fn recover(&self, unflushed: Unflushing) -> Outcome {
        let how = How {
            unflushed,
            ..How::default()
        };
        recover(&self.path(), how).unwrap()
    }

    /// The expected outcome of closing the log, with this state of the kept data beside it.
    fn closed(&self, state: KeptState) -> Outcome {
        let path = self.kept();
        Outcome::Closed(vec![KeptFile { path, state }])
    }

    /// The expected handling of unflushed data. The log has `flushes` flushes afterwards.
    fn handled(&self, unflushed: Unflushing, flushes: u64) -> Handled {
        match self.recover(unflushed) {
            Outcome::Recovered(recovered) => {
                assert_eq!(recovered.flushes, flushes, "{:?}", self.way);
                assert!(!spill_dir(&self.path()).exists());
                recovered.unflushed.unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the log shows these flushes and rows. `/now` must have the values of the last row.
    fn shows(&self, flushes: u64, rows: u64, settings: &Settings) {
        let bytes = view(&self.path(), settings);
        let copy = self.dir.path().join("copy.h5");
        fs::write(&copy, bytes).unwrap();
        let file = hdf5::File::open(&copy).unwrap();
        for flush in 1..4 {
            assert_eq!(file.attr(&attribute(flush)).is_ok(), flush <= flushes);
        }
        let columns = self.way.columns();
        let of = |flush| (0..columns).map(move |column| element(flush, column));
        let wanted: Vec<f64> = (1..=rows).flat_map(of).collect();
        let dataset = file.dataset("rows").unwrap();
        assert_eq!(dataset.shape(), [rows as usize, columns as usize]);
        assert!(
            dataset.read_raw::<f64>().unwrap() == wanted,
            "{:?}",
            self.way
        );
        let now: Vec<f64> = file.dataset("now").unwrap().read_raw().unwrap();
        assert!(now == of(rows).collect::<Vec<_>>(), "{:?}", self.way);
        fs::remove_file(copy).unwrap();
    }
}

fn summary(path: &Path) -> Summary {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    let file = SourceFile::open(&dir, &name).unwrap();
    let files = LogFiles::of(&dir, &name, &file);
    let (_, journal) = journal::of_file(&files, &file).unwrap().unwrap();
    Unflushed::of(&files, &journal, true).unwrap().summary()
}

fn view(path: &Path, settings: &Settings) -> Vec<u8> {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    let snapshot = scan(ScanRequest::alone(&dir, &name, settings)).unwrap();
    let budget = Budget::new(MemoryLimits::each(64 << 20));
    let view = View::open(&dir, snapshot, Arc::new(budget), None).unwrap();
    read_whole(&view).unwrap()
}

/// All files below a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn what_no_flush_covers_is_kept_and_can_be_taken_in_later() {
    for way in WAYS {
        let left = Left::new(way, false);
        let summary = left.summary();
        assert_eq!((summary.bytes, summary.ranks), (left.bytes(), way.ranks()));
        assert_eq!((summary.apart, summary.incomplete), (0, 0));
        left.shows(2, 2, &Settings::default());
        let kept = left.handled(Unflushing::Keep, 2);
        assert_eq!(
            (kept.summary, kept.did),
            (summary.clone(), Did::Kept(left.kept()))
        );
        left.shows(2, 2, &Settings::default());
        assert_eq!(
            left.recover(Unflushing::Keep),
            left.closed(KeptState::Waits)
        );
        let taken = left.handled(Unflushing::TakeIn, 3);
        let columns = way.columns();
        let grown = vec![format!("/rows grows from [2, {columns}] to [3, {columns}]")];
        assert_eq!(
            (taken.summary, taken.did),
            (summary, Did::TakenIn { grown, left: None })
        );
        left.shows(2, 3, &Settings::default());
        assert!(!left.kept().exists());
        assert_eq!(
            left.recover(Unflushing::TakeIn),
            Outcome::Closed(Vec::new())
        );
    }
}

/// A second run completes an interrupted one.
#[test]
fn the_taking_in_of_what_was_kept_may_be_interrupted() {
    for way in WAYS {
        let left = Left::new(way, false);
        let journal_path = journal::path_of(&left.path());
        let journal = fs::read(&journal_path).unwrap();
        left.handled(Unflushing::Keep, 2);
        let kept = fs::read(left.kept()).unwrap();
        // The journal is back, and the log is still closed.
        fs::write(journal_path, journal).unwrap();
        left.handled(Unflushing::TakeIn, 3);
        left.shows(2, 3, &Settings::default());
        // The data are in the log, and in the kept file or its remains.
        let mut damaged = kept.clone();
        damaged[120..200].fill(b'?');
        fs::write(left.kept(), damaged).unwrap();
        let closed = left.closed(KeptState::Damaged);
        assert_eq!(left.recover(Unflushing::Keep), closed);
        fs::write(left.kept(), kept).unwrap();
        let closed = left.closed(KeptState::TakenIn { rest: false });
        assert_eq!(left.recover(Unflushing::Keep), closed);
        let removed = Outcome::Discarded(vec![left.kept()]);
        assert_eq!(left.recover(Unflushing::TakeIn), removed, "{way:?}");
        left.shows(2, 3, &Settings::default());
    }
}

#[test]
fn what_no_flush_covers_is_taken_in_shown_or_thrown_away() {
    let shown = Settings {
        unflushed: true,
        ..Settings::default()
    };
    for (way, checksums) in WAYS.into_iter().zip([true, false, false, true]) {
        let left = Left::new(way, checksums);
        left.shows(2, 3, &shown);
        let before = files(left.dir.path());
        for unflushed in [Unflushing::Keep, Unflushing::TakeIn, Unflushing::Discard] {
            let how = How {
                unflushed,
                asked: Asked::Tell,
                ..How::default()
            };
            let Outcome::Recovered(told) = recover(&left.path(), how).unwrap() else {
                panic!("{way:?}");
            };
            assert_eq!(told.unflushed.unwrap().summary, left.summary());
            assert!(files(left.dir.path()) == before, "{way:?}, {unflushed:?}");
        }
        left.handled(Unflushing::TakeIn, 3);
        left.shows(2, 3, &Settings::default());
        let left = Left::new(way, checksums);
        assert_eq!(left.handled(Unflushing::Discard, 2).did, Did::Discarded);
        left.shows(2, 2, &Settings::default());
        assert!(!left.kept().exists());
        // Kept data can be discarded later, too.
        let left = Left::new(way, checksums);
        left.handled(Unflushing::Keep, 2);
        let removed = Outcome::Discarded(vec![left.kept()]);
        assert_eq!(left.recover(Unflushing::Discard), removed);
        assert!(!left.kept().exists());
    }
}

#[test]
fn a_job_that_goes_on_keeps_it_and_one_that_replaces_the_log_is_refused() {
    for way in WAYS {
        let left = Left::new(way, false);
        let paths = vec![left.path(); way.ranks()];
        let mut job = Job::append(&paths, &Options::default());
        assert!(left.kept().exists() && !spill_dir(&left.path()).exists());
        job.flush(Course::default());
        job.leave();
        // The log has continued.
        assert!(matches!(
            left.recover(Unflushing::TakeIn),
            Outcome::Recovered(_)
        ));
        left.shows(3, 3, &Settings::default());
        let (follows, last) = (2, 3);
        let closed = left.closed(KeptState::Late { follows, last });
        assert_eq!(left.recover(Unflushing::Keep), closed);
        let how = How {
            unflushed: Unflushing::TakeIn,
            ..How::default()
        };
        let refused = recover(&left.path(), how).unwrap_err().to_string();
        let words = "has gone on since, to flush 3";
        assert!(refused.contains(words), "{refused}");
        left.shows(3, 3, &Settings::default());
    }
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let left = Left { dir, way };
        let mut job = way.begin(&left.path(), false);
        job.write(Course::default());
        job.spill();
        job.leave();
        let create = |discard| {
            let options = Options {
                overwrite: true,
                discard_unclosed: discard,
                ..Options::default()
            };
            let created = Files::create(&left.path(), &Ranks::one(), &options);
            created.map(drop).map_err(|e| e.to_string())
        };
        let refused = create(false).unwrap_err();
        assert!(refused.contains("that no flush covers"), "{refused}");
        assert_eq!(left.summary().ranks, way.ranks());
        create(true).unwrap();
        assert!(left.summary().is_empty() && !spill_dir(&left.path()).exists());
    }
}

/// Nothing after an incomplete extent counts, except extents of other ranks.
#[test]
fn what_is_not_whole_does_not_count() {
    let damaged = |way, at_rank: u32, number: usize| {
        let left = Left::new(way, false);
        let (dir, name) = SourceDir::of_file(&left.path()).unwrap();
        let file = SourceFile::open(&dir, &name).unwrap();
        let files = LogFiles::of(&dir, &name, &file);
        let (_, journal) = journal::of_file(&files, &file).unwrap().unwrap();
        let found = Unflushed::of(&files, &journal, true).unwrap();
        let extent = &found.ranks[&at_rank][number];
        let path = found.files[extent.file].file.path().to_owned();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(b"!", extent.loose.place.bytes().end - 3)
            .unwrap();
        left
    };
    let own = WIDTH * 8;
    for way in WAYS {
        let left = damaged(way, 0, 1);
        let summary = left.summary();
        assert_eq!(
            (summary.bytes, summary.apart),
            (left.bytes() - own, 0),
            "{way:?}"
        );
        assert!(summary.incomplete > own);
        let left = damaged(way, 0, 0);
        let summary = left.summary();
        assert_eq!(
            (summary.bytes, summary.apart),
            (left.bytes() - 2 * own, own)
        );
        assert_eq!(summary.ranks, way.ranks() - 1);
        // The first rank has not written the third row.
        let taken = left.recover(Unflushing::TakeIn);
        let Outcome::Recovered(taken) = taken else {
            panic!("{taken:?}");
        };
        let Some(Handled {
            did: Did::TakenIn { left: apart, .. },
            ..
        }) = taken.unflushed
        else {
            panic!("{taken:?}");
        };
        assert_eq!(apart, Some(left.kept()));
        assert!(left.kept().exists());
    }
}

#[test]
fn what_belongs_to_nothing_that_was_flushed_is_told_and_kept() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let left = Left { dir, way };
        let mut job = way.begin(&left.path(), false);
        job.write(Course::default());
        job.spill();
        job.leave();
        let summary = left.summary();
        assert_eq!((summary.bytes, summary.ranks), (left.bytes(), way.ranks()));
        assert!(summary.unknown_datasets.iter().eq(&[0, 1]));
        let taken = left.handled(Unflushing::TakeIn, 0);
        let grown = Vec::new();
        let wanted = Did::TakenIn {
            grown,
            left: Some(left.kept()),
        };
        assert_eq!(taken.did, wanted);
        let closed = left.closed(KeptState::TakenIn { rest: true });
        assert_eq!(left.recover(Unflushing::Keep), closed);
        assert_eq!(left.recover(Unflushing::TakeIn), closed);
    }
}
