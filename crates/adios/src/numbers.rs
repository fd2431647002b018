//! Numbers and byte ranges read from a file.

use crate::{Bytes, Result};

/// The largest part of a file that is read into memory at once, such as the metadata of a step.
pub(crate) const PIECE: u64 = 1 << 30;

/// Upper bound of extents, places and lengths. HDF5 has none larger, and the values that mean "no extent" are larger.
pub(crate) const EXTENT: u64 = 1 << 63;

/// Reads `len` bytes from `at`. Errors call them `what`.
pub(crate) fn read(file: &dyn Bytes, at: u64, len: u64, what: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(&mut bytes, file, at, len, what)?;
    Ok(bytes)
}

/// Reads `len` bytes from `at` into `bytes`, in place of its content.
pub(crate) fn read_into(
    bytes: &mut Vec<u8>,
    file: &dyn Bytes,
    at: u64,
    len: u64,
    what: &str,
) -> Result<()> {
    if at.checked_add(len).is_none_or(|end| end > file.len()) {
        return Err(format!("{what}: the file ends before byte {at} + {len}").into());
    }
    if len > PIECE {
        return Err(format!("{what}: {len} bytes are more than the {PIECE} that are read").into());
    }
    let len = usize::try_from(len)?;
    if bytes.capacity() < len {
        // Zeroed new memory costs nothing.
        *bytes = vec![0; len];
    }
    bytes.resize(len, 0);
    file.read_exact_at(bytes, at)
}

/// Bytes and their byte order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers<'a> {
    pub bytes: &'a [u8],
    pub is_big_endian: bool,
}

impl<'a> Numbers<'a> {
    /// `len` bytes from `at`.
    pub fn bytes(&self, at: u64, len: u64) -> Result<&'a [u8]> {
        let range = at.checked_add(len).and_then(|end| {
            let (at, end) = (usize::try_from(at).ok()?, usize::try_from(end).ok()?);
            self.bytes.get(at..end)
        });
        range.ok_or_else(|| format!("bytes {at} + {len} lie outside").into())
    }

    /// `len` bytes from `at`, in the same byte order.
    pub fn part(&self, at: u64, len: u64) -> Result<Self> {
        Ok(Numbers {
            bytes: self.bytes(at, len)?,
            ..*self
        })
    }

    /// An unsigned number of `size` bytes, at most 8.
    pub fn unsigned(&self, at: u64, size: u8) -> Result<u64> {
        let own = self.bytes(at, u64::from(size))?;
        let mut bytes = [0; 8];
        if self.is_big_endian {
            bytes[8 - own.len()..].copy_from_slice(own);
            return Ok(u64::from_be_bytes(bytes));
        }
        bytes[..own.len()].copy_from_slice(own);
        Ok(u64::from_le_bytes(bytes))
    }

    /// A number of 4 bytes.
    pub fn u32(&self, at: u64) -> Result<u32> {
        Ok(u32::try_from(self.unsigned(at, 4)?)?)
    }

    /// A number of 8 bytes.
    pub fn u64(&self, at: u64) -> Result<u64> {
        self.unsigned(at, 8)
    }

    /// All bytes, 8 at a time.
    pub fn words(&self) -> &'a [[u8; 8]] {
        self.bytes.as_chunks().0
    }

    /// The number in 8 bytes.
    pub fn number(&self, word: [u8; 8]) -> u64 {
        if self.is_big_endian {
            u64::from_be_bytes(word)
        } else {
            u64::from_le_bytes(word)
        }
    }

    /// All bytes as numbers of 8.
    pub fn u64s(
        self,
    ) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        let words = self.words().iter();
        words.map(move |word| self.number(*word))
    }
}
