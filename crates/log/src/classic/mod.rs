//! The classic layout, from the proposal of 2019: one metadata log and one data log
//! (`docs/formats/logvol-classic.md`).
//!
//! * `entry` reads the headers of the logs, and single entries.
//! * `table` walks the metadata log once per file and finds the entries of each dataset.
//! * `chain` compares the order in the log with the chains of pointers.
//! * `decode` turns the entries of a dataset into records.

mod chain;
mod decode;
mod entry;
mod table;

use serde::{Deserialize, Serialize};

use super::model::Selections;
use super::source_file::SourceFile;
use super::tiling::Tilings;
use crate::layout::{DatasetRecords, Layout, RecordTable};
use crate::model::Logged;
use decode::Decoder;
pub use entry::has_magics;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use table::EntryTable;

/// The dataset in the root group whose bytes are the metadata log.
pub const METADATA_LOG: &str = "_metadata_log";
/// The dataset whose bytes are the data log.
pub const DATA_LOG: &str = "_data_log";

/// Attribute of a stub dataset: the number of its dataset.
pub const ID: &str = "_classic_id";
/// Attribute of a stub dataset: the extent of its dataset.
pub const DIMS: &str = "_classic_dims";
/// Attribute of a stub dataset: the position of the first entry.
pub const FIRST: &str = "_classic_first";

/// The places of the two logs, and the datasets with entries in them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Number of the source of the metadata log.
    pub metadata: u16,
    /// Number of the source of the data log.
    pub data: u16,
    /// Stub datasets by ascending id. Ids are unique.
    pub stub_datasets: Vec<StubDataset>,
}

/// The properties of a dataset that the walk through the metadata log needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StubDataset {
    /// The number of the dataset in entries.
    pub id: i64,
    /// Number of dimensions.
    pub rank: u8,
    /// Position of the first entry in the metadata log; -1 for no entries. `None` if the stub dataset lacks the
    /// attribute.
    pub first: Option<i64>,
}

impl Tables {
    /// Fails with the reason unless the source files exist. `sources` is their number.
    pub fn check(&self, sources: usize) -> std::result::Result<(), Fault> {
        for source in [self.metadata, self.data] {
            if usize::from(source) >= sources {
                return Err(format!("source file {source} of {sources}").into());
            }
        }
        if self.stub_datasets.is_sorted_by(|a, b| a.id < b.id) {
            Ok(())
        } else {
            Err("stub datasets out of order".into())
        }
    }

    /// The index of the stub dataset with this id.
    fn find(&self, id: i64) -> Option<usize> {
        self.stub_datasets.binary_search_by_key(&id, |a| a.id).ok()
    }

    /// The two logs.
    fn logs<'a>(&self, sources: &'a [SourceFile]) -> (&'a SourceFile, &'a SourceFile) {
        let of = |number: u16| &sources[usize::from(number)];
        (of(self.metadata), of(self.data))
    }
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "Log VOL classic"
    }

    fn read_tables(
        &self,
        task: &Task,
        sources: &[SourceFile],
        _: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault> {
        Ok(Box::new(ClassicTable {
            entries: EntryTable::read(task, self, self.logs(sources))?,
            tables: self.clone(),
        }))
    }

    fn tables_len(&self, sources: &[SourceFile]) -> u64 {
        self.logs(sources).0.len()
    }

    fn tilings(&self, sources: &[SourceFile]) -> Tilings {
        table::tilings(self, self.logs(sources))
    }
}

#[derive(Debug)]
struct ClassicTable {
    tables: Tables,
    entries: EntryTable,
}

impl RecordTable for ClassicTable {
    fn diagnostics(&self) -> &[Diagnostic] {
        &self.entries.diagnostics
    }

    fn records(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
    ) -> Result<DatasetRecords, Fault> {
        let (metadata, data) = self.tables.logs(sources);
        let decoder = Decoder {
            task,
            metadata,
            data,
            data_number: self.tables.data,
            entries: &self.entries,
            dataset,
            selections,
        };
        let rank = dataset.dims.len();
        let fits = |at: &usize| usize::from(self.tables.stub_datasets[*at].rank) == rank;
        if let Some(at) = self.tables.find(dataset.id).filter(fits) {
            return decoder.records(at);
        }
        let mut none = DatasetRecords::none(task, rank)?;
        let reason = format!("no stub dataset of rank {rank} has the id {}", dataset.id);
        none.add_diagnostic(Diagnostic::unreadable(reason));
        Ok(none)
    }

    fn entries(&self) -> usize {
        let lists = self.entries.by_stub_dataset.iter();
        lists.map(|entries| entries.places.len()).sum()
    }

    fn bytes(&self) -> usize {
        self.entries.bytes() + self.tables.stub_datasets.capacity() * size_of::<StubDataset>()
    }

    fn release_share(&self) {
        self.entries.release_share();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_cannot_be_followed_are_refused() {
        let stub_dataset = |id| StubDataset {
            id,
            rank: 1,
            first: None,
        };
        let mut tables = Tables {
            metadata: 1,
            data: 2,
            stub_datasets: vec![stub_dataset(-3), stub_dataset(9)],
        };
        assert_eq!(tables.check(3), Ok(()));
        assert_eq!((tables.find(9), tables.find(0)), (Some(1), None));
        assert!(tables.check(2).is_err());
        tables.stub_datasets.push(stub_dataset(9));
        assert!(tables.check(3).is_err());
    }
}
