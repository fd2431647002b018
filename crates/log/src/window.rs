//! Buffered reads of tables that are walked entry by entry.

use serde::{Deserialize, Serialize};

use super::source_file::SourceFile;
use h5logfs_common::fault::Fault;

/// Bytes of a read while walking a table: the least, after a jump, and the most.
const LEAST_STEP: u64 = 4 << 10;
const MOST_STEP: u64 = 1 << 20;

/// A range of bytes of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Offset in the source.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// The bytes of the record tables.
#[derive(Debug, Clone, Copy)]
pub enum TableBytes<'a> {
    /// Tables in the files of the log.
    Files(&'a [SourceFile]),
    /// A single table in memory.
    Memory(&'a [u8]),
}

impl<'a> TableBytes<'a> {
    /// The bytes of one source.
    pub(crate) fn of(self, source: u16) -> SourceBytes<'a> {
        match self {
            TableBytes::Files(files) => SourceBytes::File(&files[usize::from(source)]),
            TableBytes::Memory(bytes) => SourceBytes::Memory(bytes),
        }
    }
}

/// The bytes of one source.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SourceBytes<'a> {
    File(&'a SourceFile),
    Memory(&'a [u8]),
}

impl<'a> SourceBytes<'a> {
    pub fn len(self) -> u64 {
        match self {
            SourceBytes::File(file) => file.len(),
            SourceBytes::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `buffer` from `offset`.
    pub fn read_exact_at(self, buffer: &mut [u8], offset: u64) -> Result<(), Fault> {
        match self {
            SourceBytes::File(file) => file.read_table_at(buffer, offset).map_err(Fault::from),
            SourceBytes::Memory(bytes) => {
                buffer.copy_from_slice(part(bytes, offset, buffer.len() as u64)?);
                Ok(())
            }
        }
    }
}

/// The `len` bytes at `offset`.
fn part(bytes: &[u8], offset: u64, len: u64) -> Result<&[u8], Fault> {
    let end = offset.checked_add(len);
    let range = end.map(|end| offset as usize..end as usize);
    let part = range.and_then(|range| bytes.get(range));
    let part =
        part.ok_or_else(|| format!("{len} bytes at {offset} of {} in memory", bytes.len()))?;
    Ok(part)
}

/// Buffered reads of a table, or of a section of one, that is walked mostly forward. The further the walk goes without
/// a jump, the more is read at once. A position counts the bytes of all pieces; an offset counts those of the file.
pub(crate) struct Window<'a> {
    source: SourceBytes<'a>,
    /// Name of the table in messages. The caller adds the name of the log.
    name: String,
    /// The pieces of the table: position of each, and its place in the file.
    pieces: Vec<(u64, Piece)>,
    /// Position of the first buffered byte.
    at: u64,
    buffer: Vec<u8>,
    /// Bytes of the next read.
    step: u64,
}

impl<'a> Window<'a> {
    /// A window over pieces of source `number`, one after the other.
    pub fn new(tables: TableBytes<'a>, number: u16, name: String, pieces: &[Piece]) -> Self {
        let source = tables.of(number);
        let mut len = 0;
        let placed = |piece: &Piece| {
            let begin = len;
            len += piece.len;
            (begin, *piece)
        };
        Window {
            source,
            name: match source {
                SourceBytes::File(file) if number > 0 => {
                    format!("{}: {name}", file.path().display())
                }
                _ => name,
            },
            pieces: pieces.iter().map(placed).collect(),
            at: 0,
            buffer: Vec::new(),
            step: LEAST_STEP,
        }
    }

    /// A window over a whole file; positions are offsets.
    pub fn over(source: &'a SourceFile) -> Self {
        Self::over_all(SourceBytes::File(source))
    }

    /// A window over a whole source; positions are offsets.
    pub fn over_all(source: SourceBytes<'a>) -> Self {
        let whole = Piece {
            offset: 0,
            len: source.len(),
        };
        Window {
            source,
            name: String::new(),
            pieces: vec![(0, whole)],
            at: 0,
            buffer: Vec::new(),
            step: LEAST_STEP,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of all pieces.
    pub fn len(&self) -> u64 {
        let last = self.pieces.last();
        last.map_or(0, |(begin, piece)| begin + piece.len)
    }

    /// The piece that contains the byte at `at`.
    fn piece(&self, at: u64) -> Option<(u64, Piece)> {
        let after = self.pieces.partition_point(|(begin, _)| *begin <= at);
        self.pieces.get(after.checked_sub(1)?).copied()
    }

    /// Bytes from `at` to the end of its piece.
    pub fn bytes_left(&self, at: u64) -> u64 {
        let piece = self.piece(at);
        piece.map_or(0, |(begin, piece)| (begin + piece.len).saturating_sub(at))
    }

    /// The file offset of the byte at `at`.
    pub fn file_offset(&self, at: u64) -> u64 {
        let piece = self.piece(at);
        piece.map_or(at, |(begin, piece)| piece.offset + (at - begin))
    }

    /// The `len` bytes at `at`, which must lie in one piece.
    pub fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8], Fault> {
        if let SourceBytes::Memory(bytes) = self.source {
            return part(bytes, self.file_offset(at), len);
        }
        if self.buffered(at, len).is_none() {
            self.read(at, len)?;
        }
        let from = (at - self.at) as usize;
        Ok(&self.buffer[from..from + len as usize])
    }

    /// The `len` bytes at `at` if they are in the buffer. The buffer holds bytes of one piece only.
    pub fn buffered(&self, at: u64, len: u64) -> Option<&[u8]> {
        let from = at.checked_sub(self.at)?;
        let to = from.checked_add(len)?;
        self.buffer.get(from as usize..to as usize)
    }

    fn read(&mut self, at: u64, len: u64) -> Result<(), Fault> {
        let end = at.saturating_add(len);
        let piece = self.piece(at);
        let Some((begin, piece)) = piece.filter(|(begin, piece)| end <= begin + piece.len) else {
            return Err(format!("byte {end} is past its end").into());
        };
        let buffered_end = self.at + self.buffer.len() as u64;
        let goes_on = (self.at..=buffered_end + LEAST_STEP).contains(&at);
        self.step = if goes_on {
            (self.step * 2).min(MOST_STEP)
        } else {
            LEAST_STEP
        };
        let left = begin + piece.len - at;
        self.at = at;
        let offset = piece.offset + (at - begin);
        // Bytes after the wanted ones may be missing. Known gaps are not read.
        let contiguous = match self.source {
            SourceBytes::File(file) => file.contiguous(offset),
            SourceBytes::Memory(_) => left,
        };
        let ahead = self.step.min(contiguous).max(len).min(left);
        let read = self.fill(offset, ahead);
        read.or_else(|_| self.fill(offset, len))
    }

    /// Buffers the `len` bytes at an offset of the source.
    fn fill(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        self.buffer.resize(len as usize, 0);
        let read = self.source.read_exact_at(&mut self.buffer, offset);
        read.inspect_err(|_| self.buffer.clear())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrangement::Arrangement;
    use crate::source_dir::SourceDir;

    /// The last block before missing ones is not read again for each entry.
    #[test]
    fn what_is_not_there_costs_nothing() {
        const BLOCK: u64 = 1 << 16;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), vec![7; 2 * BLOCK as usize]).unwrap();
        let held = SourceDir::open(dir.path()).unwrap();
        let log = SourceFile::open(&held, "log".as_ref()).unwrap();
        let arranged = log.arranged(Arrangement::Blocks {
            block: BLOCK,
            at: vec![(0, 0), (1, BLOCK)],
            len: 100 * BLOCK,
        });
        let log = arranged.unwrap();
        let mut window = Window::over(&log);
        for at in (0..2 * BLOCK).step_by(8) {
            assert_eq!(window.bytes(at, 8).unwrap(), [7; 8]);
        }
        assert!(window.bytes(2 * BLOCK, 8).is_err());
        assert!(log.bytes_read() < 4 * BLOCK, "{}", log.bytes_read());
    }
}
