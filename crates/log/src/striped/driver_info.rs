//! The driver information in a superblock (HDF5 File Format Specification, II.B and IV.A.2.u;
//! `docs/formats/hdf5-subfiling.md`, section 4).

use std::ops::ControlFlow;

use super::config::{checked_count, checked_stripe};
use crate::flat::Patch;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::object_header::{self, Message, Mode, kind};
use h5logfs_hdf5_format::{Fields, HeaderBytes, lookup3, read_vec};

/// Bytes of driver information read: it contains one path at most.
const MOST_BYTES: u64 = 8 << 10;
/// Bytes of the superblock by version.
const LENGTHS: [u64; 4] = [96, 100, 48, 48];

const SUBFILING: &[u8; 8] = b"Subfilin";
const FAMILY: &[u8; 8] = b"NCSAfami";
const MULTI: &[u8; 8] = b"NCSAmult";

/// The needed content of a superblock. Addresses count from its first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Length of the file from the first byte of the superblock.
    pub end: u64,
    /// The address of the root group's object header.
    pub root: u64,
    /// The address of the driver information block, or of the superblock extension.
    info: Option<u64>,
}

/// The driver according to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// No driver, or one that does not matter.
    None,
    /// The driver information is missing: the file was cut off or is damaged.
    Elsewhere,
    /// One HDF5 file striped over subfiles.
    Subfiling(Vec<u8>),
    /// One HDF5 file cut into members of equal lengths.
    Family(Vec<u8>),
    /// Several files with addresses that no flat file has.
    Multi,
}

impl Superblock {
    /// Reads the superblock. `None` where there is none that could belong to such a file.
    pub fn read<B: HeaderBytes + ?Sized>(file: &B) -> Option<Self> {
        let version = *read_vec(file, 8, 1).ok()?.first()?;
        let bytes = read_vec(file, 0, *LENGTHS.get(usize::from(version))?).ok()?;
        let is_old = version < 2;
        let mut sizes = Fields(bytes.get(if is_old { 13 } else { 9 }..)?);
        sizes.expect(&[8, 8])?;
        let addresses = match version {
            0 => 24,
            1 => 28,
            _ => 12,
        };
        let mut fields = Fields(bytes.get(addresses..)?);
        fields.skip(8)?;
        let (end, root, info);
        if is_old {
            fields.skip(8)?;
            end = fields.u64()?;
            info = fields.address()?;
            fields.skip(8)?;
            root = fields.u64()?;
        } else {
            info = fields.address()?;
            end = fields.u64()?;
            root = fields.u64()?;
            let (sound, sum) = bytes.split_at_checked(44)?;
            (lookup3(sound).to_le_bytes() == sum).then_some(())?;
        }
        bytes.starts_with(b"\x89HDF\r\n\x1a\n").then_some(())?;
        Some(Superblock {
            end,
            root,
            info,
            bytes,
        })
    }

    fn is_old(&self) -> bool {
        self.bytes.len() as u64 != LENGTHS[2]
    }

    /// The driver according to the file.
    pub fn driver<B: HeaderBytes + ?Sized>(&self, file: &B) -> Driver {
        let Some(at) = self.info else {
            return Driver::None;
        };
        // Only the multi driver has such addresses.
        if at > i64::MAX as u64 {
            return Driver::Multi;
        }
        if at >= file.size() {
            return Driver::Elsewhere;
        }
        let found = if self.is_old() {
            driver_block(file, at)
        } else {
            match driver_message(file, at) {
                Ok(None) => return Driver::None,
                Ok(Some(message)) => message.body(file).ok().and_then(|body| named(&body)),
                Err(_) => None,
            }
        };
        match found {
            None => Driver::Elsewhere,
            Some((name, info)) if &name == SUBFILING => Driver::Subfiling(info),
            Some((name, info)) if &name == FAMILY => Driver::Family(info),
            Some((name, _)) if &name == MULTI => Driver::Multi,
            Some(_) => Driver::None,
        }
    }

    /// Bytes that make the file readable without its driver. The file must have driver information. `user_block` is
    /// the number of bytes before the superblock.
    pub fn without_driver<B: HeaderBytes + ?Sized>(
        &self,
        file: &B,
        user_block: u64,
    ) -> Option<Patch> {
        let at = self.info?;
        if self.is_old() {
            let field = self.bytes.len() as u64 - 48;
            return Some(Patch {
                at: user_block.checked_add(field)?,
                bytes: vec![0xff; 8],
            });
        }
        let message = driver_message(file, at).ok()??;
        let head = match (&message.block, message.order) {
            (None, _) => 8,
            (Some(_), None) => 4,
            (Some(_), Some(_)) => 6,
        };
        let kind = message.data.checked_sub(head)?;
        let Some(block) = message.block else {
            return Some(Patch {
                at: user_block.checked_add(kind)?,
                bytes: vec![0; 2],
            });
        };
        let mut bytes = read_vec(file, block.start, block.end - block.start).ok()?;
        *bytes.get_mut(usize::try_from(kind - block.start).ok()?)? = kind::NIL as u8;
        let (sound, sum) = bytes.split_last_chunk_mut::<4>()?;
        *sum = lookup3(sound).to_le_bytes();
        Some(Patch {
            at: user_block.checked_add(block.start)?,
            bytes,
        })
    }
}

/// The name of a driver, and its information.
type Named = ([u8; 8], Vec<u8>);

