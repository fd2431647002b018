//! The driver information in a superblock (HDF5 File Format Specification, II.B and IV.A.2.u;
//! `docs/formats/hdf5-subfiling.md`, section 4).

use super::config::{checked_count, checked_stripe};
use crate::flat::Patch;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Fields, HeaderBytes, Superblock};

const SUBFILING: &[u8; 8] = b"Subfilin";
const FAMILY: &[u8; 8] = b"NCSAfami";
const MULTI: &[u8; 8] = b"NCSAmult";

/// The driver according to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// No driver, or one that does not matter.
    None,
    /// The driver information is missing because the file was cut off or is damaged.
    Elsewhere,
    /// One HDF5 file striped over subfiles.
    Subfiling(Vec<u8>),
    /// One HDF5 file cut into members of equal lengths.
    Family(Vec<u8>),
    /// Several files with addresses that no flat file has.
    Multi,
}

/// The driver of the file that begins with this superblock.
pub fn driver<B: HeaderBytes + ?Sized>(superblock: &Superblock, file: &B) -> Driver {
    // Only the multi driver has such addresses.
    if superblock.info.is_some_and(|at| at > i64::MAX as u64) {
        return Driver::Multi;
    }
    match superblock.driver_info(file) {
        Ok(None) => Driver::None,
        Err(_) => Driver::Elsewhere,
        Ok(Some(found)) => match &found.name {
            SUBFILING => Driver::Subfiling(found.info),
            FAMILY => Driver::Family(found.info),
            MULTI => Driver::Multi,
            _ => Driver::None,
        },
    }
}

/// Bytes that make the file readable without its driver. The file must have driver information. `user_block` is the number of
/// bytes before the superblock.
pub fn without_driver<B: HeaderBytes + ?Sized>(
    superblock: &Superblock,
    file: &B,
    user_block: u64,
) -> Option<Patch> {
    let (at, bytes) = superblock.without_driver_info(file).ok()??;
    Some(Patch {
        at: user_block.checked_add(at)?,
        bytes,
    })
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
            super::driver(&Superblock::read(&file).unwrap(), &file)
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
        assert_eq!(super::driver(&superblock, &whole[..96]), Driver::Elsewhere);
        let patch = without_driver(&superblock, &whole, 512).unwrap();
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
            if let Ok(superblock) = Superblock::read(&bytes) {
                let _ = driver(&superblock, &bytes);
                let _ = without_driver(&superblock, &bytes, u64::MAX);
            }
            let _ = (Geometry::parse(&bytes), Geometry::member_of_family(&bytes));
        }
    }
}
