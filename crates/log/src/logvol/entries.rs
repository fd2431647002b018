//! Walks the metadata-log datasets `_md_N` entry by entry (sections 4 and 5).

use std::ops::Range;

use super::flags::{HEADER, REC};
use super::{Section, Tables};
use crate::source_file::SourceFile;
use crate::window::{Piece, TableBytes, Window};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;

const KNOWN_FLAGS: i32 = 0x3f;

/// The start of a table with sections of these sizes: the number of sections, and the end of each.
pub fn table_head(sections: impl ExactSizeIterator<Item = u64>) -> Vec<u8> {
    let number = sections.len() as u64;
    let mut head = number.to_le_bytes().to_vec();
    let mut at = 8 * (number + 1);
    for len in sections {
        at += len;
        head.extend(at.to_le_bytes());
    }
    head
}

/// The header of an entry, and its record number.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryHeader {
    /// Bytes of the whole entry.
    pub size: u64,
    pub dataset: i64,
    pub flags: i32,
    /// `foff` and `fsize`, unchecked.
    pub data_offset: i64,
    pub data_size: i64,
    /// The record number, if the entry has one.
    pub record: Option<i64>,
}

/// The most bytes of an entry before its coordinates: header, record number, and the number of blocks or the distance
/// to a shared selection.
const FRONT: u64 = HEADER + 8 + 8;

impl EntryHeader {
    /// Reads the header of the entry at `at`. The entry must not reach past `end`.
    pub fn read(window: &mut Window<'_>, at: u64, end: u64) -> Result<Self, Fault> {
        let left = end.saturating_sub(at);
        if left < HEADER {
            return Err(format!("{left} bytes are not an entry").into());
        }
        let front = left.min(FRONT);
        let bytes = match window.buffered(at, front) {
            Some(bytes) => bytes,
            // A shorter entry can be the last one of its piece.
            None => window.bytes(at, front.min(window.bytes_left(at)))?,
        };
        if (bytes.len() as u64) < HEADER {
            return Err(format!("{} bytes are not an entry", bytes.len()).into());
        }
        let size = i32_at(bytes, 0);
        let size = u64::try_from(size)
            .ok()
            .filter(|s| (HEADER..=left).contains(s))
            .ok_or_else(|| format!("claims {size} bytes of {left}"))?;
        let flags = i32_at(bytes, 8);
        if flags & !KNOWN_FLAGS != 0 {
            return Err(format!("unknown flags {flags:#x}").into());
        }
        if flags & REC != 0 && size.min(bytes.len() as u64) < HEADER + 8 {
            return Err("too short for a record number".into());
        }
        Ok(EntryHeader {
            size,
            dataset: i64::from(i32_at(bytes, 4)),
            flags,
            data_offset: i64_at(bytes, 12),
            data_size: i64_at(bytes, 20),
            record: (flags & REC != 0).then(|| i64_at(bytes, HEADER as usize)),
        })
    }

    pub fn has(&self, flags: i32) -> bool {
        self.flags & flags != 0
    }

    /// Bytes before the selection.
    pub fn len(&self) -> u64 {
        HEADER + if self.record.is_some() { 8 } else { 0 }
    }

    /// Bytes of the selection.
    pub fn body_len(&self) -> u64 {
        self.size - self.len()
    }
}

/// A little-endian number. The caller ensures that the bytes exist.
pub(super) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    i32::from_le_bytes(number)
}

pub(super) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    i64::from_le_bytes(number)
}

/// Receives the entries of a log in sequence.
pub(super) trait Visitor {
    /// A table begins.
    fn table(&mut self) {}

    /// A section begins.
    fn section(&mut self);

    /// Takes the next entry. An error ends the section.
    fn entry(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), Fault>;

    /// A section or table cannot be followed to its end.
    fn unreadable(&mut self, diagnostic: Diagnostic);
}

/// The current entry of a walk.
pub(super) struct Entry<'w, 'a> {
    pub head: EntryHeader,
    /// Index of the table, as in [`EntryPosition`].
    pub table: u32,
    /// Position in the window.
    at: u64,
    window: &'w mut Window<'a>,
}

