//! Joins consecutive small writes of a rank to one dataset into one entry, so that a write need not cost an entry.
//!
//! The blocks of such an entry never overlap, so their order does not matter. A write over elements of the entry begins
//! another entry, which applies later. The data of an entry are contiguous. [`JoinedSection::section`] completes the
//! last entry, which does not change any more after it was read.

use crate::covered::Covered;
use crate::entries::{DatasetInfo, Section};
use crate::flushed::Flushed;
use crate::lists::Lists;
use crate::selection::Blocks;

/// The most blocks of an entry. A reader of some elements looks at all blocks of the entries around them.
const MOST_BLOCKS: usize = 1 << 12;
/// With at least this many blocks, a record keeps its own entry. If the next records have the same blocks, their entries
/// refer to it.
const OF_A_RECORD: usize = 8;
/// The most bytes of data of an entry that grows. The tools of the layout count them in 32 bits.
const MOST_BYTES: u64 = 1 << 30;

/// A section whose last entry may still grow.
#[derive(Debug)]
pub struct JoinedSection {
    section: Section,
    /// Whether equal selections are stored once.
    share: bool,
    last: Last,
    /// The blocks of the last entries that grew. Other datasets often repeat them.
    lists: Lists,
}

/// The entry that may grow. Its memory is reused for the next one.
#[derive(Debug, Default)]
struct Last {
    is_there: bool,
    dataset: u32,
    dims: Vec<u64>,
    records: bool,
    blocks: Blocks,
    /// Index of the first block in the last record.
    record: usize,
    /// Offset of the entry's data in the data since the last flush.
    offset: u64,
    stored: u64,
    /// The smallest box around all blocks: first indices, and end indices.
    low: Vec<u64>,
    high: Vec<u64>,
    /// The last of all elements in row-major order.
    end: Vec<u64>,
    /// Elements covered by all blocks. `None`: not needed yet.
    covered: Option<Covered>,
}

impl JoinedSection {
    /// An empty section: see [`Section::new`].
    pub fn new(share: bool, encode: bool) -> Self {
        JoinedSection {
            section: Section::new(share, encode),
            share,
            last: Last::default(),
            lists: Lists::default(),
        }
    }

    /// Lets regular selections be deflated: see [`Section::deflate_regular`].
    pub fn deflate_regular(&mut self) {
        self.section.deflate_regular();
    }

    /// The section with all entries, which no longer change.
    pub fn section(&mut self) -> &mut Section {
        let last = &mut self.last;
        if last.is_there {
            last.is_there = false;
            let blocks = if self.share {
                self.lists.of(&last.blocks)
            } else {
                &last.blocks
            };
            self.section
                .push_joined(last.info(), blocks, last.offset, last.stored);
        }
        &mut self.section
    }

    /// The entries that have left the memory: see [`Section::in_file`].
    pub fn in_file(&self) -> Option<&Flushed> {
        self.section.in_file()
    }

    /// Releases unused memory.
    pub fn shrink(&mut self) {
        self.section.shrink();
    }

    /// Upper bound of the bytes of the entries since the last flush.
    pub fn pending_len(&self) -> u64 {
        let last = if self.last.is_there {
            self.last.blocks.max_encoded_len()
        } else {
            0
        };
        self.section.pending().len() as u64 + last
    }

    /// Logs `stored` bytes as [`Section::push`] does: in the last entry if they continue it, otherwise in a new one.
    pub fn push(&mut self, dataset: DatasetInfo<'_>, blocks: &Blocks, offset: u64, stored: u64) {
        let may_join = blocks.number == 1 && blocks.rank > 0 && !dataset.filtered;
        if !may_join {
            return self.section().push(dataset, blocks, offset, stored);
        }
        let (start, count) = (blocks.start(0), blocks.count(0));
        let follows = self.last.follows(dataset, offset, stored);
        let goes_on = follows && !(self.share && self.last.ends_record(start));
        if goes_on && self.last.join(start, count) {
            self.last.stored += stored;
            return;
        }
        self.section();
        self.last.begin(dataset, blocks);
        (self.last.offset, self.last.stored) = (offset, stored);
    }
}

