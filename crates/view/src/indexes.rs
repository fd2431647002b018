//! The record tables of a log and the indexes of its datasets: read once, then kept in memory, and on disk
//! where they are large.

use std::ops::Range;
use std::sync::Arc;

use super::cache::Part;
use super::{ChunkId, View, check_limit};
use crate::index::DatasetIndex;
use crate::index::saved::{IndexInputs, Strip};
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::origins::Origins;
use h5logfs_log::snapshot::Dataset;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::{DatasetRecords, Logged, RecordTable};

/// Bytes of an index that is worth keeping on disk. A smaller index, of a log with smaller tables, takes a millisecond
/// or two to make, as long as to read.
const WORTH_SAVING: usize = 256 << 10;
/// Bytes of record tables from which the index of a strip is worth keeping, too.
const LONG: u64 = 4 << 20;

/// An index that still has to be kept on disk.
#[derive(Debug)]
pub(super) struct Unkept {
    number: usize,
    strip: Option<Strip>,
    index: Arc<DatasetIndex>,
}

/// The record tables of a view, and the indexes of its datasets.
#[derive(Debug, Clone, Copy)]
pub struct Indexes<'a> {
    view: &'a View,
}

impl<'a> Indexes<'a> {
    #[inline]
    pub(super) fn new(view: &'a View) -> Self {
        Indexes { view }
    }

    /// The index of a logged dataset, which finds the records that touch a chunk. Fails where the dataset was not
    /// logged, or where the record tables are not readable.
    pub fn of(self, number: usize) -> Result<Arc<DatasetIndex>> {
        self.of_dataset(&self.view.task(None), number)
    }

    /// [`Indexes::of`] as part of `task`.
    pub(super) fn of_dataset(self, task: &Task, number: usize) -> Result<Arc<DatasetIndex>> {
        let index = self.first(task, number);
        self.keep(task);
        index
    }

    /// [`Indexes::of_dataset`] that keeps nothing on disk yet. The caller calls [`Indexes::keep`] when the reader has
    /// its elements, or in parallel.
    pub(super) fn first(self, task: &Task, number: usize) -> Result<Arc<DatasetIndex>> {
        task.retry(|| self.try_index(task, number, None))
    }

    /// An index with all records of a chunk.
    pub(super) fn of_chunk(self, task: &Task, id: ChunkId) -> Result<Arc<DatasetIndex>> {
        let ChunkId { dataset, number } = id;
        let Some(rows) = self.strip_rows(dataset) else {
            return self.of_dataset(task, dataset);
        };
        // No chunk lies in two strips.
        let origin = self.view.grid(dataset).origin(number);
        let strip = Strip::with(origin.first().copied().unwrap_or(0), rows);
        let index = task.retry(|| self.of_strip(task, dataset, strip));
        self.keep(task);
        index
    }

    /// Whether indexes wait for [`Indexes::keep`].
    pub fn has_unkept(self) -> bool {
        !self.view.unkept.lock().is_empty()
    }

    /// Keeps indexes on disk for other readers of this state of the log. An index that cannot be kept there is dropped.
    pub fn keep(self, task: &Task) {
        let Some(entry) = &self.view.saved else {
            return;
        };
        let next = || self.view.unkept.lock().pop();
        while let Some(Unkept {
            number,
            strip,
            index,
        }) = next()
        {
            if let Ok(logged) = self.logged(number) {
                let inputs = IndexInputs {
                    number,
                    strip,
                    dataset: &logged,
                    sources: &self.view.sources,
                };
                index.save(task, entry, inputs);
            }
        }
    }

    /// An index with all records of a strip of a dataset. The caller keeps it as that of [`Indexes::first`].
    pub(super) fn of_strip(
        self,
        task: &Task,
        number: usize,
        strip: Strip,
    ) -> Result<Arc<DatasetIndex>> {
        match self
            .view
            .budget
            .known_index(self.view.generation, number as u32)
        {
            Some(all) => Ok(all),
            None => self.try_index(task, number, Some(strip)),
        }
    }

    /// Number of rows of a strip of a dataset, which are whole chunks. `None` where the dataset has no strips, or only
    /// one.
    pub(super) fn strip_rows(self, number: usize) -> Option<u64> {
        let dataset = &self.view.snapshot.datasets[number];
        let rows = self
            .view
            .snapshot
            .log
            .layout()
            .strip(dataset.logged()?.id)?;
        let chunk = self.view.grid(number).chunk.first()?;
        let rows = rows.max(1).checked_next_multiple_of(*chunk)?;
        (rows < *dataset.dims.first()?).then_some(rows)
    }

