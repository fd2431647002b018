//! Reads many runs of elements into a chunk with few reads.

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

/// Pieces with a smaller gap than this many bytes between them are read at once.
pub(super) const GAP: u64 = 16 << 10;
/// The most bytes of one such read.
pub(super) const SPAN: u64 = 1 << 20;
/// Elements are converted this many bytes at a time.
const STEP: usize = 64 << 10;
/// The most pieces that are collected before they are read.
const BATCH: usize = if cfg!(test) { 300 } else { 1 << 18 };
/// The least number of pieces in [`SPAN`] bytes that are read at once.
const DENSE: usize = (SPAN / GAP) as usize;
/// The most stretches of [`GAP`] bytes between them that may be without a piece.
const EMPTY: u32 = 4;

/// Runs of elements that are stored one by one, to be read into a chunk. No two of them write the same bytes
/// of the chunk, so they can be read in the order in which they lie in the files.
pub struct Pieces<'a> {
    task: &'a Task,
    /// The memory of `lists`, `scratch` and `by_part`.
    reservation: Reservation,
    sources: &'a [SourceFile],
    /// Size of an element of the chunk, in bytes.
    element: u64,
    /// The conversions of all pieces, each once.
    conversions: Vec<Conversion>,
    /// The collected pieces.
    lists: Vec<(Way, Vec<Piece>)>,
    /// The places in `lists` of the pieces of each way, and of the last piece.
    numbers: BTreeMap<Way, usize>,
    last: usize,
    /// Number of pieces in all lists.
    collected: usize,
    scratch: Vec<u8>,
    /// The pieces of a list, as places in that list, sorted by the parts of the source in which they begin.
    by_part: Vec<u32>,
    /// The source files that pieces were read from.
    pub used: BTreeSet<usize>,
}

/// The source file of pieces, and the number of their conversion in [`Pieces::conversions`].
type Way = (u16, Option<u8>);

/// A run to be read. It is small, because there may be many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Offset in the source file, in bytes.
    offset: u64,
    /// Length in the source file, in bytes.
    stored: u32,
    /// The first element, counted from the start of the chunk.
    to: u32,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.stored.into())
    }
}

