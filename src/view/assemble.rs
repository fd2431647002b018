//! Making one chunk: fill value, then what the deciding records hold of it.

use std::collections::BTreeSet;

use super::cache::Bytes;
use super::deciding::{Deciding, Stretch};
use crate::error::Result;
use crate::filters;
use crate::log::deflate::inflate;
use crate::log::model::{Encoding, Record, Stored};
use crate::log::numbers::Conversion;
use crate::log::source::SourceFile;
use crate::snapshot::Dataset;

/// Pieces that lie closer together than this in a log are read at once.
const GAP: u64 = 16 << 10;
/// The most that one such read takes.
const SPAN: u64 = 1 << 20;
/// Pieces collected before they are read.
const BATCH: usize = 1 << 18;

/// A reason why a chunk cannot be had; the caller knows file, dataset and chunk.
pub type Fault = String;

/// The bytes of a record's selection.
pub type Decoded = Result<Bytes, Fault>;

/// What the making of a chunk needs to know and to use.
pub struct Assembly<'a> {
    pub dataset: &'a Dataset,
    pub sources: &'a [SourceFile],
    pub addresses: &'a [(u64, u64)],
    /// Decoded bytes of a record that is not stored raw.
    pub decoded: &'a dyn Fn(&Record<'_>) -> Decoded,
}

impl Assembly<'_> {
    /// The elements of a chunk in row-major order, `raw` bytes; and the source files that they were
    /// read from.
    pub fn raw_chunk(
        &self,
        deciding: &Deciding<'_>,
        raw: u64,
    ) -> Result<(Vec<u8>, BTreeSet<usize>), Fault> {
        let mut chunk = filled(raw as usize, &self.dataset.fill);
        let mut sources = BTreeSet::new();
        let mut pieces = Pieces::new(self.sources);
        // With the elements that come of it: a damaged log may have several records in one place.
        let mut last: Option<((Stored, u64), Bytes)> = None;
        let element = self.dataset.element;
        deciding.stretches(|record, stretch| {
            if let Some(fault) = record.fault {
                return Err(fault.to_owned());
            }
            let stored = record.stored;
            let piece = Piece::new(record, stretch, element).ok_or("a piece past 2^64 bytes")?;
            if matches!(stored.encoding, Encoding::Raw | Encoding::Converted) {
                return pieces.add(piece, &mut chunk);
            }
            let bytes = match &last {
                Some((same, bytes)) if *same == (stored, record.elements()) => bytes,
                _ => {
                    sources.insert(usize::from(stored.source));
                    let bytes = (self.decoded)(record)?;
                    &last.insert(((stored, record.elements()), bytes)).1
                }
            };
            copy_within(
                bytes,
                &mut chunk,
                piece.offset - stored.offset,
                piece.to,
                piece.len,
            )
        })?;
        pieces.copy(&mut chunk)?;
        sources.extend(pieces.used);
        self.translate_references(&mut chunk);
        Ok((chunk, sources))
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
    let source = range(at, len).and_then(|range| from.get(range));
    let target = range(target, len).and_then(|range| to.get_mut(range));
    match (source, target) {
        (Some(source), Some(target)) => {
            target.copy_from_slice(source);
            Ok(())
        }
        _ => Err("a record shorter than its selection".into()),
    }
}

fn range(start: u64, len: u64) -> Option<std::ops::Range<usize>> {
    Some(start as usize..start.checked_add(len)? as usize)
}

/// Stretches of records that are stored element by element, to be read into a chunk. No two of them write the same bytes of it, so that
/// they can be read in the order in which they lie in the files.
struct Pieces<'a> {
    sources: &'a [SourceFile],
    list: Vec<Piece>,
    scratch: Vec<u8>,
    /// The source files that pieces lay in.
    used: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    source: u16,
    /// In the source file.
    offset: u64,
    stored: u64,
    /// In the chunk.
    to: u64,
    len: u64,
    conversion: Option<Conversion>,
}

impl Piece {
    /// `None` past 2^64 bytes.
    fn new(record: &Record<'_>, stretch: Stretch, element: u64) -> Option<Self> {
        let in_log = record.conversion.map(|c| c.from.kind.size() as u64);
        let in_log = in_log.unwrap_or(element);
        let from = stretch.from.checked_mul(in_log)?;
        Some(Piece {
            source: record.stored.source,
            offset: record.stored.offset.checked_add(from)?,
            stored: stretch.len.checked_mul(in_log)?,
            to: stretch.to.checked_mul(element)?,
            len: stretch.len.checked_mul(element)?,
            conversion: record.conversion.copied(),
        })
    }

