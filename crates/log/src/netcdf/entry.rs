//! Reads an entry of a metadata log, and checks it by the rules of sections 2.3 to 2.5.

use super::Variable;
use super::metadata::{ByteOrder, EntryError, LEAST_ENTRY};
use crate::numbers::NumberType;
use crate::window::Window;
use h5logfs_common::fault::Fault;

/// Numbers of an index array that are read together.
const WORDS_AT_ONCE: u64 = 8 << 10;

/// Limits of an entry: its blocks and its bytes. All blocks are held in memory, and a file may have holes in their
/// place. Programs write some hundred thousand blocks at once.
const MOST_BLOCKS: u64 = 1 << 24;
const LONGEST: u64 = 1 << 30;

/// Type code of text (2.4).
const TEXT: i32 = 1;
/// Type code of C's `long`, which has 4 or 8 bytes.
const LONG: i32 = 13;

/// An entry without its index arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number of the entry, from 0.
    pub number: u64,
    /// Offset in the log.
    pub at: u64,
    /// Bytes of the entry.
    pub size: u64,
    pub call: PutCall,
    /// Type code of the payload, unchecked.
    pub kind: i32,
    /// Number of the variable, unchecked.
    pub variable: i32,
    /// Rank of the variable according to the entry.
    pub rank: u64,
    /// Offset of the payload in the data log, unchecked.
    pub data_offset: i64,
    pub data_len: i64,
    order: ByteOrder,
}

/// The kind of PnetCDF call that wrote the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutCall {
    /// One block.
    Vara,
    /// One block with strides.
    Vars,
    /// Several blocks, or single elements if there are no counts.
    Varn { blocks: u64, counts: bool },
}

/// A block of a request, possibly with strides. The arrays have a number per dimension.
#[derive(Debug, Clone, Copy)]
pub struct Subarray<'a> {
    start: &'a [i64],
    /// `None` if all counts are 1.
    count: Option<&'a [i64]>,
    stride: Option<&'a [i64]>,
}

/// The result of checking an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedEntry {
    pub elements: u64,
    /// Number of subarrays with elements.
    pub subarrays: u64,
    /// Number of records that the variable needs for the entry.
    pub records: u64,
    /// Type of the payload.
    pub kind: NumberType,
}

/// One dimension of a checked subarray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DimRange {
    pub start: u64,
    pub count: u64,
    pub stride: u64,
}

impl Entry {
    /// Reads the entry at `at`. An entry is invalid if its size contradicts its fields, because the position of the
    /// next entry is then unknown.
    pub fn read(
        window: &mut Window<'_>,
        order: ByteOrder,
        at: u64,
        number: u64,
    ) -> Result<Self, EntryError> {
        let left = window.len().saturating_sub(at);
        if left < LEAST_ENTRY {
            return Err(EntryError::Invalid(format!("has {left} bytes")));
        }
        let head = window.bytes(at, LEAST_ENTRY);
        let head = head.map_err(EntryError::Unreadable)?;
        let (size, call) = (order.i64(head), order.i32(&head[8..]));
        let rank = order.i32(&head[20..]);
        let broken = |what: String| EntryError::Invalid(what);
        let rank = u64::try_from(rank).map_err(|_| broken(format!("has rank {rank}")))?;
        let call = PutCall::of(call, size, rank)
            .ok_or_else(|| broken(format!("has {size} bytes, for call {call} of rank {rank}")))?;
        let size = u64::try_from(size).ok().filter(|size| *size <= left);
        Ok(Entry {
            number,
            at,
            size: size.ok_or_else(|| broken("does not end before the log does".into()))?,
            call,
            kind: order.i32(&head[12..]),
            variable: order.i32(&head[16..]),
            rank,
            data_offset: order.i64(&head[24..]),
            data_len: order.i64(&head[32..]),
            order,
        })
    }

    /// Whether the fields are valid, as far as this can be judged without the variables.
    pub fn is_plausible(&self) -> bool {
        self.variable >= 0 && kind_of(self.kind, 8).is_some() && self.data_end().is_some()
    }

    /// End of the payload in the data log; `None` if its length is invalid.
    pub fn data_end(&self) -> Option<i64> {
        let len = Some(self.data_len).filter(|len| *len >= 0)?;
        self.data_offset.checked_add(len)
    }

    /// Number of the entry's variable, if it is below `variables`.
    pub fn variable_of(&self, variables: usize) -> Option<usize> {
        let number = usize::try_from(self.variable).ok()?;
        (number < variables).then_some(number)
    }

