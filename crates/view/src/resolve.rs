//! Which stored elements make up a chunk: the walk from the last record that touches it to the first, until
//! every element is covered.

use std::ops::ControlFlow;

use super::bitmap::CoverageBitmap;
use super::map::Placement;
use super::pieces::element_in_log;
use crate::index::DatasetIndex;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::boxes::{Bounds, Order};
use h5logfs_log::conversion::Conversion;
use h5logfs_log::model::{Block, Encoding, Record, StoredBytes};
use h5logfs_log::snapshot::Dataset;

/// How a chunk is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkSource {
    /// The stored bytes of one record are the stored bytes of the chunk.
    AsStored(StoredBytes),
    /// All elements of the chunk follow each other in the log, unfiltered.
    InPlace(InPlace),
    /// The chunk has to be put together.
    Assemble,
}

/// Where the elements of a chunk follow each other in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlace {
    pub source: u16,
    /// Of the chunk's first element, in bytes of the source file.
    pub offset: u64,
    pub conversion: Option<Conversion>,
}

/// Elements of a record that follow each other in the record and in the chunk. All members count elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first one, counted from the start of the record.
    pub in_record: u64,
    /// The first one, counted from the start of the chunk.
    pub in_chunk: u64,
    pub len: u64,
}

/// One chunk, and the index to look up its records in.
pub struct ChunkResolver<'a> {
    pub index: &'a DatasetIndex,
    pub dataset: &'a Dataset,
    pub place: &'a Placement,
    /// The elements of the chunk that belong to the dataset.
    pub bounds: Bounds,
}

impl ChunkResolver<'_> {
    /// How the chunk is served. Looks at one block: the last one that touches the chunk.
    pub fn source(&self) -> ChunkSource {
        self.if_covered(|record, block| self.source_in(record, block))
            .unwrap_or(ChunkSource::Assemble)
    }

    /// As [`BoxRecords::if_covered`] of the chunk.
    pub(super) fn if_covered<T>(
        &self,
        found: impl FnOnce(&Record<'_>, &Block<'_>) -> T,
    ) -> Option<T> {
        self.records(&[self.index]).if_covered(found)
    }

    /// How the chunk is served from `block`, which covers it.
    fn source_in(&self, record: &Record<'_>, block: &Block<'_>) -> ChunkSource {
        // Object references are translated, and a fault is reported, where chunks are assembled.
        if record.fault.is_some() || !self.dataset.references.is_empty() {
            return ChunkSource::Assemble;
        }
        let in_place = match record.stored.encoding {
            Encoding::Pipeline if self.is_stored_chunk(record, block) => {
                return ChunkSource::AsStored(record.stored);
            }
            Encoding::Raw | Encoding::Converted if self.dataset.filters.is_empty() => {
                let records = [self.index];
                self.records(&records)
                    .in_place(record, block, self.dataset.element_size)
            }
            _ => None,
        };
        in_place.map_or(ChunkSource::Assemble, ChunkSource::InPlace)
    }

    /// Whether the block is the whole chunk, is all that the record has, and fits into the chunk's slot.
    fn is_stored_chunk(&self, record: &Record<'_>, block: &Block<'_>) -> bool {
        record.stored.len <= self.place.slot && self.is_all_of(record, block)
    }

    /// Whether the block is the whole chunk, with what lies past the dataset's edge, and is all that the record has.
    pub(super) fn is_all_of(&self, record: &Record<'_>, block: &Block<'_>) -> bool {
        record.selection.is_none()
            && block.start == self.bounds.start
            && block.count == self.place.grid.chunk
    }

    /// The run of all elements of the dataset that the chunk has, of a block that covers them; `None` where they do
    /// not follow each other from the start of the chunk on.
    pub(super) fn only_run(&self, block: &Block<'_>) -> Option<Run> {
        self.records(&[self.index]).only_run(block)
    }

    /// As [`BoxRecords::runs`] of the chunk.
    pub fn runs(
        &self,
        task: &Task,
        take: impl FnMut(&Record<'_>, &Block<'_>, Run) -> Result<(), Fault>,
    ) -> Result<CoverageBitmap, Fault> {
        self.records(&[self.index]).runs(task, take)
    }

    /// The records of the chunk, in these indexes.
    pub fn records<'b>(&'b self, indexes: &'b [&'b DatasetIndex]) -> BoxRecords<'b> {
        BoxRecords {
            indexes,
            bounds: &self.bounds,
            sides: &self.place.grid.chunk,
        }
    }

    /// Elements of the chunk that belong to the dataset.
    fn elements(&self) -> u64 {
        self.bounds.count().product()
    }

    /// How many elements of the chunk some record wrote, or lie below the records. Each run that is looked at is taken off `budget`;
    /// `None` where that is not enough, or where the count needs a bitmap of more than `max_elements`.
    pub fn count_written(&self, task: &Task, budget: &mut u64, max_elements: u64) -> Option<u64> {
        if self.if_covered(|_, _| ()).is_some() {
            return Some(self.elements());
        }
        if self.place.grid.elements() > max_elements {
            return None;
        }
        let covered = self.runs(task, |_, _, _| {
            *budget = budget.checked_sub(1).ok_or("too many runs")?;
            Ok(())
        });
        covered
            .ok()
            .map(|covered| self.elements() - covered.missing())
    }
}

