//! A dataset thinned to a picture: a line or a plane of cells, from a bounded number of bytes.
//!
//! [`Plan`] decides what is read: every element where they are few; else one element of each cell; else one element of
//! each of fewer cells; else only a part from the middle. A chunk that has to be decoded as a whole counts with all of its
//! bytes. [`Plan::reduce`] makes the cells of what was read.

use std::ops::ControlFlow;
use std::time::Instant;

use bytemuck::allocation::try_zeroed_vec;

use super::dataset::Dataset;
use super::parts::GAP;
use super::reading::Reading;
use super::selection::{Axis, Selection};
use super::slices::Slice;
use h5logfs_common::error::Result;
use h5logfs_common::fault::{Fault, Shortage};
use h5logfs_log::stored::bytes_of;

/// Fewest cells along a dimension, before only a part of the dimension is shown.
const FEWEST: u64 = 16;

/// Bytes of an element in memory.
const NUMBER: u64 = size_of::<f64>() as u64;

/// Limits of a picture.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most cells from top to bottom, at least 1.
    pub rows: u64,
    /// The most cells from left to right, at least 1.
    pub columns: u64,
    /// The most bytes that are read and decoded.
    pub bytes: u64,
    /// The time at which reading stops, with an error.
    pub until: Option<Instant>,
}

/// The cells along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinAxis {
    /// The dimension of the dataset.
    pub dimension: usize,
    /// The smallest index of the dimension.
    pub start: u64,
    /// The distance of neighbouring indices.
    pub step: u64,
    /// Number of indices.
    pub len: u64,
    /// Number of indices in a cell. The last cell may have fewer.
    pub side: u64,
    /// Whether the first cell has the largest indices.
    pub is_reversed: bool,
    /// Position, in each cell, of the index that was read; `None` where all were.
    sampled: Option<u64>,
}

impl ThinAxis {
    /// Number of cells.
    pub fn cells(&self) -> u64 {
        self.len.div_ceil(self.side)
    }

    /// The smallest and the largest index.
    pub fn ends(&self) -> (u64, u64) {
        (self.start, self.start + (self.len - 1) * self.step)
    }

    /// One index of each cell, in ascending order: the one that was read, or the middle.
    pub fn indices(&self) -> Axis {
        let behind = (self.len - 1) % self.side;
        // The last cell may be short, and has this index, too.
        let offset = self.sampled.unwrap_or((self.side / 2).min(behind));
        Axis::Range {
            start: self.start + offset * self.step,
            count: self.cells(),
            step: self.step.saturating_mul(self.side),
        }
    }

    /// The indices to read.
    fn read(&self) -> Axis {
        match self.sampled {
            Some(_) => self.indices(),
            None => Axis::Range {
                start: self.start,
                count: self.len,
                step: self.step,
            },
        }
    }

    /// The cell of a position among the indices that were read.
    fn cell(&self, position: u64) -> u64 {
        let ascending = match self.sampled {
            Some(_) => position,
            None => position / self.side,
        };
        if self.is_reversed {
            self.cells() - 1 - ascending
        } else {
            ascending
        }
    }
}

/// The elements of one cell that are numbers and not blank. Without any, all three are NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

/// Counts of the elements that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statistics {
    /// Number of elements that were asked for; `u64::MAX` stands for more.
    pub elements: u64,
    /// Number of elements that were read.
    pub read: u64,
    /// The least and the greatest number that is finite and not blank; `None` without any.
    pub ends: Option<(f64, f64)>,
    /// Number of NaN.
    pub nan: u64,
    /// Number of infinite ones.
    pub infinite: u64,
    /// Number of blank ones: those with the fill value.
    pub blank: u64,
}

/// A thinned dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Thinned {
    /// None for a single element, one for a line, two for a plane: first the dimension from top to bottom.
    pub axes: Vec<ThinAxis>,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
    /// What was read.
    pub statistics: Statistics,
    /// Whether the cells cover only a part of what was asked for, because all of it is too large.
    pub is_part: bool,
    /// Bytes that were read and decoded, at most.
    pub bytes: u64,
}