    /// Puts its bytes, as they are stored, into the chunk.
    fn put(&self, stored: &[u8], chunk: &mut [u8]) -> Result<(), Fault> {
        let target = self.target(chunk)?;
        match &self.conversion {
            Some(conversion) => conversion.convert(stored, target),
            None => target.copy_from_slice(stored),
        }
        Ok(())
    }

    fn target<'a>(&self, chunk: &'a mut [u8]) -> Result<&'a mut [u8], Fault> {
        let target = range(self.to, self.len).and_then(|range| chunk.get_mut(range));
        target.ok_or_else(|| "a piece outside the chunk".into())
    }
}

impl<'a> Pieces<'a> {
    fn new(sources: &'a [SourceFile]) -> Self {
        Pieces {
            sources,
            list: Vec::new(),
            scratch: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    fn add(&mut self, piece: Piece, chunk: &mut [u8]) -> Result<(), Fault> {
        self.list.push(piece);
        match self.list.len() < BATCH {
            true => Ok(()),
            false => self.copy(chunk),
        }
    }

    /// Reads all that was collected into the chunk.
    fn copy(&mut self, chunk: &mut [u8]) -> Result<(), Fault> {
        let mut list = std::mem::take(&mut self.list);
        // They mostly come from the end of the log to its front, which the sort turns round fast.
        list.sort_unstable_by_key(|piece| (piece.source, piece.offset));
        let mut rest = list.as_slice();
        while let Some(first) = rest.first() {
            self.used.insert(usize::from(first.source));
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
            return match &one.conversion {
                Some(conversion) => self.convert(source, one, conversion, chunk),
                None => source
                    .read_exact_at(one.target(chunk)?, one.offset)
                    .map_err(|e| e.to_string()),
            };
        }
        let len = (end - first.offset) as usize;
        source
            .read_exact_at(self.room(len), first.offset)
            .map_err(|e| e.to_string())?;
        for piece in pieces {
            let stored = range(piece.offset - first.offset, piece.stored);
            let stored = stored.and_then(|range| self.scratch.get(range));
            piece.put(stored.ok_or("a piece that was not read")?, chunk)?;
        }
        Ok(())
    }
}

impl Pieces<'_> {
    /// Converts one piece, whatever its length, with no more memory than any other needs.
    fn convert(
        &mut self,
        source: &SourceFile,
        piece: &Piece,
        conversion: &Conversion,
        chunk: &mut [u8],
    ) -> Result<(), Fault> {
        let (from, to) = (conversion.from.kind.size(), conversion.to.kind.size());
        let step = SPAN as usize / from;
        let mut offset = piece.offset;
        for target in piece.target(chunk)?.chunks_mut(step * to) {
            let stored = self.room(target.len() / to * from);
            source
                .read_exact_at(stored, offset)
                .map_err(|e| e.to_string())?;
            conversion.convert(stored, target);
            offset += stored.len() as u64;
        }
        Ok(())
    }

    /// So many bytes to read into.
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
        &mut self.scratch[..len]
    }
}

/// How many pieces from the front are read at once, and where they end in the source file.
fn span(pieces: &[Piece]) -> (usize, u64) {
    let Some(first) = pieces.first() else {
        return (0, 0);
    };
    let mut end = first.offset.saturating_add(first.stored);
    let mut taken = 1;
    for piece in &pieces[1..] {
        let piece_end = piece.offset.saturating_add(piece.stored);
        let near = piece.source == first.source
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

/// The bytes of a record's selection, `raw` of them, out of its stored bytes.
pub fn decode_record(
    encoding: Encoding,
    stored: Vec<u8>,
    raw: u64,
    dataset: &Dataset,
) -> Result<Vec<u8>, Fault> {
    match encoding {
        // Those of another type are converted piece by piece.
        Encoding::Raw | Encoding::Converted => Ok(stored),
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
            stored: len,
            to: 0,
            len,
            conversion: None,
        };
        let near = [piece(0, 10), piece(50, 10), piece(100, 10)];
        assert_eq!(span(&near), (3, 110));
        assert_eq!(span(&[piece(0, 10), piece(GAP + 11, 1)]).0, 1);
        assert_eq!(span(&[piece(0, 10), piece(10, SPAN)]).0, 1);
    }
}