    /// Name of the entry in messages.
    pub fn name(&self) -> String {
        format!("entry {} at byte {}", self.number, self.at)
    }

    /// Checks the entry against `variable`, of a netCDF file of this version.
    pub fn check(
        &self,
        window: &mut Window<'_>,
        variable: &Variable,
        version: u8,
    ) -> Result<CheckedEntry, EntryError> {
        let rules = Rules { variable, version };
        let broken = |what: String| Err(EntryError::Invalid(what));
        if self.rank != variable.dims.len() as u64 {
            let rank = variable.dims.len();
            return broken(format!("has rank {}, its variable {rank}", self.rank));
        }
        if (self.kind == TEXT) != variable.is_text {
            let (from, to) = if variable.is_text {
                ("numbers", "text")
            } else {
                ("text", "numbers")
            };
            return broken(format!("writes {from} to a variable of {to}"));
        }
        if let PutCall::Varn { blocks, .. } = self.call
            && (blocks > MOST_BLOCKS || self.size > LONGEST)
        {
            let size = self.size;
            return broken(format!(
                "has {blocks} blocks in {size} bytes: more than {MOST_BLOCKS}, or than {LONGEST} bytes, are not followed"
            ));
        }
        let (mut elements, mut subarrays, mut records) = (0u64, 0u64, 0u64);
        self.each_subarray(window, |part| {
            let (own, end) = rules.check(part)?;
            if own > 0 {
                subarrays += 1;
                records = records.max(end);
                elements = elements.checked_add(own).ok_or_else(too_many)?;
            }
            Ok(())
        })?;
        if let (0, PutCall::Varn { blocks, .. }) = (self.rank, self.call) {
            (elements, subarrays) = (blocks, blocks);
        }
        let len = u64::try_from(self.data_len).ok();
        let kind = len.and_then(|len| {
            let element = len.checked_div(elements).unwrap_or(8);
            let kind = kind_of(self.kind, element)?;
            (elements.checked_mul(kind.size() as u64)? == len).then_some(kind)
        });
        let (code, len) = (self.kind, self.data_len);
        Ok(CheckedEntry {
            elements,
            subarrays,
            records,
            kind: kind.ok_or_else(|| {
                let what = format!("has {len} bytes for {elements} values of type {code}");
                EntryError::Invalid(what)
            })?,
        })
    }

    /// Calls `visit` with the subarrays of the request. An error of `visit` makes the entry invalid.
    pub fn each_subarray(
        &self,
        window: &mut Window<'_>,
        mut visit: impl FnMut(Subarray<'_>) -> Result<(), Fault>,
    ) -> Result<(), EntryError> {
        let (begin, rank) = (self.at + LEAST_ENTRY, self.rank as usize);
        let mut visit = |part: Subarray<'_>| visit(part).map_err(EntryError::from);
        let mut words = Vec::new();
        match self.call {
            PutCall::Vara | PutCall::Vars => {
                self.read_words(window, begin, 3 * self.rank, &mut words)?;
                let (start, rest) = words.split_at(rank);
                let (count, stride) = rest.split_at(rank);
                visit(Subarray {
                    start,
                    count: Some(count),
                    stride: (self.call == PutCall::Vars).then_some(stride),
                })
            }
            // A scalar has one element, so each block is that element.
            PutCall::Varn { .. } if rank == 0 => visit(Subarray {
                start: &[],
                count: None,
                stride: None,
            }),
            PutCall::Varn { blocks, counts } => {
                let mut more = Vec::new();
                let at_once = (WORDS_AT_ONCE / self.rank).max(1);
                let mut done = 0;
                while done < blocks {
                    let now = at_once.min(blocks - done);
                    let at = begin + 8 * self.rank * done;
                    self.read_words(window, at, now * self.rank, &mut words)?;
                    if counts {
                        let at = at + 8 * self.rank * blocks;
                        self.read_words(window, at, now * self.rank, &mut more)?;
                    }
                    for (number, start) in words.chunks_exact(rank).enumerate() {
                        let at = number * rank;
                        let count = more.get(at..at + rank);
                        visit(Subarray {
                            start,
                            count,
                            stride: None,
                        })?;
                    }
                    done += now;
                }
                Ok(())
            }
        }
    }

    /// Reads numbers that belong to the entry.
    fn read_words(
        &self,
        window: &mut Window<'_>,
        at: u64,
        number: u64,
        words: &mut Vec<i64>,
    ) -> Result<(), EntryError> {
        let bytes = window
            .bytes(at, 8 * number)
            .map_err(EntryError::Unreadable)?;
        words.clear();
        words.extend(bytes.chunks_exact(8).map(|word| self.order.i64(word)));
        Ok(())
    }
}

impl PutCall {
    /// The call of a code; `None` if it cannot produce an entry of this size and rank.
    fn of(code: i32, size: i64, rank: u64) -> Option<Self> {
        let words = |arrays: u64| {
            let bytes = arrays.checked_mul(rank)?.checked_mul(8)?;
            i64::try_from(bytes.checked_add(LEAST_ENTRY)?).ok()
        };
        let is = |arrays| words(arrays) == Some(size);
        match code {
            -3 => is(3).then_some(PutCall::Vara),
            -4 => is(3).then_some(PutCall::Vars),
            1.. => {
                let blocks = code.unsigned_abs().into();
                let counts = !is(blocks);
                let call = PutCall::Varn { blocks, counts };
                (!counts || is(2 * blocks)).then_some(call)
            }
            _ => None,
        }
    }
}

/// The type of a payload (2.4). `element` is the size of a value, for the code that leaves it open.
fn kind_of(code: i32, element: u64) -> Option<NumberType> {
    Some(match code {
        TEXT | 3 => NumberType::U8,
        2 => NumberType::I8,
        4 => NumberType::I16,
        5 => NumberType::U16,
        6 => NumberType::I32,
        7 => NumberType::U32,
        8 => NumberType::F32,
        9 => NumberType::F64,
        10 => NumberType::I64,
        11 => NumberType::U64,
        LONG if element == 4 => NumberType::I32,
        LONG => NumberType::I64,
        _ => return None,
    })
}

fn too_many() -> String {
    "has more elements than can be counted".into()
}

impl Subarray<'_> {
    pub fn rank(&self) -> usize {
        self.start.len()
    }

