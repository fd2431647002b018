//! Axis-aligned boxes of elements. `packed` stores many of them in a table, `rows` copies them between arrays.

pub mod packed;
pub mod rows;

use std::fmt;

use h5logfs_common::fault::Fault;

/// The order in which a query passes on its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the last row to the first.
    Back,
    /// The stored order, which takes less work.
    Any,
}

/// A non-empty hyper-rectangle of elements: `start[i] .. end[i]` along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Coordinates of the first element.
    pub start: Vec<u64>,
    /// Along each dimension, one past the last element.
    pub end: Vec<u64>,
}

/// Fails where a coordinate, or the end of a block, does not fit into 63 bits.
pub fn check_end(start: u64, count: u64) -> Result<(), Fault> {
    let end = start
        .checked_add(count)
        .filter(|end| *end <= i64::MAX as u64);
    end.map(drop)
        .ok_or_else(|| "a block ends past 2^63-1".into())
}

impl Bounds {
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.start.len()
    }

    /// The intersection; `None` if it is empty. Both boxes have the same rank.
    pub fn intersection(&self, other: &Bounds) -> Option<Bounds> {
        let start: Vec<u64> = max_each(&self.start, &other.start);
        let end: Vec<u64> = min_each(&self.end, &other.end);
        let empty = start.iter().zip(&end).any(|(s, e)| s >= e);
        (!empty).then_some(Bounds { start, end })
    }

    /// Elements along each dimension.
    pub fn count(&self) -> impl Iterator<Item = u64> + '_ {
        self.start.iter().zip(&self.end).map(|(s, e)| e - s)
    }

    /// Whether all of `other` lies in this box.
    pub fn contains(&self, other: &Bounds) -> bool {
        self.start.iter().zip(&other.start).all(|(a, b)| a <= b)
            && self.end.iter().zip(&other.end).all(|(a, b)| a >= b)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: Vec<u64> = self.count().collect();
        write!(f, "start {:?} count {count:?}", self.start)
    }
}

fn max_each(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| *a.max(b)).collect()
}

fn min_each(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| *a.min(b)).collect()
}
