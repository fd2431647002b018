//! The places of entries in the metadata-log datasets `_md_N` (sections 4 and 5).
//!
//! Only headers are decoded here. Records are decoded from the bodies on demand.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;

use super::Tables;
use super::entries::{Entry, EntryHeader, Visitor, Walk, i32_at, selection_size, walk_part};
use super::flags::{DEFL, ENC, MUL, REC, REF};
use super::own_blocks::OwnBlocks;
use crate::model::Logged;
use crate::records::RecordList;
use crate::source_file::SourceFile;
use crate::window::Window;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::parallel;
use h5logfs_common::task::Task;

/// The bytes of tables from which several threads read them. It is small in tests.
const MANY_BYTES: u64 = if cfg!(debug_assertions) { 100 } else { 1 << 20 };

/// The place of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryPosition {
    /// Offset in the source file.
    pub position: u64,
    /// Number of its [`ExplicitSelection`], which may belong to an earlier entry of the section. `None` if the shared
    /// selection was not found.
    pub target: Option<u32>,
    /// Index of its `_md_N`, or of its section.
    pub table: u32,
}

/// The place of an entry that shares a selection.
#[derive(Debug, Clone, Copy)]
struct Sharing {
    position: u64,
    /// Number of the [`ExplicitSelection`], or [`NO_TARGET`] if it was not found.
    target: u32,
    table: u32,
}

const NO_TARGET: u32 = u32::MAX;

impl Sharing {
    fn new(position: u64, target: Option<u32>, table: u32) -> Self {
        Sharing {
            position,
            target: target.unwrap_or(NO_TARGET),
            table,
        }
    }

    fn target(&self) -> Option<u32> {
        (self.target != NO_TARGET).then_some(self.target)
    }
}

/// An entry in the list of a dataset: the number of its [`ExplicitSelection`] or [`Sharing`]. It takes 4 bytes, because
/// there may be many entries.
#[derive(Debug, Clone, Copy)]
struct Place(u32);

impl Place {
    const SHARES: u32 = 1 << 31;

    fn new(number: usize, shares: bool) -> Result<Self, Fault> {
        let number = u32::try_from(number).ok().filter(|n| n & Self::SHARES == 0);
        let number = number.ok_or("more than 2^31 entries")?;
        Ok(Place(number | if shares { Self::SHARES } else { 0 }))
    }

    fn number(self) -> usize {
        (self.0 & !Self::SHARES) as usize
    }

    fn shares(self) -> bool {
        self.0 & Self::SHARES != 0
    }
}

/// An entry with its own selection: its position, and the header bits that entries which share the selection need.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExplicitSelection(u64);

impl ExplicitSelection {
    const SEVERAL: u64 = 1 << 63;
    const RECORD: u64 = 1 << 62;
    const ENCODED: u64 = 1 << 61;
    const POSITION: u64 = Self::ENCODED - 1;

    /// Packs an entry. `None` if the position is past 2^61. No file is so long.
    fn new(position: u64, head: &EntryHeader) -> Option<Self> {
        let bit = |flag, bit| if head.has(flag) { bit } else { 0 };
        let bits = bit(MUL, Self::SEVERAL) | bit(REC, Self::RECORD) | bit(ENC, Self::ENCODED);
        (position <= Self::POSITION).then_some(ExplicitSelection(position | bits))
    }

