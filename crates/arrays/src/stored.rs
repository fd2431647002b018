//! Elements that the canonical file itself contains, at the addresses in its metadata. They belong to datasets that the
//! scan has copied (small ones, and those of variable length), and to all datasets of a file whose bytes are shown as
//! they are.

use std::convert::Infallible;

use h5logfs_common::buffers::zeroed;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters::{self, Filter};
use h5logfs_hdf5_format::{DatasetInfo, Objects};
use h5logfs_hdf5_format::{HeaderBytes, read_vec};
use h5logfs_log::boxes::Bounds;
use h5logfs_log::boxes::rows::{Place, copy_box, each_row, next};
use h5logfs_log::stored::{Chunks, Stored, bytes_of};

type Result<T> = std::result::Result<T, Fault>;

/// Reads the elements of a dataset.
pub(crate) struct Reader<'a, B> {
    pub objects: &'a Objects<B>,
    pub dataset: &'a DatasetInfo,
    pub dims: &'a [u64],
    pub stored: &'a Stored,
}

impl<B: HeaderBytes> Reader<'_, B> {
    /// Fills `out` with a box of the dataset. `out` has the length of the box's elements.
    pub fn read(&self, task: &Task, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
        let count: Vec<u64> = wanted.count().collect();
        let zero = vec![0; count.len()];
        let own = Place {
            sides: &count,
            start: &zero,
        };
        let all = Place {
            sides: self.dims,
            start: &wanted.start,
        };
        match self.stored {
            Stored::Nowhere => {
                self.fill(out);
                Ok(())
            }
            Stored::Here(bytes) => {
                copy_box(&count, self.element(), (bytes, all), (out, own));
                Ok(())
            }
            Stored::Piece { address, .. } => self.copy_piece(*address, &count, all, (out, own)),
            Stored::Chunks(chunks) => self.read_chunks(task, chunks, wanted, out),
        }
    }

    /// Bytes of an element.
    fn element(&self) -> usize {
        self.dataset.datatype.size as usize
    }

    /// Fills `out` with the fill value.
    fn fill(&self, out: &mut [u8]) {
        match &self.dataset.fill {
            Some(fill) => {
                let each = out.chunks_exact_mut(fill.len().max(1));
                each.for_each(|to| to.copy_from_slice(fill));
            }
            None => out.fill(0),
        }
    }

    /// Copies a box of an array that is contiguous in the file.
    fn copy_piece(
        &self,
        address: u64,
        count: &[u64],
        source: Place<'_>,
        (out, target): (&mut [u8], Place<'_>),
    ) -> Result<()> {
        each_row(count, self.element(), source, target, |from, to, len| {
            let at = address.checked_add(from as u64);
            let at = at.ok_or("an address past the end of the file")?;
            self.objects.bytes().read(at, &mut out[to..to + len])
        })
    }

    fn read_chunks(
        &self,
        task: &Task,
        chunks: &Chunks,
        wanted: &Bounds,
        out: &mut [u8],
    ) -> Result<()> {
        let along = || wanted.start.iter().zip(&wanted.end).zip(&chunks.sides);
        let first: Vec<u64> = along().map(|((start, _), side)| start / side).collect();
        let counts = along().map(|((start, end), side)| end.div_ceil(*side) - start / side);
        let counts: Vec<u64> = counts.collect();
        if counts.contains(&0) {
            return Ok(());
        }
        let whole: Vec<u64> = wanted.count().collect();
        let mut at = vec![0; counts.len()];
        loop {
            let position: Vec<u64> = first
                .iter()
                .zip(&at)
                .map(|(first, at)| first + at)
                .collect();
            let part = PartOfChunk::of(&position, &chunks.sides, wanted);
            let target = Place {
                sides: &whole,
                start: &part.in_box,
            };
            let number = chunks.number(&position, self.dims);
            self.read_part(task, chunks, number, &part, (out, target))
                .map_err(|fault| fault.at(format_args!("chunk {position:?}")))?;
            if !next(&mut at, &counts) {
                return Ok(());
            }
        }
    }

    /// Copies the part of a chunk that overlaps a box.
    fn read_part(
        &self,
        task: &Task,
        chunks: &Chunks,
        number: u64,
        part: &PartOfChunk,
        (out, target): (&mut [u8], Place<'_>),
    ) -> Result<()> {
        let source = Place {
            sides: &chunks.sides,
            start: &part.in_chunk,
        };
        let (count, element) = (&part.count, self.element());
        let Some(chunk) = chunks.find(number) else {
            let rows = each_row(count, element, source, target, |_, to, len| {
                self.fill(&mut out[to..to + len]);
                Ok::<(), Infallible>(())
            });
            return rows.map_err(|never| match never {});
        };
        let pipeline: Vec<Filter> = chunk.filters(&self.dataset.filters).cloned().collect();
        if pipeline.is_empty() {
            chunk.check_len(chunks.raw)?;
            return self.copy_piece(chunk.address, count, source, (out, target));
        }
        let memory = filters::decoding_memory(chunk.size, chunks.raw, &pipeline);
        let _reserved = task.reserve(memory.saturating_add(chunk.size))?;
        let stored = self.bytes(chunk.address, chunk.size)?;
        if *count == chunks.sides && target.sides == count.as_slice() {
            return filters::decode_in(&stored, &pipeline, out);
        }
        let elements = filters::decode(&stored, chunks.raw, &pipeline)?;
        copy_box(count, element, (&elements, source), (out, target));
        Ok(())
    }

    /// The elements of a whole chunk. Those past the edge of the dataset are arbitrary. With `is_filtered`, the
    /// chunk's bytes after the dataset's filters. A dataset without chunks is one chunk.
    pub fn chunk(&self, number: u64, is_filtered: bool) -> Result<Vec<u8>> {
        let all = &self.dataset.filters;
        let (chunk, raw) = match self.stored {
            Stored::Piece { address, len } => return self.bytes(*address, *len),
            Stored::Here(bytes) => return Ok(bytes.clone()),
            Stored::Nowhere => (None, bytes_of(self.dims, self.dataset.datatype.size.into())),
            Stored::Chunks(chunks) => (chunks.find(number), Some(chunks.raw)),
        };
        let raw = raw.ok_or("a chunk of many bytes")?;
        let elements = match chunk {
            None => {
                let mut elements = zeroed(usize::try_from(raw)?)?;
                self.fill(&mut elements);
                elements
            }
            Some(chunk) => {
                let stored = self.bytes(chunk.address, chunk.size)?;
                let applied: Vec<Filter> = chunk.filters(all).cloned().collect();
                if is_filtered && applied == *all {
                    return Ok(stored);
                }
                filters::decode(&stored, raw, &applied)?
            }
        };
        if is_filtered {
            return Ok(filters::compress(&elements, all)?);
        }
        Ok(elements)
    }

    /// A range of bytes of the file.
    fn bytes(&self, address: u64, len: u64) -> Result<Vec<u8>> {
        read_vec(self.objects.bytes(), address, len)
    }
}

/// The part of a chunk that overlaps a box.
struct PartOfChunk {
    /// Elements along each dimension.
    count: Vec<u64>,
    /// Start in the chunk.
    in_chunk: Vec<u64>,
    /// Start in the box.
    in_box: Vec<u64>,
}

impl PartOfChunk {
    /// The overlap of `wanted` with the chunk at `position` of the grid. It is not empty.
    fn of(position: &[u64], sides: &[u64], wanted: &Bounds) -> Self {
        let rank = position.len();
        let mut part = PartOfChunk {
            count: Vec::with_capacity(rank),
            in_chunk: Vec::with_capacity(rank),
            in_box: Vec::with_capacity(rank),
        };
        for d in 0..rank {
            let origin = position[d] * sides[d];
            let start = origin.max(wanted.start[d]);
            let end = origin.saturating_add(sides[d]).min(wanted.end[d]);
            part.count.push(end - start);
            part.in_chunk.push(start - origin);
            part.in_box.push(start - wanted.start[d]);
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The model compares each element.
        #[test]
        fn parts_of_chunks_tile_a_box(
            sides in prop::collection::vec((1u64..6, 0u64..9, 1u64..9), 1..4),
        ) {
            let chunk: Vec<u64> = sides.iter().map(|(side, ..)| *side).collect();
            let start: Vec<u64> = sides.iter().map(|(_, start, _)| *start).collect();
            let count: Vec<u64> = sides.iter().map(|(.., count)| *count).collect();
            let end = start.iter().zip(&count).map(|(start, count)| start + count).collect();
            let wanted = Bounds { start, end };
            let mut at = vec![0; count.len()];
            loop {
                let element: Vec<u64> = wanted.start.iter().zip(&at).map(|(start, at)| start + at).collect();
                let position: Vec<u64> = element.iter().zip(&chunk).map(|(at, side)| at / side).collect();
                let part = PartOfChunk::of(&position, &chunk, &wanted);
                for d in 0..element.len() {
                    let behind = at[d] - part.in_box[d];
                    prop_assert!(behind < part.count[d]);
                    prop_assert_eq!(position[d] * chunk[d] + part.in_chunk[d] + behind, element[d]);
                }
                if !next(&mut at, &count) {
                    break;
                }
            }
        }
    }
}
