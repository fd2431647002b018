//! Selections of many blocks.
//!
//! libhdf5 walks a selection in pieces, each a run of consecutive elements, and makes no copy of the selection. This module
//! splits the pieces into blocks.
//!
//! A program often writes hundreds of variables with one decomposition, in every step. So the last selections are remembered by
//! their pieces. Identifiers cannot serve for that: a selection may change under one identifier, or recur under another. So
//! libhdf5 walks each selection, and its pieces are compared with those remembered. A comparison takes a hundredth of the time of
//! splitting.

use std::ffi::c_uint;

use h5logfs_host::types::Id;
use h5logfs_output::Blocks;

use crate::library::Functions;
use h5logfs_common::fault::Fault;

/// The number of remembered selections.
const MOST: usize = 4;
/// The most pieces of all remembered selections together.
const MOST_BLOCKS: usize = 1 << 18;

/// Runs of consecutive elements of an extent, in row-major order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pieces {
    /// The number of the first element of each run.
    offsets: Vec<u64>,
    lengths: Vec<usize>,
}

/// A remembered selection.
#[derive(Debug)]
struct Walk {
    /// The extent without its first dimension.
    inner: Vec<u64>,
    /// The pieces, relative to the first selected index of the first dimension.
    pieces: Pieces,
    blocks: Blocks,
}

/// The last selections.
#[derive(Debug, Default)]
pub struct Walks {
    /// The pieces of the present call. The memory is reused.
    pieces: Pieces,
    /// The remembered selections, the most recent first.
    known: Vec<Walk>,
}

impl Walks {
    /// Lists the blocks of a selection in the dataspace's own extent. It has `elements` elements, at least one.
    pub fn blocks(
        &mut self,
        f: &Functions,
        space: Id,
        extent: &[u64],
        elements: u64,
    ) -> Result<&Blocks, Fault> {
        self.pieces.walk(f, space, elements)?;
        let Some((_, inner)) = extent.split_first() else {
            return Err("a scalar has no blocks".into());
        };
        Ok(self.find(inner))
    }

    /// The blocks of the present pieces, from a remembered selection or a new one.
    fn find(&mut self, inner: &[u64]) -> &Blocks {
        let index = self.pieces.make_relative(inner);
        let is_same = |walk: &Walk| walk.inner == inner && walk.pieces == self.pieces;
        match self.known.iter().position(is_same) {
            Some(at) => self.known[..=at].rotate_right(1),
            None => self.remember(inner),
        }
        let blocks = &mut self.known[0].blocks;
        blocks.move_to(index);
        blocks
    }

    /// Splits the present pieces into blocks, and remembers both. Older selections may be forgotten for them.
    fn remember(&mut self, inner: &[u64]) {
        let pieces = std::mem::take(&mut self.pieces);
        let (mut starts, mut counts) = (Vec::new(), Vec::new());
        for (offset, length) in pieces.offsets.iter().zip(&pieces.lengths) {
            rows(inner, *offset, *length as u64, &mut starts, &mut counts);
        }
        let rank = inner.len() + 1;
        let mut blocks = Blocks {
            rank,
            number: starts.len() / rank,
            starts,
            counts,
            elements: pieces.lengths.iter().map(|length| *length as u64).sum(),
            list: None,
        };
        blocks.give_number();
        let walk = Walk {
            inner: inner.to_vec(),
            pieces,
            blocks,
        };
        self.known.insert(0, walk);
        let mut total = 0;
        let kept = self.known.iter().enumerate().take_while(|(at, walk)| {
            total += walk.pieces.offsets.len();
            *at == 0 || (*at < MOST && total <= MOST_BLOCKS)
        });
        let kept = kept.count();
        self.known.truncate(kept);
    }
}