    /// Offset in the source file.
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
#[derive(Debug)]
struct Entries {
    /// Rank of the dataset; `None` if it is unknown.
    rank: Option<usize>,
    places: Vec<Place>,
}

/// All entries of a log, in the order of the tables. An entry takes 12 bytes, or 20 if it shares a selection.
#[derive(Debug)]
pub(super) struct EntryTable {
    /// The entries of each dataset that still has a stub dataset.
    lists: Vec<Entries>,
    /// Index in `lists` by dataset, and the last one looked up.
    numbers: HashMap<i64, usize, RandomState>,
    last: Option<(i64, usize)>,
    /// Whether entries of unknown datasets are kept, too.
    keeps_all: bool,
    explicit: Vec<ExplicitSelection>,
    /// Whether an explicit selection has several blocks.
    has_several_blocks: bool,
    sharing: Vec<Sharing>,
    /// For each table, the number of its first explicit selection, and the index of the table.
    tables: Vec<(u32, u32)>,
    /// Sections, and whole tables, that could not be followed to their end.
    pub diagnostics: Vec<Diagnostic>,
    reservation: Reservation,
}

/// Bytes of memory of a dataset's list, without its elements.
const OF_DATASET: usize = 96;

impl EntryTable {
    /// Reads all entries. `ranks` has the rank of each dataset that still has a stub dataset. `merged`: entries
    /// may be those of merged calls, whose sizes are ambiguous (section 6.6).
    ///
    /// The records of `wanted` are made during the walk if possible: see [`OwnBlocks`]. Fails when memory is short, and
    /// when `task` stops.
    pub fn read(
        task: &Task,
        sources: &[SourceFile],
        tables: &Tables,
        ranks: &HashMap<i64, usize>,
        merged: bool,
        wanted: Option<&Logged<'_>>,
    ) -> Result<(Self, Option<RecordList>), Fault> {
        let len = tables.entry_bytes();
        let shares = if len > MANY_BYTES {
            parallel::shares() as u64
        } else {
            1
        };
        let each = len.div_ceil(shares).max(1);
        let parts = parallel::share(shares as usize, |number| {
            let begin = number as u64 * each;
            let is_last = number as u64 + 1 == shares;
            let part = begin..if is_last { u64::MAX } else { begin + each };
            Self::read_part(task, sources, tables, part, ranks, merged, wanted)
        });
        let mut parts = parts.into_iter();
        let nothing = || Self::read_part(task, sources, tables, 0..0, ranks, merged, wanted);
        let (mut all, mut own) = parts.next().unwrap_or_else(nothing)?;
        for part in parts {
            let (part, more) = part?;
            all.append(part)?;
            own = match (own, more) {
                (Some(mut own), Some(more)) => {
                    own.append(more)?;
                    Some(own)
                }
                _ => None,
            };
        }
        Ok((all, own.map(OwnBlocks::into_records).transpose()?))
    }

    /// Reads the entries of the sections that begin in a part of the tables: see [`walk_part`].
    fn read_part<'a>(
        task: &Task,
        sources: &[SourceFile],
        tables: &'a Tables,
        part: Range<u64>,
        ranks: &HashMap<i64, usize>,
        merged: bool,
        wanted: Option<&'a Logged<'a>>,
    ) -> Result<(Self, Option<OwnBlocks<'a>>), Fault> {
        let lists = (ranks.len() * OF_DATASET) as u64;
        let mut found = EntryTable::empty(task.reserve(lists)?, false);
        for (id, rank) in ranks {
            found.add_dataset(*id, Some(*rank));
        }
        let mut finder = Finder {
            task,
            merged,
            found: &mut found,
            section: SectionSelections::default(),
            own: match wanted {
                Some(wanted) => OwnBlocks::new(task, tables, wanted)?,
                None => None,
            },
        };
        walk_part(sources, tables, part, &mut finder)?;
        let own = finder.own;
        Ok((found, own))
    }

    /// Appends the table of the sections that follow.
    fn append(&mut self, mut next: EntryTable) -> Result<(), Fault> {
        let (known, shared) = (self.explicit.len(), self.sharing.len());
        self.has_several_blocks |= next.has_several_blocks;
        // These calls check that all new numbers are valid.
        Place::new(known + next.explicit.len(), false)?;
        Place::new(shared + next.sharing.len(), true)?;
        self.reservation
            .extend(&mut self.explicit, &next.explicit)?;
        for entry in &next.sharing {
            let target = entry.target().map(|target| target + known as u32);
            let entry = Sharing::new(entry.position, target, entry.table);
            self.reservation.push(&mut self.sharing, entry)?;
        }
        for (first, table) in next.tables {
            let first = first + known as u32;
            self.reservation.push(&mut self.tables, (first, table))?;
        }
        for (dataset, number) in next.numbers {
            let places = &mut next.lists[number].places;
            for place in &mut *places {
                place.0 += if place.shares() { shared } else { known } as u32;
            }
            if let Some(own) = self.number_of(dataset) {
                let own = &mut self.lists[own].places;
                self.reservation.extend(own, places)?;
            }
        }
        for diagnostic in next.diagnostics {
            self.note(diagnostic);
        }
        Ok(())
    }

