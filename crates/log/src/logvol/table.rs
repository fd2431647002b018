//! Finds the entries of the metadata-log datasets `_md_N` (sections 4 and 5).
//!
//! Only headers are decoded here. The records of a dataset are decoded from the bodies when they are needed.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;

use super::flags::{DEFL, ENC, HEADER, MUL, REC, REF};
use super::{Section, Tables};
use crate::source_file::SourceFile;
use crate::window::{Piece, TableBytes, Window};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

const KNOWN_FLAGS: i32 = 0x3f;

/// The front of a table of sections with so many bytes: their number, and where each ends.
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
    /// The record number, where the entry has one.
    pub record: Option<i64>,
}

/// The most bytes of an entry in front of its coordinates: header, record number, number of blocks or the
/// distance to a shared selection.
const FRONT: u64 = HEADER + 8 + 8;

impl EntryHeader {
    /// Reads the header of the entry at `at`, which must not reach past `end`.
    pub fn read(window: &mut Window<'_>, at: u64, end: u64) -> Result<Self, Fault> {
        let left = end.saturating_sub(at);
        if left < HEADER {
            return Err(format!("{left} bytes are no entry").into());
        }
        // A shorter entry may be the last one of its piece.
        let bytes = window.bytes(at, left.min(FRONT).min(window.bytes_left(at)))?;
        if (bytes.len() as u64) < HEADER {
            return Err(format!("{} bytes are no entry", bytes.len()).into());
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

    /// Bytes in front of the selection.
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

/// Where an entry lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryPosition {
    /// From byte 0 of the source file.
    pub position: u64,
    /// Number of the [`ExplicitSelection`] that it uses: its own, or that of an earlier entry of its section.
    /// [`NO_TARGET`] where it refers to something else.
    target: u32,
    /// Position of its `_md_N`, or of its section, in the list of them.
    pub table: u32,
}

const NO_TARGET: u32 = u32::MAX;

impl EntryPosition {
    pub fn target(&self) -> Option<u32> {
        (self.target != NO_TARGET).then_some(self.target)
    }
}

/// An entry that has a selection of its own, not that of an earlier entry: where it lies, and what those who share its
/// selection have to know of its header.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExplicitSelection(u64);

impl ExplicitSelection {
    const SEVERAL: u64 = 1 << 63;
    const RECORD: u64 = 1 << 62;
    const ENCODED: u64 = 1 << 61;
    const POSITION: u64 = Self::ENCODED - 1;

    /// `None` where the position is past 2^61, where no file has bytes.
    fn new(position: u64, head: &EntryHeader) -> Option<Self> {
        let bit = |flag, bit| if head.has(flag) { bit } else { 0 };
        let bits = bit(MUL, Self::SEVERAL) | bit(REC, Self::RECORD) | bit(ENC, Self::ENCODED);
        (position <= Self::POSITION).then_some(ExplicitSelection(position | bits))
    }

    /// From byte 0 of the source file.
    pub fn position(self) -> u64 {
        self.0 & Self::POSITION
    }

    pub fn has_several_blocks(self) -> bool {
        self.0 & Self::SEVERAL != 0
    }

    /// Whether the entry has a record number.
    pub fn has_record(self) -> bool {
        self.0 & Self::RECORD != 0
    }

    pub fn is_encoded(self) -> bool {
        self.0 & Self::ENCODED != 0
    }
}

/// The entries of one dataset.
#[derive(Debug, Default)]
struct Entries {
    /// `None` where it is not known yet.
    rank: Option<usize>,
    places: Vec<EntryPosition>,
}

/// All entries of a log, in the order of the tables. An entry takes 16 bytes, and 8 more where it has a selection of
/// its own.
#[derive(Debug)]
pub(super) struct EntryTable {
    /// The entries of each dataset that still has an anchor.
    by_dataset: HashMap<i64, Entries, RandomState>,
    /// Those of datasets that are not known yet are kept, too.
    keeps_all: bool,
    explicit: Vec<ExplicitSelection>,
    /// Sections, and whole tables, that could not be followed to their end.
    pub diagnostics: Vec<Diagnostic>,
    reservation: Reservation,
}

/// Bytes of memory of the list of a dataset, besides its elements.
const OF_DATASET: usize = 96;

impl EntryTable {
    /// `ranks`: rank of each dataset that still has an anchor. `merged`: entries may be those of merged calls,
    /// whose sizes are ambiguous (section 6.6).
    ///
    /// Fails where there is no memory, and where `task` stops.
    pub fn read(
        task: &Task,
        sources: &[SourceFile],
        tables: &Tables,
        ranks: &HashMap<i64, usize>,
        merged: bool,
    ) -> Result<Self, Fault> {
        let lists = (ranks.len() * OF_DATASET) as u64;
        let of = |(id, rank): (&i64, &usize)| {
            let (rank, places) = (Some(*rank), Vec::new());
            (*id, Entries { rank, places })
        };
        let mut found = EntryTable {
            by_dataset: ranks.iter().map(of).collect(),
            ..EntryTable::empty(task.reserve(lists)?, false)
        };
        let mut finder = Finder {
            task,
            merged,
            found: &mut found,
            section: SectionSelections::default(),
        };
        walk(sources, tables, &mut finder)?;
        Ok(found)
    }

    /// A table for the entries of all datasets, which [`EntryTable::extend`] fills.
    pub fn growing(task: &Task) -> Self {
        EntryTable::empty(task.reservation(), true)
    }

    fn empty(reservation: Reservation, keeps_all: bool) -> Self {
        EntryTable {
            by_dataset: HashMap::default(),
            keeps_all,
            explicit: Vec::new(),
            diagnostics: Vec::new(),
            reservation,
        }
    }

    /// Adds the entries that `window` has from position `from` on to the section of table `number`, whose selections so
    /// far are `section`.
    pub fn extend(
        &mut self,
        task: &Task,
        window: Window<'_>,
        number: usize,
        from: u64,
        section: &mut SectionSelections,
    ) -> Result<(), Fault> {
        section.go_on(self.explicit.len());
        let end = window.len();
        let mut finder = Finder {
            task,
            merged: false,
            found: self,
            section: std::mem::take(section),
        };
        let followed =
            Walk::new(number, window, &mut finder).follow(|walk| walk.entries(from, end));
        *section = finder.section;
        followed
    }

    /// Drops all entries, but not their selections, which later entries may share.
    pub fn forget_entries(&mut self) {
        for entries in self.by_dataset.values_mut() {
            entries.places.clear();
        }
    }

    fn push(&mut self, dataset: i64, place: EntryPosition) -> Result<(), Fault> {
        if self.keeps_all && !self.by_dataset.contains_key(&dataset) {
            self.reservation.grow(OF_DATASET as u64)?;
            self.by_dataset.insert(dataset, Entries::default());
        }
        match self.by_dataset.get_mut(&dataset) {
            Some(entries) => Ok(self.reservation.push(&mut entries.places, place)?),
            None => Ok(()),
        }
    }

    /// From now on its memory counts for no user.
    pub fn release_share(&self) {
        self.reservation.release_share();
    }

    pub fn of_dataset(&self, id: i64) -> &[EntryPosition] {
        self.by_dataset
            .get(&id)
            .map_or(&[], |entries| &entries.places)
    }

    /// The entry that has the selection of this number.
    pub fn explicit(&self, target: u32) -> ExplicitSelection {
        self.explicit[target as usize]
    }

    /// Number of entries of all datasets.
    pub fn len(&self) -> usize {
        let lists = self.by_dataset.values();
        lists.map(|entries| entries.places.len()).sum()
    }

    pub fn bytes(&self) -> usize {
        let lists = self.by_dataset.values();
        let lists = lists.map(|e| e.places.capacity() * size_of::<EntryPosition>() + OF_DATASET);
        self.explicit.capacity() * 8 + lists.sum::<usize>()
    }
}

/// Which of a table's explicit selections are those of one section.
#[derive(Debug, Default)]
pub(super) struct SectionSelections {
    /// Those of earlier walks. Each range is in the order of the section.
    earlier: Vec<Range<usize>>,
    /// The first one of this walk.
    first: usize,
    /// Behind the last one of this walk.
    end: usize,
}

impl SectionSelections {
    /// Begins another walk through the section, when the table has so many selections.
    fn go_on(&mut self, known: usize) {
        let last = self.first..self.end;
        match self.earlier.last_mut() {
            Some(before) if before.end == last.start => before.end = last.end,
            _ if !last.is_empty() => self.earlier.push(last),
            _ => {}
        }
        (self.first, self.end) = (known, known);
    }

    /// The number of the selection whose entry lies at byte `at` of the source file.
    fn find(&self, explicit: &[ExplicitSelection], at: u64) -> Option<usize> {
        let begins = |range: &Range<usize>| explicit[range.start].position();
        let last = self.first..self.end;
        let range = if !last.is_empty() && begins(&last) <= at {
            last
        } else {
            let after = self.earlier.partition_point(|range| begins(range) <= at);
            self.earlier.get(after.checked_sub(1)?)?.clone()
        };
        let found = explicit[range.clone()].binary_search_by_key(&at, |s| s.position());
        found.ok().map(|number| range.start + number)
    }
}

/// Puts the entries of a walk into a table.
struct Finder<'a> {
    task: &'a Task,
    merged: bool,
    found: &'a mut EntryTable,
    section: SectionSelections,
}

impl Visitor for Finder<'_> {
    fn section(&mut self) {
        self.section = SectionSelections::default();
        self.section.go_on(self.found.explicit.len());
    }

