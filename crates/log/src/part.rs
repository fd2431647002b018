//! Parts of stored arrays: a chunk of an HDF5 file is stored whole, also where it reaches beyond its dataset or into a halo.

use serde::{Deserialize, Serialize};

use crate::boxes::rows::{Place, each_row};
use crate::model::{Record, StoredBytes};
use crate::stored::bytes_of;
use h5logfs_common::buffers::zeroed;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::{self, Filter};

/// The part of a stored array that a record has. The record's box tells its shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    /// Sides of the stored array.
    pub sides: Vec<u64>,
    /// First index of the part along each dimension.
    pub start: Vec<u64>,
    /// Filters that were applied to the array, in this order.
    pub filters: Vec<Filter>,
}

/// The bytes that a part needs.
pub struct Needed {
    /// Their place.
    pub stored: StoredBytes,
    /// Bytes of an element.
    element: usize,
    /// Bytes of the array before the first one.
    skipped: usize,
    /// Bytes of the array.
    array: u64,
}

impl Part {
    /// Whether the array has a part of so many elements along each dimension.
    pub fn has(&self, count: &[u64]) -> bool {
        let ends = self
            .start
            .iter()
            .zip(count)
            .map(|(start, count)| start.checked_add(*count));
        let ranks = (self.sides.len(), self.start.len());
        ranks == (count.len(), count.len())
            && ends
                .zip(&self.sides)
                .all(|(end, side)| end.is_some_and(|end| end <= *side))
    }

    /// Number of elements of the array before the one at `index`, which lies in it.
    fn before(&self, index: impl Iterator<Item = u64>) -> u64 {
        self.sides
            .iter()
            .zip(index)
            .fold(0, |n, (side, at)| n * side + at)
    }

    /// The bytes of the array that a record needs, whose elements take `len` bytes. Fails where the array lacks the part. Of an
    /// array without filters these are the bytes from the first element to the last.
    pub fn needed(&self, record: &Record<'_>, len: usize) -> Result<Needed, Fault> {
        let own: u64 = record.elements();
        let element = (len as u64)
            .checked_div(own)
            .filter(|size| size * own == len as u64);
        let array = element.and_then(|size| bytes_of(&self.sides, size));
        let (Some(element), Some(array), true) = (element, array, self.has(record.count)) else {
            return Err("a part beyond its array".into());
        };
        let mut stored = record.stored;
        let mut skipped = 0;
        if self.filters.is_empty() {
            if stored.len != array {
                return Err(format!("{} bytes instead of {array}", stored.len).into());
            }
            let last = self
                .start
                .iter()
                .zip(record.count)
                .map(|(start, count)| start + count - 1);
            skipped = self.before(self.start.iter().copied()) * element;
            let end = (self.before(last) + 1) * element;
            stored.offset = stored
                .offset
                .checked_add(skipped)
                .ok_or("an offset past 2^64")?;
            stored.len = end - skipped;
        }
        Ok(Needed {
            stored,
            element: usize::try_from(element)?,
            skipped: usize::try_from(skipped)?,
            array,
        })
    }

    /// Bytes of memory that [`Part::copy`] takes.
    pub fn memory(&self, needed: &Needed) -> u64 {
        if self.filters.is_empty() {
            return 0;
        }
        let decoding = filters::decoding_memory(needed.stored.len, needed.array, &self.filters);
        decoding.saturating_add(needed.array)
    }

    /// Copies the elements of a part of this shape into `out`. `bytes`: the stored ones that it needs.
    pub fn copy(
        &self,
        needed: &Needed,
        bytes: &[u8],
        count: &[u64],
        out: &mut [u8],
    ) -> Result<(), Fault> {
        if self.filters.is_empty() {
            return self.copy_rows(needed, bytes, count, out);
        }
        if needed.array == out.len() as u64 {
            return filters::decode_in(bytes, &self.filters, out);
        }
        let mut array = zeroed(usize::try_from(needed.array)?)?;
        filters::decode_in(bytes, &self.filters, &mut array)?;
        self.copy_rows(needed, &array, count, out)
    }

    fn copy_rows(
        &self,
        needed: &Needed,
        from: &[u8],
        count: &[u64],
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let zero = vec![0; count.len()];
        let source = Place {
            sides: &self.sides,
            start: &self.start,
        };
        let target = Place {
            sides: count,
            start: &zero,
        };
        each_row(
            count,
            needed.element,
            source,
            target,
            |first, place, len| {
                let first = first.checked_sub(needed.skipped);
                let row = first.and_then(|first| from.get(first..)?.get(..len));
                let to = out.get_mut(place..).and_then(|out| out.get_mut(..len));
                let (row, to) = row.zip(to).ok_or("a part beyond its array")?;
                to.copy_from_slice(row);
                Ok(())
            },
        )
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let values = self
            .filters
            .iter()
            .map(|filter| size_of::<Filter>() + 4 * filter.values.len());
        size_of::<Part>() + 16 * self.sides.len() + values.sum::<usize>()
    }
}