impl Pieces {
    /// Lists the pieces of a selection of `elements` elements.
    fn walk(&mut self, f: &Functions, space: Id, elements: u64) -> Result<(), Fault> {
        /// `H5S_SEL_ITER_SHARE_WITH_DATASPACE`: the iterator copies nothing. Nobody changes the selection meanwhile.
        const SHARED: c_uint = 2;
        const FIRST: usize = 1 << 10;
        const MOST_AT_ONCE: usize = 1 << 16;
        let failed = || Fault::from("the selection cannot be walked through");
        self.offsets.clear();
        self.lengths.clear();
        // SAFETY: with an element size of one byte, offsets are numbers of elements. The iterator is closed below.
        let iterator = unsafe { (f.H5Ssel_iter_create)(space, 1, SHARED) };
        if iterator < 0 {
            return Err(failed());
        }
        let (mut left, mut listed) = (elements, Ok(()));
        while left > 0 {
            let known = self.offsets.len();
            let more = known.clamp(FIRST, MOST_AT_ONCE);
            // The memory is not cleared first, and grows step by step: most selections have few pieces.
            self.offsets.reserve(more);
            self.lengths.reserve(more);
            let (mut sequences, mut found) = (0usize, 0usize);
            // SAFETY: both arrays have room for `more` sequences.
            let status = unsafe {
                (f.H5Ssel_iter_get_seq_list)(
                    iterator,
                    more,
                    left as usize,
                    &mut sequences,
                    &mut found,
                    self.offsets.spare_capacity_mut().as_mut_ptr().cast(),
                    self.lengths.spare_capacity_mut().as_mut_ptr().cast(),
                )
            };
            if status < 0 || found == 0 || sequences > more || found as u64 > left {
                listed = Err(failed());
                break;
            }
            // SAFETY: the library has written `sequences` values, at most `more`.
            unsafe {
                self.offsets.set_len(known + sequences);
                self.lengths.set_len(known + sequences);
            }
            left -= found as u64;
        }
        // SAFETY: the iterator was created above, and is closed once.
        unsafe { (f.H5Ssel_iter_close)(iterator) };
        listed
    }

    /// Makes the pieces relative to the first selected index of the first dimension. Returns that index.
    fn make_relative(&mut self, inner: &[u64]) -> u64 {
        let behind_an_index = inner.iter().product::<u64>().max(1);
        let first = self.offsets.first().copied().unwrap_or_default();
        let index = first / behind_an_index;
        let skipped = index * behind_an_index;
        self.offsets
            .iter_mut()
            .for_each(|offset| *offset -= skipped);
        index
    }
}

/// Splits a run of `length` elements, from the element number `offset` on, into rows. `inner`: the extent without its first
/// dimension.
fn rows(inner: &[u64], offset: u64, length: u64, starts: &mut Vec<u64>, counts: &mut Vec<u64>) {
    let rank = inner.len() + 1;
    let row = inner.last().copied().unwrap_or(u64::MAX);
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let within = (row - at % row).min(end - at);
        let first = starts.len();
        starts.resize(first + rank, 0);
        let mut rest = at;
        for (d, side) in inner.iter().enumerate().rev() {
            starts[first + 1 + d] = rest % side;
            rest /= side;
        }
        starts[first] = rest;
        counts.resize(first + rank - 1, 1);
        counts.push(within);
        at += within;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_into_rows() {
        let (mut starts, mut counts) = (Vec::new(), Vec::new());
        rows(&[3, 4], 10, 7, &mut starts, &mut counts);
        assert_eq!(starts, [0, 2, 2, 1, 0, 0, 1, 1, 0]);
        assert_eq!(counts, [1, 1, 2, 1, 1, 4, 1, 1, 1]);
        let (mut starts, mut counts) = (Vec::new(), Vec::new());
        rows(&[], 10, 7, &mut starts, &mut counts);
        assert_eq!((starts, counts), (vec![10], vec![7]));
    }

    fn walks<'a>(walks: &'a mut Walks, inner: &[u64], offsets: &[u64]) -> &'a Blocks {
        walks.pieces.offsets = offsets.to_vec();
        walks.pieces.lengths = vec![1; offsets.len()];
        walks.find(inner)
    }

    /// The next record has the same pieces; another extent does not.
    #[test]
    fn a_decomposition_is_known_in_each_record() {
        let mut known = Walks::default();
        let first = walks(&mut known, &[10], &[31, 35, 42]).clone();
        assert_eq!(first.starts, [3, 1, 3, 5, 4, 2]);
        let second = walks(&mut known, &[10], &[51, 55, 62]).clone();
        assert_eq!(second.starts, [5, 1, 5, 5, 6, 2]);
        assert!(first.list.is_some() && first.list == second.list);
        assert_eq!(known.known.len(), 1);
        walks(&mut known, &[9], &[31, 35, 42]);
        let other = walks(&mut known, &[10], &[31, 35, 43]).clone();
        assert_ne!(first.list, other.list);
        assert_eq!(known.known.len(), 3);
        for shift in 0..2 * MOST as u64 {
            walks(&mut known, &[100], &[shift, 50]);
        }
        assert_eq!(known.known.len(), MOST);
        let many: Vec<u64> = (0..MOST_BLOCKS as u64 + 1).map(|n| 2 * n).collect();
        walks(&mut known, &[], &many);
        assert_eq!(known.known.len(), 1);
    }
}
