//! The stored bytes of one part.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use h5logfs_common::error::Error as LogError;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters::{DEFLATE, Filter, OPTIONAL, compress, mask};
use h5logfs_view::ChunkId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Source;
use super::left_out::LeftOut;
use super::parts::{PART, Part, What};
use crate::error::{Error, Result};

/// Shorter pieces are joined, so that each is worth a system call.
const WORTH_A_WRITE: usize = 256 << 10;
/// Buffers longer than this are not kept.
const LONGEST_SPARE: usize = 4 << 20;

/// A part in its stored form.
#[derive(Debug, Default)]
pub struct Made {
    /// The description of the part without its bytes.
    pub outline: Outline,
    /// Bytes of the part, in order.
    pub pieces: Vec<Vec<u8>>,
}

/// The facts needed to place a part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outline {
    /// Number of the dataset.
    pub number: usize,
    /// Bytes in the file.
    pub len: u64,
    /// Readable chunks, in order.
    pub chunks: Vec<MadeChunk>,
    /// Unreadable data.
    pub left_out: Vec<LeftOut>,
    /// Progress once this part is in the file: bytes of its dataset's elements.
    pub passed: u64,
}

/// A stored chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeChunk {
    /// Number in the chunk grid of the dataset.
    pub number: u64,
    /// Bytes after the filters.
    pub size: u32,
    /// Bit `i` is set where filter `i` of the pipeline was not applied.
    pub filter_mask: u32,
}

/// Written buffers, kept for reuse.
#[derive(Debug)]
pub struct Spare {
    most: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    /// Total capacity in bytes.
    bytes: u64,
}

impl Spare {
    /// Buffers for at most `parts` parts.
    pub fn of_parts(parts: usize) -> Self {
        Spare {
            most: parts as u64 * PART,
            kept: Mutex::default(),
        }
    }

    fn take(&self) -> Vec<u8> {
        let mut kept = self.kept.lock();
        let buffer = kept.buffers.pop().unwrap_or_default();
        kept.bytes -= buffer.capacity() as u64;
        buffer
    }

    /// Keeps a buffer if it is worth it.
    pub fn give(&self, buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        let mut kept = self.kept.lock();
        let bytes = kept.bytes + capacity as u64;
        if bytes <= self.most && (WORTH_A_WRITE..=LONGEST_SPARE).contains(&capacity) {
            kept.bytes = bytes;
            kept.buffers.push(buffer);
        }
    }
}

/// A filtered chunk, with the mask of filters that were not applied.
struct Filtered {
    bytes: Vec<u8>,
    mask: u32,
}

impl Made {
    /// Writes the part at its place. Its buffers are reused.
    pub fn write(self, file: &File, offset: u64, spare: &Spare) -> io::Result<()> {
        let mut at = offset;
        for piece in self.pieces {
            file.write_all_at(&piece, at)?;
            at += piece.len() as u64;
            spare.give(piece);
        }
        Ok(())
    }

    fn push(&mut self, bytes: Vec<u8>) {
        self.outline.len += bytes.len() as u64;
        match self.pieces.last_mut() {
            Some(last) if last.len() + bytes.len() <= WORTH_A_WRITE => last.extend(bytes),
            _ => self.pieces.push(bytes),
        }
    }
}

impl Source {
    /// Makes a part.
    pub fn make(&self, task: &Task, part: &Part, spare: &Spare) -> Result<Made> {
        let mut made = Made::default();
        made.outline.number = part.number;
        match &part.what {
            What::Chunks(chunks) => {
                let last = chunks.last().map_or(0, |last| last + 1);
                made.outline.passed = self.raw_len(part.number).saturating_mul(last);
                for chunk in chunks {
                    self.make_chunk(task, *chunk, &mut made, spare)?;
                }
            }
            What::Piece { offset, len } => {
                made.outline.passed = offset + len;
                let left_out = &mut made.outline.left_out;
                let piece = self.piece(part.number, *offset, *len, left_out)?;
                made.push(piece);
            }
        }
        Ok(made)
    }

