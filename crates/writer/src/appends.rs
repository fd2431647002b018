//! Rows that ranks append to datasets. Only a flush assigns their places: after the extent of the dataset at that time, rows
//! of lower ranks first.
//!
//! A flush counts the rows of all such datasets in one exclusive scan, so all ranks must count the same datasets in the same
//! order. A rank finds a new one when it appends to it. The others learn of it in the reduction of the flush, which then
//! begins again. From then on every flush counts that dataset.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Definition};
use h5logfs_output::Ranks;

/// Consecutive rows of one dataset.
#[derive(Debug, Clone)]
pub(super) struct Rows<'d> {
    /// ID of the dataset.
    pub dataset: u32,
    pub number: u64,
    /// Extent of a row.
    pub shape: Vec<u64>,
    /// Elements of the rows, without padding.
    pub bytes: Cow<'d, [u8]>,
}

/// Rows with their place.
pub(super) struct PlacedRows<'a> {
    pub rows: &'a Rows<'a>,
    /// Index of the first row.
    pub start: u64,
}

/// The places of this rank's rows.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// For each counted dataset: the indices of this rank's rows.
    ranges: Vec<Range<u64>>,
}

/// The appended rows of one rank.
#[derive(Debug, Default)]
pub(super) struct Appends {
    /// IDs of the counted datasets, the same on all ranks.
    counted: Vec<u32>,
    /// Copied rows since the last flush, in order, by dataset.
    pending: BTreeMap<u32, Vec<Rows<'static>>>,
    /// Bytes of these rows.
    bytes: u64,
    /// Indices of the rows of the last flush, by dataset.
    flushed: HashMap<u32, Range<u64>>,
}

/// Checks elements appended to a dataset. Returns the number of rows.
pub(super) fn number_of_rows(layout: &DatasetLayout, elements: u64) -> Result<u64, Fault> {
    if layout.max_dims.first() != Some(&None) {
        let reason = "rows can be appended only where the first dimension is unlimited";
        return Err(Fault::Refused(reason.into()));
    }
    let shape = &layout.dims[1..];
    let row = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
    match row {
        Some(0) => Err(Fault::Refused(format!(
            "a row of the extent {shape:?} has no elements"
        ))),
        Some(row) if elements.is_multiple_of(row) => Ok(elements / row),
        _ => Err(Fault::Refused(format!(
            "{elements} elements are no whole number of rows of the extent {shape:?}"
        ))),
    }
}

impl Appends {
    /// Bytes of the copied rows.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds rows to the next flush.
    pub fn push(&mut self, rows: Rows<'_>) {
        self.bytes += rows.bytes.len() as u64;
        let of = self.pending.entry(rows.dataset).or_default();
        match of.last_mut() {
            // Rows of the same shape become one record.
            Some(last) if last.shape == rows.shape => {
                last.number += rows.number;
                last.bytes.to_mut().extend_from_slice(&rows.bytes);
            }
            _ => of.push(Rows {
                bytes: Cow::Owned(rows.bytes.into_owned()),
                ..rows
            }),
        }
    }

