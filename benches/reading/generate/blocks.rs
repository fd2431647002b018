//! Selections of the generator.

use std::ops::Range;

use super::values::{Order, random};

/// Blocks of the same number of dimensions, at least one: their starts and counts, one after the other.
#[derive(Debug, Clone)]
pub struct Blocks {
    rank: usize,
    starts: Vec<u64>,
    counts: Vec<u64>,
}

impl Blocks {
    pub fn new(rank: usize) -> Self {
        Blocks {
            rank,
            starts: Vec::new(),
            counts: Vec::new(),
        }
    }

    pub fn one(start: &[u64], count: &[u64]) -> Self {
        let mut blocks = Blocks::new(start.len());
        blocks.push(start, count);
        blocks
    }

    pub fn push(&mut self, start: &[u64], count: &[u64]) {
        self.starts.extend_from_slice(start);
        self.counts.extend_from_slice(count);
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn len(&self) -> u64 {
        (self.starts.len() / self.rank) as u64
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u64], &[u64])> {
        let counts = self.counts.chunks_exact(self.rank);
        self.starts.chunks_exact(self.rank).zip(counts)
    }

    /// The starts of all blocks, one after the other.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// The counts of all blocks, one after the other.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub fn elements(&self) -> u64 {
        let counts = self.counts.chunks_exact(self.rank);
        counts.map(|c| c.iter().product::<u64>()).sum()
    }
}

/// A dimension that is cut into runs of `least` to `most` elements. Each pair of runs has `least + most`
/// elements, so the position of a run does not depend on those before it.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    pub least: u64,
    pub most: u64,
    pub seed: u64,
}

impl Runs {
    /// Elements of `runs` runs, an even number.
    pub fn extent(&self, runs: u64) -> u64 {
        runs / 2 * (self.least + self.most)
    }

    pub fn get(&self, run: u64) -> Range<u64> {
        let (pair, both) = (run / 2, self.least + self.most);
        let first = self.least + random(self.seed, pair) % (self.most - self.least + 1);
        let start = pair * both;
        match run % 2 {
            0 => start..start + first,
            _ => start + first..start + both,
        }
    }
}

/// The numbers below `count` that belong to one of `ranks` ranks, in random order.
pub fn share(count: u64, ranks: u64, rank: u64, seed: u64) -> impl Iterator<Item = u64> {
    let order = Order::new(count, seed);
    let bounds = count * rank / ranks..count * (rank + 1) / ranks;
    bounds.map(move |place| order.at(place))
}
