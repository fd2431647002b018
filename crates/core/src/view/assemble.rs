//! Making one chunk: fill value, then what the deciding records hold of it.

use std::collections::BTreeSet;

use super::cache::Bytes;
use super::deciding::{Deciding, Stretch};
use super::pieces::{Pieces, range};
use crate::buffers::zeroed;
use crate::error::Result;
use crate::filters;
use crate::log::deflate::{inflate, inflate_stream};
use crate::log::model::{Encoding, Record, Stored};
use crate::log::source::SourceFile;
use crate::snapshot::Dataset;

/// The bytes of a record's selection.
pub type Decoded = Result<Bytes, String>;

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
    ) -> Result<(Vec<u8>, BTreeSet<usize>), String> {
        let mut chunk = filled(raw as usize, &self.dataset.fill)?;
        let mut sources = BTreeSet::new();
        // With the elements that come of it: a damaged log may have several records in one place.
        let mut last: Option<((Stored, u64), Bytes)> = None;
        let element = self.dataset.element;
        let mut pieces = Pieces::new(self.sources, element);
        deciding.stretches(|record, _, stretch| {
            if let Some(fault) = record.fault {
                return Err(fault.to_owned());
            }
            let stored = record.stored;
            if matches!(stored.encoding, Encoding::Raw | Encoding::Converted) {
                return pieces.add(record, stretch, &mut chunk);
            }
            let bytes = match &last {
                Some((same, bytes)) if *same == (stored, record.elements()) => bytes,
                _ => {
                    sources.insert(usize::from(stored.source));
                    let bytes = (self.decoded)(record)?;
                    &last.insert(((stored, record.elements()), bytes)).1
                }
            };
            copy_within(bytes, &mut chunk, stretch, element)
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

fn filled(len: usize, fill: &[u8]) -> Result<Vec<u8>, String> {
    let mut chunk = zeroed(len)?;
    if fill.iter().any(|b| *b != 0) {
        for element in chunk.chunks_exact_mut(fill.len()) {
            element.copy_from_slice(fill);
        }
    }
    Ok(chunk)
}

/// Copies a stretch of a record's decoded bytes to its place in the chunk.
fn copy_within(from: &[u8], to: &mut [u8], stretch: Stretch, element: u64) -> Result<(), String> {
    let part = |start: u64| {
        let start = start.checked_mul(element)?;
        range(start, stretch.len.checked_mul(element)?)
    };
    let source = part(stretch.from).and_then(|range| from.get(range));
    let target = part(stretch.to).and_then(|range| to.get_mut(range));
    match (source, target) {
        (Some(source), Some(target)) => {
            target.copy_from_slice(source);
            Ok(())
        }
        _ => Err("a record shorter than its selection".into()),
    }
}

/// Stored bytes, as they lie.
pub fn stored_bytes(sources: &[SourceFile], stored: Stored) -> Result<Vec<u8>, String> {
    let mut bytes = zeroed(stored.len as usize)?;
    sources[usize::from(stored.source)]
        .read_exact_at(&mut bytes, stored.offset)
        .map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// The bytes of a record's selection, `raw` of them, out of its stored bytes.
pub fn decode_record(
    sources: &[SourceFile],
    stored: Stored,
    raw: u64,
    dataset: &Dataset,
) -> Result<Vec<u8>, String> {
    if stored.encoding == Encoding::DeflateStream {
        let source = &sources[usize::from(stored.source)];
        return inflate_stream(source, stored.offset, stored.len, raw);
    }
    let bytes = stored_bytes(sources, stored)?;
    match stored.encoding {
        Encoding::Deflate | Encoding::DeflateStream => inflate(&bytes, raw),
        // A zlib stream starts with 0x78 (RFC 1950, the window that everybody uses).
        Encoding::RawOrDeflate if bytes.first() == Some(&0x78) => {
            Ok(inflate(&bytes, raw).unwrap_or(bytes))
        }
        // Those of another type are converted piece by piece.
        Encoding::Raw | Encoding::RawOrDeflate | Encoding::Converted => Ok(bytes),
        Encoding::Pipeline => filters::decode(&bytes, raw, &dataset.filters),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_values_repeat() {
        assert_eq!(filled(6, &[1, 2]).unwrap(), [1, 2, 1, 2, 1, 2]);
        assert_eq!(filled(3, &[]).unwrap(), [0, 0, 0]);
    }

    #[test]
    fn references_of_no_object_become_null() {
        let mut bytes = [7, 0, 0, 0, 0, 0, 0, 0, 9];
        translate_reference(&mut bytes, &[(7, 800)]);
        assert_eq!(bytes, [0x20, 3, 0, 0, 0, 0, 0, 0, 9]);
        translate_reference(&mut bytes, &[(7, 800)]);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 9]);
    }
}
