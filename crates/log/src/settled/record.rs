//! The additions of a settled file to an ordinary one (`docs/formats/settled.md`). A mark lies before the appended
//! bytes, and identifies an interrupted attempt. A record at the end of the file serves to bring the log back.

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use h5logfs_hdf5_format::SUPERBLOCK;

/// Bytes of the superblock of an image, which has version 0 and 8-byte addresses (II.A).
use super::SETTLING;

/// The superblock of an image. It is written last.
pub type Superblock = [u8; SUPERBLOCK];

const VERSION: u64 = 1;

/// The mark. It stands at the old end of the log, rounded up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Length of the log.
    pub old_len: u64,
    /// Superblock of the log.
    pub superblock: Superblock,
}

/// The last bytes of a settled file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The mark in this file.
    pub mark: Mark,
    /// Offset of the superblock.
    pub user_block: u64,
    /// Offset of the mark.
    pub start: u64,
    /// Bytes of the mark and of the objects after it.
    pub objects: u64,
    /// Length of the settled file.
    pub end: u64,
    /// Checksum of the appended bytes and of the new superblock.
    pub checksum: u128,
}

impl Mark {
    const MAGIC: &[u8; 16] = SETTLING;
    /// Bytes of a mark.
    pub const SIZE: usize = 16 + 8 + 8 + SUPERBLOCK + 16;

    /// The mark as it stands in the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Self::MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.old_len.to_le_bytes());
        bytes.extend(self.superblock);
        sealed(bytes)
    }

    /// `None` where the bytes are no mark.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::open(bytes, Self::MAGIC)?;
        Some(Mark {
            old_len: fields.number()?,
            superblock: *fields.take()?,
        })
    }
}

impl Record {
    const MAGIC: &[u8; 16] = b"h5logfs-settled\n";
    /// Bytes of a record.
    pub const SIZE: usize = 16 + 6 * 8 + SUPERBLOCK + 2 * 16;

    /// The record as it stands in the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Self::MAGIC.to_vec();
        for number in [
            VERSION,
            self.mark.old_len,
            self.user_block,
            self.start,
            self.objects,
            self.end,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.mark.superblock);
        bytes.extend(self.checksum.to_le_bytes());
        sealed(bytes)
    }

    /// Reads a record. `None` where the bytes are no record, or where its numbers contradict each other.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::open(bytes, Self::MAGIC)?;
        let old_len = fields.number()?;
        let (user_block, start) = (fields.number()?, fields.number()?);
        let (objects, end) = (fields.number()?, fields.number()?);
        let record = Record {
            mark: Mark {
                old_len,
                superblock: *fields.take()?,
            },
            user_block,
            start,
            objects,
            end,
            checksum: u128::from_le_bytes(*fields.take()?),
        };
        let superblock_end = user_block.checked_add(SUPERBLOCK as u64)?;
        let objects_end = start.checked_add(objects)?;
        let record_at = end.checked_sub(Self::SIZE as u64)?;
        let fits = superblock_end <= old_len && old_len <= start && objects_end <= record_at;
        fits.then_some(record)
    }
}

/// Appends a checksum of the bytes to them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(xxh3_128(&bytes).to_le_bytes());
    bytes
}

/// The fields of sealed bytes, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields after the magic number and the version, without the checksum. `None` where one of these is wrong.
    fn open(bytes: &'a [u8], magic: &[u8; 16]) -> Option<Self> {
        let (bytes, checksum) = bytes.split_last_chunk()?;
        if xxh3_128(bytes) != u128::from_le_bytes(*checksum) {
            return None;
        }
        let mut fields = Fields(bytes.strip_prefix(magic)?);
        (fields.number()? == VERSION).then_some(fields)
    }

    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(field)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// The checksum of the appended bytes. It covers the bytes after the objects, in the order in which they were written,
/// then the mark and the objects, then the new superblock.
#[derive(Default)]
pub struct Checksum(Xxh3);

impl Checksum {
    /// Adds the bytes that come next.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn sum(&self) -> u128 {
        self.0.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            mark: Mark {
                old_len: 10_001,
                superblock: [7; SUPERBLOCK],
            },
            user_block: 512,
            start: 10_008,
            objects: 300,
            end: 20_000,
            checksum: 1 << 100 | 5,
        }
    }

    #[test]
    fn both_are_read_as_they_were_written() {
        let record = record();
        let bytes = record.to_bytes();
        assert_eq!(bytes.len(), Record::SIZE);
        assert_eq!(Record::from_bytes(&bytes), Some(record.clone()));
        let mark = record.mark.to_bytes();
        assert_eq!(mark.len(), Mark::SIZE);
        assert_eq!(Mark::from_bytes(&mark), Some(record.mark));
        assert_eq!(Mark::SIZE % 8, 0);
    }

    #[test]
    fn other_bytes_are_neither() {
        let (record, mark) = (record().to_bytes(), record().mark.to_bytes());
        assert_eq!(Mark::from_bytes(&record), None);
        assert_eq!(Record::from_bytes(&mark), None);
        for bytes in [&record, &mark] {
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert_eq!(Mark::from_bytes(&other), None);
                assert_eq!(Record::from_bytes(&other), None);
                assert_eq!(Mark::from_bytes(&bytes[..at]), None);
                assert_eq!(Record::from_bytes(&bytes[..at]), None);
            }
        }
    }

    #[test]
    fn numbers_that_contradict_each_other_are_no_record() {
        let changes: [fn(&mut Record); 7] = [
            |r| r.user_block = u64::MAX,
            |r| r.user_block = 9_950,
            |r| r.mark.old_len = 10_009,
            |r| r.start = u64::MAX,
            |r| r.objects = u64::MAX,
            |r| r.objects = 9_900,
            |r| r.end = 100,
        ];
        for change in changes {
            let mut record = record();
            change(&mut record);
            assert_eq!(Record::from_bytes(&record.to_bytes()), None, "{record:?}");
        }
    }
}