    fn note(&mut self, diagnostic: Diagnostic) {
        // One diagnostic is enough to make the log unreadable. More are kept only for human readers.
        const MOST: usize = 100;
        if self.diagnostics.len() < MOST {
            self.diagnostics.push(diagnostic);
        }
    }

    /// A table for the entries of all datasets. [`EntryTable::extend`] fills it.
    pub fn growing(task: &Task) -> Self {
        EntryTable::empty(task.reservation(), true)
    }

    fn empty(reservation: Reservation, keeps_all: bool) -> Self {
        EntryTable {
            lists: Vec::new(),
            numbers: HashMap::default(),
            last: None,
            keeps_all,
            explicit: Vec::new(),
            has_several_blocks: false,
            sharing: Vec::new(),
            tables: Vec::new(),
            diagnostics: Vec::new(),
            reservation,
        }
    }

    /// Adds the entries in `window`, from position `from` on, to the section of table `number`. `section` lists the
    /// section's selections so far.
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
            own: None,
        };
        let followed =
            Walk::new(number, window, &mut finder).follow(|walk| walk.entries(from, end));
        *section = finder.section;
        followed
    }

    /// Drops all entries, but keeps their selections, because later entries may share them.
    pub fn forget_entries(&mut self) {
        for entries in &mut self.lists {
            entries.places.clear();
        }
        self.sharing.clear();
    }

    /// Adds an entry with its own selection. Returns the number of the selection.
    fn push_explicit(
        &mut self,
        dataset: i64,
        explicit: ExplicitSelection,
        table: u32,
    ) -> Result<usize, Fault> {
        let number = self.explicit.len();
        let place = Place::new(number, false)?;
        if self.tables.last().is_none_or(|(_, last)| *last != table) {
            self.reservation.push(&mut self.tables, (place.0, table))?;
        }
        self.has_several_blocks |= explicit.has_several_blocks();
        self.reservation.push(&mut self.explicit, explicit)?;
        self.push(dataset, place)?;
        Ok(number)
    }

    /// Adds an entry that shares a selection.
    fn push_sharing(&mut self, dataset: i64, entry: Sharing) -> Result<(), Fault> {
        if !self.keeps_all && self.number_of(dataset).is_none() {
            return Ok(());
        }
        let place = Place::new(self.sharing.len(), true)?;
        self.reservation.push(&mut self.sharing, entry)?;
        self.push(dataset, place)
    }

    fn push(&mut self, dataset: i64, place: Place) -> Result<(), Fault> {
        let number = match self.number_of(dataset) {
            Some(number) => number,
            None if self.keeps_all => {
                self.reservation.grow(OF_DATASET as u64)?;
                self.add_dataset(dataset, None)
            }
            None => return Ok(()),
        };
        let places = &mut self.lists[number].places;
        Ok(self.reservation.push(places, place)?)
    }

    /// Adds the list of a new dataset. Returns its index.
    fn add_dataset(&mut self, dataset: i64, rank: Option<usize>) -> usize {
        let number = self.lists.len();
        let places = Vec::new();
        self.lists.push(Entries { rank, places });
        self.numbers.insert(dataset, number);
        number
    }

    /// Index of the list of a dataset. Most entries belong to the dataset of the previous entry.
    #[inline]
    fn number_of(&mut self, dataset: i64) -> Option<usize> {
        if let Some((last, number)) = self.last
            && last == dataset
        {
            return Some(number);
        }
        let number = *self.numbers.get(&dataset)?;
        self.last = Some((dataset, number));
        Some(number)
    }

    /// Stops counting the table's memory for a user.
    pub fn release_share(&self) {
        self.reservation.release_share();
    }

    /// The entries of a dataset.
    pub fn of_dataset(&self, id: i64) -> Places<'_> {
        let number = self.numbers.get(&id);
        Places {
            of: self,
            places: number.map_or(&[], |number| &self.lists[*number].places),
        }
    }

    /// The table of the explicit selection `number`. `near` is the last result, as an index in [`EntryTable::tables`].
    fn table_of(&self, number: usize, near: &mut usize) -> u32 {
        let begins = |at: usize| self.tables.get(at).map_or(usize::MAX, |t| t.0 as usize);
        if number < begins(*near) || begins(*near + 1) <= number {
            let after = self.tables.partition_point(|t| t.0 as usize <= number);
            *near = after.saturating_sub(1);
        }
        self.tables.get(*near).map_or(0, |(_, table)| *table)
    }

    /// The entry with the selection of this number.
    pub fn explicit(&self, target: u32) -> ExplicitSelection {
        self.explicit[target as usize]
    }

    /// Whether any entry has a selection of several blocks.
    pub fn has_several_blocks(&self) -> bool {
        self.has_several_blocks
    }

    /// Number of entries of all datasets.
    pub fn len(&self) -> usize {
        let lists = self.lists.iter();
        lists.map(|entries| entries.places.len()).sum()
    }

    pub fn bytes(&self) -> usize {
        let lists = self.lists.iter();
        let lists = lists.map(|e| e.places.capacity() * size_of::<Place>() + OF_DATASET);
        self.explicit.capacity() * size_of::<ExplicitSelection>()
            + self.sharing.capacity() * size_of::<Sharing>()
            + self.tables.capacity() * size_of::<(u32, u32)>()
            + lists.sum::<usize>()
    }
}