impl Last {
    fn info(&self) -> DatasetInfo<'_> {
        DatasetInfo {
            id: self.dataset,
            dims: &self.dims,
            records: self.records,
            filtered: false,
        }
    }

    /// Starts the entry with one block.
    fn begin(&mut self, dataset: DatasetInfo<'_>, blocks: &Blocks) {
        self.is_there = true;
        self.covered = None;
        self.dataset = dataset.id;
        self.records = dataset.records;
        self.dims.clear();
        self.dims.extend_from_slice(dataset.dims);
        self.blocks.clone_from(blocks);
        self.record = 0;
        for side in [&mut self.low, &mut self.high, &mut self.end] {
            side.clear();
            side.extend_from_slice(blocks.start(0));
        }
        for (d, count) in blocks.count(0).iter().enumerate() {
            self.high[d] += count;
            self.end[d] += count - 1;
        }
    }

    /// Whether data of this dataset at this offset can continue the entry.
    fn follows(&self, dataset: DatasetInfo<'_>, offset: u64, stored: u64) -> bool {
        self.is_there
            && self.dataset == dataset.id
            && self.offset + self.stored == offset
            && self.stored.saturating_add(stored) <= MOST_BYTES
            && self.records == dataset.records
            && are_equal(&self.dims, dataset.dims)
    }

    /// Whether a block begins another record after a record of several blocks.
    fn ends_record(&self, start: &[u64]) -> bool {
        self.records
            && self.blocks.number - self.record >= OF_A_RECORD
            && start[0] != self.blocks.start(self.blocks.number - 1)[0]
    }

    /// Adds a block if it overlaps no other.
    fn join(&mut self, start: &[u64], count: &[u64]) -> bool {
        let continues = self.continued(start, count);
        if self.blocks.number == 1 && continues.is_some() {
            // A block that continues another one does not overlap it.
        } else if !self.is_apart(start, count) {
            return false;
        }
        let rank = start.len();
        match continues {
            Some(d) => {
                let last = self.blocks.counts.len() - rank;
                self.blocks.counts[last + d] += count[d];
                self.merge_last();
            }
            None if self.blocks.number < MOST_BLOCKS => {
                if start[0] != self.blocks.start(self.blocks.number - 1)[0] {
                    self.record = self.blocks.number;
                }
                self.blocks.number += 1;
                self.blocks.starts.extend_from_slice(start);
                self.blocks.counts.extend_from_slice(count);
            }
            None => return false,
        }
        self.blocks.elements += count.iter().product::<u64>();
        self.include(start, count);
        true
    }

    /// Merges the last block with the previous one, as long as it continues that block. So the rows of one step become
    /// a block, and then the blocks of all steps become one.
    fn merge_last(&mut self) {
        let blocks = &mut self.blocks;
        while let Some(before) = blocks.number.checked_sub(2) {
            let (start, count) = (blocks.start(before + 1), blocks.count(before + 1));
            let Some(d) = continued(blocks, before, start, count) else {
                break;
            };
            let more = count[d];
            let end = (before + 1) * blocks.rank;
            blocks.counts[end - blocks.rank + d] += more;
            blocks.starts.truncate(end);
            blocks.counts.truncate(end);
            blocks.number -= 1;
        }
        self.record = self.record.min(blocks.number - 1);
    }

    /// The dimension along which a block continues the last one.
    fn continued(&self, start: &[u64], count: &[u64]) -> Option<usize> {
        continued(&self.blocks, self.blocks.number - 1, start, count)
    }

    /// Whether a block certainly overlaps no other. Its elements come after all others in row-major order, or it lies
    /// outside of the box around them, or it lies between them in row-major order.
    fn is_apart(&mut self, start: &[u64], count: &[u64]) -> bool {
        let is_beside = |d: usize| start[d] >= self.high[d] || start[d] + count[d] <= self.low[d];
        start > &self.end[..]
            || (0..start.len()).any(is_beside)
            || self.is_between(start, count).unwrap_or(false)
    }

    /// Whether a block lies between the others in row-major order. `None`: the dataset has more elements than can be counted.
    fn is_between(&mut self, start: &[u64], count: &[u64]) -> Option<bool> {
        let (first, last) = range_of(&self.dims, start, count)?;
        let covered = match &mut self.covered {
            Some(covered) => covered,
            none => {
                let mut covered = Covered::default();
                for block in 0..self.blocks.number {
                    let (start, count) = (self.blocks.start(block), self.blocks.count(block));
                    let (first, last) = range_of(&self.dims, start, count)?;
                    covered.add(first, last);
                }
                none.insert(covered)
            }
        };
        Some(covered.is_apart(first, last))
    }

    /// Extends the bounds of all blocks.
    fn include(&mut self, start: &[u64], count: &[u64]) {
        if let Some(covered) = &mut self.covered {
            // The range was computed before.
            match range_of(&self.dims, start, count) {
                Some((first, last)) => covered.add(first, last),
                None => self.covered = None,
            }
        }
        let ends = start
            .iter()
            .zip(count)
            .map(|(start, count)| start + count - 1);
        if self.end.iter().copied().lt(ends.clone()) {
            self.end.iter_mut().zip(ends).for_each(|(end, e)| *end = e);
        }
        for (d, (start, count)) in start.iter().zip(count).enumerate() {
            self.low[d] = self.low[d].min(*start);
            self.high[d] = self.high[d].max(start + count);
        }
    }
}

