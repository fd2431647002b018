//! Encoded records of `md.0` (section 3.5).

use std::cell::Cell;

use super::ffs::{Id, Slot};
use crate::Result;
use crate::numbers::Numbers;

/// Bytes before the base: id, length and padding.
pub(super) const HEADER: u64 = 24;

/// A record: a struct as it was in the writer's memory, and the bytes to which its pointers lead.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// The bytes from the base on. Pointers count from there.
    bytes: Numbers<'a>,
    /// Offset of the base in `md.0`.
    at: u64,
    /// Bytes that may still be taken. No byte of a record belongs to two fields, so all fields together are at most
    /// as long as the record. Without this bound, overlapping fields could demand any amount of memory.
    left: Cell<u64>,
}

impl<'a> Record<'a> {
    /// The format id of a record, and the record. `block` lies at byte `at` of `md.0`.
    pub fn open(block: Numbers<'a>, at: u64) -> Result<(Id, Self)> {
        let id = block
            .bytes
            .first_chunk::<12>()
            .ok_or("is too short for an id")?;
        let bytes = block.part(HEADER, block.u64(12)?)?;
        let record = Record {
            bytes,
            at: at + HEADER,
            left: Cell::new(bytes.bytes.len() as u64),
        };
        Ok((*id, record))
    }

    /// Takes `len` bytes from `at`.
    pub fn take(&self, at: u64, len: u64) -> Result<Numbers<'a>> {
        let part = self.bytes.part(at, len)?;
        let left = self.left.get().checked_sub(len);
        self.left.set(left.ok_or("fields lie on each other")?);
        Ok(part)
    }

    /// Takes the bytes to which a pointer leads; none where the count is zero.
    pub fn target(&self, pointer: u64, count: u64, size: u64) -> Result<Numbers<'a>> {
        let len = count
            .checked_mul(size)
            .ok_or("an array of more than 2^64 bytes")?;
        if len > 0 && pointer == 0 {
            return Err("an array is missing".into());
        }
        self.take(pointer, len)
    }

    /// Takes the text to which a pointer leads. A null pointer is an empty text.
    pub fn text(&self, pointer: u64) -> Result<&'a str> {
        if pointer == 0 {
            return Ok("");
        }
        let rest = usize::try_from(pointer)
            .ok()
            .and_then(|at| self.bytes.bytes.get(at..));
        let rest = rest.ok_or("a text lies outside")?;
        let len = rest
            .iter()
            .take(usize::try_from(self.left.get())?)
            .position(|byte| *byte == 0);
        let bytes = self
            .take(pointer, len.ok_or("a text does not end")? as u64)?
            .bytes;
        Ok(str::from_utf8(bytes).map_err(|_| "a text is not UTF-8")?)
    }

    /// The offset in `md.0` of a byte of the record.
    pub fn place(&self, at: u64) -> u64 {
        self.at + at
    }

    /// A number of a struct that begins at `base`.
    pub fn number(&self, base: u64, slot: Slot) -> Result<u64> {
        let at = base
            .checked_add(u64::from(slot.offset))
            .ok_or("a struct lies outside")?;
        self.bytes.unsigned(at, slot.size)
    }
}
