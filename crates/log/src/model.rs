//! The output of every layout: records, and the selections of elements that they cover.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::conversion::Conversion;
use super::lattice::Lattice;
use super::part::Part;
use crate::boxes::packed::{PackedBoxes, Rows};
use crate::boxes::{Bounds, Order, check_end};
use h5logfs_common::buffers::with_room;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;

/// The facts about a logged dataset that a layout needs to decode its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged<'a> {
    /// The layout's own number of the dataset.
    pub id: i64,
    /// Current extent.
    pub dims: &'a [u64],
    /// Size of one element in bytes.
    pub element_size: u64,
    /// The log records the dataset's filters: stored bytes of another size than the raw ones are filtered.
    pub filtered: bool,
}

/// The blocks that one write covered, in the order in which their elements lie in the log. In rank 0 every
/// block is the one element of the scalar; only the last block is kept.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Elements of the write.
    elements: u64,
    /// Those of them that lie in no block.
    unplaced: u64,
    blocks: SelectionBlocks,
}

/// The form in which the blocks of a selection are stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SelectionBlocks {
    /// A list of blocks, each with the number of elements in the blocks before it.
    Listed(PackedBoxes),
    /// A regular pattern.
    Strided(Lattice),
}

/// Bytes of a selection in the tables that list it.
const OVERHEAD: u64 = 256;

impl Selection {
    /// A selection of `number` blocks. `start` and `count` take a block and a dimension. Blocks without elements are
    /// dropped. Fails where a block ends past 2^63-1, or the number of elements overflows.
    pub fn new(
        task: &Task,
        rank: usize,
        number: usize,
        start: impl Fn(usize, usize) -> u64 + Sync,
        count: impl Fn(usize, usize) -> u64 + Sync,
    ) -> Result<Reserved<Self>, Fault> {
        // All blocks are the same element, so the last one counts. Nothing in the log bounds their number.
        let first = if rank == 0 {
            number.saturating_sub(1)
        } else {
            0
        };
        let list_bytes = (number - first) as u64 * 8;
        let mut lists = task.reserve(list_bytes)?;
        let mut blocks = Blocks {
            rank,
            start,
            count,
            before: with_room(number - first)?,
            numbers: None,
        };
        let mut elements = first as u64;
        for block in first..number {
            let own = blocks.elements(block)?;
            if own == 0 {
                if blocks.numbers.is_none() {
                    lists.grow(list_bytes)?;
                    let mut numbers = with_room(number - first)?;
                    numbers.extend(first..block);
                    blocks.numbers = Some(numbers);
                }
                continue;
            }
            if let Some(numbers) = &mut blocks.numbers {
                numbers.push(block);
            }
            blocks.before.push(elements);
            elements = elements
                .checked_add(own)
                .ok_or("more elements than can be counted")?;
        }
        Self::pack(task, &blocks, (elements, 0))
    }

    /// A selection of `blocks`, for a write of `elements` elements of which some may lie in no block. The first value of a
    /// row is the number of elements of the write before the block. Fails where a block reaches beyond the write, and where
    /// [`Selection::new`] does.
    pub fn placed(
        task: &Task,
        blocks: &(impl Rows + Sync),
        elements: u64,
    ) -> Result<Reserved<Self>, Fault> {
        let mut placed = 0u64;
        let mut end = 0;
        for row in 0..blocks.rows() {
            let mut own = 1u64;
            for d in 0..blocks.rank() {
                check_end(blocks.start(row, d), blocks.count(row, d))?;
                own = own
                    .checked_mul(blocks.count(row, d))
                    .ok_or("a block of too many elements")?;
            }
            let before = blocks.value(row, 0);
            if before < end || own == 0 {
                return Err("blocks of a selection overlap in the log".into());
            }
            end = before.saturating_add(own);
            placed = placed.saturating_add(own);
        }
        if end > elements {
            return Err("a block reaches beyond its write".into());
        }
        Self::pack(task, blocks, (elements, elements - placed))
    }

