//! Whole chunks of a logged dataset in their stored form, and queries about chunks.

use h5logfs_hdf5_format::filters::{self, Filter};
use h5logfs_output::Selection;
use h5logfs_output::reading::Placed;

use super::dataset::Dataset;
use super::transfer::Region;
use super::{State, WrittenLog};
use h5logfs_common::fault::Fault;

/// The largest number of chunks that a query visits one by one.
const MOST_CHUNKS: u64 = 1 << 24;

/// A chunk in its stored form, after the filters.
#[derive(Clone, Copy)]
pub struct StoredChunk<'a> {
    /// The coordinates of the chunk's first element.
    pub offset: &'a [u64],
    /// The filter mask: a bit for each filter that was skipped.
    pub mask: u32,
    pub bytes: &'a [u8],
}

/// Chunks of the logged datasets of a log.
#[derive(Debug, Clone, Copy)]
pub struct Chunks<'a> {
    log: &'a WrittenLog,
}

impl<'a> Chunks<'a> {
    #[inline]
    pub(super) fn new(log: &'a WrittenLog) -> Self {
        Chunks { log }
    }

    /// `H5Dwrite_chunk`. Local.
    pub fn write(self, dataset: &Dataset, chunk: StoredChunk<'_>) -> Result<(), Fault> {
        let mut state = self.log.state.lock();
        let dims = dataset.dims();
        let shape = checked_shape(dataset, &dims, chunk.offset)?;
        if dataset.has_foreign_filters {
            return Err("this dataset has a filter that h5logfs cannot apply, so whole chunks cannot be written to it".into());
        }
        let kept = |(n, _): &(usize, &Filter)| chunk.mask & (1 << n) == 0;
        let active = dataset.filters.iter().enumerate().filter(kept);
        let active: Vec<Filter> = active.map(|(_, filter)| filter.clone()).collect();
        let raw = dataset.bytes(&shape);
        let raw = filters::decode(chunk.bytes, raw, &active)?;
        let count = within(chunk.offset, &shape, &dims);
        let elements = if count == shape {
            raw
        } else {
            cut(&raw, &shape, &count, dataset.element)
        };
        let selection = Selection::block(chunk.offset, &count);
        state.log(dataset, &dims, &selection, elements.into())
    }

    /// `H5Dread_chunk`: returns the stored bytes. The filter mask is always 0. Local.
    pub fn read(self, dataset: &Dataset, offset: &[u64]) -> Result<Vec<u8>, Fault> {
        let mut state = self.log.state.lock();
        let dims = dataset.dims();
        let shape = checked_shape(dataset, &dims, offset)?;
        if !state.has_elements(dataset, &dims, offset, &shape)? {
            return Err("there is no such chunk: nothing was written to it".into());
        }
        state.stored_chunk(dataset, &dims, &shape, offset)
    }

    /// The stored size of a chunk; 0 if no element of it was written. Local.
    pub fn size(self, dataset: &Dataset, offset: &[u64]) -> Result<u64, Fault> {
        let mut state = self.log.state.lock();
        let dims = dataset.dims();
        let shape = checked_shape(dataset, &dims, offset)?;
        if !state.has_elements(dataset, &dims, offset, &shape)? {
            return Ok(0);
        }
        if dataset.filters.is_empty() {
            return Ok(dataset.bytes(&shape));
        }
        let stored = state.stored_chunk(dataset, &dims, &shape, offset)?;
        Ok(stored.len() as u64)
    }

    /// The coordinates of the chunk that contains an element. `None` if the element is outside the extent. Local.
    pub fn at(self, dataset: &Dataset, place: &[u64]) -> Result<Option<Vec<u64>>, Fault> {
        let shape = dataset.chunk.as_ref().ok_or("the dataset has no chunks")?;
        let first = |(at, side): (&u64, &u64)| at / side * side;
        let offset: Vec<u64> = place.iter().zip(shape).map(first).collect();
        let dims = dataset.dims();
        let is_inside = offset.iter().zip(dims.iter()).all(|(at, dim)| at < dim);
        Ok(is_inside.then_some(offset))
    }

    /// The offset in the log file of all elements of a dataset without chunks. `None` unless they lie in one piece. Local.
    pub fn offset_of_all(self, dataset: &Dataset) -> Result<Option<u64>, Fault> {
        if dataset.chunk.is_some() || !dataset.is_written() {
            return Ok(None);
        }
        let dims = dataset.dims();
        let start = vec![0; dims.len()];
        let region = Region {
            start: &start,
            count: &dims,
        };
        let found = self.log.state.lock().place(dataset, &dims, region)?;
        Ok(found.map(|found| found.offset))
    }

    /// The offset in the log file of a chunk with this stored size. `None` unless it lies there in one piece. Local.
    pub fn offset(
        self,
        dataset: &Dataset,
        offset: &[u64],
        size: u64,
    ) -> Result<Option<u64>, Fault> {
        let dims = dataset.dims();
        let shape = checked_shape(dataset, &dims, offset)?;
        // A native file stores whole chunks, even at the end of the extent, and after all filters. Bytes of the log may be shown
        // as a chunk only if they equal that.
        let is_whole = within(offset, &shape, &dims) == shape && !dataset.has_foreign_filters;
        if size == 0 || !is_whole {
            return Ok(None);
        }
        let region = Region {
            start: offset,
            count: &shape,
        };
        let found = self.log.state.lock().place(dataset, &dims, region)?;
        let is_chunk =
            |found: &Placed| found.len == size && found.is_filtered != dataset.filters.is_empty();
        Ok(found.filter(is_chunk).map(|found| found.offset))
    }

