//! What every log layout comes down to: records, and the selections that they wrote.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::boxes::{Bounds, BoxTree, Boxes};

/// The blocks that one write covered, in the order in which their elements lie in the log.
/// In rank 0, the selection of a scalar, every block is the one element.
#[derive(Debug)]
pub struct Selection {
    rank: usize,
    /// `starts[b * rank + d]`, and `counts` alike. No count is zero.
    starts: Vec<u64>,
    counts: Vec<u64>,
    /// Elements in the blocks before block `b`; one value more than blocks.
    before: Vec<u64>,
    bounds: Bounds,
    tree: BoxTree,
}

impl Selection {
    /// The selection of rank 0: the one element there is, written so many times.
    pub fn without_coordinates(times: usize) -> Self {
        Selection {
            rank: 0,
            starts: Vec::new(),
            counts: Vec::new(),
            before: (0..=times as u64).collect(),
            bounds: Bounds {
                start: Vec::new(),
                end: Vec::new(),
            },
            tree: BoxTree::default(),
        }
    }

    /// From blocks of one rank (1 at the least), listed one after the other. Blocks without elements are dropped.
    /// Fails where a block ends past 2^63-1, or the elements cannot be counted.
    pub fn new(rank: usize, starts: &[u64], counts: &[u64]) -> Result<Self, String> {
        let mut selection = Selection {
            rank,
            starts: Vec::with_capacity(starts.len()),
            counts: Vec::with_capacity(counts.len()),
            before: vec![0],
            bounds: Bounds {
                start: vec![u64::MAX; rank],
                end: vec![0; rank],
            },
            tree: BoxTree::default(),
        };
        for (start, count) in starts.chunks_exact(rank).zip(counts.chunks_exact(rank)) {
            selection.push(start, count)?;
        }
        selection.tree = BoxTree::build(&selection);
        Ok(selection)
    }

    fn push(&mut self, start: &[u64], count: &[u64]) -> Result<(), String> {
        if count.contains(&0) {
            return Ok(());
        }
        let mut elements = 1u64;
        for d in 0..self.rank {
            let end = start[d]
                .checked_add(count[d])
                .filter(|end| *end <= i64::MAX as u64)
                .ok_or("a block ends past 2^63-1")?;
            self.bounds.start[d] = self.bounds.start[d].min(start[d]);
            self.bounds.end[d] = self.bounds.end[d].max(end);
            elements = elements
                .checked_mul(count[d])
                .ok_or("a block has more elements than can be counted")?;
        }
        let total = self
            .elements()
            .checked_add(elements)
            .ok_or("more elements than can be counted")?;
        self.starts.extend_from_slice(start);
        self.counts.extend_from_slice(count);
        self.before.push(total);
        Ok(())
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn blocks(&self) -> usize {
        self.before.len() - 1
    }

    pub fn elements(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    pub fn start(&self, block: usize) -> &[u64] {
        &self.starts[block * self.rank..(block + 1) * self.rank]
    }

    pub fn count(&self, block: usize) -> &[u64] {
        &self.counts[block * self.rank..(block + 1) * self.rank]
    }

    /// Elements of the record that lie in front of this block.
    pub fn elements_before(&self, block: usize) -> u64 {
        self.before[block]
    }

    /// The smallest box around all blocks; meaningless without blocks.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Numbers of the blocks that touch `query`, ascending.
    pub fn touching(&self, query: &Bounds) -> Vec<usize> {
        self.tree.touching(self, query)
    }

    /// Whether some block touches `query`.
    pub fn touches(&self, query: &Bounds) -> bool {
        self.tree.any(self, query, |_| true)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        let numbers = self.starts.len() + self.counts.len() + self.before.len();
        size_of::<Self>() + numbers * 8 + self.tree.bytes()
    }
}

impl Boxes for Selection {
    fn rank(&self) -> usize {
        self.rank
    }
    fn number(&self) -> usize {
        self.blocks()
    }
    fn side(&self, block: usize, dim: usize) -> Range<u64> {
        let start = self.starts[block * self.rank + dim];
        start..start + self.counts[block * self.rank + dim]
    }
}

/// How the bytes of a record are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    Raw,
    /// One or more zlib streams, back to back.
    Deflate,
    /// Perhaps a zlib stream that happens to be as long as what it holds: raw unless it inflates.
    RawOrDeflate,
    /// The dataset's own filter pipeline, applied to all bytes of the record at once.
    Pipeline,
}

/// One logged write to one dataset.
#[derive(Debug, Clone)]
pub struct Record {
    /// Blocks of the dataset's rank, or of one dimension less where `lead` gives the first.
    pub selection: Arc<Selection>,
    /// Index along the first dimension, of all blocks alike (count 1).
    pub lead: Option<u64>,
    /// Which source file holds the bytes.
    pub source: u16,
    /// Where the stored bytes begin in it, from byte 0 of the file.
    pub offset: u64,
    /// Stored bytes.
    pub stored: u64,
    pub encoding: Encoding,
    /// Why the bytes of this record cannot be had.
    pub fault: Option<Box<str>>,
}

impl Record {
    /// The smallest box of the dataset's rank around all that the record wrote.
    pub fn bounds(&self) -> Bounds {
        with_lead(self.lead, self.selection.bounds())
    }

