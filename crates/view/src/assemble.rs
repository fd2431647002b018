//! Makes a chunk: first the fill value, then the elements of its records.

use std::collections::BTreeSet;

use super::bitmap::CoverageBitmap;
use super::cache::Bytes;
use super::pieces::{Pieces, range};
use super::plan::{Plans, Touching};
use super::resolve::{BoxRecords, ChunkResolver, Run};
use h5logfs_common::buffers::zeroed;
use h5logfs_common::error::Result;
use h5logfs_common::fault::{Fault, Shortage};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::deflate::{DEFLATE_PIECES, inflate, inflate_in, inflate_stream};
use h5logfs_hdf5_format::filters::{self, Filter};
use h5logfs_log::conversion::Conversion;
use h5logfs_log::model::{Encoding, Record, StoredBytes};
use h5logfs_log::operator;
use h5logfs_log::snapshot::Dataset;
use h5logfs_log::source_file::SourceFile;

/// The elements of a record as bytes, or the reason why they are not available.
pub type Decoded = Result<Bytes, Fault>;

/// The form of a dataset's elements.
#[derive(Debug, Clone, Copy)]
pub struct ElementForm<'a> {
    /// Size of an element in bytes.
    pub size: u64,
    /// One element of fill value. No bytes stand for zeros.
    pub fill: &'a [u8],
    /// Filters of the dataset's chunks.
    pub filters: &'a [Filter],
    /// Offsets of the object references in an element.
    pub references: &'a [u64],
}

impl<'a> ElementForm<'a> {
    /// The form of the elements of a view's dataset.
    pub(super) fn of(dataset: &'a Dataset) -> Self {
        ElementForm {
            size: dataset.element_size,
            fill: &dataset.fill,
            filters: &dataset.filters,
            references: &dataset.references,
        }
    }
}

/// Data of records that lie in memory, and in no file yet.
#[derive(Debug, Clone, Copy)]
pub struct Unwritten<'a> {
    /// Number of the source that these records name.
    pub source: u16,
    /// Offset of the first byte in that source.
    pub offset: u64,
    /// The bytes from that offset on.
    pub bytes: &'a [u8],
}

impl<'a> Unwritten<'a> {
    /// The stored bytes of a record. `None` where they lie in a file.
    pub(super) fn of(&self, stored: &StoredBytes) -> Option<Result<&'a [u8], Fault>> {
        let find = || {
            let start = stored.offset.checked_sub(self.offset)?;
            self.bytes.get(range(start, stored.len)?)
        };
        let missing = || format!("{} bytes at {} in memory", stored.len, stored.offset);
        (stored.source == self.source).then(|| Ok(find().ok_or_else(missing)?))
    }
}

/// Everything that it takes to make a chunk.
pub struct Assembly<'a> {
    pub task: &'a Task,
    pub form: ElementForm<'a>,
    pub sources: &'a [SourceFile],
    /// Data of records that lie in no file yet, if there are such records.
    pub unwritten: Option<Unwritten<'a>>,
    pub addresses: &'a [(u64, u64)],
    /// Plans of the view, if the chunk may use them.
    pub plans: Option<Plans<'a>>,
    /// Decodes a record that is not stored raw.
    pub decoded: &'a dyn Fn(&Record<'_>) -> Decoded,
}

