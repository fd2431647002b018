//! Reads the fields of metadata blocks.

use crate::UNDEFINED;

/// The fields of a block, one after the other. All numbers are little-endian. `None` where the block ends before.
#[derive(Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Takes the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, len: usize) -> Option<()> {
        self.take(len).map(|_| ())
    }

    /// Skips `bytes`. `None` if the block has other bytes there.
    pub fn expect(&mut self, bytes: &[u8]) -> Option<()> {
        (self.take(bytes.len())? == bytes).then_some(())
    }

    /// A number of at most eight bytes.
    pub fn number(&mut self, len: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.get_mut(..len)?.copy_from_slice(self.take(len)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// A number of one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.number(8)
    }

    /// An address; `Some(None)` if it is undefined.
    pub fn address(&mut self) -> Option<Option<u64>> {
        let address = self.u64()?;
        Some((address != UNDEFINED).then_some(address))
    }
}
