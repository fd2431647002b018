//! A strided hyperslab: elements at equal distances along each dimension, described by a few numbers.

use std::ops::{ControlFlow, Range};

use serde::{Deserialize, Serialize};

use crate::boxes::{Bounds, check_end};
use h5logfs_common::fault::Fault;

/// The elements `start[d] + k[d]·stride[d]` for all `k[d] < count[d]`, in row-major order of `k`. Elements that are
/// contiguous along the last dimensions make one block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lattice {
    start: Vec<u64>,
    count: Vec<u64>,
    stride: Vec<u64>,
    /// Dimensions from here on are whole in each block.
    outer: usize,
    /// Elements of one block.
    block: u64,
    elements: u64,
}

impl Lattice {
    /// Fails where it has no elements, ends past 2^63-1, or the number of elements overflows.
    pub fn new(start: Vec<u64>, count: Vec<u64>, stride: Vec<u64>) -> Result<Self, Fault> {
        let rank = start.len();
        if count.len() != rank || stride.len() != rank {
            return Err("sides of different ranks".into());
        }
        for d in 0..rank {
            let steps = count[d].checked_sub(1).ok_or("no elements")?;
            if stride[d] == 0 {
                return Err("a stride of 0".into());
            }
            let span = steps.checked_mul(stride[d]).and_then(|s| s.checked_add(1));
            check_end(start[d], span.unwrap_or(u64::MAX))?;
        }
        let elements = count.iter().copied().try_fold(1, u64::checked_mul);
        let elements = elements.ok_or("more elements than can be counted")?;
        let follow = |d: &usize| stride[*d] == 1 || count[*d] == 1;
        let outer = rank - (0..rank).rev().take_while(follow).count();
        Ok(Lattice {
            block: count[outer..].iter().product(),
            elements,
            outer,
            start,
            count,
            stride,
        })
    }

    /// Checks and completes a value that was read from a file; `None` where it is not valid in this rank.
    pub fn checked(self, rank: usize) -> Option<Self> {
        let again = Lattice::new(self.start, self.count, self.stride).ok()?;
        (again.rank() == rank).then_some(again)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.start.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.elements / self.block
    }

