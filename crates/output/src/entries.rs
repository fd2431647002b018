//! The entries of one rank: its section of the record table (`docs/formats/logvol.md`, sections 5 and 6). They use only the
//! forms that every reader understands (section 13).

use std::fs::File;
use std::sync::Arc;

use crate::entry::{Coordinates, Entry, Form, deflate_last};
use crate::flushed::Flushed;
use crate::regular::is_regular;
use crate::selection::Blocks;
use crate::sharing::{Known, Selections};
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::logvol::extent::shift_offsets;
use h5logfs_log::logvol::flags::{HEADER, REC};

/// Shortest selection that is shared, in bytes. For a shorter one, the look-up costs more than the 8 bytes of a reference
/// save.
const MIN_SHARED_LEN: usize = 32;

/// The most lists of blocks whose entries are remembered.
const MOST_LISTS: usize = 8;

/// The properties of a dataset that affect its entries.
#[derive(Debug, Clone, Copy)]
pub struct DatasetInfo<'a> {
    /// Number of the dataset.
    pub id: u32,
    /// Current extent.
    pub dims: &'a [u64],
    /// Whether the first dimension is unlimited, so that it counts records.
    pub records: bool,
    /// Whether elements pass through filters.
    pub filtered: bool,
}

impl<'a> DatasetInfo<'a> {
    /// A dataset without filters, of this extent and these limits.
    pub fn new(id: u32, dims: &'a [u64], max_dims: &[Option<u64>]) -> Self {
        DatasetInfo {
            id,
            dims,
            records: max_dims.first() == Some(&None),
            filtered: false,
        }
    }

    /// The dataset with `filters`, which may be empty.
    pub fn with_filters(self, filters: &[Filter]) -> Self {
        DatasetInfo {
            filtered: !filters.is_empty(),
            ..self
        }
    }
}

/// The section of one rank, in the form of the closed file.
#[derive(Debug)]
pub struct Section {
    /// The entries in memory.
    bytes: Vec<u8>,
    /// Bytes of the preceding entries, which are only in the file.
    gone: usize,
    /// Place of the entries in the file. `None`: flushed entries stay in memory.
    in_file: Option<Flushed>,
    /// Bytes of the entries in memory that are also in the file.
    flushed: usize,
    /// Base added to the data offsets of the entries since the last flush.
    base: u64,
    /// Number of times that entries were dropped.
    drops: u64,
    share: bool,
    encode: bool,
    deflate: bool,
    selections: Selections,
    /// Recent entries that spell out a list of blocks, the last one first.
    lists: Vec<Spelled>,
}

/// An entry that spells out a list of blocks.
#[derive(Debug)]
struct Spelled {
    /// Number of the list.
    list: u64,
    /// Start of the list in the first dimension. `None`: the entry has a record number, and its selection holds for any
    /// record.
    first: Option<u64>,
    /// The part of the extent that the selection depends on.
    dims: Vec<u64>,
    at: usize,
    flags: i32,
}

impl Section {
    /// An empty section. `share`: store equal selections once. `encode`: store many blocks as offsets.
    pub fn new(share: bool, encode: bool) -> Self {
        Section {
            bytes: Vec::new(),
            gone: 0,
            in_file: None,
            flushed: 0,
            base: 0,
            drops: 0,
            share,
            encode,
            deflate: false,
            selections: Selections::new(),
            lists: Vec::new(),
        }
    }

    /// Deflates the regular selections of [joined](Section::push_joined) writes, to a byte or two a block.
    pub fn deflate_regular(&mut self) {
        self.deflate = true;
    }

    /// Lets entries leave the memory when they are flushed to `file`.
    pub fn keep_in(&mut self, file: Arc<File>) {
        self.in_file.get_or_insert_with(|| Flushed::new(file));
    }

    /// The entries that have left the memory: all flushed ones, after [`Section::keep_in`].
    pub fn in_file(&self) -> Option<&Flushed> {
        self.in_file.as_ref()
    }

    /// The entries in memory.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The entries since the last flush.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.flushed..]
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all entries.
    pub fn len(&self) -> usize {
        self.gone + self.bytes.len()
    }

