//! Elements of a logged dataset, put together as in a view, but without a canonical file around them. This is for a
//! program that reads what it writes.

use std::sync::Arc;

use super::assemble::{Assembly, Decoded, copy_run, decode_record};
pub use super::assemble::{ElementForm, Unwritten};
use super::cache::Bytes;
use super::cache::lru::Cache;
use super::pieces::element_in_log;
use super::resolve::{BoxRecords, Overlap, Run};
use crate::index::DatasetIndex;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::model::{Block, Encoding, Record, StoredBytes};
use h5logfs_log::source_file::SourceFile;

/// The most elements that are put together at once, except where a chunk has more.
const AT_ONCE: u64 = 1 << 20;

/// A cache of decoded records of one dataset or several. It drops those that were used least recently.
#[derive(Debug)]
pub struct DecodedRecords(Cache<(StoredBytes, u64), Bytes>);

impl DecodedRecords {
    /// A cache of at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        DecodedRecords(Cache::new(capacity))
    }

    /// Drops the records of a source.
    pub fn forget(&self, source: u16) {
        self.0.remove_all(|(stored, _)| stored.source == source);
    }
}

/// The elements of one dataset of a log.
pub struct Elements<'a> {
    /// The task whose memory is used.
    pub task: &'a Task,
    /// The form of an element.
    pub form: ElementForm<'a>,
    /// The chunk shape, if records may be whole chunks.
    pub chunk: Option<&'a [u64]>,
    /// Indexes of the records. The records of a later index apply later.
    pub indexes: &'a [&'a DatasetIndex],
    /// The files of the log.
    pub sources: &'a [SourceFile],
    /// Data that lie in none of these files yet.
    pub unwritten: Option<Unwritten<'a>>,
    /// The cache of decoded records.
    pub decoded: &'a DecodedRecords,
}

/// The place of a box of elements in one piece of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Number of the source.
    pub source: u16,
    /// Offset of the first byte in the file of the source.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether the bytes went through the filters of the dataset.
    pub is_filtered: bool,
}

