//! The interface of a layout: it reads record tables, and makes records of their entries.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

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

/// A layout of logs.
pub trait Layout: Debug + Send + Sync {
    /// The name of the layout in the output of `h5logfs inspect`.
    fn name(&self) -> &'static str;

    /// Lines about the log with these files in the output of `h5logfs inspect`.
    fn facts(&self, _files: &[&Path]) -> Vec<String> {
        Vec::new()
    }

    /// The places of the bytes of the canonical file, for a layout that stores them unchanged. Such a log has no
    /// records.
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

    /// Reads the record tables as [`Layout::read_tables`] does. If `wanted` is a dataset whose records can be made on
    /// the way, they are returned as well, as [`RecordTable::records`] makes them.
    fn read_tables_for(
        &self,
        task: &Task,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
        _wanted: Option<&Logged<'_>>,
    ) -> Result<(Box<dyn RecordTable>, Option<DatasetRecords>), Fault> {
        Ok((self.read_tables(task, sources, datasets)?, None))
    }

    /// The number of rows of a *strip* of a dataset, along its first dimension. The records of a strip can be read
    /// without those of other strips, and none lies in two strips. `None` where the dataset has no strips. `dataset`:
    /// the layout's own number of it.
    fn strip(&self, _dataset: i64) -> Option<u64> {
        None
    }

    /// Whether the records of each row along the first dimension are those of the others, in other places of the log. A picture of
    /// one row then tells that of all.
    fn has_equal_rows(&self, _dataset: i64) -> bool {
        false
    }

    /// Bytes of the record tables in their files.
    fn tables_len(&self, sources: &[SourceFile]) -> u64;

    /// The layout with the record tables that the extents of a closed log hold. An append to the log replaces the other
    /// copy and leaves these in place. `None` where the extents hold none.
    fn after_append(
        &self,
        _: &Task,
        _: &[SourceFile],
    ) -> Result<Option<Reserved<Box<dyn Layout>>>, Fault> {
        Ok(None)
    }

    /// How the records of each dataset may tile it. This walks through the tables once.
    fn tilings(&self, sources: &[SourceFile]) -> Tilings;

    /// The process and the flush of each piece of data, as far as the log records them. This may walk through the
    /// tables once.
    fn origins(&self, _: &Task, _: &[SourceFile]) -> Origins {
        Origins::default()
    }
}

/// The entries of a log, by dataset.
pub trait RecordTable: Send + Sync + Debug {
    /// Problems of the tables. Damage of [`Severity::Unreadable`](h5logfs_common::diagnostic::Severity) may hide
    /// entries of any dataset: no element of the log can be read then.
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

    /// The records of some rows of a dataset that has [strips](Layout::strip). The list may include records of other
    /// rows.
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

    /// Stops counting the memory as a user's, because a cache keeps the table.
    fn release_share(&self);
}

/// All records of one dataset.
#[derive(Debug)]
pub struct DatasetRecords {
    /// The records in the order in which they apply. Later ones override earlier ones.
    pub records: RecordList,
    /// Problems of [`Severity::Unreadable`](h5logfs_common::diagnostic::Severity): entries with an unknown selection.
    /// They may concern any element of the dataset.
    pub diagnostics: Vec<Diagnostic>,
    /// Bytes of selections that no other dataset had decoded before.
    pub decoded: usize,
}

/// Largest number of diagnostics kept for one dataset. One is enough to make it unreadable; the others are for people.
const MOST_DIAGNOSTICS: usize = 100;

impl DatasetRecords {
    /// An empty list for a dataset of this rank.
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