impl Assembly<'_> {
    /// Makes a chunk. Returns its elements in row-major order, before filters, and the source files that they were read
    /// from.
    pub fn raw_chunk(
        &self,
        resolver: &ChunkResolver<'_>,
    ) -> Result<(Reserved<Vec<u8>>, BTreeSet<usize>), Fault> {
        let (mut chunk, mut reservation) = self.memory(resolver.place.raw)?.into_parts();
        let indexes = [resolver.index];
        let records = resolver.records(&indexes);
        let sources = match self.planned(&records, &mut chunk)? {
            Some(sources) => sources,
            None => self.put(&records, &mut chunk)?,
        };
        reservation.shrink_to(chunk.capacity() as u64);
        Ok((Reserved::new(chunk, reservation), sources))
    }

    /// Memory of any content for a chunk.
    fn memory(&self, bytes: u64) -> Result<Reserved<Vec<u8>>, Shortage> {
        let len = bytes as usize;
        match self.plans {
            Some(plans) => plans.budget.scratch().chunk(self.task, len),
            None => {
                let reservation = self.task.reserve(bytes)?;
                Ok(Reserved::new(zeroed(len)?, reservation))
            }
        }
    }

    /// Makes a box of elements in memory of any content, by a plan where there is one. Returns the source files that
    /// the elements were read from.
    pub fn fill_box(
        &self,
        records: &BoxRecords<'_>,
        out: &mut [u8],
    ) -> Result<BTreeSet<usize>, Fault> {
        match self.planned(records, out)? {
            Some(sources) => Ok(sources),
            None => self.put(records, out),
        }
    }

    /// Makes a chunk by a plan that other chunks use, too. `None` where there is no plan, and then the chunk may have
    /// any content.
    fn planned(
        &self,
        records: &BoxRecords<'_>,
        chunk: &mut [u8],
    ) -> Result<Option<BTreeSet<usize>>, Fault> {
        let Some(plans) = self.plans else {
            return Ok(None);
        };
        let Some(touching) = Touching::of(records) else {
            return Ok(None);
        };
        let task = self.task;
        let plan = match plans.of(task, records, &touching) {
            Ok(Some(plan)) => plan,
            Err(stopped @ Fault::Stopped(_)) => return Err(stopped),
            // There may be too little memory for a plan, and enough for the chunk.
            Ok(None) | Err(_) => return Ok(None),
        };
        if !plan.is_whole() {
            match &touching.below {
                Some(constant) => constant.fill(chunk),
                None => fill(chunk, self.form.fill),
            }
        }
        let (size, scratch) = (self.form.size, plans.budget.scratch());
        let applied = plan.apply(task, &touching, self.sources, size, scratch, chunk);
        let sources = match applied {
            Ok(sources) => sources,
            Err(fault) if fault.ends_work() => return Err(fault),
            // Spans that cannot be read at once may be readable piece by piece.
            Err(_) => return Ok(None),
        };
        self.translate_references(chunk);
        Ok(Some(sources))
    }

    /// Makes a box of elements in `chunk`, which may have any content. Returns the source files that the elements were
    /// read from.
    pub fn put(
        &self,
        records: &BoxRecords<'_>,
        chunk: &mut [u8],
    ) -> Result<BTreeSet<usize>, Fault> {
        if let Some(sources) = self.put_apart(records, chunk)? {
            self.translate_references(chunk);
            return Ok(sources);
        }
        let mut sources = BTreeSet::new();
        // The last record that was decoded. Its key includes the number of elements, because a damaged log may have
        // several records in one place.
        let mut last: Option<((StoredBytes, u64), Bytes)> = None;
        let element = self.form.size;
        let mut pieces = Pieces::new(self.task, self.sources, element);
        let covered = records.runs(self.task, |record, _, run| {
            if let Some(reason) = record.fault {
                return Err(reason.into());
            }
            let stored = record.stored;
            if matches!(stored.encoding, Encoding::Raw | Encoding::Converted) {
                return match self.unwritten.and_then(|unwritten| unwritten.of(&stored)) {
                    Some(bytes) => copy_run(bytes?, chunk, run, element),
                    None => pieces.add(record, run, chunk),
                };
            }
            // A run that is a whole record is decoded in its place.
            let is_whole = run.in_record == 0 && run.len == record.elements();
            if self.unwritten.is_none() && is_whole && record.conversion.is_none() {
                let whole = range(run.in_chunk * element, run.len * element);
                let whole = whole.and_then(|range| chunk.get_mut(range));
                let whole = whole.ok_or("a record outside the chunk")?;
                sources.insert(usize::from(stored.source));
                return self.decode_whole(record, whole);
            }
            let bytes = match &last {
                Some((same, bytes)) if *same == (stored, record.elements()) => bytes,
                _ => {
                    sources.insert(usize::from(stored.source));
                    let bytes = (self.decoded)(record)?;
                    &last.insert(((stored, record.elements()), bytes)).1
                }
            };
            match record.conversion {
                None => copy_run(bytes, chunk, run, element),
                Some(conversion) => convert_run(bytes, chunk, run, conversion),
            }
        })?;
        pieces.copy(chunk)?;
        sources.extend(pieces.used);
        self.fill_gaps(records, &covered, chunk);
        self.translate_references(chunk);
        Ok(sources)
    }

    /// Puts the elements of records into `chunk` in the fastest order. `None` where the order matters, and where a
    /// record cannot be read that a later one may hide. [`Assembly::put`] then puts all of them once more.
    fn put_apart(
        &self,
        records: &BoxRecords<'_>,
        chunk: &mut [u8],
    ) -> Result<Option<BTreeSet<usize>>, Fault> {
        if self.unwritten.is_some() || !records.may_be_apart() {
            return Ok(None);
        }
        let mut pieces = Pieces::new(self.task, self.sources, self.form.size);
        let found = records.runs_apart(self.task, |record, run| {
            let is_raw = matches!(record.stored.encoding, Encoding::Raw | Encoding::Converted);
            if !is_raw || record.fault.is_some() {
                return Err("a record that is not read as it lies".into());
            }
            pieces.add(record, run, chunk)
        });
        match found.and_then(|covered| pieces.copy(chunk).map(|()| covered)) {
            Ok(covered) => {
                self.fill_gaps(records, &covered, chunk);
                Ok(Some(pieces.used))
            }
            Err(fault) if fault.ends_work() => Err(fault),
            Err(_) => Ok(None),
        }
    }

    /// Decodes the elements of a record into `out`, which has their length.
    fn decode_whole(&self, record: &Record<'_>, out: &mut [u8]) -> Result<(), Fault> {
        let (task, filters, stored) = (self.task, self.form.filters, record.stored);
        match stored.encoding {
            Encoding::Part => read_part(task, self.sources, record, out),
            Encoding::Pipeline => {
                let raw = out.len() as u64;
                let _reserved = task.reserve(filters::decoding_memory(stored.len, raw, filters))?;
                let bytes = stored_bytes(task, self.sources, stored)?;
                filters::decode_in(&bytes, filters, out)
            }
            Encoding::Deflate => inflate_in(&stored_bytes(task, self.sources, stored)?, out),
            Encoding::Operator => {
                let bytes = stored_words(task, self.sources, stored)?;
                let _reserved = task.reserve(operator::memory(&bytes, out.len() as u64))?;
                operator::decode(&bytes, out)
            }
            _ => {
                let raw = out.len() as u64;
                let bytes = decode_record(task, self.sources, record, raw, filters)?;
                out.copy_from_slice(
                    bytes
                        .get(..out.len())
                        .ok_or("a record shorter than its selection")?,
                );
                Ok(())
            }
        }
    }

    /// Puts the fill value where no record has written.
    fn fill_gaps(&self, records: &BoxRecords<'_>, covered: &CoverageBitmap, chunk: &mut [u8]) {
        let elements = records.sides.iter().product();
        let size = self.form.size as usize;
        covered.gaps(elements, |start, end| {
            fill(
                &mut chunk[start as usize * size..end as usize * size],
                self.form.fill,
            );
        });
    }

    /// Translates object references from addresses of the log file to addresses of the canonical file.
    fn translate_references(&self, chunk: &mut [u8]) {
        if self.form.references.is_empty() {
            return;
        }
        for element in chunk.chunks_exact_mut(self.form.size as usize) {
            for &offset in self.form.references {
                translate_reference(&mut element[offset as usize..], self.addresses);
            }
        }
    }
}

