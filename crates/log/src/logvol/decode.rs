//! Turns the entries of one dataset into records.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entries::EntryHeader;
use super::flags::{DEFL, ENC, MUL};
use super::own_blocks::{block_sides, elements_of, order};
use super::selection::{Blocks, SelectionEncoding};
use super::table::{EntryPosition, EntryTable, ExplicitSelection, Places};
use super::{MERGED, Tables};
use crate::layout::DatasetRecords;
use crate::model::Logged;
use crate::model::{Encoding, Selection, Selections, StoredBytes};
use crate::records::RecordList;
use crate::window::{TableBytes, Window};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::{Reservation, Reserved};
use h5logfs_common::parallel;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::deflate::largest_inflated;

/// The bytes of entries from which several threads decode selections. With fewer bytes, threads cost more than they
/// save.
const MANY_BYTES: u64 = 1 << 20;
/// The number of single-block entries from which several threads decode them. It is small in tests.
const MANY_ENTRIES: usize = if cfg!(debug_assertions) { 20 } else { 1 << 15 };
/// The number of selections that a thread takes at a time.
const TAKEN: usize = 16;

/// The context for decoding a dataset.
pub(super) struct Decoder<'a> {
    pub task: &'a Task,
    pub tables: &'a Tables,
    pub entries: &'a EntryTable,
    pub sources: TableBytes<'a>,
    pub dataset: &'a Logged<'a>,
    pub selections: &'a Selections,
}

/// The elements that an entry covers.
enum Coverage {
    Nothing,
    /// One block. Its sides are in [`State::sides`].
    Block,
    /// A selection and its number. The middle value is the first coordinate of all blocks, if the selection lacks the
    /// first dimension.
    Selection(u64, Option<u64>, Arc<Reserved<Selection>>),
}

/// State carried from one entry to the next.
struct State<'a> {
    /// Source file, and a window over it.
    window: Option<(u16, Window<'a>)>,
    /// Source file and window for entries with shared selections, which lie further back.
    shared: Option<(u16, Window<'a>)>,
    /// Selections of this dataset, by number.
    held: HashMap<u64, Arc<Reserved<Selection>>>,
    /// The memory of `held`.
    reservation: Reservation,
    /// Bytes of the selections that no other dataset had decoded before.
    decoded: usize,
    /// Sides of a single block with the dataset's rank: the starts, then the counts.
    sides: Vec<u64>,
}

impl State<'_> {
    fn hold(&mut self, id: u64, selection: &Arc<Reserved<Selection>>) -> Result<(), Fault> {
        self.reservation.grow(HELD)?;
        self.held.insert(id, Arc::clone(selection));
        Ok(())
    }
}

/// Bytes of memory per entry of [`State::held`], including unused slots.
const HELD: u64 = 48;

impl<'a> Decoder<'a> {
    /// The records of all entries. Fails when memory is short or the task stops, but not on damage.
    pub fn records(&self) -> Result<DatasetRecords, Fault> {
        self.records_of(self.entries.of_dataset(self.dataset.id))
    }

    /// The records of some entries of the dataset.
    pub fn records_of(&self, places: Places<'_>) -> Result<DatasetRecords, Fault> {
        let mut found = match self.decode_in_parts(places)? {
            Some(found) => found,
            None => {
                let mut state = self.state();
                self.decode_ahead(places, &mut state)?;
                self.decode(places, state, places.len())?
            }
        };
        // Section 7: records apply in the order of flushes, then of offsets, not in the order of the table.
        found.records.put_in_order()?;
        if !self.dataset.filtered {
            distrust_equal_sizes(&mut found.records)?;
        }
        Ok(found)
    }

