//! Makes the records of one dataset during the walk through the tables, so that its entries need no second read. This
//! works as long as each entry has its own single block, and its data lie unfiltered in a `_ld_N`. Other entries may
//! have faults to report or selections to share, and are left to `decode`.

use super::entries::{Entry, i64_at};
use super::{MERGED, Tables};
use crate::boxes::check_end;
use crate::model::Logged;
use crate::model::{Encoding, StoredBytes};
use crate::records::RecordList;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

/// The records of a part of the tables.
pub(super) struct OwnBlocks<'a> {
    tables: &'a Tables,
    dataset: &'a Logged<'a>,
    records: RecordList,
    /// Sides of one block: the starts, then the counts.
    sides: Vec<u64>,
}

impl<'a> OwnBlocks<'a> {
    /// An empty list; `None` if entries may need another decoding.
    pub fn new(
        task: &Task,
        tables: &'a Tables,
        dataset: &'a Logged<'a>,
    ) -> Result<Option<Self>, Fault> {
        let rank = dataset.dims.len();
        if rank == 0 || tables.config & MERGED != 0 {
            return Ok(None);
        }
        Ok(Some(OwnBlocks {
            tables,
            dataset,
            records: RecordList::new(task, rank, 0)?,
            sides: Vec::new(),
        }))
    }

    /// Adds the record of an entry, if it belongs to the dataset. Returns `false` if the entry is not a plain block.
    /// Fails when memory is short.
    pub fn add(&mut self, entry: &mut Entry<'_, '_>) -> Result<bool, Fault> {
        let head = entry.head;
        if head.dataset != self.dataset.id {
            return Ok(true);
        }
        if head.flags != 0 {
            return Ok(false);
        }
        let rank = self.dataset.dims.len();
        let body = entry.body(head.body_len())?;
        match block_sides(body, rank, 0, None, &mut self.sides) {
            Ok(true) => {}
            Ok(false) => return Ok(true),
            Err(_) => return Ok(false),
        }
        let (start, count) = self.sides.split_at(rank);
        let elements = elements_of(count).ok();
        let bytes = elements.and_then(|all| all.checked_mul(self.dataset.element_size));
        let source = self.tables.source_of(entry.table);
        let data = self
            .tables
            .data_log(source, head.data_offset, head.data_size);
        let (Some(data), true) = (data, bytes == u64::try_from(head.data_size).ok()) else {
            return Ok(false);
        };
        if head.data_size == 0 {
            return Ok(true);
        }
        let stored = StoredBytes {
            source,
            offset: head.data_offset as u64,
            len: head.data_size as u64,
            encoding: Encoding::Raw,
        };
        let order = order(source, data.number);
        self.records.push_block(stored, order, start, count)?;
        Ok(true)
    }

    /// Appends the records of the next part.
    pub fn append(&mut self, next: OwnBlocks<'_>) -> Result<(), Fault> {
        self.records.append(next.records)
    }

    /// The records in the order in which they apply.
    pub fn into_records(mut self) -> Result<RecordList, Fault> {
        self.records.put_in_order()?;
        Ok(self.records)
    }
}

/// Decodes a single block in plain coordinates (section 6.1) of `rank` dimensions, drops the first `drop` of them,
/// and puts the starts and counts into `sides`. `lead` adds a first dimension. Returns whether the block has
/// elements.
pub(super) fn block_sides(
    body: &[u8],
    rank: usize,
    drop: usize,
    lead: Option<u64>,
    sides: &mut Vec<u64>,
) -> Result<bool, Fault> {
    if body.len() != 16 * rank {
        let len = body.len();
        return Err(format!("{len} bytes of selection for 1 blocks of rank {rank}").into());
    }
    sides.clear();
    for (half, of_lead) in [(0, lead), (rank, lead.map(|_| 1))] {
        sides.extend(of_lead);
        for d in drop..rank {
            let side = i64_at(body, 8 * (half + d));
            sides.push(u64::try_from(side).map_err(|_| "a negative coordinate")?);
        }
    }
    let (start, count) = sides.split_at(sides.len() / 2);
    if count.contains(&0) {
        return Ok(false);
    }
    for (start, count) in start.iter().zip(count) {
        check_end(*start, *count)?;
    }
    Ok(true)
}

