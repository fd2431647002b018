//! Moves of elements into a chunk, in the order of the chunk.
//!
//! Most moves have a few elements, and the number varies. A call to copy them takes longer than the copy, and so does a
//! branch on their number. So a move copies a whole lot where the moves behind it overwrite the excess.

use h5logfs_common::fault::Fault;

/// Bytes of a lot where elements are small.
const LOT: usize = 16;
/// Bytes of a lot where elements are larger.
pub const LARGE_LOT: usize = 32;
/// Bytes of the largest small element.
const SMALL: usize = 4;
/// Number of moves that are looked at together: whether all of them have one element.
const BLOCK: usize = if cfg!(test) { 4 } else { 64 };
/// The most elements of a lot.
const LOT_ELEMENTS: u64 = 16;

/// Bits of a packed move for its length.
const LENGTH_BITS: u32 = 6;
const MOST: u64 = (1 << LENGTH_BITS) - 1;
/// The bit that forbids a write behind the elements.
const IS_EXACT: u32 = 1 << LENGTH_BITS;
const PLACE_AT: u32 = LENGTH_BITS + 1;
/// Limit of the places from which moves come, and of the distances that are skipped at once.
pub const MOST_PLACES: u64 = 1 << (u32::BITS - PLACE_AT);

/// A move of elements. All members count elements.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    pub from: u64,
    pub to: u64,
    pub len: u64,
}

/// A move to the place behind the previous move. Without a length, it is a distance to the next place.
#[derive(Debug, Clone, Copy)]
pub struct PackedMove(u32);

impl PackedMove {
    fn new(place: u64, len: u64, is_exact: bool) -> Self {
        debug_assert!(place < MOST_PLACES && len <= MOST);
        let exact = if is_exact { IS_EXACT } else { 0 };
        PackedMove((place as u32) << PLACE_AT | exact | len as u32)
    }

    fn place(self) -> usize {
        (self.0 >> PLACE_AT) as usize
    }

    fn len(self) -> usize {
        self.0 as usize & MOST as usize
    }

    fn is_exact(self) -> bool {
        self.0 & IS_EXACT != 0
    }
}

/// Packs moves, and passes them to `take`. The moves are in the order of their places in the chunk, and do not overlap.
pub fn pack(
    moves: &[Move],
    mut take: impl FnMut(PackedMove) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (mut rest, mut at) = (moves, 0);
    while let Some(first) = rest.first() {
        let mut skipped = first.to - at;
        while skipped > 0 {
            let now = skipped.min(MOST_PLACES - 1);
            take(PackedMove::new(now, 0, false))?;
            skipped -= now;
        }
        let (row, later) = rest.split_at(row(rest));
        let end = row.last().map_or(0, |last| last.to + last.len);
        for one in row {
            for done in (0..one.len).step_by(MOST as usize) {
                let is_exact = one.to + done + LOT_ELEMENTS > end;
                let len = (one.len - done).min(MOST);
                take(PackedMove::new(one.from + done, len, is_exact))?;
            }
        }
        (rest, at) = (later, end);
    }
    Ok(())
}

/// The number of first moves whose places follow each other.
fn row(moves: &[Move]) -> usize {
    let follows = |pair: &&[Move]| pair[0].to + pair[0].len == pair[1].to;
    1 + moves.windows(2).take_while(follows).count()
}

/// Does moves of elements of `element` bytes. `None` where a move leads out of the bytes.
pub fn gather(moves: &[PackedMove], from: &[u8], chunk: &mut [u8], element: usize) -> Option<()> {
    // The compiler makes words of elements whose size it knows.
    match element {
        4 => gather_by::<LOT>(moves, from, chunk, 4),
        8 => gather_by::<LARGE_LOT>(moves, from, chunk, 8),
        0..=SMALL => gather_by::<LOT>(moves, from, chunk, element),
        _ => gather_by::<LARGE_LOT>(moves, from, chunk, element),
    }
}