    /// The smallest box around all elements.
    pub fn bounds(&self) -> Bounds {
        let end = |d: usize| self.start[d] + (self.count[d] - 1) * self.stride[d] + 1;
        Bounds {
            start: self.start.clone(),
            end: (0..self.rank()).map(end).collect(),
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + 24 * self.rank()
    }

    /// The range of `k` along each dimension that lies in `query`; `None` where no element does.
    fn steps_in(&self, query: &Bounds) -> Option<Vec<Range<u64>>> {
        let ranges = (0..self.rank()).map(|d| {
            let below = |limit: u64| {
                let far = limit.saturating_sub(self.start[d]).div_ceil(self.stride[d]);
                far.min(self.count[d])
            };
            let range = below(query.start[d])..below(query.end[d]);
            (!range.is_empty()).then_some(range)
        });
        ranges.collect()
    }

    /// Whether some element lies in `query`.
    pub fn touches(&self, query: &Bounds) -> bool {
        self.steps_in(query).is_some()
    }

    /// Calls `visit` with start and count of each block that touches `query`, and the number of elements before it. It
    /// goes from the last block to the first, until `visit` breaks.
    pub fn visit_back<B>(
        &self,
        query: &Bounds,
        mut visit: impl FnMut(&[u64], &[u64], u64) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some(inside) = self.steps_in(query) else {
            return ControlFlow::Continue(());
        };
        let mut count = self.count.clone();
        count[..self.outer].fill(1);
        let mut start = self.start.clone();
        let mut at: Vec<u64> = inside[..self.outer].iter().map(|k| k.end - 1).collect();
        loop {
            let mut number = 0;
            for (d, k) in at.iter().enumerate() {
                start[d] = self.start[d] + k * self.stride[d];
                number = number * self.count[d] + k;
            }
            visit(&start, &count, number * self.block)?;
            // Counts down, the last dimension fastest.
            let mut d = self.outer;
            loop {
                let Some(one_before) = d.checked_sub(1) else {
                    return ControlFlow::Continue(());
                };
                d = one_before;
                if at[d] > inside[d].start {
                    at[d] -= 1;
                    break;
                }
                at[d] = inside[d].end - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Blocks = Vec<(Vec<u64>, u64)>;

    /// Every element of the visited blocks that lies in the query, with its number, in reverse.
    fn visited(lattice: &Lattice, query: &Bounds) -> Blocks {
        let mut found = Vec::new();
        let _ = lattice.visit_back(query, |start, count, before| {
            let all: u64 = count.iter().product();
            for n in (0..all).rev() {
                let mut rest = n;
                let mut at = start.to_vec();
                for d in (0..count.len()).rev() {
                    at[d] += rest % count[d];
                    rest /= count[d];
                }
                found.push((at, before + n));
            }
            ControlFlow::<()>::Continue(())
        });
        found.retain(|(at, _)| {
            (0..at.len()).all(|d| query.start[d] <= at[d] && at[d] < query.end[d])
        });
        found
    }

    /// Every element that lies in the query, with its number, in reverse, computed from the definition of a lattice.
    fn expected(lattice: &Lattice, query: &Bounds) -> Blocks {
        let all = (0..lattice.elements()).rev().map(|n| {
            let (mut rest, mut at) = (n, lattice.start.clone());
            for d in (0..at.len()).rev() {
                at[d] += rest % lattice.count[d] * lattice.stride[d];
                rest /= lattice.count[d];
            }
            (at, n)
        });
        let inside =
            |at: &[u64]| (0..at.len()).all(|d| query.start[d] <= at[d] && at[d] < query.end[d]);
        all.filter(|(at, _)| inside(at)).collect()
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            sides in prop::collection::vec((0u64..6, 1u64..5, 1u64..4), 0..4),
            query in prop::collection::vec((0u64..16, 0u64..16), 3),
        ) {
            let (start, rest): (Vec<u64>, Vec<_>) = sides.iter().map(|s| (s.0, (s.1, s.2))).unzip();
            let (count, stride) = rest.into_iter().unzip();
            let lattice = Lattice::new(start, count, stride).unwrap();
            let query = Bounds {
                start: query.iter().take(sides.len()).map(|q| q.0).collect(),
                end: query.iter().take(sides.len()).map(|q| q.1).collect(),
            };
            prop_assert_eq!(visited(&lattice, &query), expected(&lattice, &query));
            prop_assert_eq!(lattice.touches(&query), !expected(&lattice, &query).is_empty());
            let bounds = lattice.bounds();
            prop_assert_eq!(visited(&lattice, &bounds).len() as u64, lattice.elements());
        }
    }

    #[test]
    fn runs_are_blocks() {
        let blocks = |count: [u64; 3], stride: [u64; 3]| {
            let lattice = Lattice::new(vec![0; 3], count.into(), stride.into());
            lattice.unwrap().blocks()
        };
        assert_eq!(blocks([2, 3, 4], [1, 1, 1]), 1);
        assert_eq!(blocks([2, 3, 4], [5, 1, 1]), 2);
        assert_eq!(blocks([2, 3, 4], [1, 2, 1]), 6);
        assert_eq!(blocks([2, 3, 1], [1, 2, 9]), 6);
        assert_eq!(blocks([2, 3, 4], [1, 1, 2]), 24);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let new = |start, count, stride| Lattice::new(vec![start], vec![count], vec![stride]);
        let most = i64::MAX as u64;
        assert!(new(0, 0, 1).is_err());
        assert!(new(0, 1, 0).is_err());
        assert!(new(most - 1, 1, u64::MAX).is_ok());
        assert!(new(most, 1, 1).is_err());
        assert!(new(0, 2, most).is_err());
        assert!(new(0, u64::MAX, u64::MAX).is_err());
        let large = vec![1 << 40; 2];
        assert!(Lattice::new(vec![0; 2], large, vec![1; 2]).is_err());
    }
}
