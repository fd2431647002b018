//! Counts each written element of a dataset once: box by box, with the same walk that reads use. A box needs no walk if
//! one block covers it, or if no record touches it. Parts of the dataset are counted in parallel.

use std::ops::ControlFlow;

use super::super::resolve::{BoxRecords, ElementCount, Part, Run};
use super::{CellGrid, CoverageMap, LOOK_UP, Limits};
use crate::index::DatasetIndex;
use h5logfs_common::parallel;
use h5logfs_common::task::Task;
use h5logfs_log::boxes::Bounds;

/// Number of parts of a large dataset. Each part has its own budget, so the count does not depend on the number of
/// threads.
const PARTS: usize = 16;
/// Number of elements of a bitmap that cost 1.
const ELEMENTS_COST: u64 = 1 << 10;

/// Adds the written elements to the cells of `map`, and marks those that could not be counted.
pub(super) fn count(task: &Task, index: &DatasetIndex, map: &mut CoverageMap, limits: Limits) {
    let parts = parts(map.grid.whole(), limits.box_elements);
    let shares = parallel::shares().min(parts.len());
    let grid = &map.grid;
    let counted = parallel::share(shares, |number| {
        let mut counting = Counting {
            task,
            index,
            grid,
            counts: vec![Count::default(); grid.len()],
            budget: 0,
            box_elements: limits.box_elements,
        };
        for part in parts.iter().skip(number).step_by(shares) {
            counting.budget = limits.counting;
            counting.count(part);
        }
        counting.counts
    });
    for counts in counted {
        for (cell, count) in map.cells.iter_mut().zip(counts) {
            cell.written += count.elements.written;
            cell.lost += count.elements.lost;
            cell.is_estimate |= count.is_estimate;
        }
    }
}

/// Cuts the whole into equal parts. A small whole is one part.
fn parts(whole: Bounds, small: u64) -> Vec<Bounds> {
    let mut parts = vec![whole];
    while parts.len() < PARTS {
        let is_small = |part: &Bounds| part.count().fold(1, u64::saturating_mul) <= small;
        if parts.iter().all(is_small) {
            break;
        }
        parts = parts
            .iter()
            .flat_map(|part| {
                let (first, second) = halves(part);
                [first, second]
            })
            .collect();
    }
    parts
}

/// The count of one cell.
#[derive(Clone, Copy, Default)]
struct Count {
    elements: ElementCount,
    is_estimate: bool,
}

/// The state of a thread that counts parts.
struct Counting<'a> {
    task: &'a Task,
    index: &'a DatasetIndex,
    grid: &'a CellGrid,
    counts: Vec<Count>,
    budget: u64,
    /// The most elements of a box that is counted at once.
    box_elements: u64,
}

impl Counting<'_> {
    /// Counts the written elements of a box.
    fn count(&mut self, bounds: &Bounds) {
        if bounds.count().any(|side| side == 0) || self.task.stopped().is_some() {
            return;
        }
        let Some(left) = self.budget.checked_sub(LOOK_UP) else {
            return self.estimate(bounds);
        };
        self.budget = left;
        if !self.index.is_touched(bounds) {
            return;
        }
        if let Some(part) = self.covering(bounds) {
            return self.add_whole(bounds, part);
        }
        let elements = bounds.count().fold(1, u64::saturating_mul);
        if elements <= self.box_elements {
            return self.count_elements(bounds, elements);
        }
        let (first, second) = halves(bounds);
        self.count(&first);
        self.count(&second);
    }

    /// What all elements of the box are, where the last block that touches it covers all of it.
    fn covering(&self, bounds: &Bounds) -> Option<Part> {
        let last = self.index.visit_back(bounds, |record| {
            record.visit_back(bounds, |block| {
                ControlFlow::Break(block.covers(bounds).then(|| Part::of(record)))
            })
        });
        match last {
            ControlFlow::Break(part) => part,
            ControlFlow::Continue(()) => None,
        }
    }

    fn add_whole(&mut self, bounds: &Bounds, part: Part) {
        let Counting { grid, counts, .. } = self;
        grid.each(&bounds.start, &bounds.end, |cell, common| {
            counts[cell].elements.add(part, common);
        });
    }

    /// Counts the elements of a small box one by one.
    fn count_elements(&mut self, bounds: &Bounds, elements: u64) {
        let sides: Vec<u64> = bounds.count().collect();
        let Counting {
            task,
            index,
            grid,
            counts,
            budget,
            ..
        } = self;
        let by_cell = grid.runs_in(bounds);
        *budget = budget.saturating_sub(elements / ELEMENTS_COST);
        let records = BoxRecords {
            indexes: &[*index],
            bounds,
            sides: &sides,
        };
        let counted = records.runs(task, |record, _, Run { in_chunk, len, .. }| {
            *budget = budget.checked_sub(1).ok_or("too many runs")?;
            let part = Part::of(record);
            by_cell.each(in_chunk, len, |cell, len| {
                counts[cell].elements.add(part, len);
            });
            Ok(())
        });
        if counted.is_err() {
            self.estimate(bounds);
        }
    }

    /// Estimates a box that is too much to be counted: all that is known is the number of elements that records wrote.
    fn estimate(&mut self, bounds: &Bounds) {
        let Counting { grid, counts, .. } = self;
        grid.each(&bounds.start, &bounds.end, |cell, _| {
            counts[cell].is_estimate = true;
        });
    }
}

/// The two halves of a box along its longest side.
fn halves(bounds: &Bounds) -> (Bounds, Bounds) {
    let longest = bounds.count().enumerate().max_by_key(|(_, side)| *side);
    let d = longest.map_or(0, |(d, _)| d);
    let middle = bounds.start[d] + (bounds.end[d] - bounds.start[d]) / 2;
    let (mut first, mut second) = (bounds.clone(), bounds.clone());
    first.end[d] = middle;
    second.start[d] = middle;
    (first, second)
}
