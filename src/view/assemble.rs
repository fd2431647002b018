//! Making one chunk: fill value, then the blocks of the records that touch it, later over earlier.

use std::collections::BTreeSet;

use super::cache::Bytes;
use super::grid::Grid;
use crate::boxes::Bounds;
use crate::error::Result;
use crate::filters;
use crate::index::DatasetIndex;
use crate::log::deflate::inflate;
use crate::log::model::{Encoding, Record};
use crate::log::source::SourceFile;
use crate::snapshot::Dataset;

/// Pieces that lie closer together than this in a log are read at once.
const GAP: u64 = 16 << 10;
/// The most that one such read takes.
const SPAN: u64 = 1 << 20;
/// Pieces collected before they are read.
const BATCH: usize = 1 << 16;

/// A reason why a chunk cannot be had; the caller knows file, dataset and chunk.
pub type Fault = String;

/// The bytes of a record's selection.
pub type Decoded = Result<Bytes, Fault>;

/// The records that decide what one chunk holds, in the order in which they apply: none of them is
/// hidden under a later one that covers the chunk whole.
pub struct Touching<'a> {
    pub bounds: Bounds,
    pub records: Vec<&'a Record>,
}

impl<'a> Touching<'a> {
    pub fn new(
        index: &'a DatasetIndex,
        grid: &Grid,
        chunk: u64,
    ) -> std::result::Result<Self, Fault> {
        if let Some(fault) = index.faults().first() {
            return Err(fault.clone());
        }
        let bounds = grid.bounds(chunk);
        let records = index.deciding(&bounds);
        match records.iter().find_map(|r| r.fault.as_ref()) {
            Some(fault) => Err(fault.to_string()),
            None => Ok(Touching { bounds, records }),
        }
    }

    /// The source files that the records lie in.
    pub fn sources(&self) -> BTreeSet<usize> {
        self.records.iter().map(|r| usize::from(r.source)).collect()
    }

    /// The record whose stored bytes are this chunk's stored bytes as they lie, if there is one: it
    /// went through the dataset's filters, and is one block, the whole chunk. `slot` is the room.
    pub fn as_logged(&self, dataset: &Dataset, grid: &Grid, slot: u64) -> Option<&'a Record> {
        let [record] = self.records.as_slice() else {
            return None;
        };
        let fits = record.encoding == Encoding::Pipeline
            && record.stored <= slot
            && dataset.references.is_empty()
            && record.selection.blocks() == 1
            && grid.is_whole(&self.bounds)
            && record.block(0) == self.bounds;
        fits.then_some(*record)
    }
}

/// What the making of a chunk needs to know and to use.
pub struct Assembly<'a> {
    pub dataset: &'a Dataset,
    pub grid: &'a Grid,
    pub sources: &'a [SourceFile],
    pub addresses: &'a [(u64, u64)],
    /// Decoded bytes of a record that is not stored raw.
    pub decoded: &'a dyn Fn(&Record) -> Decoded,
}