impl Elements<'_> {
    /// The place of a box of elements that lies in one piece of a file: as it is, or as a record that is the box after
    /// the filters of the dataset. `None` for any other box.
    pub fn place(&self, wanted: &Bounds) -> Option<Placed> {
        let sides: Vec<u64> = wanted.count().collect();
        let records = BoxRecords {
            indexes: self.indexes,
            bounds: wanted,
            sides: &sides,
        };
        let mut only = None;
        let covered = records.runs(self.task, |record, block, run| {
            if only.is_some() || record.fault.is_some() {
                return Err("several pieces".into());
            }
            only = Some(self.piece(wanted, record, block, run));
            Ok(())
        });
        only.flatten()
            .filter(|_| covered.is_ok_and(|covered| covered.missing() == 0))
    }

    /// The place of a run of a record that has all elements of a box.
    fn piece(
        &self,
        wanted: &Bounds,
        record: &Record<'_>,
        block: &Block<'_>,
        run: Run,
    ) -> Option<Placed> {
        let stored = record.stored;
        let source = self.sources.get(usize::from(stored.source))?;
        let (offset, len) = match stored.encoding {
            Encoding::Raw => {
                let size = self.form.size;
                let skipped = run.in_record.checked_mul(size)?;
                (
                    stored.offset.checked_add(skipped)?,
                    run.len.checked_mul(size)?,
                )
            }
            Encoding::Pipeline if is_all_of(record, block, wanted) => (stored.offset, stored.len),
            _ => return None,
        };
        Some(Placed {
            source: stored.source,
            offset: source.one_piece(offset, len)?,
            len,
            is_filtered: stored.encoding == Encoding::Pipeline,
        })
    }

    /// Fills `out` with the elements of a box, in row-major order. The box must not be empty, must lie within the
    /// extent, and must have as many elements as fit into `out`.
    pub fn read(&self, wanted: &Bounds, out: &mut [u8]) -> Result<(), Fault> {
        for index in self.indexes {
            index.check()?;
        }
        let sides: Vec<u64> = wanted.count().collect();
        self.read_part(wanted, wanted, &sides, out)
    }

    /// Reads a part of the box `whole`. A large part is cut in two. Where records may be whole chunks, the cut is a
    /// chunk boundary, so that few records lie in both halves.
    fn read_part(
        &self,
        part: &Bounds,
        whole: &Bounds,
        sides: &[u64],
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let elements: u64 = part.count().product();
        if elements > AT_ONCE
            && let Some((first, second)) = self.cut(part)
        {
            self.read_part(&first, whole, sides, out)?;
            return self.read_part(&second, whole, sides, out);
        }
        let count: Vec<u64> = part.count().collect();
        let block = Block {
            start: &part.start,
            count: &count,
            elements_before: 0,
        };
        let mut overlap = Overlap::new(sides, whole);
        let mut first = None;
        overlap.runs(&block, |run| {
            first = Some(run);
            false
        });
        let size = self.form.size;
        // A part whose elements follow each other in the box is put together in its place.
        if let Some(Run { in_chunk, len, .. }) = first.filter(|run| run.len == elements) {
            let range = (in_chunk * size) as usize..((in_chunk + len) * size) as usize;
            let out = out.get_mut(range).ok_or("a box larger than its buffer")?;
            return self.put(part, &count, out);
        }
        let mut reservation = self.task.reservation();
        let mut elements = reservation.filled((elements * size) as usize)?;
        self.put(part, &count, &mut elements)?;
        let mut copied = Ok(());
        overlap.runs(&block, |run| {
            copied = copy_run(&elements, out, run, size);
            copied.is_ok()
        });
        copied
    }

    /// The halves of a part. The cut goes through the first dimension with several chunks, or with several elements
    /// where records are no chunks.
    fn cut(&self, part: &Bounds) -> Option<(Bounds, Bounds)> {
        let chunk = self.chunk.filter(|_| !self.form.filters.is_empty());
        let unit = |d: usize| chunk.map_or(1, |chunk| chunk[d].max(1));
        let units = |d: usize| (part.start[d] / unit(d), (part.end[d] - 1) / unit(d));
        let d = (0..part.rank()).find(|d| units(*d).0 < units(*d).1)?;
        let (first, last) = units(d);
        let middle = (first + (last - first).div_ceil(2)) * unit(d);
        let (mut before, mut after) = (part.clone(), part.clone());
        before.end[d] = middle;
        after.start[d] = middle;
        Some((before, after))
    }

    /// Puts a part together in `out`.
    fn put(&self, part: &Bounds, sides: &[u64], out: &mut [u8]) -> Result<(), Fault> {
        let assembly = Assembly {
            task: self.task,
            form: self.form,
            sources: self.sources,
            unwritten: self.unwritten,
            addresses: &[],
            plans: None,
            decoded: &|record| self.decoded(record),
        };
        let records = BoxRecords {
            indexes: self.indexes,
            bounds: part,
            sides,
        };
        assembly.put(&records, out).map(drop)
    }

    fn decoded(&self, record: &Record<'_>) -> Decoded {
        let stored = record.stored;
        let raw = record
            .elements()
            .saturating_mul(element_in_log(record, self.form.size));
        self.decoded.0.get_or_make(self.task, &(stored, raw), || {
            let decoded = match self.unwritten.and_then(|unwritten| unwritten.of(&stored)) {
                Some(bytes) => self.decode(bytes?, raw)?,
                None => decode_record(self.task, self.sources, record, raw, self.form.filters)?,
            };
            Ok(Arc::new(decoded))
        })
    }

    /// Undoes the filters of bytes in memory.
    fn decode(&self, stored: &[u8], raw: u64) -> Result<Reserved<Vec<u8>>, Fault> {
        let filters = self.form.filters;
        let memory = filters::decoding_memory(stored.len() as u64, raw, filters);
        let mut reservation = self.task.reserve(memory)?;
        let decoded = filters::decode(stored, raw, filters)?;
        reservation.shrink_to(decoded.capacity() as u64);
        Ok(Reserved::new(decoded, reservation))
    }
}

/// Whether a block is exactly the box, and the only block of its record.
fn is_all_of(record: &Record<'_>, block: &Block<'_>, wanted: &Bounds) -> bool {
    record.selection.is_none()
        && block.start == wanted.start
        && block.count.iter().copied().eq(wanted.count())
}
