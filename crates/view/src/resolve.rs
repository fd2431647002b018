//! Finds the stored elements that make up a chunk. The walk goes from the last record that touches the chunk to the
//! first, until every element is covered.

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

/// The way in which a chunk is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkSource {
    /// The stored bytes of one record are the stored bytes of the chunk.
    AsStored(StoredBytes),
    /// All elements of the chunk follow each other in the log, unfiltered.
    InPlace(InPlace),
    /// The chunk has to be put together.
    Assemble,
}

/// The place of a chunk's elements that follow each other in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlace {
    pub source: u16,
    /// Offset of the chunk's first element in the source file, in bytes.
    pub offset: u64,
    pub conversion: Option<Conversion>,
}

/// Elements of a record that follow each other in the record and in the chunk. All members count elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First element, counted from the start of the record.
    pub in_record: u64,
    /// First element, counted from the start of the chunk.
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
    /// The way in which the chunk is served. Looks only at the last block that touches the chunk.
    pub fn source(&self) -> ChunkSource {
        self.if_covered(|record, block| self.source_in(record, block))
            .unwrap_or(ChunkSource::Assemble)
    }

    /// [`BoxRecords::if_covered`] of the chunk.
    pub(super) fn if_covered<T>(
        &self,
        found: impl FnOnce(&Record<'_>, &Block<'_>) -> T,
    ) -> Option<T> {
        self.records(&[self.index]).if_covered(found)
    }

    /// The way in which the chunk is served from `block`, which covers it.
    fn source_in(&self, record: &Record<'_>, block: &Block<'_>) -> ChunkSource {
        // Object references and faults are left to the code that assembles chunks.
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

    /// Whether the block is the whole chunk, is the only one of its record, and fits into the chunk's slot.
    fn is_stored_chunk(&self, record: &Record<'_>, block: &Block<'_>) -> bool {
        record.stored.len <= self.place.slot && self.is_all_of(record, block)
    }

    /// Whether the block is the whole chunk, including elements past the dataset's edge, and is the only one of its
    /// record.
    pub(super) fn is_all_of(&self, record: &Record<'_>, block: &Block<'_>) -> bool {
        record.selection.is_none()
            && block.start == self.bounds.start
            && block.count == self.place.grid.chunk
    }

    /// The run of all elements that the chunk has within the dataset, from a block that covers them. `None` where they
    /// do not follow each other from the start of the chunk on.
    pub(super) fn only_run(&self, block: &Block<'_>) -> Option<Run> {
        self.records(&[self.index]).only_run(block)
    }

    /// [`BoxRecords::runs`] of the chunk.
    pub fn runs(
        &self,
        task: &Task,
        take: impl FnMut(&Record<'_>, &Block<'_>, Run) -> Result<(), Fault>,
    ) -> Result<CoverageBitmap, Fault> {
        self.records(&[self.index]).runs(task, take)
    }

    /// The records of the chunk in these indexes.
    pub fn records<'b>(&'b self, indexes: &'b [&'b DatasetIndex]) -> BoxRecords<'b> {
        BoxRecords {
            indexes,
            bounds: &self.bounds,
            sides: &self.place.grid.chunk,
        }
    }

    /// Number of the chunk's elements that belong to the dataset.
    fn elements(&self) -> u64 {
        self.bounds.count().product()
    }

    /// The numbers of the chunk's elements that have a value in the log. Each run that is looked at takes 1 off `budget`. `None` where
    /// the budget does not suffice, or where the count needs a bitmap of more than `max_elements`.
    pub fn count_written(
        &self,
        task: &Task,
        budget: &mut u64,
        max_elements: u64,
    ) -> Option<ElementCount> {
        let mut count = ElementCount::default();
        if let Some(part) = self.if_covered(|record, _| Part::of(record)) {
            count.add(part, self.elements());
            return Some(count);
        }
        if self.place.grid.elements() > max_elements {
            return None;
        }
        let counted = self.runs(task, |record, _, run| {
            *budget = budget.checked_sub(1).ok_or("too many runs")?;
            count.add(Part::of(record), run.len);
            Ok(())
        });
        counted.ok().map(|_| count)
    }
}

