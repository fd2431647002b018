//! A logged dataset as a picture of a few cells, which tell how much of them was written, how often, by which rank and
//! in which flush.
//!
//! Two passes make a picture. The first goes through all records in the order in which they apply, and adds the
//! elements of each to its cells. The second, `counting`, counts each written element once. Both have a budget, since
//! there may be any number of blocks and elements. Cells past the end of a budget are estimated, and say so.

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

/// Budget of the first pass. A look at a block or at a run of elements costs 1.
const BUDGET: u64 = 1 << 28;
/// Budget of the second pass for each of [`counting::PARTS`].
const BUDGET_OF_PART: u64 = 1 << 25;
/// Cost of a look-up in the index.
const LOOK_UP: u64 = 16;
/// Elements of a box that is counted at once, by a bitmap.
const BOX_ELEMENTS: u64 = 1 << 22;
/// The most chunks of a dataset whose pieces are counted, at 4 bytes each.
const MOST_CHUNKS: u64 = 1 << 22;

/// The request for a picture.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The most cells from top to bottom.
    pub rows: usize,
    /// The most cells from left to right.
    pub columns: usize,
    /// The dimensions that become rows and columns. By default these are the two largest dimensions that have more than
    /// one index.
    pub axes: Option<(usize, usize)>,
}

/// One cell of a picture: a box of elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cell {
    /// Number of elements.
    pub elements: u64,
    /// Number of elements that some record wrote, or that lie below the records.
    pub written: u64,
    /// Number of elements that some record wrote, and whose bytes are lost. They do not count as written.
    pub lost: u64,
    /// Whether `written` is an upper bound, because the elements were not counted.
    pub is_estimate: bool,
    /// Number of elements that records wrote. An element counts as often as it was written.
    pub logged: u64,
    /// The rank of the last record that wrote here.
    pub rank: Option<u32>,
    /// The flush of that record.
    pub flush: Option<u64>,
}

/// Counts of the pieces that chunks are made from. A piece is a part of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Number of chunks that some record touches.
    pub touched: u64,
    /// Number of pieces of all chunks.
    pub all: u64,
    /// Number of pieces of the chunk that has the most.
    pub most: u64,
}

/// A picture of one dataset.
#[derive(Debug, Clone)]
pub struct CoverageMap {
    /// The elements of each cell.
    pub grid: CellGrid,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
    /// Number of records.
    pub records: u64,
    /// Number of their blocks.
    pub blocks: u64,
    /// Stored bytes of all records.
    pub stored: u64,
    /// Number of records with a stored size of 0 bytes, of 1 byte, of 2 to 3, of 4 to 7, …
    pub sizes: Vec<u64>,
    /// Whether some elements were not looked at. [`Cell::logged`] then spreads the elements of some records evenly over
    /// their boxes.
    pub is_spread: bool,
    /// Pieces of the chunks. `None` where counting them would take too long, or too much memory.
    pub pieces: Option<Pieces>,
    /// Reasons why elements cannot be read: those of the whole dataset, and that of the first record whose bytes cannot
    /// be had.
    pub faults: Vec<Diagnostic>,
    /// Whether elements lie below all records, which [`Cell::logged`] does not count.
    pub has_base: bool,
    /// Number of elements that were written and are lost, and for which the dataset has no place: steps that are left out.
    pub left_out: u64,
}

impl CoverageMap {
    /// Sum of a count over all cells.
    pub fn total(&self, of: impl Fn(&Cell) -> u64) -> u128 {
        self.cells.iter().map(|cell| u128::from(of(cell))).sum()
    }

