//! The elements of a write, and the list of blocks that they form.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::words::dimensions;

use crate::error::FaultResult;

/// The elements of a write. Coordinates count elements, with one value for each dimension. As in HDF5, the data are in
/// row-major order of the selected elements. Several blocks are written one after the other, and points in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// The whole extent.
    All,
    Block {
        start: &'a [u64],
        count: &'a [u64],
    },
    /// `count` blocks of shape `block`, `stride` apart from start to start.
    Hyperslab {
        start: &'a [u64],
        stride: &'a [u64],
        count: &'a [u64],
        block: &'a [u64],
    },
    /// Any number of blocks: the start of each block, one after the other, and their counts. Where blocks overlap, the last
    /// one wins.
    Blocks {
        starts: &'a [u64],
        counts: &'a [u64],
    },
    /// The coordinates of points, one after the other.
    Points(&'a [u64]),
}

impl<'a> Selection<'a> {
    pub fn block(start: &'a [u64], count: &'a [u64]) -> Self {
        Selection::Block { start, count }
    }
}

/// The text for messages. A program may give any number of blocks and points, so the text has the first one only.
impl Display for Selection<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selection::All => f.write_str("the whole extent"),
            Selection::Block { start, count } => write!(f, "start {start:?}, count {count:?}"),
            Selection::Hyperslab {
                start,
                stride,
                count,
                block,
            } => write!(
                f,
                "start {start:?}, stride {stride:?}, count {count:?}, block {block:?}"
            ),
            Selection::Blocks { starts, counts } => write!(
                f,
                "blocks with {} numbers of starts and {} of counts",
                starts.len(),
                counts.len()
            ),
            Selection::Points(points) => write!(f, "points with {} coordinates", points.len()),
        }
    }
}

/// Blocks in the order of their data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blocks {
    /// Number of dimensions.
    pub rank: usize,
    /// Number of blocks. A scalar has one block without coordinates.
    pub number: usize,
    /// Starts of the blocks, one after the other.
    pub starts: Vec<u64>,
    /// Counts of the blocks.
    pub counts: Vec<u64>,
    /// Number of elements in all blocks.
    pub elements: u64,
    /// The identity of a repeated list. Once it is set, the blocks only move along the first dimension.
    pub list: Option<List>,
}

/// A list of several blocks that is used repeatedly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// Number of the list. In this process, blocks with the same number differ at most in the index of the first dimension at
    /// which they begin.
    pub number: u64,
    /// Whether all blocks lie in one index of the first dimension.
    pub is_in_one_record: bool,
}

/// Number of elements of blocks that all lie inside an extent and are not empty; `None` for others.
fn elements_inside(starts: &[u64], counts: &[u64], dims: &[u64]) -> Option<u64> {
    let mut all = 0u64;
    let blocks = starts.chunks_exact(dims.len());
    for (start, count) in blocks.zip(counts.chunks_exact(dims.len())) {
        let mut elements = 1u64;
        for ((start, count), dim) in start.iter().zip(count).zip(dims) {
            if start.checked_add(*count)? > *dim {
                return None;
            }
            elements = elements.checked_mul(*count)?;
        }
        if elements == 0 {
            return None;
        }
        all = all.checked_add(elements)?;
    }
    Some(all)
}

/// The most blocks of a hyperslab, because they are listed in memory.
const MAX_BLOCKS: u64 = 1 << 26;

impl Blocks {
    /// Lists the blocks of a selection in a dataset of extent `dims`, without empty ones. Fails if a block exceeds the
    /// extent.
    pub fn set(&mut self, selection: &Selection<'_>, dims: &[u64]) -> FaultResult {
        self.clear(dims.len());
        match *selection {
            Selection::All => {
                const ORIGIN: [u64; 32] = [0; 32];
                self.push(&ORIGIN[..dims.len().min(32)], dims, dims)
            }
            Selection::Block { start, count } => self.push(start, count, dims),
            Selection::Hyperslab {
                start,
                stride,
                count,
                block,
            } => self.hyperslab([start, stride, count, block], dims),
            Selection::Blocks { starts, counts } => self.blocks(starts, counts, dims),
            Selection::Points(points) => self.points(points, dims),
        }
    }

