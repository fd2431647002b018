//! Reading many stretches of records into a chunk with few reads.

use std::collections::BTreeSet;
use std::ops::Range;

use super::deciding::Stretch;
use crate::error::Result;
use crate::log::model::Record;
use crate::log::numbers::Conversion;
use crate::log::source::SourceFile;

/// Pieces that lie closer together than this in a log are read at once.
const GAP: u64 = 16 << 10;
/// The most that one such read takes.
const SPAN: u64 = 1 << 20;
/// Bytes that are read at once to be converted.
const STEP: usize = 64 << 10;
/// Pieces collected before they are read.
const BATCH: usize = 1 << 18;

/// Stretches of records that are stored element by element, to be read into a chunk. No two of them write
/// the same bytes of it, so that they can be read in the order in which they lie in the files.
pub struct Pieces<'a> {
    sources: &'a [SourceFile],
    /// Bytes of an element of the chunk.
    element: u64,
    /// How elements of other types become those of the chunk.
    conversions: Vec<Conversion>,
    list: Vec<Piece>,
    scratch: Vec<u8>,
    /// The source files that pieces lay in.
    pub used: BTreeSet<usize>,
}

/// There may be many of them, so it is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    source: u16,
    /// Which of the conversions.
    conversion: Option<u8>,
    /// In the source file, and how many bytes there.
    offset: u64,
    stored: u64,
    /// In the chunk.
    to: u64,
}

