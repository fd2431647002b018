//! Reading many runs of elements into a chunk with few reads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::resolve::Run;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;
use h5logfs_log::conversion::Conversion;
use h5logfs_log::model::Record;
use h5logfs_log::source_file::SourceFile;

/// In bytes. Pieces that lie closer together than this in a log are read at once.
pub(super) const GAP: u64 = 16 << 10;
/// The most bytes that one such read takes.
pub(super) const SPAN: u64 = 1 << 20;
/// Elements are converted this many bytes at a time.
const STEP: usize = 64 << 10;
/// Pieces that are collected before they are read.
const BATCH: usize = 1 << 18;

/// Runs of elements that are stored one by one, to be read into a chunk. No two of them write the same bytes
/// of the chunk, so they can be read in the order in which they lie in the files.
pub struct Pieces<'a> {
    task: &'a Task,
    /// The memory of `lists` and `scratch`.
    reservation: Reservation,
    sources: &'a [SourceFile],
    /// Size of an element of the chunk, in bytes.
    element: u64,
    /// The conversions of all pieces, each once.
    conversions: Vec<Conversion>,
    /// What was collected.
    lists: BTreeMap<Way, Vec<Piece>>,
    /// Pieces in all lists.
    collected: usize,
    scratch: Vec<u8>,
    /// The source files that pieces were read from.
    pub used: BTreeSet<usize>,
}

/// The source file of pieces, and the number of their conversion in [`Pieces::conversions`].
type Way = (u16, Option<u8>);

/// A run, in bytes. There may be many of them, so it is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// In the source file.
    offset: u64,
    /// Length in the source file.
    stored: u64,
    /// Offset in the chunk.
    to: u64,
}

impl<'a> Pieces<'a> {
    pub fn new(task: &'a Task, sources: &'a [SourceFile], element: u64) -> Self {
        Pieces {
            task,
            reservation: task.reservation(),
            sources,
            element,
            conversions: Vec::new(),
            lists: BTreeMap::new(),
            collected: 0,
            scratch: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    /// Adds a run of a record. It is read now or later; call [`Pieces::copy`] at the end.
    pub fn add(
        &mut self,
        record: &Record<'_>,
        run: Run,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let in_log = element_in_log(record, self.element);
        let piece = piece(record, run, in_log, self.element);
        let piece = piece.ok_or("a piece past 2^64 bytes")?;
        let conversion = record.conversion.map(|c| self.number_of(c)).transpose();
        let way = (record.stored.source, conversion?);
        let list = self.lists.entry(way).or_default();
        self.reservation.push(list, piece)?;
        self.collected += 1;
        if self.collected < BATCH {
            return Ok(());
        }
        self.copy(chunk)
    }

    fn number_of(&mut self, conversion: &Conversion) -> std::result::Result<u8, Fault> {
        let known = self.conversions.iter().position(|c| c == conversion);
        let number = known.unwrap_or_else(|| {
            self.conversions.push(*conversion);
            self.conversions.len() - 1
        });
        u8::try_from(number).map_err(|_| "more conversions than there are types".into())
    }

    /// Reads all that was collected into the chunk.
    pub fn copy(&mut self, chunk: &mut [u8]) -> std::result::Result<(), Fault> {
        let mut lists = std::mem::take(&mut self.lists);
        let copied = lists
            .iter_mut()
            .try_for_each(|(way, list)| self.copy_list(*way, list, chunk));
        (self.lists, self.collected) = (lists, 0);
        copied
    }

    fn copy_list(
        &mut self,
        (source, conversion): Way,
        list: &mut Vec<Piece>,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let conversion = conversion.and_then(|at| self.conversions.get(usize::from(at)).copied());
        self.used.insert(usize::from(source));
        let source = &self.sources[usize::from(source)];
        // Many come in descending order, which this sort reverses fast.
        list.sort_unstable_by_key(|piece| piece.offset);
        let mut rest = list.as_slice();
        while !rest.is_empty() {
            self.task.check()?;
            let (span, end) = span(rest);
            let (now, later) = rest.split_at(span);
            rest = later;
            match now {
                [one] => self.copy_one(source, conversion, one, chunk)?,
                // The bytes between them may be missing from the file: then each piece is read by itself.
                _ => self
                    .copy_span(source, conversion, now, end, chunk)
                    .or_else(|_| {
                        let mut each = now.iter();
                        each.try_for_each(|one| self.copy_one(source, conversion, one, chunk))
                    })?,
            }
        }
        list.clear();
        Ok(())
    }

    fn copy_span(
        &mut self,
        source: &SourceFile,
        conversion: Option<Conversion>,
        pieces: &[Piece],
        end: u64,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let begin = pieces[0].offset;
        let len = (end - begin) as usize;
        let more = len.saturating_sub(self.scratch.len());
        self.reservation.make_room(&mut self.scratch, more)?;
        let span = first_bytes(&mut self.scratch, len);
        source.read_exact_at(span, begin)?;
        let span = &*span;
        for piece in pieces {
            let stored = range(piece.offset - begin, piece.stored);
            let stored = stored.and_then(|range| span.get(range));
            let stored = stored.ok_or("a piece that was not read")?;
            let target = target(piece, conversion, chunk)?;
            match conversion {
                Some(conversion) => conversion.convert(stored, target),
                None => target.copy_from_slice(stored),
            }
        }
        Ok(())
    }

    /// Reads one piece. Its length does not change how much memory that takes.
    fn copy_one(
        &mut self,
        source: &SourceFile,
        conversion: Option<Conversion>,
        piece: &Piece,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let target = target(piece, conversion, chunk)?;
        let read = read_elements(source, piece.offset, conversion, target, &mut self.scratch);
        read.map_err(Fault::from)
    }
}

/// The bytes of a run, whose elements have `in_log` bytes in the log and `element` in the chunk. `None` past 2^64 bytes.
fn piece(record: &Record<'_>, run: Run, in_log: u64, element: u64) -> Option<Piece> {
    let start = run.in_record.checked_mul(in_log)?;
    Some(Piece {
        offset: record.stored.offset.checked_add(start)?,
        stored: run.len.checked_mul(in_log)?,
        to: run.in_chunk.checked_mul(element)?,
    })
}

/// Size of a record's elements in the log, in bytes. `element`: their size in the dataset.
pub fn element_in_log(record: &Record<'_>, element: u64) -> u64 {
    let conversion = record.conversion;
    conversion.map_or(element, |c| c.stored_size() as u64)
}

/// Fills `target`, a number of whole elements, from elements that follow each other in a source from byte
/// `offset` on. They are converted in steps that fit into the caches of a processor.
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
    let (from, to) = (conversion.stored_size(), conversion.shown_size());
    for target in target.chunks_mut((STEP / from).max(1) * to) {
        let stored = first_bytes(scratch, target.len() / to * from);
        source.read_exact_at(stored, offset)?;
        conversion.convert(stored, target);
        offset += stored.len() as u64;
    }
    Ok(())
}

/// The bytes of the chunk that a piece fills.
fn target<'a>(
    piece: &Piece,
    conversion: Option<Conversion>,
    chunk: &'a mut [u8],
) -> std::result::Result<&'a mut [u8], Fault> {
    let len = match conversion {
        None => Some(piece.stored),
        Some(conversion) => {
            let elements = piece.stored / conversion.stored_size() as u64;
            elements.checked_mul(conversion.shown_size() as u64)
        }
    };
    let target = len.and_then(|len| range(piece.to, len));
    let target = target.and_then(|range| chunk.get_mut(range));
    target.ok_or_else(|| "a piece outside the chunk".into())
}