/// Whether two short lists are equal. For a few numbers, a call of `memcmp` takes longer than the comparison.
fn are_equal(one: &[u64], other: &[u64]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a == b)
}

/// The dimension along which a block continues the one at `last`: together they form one block, with its elements in the same
/// order.
fn continued(blocks: &Blocks, last: usize, start: &[u64], count: &[u64]) -> Option<usize> {
    let (before, sides) = (blocks.start(last), blocks.count(last));
    let d = (0..start.len()).find(|d| start[*d] != before[*d])?;
    let is_one = |sides: &[u64]| sides[..d].iter().all(|side| *side == 1);
    let is_behind = before[d] + sides[d] == start[d];
    let is_alike =
        are_equal(&start[d + 1..], &before[d + 1..]) && are_equal(&count[d + 1..], &sides[d + 1..]);
    (is_behind && is_alike && is_one(sides) && is_one(count)).then_some(d)
}

/// The first and the last element of a block in row-major order.
fn range_of(dims: &[u64], start: &[u64], count: &[u64]) -> Option<(u64, u64)> {
    let (mut first, mut last) = (0u64, 0u64);
    for (d, dim) in dims.iter().enumerate() {
        first = first.checked_mul(*dim)?.checked_add(start[d])?;
        last = last
            .checked_mul(*dim)?
            .checked_add(start[d] + count[d] - 1)?;
    }
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::logvol::flags::{ENC, MUL, REC, REF};
    use proptest::prelude::*;

    /// Bytes of an entry, its flags, data offset and data size.
    type Entry = (i32, i32, i64, i64);

    fn entries(bytes: &[u8]) -> Vec<Entry> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let int = |o: usize| i32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + o + i]));
            let long = |o| i64::from(int(o) as u32) | i64::from(int(o + 4)) << 32;
            found.push((int(0), int(8), long(12), long(20)));
            at += int(0) as usize;
        }
        found
    }

    fn info(dims: &[u64], records: bool) -> DatasetInfo<'_> {
        DatasetInfo {
            id: 1,
            dims,
            records,
            filtered: false,
        }
    }

    /// The entries after writes of these boxes, with one byte an element.
    fn written(dataset: DatasetInfo<'_>, boxes: &[(&[u64], &[u64])]) -> Vec<Entry> {
        let mut section = JoinedSection::new(true, true);
        let mut offset = 0;
        for (start, count) in boxes {
            let blocks = Blocks::one(start, count);
            section.push(dataset, &blocks, offset, blocks.elements);
            offset += blocks.elements;
        }
        assert!(section.pending_len() > 0);
        entries(section.section().bytes())
    }

    #[test]
    fn what_continues_a_block_is_the_same_block() {
        let boxes: [(&[u64], &[u64]); 3] = [(&[10], &[4]), (&[14], &[2]), (&[16], &[1])];
        assert_eq!(written(info(&[99], false), &boxes), [(44, 0, 0, 7)]);
        let rows: [(&[u64], &[u64]); 3] =
            [(&[0, 2], &[1, 5]), (&[1, 2], &[1, 5]), (&[2, 2], &[3, 5])];
        assert_eq!(written(info(&[9, 9], false), &rows), [(60, 0, 0, 25)]);
        assert_eq!(written(info(&[9, 9], true), &rows), [(60, 0, 0, 25)]);
        let along: [(&[u64], &[u64]); 2] = [(&[4, 2], &[1, 5]), (&[4, 7], &[1, 2])];
        assert_eq!(written(info(&[9, 9], true), &along), [(52, REC, 0, 7)]);
        // Joined to one block, the elements would be in another order.
        let beside: [(&[u64], &[u64]); 2] = [(&[4, 2], &[2, 5]), (&[4, 7], &[2, 2])];
        assert_eq!(
            written(info(&[9, 9], false), &beside),
            [(72, MUL | ENC, 0, 14)]
        );
    }

    /// A rank writes its part of each step row by row.
    #[test]
    fn the_rows_of_all_steps_are_one_block() {
        let dims = [100, 8, 9];
        let rows: Vec<([u64; 3], [u64; 3])> = (0..100 * 4)
            .map(|i| ([i / 4, 2 + i % 4, 3], [1, 1, 5]))
            .collect();
        let rows: Vec<(&[u64], &[u64])> = rows.iter().map(|(s, c)| (&s[..], &c[..])).collect();
        let one = |size: i32| [(size, 0, 0, 100 * 4 * 5)];
        assert_eq!(written(info(&dims, false), &rows), one(28 + 6 * 8));
        assert_eq!(written(info(&dims, true), &rows), one(28 + 6 * 8));
        // The last step is incomplete.
        let some = written(info(&dims, false), &rows[..398]);
        assert_eq!(some, [(28 + 4 + 16 + 2 * 16, MUL | ENC, 0, 398 * 5)]);
    }

    #[test]
    fn blocks_apart_are_one_entry() {
        let up: [(&[u64], &[u64]); 3] = [(&[10], &[4]), (&[20], &[4]), (&[24], &[4])];
        assert_eq!(written(info(&[99], false), &up), [(64, MUL, 0, 12)]);
        let down: [(&[u64], &[u64]); 3] = [(&[24], &[4]), (&[20], &[4]), (&[10], &[4])];
        assert_eq!(written(info(&[99], false), &down), [(80, MUL, 0, 12)]);
        // These rows lie in the box around the others, and after them in row-major order.
        let rows: [(&[u64], &[u64]); 4] = [
            (&[0, 0], &[1, 2]),
            (&[0, 4], &[1, 2]),
            (&[1, 0], &[1, 2]),
            (&[1, 4], &[1, 2]),
        ];
        assert_eq!(
            written(info(&[9, 9], false), &rows),
            [(104, MUL | ENC, 0, 8)]
        );
    }

    #[test]
    fn blocks_in_any_order_are_one_entry() {
        let boxes: Vec<([u64; 2], [u64; 2])> = (0..50)
            .map(|i| ([i * 37 % 50, i * 11 % 7], [1, 3]))
            .collect();
        let boxes: Vec<(&[u64], &[u64])> = boxes.iter().map(|(s, c)| (&s[..], &c[..])).collect();
        let size = 28 + 4 + 8 + 50 * 16;
        assert_eq!(
            written(info(&[50, 10], false), &boxes),
            [(size, MUL | ENC, 0, 150)]
        );
        // The dataset has more elements than can be counted.
        let far: [(&[u64], &[u64]); 3] = [
            (&[0, 0], &[1, 1]),
            (&[1 << 40, 9], &[1, 1]),
            (&[7, 7], &[1, 1]),
        ];
        let huge = [1 << 50, 1 << 50];
        assert_eq!(written(info(&huge, false), &far).len(), 2);
    }

    #[test]
    fn what_may_overlap_begins_another_entry() {
        let twice: [(&[u64], &[u64]); 2] = [(&[10], &[4]), (&[10], &[4])];
        assert_eq!(written(info(&[99], false), &twice).len(), 2);
        let over: [(&[u64], &[u64]); 2] = [(&[10], &[4]), (&[12], &[4])];
        assert_eq!(written(info(&[99], false), &over).len(), 2);
        // The block continues the last one, and overlaps the first one.
        let back: [(&[u64], &[u64]); 3] = [(&[20], &[4]), (&[10], &[4]), (&[14], &[8])];
        assert_eq!(
            written(info(&[99], false), &back),
            [(64, MUL, 0, 8), (44, 0, 8, 8)]
        );
    }

    #[test]
    fn other_datasets_data_extents_and_filters_are_other_entries() {
        let push = |second: DatasetInfo<'_>, offset: u64| {
            let mut section = JoinedSection::new(true, true);
            section.push(info(&[99], false), &Blocks::one(&[0], &[4]), 0, 4);
            section.push(second, &Blocks::one(&[4], &[4]), offset, 4);
            entries(section.section().bytes()).len()
        };
        let same = info(&[99], false);
        assert_eq!(push(same, 4), 1);
        assert_eq!(push(same, 5), 2);
        assert_eq!(push(DatasetInfo { id: 2, ..same }, 4), 2);
        assert_eq!(push(info(&[98], false), 4), 2);
        assert_eq!(push(info(&[99], true), 4), 2);
        let filtered = DatasetInfo {
            filtered: true,
            ..same
        };
        assert_eq!(push(filtered, 4), 2);
    }

    #[test]
    fn an_entry_that_was_looked_at_does_not_change() {
        let dims = [99];
        let mut section = JoinedSection::new(true, true);
        section.push(info(&dims, false), &Blocks::one(&[0], &[4]), 0, 4);
        let before = section.section().bytes().to_vec();
        section.push(info(&dims, false), &Blocks::one(&[4], &[4]), 4, 4);
        let after = section.section().bytes();
        assert_eq!((&after[..44], after.len()), (&before[..], 88));
        section.section().set_flushed();
        assert_eq!(section.pending_len(), 0);
    }

    /// An equal series of another dataset refers to the first one.
    #[test]
    fn equal_series_share_their_blocks() {
        let dims = [100_000];
        let mut section = JoinedSection::new(true, true);
        let mut offset = 0;
        for id in 1..3 {
            for start in (0..30_000).step_by(3) {
                let dataset = DatasetInfo {
                    id,
                    ..info(&dims, false)
                };
                section.push(dataset, &Blocks::one(&[start], &[1]), offset, 1);
                offset += 1;
            }
        }
        let (full, rest) = (4096, 10_000 - 2 * 4096);
        let size = |blocks| 32 + 16 * blocks;
        let found: Vec<_> = entries(section.section().bytes())
            .iter()
            .map(|e| (e.0, e.1))
            .collect();
        let listed = [(size(full), MUL), (size(full), MUL), (size(rest), MUL)];
        assert_eq!(found[..3], listed);
        assert_eq!(found[3..], [(36, MUL | REF); 3]);
    }

    #[test]
    fn records_that_repeat_their_blocks_share_them() {
        let written = |share: bool, of_each: u64, first: u64| {
            let dims = [5, 100];
            let mut section = JoinedSection::new(share, true);
            for i in first..5 * of_each {
                let start = [i / of_each, 3 * (i % of_each)];
                section.push(info(&dims, true), &Blocks::one(&start, &[1, 2]), 2 * i, 2);
            }
            let entries = entries(section.section().bytes());
            entries.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>()
        };
        let mut wanted = vec![(28 + 8 + 4 + 16 * 10, MUL | REC)];
        wanted.resize(5, (44, MUL | REC | REF));
        assert_eq!(written(true, 10, 0), wanted);
        let joined = |blocks| (28 + 4 + 8 + 16 * blocks, MUL | ENC);
        assert_eq!(written(false, 10, 0), [joined(50)]);
        assert_eq!(written(true, 7, 0), [joined(35)]);
        // The end of a record joins the next one.
        let wanted = [joined(15), wanted[0], wanted[1], wanted[2]];
        assert_eq!(written(true, 10, 5), wanted);
    }

    proptest! {
        /// Blocks of one entry never overlap, and its data are those of all its writes.
        #[test]
        fn no_entry_has_an_element_twice(
            dims in prop::collection::vec(1u64..6, 1..4),
            writes in prop::collection::vec((any::<u64>(), any::<u64>()), 1..60),
        ) {
            let dataset = info(&dims, false);
            let mut section = JoinedSection::new(false, false);
            let (mut offset, mut elements) = (0, Vec::new());
            for (places, sides) in writes {
                let within = |seed: u64, d: usize, side: u64| (seed >> (8 * d)) % side;
                let start: Vec<u64> = (0..dims.len()).map(|d| within(places, d, dims[d])).collect();
                let count: Vec<u64> =
                    (0..dims.len()).map(|d| 1 + within(sides, d, dims[d] - start[d])).collect();
                let blocks = Blocks::one(&start, &count);
                section.push(dataset, &blocks, offset, blocks.elements);
                offset += blocks.elements;
                elements.extend(places_of(&dims, &start, &count));
            }
            let bytes = section.section().bytes().to_vec();
            let (mut at, mut data) = (0, 0);
            for (size, flags, from, stored) in entries(&bytes) {
                prop_assert_eq!(from as u64, data);
                let listed = decoded(&bytes[at..at + size as usize], flags, &dims);
                let mut once = listed.clone();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len() as i64, stored);
                prop_assert_eq!(&listed[..], &elements[data as usize..][..stored as usize]);
                at += size as usize;
                data += stored as u64;
            }
            prop_assert_eq!(data, offset);
        }
    }

    /// The elements of a box, in row-major order.
    fn places_of(dims: &[u64], start: &[u64], count: &[u64]) -> Vec<u64> {
        let mut places = vec![0];
        for d in 0..dims.len() {
            let along = start[d]..start[d] + count[d];
            places = places
                .iter()
                .flat_map(|at| along.clone().map(move |i| at * dims[d] + i))
                .collect();
        }
        places
    }

    /// The elements of an entry with plain coordinates.
    fn decoded(entry: &[u8], flags: i32, dims: &[u64]) -> Vec<u64> {
        let body = &entry[28 + if flags & MUL != 0 { 4 } else { 0 }..];
        let values: Vec<u64> = body
            .as_chunks::<8>()
            .0
            .iter()
            .map(|v| u64::from_le_bytes(*v))
            .collect();
        let (starts, counts) = values.split_at(values.len() / 2);
        let blocks = starts
            .chunks_exact(dims.len())
            .zip(counts.chunks_exact(dims.len()));
        blocks
            .flat_map(|(start, count)| places_of(dims, start, count))
            .collect()
    }
}
