//! The cells of a picture, and the elements of each.

use super::{Cell, Wanted};
use h5logfs_log::boxes::Bounds;

/// A dimension of the dataset along which cells lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of the dimension.
    pub dimension: usize,
    /// Elements of a cell along the axis. The last cell may have fewer.
    pub side: u64,
    /// Number of cells.
    pub cells: usize,
}

/// The cells of a picture, numbered row by row. All other dimensions lie within each cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellGrid {
    dims: Vec<u64>,
    rows: Option<Axis>,
    columns: Option<Axis>,
}

impl CellGrid {
    /// Cells of a dataset of shape `dims` in chunks of shape `chunk`.
    pub(super) fn new(dims: &[u64], chunk: &[u64], wanted: &Wanted) -> Self {
        let (rows, columns) = match wanted.axes {
            Some((rows, columns)) if rows.max(columns) < dims.len() && rows != columns => {
                (Some(rows), Some(columns))
            }
            _ => largest(dims),
        };
        let axis = |dimension: usize, most: usize| {
            let extent = dims[dimension];
            let side = side(extent, chunk[dimension].min(extent), most as u64);
            Axis {
                dimension,
                side,
                cells: extent.div_ceil(side) as usize,
            }
        };
        CellGrid {
            dims: dims.to_vec(),
            rows: rows.map(|dimension| axis(dimension, wanted.rows)),
            columns: columns.map(|dimension| axis(dimension, wanted.columns)),
        }
    }

    /// Shape of the dataset.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// The axis from top to bottom; `None` where there is one row.
    pub fn row_axis(&self) -> Option<Axis> {
        self.rows
    }

    /// The axis from left to right; `None` where there is one column.
    pub fn column_axis(&self) -> Option<Axis> {
        self.columns
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.map_or(1, |axis| axis.cells)
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns.map_or(1, |axis| axis.cells)
    }

    /// Number of cells. It is 0 where the dataset has no elements.
    pub fn len(&self) -> usize {
        if self.dims.contains(&0) {
            return 0;
        }
        self.rows() * self.columns()
    }

    /// Whether there are no cells.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bounds of the whole dataset.
    pub(super) fn whole(&self) -> Bounds {
        Bounds {
            start: vec![0; self.dims.len()],
            end: self.dims.clone(),
        }
    }

    /// The cells before any record is added.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::default(); self.len()];
        if !cells.is_empty() {
            let whole = self.whole();
            self.each(&whole.start, &whole.end, |cell, elements| {
                cells[cell].elements = elements;
            });
        }
        cells
    }

    /// Number of cells that a box touches. The box must have elements, and lie within the dataset.
    pub(super) fn touched(&self, start: &[u64], end: &[u64]) -> u64 {
        let across = |axis: Option<Axis>| match axis {
            Some(Axis {
                dimension: d, side, ..
            }) => (end[d] - 1) / side - start[d] / side + 1,
            None => 1,
        };
        across(self.rows) * across(self.columns)
    }

    /// Calls `visit` with each cell that a box touches, and the number of their common elements. The box must have
    /// elements, and lie within the dataset.
    pub(super) fn each(&self, start: &[u64], end: &[u64], mut visit: impl FnMut(usize, u64)) {
        let is_axis = |d: usize| {
            [self.rows, self.columns]
                .iter()
                .flatten()
                .any(|a| a.dimension == d)
        };
        let others = (0..start.len()).filter(|d| !is_axis(*d));
        let others = others.fold(1u64, |n, d| n.saturating_mul(end[d] - start[d]));
        let columns = self.columns();
        each_part(self.rows, start, end, |row, high| {
            let of_row = high.saturating_mul(others);
            each_part(self.columns, start, end, |column, wide| {
                visit(row * columns + column, of_row.saturating_mul(wide));
            });
        });
    }

    /// The cells of runs of a box's elements, which are in row-major order.
    pub(super) fn runs_in<'a>(&'a self, bounds: &'a Bounds) -> RunCells<'a> {
        let rank = self.dims.len();
        let first = self.cell_at(&bounds.start);
        let axes = [self.rows, self.columns];
        let is_cut = |d: usize| {
            let mut axes = axes.iter().flatten().filter(|axis| axis.dimension == d);
            axes.any(|axis| bounds.start[d] / axis.side != (bounds.end[d] - 1) / axis.side)
        };
        // Elements of a row share a cell behind the last dimension in which the box lies in several cells.
        let cut = (0..rank).rev().find(|d| is_cut(*d));
        let behind = cut.map_or(0, |cut| cut + 1);
        let unit = bounds.count().skip(behind).fold(1, u64::saturating_mul);
        RunCells {
            grid: self,
            bounds,
            first,
            cut,
            unit,
        }
    }

    /// The cell of an element.
    fn cell_at(&self, at: &[u64]) -> usize {
        let on = |axis: Option<Axis>| axis.map_or(0, |a| (at[a.dimension] / a.side) as usize);
        on(self.rows) * self.columns() + on(self.columns)
    }
}

