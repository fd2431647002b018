//! The first 64 bytes of `md.idx` (section 1.1).

use h5logfs_common::fault::Fault;

use crate::{Bytes, Result};

/// The format of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// BP4.
    Bp4,
    /// BP5.
    Bp5,
}

/// The statement of `md.idx` about the directory as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The format.
    pub version: Version,
    /// All numbers are big-endian; otherwise little-endian.
    pub is_big_endian: bool,
    /// A writer has the directory open, or died without closing it.
    pub is_active: bool,
    /// Dimensions are in Fortran order. Always false for BP4, which records the order elsewhere.
    pub is_column_major: bool,
    /// The steps are shown as one (section 3.9).
    pub is_flattened: bool,
}

/// The first bytes of every `md.idx`.
pub const SIGNATURE: &[u8; 10] = b"ADIOS-BP v";

/// The only minor version of BP5 that was released.
const BP5_MINOR: u8 = 2;

impl Header {
    /// Bytes of the header.
    pub const LEN: usize = 64;

    /// Whether these bytes can begin an `md.idx` of a directory that this crate reads. The check is cheap and may err.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.len() >= Self::LEN && bytes.starts_with(SIGNATURE) && matches!(bytes[37], 4 | 5)
    }

    /// Reads the header. Refuses files that are no `md.idx`, and names versions that this crate does not read.
    pub fn read(index: &dyn Bytes) -> Result<Self> {
        if index.len() < Self::LEN as u64 {
            return Err("is not an ADIOS2 index: it has fewer than 64 bytes".into());
        }
        let mut bytes = [0; Self::LEN];
        index.read_exact_at(&mut bytes, 0)?;
        Self::of(&bytes)
    }

    fn of(bytes: &[u8; Self::LEN]) -> Result<Self> {
        if !bytes.starts_with(SIGNATURE) {
            return Err("is not an ADIOS2 index: it does not begin with \"ADIOS-BP v\"".into());
        }
        let is_big_endian = match bytes[36] {
            0 => false,
            1 => true,
            other => return Err(format!("byte order {other} is unknown").into()),
        };
        match bytes[37] {
            4 => Ok(Header {
                version: Version::Bp4,
                is_big_endian,
                is_active: bytes[38] == 1,
                is_column_major: false,
                is_flattened: false,
            }),
            5 if bytes[38] == BP5_MINOR => Ok(Header {
                version: Version::Bp5,
                is_big_endian,
                is_active: bytes[39] == 1,
                is_column_major: bytes[40] == b'y',
                is_flattened: bytes[41] == 1,
            }),
            5 => Err(refused(format!("BP5.{}", bytes[38]))),
            other => Err(refused(format!("BP{other}"))),
        }
    }
}

fn refused(version: String) -> Fault {
    Fault::Refused(format!(
        "is of version {version}: only BP4 and BP5.2 can be read"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(edit: impl Fn(&mut [u8; 64])) -> Result<Header> {
        let mut bytes = [0; 64];
        bytes[..28].copy_from_slice(b"ADIOS-BP v2.<.1 Index Table ");
        bytes[37] = 5;
        bytes[38] = 2;
        bytes[40] = b'n';
        edit(&mut bytes);
        let read = Header::read(&bytes);
        assert_eq!(
            Header::is_one(&bytes),
            bytes[0] == b'A' && matches!(bytes[37], 4 | 5)
        );
        read
    }

    #[test]
    fn bytes_of_the_header() {
        let plain = Header {
            version: Version::Bp5,
            is_big_endian: false,
            is_active: false,
            is_column_major: false,
            is_flattened: false,
        };
        assert_eq!(header(|_| ()), Ok(plain));
        let all = Header {
            version: Version::Bp5,
            is_big_endian: true,
            is_active: true,
            is_column_major: true,
            is_flattened: true,
        };
        let set = |b: &mut [u8; 64]| (b[36], b[39], b[40], b[41]) = (1, 1, b'y', 1);
        assert_eq!(header(set), Ok(all));
        let bp4 = header(|b| (b[37], b[38]) = (4, 1)).unwrap();
        assert_eq!((bp4.version, bp4.is_active), (Version::Bp4, true));
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        for (edit, name) in [((37, 3), "BP3"), ((38, 1), "BP5.1"), ((37, 6), "BP6")] {
            let fault = header(|b| b[edit.0] = edit.1).unwrap_err();
            assert!(fault.to_string().contains(name), "{fault}");
        }
        assert!(header(|b| b[0] = b'a').is_err());
        assert!(Header::read(&[0; 63]).is_err());
    }
}
