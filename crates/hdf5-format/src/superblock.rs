//! The superblock (II.A), versions 0 to 3.

use crate::symbol_table::{Sizes, Table, cached};
use crate::{Fields, HeaderBytes, Result, UNDEFINED, read_checked, read_vec};

/// The size in bytes of a superblock of version 0 with addresses of eight bytes.
pub const SUPERBLOCK: usize = 96;

/// The first bytes of every superblock.
pub const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// The address of the root group's symbol table entry in a superblock of version 0.
pub(crate) const ROOT_ENTRY: u64 = 56;

/// Half the number of links in a leaf of a symbol table, and half the number of children of a B-tree node: the defaults of
/// libhdf5.
pub(crate) const LEAF_K: u16 = 4;
pub(crate) const NODE_K: u16 = 16;
/// The sizes of the symbol tables of a new file.
pub const SIZES: Sizes = Sizes::of(LEAF_K, NODE_K);

/// Looks for an HDF5 signature at bytes 0, 512, 1024, 2048, … of a file of `len` bytes. `read` fills a buffer from an offset.
/// Each place costs a read of eight bytes.
pub fn find_signature<E>(
    len: u64,
    read: impl Fn(u64, &mut [u8]) -> std::result::Result<(), E>,
) -> std::result::Result<Option<u64>, E> {
    let mut at = 0;
    while at + SIGNATURE.len() as u64 <= len {
        let mut bytes = [0; SIGNATURE.len()];
        read(at, &mut bytes)?;
        if bytes == SIGNATURE {
            return Ok(Some(at));
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    Ok(None)
}

/// A superblock. Addresses count from its first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// All bytes of the superblock.
    pub bytes: Vec<u8>,
    /// The version: 0 to 3.
    pub version: u8,
    /// The number of bytes before the superblock.
    pub base: u64,
    /// The length of the file, counted from the first byte of the superblock.
    pub end: u64,
    /// Address of the root group's object header.
    pub root: u64,
    /// Address of the driver information block in versions 0 and 1, and of the superblock extension in versions 2 and 3.
    pub info: Option<u64>,
    /// The symbol table of the root group, if the superblock caches its place. Only versions 0 and 1 can.
    pub table: Option<Table>,
    /// The sizes of the symbol tables of the file. `None` for versions 2 and 3, which do not record them.
    pub sizes: Option<Sizes>,
    /// The consistency flags: a program is writing the file, or has not closed it.
    pub flags: u32,
}

/// The offsets of the fields of a superblock.
pub(crate) struct Places {
    /// The length of the superblock in bytes.
    pub len: u64,
    /// The sizes of addresses and lengths.
    sizes: usize,
    /// The base address.
    pub base: u64,
    /// The end of the file.
    pub end: u64,
    /// The address of the driver information or of the extension.
    pub info: u64,
    /// The address of the root group's object header.
    root: u64,
    /// Whether the last four bytes are a checksum of all others.
    pub has_checksum: bool,
}

impl Places {
    /// The offsets for the superblock at the start of `bytes`. Fails if its version is unknown.
    pub fn of<B: HeaderBytes + ?Sized>(bytes: &B) -> Result<Self> {
        let mut version = [0];
        bytes.read(SIGNATURE.len() as u64, &mut version)?;
        Places::of_version(version[0])
    }

    fn of_version(version: u8) -> Result<Self> {
        // Version 1 has an additional number and two reserved bytes after the fields of version 0.
        let old = |more: u64| Places {
            len: SUPERBLOCK as u64 + more,
            sizes: 13,
            base: 24 + more,
            end: 40 + more,
            info: 48 + more,
            root: ROOT_ENTRY + 8 + more,
            has_checksum: false,
        };
        match version {
            0 => Ok(old(0)),
            1 => Ok(old(4)),
            2 | 3 => Ok(Places {
                len: 48,
                sizes: 9,
                base: 12,
                info: 20,
                end: 28,
                root: 36,
                has_checksum: true,
            }),
            _ => Err(format!("superblock version {version}").into()),
        }
    }
}

impl Superblock {
    /// The superblock at the start of `bytes`. Fails if there is no superblock that libhdf5 can read, or if addresses and lengths
    /// do not have eight bytes.
    pub fn read<B: HeaderBytes + ?Sized>(bytes: &B) -> Result<Self> {
        let front = read_vec(bytes, 0, SIGNATURE.len() as u64 + 1)?;
        let (signature, version) = front.split_at(SIGNATURE.len());
        if signature != SIGNATURE {
            return Err("no HDF5 signature".into());
        }
        let version = version[0];
        let places = Places::of_version(version)?;
        let all = read_vec(bytes, 0, places.len)?;
        if places.has_checksum {
            read_checked(&all, 0, places.len)?;
        }
        let sizes = all.get(places.sizes..places.sizes + 2);
        if sizes != Some(&[8, 8]) {
            let sizes = sizes.unwrap_or_default();
            return Err(
                format!("addresses and lengths of {sizes:?} bytes: only 8 are read").into(),
            );
        }
        let found = Superblock::of(all, version, &places);
        Ok(found.ok_or("a superblock that libhdf5 does not read")?)
    }

    fn of(bytes: Vec<u8>, version: u8, places: &Places) -> Option<Self> {
        let number = |at: u64| Fields(bytes.get(at as usize..)?).u64();
        let (mut table, mut sizes) = (None, None);
        let mut fields = Fields(bytes.get(places.sizes + 2..)?);
        let flags = if places.has_checksum {
            fields.u8()?.into()
        } else {
            // The versions of free space, root group entry and shared messages, and a reserved byte.
            Fields(bytes.get(9..)?).expect(&[0; 4])?;
            fields.skip(1)?;
            let (leaf, node) = (fields.u16()?, fields.u16()?);
            sizes = Some(Sizes::of(leaf, node)).filter(|_| leaf > 0 && node > 0);
            sizes?;
            let mut entry = Fields(bytes.get(places.root as usize + 8..)?);
            let kind = entry.u32()?;
            entry.skip(4)?;
            table = match kind {
                cached::NOTHING => None,
                cached::TABLE => Some(Table::of_message(entry.0)?),
                _ => return None,
            };
            fields.u32()?
        };
        Some(Superblock {
            version,
            base: number(places.base)?,
            end: number(places.end)?,
            root: number(places.root)?,
            info: number(places.info).map(|at| (at != UNDEFINED).then_some(at))?,
            table,
            sizes,
            flags,
            bytes,
        })
    }

    /// Whether the version is 0 or 1.
    pub fn is_old(&self) -> bool {
        self.version < 2
    }
}

/// A superblock of version 0 for a file that ends at `end`. `root` is the address of the root group's object header, and `table`
/// is the group's symbol table, if it has one.
pub fn new_superblock(root: u64, table: Option<Table>, end: u64) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend(b"\0\0\0\0\0\x08\x08\0");
    bytes.extend([LEAF_K, NODE_K].map(u16::to_le_bytes).as_flattened());
    bytes.extend([0; 4]);
    // The base address is 0. There is no free space and no driver information.
    let addresses = [0, UNDEFINED, end, UNDEFINED];
    bytes.extend(addresses.map(u64::to_le_bytes).as_flattened());
    // The root group has no name.
    bytes.extend([0, root].map(u64::to_le_bytes).as_flattened());
    bytes.extend(
        table
            .map_or(cached::NOTHING, |_| cached::TABLE)
            .to_le_bytes(),
    );
    bytes.extend([0; 4]);
    bytes.extend(table.map_or([0; 16], Table::to_bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup3;

    fn old(version: u8, sizes: [u8; 2]) -> Vec<u8> {
        let table = Table { tree: 1, heap: 2 };
        let mut bytes = new_superblock(800, Some(table), 5000);
        bytes[8] = version;
        bytes[13..15].copy_from_slice(&sizes);
        if version == 1 {
            bytes.splice(24..24, [32, 0, 0, 0]);
        }
        bytes
    }

    #[test]
    fn all_versions_say_where_the_file_is() {
        for version in [0, 1] {
            let found = Superblock::read(&old(version, [8, 8])).unwrap();
            assert_eq!((found.root, found.end, found.base), (800, 5000, 0));
            assert_eq!(found.table, Some(Table { tree: 1, heap: 2 }));
            assert_eq!((found.info, found.flags), (None, 0));
            assert!(Superblock::read(&old(version, [4, 8])).is_err());
            assert!(Superblock::read(&old(version, [8, 8])[..90]).is_err());
            // A version of free space, a leaf without links, and a root group that is a soft link.
            for (at, byte) in [(9, 1), (16, 0), (72 + 4 * usize::from(version), 2)] {
                let mut bytes = old(version, [8, 8]);
                bytes[at] = byte;
                assert!(Superblock::read(&bytes).is_err(), "{at}");
            }
        }
        assert!(Superblock::read(&old(9, [8, 8])).is_err());
        for version in [2, 3] {
            let mut bytes = SIGNATURE.to_vec();
            bytes.extend([version, 8, 8, 1]);
            let numbers = [512, UNDEFINED, 5000, 48].map(u64::to_le_bytes);
            bytes.extend(numbers.as_flattened());
            bytes.extend(lookup3(&bytes).to_le_bytes());
            let found = Superblock::read(&bytes).unwrap();
            assert_eq!((found.root, found.end, found.base), (48, 5000, 512));
            assert_eq!((found.info, found.flags), (None, 1));
            bytes[36] ^= 1;
            assert!(Superblock::read(&bytes).is_err());
        }
        assert!(Superblock::read(&SIGNATURE[..]).is_err());
    }

    #[test]
    fn a_signature_is_found_at_powers_of_two() {
        for at in [0, 512, 1024, 4096] {
            let mut bytes = vec![0; at];
            bytes.extend(SIGNATURE);
            let find = |bytes: &Vec<u8>| {
                find_signature(bytes.len() as u64, |at, buf| bytes.read(at, buf)).unwrap()
            };
            assert_eq!(find(&bytes), Some(at as u64));
            bytes.insert(0, 0);
            assert_eq!(find(&bytes), None);
            bytes.pop();
            assert_eq!(find(&bytes), None);
        }
    }
}