impl Assembly<'_> {
    /// The elements of a chunk in row-major order, `raw` bytes.
    pub fn raw_chunk(&self, touching: &Touching<'_>, raw: u64) -> Result<Vec<u8>, Fault> {
        let mut chunk = filled(raw as usize, &self.dataset.fill);
        let mut pieces = Pieces::new(self.sources);
        for record in &touching.records {
            let is_raw = record.encoding == Encoding::Raw;
            if !is_raw {
                pieces.copy(&mut chunk)?;
            }
            let decoded = match is_raw {
                true => None,
                false => Some((self.decoded)(record)?),
            };
            for block in record.blocks_touching(&touching.bounds) {
                let run = |from: u64, to: u64, len: u64| match &decoded {
                    None => pieces.add(record, from, to, len, &mut chunk),
                    Some(bytes) => copy_within(bytes, &mut chunk, from, to, len),
                };
                self.runs(record, block, &touching.bounds, run)?;
            }
        }
        pieces.copy(&mut chunk)?;
        self.translate_references(&mut chunk);
        Ok(chunk)
    }

    /// Calls `run(from, to, len)` for each stretch of a block's bytes that lies in the chunk: `from`
    /// counts in the record, `to` in the chunk.
    fn runs(
        &self,
        record: &Record,
        number: usize,
        chunk: &Bounds,
        mut run: impl FnMut(u64, u64, u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let block = record.block(number);
        let Some(common) = block.intersection(chunk) else {
            return Ok(());
        };
        let element = self.dataset.element;
        let before = record.selection.elements_before(number);
        let rank = common.rank();
        let count: Vec<u64> = common.count().collect();
        let block_side: Vec<u64> = block.count().collect();
        let chunk_side = &self.grid.chunk;

        // Dimensions from `inner` on make one stretch of contiguous bytes on both sides.
        let mut inner = rank;
        let mut len = 1;
        while inner > 0 {
            inner -= 1;
            len *= count[inner];
            if count[inner] != block_side[inner] || count[inner] != chunk_side[inner] {
                break;
            }
        }
        let linear = |at: &[u64], origin: &[u64], side: &[u64]| {
            (0..rank).fold(0, |n, d| n * side[d] + (at[d] - origin[d]))
        };
        let mut at = common.start.clone();
        loop {
            let from = before + linear(&at, &block.start, &block_side);
            let to = linear(&at, &chunk.start, chunk_side);
            run(from * element, to * element, len * element)?;
            // The next row: dimensions before `inner` count up, the last of them fastest.
            let mut d = inner;
            loop {
                if d == 0 {
                    return Ok(());
                }
                d -= 1;
                at[d] += 1;
                if at[d] < common.end[d] {
                    break;
                }
                at[d] = common.start[d];
            }
        }
    }

    /// Object references hold addresses of the log file; in the view they point at the new objects.
    fn translate_references(&self, chunk: &mut [u8]) {
        if self.dataset.references.is_empty() {
            return;
        }
        for element in chunk.chunks_exact_mut(self.dataset.element as usize) {
            for &offset in &self.dataset.references {
                translate_reference(&mut element[offset as usize..], self.addresses);
            }
        }
    }
}

/// Replaces the 8-byte address at the front; one of no object becomes the null reference.
fn translate_reference(bytes: &mut [u8], addresses: &[(u64, u64)]) {
    let Some(bytes) = bytes.first_chunk_mut::<8>() else {
        return;
    };
    let old = u64::from_le_bytes(*bytes);
    let new = addresses
        .binary_search_by_key(&old, |(from, _)| *from)
        .map_or(0, |i| addresses[i].1);
    *bytes = new.to_le_bytes();
}

fn filled(len: usize, fill: &[u8]) -> Vec<u8> {
    let mut chunk = vec![0; len];
    if fill.iter().any(|b| *b != 0) {
        for element in chunk.chunks_exact_mut(fill.len()) {
            element.copy_from_slice(fill);
        }
    }
    chunk
}

fn copy_within(from: &[u8], to: &mut [u8], at: u64, target: u64, len: u64) -> Result<(), Fault> {
    let source = from.get(at as usize..(at + len) as usize);
    let target = to.get_mut(target as usize..(target + len) as usize);
    match (source, target) {
        (Some(source), Some(target)) => {
            target.copy_from_slice(source);
            Ok(())
        }
        _ => Err("a record shorter than its selection".into()),
    }
}

/// Stretches of raw records to be read into a chunk. They come in the order in which they apply,
/// which is the order of the log but for rare cases, so that neighbours can be read at once.
struct Pieces<'a> {
    sources: &'a [SourceFile],
    list: Vec<Piece>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Piece {
    source: u16,
    /// In the source file.
    offset: u64,
    /// In the chunk.
    to: u64,
    len: u64,
}

