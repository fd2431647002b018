//! A logged dataset as a picture of a few cells: how much of each was written, how often, by which rank, in which flush.
//!
//! Two passes make it. The first goes through all records in the order in which they apply, and adds what each wrote to
//! its cells. The second, `counting`, counts each written element once. Both have a
//! budget, since there may be any number of blocks and elements. Where it ends, cells are estimated, and say so.

mod cells;
mod counting;
mod pictures;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use super::Grid;
use crate::index::DatasetIndex;
pub use cells::{Axis, CellGrid};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;
use h5logfs_log::DatasetRecords;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::model::Record;
use h5logfs_log::origins::Origins;
use h5logfs_log::records::RecordList;
pub use pictures::Pictures;

/// What the first pass may cost, and what the second one may for each of [`counting::PARTS`]. A block or a run of elements
/// that is looked at costs 1.
const BUDGET: u64 = 1 << 28;
const BUDGET_OF_PART: u64 = 1 << 25;
/// What a look-up in the index costs.
const LOOK_UP: u64 = 16;
/// Elements of a box that is counted at once, by a bitmap.
const BOX_ELEMENTS: u64 = 1 << 22;
/// Chunks of a dataset, at most, whose pieces are counted: 4 bytes each.
const MOST_CHUNKS: u64 = 1 << 22;

/// What a picture is to show.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Cells from top to bottom, at most.
    pub rows: usize,
    /// Cells from left to right, at most.
    pub columns: usize,
    /// The dimensions that become rows and columns. Without them: the two largest, where they have more than one
    /// index.
    pub axes: Option<(usize, usize)>,
}

/// One cell of a picture: a box of elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cell {
    /// All elements.
    pub elements: u64,
    /// Elements that some record wrote, or that lie below the records.
    pub written: u64,
    /// `written` was not counted: no more elements than this can have been written.
    pub is_estimate: bool,
    /// Elements that records wrote, each as often as it was written.
    pub logged: u64,
    /// The rank of the last record that wrote here.
    pub rank: Option<u32>,
    /// The flush of that record.
    pub flush: Option<u64>,
}

/// The pieces that chunks are made of: parts of blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Chunks that some record touches.
    pub touched: u64,
    /// Pieces of all chunks.
    pub all: u64,
    /// Of the chunk that has the most.
    pub most: u64,
}

/// A picture of one dataset.
#[derive(Debug, Clone)]
pub struct CoverageMap {
    /// Which elements each cell has.
    pub grid: CellGrid,
    /// Row by row.
    pub cells: Vec<Cell>,
    /// Number of records.
    pub records: u64,
    /// Number of their blocks.
    pub blocks: u64,
    /// Bytes of the records, as they are stored.
    pub stored: u64,
    /// How many records have a stored size of 0 bytes, of 1 byte, of 2 to 3, of 4 to 7, …
    pub sizes: Vec<u64>,
    /// The elements of cells that records wrote were not all looked at: [`Cell::logged`] is spread evenly over the boxes
    /// of some records.
    pub is_spread: bool,
    /// `None` where that would take too long, or too much memory.
    pub pieces: Option<Pieces>,
    /// Why elements cannot be read: of the whole dataset, and of the first record whose bytes cannot be had.
    pub faults: Vec<Diagnostic>,
    /// There are elements below all records, which [`Cell::logged`] does not count.
    pub has_base: bool,
}

impl CoverageMap {
    /// The sum over all cells.
    pub fn total(&self, of: impl Fn(&Cell) -> u64) -> u128 {
        self.cells.iter().map(|cell| u128::from(of(cell))).sum()
    }

    /// Whether the written elements of some cells are estimated.
    pub fn is_estimate(&self) -> bool {
        self.cells.iter().any(|cell| cell.is_estimate)
    }

    /// Share of the elements that were written, from 0 to 1. A dataset without elements is covered completely.
    pub fn covered(&self) -> f64 {
        match self.total(|cell| cell.elements) {
            0 => 1.0,
            all => self.total(|cell| cell.written) as f64 / all as f64,
        }
    }
}

/// What a picture may cost.
#[derive(Clone, Copy)]
struct Limits {
    /// The first pass.
    adding: u64,
    /// Each part of the second one.
    counting: u64,
    /// Elements of a box that is counted at once.
    box_elements: u64,
}