    fn try_index(
        self,
        task: &Task,
        number: usize,
        strip: Option<Strip>,
    ) -> Result<Arc<DatasetIndex>> {
        let logged = self.logged(number)?;
        let inputs = IndexInputs {
            number,
            strip,
            dataset: &logged,
            sources: &self.view.sources,
        };
        let part = Part::Index(self.view.generation, number, strip);
        let key = (number as u32, strip);
        self.view.budget.index(task, self.view.generation, key, || {
            let tried = self.view.budget.check_not_too_long(part);
            tried.map_err(|fault| self.view.bad_data(number, "all of it".into(), fault))?;
            let saved = self.view.saved.as_ref();
            let load = |entry| DatasetIndex::load(task, entry, inputs, &self.view.selections);
            let (index, is_worth_keeping) = match saved.and_then(load) {
                Some(index) => (index, false),
                None => {
                    let made = self.make_index(task, inputs);
                    self.view.budget.remember_if_too_long(task, part);
                    made?
                }
            };
            self.check_index_memory("the index", index.bytes() as u64)
                .map_err(|fault| self.view.bad_data(number, "all of it".into(), fault))?;
            let index = Arc::new(index.unowned());
            if is_worth_keeping && self.view.saved.is_some() {
                self.view.unkept.lock().push(Unkept {
                    number,
                    strip,
                    index: Arc::clone(&index),
                });
            }
            Ok(index)
        })
    }

    /// Makes an index, and tells whether it is worth keeping on disk.
    fn make_index(self, task: &Task, inputs: IndexInputs<'_>) -> Result<(DatasetIndex, bool)> {
        self.with_tables(task, || self.make_index_once(task, inputs))
    }

    fn make_index_once(self, task: &Task, inputs: IndexInputs<'_>) -> Result<(DatasetIndex, bool)> {
        let wanted = inputs.strip.is_none().then_some(inputs.dataset);
        let (table, found) = self.table_for(task, wanted)?;
        let table = table.as_ref();
        let index = match found {
            Some(found) => DatasetIndex::build_of(task, found, table, inputs),
            None => DatasetIndex::build(task, table, inputs, &self.view.selections),
        };
        let index =
            index.map_err(|fault| self.view.bad_data(inputs.number, "all of it".into(), fault))?;
        let sources = inputs.sources;
        self.view.check_unchanged(0..sources.len())?;
        let is_worth_it = match inputs.strip {
            None => index.bytes_with_selections().max(table.bytes()) > WORTH_SAVING,
            Some(strip) => index.bytes() > WORTH_SAVING || self.tables_of(inputs, strip) > LONG,
        };
        Ok((index, is_worth_it))
    }

    /// Approximate bytes of the record tables that are read for a strip.
    fn tables_of(self, inputs: IndexInputs<'_>, strip: Strip) -> u64 {
        let all = self.view.snapshot.log.layout().tables_len(inputs.sources);
        let rows = inputs.dataset.dims.first().map_or(1, |rows| (*rows).max(1));
        (u128::from(all) * u128::from(strip.rows) / u128::from(rows)) as u64
    }

    /// Fails where tables do not match their checksums. This comes first, because anything read of a table is kept.
    fn check_tables(self, task: &Task) -> Result<()> {
        let _running = self.view.running(task);
        for (number, guard) in &self.view.guards {
            let source = &self.view.sources[*number];
            let checked = guard.check_table(source);
            checked.map_err(|fault| Error::of(source.path(), fault))?;
        }
        Ok(())
    }

    /// Runs `act`, which uses the record tables. If a program has opened the closed log again, it writes where the
    /// tables were, and `act` fails. It then runs once more, with the entries in the extents, of which the tables had
    /// copies.
    fn with_tables<T>(self, task: &Task, act: impl Fn() -> Result<T>) -> Result<T> {
        let was_moved = self.view.after_append.get().is_some();
        let outcome = act();
        if outcome.is_ok() || was_moved || !self.was_appended_to() {
            return outcome;
        }
        let tables = self
            .view
            .snapshot
            .log
            .layout()
            .after_append(task, &self.view.sources);
        match tables.map_err(|fault| Error::of(self.view.path(), fault))? {
            None => return outcome,
            // Another thread may have been faster.
            Some(tables) => drop(self.view.after_append.set(tables.unowned())),
        }
        act()
    }