impl<'a> Pieces<'a> {
    pub fn new(task: &'a Task, sources: &'a [SourceFile], element: u64) -> Self {
        Pieces {
            task,
            reservation: task.reservation(),
            sources,
            element,
            conversions: Vec::new(),
            lists: Vec::new(),
            numbers: BTreeMap::new(),
            last: 0,
            collected: 0,
            scratch: Vec::new(),
            by_part: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    /// Adds a run of a record. The run is read now or later, so call [`Pieces::copy`] at the end.
    pub fn add(
        &mut self,
        record: &Record<'_>,
        run: Run,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        if let Some(constant) = record.conversion.and_then(Conversion::constant) {
            let place = run.in_chunk.checked_mul(self.element);
            let place = place.zip(run.len.checked_mul(self.element));
            let place = place.and_then(|(start, len)| range(start, len));
            let target = place.and_then(|place| chunk.get_mut(place));
            constant.fill(target.ok_or("a run outside the chunk")?);
            return Ok(());
        }
        let in_log = element_in_log(record, self.element);
        let (offset, stored) = place(record, run, in_log).ok_or("a piece past 2^64 bytes")?;
        let (Ok(len), Ok(to)) = (u32::try_from(stored), u32::try_from(run.in_chunk)) else {
            return self.copy_large(record, (offset, stored), run.in_chunk, chunk);
        };
        let piece = Piece {
            offset,
            stored: len,
            to,
        };
        let conversion = record.conversion.map(|c| self.number_of(c)).transpose();
        let way = (record.stored.source, conversion?);
        if self
            .lists
            .get(self.last)
            .is_none_or(|(last, _)| *last != way)
        {
            self.last = *self.numbers.entry(way).or_insert(self.lists.len());
            if self.last == self.lists.len() {
                self.lists.push((way, Vec::new()));
            }
        }
        self.reservation.push(&mut self.lists[self.last].1, piece)?;
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

    /// Reads all collected pieces into the chunk.
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
        match parts(list) {
            Some(parts) => self.copy_parts(source, conversion, (list, parts), chunk)?,
            None => {
                // Many lists are in descending order, which this sort reverses fast.
                list.sort_unstable_by_key(|piece| piece.offset);
                self.copy_sorted(source, conversion, list, chunk)?;
            }
        }
        list.clear();
        Ok(())
    }

    /// Reads pieces that are in the order of the source.
    fn copy_sorted(
        &mut self,
        source: &SourceFile,
        conversion: Option<Conversion>,
        mut pieces: &[Piece],
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        while !pieces.is_empty() {
            self.task.check()?;
            let (span, end) = span(pieces);
            let (now, later) = pieces.split_at(span);
            pieces = later;
            self.copy_near(source, conversion, now.iter(), now[0].offset..end, chunk)?;
        }
        Ok(())
    }

    /// Reads many pieces that lie in no order. The pieces of one part of the source are read at once, and copied in the
    /// order in which they came. This is the order of the chunk. It matters less in the bytes that were read, which a
    /// processor has in its caches.
    fn copy_parts(
        &mut self,
        source: &SourceFile,
        conversion: Option<Conversion>,
        (list, parts): (&[Piece], SourceParts),
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let mut by_part = std::mem::take(&mut self.by_part);
        by_part.clear();
        self.reservation.make_room(&mut by_part, list.len())?;
        let begins = parts.distribute(list, &mut by_part);
        let mut sorted = Vec::new();
        let mut memory = self.task.reservation();
        let ranges = begins.windows(2).map(|ends| ends[0]..ends[1]);
        for (range, is_dense) in ranges.zip(&parts.are_dense) {
            self.task.check()?;
            let now = &by_part[range];
            let pieces = now.iter().map(|place| &list[*place as usize]);
            let (begin, end) = pieces.clone().fold((u64::MAX, 0), |(begin, end), piece| {
                (begin.min(piece.offset), end.max(piece.end()))
            });
            if *is_dense && end.saturating_sub(begin) <= 2 * SPAN {
                self.copy_near(source, conversion, pieces, begin..end, chunk)?;
            } else {
                sorted.clear();
                memory.make_room(&mut sorted, now.len())?;
                sorted.extend(pieces.copied());
                sorted.sort_unstable_by_key(|piece| piece.offset);
                self.copy_sorted(source, conversion, &sorted, chunk)?;
            }
        }
        self.by_part = by_part;
        Ok(())
    }

    /// Reads pieces that lie in `bounds` of the source.
    fn copy_near<'p>(
        &mut self,
        source: &SourceFile,
        conversion: Option<Conversion>,
        mut pieces: impl ExactSizeIterator<Item = &'p Piece> + Clone,
        bounds: Range<u64>,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        // The bytes between the pieces may be missing from the file. Each piece is then read by itself.
        if pieces.len() > 1
            && self
                .copy_span(source, conversion, pieces.clone(), bounds, chunk)
                .is_ok()
        {
            return Ok(());
        }
        pieces.try_for_each(|one| self.copy_one(source, conversion, one, chunk))
    }

    fn copy_span<'p>(
        &mut self,
        source: &SourceFile,
        conversion: Option<Conversion>,
        pieces: impl Iterator<Item = &'p Piece>,
        bounds: Range<u64>,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let begin = bounds.start;
        let len = (bounds.end - begin) as usize;
        let more = len.saturating_sub(self.scratch.len());
        self.reservation.make_room(&mut self.scratch, more)?;
        let span = first_bytes(&mut self.scratch, len);
        source.read_exact_at(span, begin)?;
        let span = &*span;
        for piece in pieces {
            let stored = range(piece.offset - begin, piece.stored.into());
            let stored = stored.and_then(|range| span.get(range));
            let stored = stored.ok_or("a piece that was not read")?;
            let (to, len) = (piece.to.into(), piece.stored.into());
            let target = target(to, len, self.element, conversion, chunk)?;
            match conversion {
                Some(conversion) => conversion.convert(stored, target),
                None => target.copy_from_slice(stored),
            }
        }
        Ok(())
    }

    /// Reads one piece. The memory for it does not depend on its length.
    fn copy_one(
        &mut self,
        source: &SourceFile,
        conversion: Option<Conversion>,
        piece: &Piece,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let (to, len) = (piece.to.into(), piece.stored.into());
        let target = target(to, len, self.element, conversion, chunk)?;
        let read = read_elements(source, piece.offset, conversion, target, &mut self.scratch);
        read.map_err(Fault::from)
    }

    /// Reads a run that is too large for a [`Piece`], or that goes too far behind in the chunk.
    fn copy_large(
        &mut self,
        record: &Record<'_>,
        (offset, stored): (u64, u64),
        to: u64,
        chunk: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let conversion = record.conversion.copied();
        let source = usize::from(record.stored.source);
        self.used.insert(source);
        let target = target(to, stored, self.element, conversion, chunk)?;
        let source = &self.sources[source];
        let read = read_elements(source, offset, conversion, target, &mut self.scratch);
        read.map_err(Fault::from)
    }
}