impl<'a> Pieces<'a> {
    fn new(sources: &'a [SourceFile]) -> Self {
        Pieces {
            sources,
            list: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn add(
        &mut self,
        record: &Record,
        from: u64,
        to: u64,
        len: u64,
        chunk: &mut [u8],
    ) -> Result<(), Fault> {
        self.list.push(Piece {
            source: record.source,
            offset: record.offset + from,
            to,
            len,
        });
        if self.list.len() >= BATCH {
            self.copy(chunk)?;
        }
        Ok(())
    }

    /// Reads all that was collected into the chunk, in order.
    fn copy(&mut self, chunk: &mut [u8]) -> Result<(), Fault> {
        let list = std::mem::take(&mut self.list);
        let mut rest = list.as_slice();
        while let Some(first) = rest.first() {
            let (span, end) = span(rest);
            let (now, later) = rest.split_at(span);
            rest = later;
            self.copy_span(first, now, end, chunk)?;
        }
        self.list = list;
        self.list.clear();
        Ok(())
    }

    fn copy_span(
        &mut self,
        first: &Piece,
        pieces: &[Piece],
        end: u64,
        chunk: &mut [u8],
    ) -> Result<(), Fault> {
        let source = &self.sources[usize::from(first.source)];
        if let [one] = pieces {
            let target = chunk
                .get_mut(one.to as usize..(one.to + one.len) as usize)
                .ok_or("a piece outside the chunk")?;
            return source
                .read_exact_at(target, one.offset)
                .map_err(|e| e.to_string());
        }
        self.scratch.resize((end - first.offset) as usize, 0);
        source
            .read_exact_at(&mut self.scratch, first.offset)
            .map_err(|e| e.to_string())?;
        for piece in pieces {
            let at = piece.offset - first.offset;
            copy_within(&self.scratch, chunk, at, piece.to, piece.len)?;
        }
        Ok(())
    }
}

/// How many pieces from the front are read at once, and where they end in the source file.
fn span(pieces: &[Piece]) -> (usize, u64) {
    let Some(first) = pieces.first() else {
        return (0, 0);
    };
    let mut end = first.offset + first.len;
    let mut taken = 1;
    for piece in &pieces[1..] {
        let piece_end = piece.offset + piece.len;
        let near = piece.source == first.source
            && piece.offset >= first.offset
            && piece.offset <= end.saturating_add(GAP)
            && piece_end.max(end) - first.offset <= SPAN;
        if !near {
            break;
        }
        end = end.max(piece_end);
        taken += 1;
    }
    (taken, end)
}

/// The bytes of a record's selection, out of its stored bytes.
pub fn decode_record(
    record: &Record,
    stored: Vec<u8>,
    dataset: &Dataset,
) -> Result<Vec<u8>, Fault> {
    let raw = record
        .selection
        .elements()
        .checked_mul(dataset.element)
        .ok_or("more bytes than can be counted")?;
    match record.encoding {
        Encoding::Raw => Ok(stored),
        Encoding::Deflate => inflate(&stored, raw),
        // A zlib stream starts with 0x78 (RFC 1950, the window that everybody uses).
        Encoding::RawOrDeflate if stored.first() == Some(&0x78) => {
            Ok(inflate(&stored, raw).unwrap_or(stored))
        }
        Encoding::RawOrDeflate => Ok(stored),
        Encoding::Pipeline => filters::decode(&stored, raw, &dataset.filters),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_values_repeat() {
        assert_eq!(filled(6, &[1, 2]), [1, 2, 1, 2, 1, 2]);
        assert_eq!(filled(3, &[]), [0, 0, 0]);
    }

    #[test]
    fn references_of_no_object_become_null() {
        let mut bytes = [7, 0, 0, 0, 0, 0, 0, 0, 9];
        translate_reference(&mut bytes, &[(7, 800)]);
        assert_eq!(bytes, [0x20, 3, 0, 0, 0, 0, 0, 0, 9]);
        translate_reference(&mut bytes, &[(7, 800)]);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn near_pieces_are_read_at_once_far_ones_are_not() {
        let piece = |offset, len| Piece {
            source: 0,
            offset,
            to: 0,
            len,
        };
        let near = [piece(0, 10), piece(100, 10), piece(50, 10)];
        assert_eq!(span(&near), (3, 110));
        assert_eq!(span(&[piece(0, 10), piece(GAP + 11, 1)]).0, 1);
        assert_eq!(span(&[piece(5, 10), piece(0, 1)]).0, 1);
        assert_eq!(span(&[piece(0, 10), piece(10, SPAN)]).0, 1);
    }
}