    /// Whether the bytes behind the extents of the files are in another state by now.
    fn was_appended_to(self) -> bool {
        let has_changed = |file: &SourceFile| file.is_as_opened().is_ok_and(|is| !is);
        let mut lasting = self
            .view
            .sources
            .iter()
            .filter(|s| s.lasting_end().is_some());
        lasting.any(has_changed)
    }

    /// The record tables of the log.
    pub(super) fn table(self, task: &Task) -> Result<Arc<dyn RecordTable>> {
        let (table, _) = self.with_tables(task, || self.table_for(task, None))?;
        Ok(table)
    }

    /// [`Indexes::table`], with the records of `wanted` where they were found with it.
    fn table_for(
        self,
        task: &Task,
        wanted: Option<&Logged<'_>>,
    ) -> Result<(Arc<dyn RecordTable>, Option<DatasetRecords>)> {
        let mut found = None;
        let moved = self.view.after_append.get();
        let key = (self.view.generation, moved.is_some());
        let table = self.view.budget.table(task, key, || {
            let datasets = self.view.snapshot.datasets.iter();
            let logged: Vec<_> = datasets.filter_map(Dataset::logged).collect();
            let failed = |fault: Fault| Error::of(self.view.path(), fault);
            let layout = match moved {
                Some(layout) => &***layout,
                None => {
                    self.check_tables(task)?;
                    self.view.snapshot.log.layout()
                }
            };
            let read = layout.read_tables_for(task, &self.view.sources, &logged, wanted);
            let (table, records) = read.map_err(failed)?;
            self.view.check_unchanged(0..self.view.sources.len())?;
            self.check_index_memory("the list of records", table.bytes() as u64)
                .map_err(failed)?;
            table.release_share();
            found = records;
            Ok(Arc::from(table))
        })?;
        Ok((table, found))
    }

    /// Number of entries in the record tables of all datasets. An entry is a record, or covers nothing.
    pub fn entries(self, task: &Task) -> Result<usize> {
        task.retry(|| Ok(self.table(task)?.entries()))
    }

    /// Bytes of memory that the record tables take.
    pub(super) fn table_bytes(self, task: &Task) -> Result<usize> {
        task.retry(|| Ok(self.table(task)?.bytes()))
    }

    /// All records of a logged dataset, including those that later ones hide.
    pub fn records(self, number: usize) -> Result<DatasetRecords> {
        self.records_for(&self.view.task(None), number, None)
    }

    /// [`Indexes::records`] as part of `task`.
    /// With `rows`, only those of some rows.
    pub(super) fn records_for(
        self,
        task: &Task,
        number: usize,
        rows: Option<Range<u64>>,
    ) -> Result<DatasetRecords> {
        self.with_tables(task, || {
            let logged = self.logged(number)?;
            let (table, _) = self.table_for(task, None)?;
            let (sources, selections) = (&self.view.sources, &self.view.selections);
            let found = match rows.clone() {
                Some(rows) => table.records_of_rows(task, sources, &logged, selections, rows),
                None => table.records(task, sources, &logged, selections),
            };
            let found =
                found.map_err(|fault| self.view.bad_data(number, "all of it".into(), fault))?;
            self.view.check_unchanged(0..self.view.sources.len())?;
            Ok(found)
        })
    }

    fn logged(self, number: usize) -> Result<Logged<'a>> {
        let logged = self.view.snapshot.datasets[number].logged();
        logged.ok_or_else(|| {
            self.view
                .bad_data(number, "all of it".into(), "it was not logged")
        })
    }

    /// The process and the flush that wrote each piece of the log's data, as far as the log tells.
    pub fn origins(self) -> Result<Origins> {
        let layout = self.view.snapshot.log.layout();
        let origins = layout.origins(&self.view.task(None), &self.view.sources);
        self.view.check_unchanged(0..self.view.sources.len())?;
        Ok(origins)
    }

    /// Problems of the record tables, apart from those that make reads of datasets fail.
    pub fn diagnostics(self) -> Result<Vec<Diagnostic>> {
        let table = self.table(&self.view.task(None))?;
        // Without a logged dataset, no read fails and reports those problems.
        let has_logged = self
            .view
            .snapshot
            .datasets
            .iter()
            .any(|d| d.logged().is_some());
        let shown = |d: &&Diagnostic| !has_logged || d.severity != Severity::Unreadable;
        let diagnostics = table.diagnostics().iter().filter(shown);
        Ok(diagnostics.cloned().collect())
    }

    fn check_index_memory(self, what: &'static str, bytes: u64) -> Result<(), Fault> {
        let limit = self.view.budget.limits().index_memory;
        check_limit(what, bytes, "index_memory", limit)
    }
}
