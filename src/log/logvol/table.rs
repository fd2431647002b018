//! Finding the entries of the metadata-log datasets `_md_N` (sections 4 and 5).
//!
//! Only headers are decoded here. Bodies are skipped, and read when a dataset's records are wanted.

use std::collections::HashMap;

use super::flags::{DEFL, ENC, HEADER, MUL, REC, REF};
use super::{Piece, Section, Tables};
use crate::error::Result;
use crate::log::source::SourceFile;

const KNOWN_FLAGS: i32 = 0x3f;

/// Bytes read at once while walking a table.
const WINDOW: usize = 1 << 20;

/// The head of one entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Where the entry starts, from byte 0 of the source file.
    pub position: u64,
    /// `foff` and `fsize`, unchecked.
    pub data_offset: i64,
    pub data_size: i64,
    /// The record number, where the entry carries one itself.
    pub record: Option<i64>,
    /// The entry that spells out the selection: itself, or an earlier one of its section. `None`
    /// where it claims to share the selection of something that is no such entry.
    pub target: Option<u32>,
    /// Which source file has it, and its data.
    pub source: u16,
    /// Which `_md_N`, as a position in the list of tables.
    pub table: u32,
    flags: u8,
    size: u32,
}

impl Entry {
    pub fn has_count(&self) -> bool {
        i32::from(self.flags) & MUL != 0
    }
    pub fn is_encoded(&self) -> bool {
        i32::from(self.flags) & ENC != 0
    }
    pub fn is_deflated(&self) -> bool {
        i32::from(self.flags) & DEFL != 0
    }

    /// What follows the header and the record number: the selection.
    pub fn read_body(&self, source: &SourceFile) -> Result<Vec<u8>> {
        let skip = HEADER + if self.record.is_some() { 8 } else { 0 };
        let mut body = vec![0; (u64::from(self.size).saturating_sub(skip)) as usize];
        source.read_exact_at(&mut body, self.position + skip)?;
        Ok(body)
    }
}

/// All entries of a log, in the order of the tables.
#[derive(Debug, Default)]
pub(super) struct EntryTable {
    pub entries: Vec<Entry>,
    by_dataset: HashMap<i64, Vec<u32>>,
    /// Sections or whole tables that could not be followed to their end.
    pub faults: Vec<String>,
}

impl EntryTable {
    /// `ranks`: rank of each dataset that still has an anchor. `merged`: entries may be bodies of
    /// merged calls, whose size says nothing (section 6.6).
    pub fn read(
        sources: &[SourceFile],
        tables: &Tables,
        ranks: &HashMap<i64, usize>,
        merged: bool,
    ) -> Result<Self> {
        let mut found = EntryTable::default();
        for fault in &tables.faults {
            found.add_fault(fault.clone());
        }
        let walk = |number: usize, window: Window<'_>, found: &mut EntryTable| {
            let whole_table = tables.sections.is_empty();
            let mut walk = Walk {
                window,
                table: number as u32,
                ranks,
                merged,
                found,
            };
            let len = walk.window.len();
            let walked = match whole_table {
                true => walk.table(),
                false => walk.section(0, len),
            };
            if let Err(reason) = walked {
                let fault = format!("{}: {reason}", walk.window.name);
                found.add_fault(fault);
            }
        };
        for (number, table) in tables.metadata.iter().enumerate() {
            let piece = Piece {
                offset: table.offset,
                len: table.len,
            };
            let name = format!("_md_{}", table.number);
            let window = Window::new(sources, table.source, name, &[piece]);
            walk(number, window, &mut found);
        }
        for (number, section) in tables.sections.iter().enumerate() {
            let Section {
                source,
                rank,
                pieces,
            } = section;
            let name = format!("the entries of rank {rank}");
            walk(
                number,
                Window::new(sources, *source, name, pieces),
                &mut found,
            );
        }
        Ok(found)
    }

    /// One fault is enough to distrust the log; more are told only for a person to read.
    fn add_fault(&mut self, fault: String) {
        const MOST: usize = 100;
        if self.faults.len() < MOST {
            self.faults.push(fault);
        }
    }

    pub fn of_dataset(&self, id: i64) -> &[u32] {
        self.by_dataset.get(&id).map_or(&[], Vec::as_slice)
    }

    pub fn bytes(&self) -> usize {
        let lists = self.by_dataset.values().map(|v| v.len() * 4 + 64);
        self.entries.len() * size_of::<Entry>() + lists.sum::<usize>()
    }
}