impl Entry<'_, '_> {
    /// Offset in the source file.
    pub fn position(&self) -> u64 {
        self.window.file_offset(self.at)
    }

    /// The first `len` bytes of the selection. Fails if it has fewer.
    pub fn body(&mut self, len: u64) -> Result<&[u8], Fault> {
        self.window.bytes(self.at + self.head.len(), len)
    }

    /// The offset, in the source file, of the entry whose selection this one shares (section 6.3); `None` if that entry
    /// lies outside the table. Fails if the table cannot be followed.
    pub fn shared(&mut self) -> Result<Option<u64>, Fault> {
        if self.head.body_len() != 8 {
            return Err(format!("{} bytes for a shared selection", self.head.size).into());
        }
        let back = i64_at(self.body(8)?, 0);
        let target = self.at.checked_add_signed(back);
        let target = target.filter(|t| *t < self.window.len());
        Ok(target.map(|t| self.window.file_offset(t)))
    }
}

impl Tables {
    /// Bytes of all tables and sections.
    pub(super) fn entry_bytes(&self) -> u64 {
        let closed = self.metadata.iter().map(|table| table.len);
        let open = self.sections.iter().flat_map(|section| &section.pieces);
        let lens = closed.chain(open.map(|piece| piece.len));
        lens.fold(0, u64::saturating_add)
    }
}

/// Calls `visitor` with all entries of a log, in the order of its tables. Damage is reported to `visitor`, and is not a
/// failure.
pub(super) fn walk(
    sources: &[SourceFile],
    tables: &Tables,
    visitor: &mut impl Visitor,
) -> Result<(), Fault> {
    walk_part(sources, tables, 0..u64::MAX, visitor)
}

/// Calls `visitor` with the entries of a part of the log. `part` counts bytes through all tables; a table's preamble
/// and each section belong to the part that contains their first byte.
pub(super) fn walk_part(
    sources: &[SourceFile],
    tables: &Tables,
    part: Range<u64>,
    visitor: &mut impl Visitor,
) -> Result<(), Fault> {
    let is_first = part.start == 0;
    if is_first {
        for diagnostic in &tables.diagnostics {
            visitor.unreadable(diagnostic.clone());
        }
    }
    if let Some(overlap) = tables.overlap() {
        // A few bytes of overlapping tables could claim any number of entries.
        if is_first {
            visitor.unreadable(overlap);
        }
        return Ok(());
    }
    let mut begin = 0u64;
    for (number, table) in tables.metadata.iter().enumerate() {
        let piece = Piece {
            offset: table.offset,
            len: table.len,
        };
        let end = begin.saturating_add(table.len);
        if begin < part.end && part.start < end {
            let name = format!("_md_{}", table.number);
            let window = Window::new(TableBytes::Files(sources), table.source, name, &[piece]);
            let walk = Walk::new(number, window, visitor);
            walk.in_part(begin, &part).follow(Walk::table)?;
        }
        begin = end;
    }
    for (number, section) in tables.sections.iter().enumerate() {
        let window = section.window(TableBytes::Files(sources));
        let len = window.len();
        if part.contains(&begin) {
            Walk::new(number, window, visitor).follow(|walk| walk.section(0, len))?;
        }
        begin = begin.saturating_add(len);
    }
    Ok(())
}

impl Section {
    /// A window over the whole section.
    pub(super) fn window<'a>(&self, tables: TableBytes<'a>) -> Window<'a> {
        let name = format!("the entries of rank {}", self.rank);
        Window::new(tables, self.source, name, &self.pieces)
    }
}

/// A walk through one table. An error is the reason why the walk cannot continue.
pub(super) struct Walk<'a, V> {
    window: Window<'a>,
    table: u32,
    visitor: &'a mut V,
    /// Only sections whose first byte is at one of these positions are visited. The part with the first byte of the
    /// table also reports damage of the table.
    part: Range<u64>,
}

impl<'a, V: Visitor> Walk<'a, V> {
    pub fn new(number: usize, window: Window<'a>, visitor: &'a mut V) -> Self {
        Walk {
            window,
            table: number as u32,
            visitor,
            part: 0..u64::MAX,
        }
    }