    fn pack(
        task: &Task,
        blocks: &(impl Rows + Sync),
        (elements, unplaced): (u64, u64),
    ) -> Result<Reserved<Self>, Fault> {
        let (boxes, mut reservation) = PackedBoxes::build(task, blocks)?;
        reservation.grow(OVERHEAD)?;
        let selection = Selection {
            elements,
            unplaced,
            blocks: SelectionBlocks::Listed(boxes),
        };
        Ok(Reserved::new(selection, reservation))
    }

    /// The selection with a reservation for its memory, which is allocated already: the selection is small, or its
    /// bytes were reserved elsewhere.
    pub fn reserved(self, task: &Task) -> Result<Reserved<Self>, Fault> {
        let reservation = task.reserve(self.bytes() as u64 + OVERHEAD)?;
        Ok(Reserved::new(self, reservation))
    }

    /// A selection of elements at equal distances.
    pub fn strided(lattice: Lattice) -> Self {
        Selection {
            elements: lattice.elements(),
            unplaced: 0,
            blocks: SelectionBlocks::Strided(lattice),
        }
    }

    /// Checks and completes a selection that was read from a file; `None` where it is not valid in this rank.
    pub fn checked(mut self, rank: usize) -> Option<Self> {
        self.blocks = match self.blocks {
            SelectionBlocks::Listed(boxes) => SelectionBlocks::Listed(boxes.checked(rank, 1)?),
            SelectionBlocks::Strided(lattice) => {
                let lattice = lattice.checked(rank)?;
                (self.elements, self.unplaced) = (lattice.elements(), 0);
                SelectionBlocks::Strided(lattice)
            }
        };
        Some(self)
    }

