//! Elements below all records of a dataset. They lie in a data file itself, not in a log.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::conversion::Conversion;
use super::model::{Encoding, Record, StoredBytes};
use crate::boxes::Bounds;
use crate::model::Logged;
use h5logfs_common::fault::Fault;

/// Elements of a dataset in a file, in row-major order. The elements of one index of the first dimension are
/// contiguous, and these rows lie at equal distances. Every record overrides them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    source: u16,
    /// Offset of index 0 in the source.
    offset: u64,
    /// Bytes from the beginning of one index to that of the next.
    step: u64,
    /// Extent of these elements: the dataset's own, or a shorter one along the first dimension.
    dims: Vec<u64>,
    /// Bytes of the elements of one index.
    row: u64,
    conversion: Option<Conversion>,
}

impl Base {
    /// `(source, offset)`: the place of index 0. `step`: bytes from one index to the next. `element`: bytes of an
    /// element of the dataset. Fails where the elements cannot be in a file.
    pub fn new(
        (source, offset): (u16, u64),
        step: u64,
        dims: Vec<u64>,
        element: u64,
        conversion: Option<Conversion>,
    ) -> Result<Self, Fault> {
        let element = conversion.map_or(element, |c| c.stored_size() as u64);
        let inner = dims.iter().skip(1);
        let row = inner.copied().try_fold(element, u64::checked_mul);
        let rows = dims.first().copied().unwrap_or(1);
        let end = row.zip(rows.checked_mul(step)).and_then(|(row, all)| {
            row.checked_mul(rows)?;
            let end = all.checked_add(row)?.checked_add(offset)?;
            (end <= i64::MAX as u64).then_some(end)
        });
        match (row, end) {
            (Some(row), Some(_)) => Ok(Base {
                source,
                offset,
                step,
                dims,
                row,
                conversion,
            }),
            _ => Err(format!("{dims:?} elements at {offset} are in no file").into()),
        }
    }

    /// Number of the source file that holds the elements.
    pub fn source(&self) -> u16 {
        self.source
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.row * self.dims.first().unwrap_or(&1)
    }

    /// Whether a base that was read from a file is valid for this dataset, in a log of `sources` source files.
    pub fn fits(&self, dataset: &Logged<'_>, sources: usize) -> bool {
        let (place, dims) = ((self.source, self.offset), self.dims.clone());
        let again = Base::new(
            place,
            self.step,
            dims,
            dataset.element_size,
            self.conversion,
        );
        let mut becomes = self.conversion.iter().map(|c| c.shown_size() as u64);
        becomes.all(|size| size == dataset.element_size)
            && self.dims.len() == dataset.dims.len()
            && usize::from(self.source) < sources
            && again.is_ok_and(|again| again == *self)
    }

    fn is_one_piece(&self) -> bool {
        self.dims.is_empty() || self.step == self.row
    }

    /// Whether some of the elements are in `query`, a box of the dataset's rank.
    pub fn touches(&self, query: &Bounds) -> bool {
        let mut sides = query.start.iter().zip(&query.end).zip(&self.dims);
        sides.all(|((start, end), dim)| start < dim && start < end)
    }

    /// Whether the base has all elements of `query`.
    pub fn covers(&self, query: &Bounds) -> bool {
        query
            .end
            .iter()
            .zip(&self.dims)
            .all(|(end, dim)| end <= dim)
    }

    /// Whether the first of the elements in `query` lies before byte `len` of the source. `query` must touch the base.
    /// A file that was never written to its end may lack the elements after `len`.
    pub fn begins_before(&self, query: &Bounds, len: u64) -> bool {
        let Some((row, inner)) = query.start.split_first() else {
            return self.offset < len;
        };
        // `new` and `fits` have checked that all elements lie in a file, so this does not overflow.
        let (elements, before) = inner
            .iter()
            .zip(&self.dims[1..])
            .fold((1, 0), |(elements, before): (u64, u64), (start, dim)| {
                (elements * dim, before * dim + start)
            });
        let element = self.row.checked_div(elements).unwrap_or(0);
        self.offset + row * self.step + before * element < len
    }