/// Consecutive entries of a dataset.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    of: &'a EntryTable,
    places: &'a [Place],
}

impl<'a> Places<'a> {
    /// Number of entries.
    pub fn len(self) -> usize {
        self.places.len()
    }

    /// The entries from number `first` on.
    pub fn from(self, first: usize) -> Self {
        Places {
            places: self.places.get(first..).unwrap_or_default(),
            ..self
        }
    }

    /// The first `most` entries, or fewer.
    pub fn first(self, most: usize) -> Self {
        Places {
            places: self.places.get(..most).unwrap_or(self.places),
            ..self
        }
    }

    /// The entries in the order of the tables.
    pub fn iter(self) -> impl Iterator<Item = EntryPosition> + 'a {
        let Places { of, places } = self;
        let mut near = 0;
        places.iter().map(move |place| {
            let number = place.number();
            if place.shares() {
                let entry = of.sharing[number];
                return EntryPosition {
                    position: entry.position,
                    target: entry.target(),
                    table: entry.table,
                };
            }
            EntryPosition {
                position: of.explicit[number].position(),
                target: Some(place.0),
                table: of.table_of(number, &mut near),
            }
        })
    }
}

/// The explicit selections of one section.
#[derive(Debug, Default)]
pub(super) struct SectionSelections {
    /// Ranges from earlier walks, each in the order of the section.
    earlier: Vec<Range<usize>>,
    /// First selection of this walk.
    first: usize,
    /// End of the selections of this walk.
    end: usize,
}

impl SectionSelections {
    /// Begins another walk through the section. The table has `known` selections so far.
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
struct Finder<'a, 'o> {
    task: &'a Task,
    merged: bool,
    found: &'a mut EntryTable,
    section: SectionSelections,
    /// Records made during the walk, as long as that is possible.
    own: Option<OwnBlocks<'o>>,
}

impl Visitor for Finder<'_, '_> {
    fn section(&mut self) {
        self.section = SectionSelections::default();
        self.section.go_on(self.found.explicit.len());
    }