    /// Number of dimensions of the blocks.
    pub fn rank(&self) -> usize {
        match &self.blocks {
            SelectionBlocks::Listed(boxes) => boxes.rank(),
            SelectionBlocks::Strided(lattice) => lattice.rank(),
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        match &self.blocks {
            SelectionBlocks::Listed(boxes) => boxes.rows(),
            SelectionBlocks::Strided(lattice) => lattice.blocks() as usize,
        }
    }

    /// Elements of the write, whether or not they lie in a block.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Elements of all blocks.
    pub fn placed_elements(&self) -> u64 {
        self.elements.saturating_sub(self.unplaced)
    }

    /// Whether the selection is one block with all elements of the write.
    pub fn is_one_block(&self) -> bool {
        self.blocks() == 1 && self.unplaced == 0 && (self.rank() > 0 || self.elements == 1)
    }

    /// The smallest box around all blocks. There must be a block.
    pub fn bounds(&self) -> Bounds {
        match &self.blocks {
            SelectionBlocks::Listed(boxes) => boxes.bounds(),
            SelectionBlocks::Strided(lattice) => lattice.bounds(),
        }
    }

    /// Calls `visit` with start and count of each block that touches `query`, and the number of elements before it, in
    /// this order, until `visit` breaks.
    fn visit<B>(
        &self,
        query: &Bounds,
        order: Order,
        mut visit: impl FnMut(&[u64], &[u64], u64) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match &self.blocks {
            SelectionBlocks::Listed(boxes) => boxes.visit(query, order, |row| {
                visit(row.start(), row.count(), row.value(0))
            }),
            SelectionBlocks::Strided(lattice) => lattice.visit_back(query, visit),
        }
    }

    /// Whether some block touches `query`.
    fn touches(&self, query: &Bounds) -> bool {
        match &self.blocks {
            SelectionBlocks::Listed(boxes) => boxes.any(query, |_| true),
            SelectionBlocks::Strided(lattice) => lattice.touches(query),
        }
    }

    /// Bytes of memory that one query takes at most.
    pub fn query_memory(&self) -> u64 {
        match &self.blocks {
            SelectionBlocks::Listed(boxes) => boxes.query_memory(),
            SelectionBlocks::Strided(_) => 0,
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        let blocks = match &self.blocks {
            SelectionBlocks::Listed(boxes) => boxes.bytes(),
            SelectionBlocks::Strided(lattice) => lattice.bytes(),
        };
        2 * size_of::<u64>() + blocks
    }
}

/// The blocks of a selection that is being made.
struct Blocks<S, C> {
    rank: usize,
    start: S,
    count: C,
    before: Vec<u64>,
    /// Numbers of the blocks with elements. `None` where all blocks have some.
    numbers: Option<Vec<usize>>,
}

impl<S: Fn(usize, usize) -> u64, C: Fn(usize, usize) -> u64> Blocks<S, C> {
    fn elements(&self, block: usize) -> Result<u64, Fault> {
        let mut elements = 1u64;
        for d in 0..self.rank {
            let count = (self.count)(block, d);
            if count == 0 {
                return Ok(0);
            }
            check_end((self.start)(block, d), count)?;
            elements = elements
                .checked_mul(count)
                .ok_or("a block has more elements than can be counted")?;
        }
        Ok(elements)
    }

    fn number(&self, row: usize) -> usize {
        self.numbers.as_ref().map_or(row, |numbers| numbers[row])
    }
}

impl<S: Fn(usize, usize) -> u64, C: Fn(usize, usize) -> u64> Rows for Blocks<S, C> {
    fn rank(&self) -> usize {
        self.rank
    }
    fn rows(&self) -> usize {
        self.before.len()
    }
    fn values(&self) -> usize {
        1
    }
    fn start(&self, row: usize, dim: usize) -> u64 {
        (self.start)(self.number(row), dim)
    }
    fn count(&self, row: usize, dim: usize) -> u64 {
        (self.count)(self.number(row), dim)
    }
    fn value(&self, row: usize, _: usize) -> u64 {
        self.before[row]
    }
}

/// The selections of one log that are in use, by numbers that its layout chooses. Entries of one or several datasets
/// share them.
#[derive(Debug, Default)]
pub struct Selections(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<u64, Weak<Reserved<Selection>>>,
    /// Number of known selections at which unused ones are removed.
    tidy_at: usize,
}

impl Selections {
    /// The selection with this number, if it is in use.
    pub fn get(&self, id: u64) -> Option<Arc<Reserved<Selection>>> {
        self.0.lock().by_id.get(&id).and_then(Weak::upgrade)
    }

    /// Adds a selection, unless the number is in use. Returns the selection with this number, and whether it is the new
    /// one.
    pub fn keep(
        &self,
        id: u64,
        selection: Reserved<Selection>,
    ) -> (Arc<Reserved<Selection>>, bool) {
        let known = &mut *self.0.lock();
        if let Some(there) = known.by_id.get(&id).and_then(Weak::upgrade) {
            return (there, false);
        }
        if known.by_id.len() >= known.tidy_at {
            known
                .by_id
                .retain(|_, selection| selection.strong_count() > 0);
            known.tidy_at = 2 * known.by_id.len() + 64;
        }
        let selection = Arc::new(selection);
        known.by_id.insert(id, Arc::downgrade(&selection));
        (selection, true)
    }
}

/// How the bytes of a record are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The elements as they are.
    Raw,
    /// One zlib stream.
    Deflate,
    /// One or more zlib streams, back to back.
    DeflateStreams,
    /// One zlib stream of unrecorded length. It ends at [`StoredBytes::len`] at the latest; the source may have more
    /// bytes.
    DeflateStream,
    /// Raw, or a zlib stream that happens to be as long as the raw bytes: raw unless it inflates.
    RawOrDeflate,
    /// The dataset's own filter pipeline, applied to all bytes of the record at once.
    Pipeline,
    /// Elements of another type, as they are: see [`Record::conversion`].
    Converted,
    /// The output of an ADIOS2 operator (`adios-bp.md`, section 5), for elements that may be of another type.
    Operator,
    /// An array of which the record has a part: see [`Record::part`]. Its elements may be of another type.
    Part,
}

/// The place and the encoding of a record's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredBytes {
    /// Number of the source file.
    pub source: u16,
    /// Offset in the source.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Encoding of the bytes.
    pub encoding: Encoding,
}

