//! Which stored elements decide what a chunk holds: the walk from the last record that touches it to
//! the first, until nothing is undecided.

use std::ops::ControlFlow;

use super::claims::Claims;
use super::grid::Grid;
use crate::boxes::Bounds;
use crate::index::DatasetIndex;
use crate::log::model::{Block, Record, Stored};
use crate::log::numbers::Conversion;

/// Elements of a record that a chunk takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first one, counted in the record.
    pub from: u64,
    /// Where it goes, counted in the chunk.
    pub to: u64,
    pub len: u64,
}

/// A block that decides a chunk alone.
pub struct Sole {
    pub stored: Stored,
    pub conversion: Option<Conversion>,
    pub is_only_block: bool,
    pub block: Bounds,
    /// The chunk's elements in the record, where they follow each other there.
    pub stretch: Option<Stretch>,
    pub fault: Option<String>,
}

/// One chunk, and who decides it.
pub struct Deciding<'a> {
    index: &'a DatasetIndex,
    grid: &'a Grid,
    /// The elements of the chunk that belong to the dataset.
    pub bounds: Bounds,
}

impl<'a> Deciding<'a> {
    pub fn new(index: &'a DatasetIndex, grid: &'a Grid, chunk: u64) -> Self {
        Deciding {
            index,
            grid,
            bounds: grid.bounds(chunk),
        }
    }

    /// The block that covers the whole chunk and which no other one overrides.
    pub fn sole(&self) -> Option<Sole> {
        let found = self.index.visit_back(&self.bounds, |record| {
            record.visit_back(&self.bounds, |block| {
                ControlFlow::Break(
                    block
                        .covers(&self.bounds)
                        .then(|| self.as_sole(record, &block)),
                )
            })
        });
        match found {
            ControlFlow::Break(sole) => sole,
            ControlFlow::Continue(()) => None,
        }
    }

    fn as_sole(&self, record: &Record<'_>, block: &Block<'_>) -> Sole {
        let mut stretches = Vec::new();
        Overlap::new(self.grid, &self.bounds).stretches(block, |stretch| {
            stretches.push(stretch);
            // A second one is enough to know.
            stretches.len() < 2
        });
        Sole {
            stored: record.stored,
            conversion: record.conversion.copied(),
            is_only_block: record.selection.is_none(),
            block: block.bounds(),
            stretch: match stretches.as_slice() {
                [one] => Some(*one),
                _ => None,
            },
            fault: record.fault.map(str::to_owned),
        }
    }

    /// Shows `take` each stretch that decides a part of the chunk, with its record and the block in that:
    /// no element of the chunk is in two of them. Stops at the first error. Returns how many elements of
    /// the dataset nobody wrote.
    pub fn stretches(
        &self,
        mut take: impl FnMut(&Record<'_>, &Block<'_>, Stretch) -> Result<(), String>,
    ) -> Result<u64, String> {
        let inside = self.bounds.count().product();
        let mut claims = Claims::new(self.grid.elements(), inside);
        let mut overlap = Overlap::new(self.grid, &self.bounds);
        let stopped = self.index.visit_back(&self.bounds, |record| {
            record.visit_back(&self.bounds, |block| {
                let mut taken = Ok(());
                overlap.stretches(&block, |all| {
                    claims.claim(all.to, all.to + all.len, |start, end| {
                        let free = Stretch {
                            from: all.from.saturating_add(start - all.to),
                            to: start,
                            len: end - start,
                        };
                        if taken.is_ok() {
                            taken = take(record, &block, free);
                        }
                    });
                    taken.is_ok()
                });
                match taken {
                    Err(fault) => ControlFlow::Break(Err(fault)),
                    Ok(()) if claims.left() == 0 => ControlFlow::Break(Ok(())),
                    Ok(()) => ControlFlow::Continue(()),
                }
            })
        });
        match stopped {
            ControlFlow::Break(Err(fault)) => Err(fault),
            _ => Ok(claims.left()),
        }
    }

    /// Elements of the dataset in the chunk that some record wrote. Of the stretches that are `left` it takes those
    /// that were looked at; `None` where these are not enough.
    pub fn covered(&self, left: &mut u64) -> Option<u64> {
        let inside: u64 = self.bounds.count().product();
        if self.sole().is_some() {
            return Some(inside);
        }
        let unwritten = self.stretches(|_, _, _| {
            *left = left.checked_sub(1).ok_or("too many stretches")?;
            Ok(())
        });
        unwritten.ok().map(|unwritten| inside - unwritten)
    }
}

/// The common parts of one chunk and of blocks; its vectors are used again for each block.
struct Overlap<'a> {
    chunk: &'a Bounds,
    /// Sides of the chunk, those past the dataset's edge included.
    sides: &'a [u64],
    start: Vec<u64>,
    end: Vec<u64>,
    at: Vec<u64>,
}

impl<'a> Overlap<'a> {
    fn new(grid: &'a Grid, chunk: &'a Bounds) -> Self {
        Overlap {
            chunk,
            sides: &grid.chunk,
            start: chunk.start.clone(),
            end: chunk.end.clone(),
            at: chunk.start.clone(),
        }
    }

    /// Shows `take` the stretches of a block's elements that lie in the chunk, until it has enough.
    fn stretches(&mut self, block: &Block<'_>, mut take: impl FnMut(Stretch) -> bool) {
        let rank = self.sides.len();
        for d in 0..rank {
            let end = block.start[d].saturating_add(block.count[d]);
            self.start[d] = block.start[d].max(self.chunk.start[d]);
            self.end[d] = end.min(self.chunk.end[d]);
            if self.start[d] >= self.end[d] {
                return;
            }
        }
        // Dimensions from `inner` on make one stretch, in the record and in the chunk.
        let mut inner = rank;
        let mut len = 1;
        while inner > 0 {
            inner -= 1;
            let count = self.end[inner] - self.start[inner];
            len *= count;
            if count != block.count[inner] || count != self.sides[inner] {
                break;
            }
        }
        self.at.copy_from_slice(&self.start);
        loop {
            let stretch = Stretch {
                from: block
                    .before
                    .saturating_add(linear(&self.at, block.start, block.count)),
                to: linear(&self.at, &self.chunk.start, self.sides),
                len,
            };
            if !take(stretch) || !self.next_row(inner) {
                return;
            }
        }
    }

    /// Dimensions before `inner` count up, the last of them fastest.
    fn next_row(&mut self, inner: usize) -> bool {
        for d in (0..inner).rev() {
            self.at[d] += 1;
            if self.at[d] < self.end[d] {
                return true;
            }
            self.at[d] = self.start[d];
        }
        false
    }
}

/// The number of the element at `at` in a box that starts at `origin`.
fn linear(at: &[u64], origin: &[u64], sides: &[u64]) -> u64 {
    (0..at.len()).fold(0, |n: u64, d| {
        n.saturating_mul(sides[d]).saturating_add(at[d] - origin[d])
    })
}