    /// Number of times that entries were dropped. Between two drops, entries keep their places.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Base to subtract from the data offsets of the pending entries, for offsets from the start of the data since the last
    /// flush.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Drops the entries from byte `len` on, which are not in the file.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.bytes.truncate(len - self.gone);
            self.selections.truncate(len);
            self.lists.retain(|spelled| spelled.at < len);
            self.drops += 1;
        }
    }

    /// Drops the flushed entries from memory if they take much and no pending entry can share their selections. A section
    /// that is written into a table must keep them.
    pub fn forget_flushed(&mut self) {
        const KEPT: usize = if cfg!(test) { 0 } else { 4 << 20 };
        if self.flushed > KEPT && self.pending().is_empty() {
            self.bytes = Vec::new();
            self.flushed = 0;
            self.selections.clear();
            self.lists.clear();
            self.drops += 1;
        }
    }

    /// Releases unused memory.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Stops later entries from sharing earlier selections, for a reader that decodes the entries in memory.
    pub fn forget_selections(&mut self) {
        if self.in_file.is_none() {
            self.selections.clear();
            self.lists.clear();
        }
    }

    /// Appends the entry of many joined writes. Regular blocks are deflated if that is enabled. A list of blocks that a
    /// program gives at once is not deflated: it often comes again, and a look-up would cost as much each time.
    pub fn push_joined(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        offset: u64,
        stored: u64,
    ) {
        let deflate = self.deflate && is_regular(blocks);
        self.push_as(dataset, blocks, offset, stored, deflate);
    }

    /// Appends an entry for `stored` bytes at `offset` in the data since the last flush.
    pub fn push(&mut self, dataset: DatasetInfo<'_>, blocks: &Blocks, offset: u64, stored: u64) {
        self.push_as(dataset, blocks, offset, stored, false);
    }

    fn push_as(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        offset: u64,
        stored: u64,
        deflate: bool,
    ) {
        let record = record_of(dataset, blocks);
        // An entry with a record number leaves out the first dimension.
        let skip = usize::from(record.is_some());
        if let Some((at, flags)) = self.spelled(dataset, blocks, skip) {
            let back = (self.len() - at) as u64;
            let entry = Entry {
                dataset: dataset.id,
                record,
                offset: offset + self.base,
                stored,
                selection: Form::Shared { back, flags },
            };
            entry.append_to(&mut self.bytes);
            return;
        }
        let coordinates = Coordinates {
            rank: blocks.rank,
            skip,
            number: blocks.number,
            starts: &blocks.starts,
            counts: &blocks.counts,
        };
        let strides = (self.encode && blocks.number > 1)
            .then(|| strides(&dataset.dims[skip..], blocks, skip))
            .flatten();
        let entry = Entry {
            dataset: dataset.id,
            record,
            offset: offset + self.base,
            stored,
            selection: match &strides {
                Some(strides) => Form::Encoded {
                    blocks: coordinates,
                    strides,
                },
                None => Form::Plain(coordinates),
            },
        };
        let at = self.bytes.len();
        let mut flags = entry.append_to(&mut self.bytes);
        // The Log VOL connector takes the record number for a part of the deflated bytes.
        if deflate && record.is_none() {
            flags = deflate_last(&mut self.bytes, at);
        }
        if !self.share {
            return;
        }
        let spelled = self.shared(at, at + entry.head_len(), flags);
        if let Some(spelled) = spelled
            && spelled < self.gone + at
        {
            let back = (self.gone + at - spelled) as u64;
            let selection = Form::Shared { back, flags };
            self.bytes.truncate(at);
            Entry { selection, ..entry }.append_to(&mut self.bytes);
        }
        if let (Some(at), Some(list)) = (spelled, blocks.list) {
            self.lists.truncate(MOST_LISTS - 1);
            let spelled = Spelled {
                list: list.number,
                first: first_index(blocks, skip),
                dims: dataset.dims[skip..].to_vec(),
                at,
                flags,
            };
            self.lists.insert(0, spelled);
        }
    }

    /// The entry that spells out this list of blocks, and its flags, if known. `skip`: number of dimensions that entries
    /// leave out.
    fn spelled(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        skip: usize,
    ) -> Option<(usize, i32)> {
        let list = blocks.list.filter(|_| self.share)?;
        let first = first_index(blocks, skip);
        let is_it = |spelled: &Spelled| {
            spelled.list == list.number
                && spelled.first == first
                && spelled.dims == dataset.dims[skip..]
        };
        let at = self.lists.iter().position(is_it)?;
        self.lists[..=at].rotate_right(1);
        Some((self.lists[0].at, self.lists[0].flags))
    }

    /// Section 6.3: finds an equal selection for the last entry, which begins at `at` and has its selection at `body`.
    /// Returns the entry that spells it out, an earlier one or the last one itself; `None` if it is not shared. Entries with
    /// a record number refer only to such entries, so that no reader confuses their records.
    fn shared(&mut self, at: usize, body: usize, flags: i32) -> Option<usize> {
        let selection = &self.bytes[body..];
        if selection.len() < MIN_SHARED_LEN {
            return None;
        }
        let hash = self.selections.hash(flags, selection);
        let place = self.gone + at;
        let known = self.selections.get(hash);
        if let Some(known) = known.filter(|known| self.has_selection(known, body, flags)) {
            return Some(known.at);
        }
        let copy = self.in_file.is_some();
        self.selections.add(hash, place, flags, selection, copy);
        Some(place)
    }

    /// Whether an earlier entry has the selection of the last entry, which begins at `body` and has this flag.
    fn has_selection(&self, known: &Known, body: usize, flag: i32) -> bool {
        let selection = &self.bytes[body..];
        if (known.flag, known.len) != (flag, selection.len()) {
            return false;
        }
        if let Some(copy) = &known.copy {
            return **copy == *selection;
        }
        let record = if flag & REC == 0 { 0 } else { 8 };
        let begin = known.at + HEADER as usize + record;
        match begin.checked_sub(self.gone) {
            Some(begin) => self.bytes.get(begin..begin + known.len) == Some(selection),
            None => {
                let file = self.in_file.as_ref();
                file.is_some_and(|file| file.is_equal(begin as u64, selection))
            }
        }
    }

    /// Sets the file offset at which the data of the pending entries begin.
    pub fn set_base(&mut self, base: u64) {
        let by = base.wrapping_sub(self.base);
        shift_offsets(&mut self.bytes[self.flushed..], by);
        self.base = base;
    }

    /// Marks the pending entries as flushed: they lie in the file before the offset set last.
    pub fn set_flushed(&mut self) {
        self.set_written(Flushed::add);
    }

    /// Marks the pending entries as written to another file, before the offset set last. They wait there for
    /// [`Section::set_moved`].
    pub fn set_waiting(&mut self) {
        self.set_written(Flushed::add_waiting);
    }

    /// Records that the waiting entries moved to the data file, `by` bytes further on.
    pub fn set_moved(&mut self, by: u64) {
        if let Some(file) = &mut self.in_file {
            file.set_moved(by);
        }
    }

    fn set_written(&mut self, add: fn(&mut Flushed, u64, u64)) {
        let len = self.bytes.len();
        match &mut self.in_file {
            Some(file) => {
                add(file, self.base.saturating_sub(len as u64), len as u64);
                self.gone += len;
                self.bytes.clear();
            }
            None => self.flushed = len,
        }
        self.base = 0;
    }
}