    /// Begins an empty list for a dataset of `rank` dimensions.
    pub fn clear(&mut self, rank: usize) {
        self.rank = rank;
        self.number = 0;
        self.elements = 0;
        self.list = None;
        self.starts.clear();
        self.counts.clear();
    }

    /// Gives several blocks a unique number.
    pub fn give_number(&mut self) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        self.list = (self.number > 1).then(|| List {
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            is_in_one_record: self.in_one_record(),
        });
    }

    /// Whether all blocks, if any, lie in one index of the first dimension.
    pub fn are_in_one_record(&self) -> bool {
        match self.list {
            Some(list) => list.is_in_one_record,
            None => self.in_one_record(),
        }
    }

    fn in_one_record(&self) -> bool {
        let Some(record) = self.starts.first() else {
            return false;
        };
        let starts = self.starts.iter().step_by(self.rank);
        let counts = self.counts.iter().step_by(self.rank);
        starts.zip(counts).all(|(s, c)| s == record && *c == 1)
    }

    /// Moves all blocks along the first dimension, so that the first one begins at `index`. No block may move below 0.
    pub fn move_to(&mut self, index: u64) {
        let by = index.wrapping_sub(self.starts.first().copied().unwrap_or(index));
        if by != 0 {
            let starts = self.starts.iter_mut().step_by(self.rank);
            starts.for_each(|start| *start = start.wrapping_add(by));
        }
    }

    /// Adds a block of a dataset of extent `dims`, unless it is empty. A block that continues the row of the previous block
    /// is joined to it. Fails if the block exceeds the extent.
    pub fn add(&mut self, start: &[u64], count: &[u64], dims: &[u64]) -> FaultResult {
        let before = self.number;
        self.push(start, count, dims)?;
        if before > 0 && self.number > before && self.goes_on(before) {
            let rank = self.rank;
            let last = before * rank - 1;
            self.counts[last] += self.counts[last + rank];
            self.starts.truncate(before * rank);
            self.counts.truncate(before * rank);
            self.number = before;
        }
        Ok(())
    }

    /// Whether a block continues the row of the previous one.
    fn goes_on(&self, block: usize) -> bool {
        let Some(last) = self.rank.checked_sub(1) else {
            return false;
        };
        let (start, count) = (self.start(block - 1), self.count(block - 1));
        let (next, sides) = (self.start(block), self.count(block));
        let is_row = count[..last]
            .iter()
            .chain(&sides[..last])
            .all(|side| *side == 1);
        is_row && start[..last] == next[..last] && start[last] + count[last] == next[last]
    }

    fn blocks(&mut self, starts: &[u64], counts: &[u64], dims: &[u64]) -> FaultResult {
        let rank = dims.len();
        if rank == 0 {
            return Err(Fault::Refused(SCALAR.into()));
        }
        if starts.len() != counts.len() || !starts.len().is_multiple_of(rank) {
            return Err(Fault::Refused(format!(
                "{} numbers of starts and {} of counts: each block has {rank} of both",
                starts.len(),
                counts.len()
            )));
        }
        if let Some(elements) = elements_inside(starts, counts, dims) {
            self.elements = elements;
            self.number = starts.len() / rank;
            self.starts.extend_from_slice(starts);
            self.counts.extend_from_slice(counts);
            return Ok(());
        }
        let mut blocks = starts.chunks_exact(rank).zip(counts.chunks_exact(rank));
        blocks.try_for_each(|(start, count)| self.push(start, count, dims))
    }

    fn push(&mut self, start: &[u64], count: &[u64], dims: &[u64]) -> FaultResult {
        if start.len() != dims.len() || count.len() != dims.len() {
            return Err(Fault::Refused(format!(
                "start {start:?} and count {count:?} for {}",
                dimensions(dims.len())
            )));
        }
        let mut elements = 1u64;
        for d in 0..dims.len() {
            let end = start[d].checked_add(count[d]);
            if end.is_none_or(|end| end > dims[d]) {
                let what = format!("a block with start {start:?} and count {count:?}");
                return Err(outside(&what, d, end, dims));
            }
            elements = elements.checked_mul(count[d]).ok_or_else(too_many)?;
        }
        if elements == 0 {
            return Ok(());
        }
        self.elements = self.elements.checked_add(elements).ok_or_else(too_many)?;
        self.number += 1;
        self.starts.extend_from_slice(start);
        self.counts.extend_from_slice(count);
        Ok(())
    }

    /// Lists the blocks of a hyperslab. Elements are in row-major order over the whole selection. So a block spans all
    /// dimensions after the last one with gaps, and is one row thick before it.
    fn hyperslab(&mut self, terms: [&[u64]; 4], dims: &[u64]) -> FaultResult {
        let elements = check_hyperslab(terms, dims)?;
        if elements == 0 {
            return Ok(());
        }
        let [start, stride, count, block] = terms;
        let rank = dims.len();
        let has_gaps = |d: usize| count[d] > 1 && stride[d] > block[d];
        let split = (0..rank).rev().find(|d| has_gaps(*d));
        // Number of blocks along each dimension, and their thickness.
        let (mut steps, mut thick) = (vec![1; rank], vec![1; rank]);
        for d in 0..rank {
            (steps[d], thick[d]) = match split {
                Some(split) if d < split => (count[d] * block[d], 1),
                Some(split) if d == split => (count[d], block[d]),
                _ => (1, count[d] * block[d]),
            };
        }
        let blocks = steps.iter().try_fold(1u64, |n, s| n.checked_mul(*s));
        if blocks.is_none_or(|n| n > MAX_BLOCKS) {
            return Err(Fault::Refused(format!(
                "the hyperslab consists of more than {MAX_BLOCKS} separate blocks: write it in parts"
            )));
        }
        let place = |d: usize, step: u64| match split {
            Some(split) if d < split => start[d] + step / block[d] * stride[d] + step % block[d],
            Some(split) if d == split => start[d] + step * stride[d],
            _ => start[d],
        };
        let mut at = vec![0; rank];
        loop {
            self.starts.extend((0..rank).map(|d| place(d, at[d])));
            self.counts.extend_from_slice(&thick);
            self.number += 1;
            let Some(d) = (0..rank).rev().find(|d| at[*d] + 1 < steps[*d]) else {
                break;
            };
            at[d] += 1;
            at[d + 1..].fill(0);
        }
        self.elements = elements;
        Ok(())
    }

    /// Lists points. Consecutive points along the last dimension form one block.
    fn points(&mut self, points: &[u64], dims: &[u64]) -> FaultResult {
        let rank = dims.len();
        if rank == 0 {
            return Err(Fault::Refused(SCALAR.into()));
        }
        if !points.len().is_multiple_of(rank) {
            return Err(Fault::Refused(format!(
                "{} coordinates: each point has {rank}",
                points.len()
            )));
        }
        for point in points.chunks_exact(rank) {
            if let Some(d) = (0..rank).find(|d| point[*d] >= dims[*d]) {
                let end = point[d].checked_add(1);
                return Err(outside(&format!("the point {point:?}"), d, end, dims));
            }
            let last = self.starts.len().checked_sub(rank);
            let follows = last.is_some_and(|last| {
                let (start, count) = (&self.starts[last..], self.counts[last + rank - 1]);
                start[..rank - 1] == point[..rank - 1] && start[rank - 1] + count == point[rank - 1]
            });
            match self.counts.last_mut() {
                Some(count) if follows => *count += 1,
                _ => {
                    self.starts.extend_from_slice(point);
                    self.counts.resize(self.counts.len() + rank, 1);
                    self.number += 1;
                }
            }
        }
        self.elements = (points.len() / rank) as u64;
        Ok(())
    }

    /// Upper bound of the bytes of an entry with these blocks.
    pub fn max_encoded_len(&self) -> u64 {
        48 + 16 * self.starts.len() as u64
    }

    /// Start of one block.
    pub fn start(&self, block: usize) -> &[u64] {
        &self.starts[block * self.rank..(block + 1) * self.rank]
    }

    /// Count of one block.
    pub fn count(&self, block: usize) -> &[u64] {
        &self.counts[block * self.rank..(block + 1) * self.rank]
    }

    /// A single block.
    pub fn one(start: &[u64], count: &[u64]) -> Self {
        Blocks {
            rank: start.len(),
            number: 1,
            starts: start.to_vec(),
            counts: count.to_vec(),
            elements: count.iter().product(),
            list: None,
        }
    }
}

