//! The record tables of a log and the indexes of its datasets: read once, then kept in memory, and on disk
//! where they are large.

use std::sync::Arc;

use super::{View, check_limit};
use crate::diagnostic::{Diagnostic, Severity};
use crate::error::{Error, Result};
use crate::index::DatasetIndex;
use crate::index::saved::IndexInputs;
use crate::log::{DatasetRecords, Logged, RecordTable};
use crate::snapshot::Dataset;

/// In bytes. Smaller indexes, of logs with smaller tables, are not kept on disk: to make one anew takes a
/// millisecond or two, as long as to read it.
const WORTH_SAVING: usize = 256 << 10;

impl View {
    /// The index of a logged dataset: which of its records touch a chunk. Fails where the dataset was not
    /// logged, or where the record tables are not readable.
    pub fn index(&self, number: usize) -> Result<Arc<DatasetIndex>> {
        let logged = self.logged(number)?;
        let inputs = IndexInputs {
            number,
            dataset: &logged,
            sources: &self.sources,
        };
        self.budget.index(self.generation, number as u32, || {
            let saved = self.saved.as_ref();
            let saved = saved.and_then(|entry| DatasetIndex::load(entry, inputs, &self.selections));
            let index = match saved {
                Some(index) => index,
                None => self.make_index(inputs)?,
            };
            self.check_index_memory("the index", index.bytes() as u64)
                .map_err(|reason| self.bad_data(number, "all of it".into(), reason))?;
            Ok(Arc::new(index))
        })
    }

    fn make_index(&self, inputs: IndexInputs<'_>) -> Result<DatasetIndex> {
        let table = self.table()?;
        let (sources, selections) = (inputs.sources, &self.selections);
        let index = DatasetIndex::build(table.as_ref(), sources, inputs.dataset, selections)?;
        self.check_unchanged(0..sources.len())?;
        if let Some(entry) = &self.saved
            && index.bytes_with_selections().max(table.bytes()) > WORTH_SAVING
        {
            index.save(entry, inputs);
        }
        Ok(index)
    }

    /// The record tables of the log.
    fn table(&self) -> Result<Arc<dyn RecordTable>> {
        self.budget.table(self.generation, || {
            let datasets = self.snapshot.datasets.iter();
            let logged: Vec<_> = datasets.filter_map(Dataset::logged).collect();
            let layout = self.snapshot.log.layout();
            let table = layout.read_tables(&self.sources, &logged)?;
            self.check_unchanged(0..self.sources.len())?;
            self.check_index_memory("the list of records", table.bytes() as u64)
                .map_err(|reason| Error::bad_file(self.path(), reason))?;
            Ok(Arc::from(table))
        })
    }

    /// Number of entries in the record tables of all datasets. Each is a record, or covers nothing.
    pub fn entries(&self) -> Result<usize> {
        Ok(self.table()?.entries())
    }

    /// Bytes of memory that the record tables take.
    pub(super) fn table_bytes(&self) -> Result<usize> {
        Ok(self.table()?.bytes())
    }

    /// All records of a logged dataset, with those that later ones hide.
    pub fn records(&self, number: usize) -> Result<DatasetRecords> {
        let logged = self.logged(number)?;
        let table = self.table()?;
        let found = table.records(&self.sources, &logged, &self.selections)?;
        self.check_unchanged(0..self.sources.len())?;
        Ok(found)
    }

    fn logged(&self, number: usize) -> Result<Logged<'_>> {
        let logged = self.snapshot.datasets[number].logged();
        logged.ok_or_else(|| self.bad_data(number, "all of it".into(), "it was not logged"))
    }

    /// What is wrong with the record tables, besides what makes reads of datasets fail.
    pub fn diagnostics(&self) -> Result<Vec<Diagnostic>> {
        let table = self.table()?;
        // Without a logged dataset no read fails and reports the others.
        let has_logged = self.snapshot.datasets.iter().any(|d| d.logged().is_some());
        let shown = |d: &&Diagnostic| !has_logged || d.severity != Severity::Unreadable;
        let diagnostics = table.diagnostics().iter().filter(shown);
        Ok(diagnostics.cloned().collect())
    }

    fn check_index_memory(&self, what: &str, bytes: u64) -> Result<(), String> {
        let limit = self.budget.limits().index_memory;
        check_limit(what, bytes, "index_memory", limit)
    }
}