/// What is read for a picture.
#[derive(Debug)]
pub struct Plan {
    /// One slice for each dimension that is no axis of the picture.
    slices: Vec<Slice>,
    axes: Vec<ThinAxis>,
    elements: u64,
    is_part: bool,
    bytes: u64,
}

/// The cost of reading elements of a dataset.
struct Cost<'a> {
    /// Bytes of an element.
    element: u64,
    /// Sides of what is decoded as a whole, if anything is.
    decoded: Option<&'a [u64]>,
}

impl Cost<'_> {
    /// The bytes that a read of these indices takes.
    fn of(&self, axes: &[Axis]) -> u64 {
        let all = axes.iter().map(Axis::len).fold(NUMBER, u64::saturating_mul);
        let range = |axis: &Axis| match *axis {
            Axis::Range { start, count, step } => (start, count, step),
            Axis::List(_) => (0, axis.len(), 1),
        };
        let read = match self.decoded {
            Some(sides) => axes
                .iter()
                .zip(sides)
                .fold(self.element, |n, (axis, side)| {
                    let ((start, count, step), side) = (range(axis), (*side).max(1));
                    let (first, last) = (
                        start / side,
                        (start + count.saturating_sub(1) * step) / side,
                    );
                    // Each index may lie in a chunk of its own.
                    let chunks = count.min(last - first + 1);
                    n.saturating_mul(chunks).saturating_mul(side)
                }),
            // Elements that lie close to each other are read with all between them.
            None => axes.iter().rev().fold(self.element, |n, axis| {
                let (_, count, step) = range(axis);
                let span = count
                    .saturating_sub(1)
                    .saturating_mul(step)
                    .saturating_add(1);
                let is_close = step.saturating_mul(n) <= GAP.saturating_add(n);
                n.saturating_mul(if is_close { span } else { count })
            }),
        };
        read.max(all)
    }
}

impl Plan {
    /// Decides what to read of `slices` of a dataset with elements of `element` bytes. `decoded`: sides of what any read has
    /// to decode as a whole. Fails where nothing is picked, where more than two dimensions are, and where not even one
    /// element can be had within the limits.
    pub fn new(
        slices: &[Slice],
        element: u64,
        decoded: Option<&[u64]>,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        let picked = slices.iter().map(Slice::len);
        let elements = picked.fold(1, u64::saturating_mul);
        if elements == 0 {
            return Err(Fault::Refused("there are no elements in it".into()));
        }
        let mut axes: Vec<ThinAxis> = slices
            .iter()
            .enumerate()
            .filter_map(|(dimension, slice)| match *slice {
                Slice::Index(_) => None,
                Slice::Range {
                    start,
                    count,
                    step,
                    is_reversed,
                } => Some(ThinAxis {
                    dimension,
                    start,
                    step,
                    len: count,
                    side: 1,
                    is_reversed,
                    sampled: None,
                }),
            })
            .collect();
        let most = match axes.len() {
            0 | 1 => vec![limits.columns.max(1)],
            2 => vec![limits.rows.max(1), limits.columns.max(1)],
            more => {
                let reason = format!("a picture of {more} dimensions: give an index for some");
                return Err(Fault::Refused(reason));
            }
        };
        for (axis, most) in axes.iter_mut().zip(&most) {
            axis.side = axis.len.div_ceil(*most);
        }
        let mut plan = Plan {
            slices: slices.to_vec(),
            axes,
            elements,
            is_part: false,
            bytes: 0,
        };
        let cost = Cost {
            element: element.max(1),
            decoded,
        };
        if cost.of(&plan.read()) > limits.bytes {
            plan.fit(&cost, &most, limits.bytes)?;
        }
        plan.bytes = cost.of(&plan.read());
        Ok(plan)
    }

