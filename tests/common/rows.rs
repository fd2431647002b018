//! A job that writes a log with the writer's code. Its ranks are threads of this process, possibly on different
//! nodes. It makes many flushes and failed attempts.

use std::path::{Path, PathBuf};
use std::thread;

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::datatype::Datatype;
use h5logfs_log::journal::definition::{DatasetLayout, Definition};
use h5logfs_log::journal::{Line, Recorded};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_objects::defined::metadata_image;
use h5logfs_output::automatic::Cause;
use h5logfs_output::entries::DatasetInfo;
use h5logfs_output::files::Files;
use h5logfs_output::log_writer::{LogWriter, Part};
use h5logfs_output::stored::Form;
use h5logfs_output::{Base, Blocks, LocalOutcome, Options, Ranks, Result};
use h5logfs_scan::reopened::ClosedLog;

use super::element::{ANOTHER, WIDTH, attribute, element};
use super::team::team;

/// The job and its log. `/rows` has a row for each flush, and each flush overwrites `/now`. The root group has an
/// attribute for each flush.
pub struct Job {
    ranks: Vec<Rank>,
    options: Options,
    pub flushes: u64,
}

struct Rank {
    number: u32,
    /// Added to flush numbers in elements.
    salt: u64,
    writer: LogWriter,
}

/// The course of a flush.
#[derive(Debug, Clone, Copy, Default)]
pub struct Course {
    /// Ranks write a part before the flush.
    pub spills: bool,
    /// The first attempt fails after all ranks have written.
    pub fails_first: bool,
}

impl Job {
    /// Creates the log. `paths` has the path at which each rank sees it.
    pub fn create(paths: &[PathBuf], options: &Options) -> Self {
        let create = |path: &Path, ranks: &Ranks| Files::create(path, ranks, options);
        Self::begin(paths, options, create).unwrap()
    }

    /// Creates the log with ranks that do not read, and whose entries leave the memory.
    pub fn create_as_writer(paths: &[PathBuf], options: &Options) -> Self {
        let create = |path: &Path, ranks: &Ranks| Files::create(path, ranks, options);
        Self::begin_as(paths, options, create, LogWriter::new).unwrap()
    }

    /// The job dies, and another one replaces its log. `paths` has the path at which each rank sees it.
    pub fn replace(self, paths: &[PathBuf]) -> Self {
        let options = Options {
            overwrite: true,
            discard_unclosed: true,
            ..self.options.clone()
        };
        self.die();
        Self::create(paths, &options)
    }

    /// Reopens the log after the death of a job.
    pub fn append(paths: &[PathBuf], options: &Options) -> Self {
        let base = |recorded: Option<&Recorded>| base_of_journal(recorded.unwrap());
        let append = |path: &Path, ranks: &Ranks| Files::append(path, ranks, options, base);
        Self::begin(paths, options, append).unwrap()
    }

    /// Reopens a closed log. Fails where it cannot be read.
    pub fn append_to_closed(paths: &[PathBuf], options: &Options) -> Result<Self> {
        let append = |path: &Path, ranks: &Ranks| {
            Files::append(path, ranks, options, |recorded| {
                assert!(recorded.is_none());
                base_of_closed(path)
            })
        };
        Self::begin(paths, options, append)
    }

    /// Reopens a log, closed or not, whose elements are those of flush `flush`. Elements of later flushes continue
    /// from there.
    pub fn reopen(paths: &[PathBuf], options: &Options, flush: u64) -> Result<Self> {
        let append = |path: &Path, ranks: &Ranks| {
            Files::append(path, ranks, options, |recorded| match recorded {
                Some(recorded) => base_of_journal(recorded),
                None => base_of_closed(path),
            })
        };
        let mut job = Self::begin(paths, options, append)?;
        job.flushes = flush % ANOTHER;
        let salt = flush - job.flushes;
        job.ranks.iter_mut().for_each(|rank| rank.salt = salt);
        Ok(job)
    }

    fn begin(
        paths: &[PathBuf],
        options: &Options,
        open: impl Fn(&Path, &Ranks) -> Result<Files> + Sync,
    ) -> Result<Self> {
        Self::begin_as(paths, options, open, LogWriter::with_reads)
    }

    fn begin_as(
        paths: &[PathBuf],
        options: &Options,
        open: impl Fn(&Path, &Ranks) -> Result<Files> + Sync,
        begin: fn(Ranks, Files, Options) -> LogWriter,
    ) -> Result<Self> {
        let members = team(paths.len() as u32).into_iter();
        let ranks: Result<Vec<Rank>> = thread::scope(|scope| {
            let begun: Vec<_> = members
                .zip(paths)
                .zip(0..)
                .map(|((member, path), number)| {
                    let open = &open;
                    scope.spawn(move || {
                        let ranks = Ranks::new(member);
                        let files = open(path, &ranks)?;
                        let writer = begin(ranks, files, options.clone());
                        Ok(Rank {
                            number,
                            salt: 0,
                            writer,
                        })
                    })
                })
                .collect();
            begun.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let ranks = ranks?;
        Ok(Job {
            flushes: ranks[0].writer.files().flushes(),
            ranks,
            options: options.clone(),
        })
    }

    fn on_all<T: Send>(&mut self, act: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let act = &act;
            let acting: Vec<_> = self
                .ranks
                .iter_mut()
                .map(|rank| scope.spawn(move || act(rank)))
                .collect();
            acting
                .into_iter()
                .map(|rank| rank.join().unwrap())
                .collect()
        })
    }