    /// One dimension. The subarray must have passed the checks.
    pub fn side(&self, dim: usize) -> DimRange {
        let (start, count, stride) = self.words(dim);
        DimRange {
            start: start as u64,
            count: count as u64,
            stride: stride as u64,
        }
    }

    pub fn sides(&self) -> impl Iterator<Item = DimRange> {
        (0..self.rank()).map(|dim| self.side(dim))
    }

    /// Start, count and stride.
    fn words(&self, dim: usize) -> (i64, i64, i64) {
        let or_one = |array: Option<&[i64]>| array.map_or(1, |array| array[dim]);
        (self.start[dim], or_one(self.count), or_one(self.stride))
    }

    /// Whether the subarray has no elements. Its start coordinates have no meaning then.
    pub fn is_empty(&self) -> bool {
        self.count.is_some_and(|count| count.contains(&0))
    }
}

/// The rules for the subarrays of a request.
struct Rules<'a> {
    variable: &'a Variable,
    version: u8,
}

impl Rules<'_> {
    /// The number of elements of a subarray, and the number of records that it needs.
    fn check(&self, part: Subarray<'_>) -> Result<(u64, u64), Fault> {
        let sides = 0..part.rank();
        if let Some(dim) = sides.clone().find(|dim| part.words(*dim).1 < 0) {
            return Err(format!("has a count below 0 in dimension {dim}").into());
        }
        if part.is_empty() {
            return Ok((0, 0));
        }
        let (mut elements, mut records) = (1u64, 0);
        for dim in sides {
            let (start, count, stride) = part.words(dim);
            let limit = self.limit(dim);
            let end = (start >= 0 && stride >= 1)
                .then(|| (count - 1).checked_mul(stride)?.checked_add(start)?.checked_add(1))
                .flatten()
                .and_then(|end| u64::try_from(end).ok())
                .filter(|end| *end <= limit)
                .ok_or_else(|| {
                    format!(
                        "has {count} elements from {start} with stride {stride} in dimension {dim}, \
                         which has {limit}"
                    )
                })?;
            if dim == 0 && self.variable.is_record {
                records = end;
            }
            elements = elements.checked_mul(count as u64).ok_or_else(too_many)?;
        }
        Ok((elements, records))
    }

    /// The largest extent of a dimension.
    fn limit(&self, dim: usize) -> u64 {
        match (dim, self.variable.is_record, self.version) {
            // A value with all bits set marks a file that is written as a stream.
            (0, true, 1 | 2) => u64::from(u32::MAX) - 1,
            (0, true, _) => i64::MAX as u64,
            _ => self.variable.dims[dim].min(i64::MAX as u64),
        }
    }
}