    /// The picture of a dataset with so many equal rows, of which this is one. `grid`: the cells of the dataset.
    fn times(mut self, rows: u64, grid: CellGrid) -> Self {
        let cells = self.cells.iter_mut();
        let of_cells = cells.flat_map(|cell| {
            [
                &mut cell.elements,
                &mut cell.written,
                &mut cell.lost,
                &mut cell.logged,
            ]
        });
        let pieces = self.pieces.iter_mut();
        let of_pieces = pieces.flat_map(|pieces| [&mut pieces.touched, &mut pieces.all]);
        let of_records = [&mut self.records, &mut self.blocks, &mut self.stored];
        let all = of_cells
            .chain(of_pieces)
            .chain(of_records)
            .chain(&mut self.sizes);
        all.for_each(|number| *number = number.saturating_mul(rows));
        CoverageMap { grid, ..self }
    }

    /// Whether the written elements of some cells are estimated.
    pub fn is_estimate(&self) -> bool {
        self.cells.iter().any(|cell| cell.is_estimate)
    }

    /// Number of elements that were written and are lost.
    pub fn lost(&self) -> u128 {
        self.total(|cell| cell.lost) + u128::from(self.left_out)
    }

    /// Share of the elements that were written, from 0 to 1, where those that were left out count as elements. A dataset without
    /// elements is covered completely.
    pub fn covered(&self) -> f64 {
        match self.total(|cell| cell.elements) + u128::from(self.left_out) {
            0 => 1.0,
            all => self.total(|cell| cell.written) as f64 / all as f64,
        }
    }
}

/// Limits of the cost of a picture.
#[derive(Clone, Copy)]
struct Limits {
    /// Budget of the first pass.
    adding: u64,
    /// Budget of each part of the second pass.
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
        // The elements cannot be read, and an entry may claim any number of them.
        let cells = map.cells.iter_mut();
        cells.for_each(|cell| cell.is_estimate = true);
    } else if !map.cells.is_empty() {
        counting::count(task, &index, &mut map, limits);
    }
    task.finish()?;
    for cell in map.cells.iter_mut().filter(|cell| cell.is_estimate) {
        let most = cell.elements.saturating_sub(cell.lost);
        cell.written = cell.written.max(cell.logged).min(most);
    }
    Ok(map)
}

/// The state of the first pass.
struct Adding<'a> {
    task: &'a Task,
    origins: &'a Origins,
    map: CoverageMap,
    /// Sides of a chunk.
    chunk: Vec<u64>,
    /// Differences between the numbers of neighbouring chunks, by dimension.
    steps: Vec<u64>,
    /// Number of pieces of each chunk. `None` where they are not counted.
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
                left_out: 0,
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
            // Nobody wrote the elements that a layout fills.
            if record.is_constant() {
                continue;
            }
            let map = &mut self.map;
            map.records += 1;
            // A damaged log can claim any number.
            map.blocks = map.blocks.saturating_add(record.blocks() as u64);
            map.stored = map.stored.saturating_add(record.stored.len);
            map.sizes[(u64::BITS - record.stored.len.leading_zeros()) as usize] += 1;
            if let Some(reason) = record.fault.filter(|_| map.faults.is_empty()) {
                map.faults.push(Diagnostic::unreadable(reason));
            }
            // Elements that a dataset lost when it was made smaller are not shown.
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
        // All blocks lie in one cell and one chunk, so only their sums count.
        let is_inside =
            record.bounds() == *query && cost == 1 && self.chunks(&query.start, &query.end) == 1;
        if is_inside {
            let elements = record.placed_elements();
            self.add_box(&query.start, &query.end, (1, 1), &origin, elements);
            self.add_pieces(&query.start, &query.end, blocks);
        } else if self.budget > blocks.saturating_mul(2) {
            self.add_blocks(record, query, &origin);
        } else {
            self.map.is_spread = true;
            self.pieces = None;
            let volume = |b: &Bounds| b.count().fold(1u128, |n, c| n.saturating_mul(c.into()));
            let share = (
                u128::from(record.placed_elements()),
                volume(&record.bounds()),
            );
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

    /// Adds a share of the elements of a box to the cells that it touches. `elements` is the number of elements where
    /// the box lies in one cell; 0 stands for all elements of the box.
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