    fn entry(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), Fault> {
        self.task.check()?;
        self.check_size(entry)?;
        if let Some(own) = &mut self.own
            && !own.add(entry)?
        {
            self.own = None;
        }
        let (dataset, table) = (entry.head.dataset, entry.table);
        if entry.head.has(REF) {
            // The target must be an earlier entry of the same section with its own selection.
            let target = entry.shared()?;
            let target = target.and_then(|at| self.section.find(&self.found.explicit, at));
            let target = target.and_then(|target| u32::try_from(target).ok());
            let entry = Sharing::new(entry.position(), target, table);
            return self.found.push_sharing(dataset, entry);
        }
        let explicit = ExplicitSelection::new(entry.position(), &entry.head);
        let explicit = explicit.ok_or("it lies past 2^61 bytes")?;
        let number = self.found.push_explicit(dataset, explicit, table)?;
        self.section.end = number + 1;
        Ok(())
    }

    fn unreadable(&mut self, diagnostic: Diagnostic) {
        self.found.note(diagnostic);
    }
}

impl Finder<'_, '_> {
    /// Checks the size of an entry. Section 12: an entry whose size contradicts its flags ends the section, because
    /// anything may follow. Deleted datasets have no known rank. Deflated and merged bodies have no known size.
    fn check_size(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), Fault> {
        let head = entry.head;
        let number = self.found.number_of(head.dataset);
        let rank = number.and_then(|number| self.found.lists[number].rank);
        if head.has(REF) {
            // `Entry::shared` checks this.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logvol::LogDataset;
    use crate::logvol::entries::table_head;
    use crate::logvol::flags::HEADER;
    use crate::source_dir::SourceDir;

    fn entry(dataset: i32, flags: i32, body: &[i64]) -> Vec<u8> {
        let size = HEADER as i32 + 8 * body.len() as i32;
        let mut bytes = [size, dataset, flags].map(i32::to_le_bytes).concat();
        bytes.extend([100i64, 8].map(i64::to_le_bytes).concat());
        body.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes
    }

    /// A table read in parts equals the whole, wherever the cuts are.
    #[test]
    fn tables_are_read_in_parts() {
        let block = entry(0, 0, &[3, 5]);
        let shares = |back: &[u8]| entry(1, REF, &[-(back.len() as i64)]);
        let good = [block.clone(), shares(&block), block.clone()].concat();
        let torn = [block.clone(), vec![0xff; 40]].concat();
        let file = |sections: &[&[u8]]| {
            let head = table_head(sections.iter().map(|section| section.len() as u64));
            [head, sections.concat()].concat()
        };
        let tables = [
            file(&[&good, &torn, &[], &good]),
            vec![0xff; 50],
            file(&[&good]),
        ];
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), tables.concat()).unwrap();
        let source = SourceFile::open(&SourceDir::open(dir.path()).unwrap(), "log".as_ref());
        let sources = [source.unwrap()];
        let mut offset = 0;
        let metadata = (0..).zip(&tables).map(|(number, table)| {
            let len = table.len() as u64;
            offset += len;
            LogDataset {
                source: 0,
                number,
                offset: offset - len,
                len,
            }
        });
        let tables = Tables {
            metadata: metadata.collect(),
            ..Tables::default()
        };
        let ranks = HashMap::from([(0, 1), (1, 1)]);
        let task = Task::unlimited();
        let read = |part| {
            let read = EntryTable::read_part(&task, &sources, &tables, part, &ranks, false, None);
            read.unwrap().0
        };
        let told = |found: &EntryTable| {
            let list = |id| found.of_dataset(id).iter().collect::<Vec<_>>();
            let lists = [0, 1].map(|id| format!("{:?}", list(id)));
            (
                lists,
                format!("{:?} {:?}", found.explicit, found.diagnostics),
            )
        };
        let whole = read(0..u64::MAX);
        assert_eq!((whole.len(), whole.diagnostics.len()), (10, 2));
        for cut in 1..offset {
            let mut parts = read(0..cut);
            parts.append(read(cut..u64::MAX)).unwrap();
            assert_eq!(told(&parts), told(&whole), "cut at {cut}");
        }
    }
}