/// Translates the 8-byte address at the start. An address of no object becomes the null reference.
fn translate_reference(bytes: &mut [u8], addresses: &[(u64, u64)]) {
    let Some(bytes) = bytes.first_chunk_mut::<8>() else {
        return;
    };
    let old = u64::from_le_bytes(*bytes);
    let new = addresses
        .binary_search_by_key(&old, |(from, _)| *from)
        .map_or(0, |i| addresses[i].1);
    *bytes = new.to_le_bytes();
}

/// Fills a chunk, or a part of it, with the fill value. No bytes stand for zeros.
pub(super) fn fill(chunk: &mut [u8], fill: &[u8]) {
    if fill.iter().all(|b| *b == 0) {
        return chunk.fill(0);
    }
    for element in chunk.chunks_exact_mut(fill.len()) {
        element.copy_from_slice(fill);
    }
}

/// Copies a run from a record's bytes to its place in the chunk.
pub(super) fn copy_run(from: &[u8], to: &mut [u8], run: Run, element: u64) -> Result<(), Fault> {
    let (source, target) = of_run(from, to, run, (element, element))?;
    target.copy_from_slice(source);
    Ok(())
}

/// Converts a run of a record's elements to its place in the chunk.
fn convert_run(from: &[u8], to: &mut [u8], run: Run, conversion: &Conversion) -> Result<(), Fault> {
    let sizes = (
        conversion.stored_size() as u64,
        conversion.shown_size() as u64,
    );
    let (source, target) = of_run(from, to, run, sizes)?;
    conversion.convert(source, target);
    Ok(())
}