/// A box of a dataset, and the records that make it up.
pub struct BoxRecords<'a> {
    /// Records of a later index apply later.
    pub indexes: &'a [&'a DatasetIndex],
    /// The elements that are wanted.
    pub bounds: &'a Bounds,
    /// Sides of the box in memory. It begins with the first of the wanted elements, and may be larger than they are.
    pub sides: &'a [u64],
}

impl BoxRecords<'_> {
    /// Calls `found` where the last block that touches the box covers all of it. Of several indexes none is looked at.
    pub fn if_covered<T>(&self, found: impl FnOnce(&Record<'_>, &Block<'_>) -> T) -> Option<T> {
        let (&[index], bounds) = (self.indexes, self.bounds) else {
            return None;
        };
        // To find the last of many may mean to sort them.
        if !index.may_cover(bounds) {
            return None;
        }
        let mut found = Some(found);
        let last = index.visit_back(bounds, |record| {
            record.visit_back(bounds, |block| {
                let found = found.take().filter(|_| block.covers(bounds));
                ControlFlow::Break(found.map(|found| found(record, &block)))
            })
        });
        match last {
            ControlFlow::Break(value) => value,
            ControlFlow::Continue(()) => None,
        }
    }

    /// The run of all wanted elements, of a block that covers them; `None` where they do not follow each other from the
    /// start of the box on.
    pub fn only_run(&self, block: &Block<'_>) -> Option<Run> {
        let mut first = None;
        Overlap::new(self.sides, self.bounds).runs(block, |run| {
            first = Some(run);
            false
        });
        let wanted: u64 = self.bounds.count().product();
        first.filter(|run| run.in_chunk == 0 && run.len == wanted)
    }

    /// Where all elements of the box follow each other in `block`, which covers it, of a record that is stored as it is or
    /// converted. `element`: the size of one in the dataset, in bytes.
    pub fn in_place(
        &self,
        record: &Record<'_>,
        block: &Block<'_>,
        element: u64,
    ) -> Option<InPlace> {
        let elements: u64 = self.sides.iter().product();
        let run = self.only_run(block).filter(|run| run.len == elements)?;
        let size = element_in_log(record, element);
        let start = run.in_record.checked_mul(size)?;
        let offset = record.stored.offset.checked_add(start)?;
        // Offsets of all its elements can be had without another look.
        offset.checked_add(elements.checked_mul(size)?)?;
        Some(InPlace {
            source: record.stored.source,
            offset,
            conversion: record.conversion.copied(),
        })
    }

    /// Shows `take` each run of elements that the box takes from a record, with that record and the block
    /// in it. No element of the box is in two runs. Stops at the first error. Returns which of the wanted elements some
    /// record wrote.
    pub fn runs(
        &self,
        task: &Task,
        take: impl FnMut(&Record<'_>, &Block<'_>, Run) -> Result<(), Fault>,
    ) -> Result<CoverageBitmap, Fault> {
        self.runs_in(Order::Back, task, take)
    }

    /// As [`BoxRecords::runs`], but in the order in which the index has them, and without their blocks. That is faster, and
    /// the same as long as no element lies in two records: fails at the first that does.
    pub fn runs_apart(
        &self,
        task: &Task,
        mut take: impl FnMut(&Record<'_>, Run) -> Result<(), Fault>,
    ) -> Result<CoverageBitmap, Fault> {
        self.runs_in(Order::Any, task, |record, _, run| take(record, run))
    }

    /// Whether [`BoxRecords::runs_apart`] takes less work than [`BoxRecords::runs`], and may succeed.
    pub fn may_be_apart(&self) -> bool {
        match self.indexes {
            [index] => !index.is_in_order() && !index.has_base(),
            _ => false,
        }
    }

    fn runs_in(
        &self,
        order: Order,
        task: &Task,
        mut take: impl FnMut(&Record<'_>, &Block<'_>, Run) -> Result<(), Fault>,
    ) -> Result<CoverageBitmap, Fault> {
        let memory = self.indexes.iter().map(|index| index.query_memory());
        let _sorting = task.reserve(memory.max().unwrap_or(0))?;
        let elements = self.sides.iter().product();
        let mut covered = CoverageBitmap::new(task, elements, self.bounds.count().product())?;
        let mut overlap = Overlap::new(self.sides, self.bounds);
        let mut visit = |record: &Record<'_>| {
            record.visit(self.bounds, order, |block| {
                let mut taken = task.check().map_err(Fault::from);
                overlap.runs(&block, |all| {
                    let before = covered.missing();
                    covered.cover(all.in_chunk, all.in_chunk + all.len, |start, end| {
                        let run = Run {
                            in_record: all.in_record.saturating_add(start - all.in_chunk),
                            in_chunk: start,
                            len: end - start,
                        };
                        if taken.is_ok() {
                            taken = take(record, &block, run);
                        }
                    });
                    if order == Order::Any && before - covered.missing() < all.len {
                        taken = Err("records that overlap".into());
                    }
                    taken.is_ok()
                });
                match taken {
                    Err(reason) => ControlFlow::Break(Err(reason)),
                    // In any order one that overlaps may still come.
                    Ok(()) if covered.missing() == 0 && order == Order::Back => {
                        ControlFlow::Break(Ok(()))
                    }
                    Ok(()) => ControlFlow::Continue(()),
                }
            })
        };
        let mut indexes = self.indexes.iter().rev();
        let stopped = indexes.try_for_each(|index| index.visit(self.bounds, order, &mut visit));
        match stopped {
            ControlFlow::Break(Err(reason)) => Err(reason),
            _ => Ok(covered),
        }
    }
}

