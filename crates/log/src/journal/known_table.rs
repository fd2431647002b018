//! The table of a data file, in the memory of a process that has closed the log. A program may open a log, write a step
//! and close it again. The cost of a close then depends only on the new entries.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;

use super::closed::ClosedLog;
use crate::file_id::FileId;
use crate::front::FRONT;
use crate::logvol::{Section, table_head};
use crate::source_file::{Individual, individual};
use crate::window::Piece;

/// The entries of each rank in the order of its extents, as far as they are in memory.
#[derive(Debug, Default)]
pub struct Entries(BTreeMap<u32, Vec<u8>>);

impl Entries {
    /// Writes a table of these entries, followed by those of `sections`, at `at`. Returns its length. Afterwards all
    /// entries are in memory, or none if they have more than `most` bytes.
    pub fn write(
        &mut self,
        file: &File,
        mut sections: &[Section],
        at: u64,
        most: u64,
    ) -> io::Result<u64> {
        let all = self.len() + len_of(sections);
        if all == 0 {
            return Ok(0);
        }
        if all <= most {
            self.take_in(file, sections)?;
            sections = &[];
        }
        for section in sections {
            self.0.entry(section.rank).or_default();
        }
        let len = |(rank, known): (&u32, &Vec<u8>)| {
            known.len() as u64 + new_of(sections, *rank).map(|piece| piece.len).sum::<u64>()
        };
        let head = table_head(self.0.iter().map(len));
        let room = all.min(Writer::MOST as u64) as usize;
        let mut buffer = Vec::with_capacity(head.len() + room);
        buffer.extend(head);
        let mut writer = Writer { file, at, buffer };
        for (rank, known) in &self.0 {
            writer.write(known)?;
            for piece in new_of(sections, *rank) {
                each_part(file, piece, |bytes| writer.write(bytes))?;
            }
        }
        if all > most {
            self.0.clear();
        }
        Ok(writer.end()? - at)
    }

    /// Bytes of the entries.
    pub fn len(&self) -> u64 {
        self.0.values().map(|entries| entries.len() as u64).sum()
    }

    /// Reads the entries of `sections`, which follow these.
    pub fn take_in(&mut self, file: &File, sections: &[Section]) -> io::Result<()> {
        for section in sections {
            let known = self.0.entry(section.rank).or_default();
            for piece in &section.pieces {
                each_part(file, piece, |bytes| {
                    known.extend_from_slice(bytes);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Adds entries of a rank, which follow these.
    pub fn add(&mut self, rank: u32, entries: &[u8]) {
        if !entries.is_empty() {
            self.0.entry(rank).or_default().extend_from_slice(entries);
        }
    }

    /// Whether there are no entries in memory.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Bytes of the entries of sections.
pub fn len_of(sections: &[Section]) -> u64 {
    let pieces = sections.iter().flat_map(|section| &section.pieces);
    pieces.map(|piece| piece.len).sum()
}

/// Reads a piece of a file, in parts.
fn each_part(
    file: &File,
    piece: &Piece,
    mut visit: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = vec![0; piece.len.min(Writer::MOST as u64) as usize];
    let mut part = Piece { len: 0, ..*piece };
    while part.len < piece.len {
        let left = (piece.len - part.len).min(bytes.len() as u64) as usize;
        let bytes = &mut bytes[..left];
        file.read_exact_at(bytes, part.offset + part.len)?;
        visit(bytes)?;
        part.len += left as u64;
    }
    Ok(())
}

/// The new entries of a rank.
fn new_of(sections: &[Section], rank: u32) -> impl Iterator<Item = &Piece> {
    let own = sections.iter().filter(move |section| section.rank == rank);
    own.flat_map(|section| &section.pieces)
}

/// Appends bytes, many per system call.
struct Writer<'a> {
    file: &'a File,
    at: u64,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    const MOST: usize = 1 << 20;

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= Self::MOST {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Returns the end of the bytes.
    fn end(mut self) -> io::Result<u64> {
        self.flush()?;
        Ok(self.at)
    }
}

/// The table of a closed log in one file, and the flush that it reaches. Bytes before its end never change.
#[derive(Debug, Default)]
pub struct KnownTable {
    /// Identity of the file.
    file: Option<(FileId, Individual)>,
    /// The last flush, and its end.
    last: (u64, u64),
    /// Whether extents have seals.
    pub has_seals: bool,
    /// The entries.
    pub entries: Entries,
}

impl KnownTable {
    /// The table of a log in one file that was just closed. `entries` is the whole table, or empty if there were too
    /// many entries. `file` is the metadata of the file.
    pub fn new(file: &Metadata, log: ClosedLog<'_>, entries: Entries) -> Self {
        if entries.is_empty() && log.table.len > 0 {
            return KnownTable::default();
        }
        let last = (log.flush, log.end());
        let has_seals = log.has_seals;
        KnownTable {
            file: Some((*log.id, individual(file))),
            last,
            has_seals,
            entries,
        }
    }

    /// The table itself if it belongs to this file with this identifier, otherwise an empty one.
    pub fn of_file(self, file: &Metadata, id: &FileId) -> Self {
        if self.file == Some((*id, individual(file))) {
            self
        } else {
            KnownTable::default()
        }
    }

    /// The table itself if it ends at one of these flushes with their ends, otherwise an empty one.
    pub fn up_to(self, flushes: &[(u64, u64)]) -> Self {
        if flushes.contains(&self.last) {
            self
        } else {
            KnownTable::default()
        }
    }

    /// Whether the table is unknown.
    pub fn is_empty(&self) -> bool {
        self.file.is_none()
    }

    /// The last known flush, and its end.
    pub fn behind(&self) -> (u64, u64) {
        (self.last.0, self.last.1.max(FRONT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1 << 20;

    fn section(rank: u32, pieces: &[(u64, u64)]) -> Section {
        let piece = |(offset, len): &(u64, u64)| Piece {
            offset: *offset,
            len: *len,
        };
        Section {
            source: 0,
            rank,
            pieces: pieces.iter().map(piece).collect(),
        }
    }

    #[test]
    fn a_table_of_known_and_new_entries_is_that_of_all() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..100).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let earlier = [section(0, &[(0, 10), (30, 5)]), section(2, &[(10, 20)])];
        let later = [section(1, &[(40, 7)]), section(2, &[(50, 9)])];
        let all = [
            section(0, &[(0, 10), (30, 5)]),
            section(1, &[(40, 7)]),
            section(2, &[(10, 20), (50, 9)]),
        ];
        let written = |entries: &mut Entries, sections: &[Section]| {
            let len = entries.write(&file, sections, 1000, MOST).unwrap();
            let mut table = vec![0; len as usize];
            file.read_exact_at(&mut table, 1000).unwrap();
            table
        };
        let mut known = Entries::default();
        assert!(written(&mut known, &[]).is_empty());
        written(&mut known, &earlier);
        // A repeated close.
        let table = written(&mut known, &later);
        assert_eq!(table, written(&mut Entries::default(), &all));
        assert_eq!(table, written(&mut known, &[]));
        // Entries past the limit are written and forgotten.
        let mut known = Entries::default();
        known.write(&file, &all, 1000, 50).unwrap();
        assert!(known.is_empty());
    }
}