#[inline(always)]
fn gather_by<const LOT: usize>(
    moves: &[PackedMove],
    from: &[u8],
    chunk: &mut [u8],
    element: usize,
) -> Option<()> {
    let mut to = 0;
    for block in moves.chunks(BLOCK) {
        if block.iter().fold(0, |bits, one| bits | one.len() ^ 1) == 0 {
            let end = to + block.len() * element;
            gather_singles(block, from, chunk.get_mut(to..end)?, element)?;
            to = end;
        } else {
            to = gather_block::<LOT>(block, from, chunk, element, to)?;
        }
    }
    Some(())
}

/// Does moves of one element each.
#[inline(always)]
fn gather_singles(
    moves: &[PackedMove],
    from: &[u8],
    chunk: &mut [u8],
    element: usize,
) -> Option<()> {
    for (one, target) in moves.iter().zip(chunk.chunks_exact_mut(element)) {
        let at = one.place() * element;
        target.copy_from_slice(from.get(at..at + element)?);
    }
    Some(())
}

/// Does moves to the places from `to` on. Returns the place behind them.
#[inline(always)]
fn gather_block<const LOT: usize>(
    moves: &[PackedMove],
    from: &[u8],
    chunk: &mut [u8],
    element: usize,
    mut to: usize,
) -> Option<usize> {
    for one in moves {
        let (at, len) = (one.place() * element, one.len() * element);
        if len == 0 {
            to += at;
            continue;
        }
        if len <= LOT && !one.is_exact() {
            let source = from.get(at..).and_then(<[u8]>::first_chunk::<LOT>);
            let target = chunk.get_mut(to..).and_then(<[u8]>::first_chunk_mut::<LOT>);
            if let (Some(source), Some(target)) = (source, target) {
                *target = *source;
                to += len;
                continue;
            }
        }
        let source = from.get(at..at + len)?;
        chunk.get_mut(to..to + len)?.copy_from_slice(source);
        to += len;
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Elements beside the moves stay as they are, also near the ends.
        #[test]
        fn moves_copy_their_elements_and_no_others(
            element in 1usize..10,
            // Distance of each move from the one before, and its length.
            steps in prop::collection::vec((prop_oneof![3 => Just(0u64), 1 => 1u64..40], prop_oneof![1u64..100, Just(1)]), 0..20),
            order in any::<u64>(),
            is_cut_off in any::<bool>(),
        ) {
            let mut moves = Vec::new();
            let (mut to, mut from) = (0, 0);
            for (gap, len) in steps {
                to += gap;
                moves.push(Move { from: 0, to, len });
                to += len;
            }
            // The sources of the moves are in another order.
            let mut numbers: Vec<usize> = (0..moves.len()).collect();
            numbers.sort_by_key(|number| (*number as u64 + 1).wrapping_mul(order | 1));
            for number in numbers {
                moves[number].from = from;
                from += moves[number].len;
            }
            let source: Vec<u8> = (0..from as usize * element).map(|n| n as u8).collect();
            let mut chunk: Vec<u8> = (0..to as usize * element).map(|n| !(n * 7) as u8).collect();
            if is_cut_off && let Some(last) = chunk.len().checked_sub(1) {
                chunk.truncate(last);
            }
            let mut wanted = chunk.clone();
            let bytes = |start: u64, len: u64| start as usize * element..(start + len) as usize * element;
            for Move { from, to, len } in &moves {
                if let Some(target) = wanted.get_mut(bytes(*to, *len)) {
                    target.copy_from_slice(&source[bytes(*from, *len)]);
                }
            }
            let mut packed = Vec::new();
            pack(&moves, |one| {
                packed.push(one);
                Ok(())
            })
            .unwrap();
            let moved = gather(&packed, &source, &mut chunk, element);
            if moves.is_empty() || !is_cut_off {
                prop_assert_eq!(moved, Some(()));
                prop_assert_eq!(chunk, wanted);
            } else {
                prop_assert_eq!(moved, None);
            }
        }
    }
}
