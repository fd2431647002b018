//! Finds datasets whose records tile them, during a scan.

use super::Tables;
use super::entries::{Entry, EntryHeader, Visitor, i64_at, walk};
use super::flags::{DEFL, ENC, MUL, REF};
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;

/// The most datasets of a log that are examined.
const MOST_DATASETS: usize = 1 << 16;
/// The most blocks of a section that are kept for entries that share them.
const MOST_SPELLED: usize = 1 << 16;
/// The number of entries between two decisions whether to continue the search. These entries take a millisecond.
const LOOKED_AT: u64 = 1 << 14;
/// The average bytes of an entry below which the search stops. The smallest tile that becomes a chunk has sixteen
/// times as many, before filters.
const WORTH_SEARCHING: u64 = 4 << 10;
/// Bytes of the coordinates of a block with HDF5's largest rank.
const LARGEST_BLOCK: u64 = 16 * 32;

/// Finds the possible tiling of each dataset by its records. The search in a log of small records stops early, and none
/// of its datasets is tiled.
pub(super) fn find(sources: &[SourceFile], tables: &Tables) -> Tilings {
    let mut finder = Finder::new(tables);
    let walked = walk(sources, tables, &mut finder);
    if walked.is_err() || finder.is_damaged {
        return Tilings::of_damaged();
    }
    if finder.gave_up {
        finder.found.by_dataset.clear();
    }
    finder.found
}

struct Finder<'a> {
    tables: &'a Tables,
    found: Tilings,
    spelled: ExplicitBlocks,
    /// Start and count of the current block along each dimension.
    block: Vec<(u64, u64)>,
    /// Number of entries so far, and bytes of their data.
    entries: u64,
    bytes: u64,
    is_damaged: bool,
    /// The search stopped because the records are too small.
    gave_up: bool,
}

impl Visitor for Finder<'_> {
    fn section(&mut self) {
        self.spelled.clear();
    }

    fn entry(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), Fault> {
        if self.gives_up(entry.head.data_size) {
            return Err("the records are too small".into());
        }
        let is_one_block = self.read_block(entry)?;
        let EntryHeader {
            dataset: id,
            data_offset,
            data_size,
            ..
        } = entry.head;
        let source = self.tables.source_of(entry.table);
        let data = self.tables.data_log(source, data_offset, data_size);
        self.found.has_unreadable |= data.is_none() && data_size != 0;
        let tilings = &mut self.found.by_dataset;
        let is_full = tilings.len() >= MOST_DATASETS;
        if is_full && !tilings.contains_key(&id) {
            return Ok(());
        }
        let tiling = tilings.entry(id).or_default();
        if is_one_block {
            tiling.add(&self.block)
        } else {
            tiling.spoil()
        }
        Ok(())
    }

    fn unreadable(&mut self, _: Diagnostic) {
        self.is_damaged |= !self.gave_up;
    }
}

impl<'a> Finder<'a> {
    fn new(tables: &'a Tables) -> Self {
        Finder {
            tables,
            found: Tilings::default(),
            spelled: ExplicitBlocks::default(),
            block: Vec::new(),
            entries: 0,
            bytes: 0,
            is_damaged: false,
            gave_up: false,
        }
    }

    /// Counts an entry with data of this size. Returns whether the search stops.
    fn gives_up(&mut self, data_size: i64) -> bool {
        if self.entries > 0 && self.entries.is_multiple_of(LOOKED_AT) {
            self.gave_up |= self.bytes / self.entries < WORTH_SEARCHING;
        }
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(data_size.max(0) as u64);
        self.gave_up
    }

    /// Reads the block of an entry. Returns whether it is a single block in plain coordinates. The block may be that of
    /// a remembered earlier entry.
    fn read_block(&mut self, entry: &mut Entry<'_, '_>) -> Result<bool, Fault> {
        let head = entry.head;
        if head.has(REF) {
            let target = entry.shared()?;
            let shared = target.and_then(|at| self.spelled.find(at));
            // A record number replaces the first dimension of the shared block.
            return Ok(shared.is_some_and(|(record, coordinates)| {
                let drop = usize::from(head.record.is_some() && record.is_none());
                let lead = head.record.or(record);
                decode(lead, drop, coordinates, &mut self.block)
            }));
        }
        let len = head.body_len();
        if head.has(MUL | ENC | DEFL) || len > LARGEST_BLOCK {
            return Ok(false);
        }
        let position = entry.position();
        let coordinates = entry.body(len)?;
        self.spelled.push(position, head.record, coordinates);
        Ok(decode(head.record, 0, coordinates, &mut self.block))
    }
}

/// Decodes a block into `block`: the record number as first dimension, then the coordinates (section 6.1) without their
/// first `drop` dimensions. Returns whether the block is valid.
fn decode(lead: Option<i64>, drop: usize, coordinates: &[u8], block: &mut Vec<(u64, u64)>) -> bool {
    let rank = coordinates.len() / 16;
    if !coordinates.len().is_multiple_of(16) || drop > rank {
        return false;
    }
    let number = |n: usize| i64_at(coordinates, 8 * n);
    let lead = lead.map(|record| (record, 1));
    let sides = lead
        .into_iter()
        .chain((drop..rank).map(|d| (number(d), number(rank + d))));
    block.clear();
    block.extend(sides.filter_map(|(s, c)| Some((u64::try_from(s).ok()?, u64::try_from(c).ok()?))));
    block.len() == rank - drop + usize::from(lead.is_some())
}

/// The single blocks of the entries of a section, by position.
#[derive(Debug, Default)]
struct ExplicitBlocks {
    /// Position of the entry, its record number, and the offset of its coordinates.
    entries: Vec<(u64, Option<i64>, usize)>,
    coordinates: Vec<u8>,
}

impl ExplicitBlocks {
    fn clear(&mut self) {
        self.entries.clear();
        self.coordinates.clear();
    }

    fn push(&mut self, position: u64, record: Option<i64>, coordinates: &[u8]) {
        if self.entries.len() < MOST_SPELLED {
            let begin = self.coordinates.len();
            self.entries.push((position, record, begin));
            self.coordinates.extend_from_slice(coordinates);
        }
    }

    /// Record number and coordinates of the entry at `position`.
    fn find(&self, position: u64) -> Option<(Option<i64>, &[u8])> {
        let found = self.entries.binary_search_by_key(&position, |e| e.0).ok()?;
        let (_, record, begin) = self.entries[found];
        let end = self.entries.get(found + 1).map(|next| next.2);
        let end = end.unwrap_or(self.coordinates.len());
        Some((record, &self.coordinates[begin..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_records_are_not_searched_to_their_end() {
        let seen = |size: i64, then: i64| {
            let tables = Tables::default();
            let mut finder = Finder::new(&tables);
            let first = (0..LOOKED_AT).all(|_| !finder.gives_up(size));
            let rest = (0..2 * LOOKED_AT).take_while(|_| !finder.gives_up(then));
            (first, rest.count() as u64)
        };
        assert_eq!(seen(40, 40), (true, 0));
        assert_eq!(seen(64 << 10, 64 << 10), (true, 2 * LOOKED_AT));
        assert_eq!(seen(4 << 10, 40), (true, LOOKED_AT));
        assert_eq!(seen(-1, -1), (true, 0));
    }
}
