//! Bytes of HDF5 files, wherever they are: in memory, in a file, or made when they are read.

use std::ops::Range;
use std::sync::Arc;

use h5logfs_common::buffers::zeroed;

use crate::Result;
use crate::checksum::lookup3;

/// Random access to the bytes of an HDF5 file; addresses count from the first of them.
pub trait HeaderBytes {
    /// Number of bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from byte `at` on. Fails with the reason where bytes are missing.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()>;
}

/// Random access to bytes of an HDF5 file that can be changed.
pub trait HeaderBytesMut: HeaderBytes {
    /// Replaces the bytes from byte `at` on. Fails with the reason where that is not possible.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()>;
}

impl<B: HeaderBytes + ?Sized> HeaderBytes for &B {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read(at, buf)
    }
}

impl<B: HeaderBytes + ?Sized> HeaderBytes for Arc<B> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read(at, buf)
    }
}

impl HeaderBytes for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.as_slice().read(at, buf)
    }
}

impl HeaderBytes for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let range = range(at, buf.len())?;
        buf.copy_from_slice(self.get(range).ok_or(PAST_IMAGE)?);
        Ok(())
    }
}

impl HeaderBytesMut for Vec<u8> {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let range = range(at, bytes.len())?;
        let there = self.get_mut(range).ok_or(PAST_IMAGE)?;
        there.copy_from_slice(bytes);
        Ok(())
    }
}

pub(crate) const PAST_IMAGE: &str = "offset past the image";

fn range(at: u64, len: usize) -> Result<Range<usize>> {
    let start = usize::try_from(at)?;
    let end = start.checked_add(len).ok_or(PAST_IMAGE)?;
    Ok(start..end)
}

/// The `N` bytes at `at`.
pub(crate) fn read_array<const N: usize, B: HeaderBytes + ?Sized>(
    bytes: &B,
    at: u64,
) -> Result<[u8; N]> {
    let mut found = [0; N];
    bytes.read(at, &mut found)?;
    Ok(found)
}

/// The `len` bytes at `at`, if there are so many.
pub fn read_vec<B: HeaderBytes + ?Sized>(bytes: &B, at: u64, len: u64) -> Result<Vec<u8>> {
    let end = at.checked_add(len).filter(|end| *end <= bytes.size());
    let len = end.and(usize::try_from(len).ok()).ok_or(PAST_IMAGE)?;
    let mut found = zeroed(len)?;
    bytes.read(at, &mut found)?;
    Ok(found)
}

/// The `len` bytes at `at`, of which the last four are a checksum, without it. Fails where that is wrong.
pub fn read_checked<B: HeaderBytes + ?Sized>(bytes: &B, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut found = read_vec(bytes, at, len)?;
    let sum = found.len().checked_sub(4).map(|at| found.split_off(at));
    if sum.is_some_and(|sum| sum == lookup3(&found).to_le_bytes()) {
        return Ok(found);
    }
    Err(format!("a block at {at} with a wrong checksum").into())
}