fn picture(
    task: &Task,
    found: DatasetRecords,
    grid: &Grid,
    origins: &Origins,
    wanted: &Wanted,
    limits: Limits,
) -> Result<CoverageMap, Fault> {
    let mut pass = Adding::new(task, grid, origins, wanted, limits)?;
    pass.add_all(&found.records)?;
    let mut map = pass.finish();
    // The records need not be decoded again.
    let index = DatasetIndex::of(task, found, &[])?;
    map.faults.extend_from_slice(index.diagnostics());
    if index.check().is_err() {
        // Its elements cannot be read, and an entry may claim any number of them.
        let cells = map.cells.iter_mut();
        cells.for_each(|cell| cell.is_estimate = true);
    } else if !map.cells.is_empty() {
        counting::count(task, &index, &mut map, limits);
    }
    task.finish()?;
    for cell in map.cells.iter_mut().filter(|cell| cell.is_estimate) {
        cell.written = cell.written.max(cell.logged).min(cell.elements);
    }
    Ok(map)
}

/// The first pass.
struct Adding<'a> {
    task: &'a Task,
    origins: &'a Origins,
    map: CoverageMap,
    /// Sides of a chunk.
    chunk: Vec<u64>,
    /// Distances between the numbers of neighbouring chunks.
    steps: Vec<u64>,
    /// How many pieces each chunk has; `None` where they are not counted.
    pieces: Option<Vec<u32>>,
    budget: u64,
    _reservation: Reservation,
}

impl<'a> Adding<'a> {
    fn new(
        task: &'a Task,
        grid: &Grid,
        origins: &'a Origins,
        wanted: &Wanted,
        limits: Limits,
    ) -> Result<Self, Fault> {
        let cells = CellGrid::new(&grid.dims, &grid.chunk, wanted);
        let mut reservation = task.reserve((cells.len() * size_of::<Cell>()) as u64)?;
        let pieces = match grid.len() {
            chunks @ 0..=MOST_CHUNKS => Some(reservation.filled(chunks as usize)?),
            _ => None,
        };
        Ok(Adding {
            task,
            origins,
            map: CoverageMap {
                cells: cells.cells(),
                grid: cells,
                records: 0,
                blocks: 0,
                stored: 0,
                sizes: vec![0; 65],
                is_spread: false,
                pieces: None,
                has_base: false,
                faults: Vec::new(),
            },
            chunk: grid.chunk.clone(),
            steps: grid.steps(),
            pieces,
            budget: limits.adding,
            _reservation: reservation,
        })
    }

    /// Adds all records, in the order in which they apply.
    fn add_all(&mut self, records: &RecordList) -> Result<(), Fault> {
        self.map.has_base = records.base().is_some();
        let whole = self.map.grid.whole();
        let mut cells = Vec::new();
        for number in 0..records.len() {
            self.task.check()?;
            let record = records.get(number, &mut cells);
            let map = &mut self.map;
            map.records += 1;
            // A damaged log can claim any number.
            map.blocks = map.blocks.saturating_add(record.blocks() as u64);
            map.stored = map.stored.saturating_add(record.stored.len);
            map.sizes[(u64::BITS - record.stored.len.leading_zeros()) as usize] += 1;
            if let Some(reason) = record.fault.filter(|_| map.faults.is_empty()) {
                map.faults.push(Diagnostic::unreadable(reason));
            }
            // What a dataset that was made smaller had once is not shown.
            if let Some(query) = record.bounds().intersection(&whole) {
                self.add(&record, &query);
            }
        }
        Ok(())
    }