    /// Writes the next row and flushes.
    pub fn flush(&mut self, course: Course) {
        self.write(course);
        assert!(self.commit());
    }

    /// Writes the next row.
    pub fn write(&mut self, course: Course) {
        let total = self.ranks.len() as u64 * WIDTH;
        let flush = self.flushes + 1;
        self.on_all(|rank| {
            rank.write(flush, total, course.spills);
            if course.fails_first {
                assert!(!rank.try_flush(Vec::new(), rank.number == 0));
                rank.log(1, &[total], &[0], &[], &[]);
                rank.write(flush, total, false);
            }
        });
    }

    /// Spills what ranks have written, without a flush.
    pub fn spill(&mut self) {
        self.on_all(|rank| rank.writer.spill(&[]).unwrap());
    }

    /// Flushes what was written. Returns whether the flush is complete, on which all ranks agree.
    pub fn commit(&mut self) -> bool {
        let total = self.ranks.len() as u64 * WIDTH;
        let flush = self.flushes + 1;
        let done = self.on_all(|rank| {
            let lines = rank.lines(flush, total);
            rank.try_flush(lines, false)
        });
        let is_done = done[0];
        assert!(done.into_iter().all(|done| done == is_done));
        self.flushes += u64::from(is_done);
        is_done
    }

    /// Ends the job without closing the log, and releases everything.
    pub fn leave(self) {
        thread::scope(|scope| {
            for rank in self.ranks {
                scope.spawn(move || drop(rank.writer.close()));
            }
        });
    }

    /// All ranks write, and the job dies before the commit.
    pub fn die(mut self) {
        let total = self.ranks.len() as u64 * WIDTH;
        let flush = self.flushes + 1;
        self.on_all(|rank| {
            rank.write(flush + 1000, total, true);
            rank.write(flush + 1000, total, false);
            assert!(!rank.try_flush(Vec::new(), true));
        });
    }
}

/// The base of a job that reopens an unclosed log.
fn base_of_journal(recorded: &Recorded) -> std::result::Result<Base, Fault> {
    Base::of_journal(recorded, Vec::new())?.onto(&*metadata_image(recorded)?)
}

/// The base of a job that reopens a closed log.
fn base_of_closed(path: &Path) -> std::result::Result<Base, Fault> {
    let (dir, name) = SourceDir::of_file(path)?;
    let log = ClosedLog::read(&dir, &name)?;
    Base::of_closed(&dir, &log.sources, &log.tables, Vec::new())?.onto(&log.image)
}

impl Rank {
    fn log(&mut self, dataset: u32, dims: &[u64], start: &[u64], count: &[u64], values: &[f64]) {
        if values.is_empty() {
            return;
        }
        let max: Vec<_> = dims.iter().map(|_| None).collect();
        let info = DatasetInfo::new(dataset, dims, &max);
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let form = Form {
            element: 8,
            chunk: None,
            filters: &[],
        };
        let blocks = Blocks::one(start, count);
        self.writer.push(info, form, &blocks, bytes.into()).unwrap();
    }

    fn write(&mut self, flush: u64, total: u64, spills: bool) {
        let begin = u64::from(self.number) * WIDTH;
        let values: Vec<f64> = (begin..begin + WIDTH)
            .map(|column| element(self.salt + flush, column))
            .collect();
        let row = flush - 1;
        self.log(0, &[flush, total], &[row, begin], &[1, WIDTH], &values);
        if spills {
            self.writer.spill(&[]).unwrap();
        }
        self.log(1, &[total], &[begin], &[WIDTH], &values);
    }

    fn lines(&self, flush: u64, total: u64) -> Vec<Line> {
        if self.number > 0 {
            return Vec::new();
        }
        let dataset = |path: &str, dims: &[u64], chunk: &[u64]| Definition::Dataset {
            path: path.into(),
            layout: Box::new(DatasetLayout {
                max_dims: vec![None; dims.len()],
                chunk: Some(chunk.to_vec()),
                ..DatasetLayout::fixed(Datatype::float(8), dims)
            }),
        };
        let mut lines = vec![Definition::Attribute {
            object: "/".into(),
            name: attribute(flush),
            value: (self.salt + flush).into(),
        }];
        if flush == 1 {
            lines.push(dataset("/rows", &[0, total], &[1, total]));
            lines.push(dataset("/now", &[total], &[total]));
        }
        lines.push(Definition::Extent {
            dataset: 0,
            dims: vec![flush, total],
        });
        lines.into_iter().map(Line::Define).collect()
    }

    /// Writes the extent of this rank; the first rank commits. Returns whether the flush is complete.
    fn try_flush(&mut self, lines: Vec<Line>, fails: bool) -> bool {
        let part = Part {
            data: Some(&[]),
            outcome: if fails {
                LocalOutcome::Failed("the test wants it".into())
            } else {
                LocalOutcome::Good
            },
            cause: Cause::Asked,
            same: 0,
            numbers: Vec::new(),
        };
        self.writer.flush(part, |_| Ok(Some(lines))).is_ok()
    }
}