    /// Block `number` in the dataset's rank.
    pub fn block(&self, number: usize) -> Bounds {
        let start = self.selection.start(number).to_vec();
        let end = start
            .iter()
            .zip(self.selection.count(number))
            .map(|(s, c)| s + c)
            .collect();
        with_lead(self.lead, &Bounds { start, end })
    }

    /// Numbers of the blocks that touch `query`, a box of the dataset's rank.
    pub fn blocks_touching(&self, query: &Bounds) -> Vec<usize> {
        match self.without_lead(query) {
            Some(query) => self.selection.touching(&query),
            None => Vec::new(),
        }
    }

    /// Whether some block touches `query`.
    pub fn touches(&self, query: &Bounds) -> bool {
        self.without_lead(query)
            .is_some_and(|query| self.selection.touches(&query))
    }

    /// Whether one block covers `query` whole, as far as that can be told at little cost: several
    /// blocks there are not looked at one by one.
    pub fn covers(&self, query: &Bounds) -> bool {
        match self.blocks_touching(query).as_slice() {
            [one] => self.block(*one).contains(query),
            _ => false,
        }
    }

    /// The part of `query` that the selection can tell apart; `None` where the lead lies outside.
    fn without_lead<'a>(&self, query: &'a Bounds) -> Option<Cow<'a, Bounds>> {
        let Some(lead) = self.lead else {
            return Some(Cow::Borrowed(query));
        };
        let inside = (query.start[0]..query.end[0]).contains(&lead);
        inside.then(|| {
            Cow::Owned(Bounds {
                start: query.start[1..].to_vec(),
                end: query.end[1..].to_vec(),
            })
        })
    }
}

fn with_lead(lead: Option<u64>, bounds: &Bounds) -> Bounds {
    let Some(lead) = lead else {
        return bounds.clone();
    };
    let mut start = vec![lead];
    start.extend_from_slice(&bounds.start);
    let mut end = vec![lead + 1];
    end.extend_from_slice(&bounds.end);
    Bounds { start, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_blocks_are_dropped_and_ends_are_checked() {
        let s = Selection::new(2, &[0, 0, 4, 4], &[0, 3, 2, 2]).unwrap();
        assert_eq!((s.blocks(), s.elements()), (1, 4));
        assert!(Selection::new(1, &[i64::MAX as u64], &[1]).is_err());
        assert!(Selection::new(2, &[0, 0], &[1 << 40, 1 << 40]).is_err());
    }

    #[test]
    fn a_lead_is_the_first_dimension() {
        let record = Record {
            selection: Arc::new(Selection::new(1, &[2], &[3]).unwrap()),
            lead: Some(7),
            source: 0,
            offset: 0,
            stored: 3,
            encoding: Encoding::Raw,
            fault: None,
        };
        let bounds = Bounds {
            start: vec![7, 2],
            end: vec![8, 5],
        };
        assert_eq!(record.bounds(), bounds);
        assert_eq!(record.block(0), bounds);
        let query = |rows: Range<u64>| Bounds {
            start: vec![rows.start, 0],
            end: vec![rows.end, 3],
        };
        assert_eq!(record.blocks_touching(&query(0..8)), [0]);
        assert!(record.blocks_touching(&query(0..7)).is_empty());
        assert!(record.touches(&query(7..8)) && !record.touches(&query(8..9)));
    }
}
