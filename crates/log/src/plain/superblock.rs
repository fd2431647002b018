//! The superblock (II.A), versions 0 to 3.

use super::metadata::Metadata;
use crate::image::Fields;

/// The required parts of a superblock.
pub struct Superblock {
    /// Address of the object header of the root group.
    pub root: u64,
    /// Addresses of the B-tree and the heap of the root group, if the superblock states them, too.
    pub table: Option<(u64, u64)>,
    /// Address of the superblock extension.
    pub extension: Option<u64>,
}

impl Superblock {
    /// Reads the superblock; `None` if libhdf5 may not be able to open the file, or if the file is of a rare kind.
    pub fn read(metadata: &Metadata<'_>) -> Option<Self> {
        let version = *metadata.read(8, 1)?.first()?;
        match version {
            0 => read_old(metadata, 96, 24),
            1 => read_old(metadata, 100, 28),
            2 | 3 => read_new(metadata),
            _ => None,
        }
    }
}

/// Reads a superblock of version 0 or 1. It has `len` bytes, and its addresses are at `addresses`.
fn read_old(metadata: &Metadata<'_>, len: u64, addresses: usize) -> Option<Superblock> {
    let bytes = metadata.read(0, len)?;
    let mut fields = Fields(bytes.get(9..)?);
    // The versions of free space, of the root group entry and of shared messages. A reserved byte stands between the
    // last two.
    fields.expect(&[0, 0, 0, 0])?;
    expect_eight_bytes(&mut fields)?;
    fields.expect(&[0])?;
    let (leaf, internal) = (fields.u16()?, fields.u16()?);
    let flags = fields.u32()?;
    if leaf == 0 || internal == 0 || flags != 0 {
        return None;
    }
    let mut fields = Fields(bytes.get(addresses..)?);
    let base = fields.u64()?;
    fields.skip(8)?;
    let end = fields.u64()?;
    let driver_info = fields.address()?;
    fields.skip(8)?;
    let root = fields.u64()?;
    let cached = fields.u32()?;
    fields.skip(4)?;
    let table = (fields.u64()?, fields.u64()?);
    if driver_info.is_some() || cached > 1 {
        return None;
    }
    check_extent(metadata, base, end)?;
    Some(Superblock {
        root,
        table: (cached == 1).then_some(table),
        extension: None,
    })
}

/// Reads a superblock of version 2 or 3.
fn read_new(metadata: &Metadata<'_>) -> Option<Superblock> {
    let bytes = metadata.read_checked(0, 48)?;
    let mut fields = Fields(bytes.get(9..)?);
    expect_eight_bytes(&mut fields)?;
    // The flags are set while a program writes to the file, or if it did not close the file.
    fields.expect(&[0])?;
    let base = fields.u64()?;
    let extension = fields.address()?;
    let end = fields.u64()?;
    let root = fields.u64()?;
    check_extent(metadata, base, end)?;
    Some(Superblock {
        root,
        table: None,
        extension,
    })
}

/// Checks the sizes of offsets and lengths. Nearly all files have 8 bytes.
fn expect_eight_bytes(fields: &mut Fields<'_>) -> Option<()> {
    fields.expect(&[8, 8])
}

/// Checks that libhdf5 can open the file: it opens no truncated file, and it moves the base address if that is not the
/// superblock's.
fn check_extent(metadata: &Metadata<'_>, base: u64, end: u64) -> Option<()> {
    (base == metadata.base() && end <= metadata.file_len()).then_some(())
}
