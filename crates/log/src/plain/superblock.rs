//! The superblock (II.A), versions 0 to 3.

use super::metadata::Metadata;
use h5logfs_hdf5_format::Fields;

/// What is needed of a superblock.
pub struct Superblock {
    /// Address of the object header of the root group.
    pub root: u64,
    /// Addresses of the B-tree and the heap of the root group, where the superblock has them, too.
    pub table: Option<(u64, u64)>,
    /// Address of the superblock extension.
    pub extension: Option<u64>,
}

impl Superblock {
    /// `None` where libhdf5 may not be able to open the file, or it is of a rare kind.
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

/// Versions 0 and 1. The addresses of a superblock of `len` bytes are at `addresses`.
fn read_old(metadata: &Metadata<'_>, len: u64, addresses: usize) -> Option<Superblock> {
    let bytes = metadata.read(0, len)?;
    let mut fields = Fields(bytes.get(9..)?);
    // Versions of free space, root group entry and shared messages, each with a reserved byte where it is followed by one.
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

/// Versions 2 and 3.
fn read_new(metadata: &Metadata<'_>) -> Option<Superblock> {
    let bytes = metadata.read_checked(0, 48)?;
    let mut fields = Fields(bytes.get(9..)?);
    expect_eight_bytes(&mut fields)?;
    // A program writes to the file, or did not close it.
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

/// The sizes of offsets and lengths. Hardly a file has other ones.
fn expect_eight_bytes(fields: &mut Fields<'_>) -> Option<()> {
    fields.expect(&[8, 8])
}

/// libhdf5 opens no file that has been cut off, and moves the base where it is not at the superblock.
fn check_extent(metadata: &Metadata<'_>, base: u64, end: u64) -> Option<()> {
    (base == metadata.base() && end <= metadata.file_len()).then_some(())
}
