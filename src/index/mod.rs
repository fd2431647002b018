//! Which records touch a chunk, in the order in which they apply.

use std::ops::Range;

use crate::boxes::{Bounds, BoxTree, Boxes};
use crate::error::Result;
use crate::log::model::Record;
use crate::log::source::SourceFile;
use crate::log::{Logged, RecordTable};

/// All records of one dataset, ready to be asked.
#[derive(Debug)]
pub struct DatasetIndex {
    records: Records,
    tree: BoxTree,
    /// Why elements of the dataset cannot be trusted, wherever they lie.
    faults: Vec<String>,
    bytes: usize,
}

#[derive(Debug)]
struct Records {
    list: Vec<Record>,
    bounds: Vec<Bounds>,
    rank: usize,
}

impl Boxes for Records {
    fn rank(&self) -> usize {
        self.rank
    }
    fn number(&self) -> usize {
        self.list.len()
    }
    fn side(&self, item: usize, dim: usize) -> Range<u64> {
        self.bounds[item].start[dim]..self.bounds[item].end[dim]
    }
}

impl DatasetIndex {
    pub fn build(
        table: &dyn RecordTable,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
    ) -> Result<Self> {
        let found = table.records(sources, dataset)?;
        let mut faults = table.faults().to_vec();
        faults.extend(found.faults);
        let records = Records {
            bounds: found.records.iter().map(Record::bounds).collect(),
            list: found.records,
            rank: dataset.dims.len(),
        };
        let tree = BoxTree::build(&records);
        let each = size_of::<Record>() + size_of::<Bounds>() + 16 * records.rank;
        Ok(DatasetIndex {
            bytes: found.decoded
                + tree.bytes()
                + records.list.len() * each
                + faults.iter().map(String::len).sum::<usize>(),
            records,
            tree,
            faults,
        })
    }

    /// Every record, in the order in which they apply.
    pub fn records(&self) -> &[Record] {
        &self.records.list
    }

    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// The records that decide what `query` holds, in the order in which they apply. Those before the
    /// last one that covers all of it with one block are left out.
    pub fn deciding(&self, query: &Bounds) -> Vec<&Record> {
        let mut found = Vec::new();
        for number in self.tree.touching(&self.records, query).into_iter().rev() {
            let record = &self.records.list[number];
            if !record.touches(query) {
                continue;
            }
            found.push(record);
            if self.records.bounds[number].contains(query) && record.covers(query) {
                break;
            }
        }
        found.reverse();
        found
    }

    /// Whether some record has a block in `query`.
    pub fn is_touched(&self, query: &Bounds) -> bool {
        let touches = |n: usize| self.records.list[n].touches(query);
        self.tree.any(&self.records, query, touches)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