impl<'a> Pieces<'a> {
    pub fn new(sources: &'a [SourceFile], element: u64) -> Self {
        Pieces {
            sources,
            element,
            conversions: Vec::new(),
            list: Vec::new(),
            scratch: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    /// Takes on a stretch of a record. It is read now or later; [`Pieces::copy`] comes last.
    pub fn add(
        &mut self,
        record: &Record<'_>,
        stretch: Stretch,
        chunk: &mut [u8],
    ) -> std::result::Result<(), String> {
        let piece = self.piece(record, stretch);
        self.list.push(piece.ok_or("a piece past 2^64 bytes")?);
        match self.list.len() < BATCH {
            true => Ok(()),
            false => self.copy(chunk),
        }
    }

    /// `None` past 2^64 bytes.
    fn piece(&mut self, record: &Record<'_>, stretch: Stretch) -> Option<Piece> {
        let conversion = match record.conversion {
            Some(conversion) => Some(u8::try_from(self.number_of(conversion)).ok()?),
            None => None,
        };
        let in_log = match record.conversion {
            Some(conversion) => conversion.from.kind.size() as u64,
            None => self.element,
        };
        let from = stretch.from.checked_mul(in_log)?;
        Some(Piece {
            source: record.stored.source,
            conversion,
            offset: record.stored.offset.checked_add(from)?,
            stored: stretch.len.checked_mul(in_log)?,
            to: stretch.to.checked_mul(self.element)?,
        })
    }

    fn number_of(&mut self, conversion: &Conversion) -> usize {
        let known = self.conversions.iter().position(|c| c == conversion);
        known.unwrap_or_else(|| {
            self.conversions.push(*conversion);
            self.conversions.len() - 1
        })
    }

    fn conversion_of(&self, piece: &Piece) -> Option<Conversion> {
        let number = piece.conversion?;
        self.conversions.get(usize::from(number)).copied()
    }

    /// Reads all that was collected into the chunk.
    pub fn copy(&mut self, chunk: &mut [u8]) -> std::result::Result<(), String> {
        let mut list = std::mem::take(&mut self.list);
        // They mostly come from the end of the log to its front, which the sort turns round fast.
        list.sort_unstable_by_key(|piece| (piece.source, piece.offset));
        let mut rest = list.as_slice();
        while let Some(first) = rest.first() {
            self.used.insert(usize::from(first.source));
            let (span, end) = span(rest);
            let (now, later) = rest.split_at(span);
            rest = later;
            match now {
                [one] => self.copy_one(one, chunk)?,
                // What lies between them need not be there.
                _ => self.copy_span(first, now, end, chunk).or_else(|_| {
                    let mut each = now.iter();
                    each.try_for_each(|one| self.copy_one(one, chunk))
                })?,
            }
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
    ) -> std::result::Result<(), String> {
        let source = &self.sources[usize::from(first.source)];
        let stored = room(&mut self.scratch, (end - first.offset) as usize);
        source
            .read_exact_at(stored, first.offset)
            .map_err(|e| e.to_string())?;
        for piece in pieces {
            let stored = range(piece.offset - first.offset, piece.stored);
            let stored = stored.and_then(|range| self.scratch.get(range));
            let stored = stored.ok_or("a piece that was not read")?;
            let conversion = self.conversion_of(piece);
            let target = target(piece, &conversion, chunk)?;
            match conversion {
                Some(conversion) => conversion.convert(stored, target),
                None => target.copy_from_slice(stored),
            }
        }
        Ok(())
    }

    /// Reads one piece, whatever its length, with no more memory than any other needs.
    fn copy_one(&mut self, piece: &Piece, chunk: &mut [u8]) -> std::result::Result<(), String> {
        let source = &self.sources[usize::from(piece.source)];
        let conversion = self.conversion_of(piece);
        let target = target(piece, &conversion, chunk)?;
        let read = read_elements(source, piece.offset, conversion, target, &mut self.scratch);
        read.map_err(|e| e.to_string())
    }
}

/// Fills `target`, a number of whole elements, from elements that follow each other in a source, with no more
/// memory than a processor keeps near.
pub fn read_elements(
    source: &SourceFile,
    mut offset: u64,
    conversion: Option<Conversion>,
    target: &mut [u8],
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let Some(conversion) = conversion else {
        return source.read_exact_at(target, offset);
    };
    let (from, to) = (conversion.from.kind.size(), conversion.to.kind.size());
    for target in target.chunks_mut(STEP / from * to) {
        let stored = room(scratch, target.len() / to * from);
        source.read_exact_at(stored, offset)?;
        conversion.convert(stored, target);
        offset += stored.len() as u64;
    }
    Ok(())
}

/// Where a piece goes.
fn target<'a>(
    piece: &Piece,
    conversion: &Option<Conversion>,
    chunk: &'a mut [u8],
) -> std::result::Result<&'a mut [u8], String> {
    let len = match conversion {
        None => Some(piece.stored),
        Some(Conversion { from, to, .. }) => {
            let elements = piece.stored / from.kind.size() as u64;
            elements.checked_mul(to.kind.size() as u64)
        }
    };
    let target = len.and_then(|len| range(piece.to, len));
    let target = target.and_then(|range| chunk.get_mut(range));
    target.ok_or_else(|| "a piece outside the chunk".into())
}

/// So many bytes to read into.
fn room(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    &mut scratch[..len]
}

pub fn range(start: u64, len: u64) -> Option<Range<usize>> {
    Some(start as usize..start.checked_add(len)? as usize)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_pieces_are_read_at_once_far_ones_are_not() {
        let piece = |offset, len| Piece {
            source: 0,
            offset,
            stored: len,
            to: 0,
            conversion: None,
        };
        let near = [piece(0, 10), piece(50, 10), piece(100, 10)];
        assert_eq!(span(&near), (3, 110));
        assert_eq!(span(&[piece(0, 10), piece(GAP + 11, 1)]).0, 1);
        assert_eq!(span(&[piece(0, 10), piece(10, SPAN)]).0, 1);
    }

    /// A log may have blocks that nobody ever wrote, where no record has its data.
    #[test]
    fn near_pieces_are_had_whatever_lies_between_them() {
        use crate::log::arrangement::Arrangement;
        use crate::log::model::{Encoding, Stored};
        use crate::log::source::SourceDir;

        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), b"..abcd").unwrap();
        let held = SourceDir::open(dir.path()).unwrap();
        let log = SourceFile::open(&held, "log".as_ref()).unwrap();
        let arranged = log.arranged(Arrangement::Blocks {
            block: 2,
            at: vec![(0, 2), (2, 4)],
            len: 6,
        });
        let sources = [arranged.unwrap()];
        let mut chunk = [0; 4];
        let mut pieces = Pieces::new(&sources, 1);
        for (offset, to) in [(0, 0), (4, 2)] {
            let record = Record {
                start: &[to],
                count: &[2],
                selection: None,
                has_lead: false,
                stored: Stored {
                    source: 0,
                    offset,
                    len: 2,
                    encoding: Encoding::Raw,
                },
                conversion: None,
                fault: None,
            };
            let stretch = Stretch {
                from: 0,
                to,
                len: 2,
            };
            pieces.add(&record, stretch, &mut chunk).unwrap();
        }
        assert_eq!(pieces.copy(&mut chunk), Ok(()));
        assert_eq!(&chunk, b"abcd");
    }

    #[test]
    fn a_piece_is_small() {
        assert_eq!(size_of::<Piece>(), 32);
    }
}