    fn entry(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), Fault> {
        self.task.check()?;
        self.check_size(entry)?;
        let target = if entry.head.has(REF) {
            // The target is an earlier entry of the same section with a selection of its own.
            let target = entry.shared()?;
            target.and_then(|at| self.section.find(&self.found.explicit, at))
        } else {
            let explicit = ExplicitSelection::new(entry.position(), &entry.head);
            let explicit = explicit.ok_or("it lies past 2^61 bytes")?;
            let EntryTable {
                reservation,
                explicit: list,
                ..
            } = &mut *self.found;
            reservation.push(list, explicit)?;
            self.section.end = list.len();
            Some(list.len() - 1)
        };
        let target = target.and_then(|t| u32::try_from(t).ok());
        let place = EntryPosition {
            position: entry.position(),
            target: target.unwrap_or(NO_TARGET),
            table: entry.table,
        };
        self.found.push(entry.head.dataset, place)
    }

    fn unreadable(&mut self, diagnostic: Diagnostic) {
        // One is enough to make the log unreadable. More are kept only for a person to read.
        const MOST: usize = 100;
        if self.found.diagnostics.len() < MOST {
            self.found.diagnostics.push(diagnostic);
        }
    }
}

impl Finder<'_> {
    /// Section 12: an entry whose size contradicts its flags ends the section, for what follows it may be
    /// anything. Deleted datasets have no known rank; deflated and merged bodies have no known size.
    fn check_size(&self, entry: &mut Entry<'_, '_>) -> Result<(), Fault> {
        let head = entry.head;
        let rank = self.found.by_dataset.get(&head.dataset);
        let rank = rank.and_then(|entries| entries.rank);
        if head.has(REF) {
            // `Entry::shared` checks it.
            return Ok(());
        }
        let body = head.body_len();
        let blocks = match head.has(MUL) {
            true if body < 4 => return Err("too short for a number of blocks".into()),
            true => i64::from(i32_at(entry.body(4)?, 0)),
            false => 1,
        };
        if blocks <= 0 && !head.has(DEFL) {
            return Err(format!("{blocks} blocks").into());
        }
        let Some(rank) = rank else {
            return Ok(());
        };
        if head.has(DEFL) || (self.merged && head.flags & (MUL | REC) == MUL) {
            return Ok(());
        }
        let rank = (rank as u64).saturating_sub(u64::from(head.has(REC)));
        let wanted = selection_size(rank, blocks as u64, head.has(ENC));
        let got = body - if head.has(MUL) { 4 } else { 0 };
        if got == wanted {
            Ok(())
        } else {
            Err(format!(
                "{got} bytes of selection where {blocks} blocks of rank {rank} take {wanted}"
            )
            .into())
        }
    }
}