    /// Restricts the walk to `part` of all tables. This table begins at byte `begin` of them.
    fn in_part(self, begin: u64, part: &Range<u64>) -> Self {
        let part = part.start.saturating_sub(begin)..part.end.saturating_sub(begin);
        Walk { part, ..self }
    }

    pub fn follow(
        mut self,
        walk: impl FnOnce(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if let Err(fault) = walk(&mut self) {
            let diagnostic = Diagnostic::unreadable(fault.into_damage()?);
            if self.part.start == 0 {
                self.visitor.unreadable(diagnostic.at(self.window.name()));
            }
        }
        Ok(())
    }

    fn table(&mut self) -> Result<(), Fault> {
        self.visitor.table();
        let len = self.window.len();
        let sections = number_at(&mut self.window, 0)?;
        let sections = u64::try_from(sections)
            .ok()
            .filter(|n| (1..=len / 8 - 1).contains(n))
            .ok_or_else(|| format!("claims {sections} sections in {len} bytes"))?;
        let mut start = 8 * (sections + 1);
        for section in 0..sections {
            let end = number_at(&mut self.window, 8 * (section + 1))?;
            let end = u64::try_from(end)
                .ok()
                .filter(|end| (start..=len).contains(end))
                .ok_or_else(|| format!("section {section} ends at {end}, out of order"))?;
            let is_visited = self.part.contains(&start);
            if is_visited && let Err(fault) = self.section(start, end) {
                let reason = fault.into_damage()?;
                let place = format!("{}: section {section}", self.window.name());
                self.visitor
                    .unreadable(Diagnostic::unreadable(reason).at(place));
            }
            start = end;
        }
        Ok(())
    }

    fn section(&mut self, start: u64, end: u64) -> Result<(), Fault> {
        self.visitor.section();
        self.entries(start, end)
    }

    pub fn entries(&mut self, start: u64, end: u64) -> Result<(), Fault> {
        let mut at = start;
        while at < end {
            let size = self
                .entry(at, end)
                .map_err(|fault| fault.at(format_args!("entry at byte {at}")))?;
            at += size;
        }
        Ok(())
    }

    /// Visits the entry at position `at` of the table; returns its size.
    fn entry(&mut self, at: u64, end: u64) -> Result<u64, Fault> {
        let head = EntryHeader::read(&mut self.window, at, end)?;
        self.visitor.entry(&mut Entry {
            head,
            table: self.table,
            at,
            window: &mut self.window,
        })?;
        Ok(head.size)
    }
}

fn number_at(window: &mut Window<'_>, at: u64) -> Result<i64, Fault> {
    Ok(i64_at(window.bytes(at, 8)?, 0))
}

/// Bytes of the coordinates of `blocks` blocks (sections 6.1 and 6.2).
pub(super) fn selection_size(rank: u64, blocks: u64, encoded: bool) -> u64 {
    if encoded {
        8 * (rank.saturating_sub(1) + 2 * blocks)
    } else {
        blocks.saturating_mul(16 * rank)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::source_dir::SourceDir;

    /// The entry of a scalar has no body, so it is shorter than the first read of an entry.
    #[test]
    fn a_short_entry_at_the_end_of_its_piece() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut entry = [0; HEADER as usize];
        entry[..4].copy_from_slice(&(HEADER as i32).to_le_bytes());
        let mut file = std::fs::File::create(&path).unwrap();
        for gap in [100, 50] {
            file.write_all(&vec![0xff; gap]).unwrap();
            file.write_all(&entry).unwrap();
        }
        let source = SourceFile::open(&SourceDir::open(dir.path()).unwrap(), "log".as_ref());
        let sources = [source.unwrap()];
        let pieces = [100, 100 + HEADER + 50].map(|offset| Piece {
            offset,
            len: HEADER,
        });
        let tables = TableBytes::Files(&sources);
        let mut window = Window::new(tables, 0, "the entries".into(), &pieces);
        for at in [0, HEADER] {
            let head = EntryHeader::read(&mut window, at, 2 * HEADER).unwrap();
            assert_eq!((head.size, head.dataset, head.flags), (HEADER, 0, 0));
        }
        assert!(EntryHeader::read(&mut window, HEADER + 1, 2 * HEADER).is_err());
    }
}