/// The bytes of a run in a record and in a chunk, which have elements of these sizes.
fn of_run<'a>(
    from: &'a [u8],
    to: &'a mut [u8],
    run: Run,
    (stored, shown): (u64, u64),
) -> Result<(&'a [u8], &'a mut [u8]), Fault> {
    let part = |start: u64, size: u64| {
        let start = start.checked_mul(size)?;
        range(start, run.len.checked_mul(size)?)
    };
    let source = part(run.in_record, stored).and_then(|range| from.get(range));
    let target = part(run.in_chunk, shown).and_then(|range| to.get_mut(range));
    let both = source.zip(target);
    Ok(both.ok_or("a record shorter than its selection")?)
}

/// Reads the stored bytes of a record, without decoding them.
pub fn stored_bytes(
    task: &Task,
    sources: &[SourceFile],
    stored: StoredBytes,
) -> Result<Reserved<Vec<u8>>, Fault> {
    bytes_in(task, sources, stored, stored.len)
}

/// The stored bytes of a record that an operator made, with zeros up to whole words: see [`operator::WORD`].
fn stored_words(
    task: &Task,
    sources: &[SourceFile],
    stored: StoredBytes,
) -> Result<Reserved<Vec<u8>>, Fault> {
    let word = operator::WORD as u64;
    let len = stored.len.checked_next_multiple_of(word);
    let len = len.and_then(|len| len.checked_add(word));
    bytes_in(task, sources, stored, len.unwrap_or(stored.len))
}

/// Reads the stored bytes of a record into memory of `len` bytes. Zeros follow them.
fn bytes_in(
    task: &Task,
    sources: &[SourceFile],
    stored: StoredBytes,
    len: u64,
) -> Result<Reserved<Vec<u8>>, Fault> {
    let reservation = task.reserve(len)?;
    let mut bytes = zeroed(len as usize)?;
    let own = &mut bytes[..stored.len as usize];
    sources[usize::from(stored.source)].read_exact_at(own, stored.offset)?;
    Ok(Reserved::new(bytes, reservation))
}

/// Reads the elements of a record that has a part of a stored array into `out`, which has their length.
fn read_part(
    task: &Task,
    sources: &[SourceFile],
    record: &Record<'_>,
    out: &mut [u8],
) -> Result<(), Fault> {
    let part = record.part.ok_or("a record without its part")?;
    let needed = part.needed(record, out.len())?;
    let bytes = stored_bytes(task, sources, needed.stored)?;
    let _reserved = task.reserve(part.memory(&needed))?;
    part.copy(&needed, &bytes, record.count, out)
}

