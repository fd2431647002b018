//! The superblock (II.A), versions 0 to 3.

use crate::{Fields, HeaderBytes, Result, read_checked, read_vec};

/// Bytes of a superblock of version 0 with addresses of eight bytes.
pub const SUPERBLOCK: usize = 96;

/// The address of the root group.
pub fn root<B: HeaderBytes + ?Sized>(bytes: &B) -> Result<u64> {
    const SHORT: &str = "a superblock that ends early";
    let front = read_vec(bytes, 0, 9)?;
    let (signature, version) = front.split_at(8);
    if signature != b"\x89HDF\r\n\x1a\n" {
        return Err("no HDF5 signature".into());
    }
    // Where the sizes of addresses and lengths are, and the address of the root group.
    let (sizes_at, root_at, bytes) = match version {
        [0] => (13, 64, read_vec(bytes, 0, 96)?),
        [1] => (13, 68, read_vec(bytes, 0, 100)?),
        [2 | 3] => (9, 36, read_checked(bytes, 0, 48)?),
        _ => return Err(format!("superblock version {version:?}").into()),
    };
    let sizes = bytes.get(sizes_at..sizes_at + 2).ok_or(SHORT)?;
    if sizes != [8, 8] {
        return Err(format!("addresses and lengths of {sizes:?} bytes: only 8 are read").into());
    }
    let root = bytes.get(root_at..).and_then(|rest| Fields(rest).address());
    Ok(root.ok_or(SHORT)?.ok_or("a file without a root group")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup3;

    fn old(version: u8, sizes: [u8; 2]) -> Vec<u8> {
        let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
        bytes.extend([version, 0, 0, 0, 0, sizes[0], sizes[1], 0]);
        bytes.resize(64 + 4 * usize::from(version), 0);
        bytes.extend(800u64.to_le_bytes());
        bytes.resize(128, 0);
        bytes
    }

    #[test]
    fn all_versions_name_the_root_group() {
        for version in [0, 1] {
            assert_eq!(root(&old(version, [8, 8])), Ok(800));
            assert!(root(&old(version, [4, 8])).is_err());
            assert!(root(&old(version, [8, 8])[..90]).is_err());
        }
        assert!(root(&old(9, [8, 8])).is_err());
        for version in [2, 3] {
            let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
            bytes.extend([version, 8, 8, 0]);
            bytes.resize(36, 0);
            bytes.extend(48u64.to_le_bytes());
            bytes.extend(lookup3(&bytes).to_le_bytes());
            assert_eq!(root(&bytes), Ok(48));
            bytes[36] ^= 1;
            assert!(root(&bytes).is_err());
        }
        assert!(root(&b"\x89HDF\r\n\x1a\n"[..]).is_err());
    }
}
