//! Detection of blocks with regular steps. Small writes with a regular stride leave such blocks.

use crate::selection::Blocks;

/// Fewest blocks worth the time.
const FEWEST: usize = if cfg!(test) { 8 } else { 64 };
/// Most blocks: the connector needs memory with the square of their number.
const MOST: usize = 1 << 13;
/// Longest period of the steps, in blocks.
const LONGEST: usize = 16;
/// Share of steps that may be irregular: one in this many.
const OTHERS: usize = 16;

/// Whether most blocks repeat an earlier block with some period: its shape, and its distance from the block before.
pub(crate) fn is_regular(blocks: &Blocks) -> bool {
    let steps = blocks.number.saturating_sub(1);
    let most = steps / OTHERS;
    let repeats = |period: &usize| {
        let others = (*period..steps).filter(|i| !is_alike(blocks, *i, i - period));
        others.take(most + 1).count() <= most
    };
    (FEWEST..=MOST).contains(&blocks.number) && (1..=LONGEST).any(|period| repeats(&period))
}

/// Whether the steps after two blocks are equal, and also the blocks that follow.
fn is_alike(blocks: &Blocks, one: usize, other: usize) -> bool {
    let step = |at: usize, d: usize| {
        let (from, to) = (blocks.start(at)[d], blocks.start(at + 1)[d]);
        to.wrapping_sub(from)
    };
    blocks.count(one + 1) == blocks.count(other + 1)
        && (0..blocks.rank).all(|d| step(one, d) == step(other, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(starts: impl Iterator<Item = [u64; 2]>) -> Blocks {
        let starts: Vec<u64> = starts.flatten().collect();
        Blocks {
            rank: 2,
            number: starts.len() / 2,
            counts: vec![1; starts.len()],
            elements: 0,
            list: None,
            starts,
        }
    }

    #[test]
    fn steps_that_repeat_are_regular() {
        assert!(is_regular(&blocks((0..500).map(|i| [0, 7 * i]))));
        assert!(!is_regular(&blocks((0..7).map(|i| [0, 7 * i]))));
        // Each row has some of the blocks, in any order within it.
        let row = [3, 50, 20, 90, 71];
        let rows = |i: u64| [i / 5, row[i as usize % 5]];
        assert!(is_regular(&blocks((0..500).map(rows))));
        // There is a gap now and then.
        assert!(is_regular(&blocks((0..500).map(|i| [0, 7 * i + i / 100]))));
        assert!(!is_regular(&blocks((0..500).map(|i| [0, i * i]))));
        let mut other = blocks((0..500).map(|i| [0, 7 * i]));
        (0..500).for_each(|i| other.counts[2 * i + 1] = 1 + i as u64 % 29);
        assert!(!is_regular(&other));
    }
}