    fn make_chunk(&self, task: &Task, chunk: u64, made: &mut Made, spare: &Spare) -> Result<()> {
        let number = made.outline.number;
        let filtered = match self.filtered(task, number, chunk, spare) {
            Ok(filtered) => filtered,
            Err(Error::Log(e @ LogError::BadData { .. })) if self.skips_damaged => {
                LeftOut::of(number, e)?.add_to(&mut made.outline.left_out);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let size = u32::try_from(filtered.bytes.len());
        made.outline.chunks.push(MadeChunk {
            number: chunk,
            size: size.map_err(|_| self.about(number, "a chunk of more than 4 GiB"))?,
            filter_mask: filtered.mask,
        });
        made.push(filtered.bytes);
        Ok(())
    }

    /// A filtered chunk. A chunk that the log stores in this form is copied.
    fn filtered(&self, task: &Task, number: usize, chunk: u64, spare: &Spare) -> Result<Filtered> {
        let (id, pipeline) = (ChunkId::new(number, chunk), &self.dataset(number).filters);
        if !pipeline.is_empty()
            && let Some(bytes) = self.view.references().stored_chunk(task, id, pipeline)?
        {
            return Ok(Filtered { bytes, mask: 0 });
        }
        let raw = self.view.chunks().raw_in(task, id, || spare.take())?;
        // The memory of the raw chunk is reserved until the chunk is dropped. The number of parts limits the memory of
        // the result.
        let (raw, _reservation) = raw.into_parts();
        filter(raw, pipeline).map_err(|e| self.about(number, e))
    }

    /// Bytes of a contiguous dataset. Unreadable bytes are replaced by the fill value, as missing chunks are.
    fn piece(
        &self,
        number: usize,
        offset: u64,
        len: u64,
        left_out: &mut Vec<LeftOut>,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        match self.view.regions().read_extent(number, offset, &mut bytes) {
            Ok(()) => {}
            Err(e @ LogError::BadData { .. }) if self.skips_damaged => {
                LeftOut::of(number, e)?.add_to(left_out);
                let fill = &self.dataset(number).fill;
                let skipped = offset as usize % fill.len().max(1);
                let values = fill.iter().cycle().skip(skipped);
                bytes.fill(0);
                bytes
                    .iter_mut()
                    .zip(values)
                    .for_each(|(to, from)| *to = *from);
            }
            Err(e) => return Err(e.into()),
        }
        Ok(bytes)
    }

    /// An error about a dataset.
    pub(super) fn about(&self, number: usize, reason: impl ToString) -> Error {
        let dataset = &self.dataset(number).name;
        Error::Other(format!("dataset {dataset}: {}", reason.to_string()))
    }
}

/// Applies a pipeline. Like libhdf5, it skips an optional deflate that does not shorten the chunk.
fn filter(raw: Vec<u8>, pipeline: &[Filter]) -> io::Result<Filtered> {
    let mut bytes = Cow::Owned(raw);
    let mut left_out = mask(pipeline);
    for (place, one) in pipeline.iter().enumerate() {
        let bit = 1u32.checked_shl(place as u32).unwrap_or(0);
        if left_out & bit != 0 {
            continue;
        }
        let after = compress(&bytes, std::slice::from_ref(one))?;
        let is_no_use = one.id == DEFLATE && after.len() >= bytes.len();
        if is_no_use && one.flags & OPTIONAL != 0 {
            left_out |= bit;
            continue;
        }
        bytes = Cow::Owned(after);
    }
    Ok(Filtered {
        bytes: bytes.into_owned(),
        mask: left_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_hdf5_format::filters::{FLETCHER32, SHUFFLE, decode};

    fn pipeline() -> Vec<Filter> {
        let filter = |id, flags, value| Filter {
            id,
            flags,
            values: vec![value],
        };
        vec![
            filter(SHUFFLE, OPTIONAL, 8),
            filter(DEFLATE, OPTIONAL, 6),
            filter(FLETCHER32, 0, 0),
        ]
    }

    #[test]
    fn a_deflate_of_no_use_is_left_out() {
        let noise: Vec<u8> = (0..4096u64)
            .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).to_le_bytes()[0])
            .collect();
        let mut state = 1u64;
        let noise: Vec<u8> = noise
            .iter()
            .map(|byte| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                byte ^ (state >> 56) as u8
            })
            .collect();
        let stored = filter(noise.clone(), &pipeline()).unwrap();
        assert_eq!((stored.mask, stored.bytes.len()), (0b010, 4100));
        let applied = [pipeline()[0].clone(), pipeline()[2].clone()];
        assert_eq!(decode(&stored.bytes, 4096, &applied).unwrap(), noise);
        // A deflate that is not optional is never skipped.
        let mut all = pipeline();
        all[1].flags = 0;
        let stored = filter(noise.clone(), &all).unwrap();
        assert_eq!(stored.mask, 0);
        assert_eq!(decode(&stored.bytes, 4096, &all).unwrap(), noise);
    }

    #[test]
    fn what_compresses_is_compressed() {
        let stored = filter(vec![7; 4096], &pipeline()).unwrap();
        assert_eq!(stored.mask, 0);
        assert!(stored.bytes.len() < 100);
        assert_eq!(
            decode(&stored.bytes, 4096, &pipeline()).unwrap(),
            vec![7; 4096]
        );
    }
}