    /// A dataset with appended rows that is not counted yet.
    pub fn uncounted(&self, lent: &[Rows<'_>]) -> Option<u32> {
        let pending = self.pending.keys().copied();
        let mut all = pending.chain(lent.iter().map(|rows| rows.dataset));
        all.find(|dataset| !self.counted.contains(dataset))
    }

    /// Counts a dataset from now on. All ranks must call this.
    pub fn count(&mut self, dataset: u32) {
        self.counted.push(dataset);
    }

    /// Counts the rows of all ranks, and assigns places to the rows of this rank. Takes one exclusive scan if any dataset is
    /// counted. Collective.
    pub fn place(&self, ranks: &Ranks, datasets: &[Defined], lent: &[Rows<'_>]) -> Places {
        if self.counted.is_empty() {
            return Places::default();
        }
        let number = |of: &u32| self.of(*of, lent).map(|rows| rows.number).sum();
        let numbers: Vec<u64> = self.counted.iter().map(number).collect();
        let before = ranks.sums_before(&numbers);
        let ranges = self.counted.iter().zip(numbers).zip(before);
        let ranges = ranges.map(|((dataset, number), before)| {
            let extent = datasets[*dataset as usize].layout.dims[0];
            let start = extent.saturating_add(before);
            start..start.saturating_add(number)
        });
        Places {
            ranges: ranges.collect(),
        }
    }

    /// The rows of this rank with their places.
    pub fn placed<'a>(
        &'a self,
        places: &'a Places,
        lent: &'a [Rows<'a>],
    ) -> impl Iterator<Item = PlacedRows<'a>> {
        let of_dataset = move |(dataset, range): (&'a u32, &Range<u64>)| {
            let mut next = range.start;
            self.of(*dataset, lent).map(move |rows| {
                let start = next;
                next += rows.number;
                PlacedRows { rows, start }
            })
        };
        self.counted.iter().zip(&places.ranges).flat_map(of_dataset)
    }

    /// The rows of one dataset in order: the copied rows, then the lent ones.
    fn of<'a>(&'a self, dataset: u32, lent: &'a [Rows<'a>]) -> impl Iterator<Item = &'a Rows<'a>> {
        let copied = self.pending.get(&dataset).into_iter().flatten();
        copied.chain(lent.iter().filter(move |rows| rows.dataset == dataset))
    }

    /// The new extents. `ends` has the new length of each counted dataset.
    pub fn extents(&self, ends: &[u64], datasets: &[Defined]) -> Vec<Definition> {
        let extents = self.counted.iter().zip(ends).filter_map(|(dataset, end)| {
            let mut dims = datasets[*dataset as usize].layout.dims.clone();
            (*end > dims[0]).then(|| {
                dims[0] = *end;
                Definition::Extent {
                    dataset: *dataset,
                    dims,
                }
            })
        });
        extents.collect()
    }

    /// Forgets the flushed rows, and keeps their indices.
    pub fn set_flushed(&mut self, places: Places) {
        self.flushed = self.counted.iter().copied().zip(places.ranges).collect();
        self.pending.clear();
        self.bytes = 0;
    }

    /// Indices of this rank's rows in the last flush.
    pub fn flushed(&self, dataset: u32) -> Range<u64> {
        self.flushed.get(&dataset).cloned().unwrap_or_default()
    }
}

impl Places {
    /// Ends of this rank's rows. The new extent is the maximum over all ranks.
    pub fn ends(&self) -> impl Iterator<Item = u64> {
        self.ranges.iter().map(|range| range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::journal::datatype::Datatype;

    fn layout(dims: &[u64], max_dims: &[Option<u64>]) -> DatasetLayout {
        DatasetLayout {
            max_dims: max_dims.to_vec(),
            ..DatasetLayout::fixed(Datatype::integer(1, false), dims)
        }
    }

    fn rows(dataset: u32, shape: &[u64], bytes: &'static [u8]) -> Rows<'static> {
        let row: u64 = shape.iter().product();
        Rows {
            dataset,
            number: bytes.len() as u64 / row,
            shape: shape.to_vec(),
            bytes: Cow::Borrowed(bytes),
        }
    }

    #[test]
    fn elements_are_whole_rows() {
        let particles = layout(&[7, 3], &[None, Some(3)]);
        assert_eq!(number_of_rows(&particles, 6), Ok(2));
        assert_eq!(number_of_rows(&particles, 0), Ok(0));
        assert!(number_of_rows(&particles, 7).is_err());
        assert_eq!(number_of_rows(&layout(&[0], &[None]), 5), Ok(5));
        for bad in [
            layout(&[], &[]),
            layout(&[7], &[Some(9)]),
            layout(&[7, 3], &[Some(7), None]),
            layout(&[7, 0], &[None, Some(3)]),
        ] {
            assert!(number_of_rows(&bad, 6).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rows_keep_their_order_and_shape() {
        let mut appends = Appends::default();
        appends.push(rows(4, &[2], &[1, 2]));
        appends.push(rows(4, &[2], &[3, 4, 5, 6]));
        appends.push(rows(4, &[3], &[7, 8, 9]));
        let lent = [rows(5, &[], &[1]), rows(4, &[3], &[10, 11, 12])];
        assert_eq!(appends.bytes(), 9);
        assert_eq!(appends.uncounted(&lent), Some(4));
        appends.count(4);
        assert_eq!(appends.uncounted(&lent), Some(5));
        appends.count(5);
        let ranges = vec![100..105, 7..8];
        let places = Places { ranges };
        let placed = appends.placed(&places, &lent);
        let placed: Vec<_> = placed
            .map(|p| (p.start, p.rows.number, p.rows.bytes.to_vec()))
            .collect();
        let wanted = [
            (100, 3, vec![1, 2, 3, 4, 5, 6]),
            (103, 1, vec![7, 8, 9]),
            (104, 1, vec![10, 11, 12]),
            (7, 1, vec![1]),
        ];
        assert_eq!(placed, wanted);
        appends.set_flushed(places);
        assert_eq!((appends.flushed(4), appends.flushed(9)), (100..105, 0..0));
        assert_eq!((appends.bytes(), appends.uncounted(&[])), (0, None));
    }
}