/// Reads the driver information block (II.B).
fn driver_block<B: HeaderBytes + ?Sized>(file: &B, at: u64) -> Option<Named> {
    let head = read_vec(file, at, 16).ok()?;
    let mut fields = Fields(&head);
    fields.expect(&[0])?;
    fields.skip(3)?;
    let len = u64::from(fields.u32()?).min(MOST_BYTES);
    let name = fields.take(8)?.try_into().ok()?;
    Some((name, read_vec(file, at.checked_add(16)?, len).ok()?))
}

/// The driver information message in the superblock extension at this address.
fn driver_message<B: HeaderBytes + ?Sized>(file: &B, at: u64) -> Result<Option<Message>, Fault> {
    let mut found = None;
    let walk = object_header::messages(file, at, Mode::Checked, |message| {
        if message.kind == kind::DRIVER_INFO && !message.is_shared() {
            found = Some(message);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    });
    walk.map(|()| found)
}

/// The name and information in the body of such a message.
fn named(body: &[u8]) -> Option<Named> {
    let mut fields = Fields(body);
    fields.expect(&[0])?;
    let name = fields.take(8)?.try_into().ok()?;
    let len = fields.u16()?;
    Some((name, fields.take(len.into())?.to_vec()))
}

/// The striping of a file according to its driver information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Number of subfiles.
    pub count: usize,
}

impl Geometry {
    /// Decodes the information of the subfiling driver.
    pub fn parse(info: &[u8]) -> Result<Self, Fault> {
        let mut fields = Fields(info);
        let known = fields.expect(&0xFED0_1331u32.to_le_bytes());
        let known = known.and_then(|()| fields.expect(&1u32.to_le_bytes()));
        known.ok_or("driver information of another version")?;
        let numbers = fields
            .skip(4)
            .and_then(|()| Some((fields.u64()?, fields.u64()?)));
        let (stripe, count) = numbers.ok_or("driver information that is cut off")?;
        Ok(Geometry {
            stripe: checked_stripe(stripe)?,
            count: checked_count(count)?,
        })
    }

    /// Bytes of a member, from the information of the family driver.
    pub fn member_of_family(info: &[u8]) -> Result<u64, Fault> {
        let size = Fields(info).u64();
        checked_stripe(size.ok_or("driver information that is cut off")?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A superblock of version 0, followed by driver information.
    fn old(name: &[u8; 8], info: &[u8]) -> Vec<u8> {
        let mut file = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0".to_vec();
        for field in [0, u64::MAX, 5000, 96, 0, 300, 0, 0, 0] {
            file.extend(u64::to_le_bytes(field));
        }
        file.extend([0; 4]);
        file.extend((info.len() as u32).to_le_bytes());
        file.extend(name);
        file.extend(info);
        file
    }

    #[test]
    fn old_superblocks_name_their_driver() {
        let mut info = 0xFED0_1331u32.to_le_bytes().to_vec();
        info.extend(1u32.to_le_bytes());
        info.extend(1u32.to_le_bytes());
        info.extend(4096u64.to_le_bytes());
        info.extend(3u64.to_le_bytes());
        let driver = |name, info: &[u8]| {
            let file = old(name, info);
            Superblock::read(&file).unwrap().driver(&file)
        };
        let found = driver(SUBFILING, &info);
        assert_eq!(found, Driver::Subfiling(info.clone()));
        let geometry = Geometry::parse(&info).unwrap();
        assert_eq!((geometry.stripe, geometry.count), (4096, 3));
        for at in 0..info.len() {
            assert!(Geometry::parse(&info[..at]).is_err(), "{at}");
        }
        assert_eq!(driver(FAMILY, &[7]), Driver::Family(vec![7]));
        assert_eq!(driver(MULTI, &[]), Driver::Multi);
        assert_eq!(driver(b"somebody", &[]), Driver::None);
        let whole = old(SUBFILING, &info);
        let superblock = Superblock::read(&whole).unwrap();
        assert_eq!(superblock.driver(&whole[..96]), Driver::Elsewhere);
        let patch = superblock.without_driver(&whole, 512).unwrap();
        assert_eq!((patch.at, patch.bytes), (512 + 48, vec![0xff; 8]));
    }

    #[test]
    fn hostile_numbers_are_refused() {
        let info = |stripe: u64, count: u64| {
            let mut info = 0xFED0_1331u32.to_le_bytes().to_vec();
            info.extend([1, 0, 0, 0, 1, 0, 0, 0]);
            info.extend(stripe.to_le_bytes());
            info.extend(count.to_le_bytes());
            Geometry::parse(&info)
        };
        assert!(info(1, 1).is_ok());
        for (stripe, count) in [
            (0, 1),
            (u64::MAX, 1),
            (1, 0),
            (1, 1_000_000_000),
            (1, u64::MAX),
        ] {
            assert!(info(stripe, count).is_err(), "{stripe} {count}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_looked_at(version in 0u8..5, mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let front = [b"\x89HDF\r\n\x1a\n".as_slice(), &[version, 8, 8]].concat();
            for (at, byte) in front.into_iter().enumerate().take(bytes.len()) {
                bytes[at] = byte;
            }
            if let Some(superblock) = Superblock::read(&bytes) {
                let _ = superblock.driver(&bytes);
                let _ = superblock.without_driver(&bytes, u64::MAX);
            }
            let _ = (Geometry::parse(&bytes), Geometry::member_of_family(&bytes));
        }
    }
}