/// Numbers of elements that have a value in the log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ElementCount {
    /// Elements that some record wrote, or that lie below the records.
    pub written: u64,
    /// Elements that some record wrote, and whose bytes cannot be had.
    pub lost: u64,
}

impl ElementCount {
    /// Adds elements of a record.
    pub fn add(&mut self, part: Part, elements: u64) {
        match part {
            Part::Written => self.written += elements,
            Part::Lost => self.lost += elements,
            Part::Filled => {}
        }
    }
}

/// What the elements that a record has last written are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Written,
    /// Their bytes cannot be had.
    Lost,
    /// The layout fills them. Nobody wrote them.
    Filled,
}

impl Part {
    pub fn of(record: &Record<'_>) -> Self {
        if record.fault.is_some() {
            Part::Lost
        } else if record.is_constant() {
            Part::Filled
        } else {
            Part::Written
        }
    }
}

/// A box of a dataset, and the records that make it up.
pub struct BoxRecords<'a> {
    /// Indexes of the records. Records of a later index apply later.
    pub indexes: &'a [&'a DatasetIndex],
    /// The wanted elements.
    pub bounds: &'a Bounds,
    /// Sides of the box in memory. The box begins with the first of the wanted elements, and may be larger than they
    /// are.
    pub sides: &'a [u64],
}

impl BoxRecords<'_> {
    /// Calls `found` where the last block that touches the box covers all of it. Several indexes are not looked at.
    pub fn if_covered<T>(&self, found: impl FnOnce(&Record<'_>, &Block<'_>) -> T) -> Option<T> {
        let (&[index], bounds) = (self.indexes, self.bounds) else {
            return None;
        };
        // To find the last of many records may mean to sort them.
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

    /// The run of all wanted elements, from a block that covers them. `None` where they do not follow each other from
    /// the start of the box on.
    pub fn only_run(&self, block: &Block<'_>) -> Option<Run> {
        let mut first = None;
        Overlap::new(self.sides, self.bounds).runs(block, |run| {
            first = Some(run);
            false
        });
        let wanted: u64 = self.bounds.count().product();
        first.filter(|run| run.in_chunk == 0 && run.len == wanted)
    }

    /// The place of all elements of the box in `block`, which covers it, if they follow each other there. The record
    /// must be stored as it is, or converted. `element` is the size of an element in the dataset, in bytes.
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
        // The offsets of all its elements need no further check.
        offset.checked_add(elements.checked_mul(size)?)?;
        Some(InPlace {
            source: record.stored.source,
            offset,
            conversion: record.conversion.copied(),
        })
    }

    /// Passes each run of elements that the box takes from a record to `take`, with that record and the block in it. No
    /// element of the box is in two runs. Stops at the first error. Returns which of the wanted elements some record
    /// wrote.
    pub fn runs(
        &self,
        task: &Task,
        take: impl FnMut(&Record<'_>, &Block<'_>, Run) -> Result<(), Fault>,
    ) -> Result<CoverageBitmap, Fault> {
        self.runs_in(Order::Back, task, take)
    }

    /// [`BoxRecords::runs`] in the order of the index, and without blocks. This is faster, and gives the same runs as
    /// long as no element lies in two records. Fails at the first element that does.
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
                    // In any other order, a record that overlaps may still come.
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

/// The common parts of one chunk and of blocks. The vectors serve one block after the other.
pub struct Overlap<'a> {
    chunk: &'a Bounds,
    /// Sides of the chunk, including elements past the dataset's edge.
    sides: &'a [u64],
    start: Vec<u64>,
    end: Vec<u64>,
    at: Vec<u64>,
}

impl<'a> Overlap<'a> {
    /// `sides` are those of the chunk in memory.
    pub fn new(sides: &'a [u64], chunk: &'a Bounds) -> Self {
        Overlap {
            chunk,
            sides,
            start: chunk.start.clone(),
            end: chunk.end.clone(),
            at: chunk.start.clone(),
        }
    }

    /// Passes the runs of a block's elements that lie in the chunk to `take`, until it returns `false`.
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

    /// Counts up the dimensions before `inner`, the last of them fastest. Returns `false` at the end.
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