/// The result of [`CellGrid::runs_in`].
pub(super) struct RunCells<'a> {
    grid: &'a CellGrid,
    bounds: &'a Bounds,
    /// The cell of the first element of the box.
    first: usize,
    /// The last dimension in which the box lies in several cells.
    cut: Option<usize>,
    /// Elements of the box for one index of that dimension.
    unit: u64,
}

impl RunCells<'_> {
    /// Calls `visit` with the cells of a run of elements, and the number of elements in each.
    pub fn each(&self, start: u64, len: u64, mut visit: impl FnMut(usize, u64)) {
        let Some(cut) = self.cut else {
            return visit(self.first, len);
        };
        let end = start + len;
        let mut at = start;
        while at < end {
            let (cell, next) = self.cell(cut, at);
            visit(cell, next.min(end) - at);
            at = next;
        }
    }

    /// The cell of an element of the box, and the next element that may lie in another cell.
    fn cell(&self, cut: usize, element: u64) -> (usize, u64) {
        let (start, end) = (&self.bounds.start, &self.bounds.end);
        let mut number = element / self.unit;
        let units = number;
        let mut position = start[cut] + number % (end[cut] - start[cut]);
        let mut until = end[cut] - position;
        let mut cell = 0;
        for d in (0..=cut).rev() {
            if d < cut {
                position = start[d] + number % (end[d] - start[d]);
            }
            number /= end[d] - start[d];
            for (axis, weight) in [
                (self.grid.rows, self.grid.columns()),
                (self.grid.columns, 1),
            ] {
                if let Some(axis) = axis.filter(|axis| axis.dimension == d) {
                    cell += (position / axis.side) as usize * weight;
                    if d == cut {
                        until = until.min(axis.side - position % axis.side);
                    }
                }
            }
        }
        // Along axes behind the cut, the box lies in one cell.
        for (axis, weight) in [
            (self.grid.rows, self.grid.columns()),
            (self.grid.columns, 1),
        ] {
            if let Some(axis) = axis.filter(|axis| axis.dimension > cut) {
                cell += (start[axis.dimension] / axis.side) as usize * weight;
            }
        }
        (cell, (units + until).saturating_mul(self.unit))
    }
}

/// Calls `visit` with the place of each cell along an axis that a box touches, and the number of their common elements
/// along the axis.
fn each_part(axis: Option<Axis>, start: &[u64], end: &[u64], mut visit: impl FnMut(usize, u64)) {
    let Some(Axis {
        dimension, side, ..
    }) = axis
    else {
        return visit(0, 1);
    };
    let (mut at, end) = (start[dimension], end[dimension]);
    while at < end {
        let place = at / side;
        let next = (place + 1).saturating_mul(side).min(end);
        visit(place as usize, next - at);
        at = next;
    }
}

/// The two largest dimensions in their order, as rows and columns. A single dimension makes columns.
fn largest(dims: &[u64]) -> (Option<usize>, Option<usize>) {
    let mut numbers: Vec<usize> = (0..dims.len()).filter(|d| dims[*d] > 1).collect();
    numbers.sort_by_key(|d| std::cmp::Reverse(dims[*d]));
    numbers.truncate(2);
    numbers.sort_unstable();
    match numbers[..] {
        [rows, columns] => (Some(rows), Some(columns)),
        [columns] => (None, Some(columns)),
        _ => (None, None),
    }
}

/// Elements of a cell along a dimension of `extent`, for at most `most` cells. A cell has whole chunks, or a part of a
/// chunk that ends where the chunk ends, if there is such a part of about the right size.
fn side(extent: u64, chunk: u64, most: u64) -> u64 {
    let (extent, chunk, most) = (extent.max(1), chunk.max(1), most.max(1));
    let chunks = extent.div_ceil(chunk);
    if chunks >= most {
        return chunk.saturating_mul(chunks.div_ceil(most));
    }
    let parts = (most / chunks).min(chunk);
    let fits = (parts.div_ceil(2)..=parts)
        .rev()
        .find(|parts| chunk % parts == 0);
    fits.map_or(extent.div_ceil(most), |parts| chunk / parts)
}