/// A walk through one table. Errors are reasons why it could not be followed further.
struct Walk<'a> {
    window: Window<'a>,
    table: u32,
    ranks: &'a HashMap<i64, usize>,
    merged: bool,
    found: &'a mut EntryTable,
}

impl Walk<'_> {
    fn table(&mut self) -> Result<(), String> {
        let len = self.window.len();
        let sections = self.window.i64_at(0)?;
        let sections = u64::try_from(sections)
            .ok()
            .filter(|n| (1..=len / 8 - 1).contains(n))
            .ok_or_else(|| format!("claims {sections} sections in {len} bytes"))?;
        let mut start = 8 * (sections + 1);
        for section in 0..sections {
            let end = self.window.i64_at(8 * (section + 1))?;
            let end = u64::try_from(end)
                .ok()
                .filter(|end| (start..=len).contains(end))
                .ok_or_else(|| format!("section {section} ends at {end}, out of order"))?;
            if let Err(reason) = self.section(start, end) {
                let fault = format!("{}: section {section}: {reason}", self.window.name);
                self.found.add_fault(fault);
            }
            start = end;
        }
        Ok(())
    }

    fn section(&mut self, start: u64, end: u64) -> Result<(), String> {
        let first = self.found.entries.len();
        let mut at = start;
        while at < end {
            let size = self
                .entry(at, end, first)
                .map_err(|reason| format!("entry at byte {at}: {reason}"))?;
            at += size;
        }
        Ok(())
    }

    /// Decodes the entry at `at`, a position in the table; returns its size.
    fn entry(&mut self, at: u64, end: u64, first: usize) -> Result<u64, String> {
        if end - at < HEADER {
            return Err(format!("{} bytes are no entry", end - at));
        }
        let size = self.window.i32_at(at)?;
        let size = u64::try_from(size)
            .ok()
            .filter(|s| (HEADER..=end - at).contains(s))
            .ok_or_else(|| format!("claims {size} bytes of {}", end - at))?;
        let dataset = i64::from(self.window.i32_at(at + 4)?);
        let flags = self.window.i32_at(at + 8)?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(format!("unknown flags {flags:#x}"));
        }
        self.check_size(at, size, dataset, flags)?;
        let record = match flags & REC != 0 {
            true => Some(self.window.i64_at(at + HEADER)?),
            false => None,
        };
        let number = self.found.entries.len() as u32;
        let target = match flags & REF != 0 {
            true => self.shared_target(at, size, first)?,
            false => Some(number),
        };
        self.found.entries.push(Entry {
            position: self.window.position(at),
            source: self.window.number,
            data_offset: self.window.i64_at(at + 12)?,
            data_size: self.window.i64_at(at + 20)?,
            record,
            target,
            table: self.table,
            flags: flags as u8,
            size: size as u32,
        });
        if self.ranks.contains_key(&dataset) {
            self.found
                .by_dataset
                .entry(dataset)
                .or_default()
                .push(number);
        }
        Ok(size)
    }

    /// Section 12: an entry whose size is not what its flags ask for ends the section: what follows
    /// it may be anything. Deleted datasets have no known rank, deflated and merged bodies no known size.
    fn check_size(&mut self, at: u64, size: u64, dataset: i64, flags: i32) -> Result<(), String> {
        let head = HEADER + if flags & REC != 0 { 8 } else { 0 };
        let body = size
            .checked_sub(head)
            .ok_or("too short for a record number")?;
        if flags & REF != 0 {
            return if body == 8 {
                Ok(())
            } else {
                Err(format!("{size} bytes for a shared selection"))
            };
        }
        let blocks = match flags & MUL != 0 {
            true if body < 4 => return Err("too short for a number of blocks".into()),
            true => i64::from(self.window.i32_at(at + head)?),
            false => 1,
        };
        if blocks <= 0 && flags & DEFL == 0 {
            return Err(format!("{blocks} blocks"));
        }
        let Some(&rank) = self.ranks.get(&dataset) else {
            return Ok(());
        };
        if flags & DEFL != 0 || (self.merged && flags & (MUL | REC) == MUL) {
            return Ok(());
        }
        let rank = (rank as u64).saturating_sub(u64::from(flags & REC != 0));
        let wanted = selection_size(rank, blocks as u64, flags & ENC != 0);
        let got = body - if flags & MUL != 0 { 4 } else { 0 };
        if got == wanted {
            Ok(())
        } else {
            Err(format!(
                "{got} bytes of selection where {blocks} blocks of rank {rank} take {wanted}"
            ))
        }
    }

    /// Section 6.3: the target is an earlier entry of the same section, and spells its selection out.
    /// `Err` only where the table cannot be read.
    fn shared_target(&mut self, at: u64, size: u64, first: usize) -> Result<Option<u32>, String> {
        let back = self.window.i64_at(at + size - 8)?;
        let target = at.checked_add_signed(back);
        let Some(target) = target.filter(|t| *t < self.window.len()) else {
            return Ok(None);
        };
        let position = self.window.position(target);
        let section = &self.found.entries[first..];
        Ok(section
            .binary_search_by_key(&position, |e| e.position)
            .ok()
            .filter(|&n| i32::from(section[n].flags) & REF == 0)
            .map(|n| (first + n) as u32))
    }
}

