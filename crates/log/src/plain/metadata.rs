//! Reads blocks of metadata, and takes them apart.

use crate::image::lookup3;
use crate::source_file::SourceFile;

/// Larger blocks are not read, in bytes.
const MOST: u64 = 1 << 20;

/// The metadata of an HDF5 file.
pub struct Metadata<'a> {
    file: &'a SourceFile,
    /// Where in the file its addresses begin.
    base: u64,
}

impl<'a> Metadata<'a> {
    /// The addresses of `file` count from `base`.
    pub fn new(file: &'a SourceFile, base: u64) -> Self {
        Metadata { file, base }
    }

    /// Bytes of the file in front of address 0.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of the file from its first byte on.
    pub fn file_len(&self) -> u64 {
        self.file.len()
    }

    /// `len` bytes at `address`; `None` where the file does not have them, or they are too many.
    pub fn read(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let at = self.base.checked_add(address)?;
        if len > MOST || !self.file.has(at, len) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// The same without the checksum in the last four bytes; `None` also where that is wrong.
    pub fn read_checked(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = self.read(address, len)?;
        let sum = bytes.split_off(bytes.len().checked_sub(4)?);
        (sum == lookup3(&bytes).to_le_bytes()).then_some(bytes)
    }
}

/// The fields of a block, one after the other. All numbers are little-endian. `None` where the block ends before.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn skip(&mut self, len: usize) -> Option<()> {
        self.take(len).map(|_| ())
    }

    /// Passes over `bytes`; `None` where others stand there.
    pub fn expect(&mut self, bytes: &[u8]) -> Option<()> {
        (self.take(bytes.len())? == bytes).then_some(())
    }

    /// A number of at most eight bytes.
    pub fn number(&mut self, len: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.get_mut(..len)?.copy_from_slice(self.take(len)?);
        Some(u64::from_le_bytes(bytes))
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.number(8)
    }

    /// An address; `Some(None)` where it is undefined.
    pub fn address(&mut self) -> Option<Option<u64>> {
        let address = self.u64()?;
        Some((address != u64::MAX).then_some(address))
    }
}