    /// The coordinates of all chunks with written elements, in row-major order. Local.
    pub fn written(self, dataset: &Dataset) -> Result<Vec<Vec<u64>>, Fault> {
        let mut state = self.log.state.lock();
        let dims = dataset.dims();
        let shape = dataset.chunk.as_ref().ok_or("the dataset has no chunks")?;
        let grid: Vec<u64> = dims
            .iter()
            .zip(shape)
            .map(|(d, c)| d.div_ceil(*c))
            .collect();
        let number = grid.iter().try_fold(1u64, |n, g| n.checked_mul(*g));
        let number = number.filter(|n| *n <= MOST_CHUNKS);
        let number = number.ok_or("it has too many chunks for this query")?;
        let mut found = Vec::new();
        for mut index in 0..number {
            let mut offset = vec![0; grid.len()];
            for d in (0..grid.len()).rev() {
                offset[d] = index % grid[d] * shape[d];
                index /= grid[d];
            }
            if state.has_elements(dataset, &dims, &offset, shape)? {
                found.push(offset);
            }
        }
        Ok(found)
    }
}

impl State {
    fn stored_chunk(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        shape: &[u64],
        offset: &[u64],
    ) -> Result<Vec<u8>, Fault> {
        let count = within(offset, shape, dims);
        let mut elements = vec![0; dataset.bytes(&count) as usize];
        let region = Region {
            start: offset,
            count: &count,
        };
        self.read_box(dataset, dims, region, &mut elements)?;
        if count != shape {
            elements = padded(&elements, &count, shape, dataset);
        }
        if dataset.filters.is_empty() {
            return Ok(elements);
        }
        filters::compress(&elements, &dataset.filters).map_err(Fault::from)
    }

    fn has_elements(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        offset: &[u64],
        shape: &[u64],
    ) -> Result<bool, Fault> {
        // With several ranks, another rank may have written to the dataset.
        if !dataset.is_written() && self.writer()?.ranks().size() == 1 {
            return Ok(false);
        }
        let count = within(offset, shape, dims);
        let region = Region {
            start: offset,
            count: &count,
        };
        self.is_logged(dataset, dims, region)
    }
}

/// The chunk shape of a dataset. Fails if no chunk begins at `offset`.
fn checked_shape(dataset: &Dataset, dims: &[u64], offset: &[u64]) -> Result<Vec<u64>, Fault> {
    let shape = dataset.chunk.as_ref().ok_or("the dataset has no chunks")?;
    let mut places = offset.iter().zip(shape).zip(dims);
    let is_chunk = offset.len() == shape.len()
        && places.all(|((offset, side), dim)| offset % side == 0 && offset < dim);
    if is_chunk {
        return Ok(shape.clone());
    }
    Err(format!("no chunk of the dataset begins at {offset:?}").into())
}

/// The part of a chunk within the extent.
fn within(offset: &[u64], shape: &[u64], dims: &[u64]) -> Vec<u64> {
    let sides = offset.iter().zip(shape).zip(dims);
    sides
        .map(|((offset, side), dim)| (*side).min(dim - offset))
        .collect()
}

/// Visits the rows of a small box at the origin of a large one. Calls with the offset of each row in the small box, then in the
/// large one, in elements.
fn for_rows(small: &[u64], large: &[u64], mut visit: impl FnMut(usize, usize)) {
    let rows = small.iter().rev().skip(1).product::<u64>();
    let row = small.last().copied().unwrap_or(1);
    for number in 0..rows {
        let (mut rest, mut at, mut stride) = (number, 0, large.last().copied().unwrap_or(1));
        for (s, l) in small.iter().zip(large).rev().skip(1) {
            at += rest % s * stride;
            rest /= s;
            stride *= l;
        }
        visit((number * row) as usize, at as usize);
    }
}

/// Copies the elements of a small box from the origin of a large one.
fn cut(elements: &[u8], large: &[u64], small: &[u64], element: usize) -> Vec<u8> {
    let row = small.last().copied().unwrap_or(1) as usize * element;
    let mut out = Vec::new();
    for_rows(small, large, |_, at| {
        out.extend_from_slice(&elements[at * element..][..row]);
    });
    out
}

/// Extends a small box to a large one, with the fill value.
fn padded(elements: &[u8], small: &[u64], large: &[u64], dataset: &Dataset) -> Vec<u8> {
    let element = dataset.element;
    let total: u64 = large.iter().product();
    let mut out = if dataset.fill.is_empty() {
        vec![0; total as usize * element]
    } else {
        dataset.fill.repeat(total as usize)
    };
    let row = small.last().copied().unwrap_or(1) as usize * element;
    for_rows(small, large, |from, at| {
        out[at * element..][..row].copy_from_slice(&elements[from * element..][..row]);
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_chunk_has_its_rows() {
        let whole: Vec<u8> = (0..24).collect();
        assert_eq!(
            cut(&whole, &[2, 3, 4], &[2, 2, 3], 1),
            [0, 1, 2, 4, 5, 6, 12, 13, 14, 16, 17, 18]
        );
        assert_eq!(cut(&whole, &[12], &[5], 2), (0..10).collect::<Vec<u8>>());
    }
}
