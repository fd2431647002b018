//! Indexes of a dataset whose records keep growing in number.

use super::DatasetIndex;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::window::TableBytes;
use h5logfs_log::{GrowingTable, Logged};

/// The records of one dataset in several indexes. Each index has the records that came after those of the indexes
/// before it. Indexes of similar size become one, so there are few, and a record is indexed only a few times.
#[derive(Debug, Default)]
pub struct Layers(Vec<Layer>);

#[derive(Debug)]
struct Layer {
    index: DatasetIndex,
    /// Bytes of memory.
    bytes: usize,
    /// The first entry and the end, by their number among the entries of the dataset.
    first: usize,
    end: usize,
    /// Whether all later entries apply later.
    settled: bool,
}

impl Layers {
    /// Adds the new entries of `table`. `settled`: later entries will apply later than all of these. Returns whether
    /// there were new entries.
    pub fn update(
        &mut self,
        task: &Task,
        table: &GrowingTable,
        bytes: TableBytes<'_>,
        dataset: &Logged<'_>,
        settled: bool,
    ) -> Result<bool, Fault> {
        let end = table.entries_of(dataset.id);
        let mut first = self.0.last().map_or(0, |last| last.end);
        if first >= end {
            return Ok(false);
        }
        while let Some(last) = self.0.last()
            && (!last.settled || last.end - last.first <= end - first)
        {
            first = last.first;
            self.0.pop();
        }
        let records = table.records(task, bytes, dataset, first)?;
        let index = DatasetIndex::of(task, records, &[])?;
        self.0.push(Layer {
            bytes: index.bytes_with_selections(),
            index,
            first,
            end,
            settled,
        });
        Ok(true)
    }

    /// The indexes. Records of a later index apply later.
    pub fn indexes(&self) -> impl Iterator<Item = &DatasetIndex> {
        self.0.iter().map(|layer| &layer.index)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|layer| layer.bytes).sum()
    }
}
