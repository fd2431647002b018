//! The records of `md.idx` (section 3.1).

use crate::header::Header;
use crate::model::{File, Place};
use crate::numbers::{self, Numbers};
use crate::{Bytes, Result};

/// Bytes of `md.idx` read at once during the walk. Most records are short; long ones are not read whole.
const WINDOW: u64 = 4096;

/// Bytes of `md.idx` kept in memory: the records of thousands of steps. A later record is read together with its step.
const KEPT: u64 = 1 << 20;

/// The largest number of steps, and of writer maps, kept; later ones are left out. Without this limit an index could
/// demand several times its size in memory.
const MOST: usize = 1 << 22;

/// Bytes of a record before its content: its type and its length.
const HEAD: u64 = 9;

/// The places of the records of all complete steps.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// The first bytes of `md.idx`.
    front: Vec<u8>,
    pub steps: Vec<StepRecord>,
    maps: Vec<MapRecord>,
    /// Bytes after the last complete record.
    pub rest: u64,
}

/// The record of a step. Its length is not checked yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepRecord {
    /// Offset of the record's content in `md.idx`.
    at: u64,
    /// Offset of the step's section in `md.0`.
    pub metadata: u64,
    /// Bytes of the section.
    pub size: u64,
    /// Number of entries of [`Records::maps`] before this step.
    maps: u32,
    /// Whether the record's type is that of a step.
    is_known: bool,
}

/// The place of the content of a writer map.
#[derive(Debug, Clone, Copy)]
struct MapRecord {
    at: u64,
    len: u64,
    writers: u64,
}

impl StepRecord {
    /// Whether an `md.0` of length `len` contains the section.
    pub fn is_below(&self, len: u64) -> bool {
        self.metadata
            .checked_add(self.size)
            .is_some_and(|end| end <= len)
    }
}

impl Records {
    /// Walks through `md.idx`. Ends before the first record that is not complete.
    pub fn read(index: &dyn Bytes, header: &Header) -> Result<Self> {
        let front = numbers::read(index, 0, index.len().min(KEPT), "md.idx")?;
        let mut window = Window::new(index, header.is_big_endian, &front);
        let mut records = Records::default();
        let (mut at, end) = (Header::LEN as u64, index.len());
        while let Some(content) = at.checked_add(HEAD).filter(|content| *content <= end) {
            let head = window.get(at, HEAD)?;
            let len = head.u64(1)?;
            let is_full = records.steps.len().max(records.maps.len()) >= MOST;
            if len > end - content || is_full {
                break;
            }
            let ty = head.bytes[0];
            match ty {
                b's' => records.push_step(&mut window, content, len, true)?,
                b'w' => records.maps.push(MapRecord {
                    at: content,
                    len,
                    writers: window.first(content, len, 0)?,
                }),
                // Later steps keep their numbers.
                _ if records.is_next_step(&mut window, content, len)? => {
                    records.push_step(&mut window, content, len, false)?;
                }
                _ => {}
            }
            at = content + len;
        }
        records.rest = end - at;
        records.front = front;
        Ok(records)
    }

    fn push_step(
        &mut self,
        window: &mut Window<'_>,
        at: u64,
        len: u64,
        is_known: bool,
    ) -> Result<()> {
        self.steps.push(StepRecord {
            at,
            metadata: window.first(at, len, 0)?,
            size: window.first(at, len, 8)?,
            maps: u32::try_from(self.maps.len())?,
            is_known,
        });
        Ok(())
    }

    /// Whether a record of an unknown type is a step with a damaged type: its metadata follows that of the step
    /// before.
    fn is_next_step(&self, window: &mut Window<'_>, at: u64, len: u64) -> Result<bool> {
        let before = self.steps.last();
        let end = before.map_or(0, |step| step.metadata.saturating_add(step.size));
        let is_long = len >= 3 * 8;
        Ok(is_long && window.first(at, len, 0)? == end && window.first(at, len, 8)? > 0)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.front.capacity()
            + self.steps.capacity() * size_of::<StepRecord>()
            + self.maps.capacity() * size_of::<MapRecord>()
    }

    /// The first step, and its number of writers; 0 if no writer map comes before it.
    pub fn first(&self) -> Option<(StepRecord, u64)> {
        let step = *self.steps.first()?;
        let map = (step.maps as usize).checked_sub(1);
        let map = map.and_then(|map| self.maps.get(map));
        Some((step, map.map_or(0, |map| map.writers)))
    }

    /// The largest number of writers.
    pub fn writers(&self) -> u64 {
        self.maps.iter().map(|map| map.writers).max().unwrap_or(0)
    }

    /// The places of the data of all writers of a step.
    pub fn places(&self, index: &dyn Bytes, header: &Header, step: &StepRecord) -> Result<Places> {
        if !step.is_known {
            return Err("md.idx: its record is of an unknown type".into());
        }
        let number = (step.maps as usize).checked_sub(1);
        let map = number.and_then(|number| self.maps.get(number));
        let map = map.ok_or("md.idx: no writer map comes before the step")?;
        let read = |at, len| self.words(index, header, at, len);
        let map = read(map.at, map.len)?;
        let writers = map.first().copied().unwrap_or(0);
        if writers.checked_add(3) != Some(map.len() as u64) || u32::try_from(writers).is_err() {
            return Err(
                "md.idx: the writer map has another length than its number of writers says".into(),
            );
        }
        let len = read(step.at - 8, 8)?.first().copied().unwrap_or(0);
        let row = read(step.at, len)?;
        let flushes = row.get(2).copied().unwrap_or(0);
        let expected = flushes
            .checked_mul(2)
            .and_then(|words| words.checked_add(1)?.checked_mul(writers)?.checked_add(3));
        if expected != Some(row.len() as u64) {
            return Err("md.idx: the record of the step has another length than its numbers of writers and flushes say".into());
        }
        Ok(Places {
            flushes: usize::try_from(flushes)?,
            files: map[3..].to_vec(),
            row: row[3..].to_vec(),
        })
    }