    fn state(&self) -> State<'a> {
        State {
            window: None,
            shared: None,
            held: HashMap::new(),
            reservation: self.task.reservation(),
            decoded: 0,
            sides: Vec::new(),
        }
    }

    /// Decodes single-block entries in several threads. `None` if there are few of them, or if other entries are among
    /// them, because those share selections.
    fn decode_in_parts(&self, places: Places<'_>) -> Result<Option<DatasetRecords>, Fault> {
        let has_one_block = |place: EntryPosition| {
            let explicit = place.target.map(|target| self.entries.explicit(target));
            explicit.is_none_or(|explicit| !explicit.has_several_blocks())
        };
        let all_have_one =
            || !self.entries.has_several_blocks() || places.iter().all(has_one_block);
        if places.len() < MANY_ENTRIES || !all_have_one() {
            return Ok(None);
        }
        let shares = parallel::shares();
        if shares < 2 {
            return Ok(None);
        }
        let each = places.len().div_ceil(shares);
        let parts = parallel::share(shares, |number| {
            let part = places.from(number * each).first(each);
            // The first list receives the records of the others.
            let room = if number == 0 { places.len() } else { each };
            self.decode(part, self.state(), room)
        });
        let mut all: Option<DatasetRecords> = None;
        for part in parts {
            let part = part?;
            if !part.records.selections().is_empty() {
                return Ok(None);
            }
            match &mut all {
                None => all = Some(part),
                Some(all) => {
                    all.records.append(part.records)?;
                    all.decoded += part.decoded;
                    for diagnostic in part.diagnostics {
                        all.add_diagnostic(diagnostic);
                    }
                }
            }
        }
        Ok(all)
    }

    /// The records of entries, in the order of the table. `room` is the initial capacity of the list.
    fn decode(
        &self,
        places: Places<'_>,
        mut state: State<'a>,
        room: usize,
    ) -> Result<DatasetRecords, Fault> {
        let mut found = DatasetRecords {
            records: RecordList::new(self.task, self.rank(), room)?,
            diagnostics: Vec::new(),
            decoded: 0,
        };
        for place in places.iter() {
            self.task.check()?;
            if let Err(fault) = self.add(&place, &mut state, &mut found.records) {
                let diagnostic = Diagnostic::unreadable(fault.into_damage()?).at(self.name(&place));
                found.add_diagnostic(diagnostic);
            }
        }
        found.decoded = state.decoded;
        Ok(found)
    }

    fn rank(&self) -> usize {
        self.dataset.dims.len()
    }

    fn is_merged(&self) -> bool {
        self.tables.config & MERGED != 0
    }

    fn name(&self, place: &EntryPosition) -> String {
        match self.tables.metadata.get(place.table as usize) {
            Some(md) => {
                let at = place.position - md.offset;
                format!("entry at byte {at} of _md_{}", md.number)
            }
            None => format!("entry at byte {} of the file", place.position),
        }
    }

    /// Points `window` at a source file.
    fn window<'w>(
        &self,
        window: &'w mut Option<(u16, Window<'a>)>,
        source: u16,
    ) -> &'w mut Window<'a> {
        if window.as_ref().is_some_and(|(there, _)| *there != source) {
            *window = None;
        }
        let open = || (source, Window::over_all(self.sources.of(source)));
        &mut window.get_or_insert_with(open).1
    }

    /// Adds the record of an entry.
    fn add(
        &self,
        place: &EntryPosition,
        state: &mut State<'a>,
        list: &mut RecordList,
    ) -> Result<(), Fault> {
        let source = self.tables.source_of(place.table);
        let end = self.sources.of(source).len();
        let head = EntryHeader::read(self.window(&mut state.window, source), place.position, end)?;
        let target = place
            .target
            .ok_or("shares the selection of no earlier entry")?;
        let explicit = self.entries.explicit(target);
        let is_own = explicit.position() == place.position;
        let is_plain = is_own && head.flags == 0 && head.data_size > 0;
        let covered = if is_plain && self.rank() > 0 {
            // A fast path for most small records. The general path has the same result.
            let window = self.window(&mut state.window, source);
            let body = window.bytes(place.position + head.len(), head.body_len())?;
            one_block(body, self.rank(), 0, None, &mut state.sides)?
        } else {
            match self.covered_as_known(target, place, &head, state)? {
                Some(covered) => covered,
                None => self.covered_as_read(target, place, source, &head, state)?,
            }
        };
        let elements = match &covered {
            Coverage::Nothing => 0,
            Coverage::Block => elements_of(&state.sides[self.rank()..])?,
            Coverage::Selection(_, _, selection) => selection.elements(),
        };
        let raw = elements
            .checked_mul(self.dataset.element_size)
            .ok_or("more bytes than can be counted")?;
        if raw == 0 {
            return Ok(());
        }
        let stored = StoredBytes {
            source,
            offset: head.data_offset as u64,
            len: head.data_size as u64,
            encoding: self.encoding(explicit, raw, head.data_size as u64),
        };
        let flush = self.data_flush(source, &head);
        // A record with lost data may be the last one, and must still hide older records.
        let order = order(source, *flush.as_ref().unwrap_or(&u32::MAX));
        let fault = match flush {
            Err(fault) => Some(fault.into_damage()?),
            Ok(_) if stored.encoding != Encoding::Raw && raw > largest_inflated(stored.len) => {
                Some(format!(
                    "{} stored bytes cannot hold {raw} bytes",
                    stored.len
                ))
            }
            Ok(_) => None,
        };
        match covered {
            Coverage::Nothing => {}
            Coverage::Block => {
                let (start, count) = state.sides.split_at(self.rank());
                list.push_block(stored, order, start, count)?;
            }
            Coverage::Selection(id, lead, selection) => {
                list.push_selection(stored, order, (id, selection), lead)?;
            }
        }
        if let Some(reason) = fault {
            list.spoil_last(format!("{}: {reason}", self.name(place)))?;
        }
        Ok(())
    }

    /// The encoding of an entry's data. Section 9: only the sizes tell whether bytes are filtered. Section 6.6: an
    /// entry of merged calls has one zlib stream per call, even if the blocks of these calls have become one.
    fn encoding(&self, explicit: ExplicitSelection, raw: u64, stored: u64) -> Encoding {
        if raw == stored {
            Encoding::Raw
        } else if self.dataset.filtered {
            Encoding::Pipeline
        } else if self.is_merged() || explicit.has_several_blocks() {
            Encoding::DeflateStreams
        } else {
            Encoding::Deflate
        }
    }

    /// The N of the `_ld_N` that holds the entry's data (sections 3 and 12).
    fn data_flush(&self, source: u16, head: &EntryHeader) -> Result<u32, Fault> {
        let (offset, len) = (head.data_offset, head.data_size);
        let found = self.tables.data_log(source, offset, len);
        let extent = found
            .ok_or_else(|| format!("its data ({len} bytes at {offset}) lie in no _ld dataset"))?;
        Ok(extent.number)
    }

    /// The coverage of an entry whose shared selection is already decoded. `None` if it is not decoded, or if the entry
    /// with the selection has details that the table lacks.
    fn covered_as_known(
        &self,
        target: u32,
        place: &EntryPosition,
        head: &EntryHeader,
        state: &mut State<'_>,
    ) -> Result<Option<Coverage>, Fault> {
        let explicit = self.entries.explicit(target);
        let is_own = explicit.position() == place.position;
        let has_lead = head.record.is_some();
        if is_own || !explicit.has_several_blocks() || explicit.has_record() && !has_lead {
            return Ok(None);
        }
        let own = self.rank().checked_sub(explicit.has_record().into());
        let wanted = self.rank().checked_sub(has_lead.into());
        let (Some(own), Some(wanted)) = (own, wanted) else {
            return Ok(None);
        };
        let id = id(target, (own, wanted), SelectionEncoding::Usual);
        let known = self.known(id, state)?;
        let ambiguous = self.is_merged() || explicit.is_encoded();
        let Some(selection) = known.filter(|s| !ambiguous || self.fits(s, head)) else {
            return Ok(None);
        };
        let lead = head.record.map(record_number).transpose()?;
        Ok(Some(Coverage::of(id, selection, lead, &mut state.sides)))
    }

    /// The coverage of an entry, read from the entry that contains its selection.
    fn covered_as_read(
        &self,
        target: u32,
        place: &EntryPosition,
        source: u16,
        head: &EntryHeader,
        state: &mut State<'a>,
    ) -> Result<Coverage, Fault> {
        let at = self.entries.explicit(target).position();
        let is_own = at == place.position;
        let explicit_entry = if is_own {
            *head
        } else {
            let end = self.sources.of(source).len();
            EntryHeader::read(self.window(&mut state.shared, source), at, end)?
        };
        let lead = head.record.or(explicit_entry.record);
        let lead = lead.map(record_number).transpose()?;
        let shared = (target, at, &explicit_entry, is_own);
        match self.covered(shared, source, head, lead, state) {
            // The encodings of blocks without elements are ambiguous, but nothing depends on them.
            Err(_) if head.data_size == 0 => Ok(Coverage::Nothing),
            covered => covered,
        }
    }

    /// Whether the data of an entry have as many elements as a selection.
    fn fits(&self, selection: &Selection, head: &EntryHeader) -> bool {
        let bytes = selection.elements().checked_mul(self.dataset.element_size);
        bytes == u64::try_from(head.data_size).ok()
    }

    /// The coverage of an entry (section 6). The selection is that of entry `target` at `at` of its source file, which
    /// may be the same entry.
    fn covered(
        &self,
        (target, at, explicit_entry, is_own): (u32, u64, &EntryHeader, bool),
        source: u16,
        head: &EntryHeader,
        lead: Option<u64>,
        state: &mut State<'a>,
    ) -> Result<Coverage, Fault> {
        let rank = self.rank();
        if lead.is_some() && rank == 0 {
            return Err("a record number for a scalar dataset".into());
        }
        let wanted = rank - usize::from(lead.is_some());
        if wanted == 0 && !explicit_entry.has(MUL) {
            // A scalar has one element and no coordinates.
            return Ok(Coverage::block(lead, &[], &[], &mut state.sides));
        }
        let own_rank = rank - usize::from(explicit_entry.record.is_some() && rank > 0);
        if !explicit_entry.has(MUL | ENC | DEFL) {
            let window = if is_own {
                self.window(&mut state.window, source)
            } else {
                self.window(&mut state.shared, source)
            };
            let body = window.bytes(at + explicit_entry.len(), explicit_entry.body_len())?;
            return one_block(body, own_rank, own_rank - wanted, lead, &mut state.sides);
        }
        let id = |spelling: SelectionEncoding| id(target, (own_rank, wanted), spelling);
        // Only encoded and merged blocks are ambiguous.
        let ambiguous = self.is_merged() || explicit_entry.has(ENC);
        if let Some(selection) = self.known(id(SelectionEncoding::Usual), state)?
            && (!ambiguous || self.fits(&selection, head))
        {
            let id = id(SelectionEncoding::Usual);
            return Ok(Coverage::of(id, selection, lead, &mut state.sides));
        }
        let body = self.read_body(source, at, explicit_entry)?;
        let mut blocks =
            Blocks::parse(self.task, explicit_entry, &body, own_rank, self.is_merged())?;
        blocks.choose(self.task, self.dataset, head.data_size, own_rank - wanted)?;
        let id = id(blocks.spelling());
        let selection = match self.known(id, state)? {
            Some(selection) => selection,
            None => {
                let selection = blocks.selection(self.task, own_rank - wanted)?;
                self.keep(id, selection, state)?
            }
        };
        Ok(Coverage::of(id, selection, lead, &mut state.sides))
    }

    fn known(
        &self,
        id: u64,
        state: &mut State<'_>,
    ) -> Result<Option<Arc<Reserved<Selection>>>, Fault> {
        if let Some(there) = state.held.get(&id) {
            return Ok(Some(Arc::clone(there)));
        }
        let selection = self.selections.get(id);
        if let Some(selection) = &selection {
            state.hold(id, selection)?;
        }
        Ok(selection)
    }

    fn keep(
        &self,
        id: u64,
        selection: Reserved<Selection>,
        state: &mut State<'_>,
    ) -> Result<Arc<Reserved<Selection>>, Fault> {
        let (selection, is_new) = self.selections.keep(id, selection);
        if is_new {
            state.decoded += selection.bytes();
        }
        state.hold(id, &selection)?;
        Ok(selection)
    }

    fn read_body(
        &self,
        source: u16,
        at: u64,
        head: &EntryHeader,
    ) -> Result<Reserved<Vec<u8>>, Fault> {
        let mut reservation = self.task.reservation();
        let mut body = reservation.filled(head.body_len() as usize)?;
        self.sources
            .of(source)
            .read_exact_at(&mut body, at + head.len())?;
        Ok(Reserved::new(body, reservation))
    }

    /// Decodes the unambiguous selections of these entries in several threads.
    fn decode_ahead(&self, places: Places<'_>, state: &mut State<'a>) -> Result<(), Fault> {
        let mut reservation = self.task.reservation();
        let mut targets: Vec<(u32, u16)> = Vec::new();
        let several = places
            .iter()
            .filter_map(|place| Some((place.target?, self.tables.source_of(place.table))))
            .filter(|(target, _)| self.may_decode_ahead(*target));
        for target in several {
            reservation.push(&mut targets, target)?;
        }
        targets.sort_unstable();
        targets.dedup();
        let reach = match targets.as_slice() {
            [(first, _), .., (last, _)] => {
                let position = |target| self.entries.explicit(target).position();
                position(*first).abs_diff(position(*last))
            }
            _ => 0,
        };
        if reach < MANY_BYTES || self.is_merged() {
            return Ok(());
        }
        // The look-up of the number of cores takes several system calls.
        let shares = parallel::shares();
        if shares < 2 {
            return Ok(());
        }
        let next = AtomicUsize::new(0);
        let work = |_| {
            let mut window = None;
            let mut decoded = Vec::new();
            loop {
                let from = next.fetch_add(TAKEN, Ordering::Relaxed);
                let Some(rest) = targets.get(from..) else {
                    return decoded;
                };
                for (target, source) in rest.iter().take(TAKEN) {
                    if self.task.finish().is_err() {
                        return decoded;
                    }
                    decoded.extend(self.decode_target(*target, *source, &mut window));
                }
            }
        };
        // If a thread panics, its selections are decoded together with their entries.
        let decoded = parallel::share(shares, work).into_iter().flatten();
        for (id, selection) in decoded {
            self.keep(id, selection, state)?;
        }
        self.task.finish()
    }

    /// Whether an entry has a selection of several blocks that is not decoded yet.
    fn may_decode_ahead(&self, target: u32) -> bool {
        let explicit = self.entries.explicit(target);
        let wanted = self.rank().checked_sub(explicit.has_record().into());
        let is_known = |wanted| {
            let id = id(target, (wanted, wanted), SelectionEncoding::Usual);
            self.selections.get(id).is_some()
        };
        explicit.has_several_blocks() && !wanted.is_some_and(is_known)
    }

    /// The selection of an entry, if it has several blocks and is unambiguous.
    fn decode_target(
        &self,
        target: u32,
        source: u16,
        window: &mut Option<(u16, Window<'a>)>,
    ) -> Option<(u64, Reserved<Selection>)> {
        let at = self.entries.explicit(target).position();
        let end = self.sources.of(source).len();
        let head = EntryHeader::read(self.window(window, source), at, end).ok()?;
        let wanted = self
            .rank()
            .checked_sub(usize::from(head.record.is_some()))?;
        let id = id(target, (wanted, wanted), SelectionEncoding::Usual);
        if wanted == 0 || self.selections.get(id).is_some() {
            return None;
        }
        let body = self.read_body(source, at, &head).ok()?;
        let blocks = Blocks::parse(self.task, &head, &body, wanted, false).ok()?;
        Some((id, blocks.selection(self.task, 0).ok()?))
    }
}