/// Number of elements of a block.
pub(super) fn elements_of(counts: &[u64]) -> Result<u64, Fault> {
    let product = counts.iter().try_fold(1u64, |n, c| n.checked_mul(*c));
    product.ok_or_else(|| "a block has more elements than can be counted".into())
}

/// The sort key of a record: source file, then flush.
pub(super) fn order(source: u16, flush: u32) -> u64 {
    u64::from(source) << 32 | u64::from(flush)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::logvol::LogDataset;
    use crate::logvol::entries::table_head;
    use crate::logvol::flags::{HEADER, REF};
    use crate::model::Selections;
    use crate::source_dir::SourceDir;
    use crate::source_file::SourceFile;

    const DATA: u64 = 100;

    fn entry(dataset: i32, flags: i32, (offset, len): (i64, i64), body: &[i64]) -> Vec<u8> {
        let size = HEADER as i32 + 8 * body.len() as i32;
        let mut bytes = [size, dataset, flags].map(i32::to_le_bytes).concat();
        bytes.extend([offset, len].map(i64::to_le_bytes).concat());
        body.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes
    }

    /// Number of records of dataset 0 that the walk makes; `None` if it cannot make them. They must equal the records
    /// of `decode`.
    fn made(sections: &[Vec<u8>]) -> Option<usize> {
        let head = table_head(sections.iter().map(|section| section.len() as u64));
        let bytes = [vec![0; DATA as usize], head, sections.concat()].concat();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), &bytes).unwrap();
        let source = SourceFile::open(&SourceDir::open(dir.path()).unwrap(), "log".as_ref());
        let sources = [source.unwrap()];
        let log = |number, offset, len| LogDataset {
            source: 0,
            number,
            offset,
            len,
        };
        let tables = Tables {
            metadata: vec![log(0, DATA, bytes.len() as u64 - DATA)],
            data: vec![log(0, 0, 40), log(1, 40, DATA - 40)],
            ..Tables::default()
        };
        let logged = |id| Logged {
            id,
            dims: &[100],
            element_size: 1,
            filtered: false,
        };
        let (task, datasets) = (Task::unlimited(), [logged(0), logged(1)]);
        let read = tables.read_tables_for(&task, &sources, &datasets, Some(&datasets[0]));
        let (table, made) = read.unwrap();
        let made = made?;
        let decoded = table.records(&task, &sources, &datasets[0], &Selections::default());
        let [made, decoded] = [made, decoded.unwrap()].map(|found| {
            assert!(found.diagnostics.is_empty());
            let told = found.records.map(|record| format!("{record:?}"));
            told.collect::<Vec<_>>()
        });
        assert_eq!(made, decoded);
        Some(made.len())
    }

    #[test]
    fn only_what_is_one_block_is_made_on_the_way() {
        let block = |at, count| entry(0, 0, (at, count), &[at, count]);
        let other = entry(1, 0, (7, 9), &[7, 9]);
        let first = [block(90, 3), other.clone(), block(0, 5), block(30, 0)].concat();
        let second = [block(60, 4), other.clone()].concat();
        let all = [first.clone(), Vec::new(), second, block(50, 5)];
        assert_eq!(made(&all), Some(4));
        let shares = |back: &[u8]| entry(0, REF, (70, 3), &[-(back.len() as i64)]);
        let of_another = shares(&other);
        for strange in [
            // An entry that shares a selection.
            [block(20, 3), shares(&block(20, 3))].concat(),
            [other, of_another].concat(),
            // Fewer bytes than elements; bytes across two data logs; bytes outside all data logs.
            entry(0, 0, (0, 5), &[10, 6]),
            entry(0, 0, (38, 5), &[10, 5]),
            entry(0, 0, (98, 5), &[10, 5]),
            entry(0, 0, (0, 5), &[-1, 5]),
        ] {
            assert_eq!(made(&[first.clone(), strange]), None);
        }
    }
}