    /// A part of `md.idx` as numbers of 8 bytes.
    fn words(&self, index: &dyn Bytes, header: &Header, at: u64, len: u64) -> Result<Vec<u64>> {
        let words = |bytes| {
            let is_big_endian = header.is_big_endian;
            let numbers = Numbers {
                bytes,
                is_big_endian,
            };
            numbers.u64s().collect()
        };
        if let Some(bytes) = part_of(&self.front, at, len) {
            return Ok(words(bytes));
        }
        Ok(words(&numbers::read(index, at, len, "md.idx")?))
    }
}

/// `len` bytes from `at`; `None` if some are missing.
fn part_of(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
    bytes.get(at..at.checked_add(len)?)
}

/// The places of the data of one step's writers.
#[derive(Debug)]
pub(super) struct Places {
    /// Flushes before the last write.
    flushes: usize,
    /// The file of each writer.
    files: Vec<u64>,
    /// For each writer: the position and length of each flush, then the position of the last write.
    row: Vec<u64>,
}

impl Places {
    /// Number of writers, below 2^32.
    pub fn writers(&self) -> usize {
        self.files.len()
    }

    /// The places of the data of a writer.
    pub fn of_writer(&self, writer: usize) -> WriterPlaces<'_> {
        let words = 2 * self.flushes + 1;
        let row = &self.row[writer * words..][..words];
        let (flushes, _) = row.as_chunks();
        let mut end = 0u64;
        let ends = flushes.iter().map(|[_, size]| {
            end = end.saturating_add(*size);
            end
        });
        WriterPlaces {
            file: self.files[writer],
            ends: ends.collect(),
            flushes,
            last: row[words - 1],
        }
    }
}

/// The places of the data of one writer of one step.
#[derive(Debug)]
pub(super) struct WriterPlaces<'a> {
    file: u64,
    /// Position and size of each flush.
    flushes: &'a [[u64; 2]],
    /// Bytes of the writer's data up to the end of each flush.
    ends: Vec<u64>,
    /// Position of the bytes that no flush wrote.
    last: u64,
}

impl WriterPlaces<'_> {
    /// Whether the data was written in several parts.
    pub fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// The place of the `len` bytes at `location` in the writer's data of this step. They lie within one flush.
    pub fn of(&self, location: u64, len: u64) -> Result<Place> {
        let flush = self.ends.partition_point(|end| *end <= location);
        let begin = flush.checked_sub(1).map_or(0, |before| self.ends[before]);
        let (position, size) = match self.flushes.get(flush) {
            Some([position, size]) => (*position, *size),
            None => (self.last, u64::MAX),
        };
        let within = location - begin;
        let is_inside = within.checked_add(len).is_some_and(|end| end <= size);
        let offset = position.checked_add(within).filter(|_| is_inside);
        let offset = offset.filter(|offset| offset.checked_add(len).is_some());
        Ok(Place {
            file: File::Data(u32::try_from(self.file)?),
            offset: offset.ok_or_else(|| {
                format!("the block at byte {location} lies outside of the writer's data")
            })?,
            len,
        })
    }
}

/// A part of `md.idx`, read at once.
struct Window<'a> {
    index: &'a dyn Bytes,
    is_big_endian: bool,
    /// The first bytes of the file.
    front: &'a [u8],
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(index: &'a dyn Bytes, is_big_endian: bool, front: &'a [u8]) -> Self {
        Window {
            index,
            is_big_endian,
            front,
            at: 0,
            bytes: Vec::new(),
        }
    }

    /// The `len` bytes from `at`. The caller knows that the file has them.
    fn get(&mut self, at: u64, len: u64) -> Result<Numbers<'_>> {
        if let Some(bytes) = part_of(self.front, at, len) {
            let is_big_endian = self.is_big_endian;
            return Ok(Numbers {
                bytes,
                is_big_endian,
            });
        }
        let is_here = at >= self.at && at + len <= self.at + self.bytes.len() as u64;
        if !is_here {
            let len = WINDOW.min(self.index.len().saturating_sub(at));
            self.bytes = numbers::read(self.index, at, len, "md.idx")?;
            self.at = at;
        }
        let numbers = Numbers {
            bytes: &self.bytes,
            is_big_endian: self.is_big_endian,
        };
        numbers.part(at - self.at, len)
    }

    /// The number at offset `within` of a record's content, which is `len` bytes at `at`; 0 where the content is too
    /// short.
    fn first(&mut self, at: u64, len: u64, within: u64) -> Result<u64> {
        if len < within + 8 {
            return Ok(0);
        }
        self.get(at + within, 8)?.u64(0)
    }
}
