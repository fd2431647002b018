//! What a layout does: it reads record tables, and makes records of their entries.

use std::fmt::Debug;
use std::ops::Range;

use crate::flat::Flat;
use crate::model::{Logged, Selections};
use crate::origins::Origins;
use crate::records::RecordList;
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;

/// A way to lay out a log.
pub trait Layout: Debug + Send + Sync {
    /// As `h5logfs inspect` names it.
    fn name(&self) -> &'static str;

    /// Where the bytes of the canonical file lie, of a layout that has them as they are. There are no records then.
    fn flat(&self) -> Option<&Flat> {
        None
    }

    /// Reads the record tables. Cost and memory grow with the number of entries, not of their blocks.
    /// Damage is not an error here: see [`RecordTable::diagnostics`].
    ///
    /// Fails where the files cannot be read, where there is no memory, and where `task` stops.
    fn read_tables(
        &self,
        task: &Task,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault>;

    /// The same, with the records of the dataset `wanted`, if there is one, as [`RecordTable::records`] has them, where they can be
    /// had on the way.
    fn read_tables_for(
        &self,
        task: &Task,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
        _wanted: Option<&Logged<'_>>,
    ) -> Result<(Box<dyn RecordTable>, Option<DatasetRecords>), Fault> {
        Ok((self.read_tables(task, sources, datasets)?, None))
    }

    /// How many rows along its first dimension a *strip* of a dataset has: the records of some rows can be had without those of
    /// others, and none lies in two rows. `None`: there are no strips. `dataset`: the layout's own number of it.
    fn strip(&self, _dataset: i64) -> Option<u64> {
        None
    }

    /// Bytes of the record tables in their files.
    fn tables_len(&self, sources: &[SourceFile]) -> u64;

    /// The same log, with its record tables where an append to the closed log leaves them; `None` where it leaves none of them.
    fn after_append(
        &self,
        _: &Task,
        _: &[SourceFile],
    ) -> Result<Option<Reserved<Box<dyn Layout>>>, Fault> {
        Ok(None)
    }

    /// How the records of each dataset may tile it. This walks through the tables once.
    fn tilings(&self, sources: &[SourceFile]) -> Tilings;

    /// Which process wrote which data, and in which flush, as far as the log tells. This may walk through the tables
    /// once.
    fn origins(&self, _: &Task, _: &[SourceFile]) -> Origins {
        Origins::default()
    }
}

/// The entries of a log, by dataset.
pub trait RecordTable: Send + Sync + Debug {
    /// What is wrong with the tables. [`Severity::Unreadable`](h5logfs_common::diagnostic::Severity) is damage that
    /// may hide entries of any dataset: no element of the log can be read then.
    fn diagnostics(&self) -> &[Diagnostic];

    /// Decodes the records of one dataset. `selections`: those of the log that are in use already. Fails
    /// as [`Layout::read_tables`] does.
    fn records(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
    ) -> Result<DatasetRecords, Fault>;

    /// The same of some rows of a dataset that has [strips](Layout::strip). There may be others among them.
    fn records_of_rows(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
        _rows: Range<u64>,
    ) -> Result<DatasetRecords, Fault> {
        self.records(task, sources, dataset, selections)
    }

    /// Number of entries of all datasets, also of those that cover nothing or cannot be decoded.
    fn entries(&self) -> usize;

    /// Memory held, in bytes.
    fn bytes(&self) -> usize;

    /// From now on its memory counts for no user, because a cache keeps it.
    fn release_share(&self);
}

/// All records of one dataset.
#[derive(Debug)]
pub struct DatasetRecords {
    /// In the order in which they apply. Later ones override earlier ones.
    pub records: RecordList,
    /// Of [`Severity::Unreadable`](h5logfs_common::diagnostic::Severity): entries whose selection is unknown. They
    /// may concern any element of the dataset.
    pub diagnostics: Vec<Diagnostic>,
    /// Bytes of selections that no other dataset had decoded before.
    pub decoded: usize,
}

/// Diagnostics of one dataset that are kept. One is enough to make it unreadable; the others are for a person to read.
const MOST_DIAGNOSTICS: usize = 100;

impl DatasetRecords {
    /// No records of a dataset of this rank.
    pub fn none(task: &Task, rank: usize) -> Result<Self, Fault> {
        Ok(DatasetRecords {
            records: RecordList::new(task, rank, 0)?,
            diagnostics: Vec::new(),
            decoded: 0,
        })
    }

    /// Adds a diagnostic, unless there are many already.
    pub fn add_diagnostic(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < MOST_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        }
    }
}