    /// Calls `visit` with the pieces that touch `query`, as records, from the last to the first, until `visit` breaks.
    pub fn visit_back<B>(
        &self,
        query: &Bounds,
        mut visit: impl FnMut(&Record<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if !self.touches(query) {
            return ControlFlow::Continue(());
        }
        let mut start = vec![0; self.dims.len()];
        if self.is_one_piece() {
            return visit(&self.piece(&start, &self.dims, self.offset, self.bytes()));
        }
        let mut count = self.dims.clone();
        let end = query.end[0].min(self.dims[0]);
        for index in (query.start[0]..end).rev() {
            (start[0], count[0]) = (index, 1);
            let offset = self.offset + index * self.step;
            visit(&self.piece(&start, &count, offset, self.row))?;
        }
        ControlFlow::Continue(())
    }

    fn piece<'a>(
        &'a self,
        start: &'a [u64],
        count: &'a [u64],
        offset: u64,
        len: u64,
    ) -> Record<'a> {
        let stored = StoredBytes {
            source: self.source,
            offset,
            len,
            encoding: match self.conversion {
                Some(_) => Encoding::Converted,
                None => Encoding::Raw,
            },
        };
        Record {
            start,
            count,
            selection: None,
            has_lead: false,
            stored,
            conversion: self.conversion.as_ref(),
            part: None,
            fault: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(start: &[u64], end: &[u64]) -> Bounds {
        Bounds {
            start: start.to_vec(),
            end: end.to_vec(),
        }
    }

    fn pieces(base: &Base, query: &Bounds) -> Vec<(Vec<u64>, Vec<u64>, u64, u64)> {
        let mut found = Vec::new();
        let _ = base.visit_back(query, |r| {
            let place = (r.stored.offset, r.stored.len);
            found.push((r.start.to_vec(), r.count.to_vec(), place.0, place.1));
            ControlFlow::<()>::Continue(())
        });
        found
    }

    #[test]
    fn elements_in_one_piece_are_one_record() {
        let base = Base::new((0, 100), 24, vec![5, 3], 8, None).unwrap();
        let found = pieces(&base, &query(&[1, 0], &[2, 3]));
        assert_eq!(found, [(vec![0, 0], vec![5, 3], 100, 120)]);
        assert!(pieces(&base, &query(&[5, 0], &[9, 3])).is_empty());
        let scalar = Base::new((0, 7), 0, Vec::new(), 4, None).unwrap();
        assert_eq!(pieces(&scalar, &query(&[], &[])), [(vec![], vec![], 7, 4)]);
    }

    #[test]
    fn elements_at_distances_are_a_record_an_index() {
        let base = Base::new((0, 100), 50, vec![5, 3], 8, None).unwrap();
        let found = pieces(&base, &query(&[3, 1], &[9, 2]));
        let at = |index: u64| (vec![index, 0], vec![1, 3], 100 + 50 * index, 24);
        assert_eq!(found, [at(4), at(3)]);
    }

    #[test]
    fn elements_begin_where_their_first_one_lies() {
        let base = Base::new((0, 100), 50, vec![5, 3], 8, None).unwrap();
        let begins = |start: &[u64], len| base.begins_before(&query(start, &[5, 3]), len);
        for (row, column) in [(0, 0), (3, 0), (3, 2), (4, 1)] {
            let at = 100 + 50 * row + 8 * column;
            assert!(begins(&[row, column], at + 1) && !begins(&[row, column], at));
        }
        let scalar = Base::new((0, 7), 0, Vec::new(), 4, None).unwrap();
        let all = query(&[], &[]);
        assert!(scalar.begins_before(&all, 8) && !scalar.begins_before(&all, 7));
        assert!(base.covers(&query(&[0, 0], &[5, 3])) && !base.covers(&query(&[0, 0], &[6, 3])));
    }

    #[test]
    fn elements_that_are_in_no_file_are_refused() {
        let most = i64::MAX as u64;
        assert!(Base::new((0, most), 8, vec![1], 8, None).is_err());
        assert!(Base::new((0, 0), 8, vec![most, 2], 8, None).is_err());
        assert!(Base::new((0, 0), 0, vec![1 << 60, 1 << 10], 8, None).is_err());
        assert!(Base::new((0, 0), 0, vec![], 8, None).is_ok());
    }
}