/// The common parts of one chunk and of blocks. Its vectors are used again for each block.
pub struct Overlap<'a> {
    chunk: &'a Bounds,
    /// Sides of the chunk, with the elements past the dataset's edge.
    sides: &'a [u64],
    start: Vec<u64>,
    end: Vec<u64>,
    at: Vec<u64>,
}

impl<'a> Overlap<'a> {
    /// `sides`: those of the chunk in memory.
    pub fn new(sides: &'a [u64], chunk: &'a Bounds) -> Self {
        Overlap {
            chunk,
            sides,
            start: chunk.start.clone(),
            end: chunk.end.clone(),
            at: chunk.start.clone(),
        }
    }

    /// Shows `take` the runs of a block's elements that lie in the chunk, until it returns false.
    pub fn runs(&mut self, block: &Block<'_>, mut take: impl FnMut(Run) -> bool) {
        if let (&[start], &[count], &[from], &[to]) = (
            block.start,
            block.count,
            &*self.chunk.start,
            &*self.chunk.end,
        ) {
            let (first, end) = (start.max(from), start.saturating_add(count).min(to));
            if first < end {
                take(Run {
                    in_record: block.elements_before.saturating_add(first - start),
                    in_chunk: first - from,
                    len: end - first,
                });
            }
            return;
        }
        let rank = self.sides.len();
        for d in 0..rank {
            let end = block.start[d].saturating_add(block.count[d]);
            self.start[d] = block.start[d].max(self.chunk.start[d]);
            self.end[d] = end.min(self.chunk.end[d]);
            if self.start[d] >= self.end[d] {
                return;
            }
        }
        // The dimensions from `inner` on make one run, in the record and in the chunk.
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
            let in_block = linear(&self.at, block.start, block.count);
            let run = Run {
                in_record: block.elements_before.saturating_add(in_block),
                in_chunk: linear(&self.at, &self.chunk.start, self.sides),
                len,
            };
            if !take(run) || !self.next_row(inner) {
                return;
            }
        }
    }

    /// Counts the dimensions before `inner` up, the last of them fastest. Returns false at the end.
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

/// The row-major number of the element at `at` in a box that starts at `origin`.
fn linear(at: &[u64], origin: &[u64], sides: &[u64]) -> u64 {
    (0..at.len()).fold(0, |n: u64, d| {
        n.saturating_mul(sides[d]).saturating_add(at[d] - origin[d])
    })
}