    fn add(&mut self, record: &Record<'_>, query: &Bounds) {
        let span = self.origins.of(record.stored.source, record.stored.offset);
        let origin = Cell {
            rank: span.and_then(|span| span.rank),
            flush: span.and_then(|span| span.flush),
            ..Cell::default()
        };
        let blocks = record.blocks() as u64;
        let cost = self.map.grid.touched(&query.start, &query.end);
        // All blocks in one cell and one chunk: their sums are all that counts.
        let is_inside =
            record.bounds() == *query && cost == 1 && self.chunks(&query.start, &query.end) == 1;
        if is_inside {
            self.add_box(&query.start, &query.end, (1, 1), &origin, record.elements());
            self.add_pieces(&query.start, &query.end, blocks);
        } else if self.budget > blocks.saturating_mul(2) {
            self.add_blocks(record, query, &origin);
        } else {
            self.map.is_spread = true;
            self.pieces = None;
            let volume = |b: &Bounds| b.count().fold(1u128, |n, c| n.saturating_mul(c.into()));
            let share = (u128::from(record.elements()), volume(&record.bounds()));
            if self.budget > 0 || cost < LOOK_UP {
                self.add_box(&query.start, &query.end, share, &origin, 0);
            }
            self.budget = self.budget.saturating_sub(cost);
        }
    }

    /// Adds the blocks of a record one by one.
    fn add_blocks(&mut self, record: &Record<'_>, query: &Bounds, origin: &Cell) {
        let (mut start, mut end) = (query.start.clone(), query.end.clone());
        let _ = record.visit_back(query, |block| {
            for d in 0..start.len() {
                start[d] = block.start[d].max(query.start[d]);
                let block_end = block.start[d].saturating_add(block.count[d]);
                end[d] = block_end.min(query.end[d]);
                if start[d] >= end[d] {
                    return ControlFlow::<()>::Continue(());
                }
            }
            let cost = self.map.grid.touched(&start, &end);
            self.budget = self.budget.saturating_sub(cost);
            self.add_box(&start, &end, (1, 1), origin, 0);
            self.add_pieces(&start, &end, 1);
            ControlFlow::Continue(())
        });
    }

    /// Adds a share of the elements of a box to the cells that it touches. `elements`: how many they are where it lies in
    /// one cell; 0: as many as the box has.
    fn add_box(
        &mut self,
        start: &[u64],
        end: &[u64],
        (part, of): (u128, u128),
        origin: &Cell,
        elements: u64,
    ) {
        let CoverageMap { grid, cells, .. } = &mut self.map;
        grid.each(start, end, |cell, common| {
            let cell = &mut cells[cell];
            let added = if elements > 0 {
                elements
            } else if part == of {
                common
            } else {
                let share = u128::from(common).saturating_mul(part).div_ceil(of.max(1));
                u64::try_from(share).unwrap_or(u64::MAX)
            };
            cell.logged = cell.logged.saturating_add(added);
            (cell.rank, cell.flush) = (origin.rank, origin.flush);
        });
    }

    /// Number of chunks that a box touches.
    fn chunks(&self, start: &[u64], end: &[u64]) -> u64 {
        let sides = start.iter().zip(end).zip(&self.chunk);
        let across = sides.map(|((start, end), side)| (end - 1) / side - start / side + 1);
        across.fold(1, u64::saturating_mul)
    }

    /// Adds to the pieces of each chunk that a box touches.
    fn add_pieces(&mut self, start: &[u64], end: &[u64], more: u64) {
        let chunks = self.chunks(start, end);
        self.budget = self.budget.saturating_sub(chunks);
        if self.budget == 0 {
            self.pieces = None;
        }
        let Some(pieces) = &mut self.pieces else {
            return;
        };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let mut add = |number: u64| {
            if let Some(pieces) = pieces.get_mut(number as usize) {
                *pieces = pieces.saturating_add(more);
            }
        };
        let first = |d: usize| start[d] / self.chunk[d];
        let origin: u64 = (0..start.len()).map(|d| first(d) * self.steps[d]).sum();
        if chunks == 1 {
            return add(origin);
        }
        let across = |d: usize| (end[d] - 1) / self.chunk[d] - first(d) + 1;
        for mut within in 0..chunks {
            let mut number = origin;
            for d in (0..start.len()).rev() {
                number += within % across(d) * self.steps[d];
                within /= across(d);
            }
            add(number);
        }
    }

    fn finish(self) -> CoverageMap {
        let pieces = self.pieces.map(|pieces| Pieces {
            touched: pieces.iter().filter(|n| **n > 0).count() as u64,
            all: pieces.iter().map(|n| u64::from(*n)).sum(),
            most: pieces.iter().copied().max().unwrap_or(0).into(),
        });
        CoverageMap { pieces, ..self.map }
    }
}