const SCALAR: &str = "a scalar has one element and no coordinates: select all of it";

fn too_many() -> Fault {
    Fault::Refused("too many elements".into())
}

/// The refusal of `what`, which exceeds the extent in dimension `d`. It ends there at `end`; `None` if the end
/// overflows.
fn outside(what: &str, d: usize, end: Option<u64>, dims: &[u64]) -> Fault {
    let end = end.map_or("past 2^64".into(), |end| format!("at {end}"));
    Fault::Refused(format!(
        "{what} reaches out of the extent {dims:?}: in dimension {d} it ends {end}. Set a larger extent first, or \
         select less"
    ))
}

/// Checks a hyperslab given as start, stride, count, block. Returns its number of elements.
fn check_hyperslab(terms: [&[u64]; 4], dims: &[u64]) -> FaultResult<u64> {
    let [start, stride, count, block] = terms;
    let rank = dims.len();
    if terms.iter().any(|t| t.len() != rank) {
        let lens = terms.map(<[u64]>::len);
        return Err(Fault::Refused(format!(
            "start, stride, count and block have {lens:?} numbers for {}",
            dimensions(rank)
        )));
    }
    let mut elements = 1u64;
    for d in 0..rank {
        elements = elements
            .checked_mul(count[d])
            .and_then(|e| e.checked_mul(block[d]))
            .ok_or_else(too_many)?;
    }
    if elements == 0 {
        return Ok(0);
    }
    for d in 0..rank {
        if count[d] > 1 && stride[d] < block[d] {
            return Err(Fault::Refused(format!(
                "blocks of {} elements overlap in dimension {d} with a stride of {}",
                block[d], stride[d]
            )));
        }
        let end = (count[d] - 1)
            .checked_mul(stride[d])
            .and_then(|last| last.checked_add(start[d])?.checked_add(block[d]));
        if end.is_none_or(|end| end > dims[d]) {
            return Err(outside("the hyperslab", d, end, dims));
        }
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(selection: Selection<'_>, dims: &[u64]) -> Result<Blocks, String> {
        let mut blocks = Blocks::default();
        let set = blocks.set(&selection, dims);
        set.map(|()| blocks).map_err(|e| e.to_string())
    }

    /// Coordinates of all elements, in the order of the data.
    fn elements(blocks: &Blocks) -> Vec<Vec<u64>> {
        let mut all = Vec::new();
        for b in 0..blocks.number {
            let (start, count) = (blocks.start(b), blocks.count(b));
            let total: u64 = count.iter().product();
            for mut i in 0..total {
                let mut point = start.to_vec();
                for d in (0..point.len()).rev() {
                    point[d] += i % count[d];
                    i /= count[d];
                }
                all.push(point);
            }
        }
        all
    }

    #[test]
    fn extents_are_kept() {
        assert!(listed(Selection::block(&[3], &[2]), &[4]).is_err());
        assert!(listed(Selection::block(&[u64::MAX], &[2]), &[4]).is_err());
        assert!(listed(Selection::block(&[0, 0], &[1, 1]), &[4]).is_err());
        assert!(listed(Selection::Points(&[0, 4]), &[4, 4]).is_err());
        assert!(listed(Selection::Points(&[0]), &[4, 4]).is_err());
        let far = Selection::Hyperslab {
            start: &[0],
            stride: &[u64::MAX / 2],
            count: &[5],
            block: &[1],
        };
        assert!(listed(far, &[4]).is_err());
        let scalar = listed(Selection::All, &[]).unwrap();
        assert_eq!((scalar.number, scalar.elements), (1, 1));
        let none = listed(Selection::All, &[0, 3]).unwrap();
        assert_eq!((none.number, none.elements), (0, 0));
    }

    #[test]
    fn a_block_that_goes_on_in_a_row_is_no_block_of_its_own() {
        let listed = |list: &[([u64; 2], [u64; 2])]| {
            let mut blocks = Blocks::default();
            blocks.clear(2);
            for (start, count) in list {
                blocks.add(start, count, &[4, 9]).unwrap();
            }
            (blocks.number, blocks.elements, blocks.counts)
        };
        let (one, two) = ([1, 1], [1, 2]);
        assert_eq!(
            listed(&[([2, 3], two), ([2, 5], one), ([2, 6], [1, 0])]),
            (1, 3, vec![1, 3])
        );
        for (next, count) in [
            ([2, 4], one),
            ([2, 6], one),
            ([3, 5], one),
            ([2, 5], [2, 1]),
        ] {
            assert_eq!(listed(&[([2, 3], two), (next, count)]).0, 2, "{next:?}");
        }
        let mut blocks = Blocks::default();
        blocks.clear(2);
        assert!(blocks.add(&[3, 8], &[1, 2], &[4, 9]).is_err());
    }

    #[test]
    fn points_in_a_row_are_one_block() {
        let points = [0, 1, 0, 2, 0, 3, 1, 4, 0, 0];
        let blocks = listed(Selection::Points(&points), &[2, 5]).unwrap();
        assert_eq!((blocks.number, blocks.elements), (3, 5));
        assert_eq!(elements(&blocks).concat(), points);
    }

    #[test]
    fn messages_name_the_selection_and_the_dimension() {
        let slab = |stride: &'static [u64], count: &'static [u64]| Selection::Hyperslab {
            start: &[0, 1],
            stride,
            count,
            block: &[1, 2],
        };
        const DO: &str = ". Set a larger extent first, or select less";
        let cases = [
            (
                Selection::block(&[3, 0], &[2, 1]),
                "a block with start [3, 0] and count [2, 1] reaches out of the extent [4, 6]: in dimension 0 it ends at 5",
            ),
            (
                Selection::block(&[0, u64::MAX], &[1, 2]),
                "a block with start [0, 18446744073709551615] and count [1, 2] reaches out of the extent [4, 6]: in \
                 dimension 1 it ends past 2^64",
            ),
            (
                Selection::Points(&[1, 2, 3, 6]),
                "the point [3, 6] reaches out of the extent [4, 6]: in dimension 1 it ends at 7",
            ),
            (
                slab(&[1, 2], &[1, 3]),
                "the hyperslab reaches out of the extent [4, 6]: in dimension 1 it ends at 7",
            ),
        ];
        for (selection, words) in cases {
            assert_eq!(listed(selection, &[4, 6]), Err(format!("{words}{DO}")));
        }
        let cases = [
            (
                Selection::block(&[3], &[2, 1]),
                "start [3] and count [2, 1] for 2 dimensions",
            ),
            (
                Selection::Points(&[1, 2, 3]),
                "3 coordinates: each point has 2",
            ),
            (
                Selection::Blocks {
                    starts: &[1, 2, 3],
                    counts: &[1, 1],
                },
                "3 numbers of starts and 2 of counts: each block has 2 of both",
            ),
            (
                slab(&[1], &[1, 1]),
                "start, stride, count and block have [2, 1, 2, 2] numbers for 2 dimensions",
            ),
            (
                slab(&[1, 1], &[1, 2]),
                "blocks of 2 elements overlap in dimension 1 with a stride of 1",
            ),
        ];
        for (selection, words) in cases {
            assert_eq!(listed(selection, &[4, 6]), Err(words.into()));
        }
    }

    type Term = (u64, u64, u64, u64);

    proptest! {
        /// Hyperslabs follow libhdf5's rule: row-major order over all selected elements.
        #[test]
        fn hyperslabs_are_listed_in_row_major_order(
            terms in prop::collection::vec((0u64..3, 0u64..3, 1u64..4, 1u64..4), 1..4),
        ) {
            let of = |f: &dyn Fn(&Term) -> u64| terms.iter().map(f).collect::<Vec<u64>>();
            let (start, count, block) = (of(&|t| t.0), of(&|t| t.2), of(&|t| t.3));
            let stride = of(&|t| t.3 + t.1);
            let dims = vec![20; terms.len()];
            let selection = Selection::Hyperslab {
                start: &start, stride: &stride, count: &count, block: &block,
            };
            let blocks = listed(selection, &dims).unwrap();
            let along = |d: usize| {
                let (start, stride, block) = (start[d], stride[d], block[d]);
                (0..count[d]).flat_map(move |c| (0..block).map(move |b| start + c * stride + b))
            };
            let mut wanted: Vec<Vec<u64>> = vec![Vec::new()];
            for d in 0..dims.len() {
                wanted = wanted
                    .into_iter()
                    .flat_map(|p| along(d).map(move |v| [p.clone(), vec![v]].concat()))
                    .collect();
            }
            prop_assert_eq!(elements(&blocks), wanted);
        }
    }
}