/// A source cut into parts of [`SPAN`] bytes, from the first byte of a list of pieces on.
#[derive(Debug)]
struct SourceParts {
    begin: u64,
    /// For each part, whether its pieces are near each other throughout.
    are_dense: Vec<bool>,
}

impl SourceParts {
    fn part(&self, piece: &Piece) -> usize {
        ((piece.offset - self.begin) / SPAN) as usize
    }

    /// Puts the places of pieces in their list into `places`. They are sorted by the parts in which the pieces begin,
    /// and stay in the order of the list within a part. Returns where the places of each part begin, and where the last
    /// ones end.
    fn distribute(&self, list: &[Piece], places: &mut Vec<u32>) -> Vec<usize> {
        let number = self.are_dense.len();
        let mut begins = vec![0; number + 1];
        for piece in list {
            begins[self.part(piece) + 1] += 1;
        }
        for part in 0..number {
            begins[part + 1] += begins[part];
        }
        let mut next = begins.clone();
        places.resize(list.len(), 0);
        for (place, piece) in (0..).zip(list) {
            let next = &mut next[self.part(piece)];
            places[*next] = place;
            *next += 1;
        }
        begins
    }
}

/// The parts in which the pieces of a list begin. `None` where the list is in order, and where most parts would not be
/// read at once.
fn parts(list: &[Piece]) -> Option<SourceParts> {
    let offsets = || list.iter().map(|piece| piece.offset);
    if list.len() < DENSE || offsets().is_sorted() || offsets().rev().is_sorted() {
        return None;
    }
    let (begin, last) = offsets().fold((u64::MAX, 0), |(begin, last), offset| {
        (begin.min(offset), last.max(offset))
    });
    let number = usize::try_from((last - begin) / SPAN + 1).ok()?;
    if number > list.len() / DENSE {
        return None;
    }
    // A bit for each stretch of a part. A gap that is not worth reading leaves a stretch without pieces.
    let mut stretches = vec![0u64; number];
    for piece in list {
        let stretch = (piece.offset - begin) / GAP;
        stretches[(stretch / 64) as usize] |= 1 << (stretch % 64);
    }
    let is_dense = |stretches: &u64| {
        let all = match stretches.checked_ilog2() {
            Some(last) => last + 1 - stretches.trailing_zeros(),
            None => return false,
        };
        all - stretches.count_ones() <= EMPTY
    };
    let are_dense: Vec<bool> = stretches.iter().map(is_dense).collect();
    let dense = are_dense.iter().filter(|is_dense| **is_dense).count();
    (2 * dense > number).then_some(SourceParts { begin, are_dense })
}

// A part has as many stretches as a word has bits.
const _: () = assert!(SPAN / GAP == u64::BITS as u64);

/// Begin and length of a run's bytes in the source. An element has `in_log` bytes in the log. `None` past 2^64 bytes.
fn place(record: &Record<'_>, run: Run, in_log: u64) -> Option<(u64, u64)> {
    let start = run.in_record.checked_mul(in_log)?;
    let offset = record.stored.offset.checked_add(start)?;
    Some((offset, run.len.checked_mul(in_log)?))
}

/// Size of a record's elements in the log, in bytes. `element` is their size in the dataset.
pub fn element_in_log(record: &Record<'_>, element: u64) -> u64 {
    let conversion = record.conversion;
    conversion.map_or(element, |c| c.stored_size() as u64)
}

/// Fills `target`, which holds whole elements, with elements that follow each other in a source from byte `offset` on.
/// They are converted in steps that fit into the caches of a processor.
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
    if let Some(constant) = conversion.constant() {
        constant.fill(target);
        return Ok(());
    }
    let (from, to) = (conversion.stored_size(), conversion.shown_size());
    for target in target.chunks_mut((STEP / from).max(1) * to) {
        let stored = first_bytes(scratch, target.len() / to * from);
        source.read_exact_at(stored, offset)?;
        conversion.convert(stored, target);
        offset += stored.len() as u64;
    }
    Ok(())
}