    /// Takes one element of each cell, and fewer and larger cells, and at last only a part of the dataset, until the cost
    /// is at most `bytes`.
    fn fit(&mut self, cost: &Cost<'_>, most: &[u64], bytes: u64) -> Result<(), Fault> {
        loop {
            for (axis, most) in self.axes.iter_mut().zip(most) {
                axis.side = axis.len.div_ceil(*most);
            }
            loop {
                for axis in &mut self.axes {
                    let behind = (axis.len - 1) % axis.side;
                    axis.sampled = Some((axis.side / 2).min(behind));
                }
                if cost.of(&self.read()) <= bytes {
                    return Ok(());
                }
                let coarser = self.axes.iter_mut().filter(|axis| axis.cells() > FEWEST);
                let Some(axis) = coarser.max_by_key(|axis| axis.cells()) else {
                    break;
                };
                axis.side = axis.side.saturating_mul(2).min(axis.len);
            }
            let longest = self.axes.iter_mut().filter(|axis| axis.len > 1);
            let Some(axis) = longest.max_by_key(|axis| axis.len) else {
                return Err(Fault::Refused(format!(
                    "one of its chunks has more than {bytes} bytes, the most that is read for a picture"
                )));
            };
            let len = axis.len / 2;
            axis.start += (axis.len - len) / 2 * axis.step;
            axis.len = len;
            self.is_part = true;
        }
    }

    /// The indices to read along each dimension.
    fn read(&self) -> Vec<Axis> {
        let fixed = |slice: &Slice| match *slice {
            Slice::Index(index) => Axis::range(index, 1),
            Slice::Range { start, count, .. } => Axis::range(start, count),
        };
        let mut read: Vec<Axis> = self.slices.iter().map(fixed).collect();
        for axis in &self.axes {
            read[axis.dimension] = axis.read();
        }
        read
    }

    /// The elements to read.
    pub fn selection(&self) -> Selection {
        Selection::Axes(self.read())
    }

    /// Number of elements to read. The limit of bytes bounds it.
    pub fn len(&self) -> u64 {
        bytes_of(&self.read().iter().map(Axis::len).collect::<Vec<_>>(), 1).unwrap_or(u64::MAX)
    }

    /// Whether nothing is to be read, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes cells of the elements of [`Plan::selection`]. `blank`: numbers that stand for missing elements.
    pub fn reduce(self, numbers: &[f64], blank: &[f64]) -> Thinned {
        let columns = self.axes.last().map_or(1, ThinAxis::cells);
        let across = self.axes.last().map_or(1, |axis| axis.read().len()).max(1);
        let cells = self.axes.iter().map(ThinAxis::cells).product::<u64>();
        let mut sums = vec![Sum::default(); usize::try_from(cells).unwrap_or(0)];
        let mut statistics = Statistics {
            elements: self.elements,
            ..Statistics::default()
        };
        for (number, at) in numbers.iter().zip(0u64..) {
            statistics.read += 1;
            if number.is_nan() {
                statistics.nan += 1;
                continue;
            }
            if blank.contains(number) {
                statistics.blank += 1;
                continue;
            }
            if number.is_infinite() {
                statistics.infinite += 1;
                continue;
            }
            let cell = match &self.axes[..] {
                [rows, along] => rows.cell(at / across) * columns + along.cell(at % across),
                [along] => along.cell(at),
                _ => 0,
            };
            if let Some(sum) = usize::try_from(cell)
                .ok()
                .and_then(|cell| sums.get_mut(cell))
            {
                sum.add(*number);
            }
        }
        let counted = sums.iter().filter(|sum| sum.count > 0);
        statistics.ends = counted.fold(None, |ends: Option<(f64, f64)>, sum| {
            let (least, most) = ends.unwrap_or((sum.least, sum.most));
            Some((least.min(sum.least), most.max(sum.most)))
        });
        Thinned {
            axes: self.axes,
            cells: sums.iter().map(Sum::cell).collect(),
            statistics,
            is_part: self.is_part,
            bytes: self.bytes,
        }
    }
}

/// The elements of a cell so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    sum: f64,
    least: f64,
    most: f64,
}

impl Sum {
    fn add(&mut self, number: f64) {
        let is_first = self.count == 0;
        self.least = if is_first {
            number
        } else {
            self.least.min(number)
        };
        self.most = if is_first {
            number
        } else {
            self.most.max(number)
        };
        self.count += 1;
        self.sum += number;
    }

    fn cell(&self) -> Cell {
        if self.count == 0 {
            return Cell {
                mean: f64::NAN,
                least: f64::NAN,
                most: f64::NAN,
            };
        }
        let mean = self.sum / self.count as f64;
        Cell {
            // A sum of very large numbers overflows, and rounding may lead past the ends.
            mean: if mean.is_finite() {
                mean.clamp(self.least, self.most)
            } else {
                self.least / 2.0 + self.most / 2.0
            },
            least: self.least,
            most: self.most,
        }
    }
}