/// The first `len` bytes of a buffer that grows as needed.
fn first_bytes(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    &mut scratch[..len]
}

/// `None` past 2^64.
pub fn range(start: u64, len: u64) -> Option<Range<usize>> {
    Some(start as usize..start.checked_add(len)? as usize)
}

/// How many of the first pieces are read at once, and where they end in the source file.
fn span(pieces: &[Piece]) -> (usize, u64) {
    let Some(first) = pieces.first() else {
        return (0, 0);
    };
    let mut end = first.offset.saturating_add(first.stored);
    let mut taken = 1;
    for piece in &pieces[1..] {
        let piece_end = piece.offset.saturating_add(piece.stored);
        let near =
            piece.offset <= end.saturating_add(GAP) && piece_end.max(end) - first.offset <= SPAN;
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
            offset,
            stored: len,
            to: 0,
        };
        let near = [piece(0, 10), piece(50, 10), piece(100, 10)];
        assert_eq!(span(&near), (3, 110));
        assert_eq!(span(&[piece(0, 10), piece(GAP + 11, 1)]).0, 1);
        assert_eq!(span(&[piece(0, 10), piece(10, SPAN)]).0, 1);
    }

    /// Between two pieces may be a block of the file that was never written.
    #[test]
    fn near_pieces_are_had_whatever_lies_between_them() {
        use h5logfs_log::arrangement::Arrangement;
        use h5logfs_log::model::{Encoding, StoredBytes};
        use h5logfs_log::source_dir::SourceDir;

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
        let task = Task::unlimited();
        let mut pieces = Pieces::new(&task, &sources, 1);
        for (offset, to) in [(0, 0), (4, 2)] {
            let record = Record {
                start: &[to],
                count: &[2],
                selection: None,
                has_lead: false,
                stored: StoredBytes {
                    source: 0,
                    offset,
                    len: 2,
                    encoding: Encoding::Raw,
                },
                conversion: None,
                fault: None,
            };
            let run = Run {
                in_record: 0,
                in_chunk: to,
                len: 2,
            };
            pieces.add(&record, run, &mut chunk).unwrap();
        }
        assert_eq!(pieces.copy(&mut chunk), Ok(()));
        assert_eq!(&chunk, b"abcd");
    }

    #[test]
    fn a_piece_is_small() {
        assert_eq!(size_of::<Piece>(), 24);
    }
}