impl Coverage {
    /// The coverage of a selection. A selection of one block becomes a block.
    fn of(
        id: u64,
        selection: Arc<Reserved<Selection>>,
        lead: Option<u64>,
        sides: &mut Vec<u64>,
    ) -> Self {
        if selection.is_one_block() {
            let bounds = selection.bounds();
            let count: Vec<u64> = bounds.count().collect();
            Coverage::block(lead, &bounds.start, &count, sides)
        } else {
            Coverage::Selection(id, lead, selection)
        }
    }

    /// The coverage of a block. `lead` adds a first dimension.
    fn block(lead: Option<u64>, start: &[u64], count: &[u64], sides: &mut Vec<u64>) -> Self {
        sides.clear();
        sides.extend(lead);
        sides.extend_from_slice(start);
        sides.extend(lead.map(|_| 1));
        sides.extend_from_slice(count);
        Coverage::Block
    }
}

/// The number of a selection. It depends on the entry that contains the selection, on the rank of its coordinates, on
/// the wanted rank, and on the encoding.
fn id(target: u32, (own, wanted): (usize, usize), spelling: SelectionEncoding) -> u64 {
    u64::from(target) << 24 | (own as u64) << 16 | (wanted as u64) << 8 | spelling as u64
}

fn record_number(number: i64) -> Result<u64, Fault> {
    Ok(u64::try_from(number).map_err(|_| format!("record number {number} is negative"))?)
}

/// Decodes a single block in plain coordinates into `sides`.
fn one_block(
    body: &[u8],
    rank: usize,
    drop: usize,
    lead: Option<u64>,
    sides: &mut Vec<u64>,
) -> Result<Coverage, Fault> {
    if block_sides(body, rank, drop, lead, sides)? {
        Ok(Coverage::Block)
    } else {
        Ok(Coverage::Nothing)
    }
}

/// Marks records whose encoding is uncertain. Section 9: the length of a deflated record can equal the length of its
/// raw bytes. That is possible only if other records of the dataset are deflated.
fn distrust_equal_sizes(records: &mut RecordList) -> Result<(), Fault> {
    if records.has_deflated() {
        records.doubt_raw()?;
    }
    Ok(())
}