/// Gets the entries of a log, one after the other.
pub(super) trait Visitor {
    /// A table begins.
    fn table(&mut self) {}

    /// A section begins.
    fn section(&mut self);

    /// The next entry. An error ends the section.
    fn entry(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), Fault>;

    /// A section, or a whole table, cannot be followed to its end.
    fn unreadable(&mut self, diagnostic: Diagnostic);
}

/// The entry that a walk has reached.
pub(super) struct Entry<'w, 'a> {
    pub head: EntryHeader,
    /// As in [`EntryPosition`].
    pub table: u32,
    /// Position in the window.
    at: u64,
    window: &'w mut Window<'a>,
}

impl Entry<'_, '_> {
    /// From byte 0 of the source file.
    pub fn position(&self) -> u64 {
        self.window.file_offset(self.at)
    }

    /// The first `len` bytes of the selection. It has to have as many.
    pub fn body(&mut self, len: u64) -> Result<&[u8], Fault> {
        self.window.bytes(self.at + self.head.len(), len)
    }

    /// Where the entry lies whose selection this one shares (section 6.3), from byte 0 of the source file; `None`
    /// where that is outside the table. Fails where the table cannot be followed.
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

/// Calls `visitor` with all entries of a log, in the order of its tables. Damage is no failure.
pub(super) fn walk(
    sources: &[SourceFile],
    tables: &Tables,
    visitor: &mut impl Visitor,
) -> Result<(), Fault> {
    for diagnostic in &tables.diagnostics {
        visitor.unreadable(diagnostic.clone());
    }
    if let Some(overlap) = tables.overlap() {
        // The bytes of one small table could stand for any number of entries.
        visitor.unreadable(overlap);
        return Ok(());
    }
    for (number, table) in tables.metadata.iter().enumerate() {
        let piece = Piece {
            offset: table.offset,
            len: table.len,
        };
        let name = format!("_md_{}", table.number);
        let window = Window::new(TableBytes::Files(sources), table.source, name, &[piece]);
        Walk::new(number, window, visitor).follow(Walk::table)?;
    }
    for (number, section) in tables.sections.iter().enumerate() {
        let window = section.window(TableBytes::Files(sources));
        let len = window.len();
        Walk::new(number, window, visitor).follow(|walk| walk.section(0, len))?;
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

/// A walk through one table. An error is the reason why it cannot be followed further.
struct Walk<'a, V> {
    window: Window<'a>,
    table: u32,
    visitor: &'a mut V,
}

impl<'a, V: Visitor> Walk<'a, V> {
    fn new(number: usize, window: Window<'a>, visitor: &'a mut V) -> Self {
        Walk {
            window,
            table: number as u32,
            visitor,
        }
    }

    fn follow(mut self, walk: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        if let Err(fault) = walk(&mut self) {
            let diagnostic = Diagnostic::unreadable(fault.into_damage()?);
            self.visitor.unreadable(diagnostic.at(self.window.name()));
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
            if let Err(fault) = self.section(start, end) {
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

    fn entries(&mut self, start: u64, end: u64) -> Result<(), Fault> {
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

/// Bytes that the coordinates of `blocks` blocks take (sections 6.1 and 6.2).
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

    /// The entry of a scalar has no body. It is shorter than the first read of an entry.
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