/// Bytes that the coordinates of `blocks` blocks take (sections 6.1 and 6.2).
pub(super) fn selection_size(rank: u64, blocks: u64, encoded: bool) -> u64 {
    match encoded {
        true => 8 * (rank.saturating_sub(1) + 2 * blocks),
        false => blocks.saturating_mul(16 * rank),
    }
}

/// Buffered reads of a table, or of a section of one, that is walked mostly forward.
struct Window<'a> {
    source: &'a SourceFile,
    /// Number of the source file.
    number: u16,
    /// As messages name what is walked: who reports them says which log it belongs to.
    name: String,
    /// What is walked, by its pieces: where each begins in it, and where it lies in the file.
    pieces: Vec<(u64, Piece)>,
    /// Position of the first buffered byte.
    at: u64,
    buffer: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(sources: &'a [SourceFile], number: u16, name: String, pieces: &[Piece]) -> Self {
        let source = &sources[usize::from(number)];
        let mut len = 0;
        let placed = |piece: &Piece| {
            let begin = len;
            len += piece.len;
            (begin, *piece)
        };
        Window {
            source,
            number,
            name: match number {
                0 => name,
                _ => format!("{}: {name}", source.path().display()),
            },
            pieces: pieces.iter().map(placed).collect(),
            at: 0,
            buffer: Vec::new(),
        }
    }

    fn len(&self) -> u64 {
        let last = self.pieces.last();
        last.map_or(0, |(begin, piece)| begin + piece.len)
    }

    /// The piece that has the byte at `at`.
    fn piece(&self, at: u64) -> Option<(u64, Piece)> {
        let after = self.pieces.partition_point(|(begin, _)| *begin <= at);
        self.pieces.get(after.checked_sub(1)?).copied()
    }

    /// Where the byte at `at` lies in the file.
    fn position(&self, at: u64) -> u64 {
        let piece = self.piece(at);
        piece.map_or(at, |(begin, piece)| piece.offset + (at - begin))
    }

    fn bytes<const N: usize>(&mut self, at: u64) -> Result<[u8; N], String> {
        let end = at + N as u64;
        let piece = self
            .piece(at)
            .map(|(begin, piece)| (begin + piece.len, begin, piece));
        let Some((piece_end, begin, piece)) = piece.filter(|p| end <= p.0) else {
            return Err(format!("byte {end} is past its end"));
        };
        if at < self.at || end > self.at + self.buffer.len() as u64 {
            self.buffer.resize(WINDOW.min((piece_end - at) as usize), 0);
            self.at = at;
            let offset = piece.offset + (at - begin);
            if let Err(e) = self.source.read_exact_at(&mut self.buffer, offset) {
                self.buffer.clear();
                return Err(e.to_string());
            }
        }
        let offset = (at - self.at) as usize;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer[offset..offset + N]);
        Ok(bytes)
    }

    fn i32_at(&mut self, at: u64) -> Result<i32, String> {
        Ok(i32::from_le_bytes(self.bytes(at)?))
    }

    fn i64_at(&mut self, at: u64) -> Result<i64, String> {
        Ok(i64::from_le_bytes(self.bytes(at)?))
    }
}