/// A logged write to a dataset. The record borrows from the list or index that holds it.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// First index along each dimension of the smallest box around all elements of the record.
    pub start: &'a [u64],
    /// Number of elements along each dimension of the box.
    pub count: &'a [u64],
    /// The blocks of the record; `None` where the box is the only one, and has all elements of the write. With `has_lead`, blocks have one dimension less
    /// than the dataset.
    pub selection: Option<&'a Selection>,
    /// All blocks lie at one index of the first dimension, that of the box.
    pub has_lead: bool,
    /// The bytes of its elements.
    pub stored: StoredBytes,
    /// The conversion to the dataset's type, where its elements are of another type.
    pub conversion: Option<&'a Conversion>,
    /// The part of the stored array that the record has, for [`Encoding::Part`].
    pub part: Option<&'a Part>,
    /// The reason why the bytes of this record cannot be read.
    pub fault: Option<&'a str>,
}

/// A block of a record, in the dataset's rank.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// First index along each dimension.
    pub start: &'a [u64],
    /// Number of elements along each dimension.
    pub count: &'a [u64],
    /// Elements of the record in the blocks before it.
    pub elements_before: u64,
}

impl Block<'_> {
    /// The block as a box.
    pub fn bounds(&self) -> Bounds {
        let ends = self.start.iter().zip(self.count);
        Bounds {
            end: ends.map(|(s, c)| s.saturating_add(*c)).collect(),
            start: self.start.to_vec(),
        }
    }

    /// Whether the block contains all of `query`.
    pub fn covers(&self, query: &Bounds) -> bool {
        (0..self.start.len()).all(|d| {
            let end = self.start[d].saturating_add(self.count[d]);
            self.start[d] <= query.start[d] && query.end[d] <= end
        })
    }
}

