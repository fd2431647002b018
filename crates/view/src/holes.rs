//! Holes of the canonical file: chunks that no record touches, and nodes of sparse chunk indexes that lead to no chunk.

use std::ops::Range;
use std::sync::Arc;

use super::grid::End;
use super::map::Region;
use super::{Grid, View};
use crate::index::DatasetIndex;
use h5logfs_common::error::Result;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::btree::{All, Chunks};
use h5logfs_log::boxes::Bounds;
use h5logfs_log::snapshot::Content;
use h5logfs_log::source_file::SourceFile;

/// The most chunks that are looked at for a segment of data. A damaged log may have more than can be counted.
const MAX_CHUNKS: u64 = 1 << 10;

/// A range of the canonical file that is a hole, or has data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Offsets in the canonical file, in bytes.
    pub range: Range<u64>,
    /// Whether the bytes are zeros, which is known without reading data of the log.
    pub is_hole: bool,
}

/// The holes of the canonical file.
#[derive(Debug, Clone, Copy)]
pub struct Holes<'a> {
    view: &'a View,
}

impl<'a> Holes<'a> {
    #[inline]
    pub(super) fn new(view: &'a View) -> Self {
        Holes { view }
    }

    /// The segment from `offset` on. A segment of data may end before the next hole, because only a limited number of
    /// chunks is looked at. At and past the end of the file the segment is empty. Fails where the index of the dataset
    /// cannot be made.
    pub fn segment_at(self, offset: u64) -> Result<Segment> {
        if offset >= self.view.len() {
            return Ok(Segment {
                range: offset..offset,
                is_hole: true,
            });
        }
        let (region, range) = self.view.map.region_at(offset);
        let number = match region {
            Some(Region::Chunks(number)) if self.has_holes(number) => number,
            Some(Region::Tree(number)) if self.is_sparse(number) => {
                return self.segment_of_tree(number, offset, &range);
            }
            _ => {
                return Ok(Segment {
                    range: offset..range.end,
                    is_hole: region.is_none(),
                });
            }
        };
        let place = &self.view.map.datasets[number];
        let first = (offset - range.start) / place.slot;
        let mut touched = self.touched(number, first)?.peekable();
        let is_hole = touched.peek() != Some(&first);
        let next = if is_hole {
            touched.next()
        } else {
            // The first chunk that no record touches, or the first that is not looked at.
            let end = first.saturating_add(MAX_CHUNKS).min(place.grid.len());
            let gap = (first..end).find(|chunk| touched.next() != Some(*chunk));
            gap.or((end < place.grid.len()).then_some(end))
        };
        let end = next.map_or(range.end, |chunk| range.start + chunk * place.slot);
        Ok(Segment {
            range: offset..end,
            is_hole,
        })
    }

    /// The segment from `offset` on in a sparse chunk index, which lies at `range`.
    fn segment_of_tree(self, number: usize, offset: u64, range: &Range<u64>) -> Result<Segment> {
        let Some((tree, _)) = &self.view.map.datasets[number].tree else {
            unreachable!("a region of a B-tree belongs to a dataset that has one");
        };
        let listed = self.listed(&self.view.task(None), number)?;
        let (node, bytes) = tree.node_at(offset - range.start);
        let there = tree.next_node(node, &listed);
        let is_hole = there != node;
        let end = if is_hole {
            tree.place(there).start
        } else {
            bytes.end
        };
        Ok(Segment {
            range: offset..range.start + end,
            is_hole,
        })
    }

    /// Whether the chunk index of a dataset lists only written chunks: see `Listed`.
    pub fn is_sparse(self, number: usize) -> bool {
        self.view.map.datasets[number].is_sparse
    }

    /// Whether chunks that no record touches are all zeros.
    fn has_holes(self, number: usize) -> bool {
        let dataset = &self.view.snapshot.datasets[number];
        let is_zero = dataset.filters.is_empty() && dataset.fill.iter().all(|b| *b == 0);
        (is_zero || self.is_sparse(number)) && dataset.logged().is_some()
    }

    /// The chunks of a logged dataset from number `from` on that some record touches. A damaged entry of the record
    /// tables may touch any chunk.
    pub fn touched(self, number: usize, from: u64) -> Result<impl Iterator<Item = u64>> {
        let index = self.view.indexes().of(number)?;
        let all = !index.diagnostics().is_empty();
        let is_sparse = self.is_sparse(number);
        let wanted = move |bounds: &Bounds| {
            all || if is_sparse {
                index.is_stored(bounds, |source| source_len(&self.view.sources, source))
            } else {
                index.is_touched(bounds)
            }
        };
        Ok(self.view.grid(number).matching(from, wanted))
    }

    /// The chunks that the index of a dataset lists. Fails for a sparse index of a dataset whose elements cannot be
    /// trusted, because a missing chunk would read as fill value.
    pub(super) fn listed(self, task: &Task, number: usize) -> Result<Listed<'a>> {
        let grid = self.view.grid(number);
        if !self.is_sparse(number) {
            return Ok(Listed::All(All(grid.len())));
        }
        let failed = |fault| self.view.bad_data(number, "its chunk index".into(), fault);
        if let Content::Unreadable(reason) = &self.view.snapshot.datasets[number].content {
            return Err(failed(reason.as_str().into()));
        }
        let index = self.view.indexes().of_dataset(task, number)?;
        index.check().map_err(failed)?;
        Ok(Listed::Written {
            grid,
            index,
            sources: &self.view.sources,
        })
    }
}

fn source_len(sources: &[SourceFile], source: u16) -> u64 {
    sources.get(usize::from(source)).map_or(0, SourceFile::len)
}

/// The chunks that a chunk index lists.
pub(super) enum Listed<'a> {
    /// All chunks of the grid.
    All(All),
    /// The chunks of a sparse index, which have data in the files of the log. Data below the records that would lie
    /// past the end of their file do not count.
    Written {
        grid: &'a Grid,
        index: Arc<DatasetIndex>,
        sources: &'a [SourceFile],
    },
}

impl Chunks for Listed<'_> {
    fn next(&self, from: u64) -> Option<u64> {
        match self {
            Listed::All(all) => all.next(from),
            Listed::Written { grid, .. } => {
                // Most often the next chunk is listed.
                let is_it = from < grid.len() && self.has(&grid.bounds(from));
                let find = || grid.find(&(from..grid.len()), End::First, &mut |b| self.has(b));
                is_it.then_some(from).or_else(find)
            }
        }
    }

    fn last_before(&self, end: u64) -> Option<u64> {
        match self {
            Listed::All(all) => all.last_before(end),
            Listed::Written { grid, .. } => {
                grid.find(&(0..end), End::Last, &mut |bounds| self.has(bounds))
            }
        }
    }
}

impl Listed<'_> {
    fn has(&self, bounds: &Bounds) -> bool {
        match self {
            Listed::All(_) => true,
            Listed::Written { index, sources, .. } => {
                index.is_stored(bounds, |source| source_len(sources, source))
            }
        }
    }
}