/// Decodes the stored bytes of a record to `raw` bytes of elements.
pub fn decode_record(
    task: &Task,
    sources: &[SourceFile],
    record: &Record<'_>,
    raw: u64,
    filters: &[Filter],
) -> Result<Reserved<Vec<u8>>, Fault> {
    let stored = record.stored;
    if stored.encoding == Encoding::Part {
        let reservation = task.reserve(raw)?;
        let mut elements = zeroed(usize::try_from(raw)?)?;
        read_part(task, sources, record, &mut elements)?;
        return Ok(Reserved::new(elements, reservation));
    }
    let source = &sources[usize::from(stored.source)];
    if stored.encoding == Encoding::DeflateStream {
        // The stream is read in pieces.
        let mut reservation = task.reserve(raw.saturating_add(DEFLATE_PIECES))?;
        let bytes = inflate_stream(
            source,
            |at| source.contiguous(at),
            stored.offset,
            stored.len,
            raw,
        )
        .map_err(|e| e.at(format_args!("data at byte {} of the log", stored.offset)))?;
        reservation.shrink_to(bytes.capacity() as u64);
        return Ok(Reserved::new(bytes, reservation));
    }
    let bytes = match stored.encoding {
        Encoding::Operator => stored_words(task, sources, stored)?,
        _ => stored_bytes(task, sources, stored)?,
    };
    let (bytes, mut reservation) = bytes.into_parts();
    let decoded = match stored.encoding {
        Encoding::Deflate | Encoding::DeflateStream | Encoding::DeflateStreams => {
            reservation.grow(raw)?;
            inflate(&bytes, raw)?
        }
        // A zlib stream starts with 0x78 (RFC 1950, with the usual window of 32 KiB).
        Encoding::RawOrDeflate if bytes.first() == Some(&0x78) => {
            reservation.grow(raw)?;
            inflate(&bytes, raw).unwrap_or(bytes)
        }
        // Elements of another type are converted when they are copied.
        Encoding::Raw | Encoding::RawOrDeflate | Encoding::Converted => bytes,
        Encoding::Pipeline => {
            reservation.grow(filters::decoding_memory(stored.len, raw, filters))?;
            filters::decode(&bytes, raw, filters)?
        }
        Encoding::Operator => {
            reservation.grow(raw.saturating_add(operator::memory(&bytes, raw)))?;
            let mut elements = zeroed(usize::try_from(raw)?)?;
            operator::decode(&bytes, &mut elements)?;
            elements
        }
        Encoding::Part => unreachable!("it was read above"),
    };
    reservation.shrink_to(decoded.capacity() as u64);
    Ok(Reserved::new(decoded, reservation))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::index::DatasetIndex;
    use h5logfs_log::DatasetRecords;
    use h5logfs_log::boxes::Bounds;
    use h5logfs_log::part::Part;
    use h5logfs_log::records::RecordList;
    use h5logfs_log::source_dir::SourceDir;

    /// An index of records of one block each, at these places of a row of 3,000 elements of a byte.
    fn index_of(task: &Task, blocks: &[(u64, u64)]) -> DatasetIndex {
        let mut records = RecordList::new(task, 1, blocks.len()).unwrap();
        let mut offset = 0;
        for (order, (start, count)) in (0..).zip(blocks) {
            let stored = StoredBytes {
                source: 0,
                offset,
                len: *count,
                encoding: Encoding::Raw,
            };
            records
                .push_block(stored, order, &[*start], &[*count])
                .unwrap();
            offset += count + 1;
        }
        records.put_in_order().unwrap();
        let found = DatasetRecords {
            records,
            diagnostics: Vec::new(),
            decoded: 0,
        };
        DatasetIndex::of(task, found, &[]).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Blocks that tile a row, in any order, and some that overlap them.
        #[test]
        fn the_last_record_wins_in_whatever_order_they_are_stored(
            tiles in Just((0..600).collect::<Vec<u64>>()).prop_shuffle(),
            over in prop::collection::vec((0usize..600, 0u64..2990, 1u64..10), 0..3),
            (start, len) in (0u64..2000, 1u64..1000),
        ) {
            let mut blocks: Vec<(u64, u64)> = tiles.iter().map(|tile| (tile * 5, 4)).collect();
            for (at, start, count) in over {
                blocks.insert(at, (start, count));
            }
            let log: Vec<u8> = (0..6000u32).map(|n| (n * 31 % 251 + 1) as u8).collect();
            let (mut wanted, mut offset) = (vec![0; 3000], 0);
            for (start, count) in &blocks {
                for element in *start..start + count {
                    wanted[element as usize] = log[offset];
                    offset += 1;
                }
                offset += 1;
            }
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("log"), &log).unwrap();
            let held = SourceDir::open(dir.path()).unwrap();
            let sources = [SourceFile::open(&held, "log".as_ref()).unwrap()];
            let task = Task::unlimited();
            let index = index_of(&task, &blocks);
            // The test needs records out of order.
            prop_assert!(!index.is_in_order());
            let assembly = Assembly {
                task: &task,
                form: ElementForm { size: 1, fill: &[], filters: &[], references: &[] },
                sources: &sources,
                unwritten: None,
                addresses: &[],
                plans: None,
                decoded: &|_| Err("not raw".into()),
            };
            let bounds = Bounds { start: vec![start], end: vec![start + len] };
            let indexes = [&index];
            let records = BoxRecords { indexes: &indexes, bounds: &bounds, sides: &[len] };
            let mut chunk = vec![0; len as usize];
            assembly.put(&records, &mut chunk).unwrap();
            prop_assert_eq!(&chunk, &wanted[start as usize..(start + len) as usize]);
        }
    }

    /// A record has the middle of an array, with filters and without.
    #[test]
    fn a_part_of_an_array_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let array: Vec<u8> = (0..2 * 4 * 5).collect();
        let pipeline = [Filter {
            id: filters::DEFLATE,
            flags: 0,
            values: vec![1],
        }];
        let stored = filters::compress(&array, &pipeline).unwrap();
        std::fs::write(dir.path().join("log"), [&array[..], &stored].concat()).unwrap();
        let held = SourceDir::open(dir.path()).unwrap();
        let sources = [SourceFile::open(&held, "log".as_ref()).unwrap()];
        let task = Task::unlimited();
        let places = [
            (0, array.len(), &[][..]),
            (array.len(), stored.len(), &pipeline),
        ];
        for (offset, len, filters) in places {
            let stored = StoredBytes {
                source: 0,
                offset: offset as u64,
                len: len as u64,
                encoding: Encoding::Part,
            };
            let part = |sides: &[u64]| Part {
                sides: sides.to_vec(),
                start: vec![0, 1, 2],
                filters: filters.to_vec(),
            };
            let count = [2, 2, 3];
            let mut records = RecordList::new(&task, 3, 2).unwrap();
            for sides in [[2, 4, 5], [2, 4, 4]] {
                records
                    .push_part(stored, 0, (&[0; 3], &count), &part(&sides))
                    .unwrap();
            }
            let mut cells = Vec::new();
            let decoded = decode_record(&task, &sources, &records.get(0, &mut cells), 12, &[]);
            let wanted = [7, 8, 9, 12, 13, 14, 27, 28, 29, 32, 33, 34];
            assert_eq!(**decoded.unwrap(), wanted);
            // Three elements from the third on are beyond a side of four.
            let fault = decode_record(&task, &sources, &records.get(1, &mut cells), 12, &[]);
            assert!(fault.unwrap_err().to_string().contains("beyond its array"));
        }
    }

    /// Decodes the block of an operator, whole and in part.
    #[test]
    fn a_block_of_an_operator_is_decoded() {
        let dir = tempfile::tempdir().unwrap();
        let header = |operator| [&[operator, 1, 0, 0][..], &6_u64.to_le_bytes()].concat();
        let log = [header(127), b"abcdef".to_vec(), header(7), vec![0; 6]].concat();
        std::fs::write(dir.path().join("log"), &log).unwrap();
        let held = SourceDir::open(dir.path()).unwrap();
        let sources = [SourceFile::open(&held, "log".as_ref()).unwrap()];
        let task = Task::unlimited();
        let stored = |offset| StoredBytes {
            source: 0,
            offset,
            len: 18,
            encoding: Encoding::Operator,
        };
        let mut records = RecordList::new(&task, 1, 2).unwrap();
        records.push_block(stored(0), 0, &[2], &[6]).unwrap();
        records.push_block(stored(18), 1, &[50], &[6]).unwrap();
        let mut cells = Vec::new();
        let mut decode =
            |number| decode_record(&task, &sources, &records.get(number, &mut cells), 6, &[]);
        assert_eq!(**decode(0).unwrap(), *b"abcdef");
        let fault = decode(1).unwrap_err();
        assert!(fault.to_string().contains("operator zfp"), "{fault}");

        let found = DatasetRecords {
            records,
            diagnostics: Vec::new(),
            decoded: 0,
        };
        let index = DatasetIndex::of(&task, found, &[]).unwrap();
        let assembly = Assembly {
            task: &task,
            form: ElementForm {
                size: 1,
                fill: b".",
                filters: &[],
                references: &[],
            },
            sources: &sources,
            unwritten: None,
            addresses: &[],
            plans: None,
            decoded: &|record| {
                decode_record(&task, &sources, record, 6, &[])
                    .map(|bytes| Arc::new(bytes.unowned()))
            },
        };
        let put = |start, end| {
            let bounds = Bounds {
                start: vec![start],
                end: vec![end],
            };
            let records = BoxRecords {
                indexes: &[&index],
                bounds: &bounds,
                sides: &[end - start],
            };
            let mut chunk = vec![0; (end - start) as usize];
            assembly.put(&records, &mut chunk).unwrap();
            String::from_utf8(chunk).unwrap()
        };
        assert_eq!(put(0, 10), "..abcdef..");
        assert_eq!(put(4, 6), "cd");
    }

    #[test]
    fn fill_values_repeat() {
        let filled = |len, value: &[u8]| {
            let mut chunk = vec![7; len];
            fill(&mut chunk, value);
            chunk
        };
        assert_eq!(filled(6, &[1, 2]), [1, 2, 1, 2, 1, 2]);
        assert_eq!(filled(3, &[]), [0, 0, 0]);
    }

    #[test]
    fn references_of_no_object_become_null() {
        let mut bytes = [7, 0, 0, 0, 0, 0, 0, 0, 9];
        translate_reference(&mut bytes, &[(7, 800)]);
        assert_eq!(bytes, [0x20, 3, 0, 0, 0, 0, 0, 0, 9]);
        translate_reference(&mut bytes, &[(7, 800)]);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 9]);
    }
}