impl<'a> Record<'a> {
    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.selection.map_or(1, |s| s.blocks())
    }

    /// Elements of all blocks.
    pub fn placed_elements(&self) -> u64 {
        self.selection
            .map_or_else(|| self.elements(), Selection::placed_elements)
    }

    /// Elements of the write, of which some may lie in no block. A record whose elements overflow 64 bits was refused when
    /// it was made.
    pub fn elements(&self) -> u64 {
        match self.selection {
            Some(selection) => selection.elements(),
            None => self.count.iter().fold(1, |n, c| n.saturating_mul(*c)),
        }
    }

    /// Whether the log stores no elements of the record, because all have one value.
    pub fn is_constant(&self) -> bool {
        self.conversion
            .is_some_and(|conversion| conversion.constant().is_some())
    }

    /// The box around all elements of the record.
    pub fn bounds(&self) -> Bounds {
        self.whole().bounds()
    }

    /// The box of the record as a block.
    fn whole(&self) -> Block<'a> {
        Block {
            start: self.start,
            count: self.count,
            elements_before: 0,
        }
    }

    /// Calls `visit` with the blocks that touch `query`, from the last to the first, until `visit` breaks. `query` is
    /// a box of the dataset's rank that touches the record's.
    pub fn visit_back<B>(
        &self,
        query: &Bounds,
        visit: impl FnMut(Block<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit(query, Order::Back, visit)
    }

    /// Calls `visit` as [`Record::visit_back`] does, but from the first block to the last.
    pub fn visit<B>(
        &self,
        query: &Bounds,
        order: Order,
        mut visit: impl FnMut(Block<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match self.selection {
            None => visit(self.whole()),
            Some(selection) if !self.has_lead => {
                selection.visit(query, order, |start, count, before| {
                    visit(Block {
                        start,
                        count,
                        elements_before: before,
                    })
                })
            }
            Some(selection) => {
                let (mut start, mut count) = (self.start.to_vec(), self.count.to_vec());
                selection.visit(&without_lead(query), order, |inner, sides, before| {
                    start[1..].copy_from_slice(inner);
                    count[1..].copy_from_slice(sides);
                    visit(Block {
                        start: &start,
                        count: &count,
                        elements_before: before,
                    })
                })
            }
        }
    }

    /// Whether some block touches `query`, a box that touches the record's.
    pub fn touches(&self, query: &Bounds) -> bool {
        match self.selection {
            None => true,
            Some(selection) if !self.has_lead => selection.touches(query),
            Some(selection) => selection.touches(&without_lead(query)),
        }
    }
}

/// The query without its first dimension.
fn without_lead(query: &Bounds) -> Bounds {
    Bounds {
        start: query.start[1..].to_vec(),
        end: query.end[1..].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(rank: usize, starts: &[u64], counts: &[u64]) -> Result<Reserved<Selection>, Fault> {
        let start = |block: usize, d: usize| starts[block * rank + d];
        let count = |block: usize, d: usize| counts[block * rank + d];
        Selection::new(&Task::unlimited(), rank, starts.len() / rank, start, count)
    }

    #[test]
    fn empty_blocks_are_dropped_and_ends_are_checked() {
        let s = listed(2, &[0, 0, 4, 4], &[0, 3, 2, 2]).unwrap();
        assert_eq!((s.blocks(), s.elements()), (1, 4));
        assert_eq!(s.bounds().start, [4, 4]);
        assert!(listed(1, &[i64::MAX as u64], &[1]).is_err());
        assert!(listed(2, &[0, 0], &[1 << 40, 1 << 40]).is_err());
    }

    #[test]
    fn a_scalar_is_written_several_times() {
        let s = Selection::new(&Task::unlimited(), 0, 3, |_, _| 0, |_, _| 0).unwrap();
        assert_eq!((s.blocks(), s.elements()), (1, 3));
        let everywhere = Bounds {
            start: Vec::new(),
            end: Vec::new(),
        };
        let found = s.visit(&everywhere, Order::Back, |_, _, before| {
            ControlFlow::Break(before)
        });
        assert_eq!(found, ControlFlow::Break(2));
    }

    #[test]
    fn a_lead_is_the_first_dimension() {
        let selection = Arc::new(listed(1, &[2, 9], &[3, 1]).unwrap());
        let record = Record {
            start: &[7, 2],
            count: &[1, 8],
            selection: Some(&selection),
            has_lead: true,
            stored: StoredBytes {
                source: 0,
                offset: 0,
                len: 4,
                encoding: Encoding::Raw,
            },
            conversion: None,
            part: None,
            fault: None,
        };
        let mut blocks = Vec::new();
        let all = Bounds {
            start: vec![0, 0],
            end: vec![8, 10],
        };
        let _ = record.visit_back(&all, |block| {
            blocks.push((block.bounds(), block.elements_before));
            ControlFlow::<()>::Continue(())
        });
        let at = |start: u64, end: u64| Bounds {
            start: vec![7, start],
            end: vec![8, end],
        };
        assert_eq!(blocks, [(at(9, 10), 3), (at(2, 5), 0)]);
        assert!(record.touches(&at(4, 6)) && !record.touches(&at(5, 9)));
    }

    #[test]
    fn selections_are_shared_while_somebody_has_them() {
        let known = Selections::default();
        let make = || listed(1, &[0, 5], &[1, 1]).unwrap();
        let (first, is_new) = known.keep(7, make());
        assert!(is_new);
        let (second, is_new) = known.keep(7, make());
        assert!(!is_new && Arc::ptr_eq(&first, &second));
        assert!(known.get(8).is_none());
        drop((first, second));
        assert!(known.get(7).is_none());
    }
}