/// The record that contains all blocks, if there is one.
fn record_of(dataset: DatasetInfo<'_>, blocks: &Blocks) -> Option<u64> {
    let record = *blocks.starts.first()?;
    (dataset.records && blocks.are_in_one_record()).then_some(record)
}

/// Start of the selection in the first dimension. `None` if the entry leaves that dimension out.
fn first_index(blocks: &Blocks, skip: usize) -> Option<u64> {
    blocks.starts.first().copied().filter(|_| skip == 0)
}

/// The strides of the dimensions in elements, for dimensions longer by one where a block spans one of them: only then do all
/// readers decode its count alike (section 6.2). `None`: offsets would be too large, or save nothing.
fn strides(dims: &[u64], blocks: &Blocks, skip: usize) -> Option<Vec<u64>> {
    if dims.len() < 2 {
        return None;
    }
    let is_full = |count: &[u64]| {
        let inner = count[skip..].iter().zip(dims).skip(1);
        inner.into_iter().any(|(count, dim)| count >= dim)
    };
    let is_wide = blocks.counts.chunks_exact(blocks.rank).any(is_full);
    let side = |d: usize| dims[d].checked_add(u64::from(is_wide));
    let mut strides = vec![1u64; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d].checked_mul(side(d)?)?;
    }
    // An offset may encode the count of the whole dataset.
    let elements = strides[0].checked_mul(dims[0].checked_add(1)?)?;
    (elements <= i64::MAX as u64).then_some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::logvol::flags::{ENC, MUL, REF};

    fn blocks(rank: usize, starts: &[u64], counts: &[u64]) -> Blocks {
        Blocks {
            rank,
            number: starts.len() / rank,
            starts: starts.to_vec(),
            counts: counts.to_vec(),
            elements: 1,
            list: None,
        }
    }

    fn dataset(id: u32, dims: &[u64], records: bool) -> DatasetInfo<'_> {
        DatasetInfo {
            id,
            dims,
            records,
            filtered: false,
        }
    }

    impl Section {
        fn i32_at(&self, at: usize) -> i32 {
            i32::from_le_bytes([0, 1, 2, 3].map(|i| self.bytes[at + i]))
        }

        fn flags_at(&self, entry: usize) -> i32 {
            self.i32_at(entry + 8)
        }
    }

    /// The example file of section 15 of the format page, entry by entry.
    #[test]
    fn the_example_of_the_format_page() {
        let mut section = Section::new(true, true);
        let a = blocks(2, &[0, 1, 2, 1], &[1, 3, 1, 3]);
        section.push(dataset(0, &[4, 10], false), &a, 0, 6);
        let record = |n| blocks(2, &[n, 2], &[1, 3]);
        section.push(dataset(1, &[2, 10], true), &record(0), 6, 6);
        section.push(dataset(1, &[2, 10], true), &record(1), 12, 6);
        section.set_base(2928);
        let words =
            |values: &[i64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let head = |size: i32, id: i32, flag: i32, offset: i64| {
            let ints = [size, id, flag];
            let mut bytes: Vec<u8> = ints.iter().flat_map(|v| v.to_le_bytes()).collect();
            bytes.extend(words(&[offset, 6]));
            bytes
        };
        let mut wanted = head(72, 0, 5, 2928);
        wanted.extend(2i32.to_le_bytes());
        wanted.extend(words(&[10, 1, 21, 13, 13]));
        wanted.extend(head(52, 1, 0x20, 2934));
        wanted.extend(words(&[0, 2, 3]));
        // The writer of the format page stores a reference here. This selection is too short for one of ours.
        wanted.extend(head(52, 1, 0x20, 2940));
        wanted.extend(words(&[1, 2, 3]));
        assert_eq!(section.pending(), wanted);
    }

    #[test]
    fn equal_selections_are_spelled_out_once() {
        let dims = [9, 50, 50];
        let mut section = Section::new(true, true);
        let write = |section: &mut Section, id, record, start: u64| {
            let b = blocks(3, &[record, start, 2], &[1, 5, 5]);
            let before = section.bytes().len();
            section.push(dataset(id, &dims, true), &b, 0, 25);
            (section.bytes().len() - before, section.flags_at(before))
        };
        assert_eq!(write(&mut section, 0, 0, 1), (68, REC));
        assert_eq!(write(&mut section, 1, 3, 1), (44, REC | REF));
        assert_eq!(write(&mut section, 0, 0, 2), (68, REC));
        section.set_flushed();
        // Selections are shared across flushes, too, because the closed file has one section.
        assert_eq!(write(&mut section, 2, 8, 2), (44, REC | REF));
        // A dataset without records never refers to one with records.
        let b = blocks(2, &[1, 2], &[5, 5]);
        let before = section.bytes().len();
        section.push(dataset(3, &[50, 50], false), &b, 0, 25);
        assert_eq!(section.flags_at(before), 0);
        let mut apart = Section::new(false, true);
        assert_eq!(write(&mut apart, 0, 0, 1), (68, REC));
        assert_eq!(write(&mut apart, 0, 1, 1), (68, REC));
    }

    /// Flushed entries leave the memory, and are still referred to: by a copy, or as they are in the file.
    #[test]
    fn selections_that_left_the_memory_are_shared() {
        let dims = [1 << 20];
        let scattered = |n: u64, first: u64| {
            let starts: Vec<u64> = (0..n).map(|i| first + 3 * i).collect();
            blocks(1, &starts, &vec![1; n as usize])
        };
        let push = |section: &mut Section, b: &Blocks| {
            section.push(dataset(0, &dims, false), b, 0, 1);
            let last = section.pending();
            i32::from_le_bytes([8, 9, 10, 11].map(|i| last[i])) & REF != 0
        };
        let mut data = tempfile::tempfile().unwrap();
        let mut section = Section::new(true, true);
        section.keep_in(Arc::new(data.try_clone().unwrap()));
        let mut kept = Section::new(true, true);
        let mut offset = 0;
        let all = [scattered(2, 0), scattered(500, 7), scattered(500, 8)];
        for (b, shared) in [
            (0, false),
            (1, false),
            (0, true),
            (2, false),
            (1, true),
            (2, true),
        ] {
            assert_eq!(push(&mut section, &all[b]), shared);
            kept.push(dataset(0, &dims, false), &all[b], 0, 1);
            std::io::Write::write_all(&mut data, section.pending()).unwrap();
            offset += section.pending().len() as u64;
            section.set_base(offset);
            section.set_flushed();
            assert!(section.bytes().is_empty());
        }
        assert_eq!(section.len(), kept.len());
        let in_file = section.in_file().unwrap();
        assert_eq!(in_file.len(), kept.len() as u64);
        // Without the file the selection is spelled out.
        data.set_len(0).unwrap();
        assert!(!push(&mut section, &all[1]));
    }

    #[test]
    fn only_what_every_reader_decodes_is_encoded() {
        let two = |count: u64| blocks(2, &[0, 0, 2, 0], &[1, count, 1, count]);
        let flag = |encode, dims: &[u64], b: &Blocks| {
            let mut section = Section::new(false, encode);
            section.push(dataset(0, dims, false), b, 0, 1);
            section.flags_at(0)
        };
        assert_eq!(flag(true, &[4, 10], &two(9)), MUL | ENC);
        assert_eq!(flag(true, &[4, 10], &two(10)), MUL | ENC);
        assert_eq!(flag(false, &[4, 10], &two(9)), MUL);
        assert_eq!(flag(true, &[1 << 40, 1 << 40], &two(9)), MUL);
        assert_eq!(flag(true, &[4], &blocks(1, &[0, 2], &[1, 1])), MUL);
    }

    #[test]
    fn entries_that_were_dropped_are_not_referred_to() {
        let dims = [9, 50, 50];
        let push = |section: &mut Section, start: u64| {
            let b = blocks(3, &[0, start, 2], &[1, 5, 5]);
            section.push(dataset(0, &dims, true), &b, 0, 25);
        };
        let mut section = Section::new(true, true);
        push(&mut section, 1);
        let len = section.len();
        push(&mut section, 2);
        section.truncate(len);
        let mut without = Section::new(true, true);
        push(&mut without, 1);
        for start in [1, 2] {
            push(&mut section, start);
            push(&mut without, start);
        }
        assert_eq!(section.pending(), without.pending());
    }

    #[test]
    fn places_can_change_until_the_flush_is_complete() {
        let mut section = Section::new(true, true);
        let b = blocks(1, &[0], &[4]);
        section.push(dataset(0, &[100], false), &b, 0, 4);
        section.set_base(1000);
        section.push(dataset(0, &[100], false), &b, 4, 4);
        section.set_base(2000);
        let offset = |at: usize| section.i32_at(at + 12);
        assert_eq!((offset(0), offset(44)), (2000, 2004));
    }
}