impl Dataset {
    /// Reads slices of the dataset, one for each of its dimensions, thinned to a picture. At most two slices may be ranges.
    /// `blank`: numbers that stand for missing elements.
    pub fn thinned(&self, slices: &[Slice], blank: &[f64], limits: &Limits) -> Result<Thinned> {
        if slices.len() != self.shape().len() {
            return Err(self.failed(Fault::Refused(format!(
                "{} slices of a dataset of {} dimensions",
                slices.len(),
                self.shape().len()
            ))));
        }
        if !self.has_numbers() {
            return Err(self.failed(Fault::Refused("its elements are not numbers".into())));
        }
        let decoded = self.decoded_at_once()?;
        let element = u64::from(self.info().datatype.size);
        let plan = Plan::new(slices, element, decoded.as_deref(), limits);
        let plan = plan.map_err(|fault| self.failed(fault))?;
        let len = plan.len();
        let short = |()| {
            let bytes = len.saturating_mul(NUMBER);
            self.failed(Shortage::System { bytes }.into())
        };
        let counted = usize::try_from(len).map_err(|e| self.failed(e.into()))?;
        let mut numbers: Vec<f64> = try_zeroed_vec(counted).map_err(short)?;
        let is_late = || limits.until.is_some_and(|until| Instant::now() >= until);
        let stop = |_| {
            if is_late() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let reading = Reading {
            progress: Some(&stop),
            ..Reading::default()
        };
        match self.read_numbers(&plan.selection(), reading, &mut numbers) {
            Ok(()) => Ok(plan.reduce(&numbers, blank)),
            Err(_) if is_late() => Err(self.failed(Fault::Refused(
                "reading it takes too long for a picture".into(),
            ))),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::slices;

    /// A dataset in memory. The value of an element is its number; every seventh is NaN, and every fifth is blank.
    struct Known(Vec<u64>);

    const BLANK: f64 = -1.0;

    impl Known {
        fn value(&self, at: &[u64]) -> f64 {
            let number = at
                .iter()
                .zip(&self.0)
                .fold(0, |n, (at, side)| n * side + at);
            match number {
                n if n % 7 == 3 => f64::NAN,
                n if n % 5 == 1 => BLANK,
                n => n as f64,
            }
        }
    }

    fn places(axes: &[Axis]) -> Vec<Vec<u64>> {
        axes.iter().fold(vec![Vec::new()], |before, axis| {
            let longer = before
                .iter()
                .flat_map(|at| (0..axis.len()).map(move |n| [&at[..], &[axis.at(n)]].concat()));
            longer.collect()
        })
    }

    /// Bytes that are decoded for a selection, counted chunk by chunk.
    fn decoded(axes: &[Axis], sides: &[u64]) -> u64 {
        let chunk = |at: &Vec<u64>| at.iter().zip(sides).map(|(n, side)| n / side).collect();
        let chunks: HashSet<Vec<u64>> = places(axes).iter().map(chunk).collect();
        chunks.len() as u64 * sides.iter().product::<u64>() * 4
    }

    /// The indices that a cell covers.
    fn covered(axis: &ThinAxis, cell: u64) -> Vec<u64> {
        let ascending = if axis.is_reversed {
            axis.cells() - 1 - cell
        } else {
            cell
        };
        let end = (ascending * axis.side + axis.side).min(axis.len);
        (ascending * axis.side..end)
            .map(|n| axis.start + n * axis.step)
            .collect()
    }

    proptest! {
        #[test]
        fn cells_and_counts_are_those_of_a_naive_model(
            dims in prop::collection::vec(1u64..40, 1..4),
            chunk in prop::collection::vec(1u64..30, 3),
            (rows, columns) in (1u64..20, 1u64..20),
            bytes in prop_oneof![Just(u64::MAX), 200u64..20_000],
            is_decoded in any::<bool>(),
            reversed in any::<bool>(),
        ) {
            let known = Known(dims.clone());
            // At most two dimensions are shown; the others have an index.
            let texts: Vec<String> = (0..dims.len()).map(|d| match dims.len() - d {
                1 if reversed => "::-1".to_owned(),
                1 | 2 => ":".to_owned(),
                _ => (dims[d] / 2).to_string(),
            }).collect();
            let picked = slices::parse(&texts.join(","), &dims).unwrap();
            let sides = &chunk[..dims.len()];
            let limits = Limits { rows, columns, bytes, until: None };
            let plan = Plan::new(&picked, 4, is_decoded.then_some(sides), &limits);
            let Ok(plan) = plan else {
                // Not even one chunk may be decoded, or one number be read.
                let one = sides.iter().product::<u64>() * 4;
                prop_assert!(is_decoded && one.max(8) > bytes, "{}", plan.unwrap_err());
                return Ok(());
            };
            let Selection::Axes(axes) = plan.selection() else { unreachable!() };
            let numbers: Vec<f64> = places(&axes).iter().map(|at| known.value(at)).collect();
            prop_assert_eq!(plan.len(), numbers.len() as u64);
            if is_decoded {
                prop_assert!(decoded(&axes, sides) <= plan.bytes);
            }
            prop_assert!(plan.bytes <= bytes);
            let is_all = plan.axes.iter().all(|axis| axis.sampled.is_none());
            prop_assert!(is_all || bytes < u64::MAX);
            let thinned = plan.reduce(&numbers, &[BLANK]);

            let count = |is: fn(f64) -> bool| numbers.iter().filter(|n| is(**n)).count() as u64;
            prop_assert_eq!(thinned.statistics.nan, count(f64::is_nan));
            prop_assert_eq!(thinned.statistics.blank, count(|n| n == BLANK));
            prop_assert_eq!(thinned.statistics.read, numbers.len() as u64);
            let valid = |n: &&f64| !n.is_nan() && **n != BLANK;
            let least = numbers.iter().filter(valid).copied().reduce(f64::min);
            let most = numbers.iter().filter(valid).copied().reduce(f64::max);
            prop_assert_eq!(thinned.statistics.ends, least.zip(most));

            let (down, across) = match &thinned.axes[..] {
                [across] => (1, across.cells()),
                [down, across] => (down.cells(), across.cells()),
                _ => unreachable!(),
            };
            prop_assert_eq!(thinned.cells.len() as u64, down * across);
            prop_assert!(across <= columns && (thinned.axes.len() < 2 || down <= rows));
            for (number, cell) in (0u64..).zip(&thinned.cells) {
                let at = [number / across, number % across];
                let at = &at[2 - thinned.axes.len()..];
                // The elements of the cell that were read.
                let own: Vec<f64> = places(&axes).into_iter().filter(|place| {
                    thinned.axes.iter().zip(at).all(|(axis, cell)| covered(axis, *cell).contains(&place[axis.dimension]))
                }).map(|place| known.value(&place)).collect();
                prop_assert!(!own.is_empty());
                let own: Vec<f64> = own.iter().filter(valid).copied().collect();
                if own.is_empty() {
                    prop_assert!(cell.mean.is_nan() && cell.least.is_nan());
                    continue;
                }
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                prop_assert!((cell.mean - mean).abs() <= 1e-9 * mean.abs().max(1.0));
                prop_assert_eq!(cell.least, own.iter().copied().fold(f64::INFINITY, f64::min));
                prop_assert_eq!(cell.most, own.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            }
        }
    }

    #[test]
    fn huge_datasets_are_planned_without_overflow() {
        let limits = Limits {
            rows: 100,
            columns: 100,
            bytes: 1 << 20,
            until: None,
        };
        let all = [Slice::all(u64::MAX), Slice::all(u64::MAX)];
        let plan = Plan::new(&all, 8, None, &limits).unwrap();
        assert!(plan.len() * 8 <= 1 << 20);
        assert!(Plan::new(&all, u64::from(u32::MAX), None, &limits).is_err());
        let sides = [u64::MAX, 1];
        let refused = Plan::new(&all, 8, Some(&sides), &limits).unwrap_err();
        assert!(
            refused.to_string().contains("read for a picture"),
            "{refused}"
        );
        let none = [Slice::all(0), Slice::all(9)];
        assert!(Plan::new(&none, 8, None, &limits).is_err());
    }
}