/// The bytes of the chunk that a run fills. They begin with element `to`, and elements have `element` bytes. The run
/// has `stored` bytes in the source.
#[inline]
fn target(
    to: u64,
    stored: u64,
    element: u64,
    conversion: Option<Conversion>,
    chunk: &mut [u8],
) -> std::result::Result<&mut [u8], Fault> {
    let len = match conversion {
        None => Some(stored),
        Some(conversion) => {
            let elements = stored / conversion.stored_size() as u64;
            elements.checked_mul(conversion.shown_size() as u64)
        }
    };
    let target = len.zip(to.checked_mul(element));
    let target = target.and_then(|(len, start)| range(start, len));
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

/// The range of `len` bytes from `start` on. `None` past 2^64.
pub fn range(start: u64, len: u64) -> Option<Range<usize>> {
    Some(start as usize..start.checked_add(len)? as usize)
}

/// The number of first pieces that are read at once, and their end in the source file.
fn span(pieces: &[Piece]) -> (usize, u64) {
    let Some(first) = pieces.first() else {
        return (0, 0);
    };
    let mut end = first.end();
    let mut taken = 1;
    for piece in &pieces[1..] {
        let piece_end = piece.end();
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

    use h5logfs_log::model::{Encoding, StoredBytes};
    use h5logfs_log::source_dir::SourceDir;
    use proptest::prelude::*;

    fn record<'a>(start: &'a [u64], count: &'a [u64], offset: u64) -> Record<'a> {
        Record {
            start,
            count,
            selection: None,
            has_lead: false,
            stored: StoredBytes {
                source: 0,
                offset,
                len: count.iter().product(),
                encoding: Encoding::Raw,
            },
            conversion: None,
            part: None,
            fault: None,
        }
    }

    #[test]
    fn near_pieces_are_read_at_once_far_ones_are_not() {
        let piece = |offset, len| Piece {
            offset,
            stored: len as u32,
            to: 0,
        };
        let near = [piece(0, 10), piece(50, 10), piece(100, 10)];
        assert_eq!(span(&near), (3, 110));
        assert_eq!(span(&[piece(0, 10), piece(GAP + 11, 1)]).0, 1);
        assert_eq!(span(&[piece(0, 10), piece(10, SPAN)]).0, 1);
    }

    /// A block of the file between two pieces may never have been written.
    #[test]
    fn near_pieces_are_had_whatever_lies_between_them() {
        use h5logfs_log::arrangement::Arrangement;

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
            let run = Run {
                in_record: 0,
                in_chunk: to,
                len: 2,
            };
            pieces
                .add(&record(&[to], &[2], offset), run, &mut chunk)
                .unwrap();
        }
        assert_eq!(pieces.copy(&mut chunk), Ok(()));
        assert_eq!(&chunk, b"abcd");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Pieces in any order, near each other and far from each other.
        #[test]
        fn pieces_come_to_their_places(
            pieces in prop::collection::vec((0u64..3 << 20, 1u64..30), 0..1000),
            within in prop::sample::select(vec![3000u64, 1 << 20, 3 << 20]),
            (is_sorted, has_two_sources) in any::<(bool, bool)>(),
        ) {
            let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            let dir = tempfile::tempdir().unwrap();
            let log: Vec<u8> = (0..(3 << 20) + 60).map(byte).collect();
            std::fs::write(dir.path().join("log"), &log).unwrap();
            let held = SourceDir::open(dir.path()).unwrap();
            let sources = [(); 2].map(|()| SourceFile::open(&held, "log".as_ref()).unwrap());
            let mut pieces: Vec<_> = pieces.into_iter().map(|(at, len)| (at % within, len)).collect();
            if is_sorted {
                pieces.sort_unstable();
            }
            // Elements of two bytes.
            let all: u64 = pieces.iter().map(|(_, len)| 2 * len).sum();
            let (mut chunk, mut wanted) = (vec![0; all as usize], Vec::new());
            let task = Task::unlimited();
            let mut tested = Pieces::new(&task, &sources, 2);
            for (offset, len) in pieces {
                let run = Run { in_record: 0, in_chunk: wanted.len() as u64 / 2, len };
                wanted.extend_from_slice(&log[offset as usize..][..2 * len as usize]);
                let (start, count) = ([0], [len]);
                let mut record = record(&start, &count, offset);
                record.stored.source = u16::from(offset % 3 == 0 && has_two_sources);
                tested.add(&record, run, &mut chunk).unwrap();
            }
            tested.copy(&mut chunk).unwrap();
            prop_assert!(chunk == wanted);
        }
    }

    #[test]
    fn a_piece_is_small() {
        assert_eq!(size_of::<Piece>(), 16);
    }
}
