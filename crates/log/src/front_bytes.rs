//! The bytes in the front of a file of our writers. They say that the log is not closed (`docs/formats/journal.md`,
//! section 3), or they are the seal, which the close writes (section 5.1). [`closed`](crate::journal::closed) compares
//! a file with a seal.

use flate2::Crc;
use xxhash_rust::xxh3::xxh3_64;

use h5logfs_common::fault::Fault;

/// The first bytes of a file that is not closed, for a program or a person that opens it.
pub(crate) const UNCLOSED: &[u8; 64] =
    b"h5logfs log that was not closed. Its journal lies beside it.  \n\n";
/// Offset of the seal in the front. It ends with the first page, so that no page shows the metadata of a close without
/// the seal.
pub const SEAL_AT: usize = 4096 - SEAL_LEN;
/// Bytes of the seal. The superblock of the file lies before it.
pub(crate) const SEAL_LEN: usize = 64;
/// The magic number of a seal of a log whose extents have seals. The next one is for all other logs.
pub(crate) const WITH_SEALS: &[u8; 8] = b"h5lgclos";
pub(crate) const WITHOUT_SEALS: &[u8; 8] = b"h5lgdone";

/// Whether a front begins like the front of a file that is not closed.
pub fn begins_unclosed(front: &[u8]) -> bool {
    front.starts_with(UNCLOSED)
}

/// The state of a data file, or of a master, at its close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// The last flush of the log.
    pub flush: u64,
    /// End of the extents, and start of the table.
    pub end: u64,
    /// Whether extents of the log have seals. Readers then compare what they read.
    pub has_seals: bool,
}

/// The seal: it describes the bytes after the extents of a closed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseSeal {
    /// Flush and end are 0 in a seal of an earlier version.
    pub(crate) closed: Closed,
    /// End of the table, and start of the objects.
    pub(crate) start: u64,
    /// Bytes of objects.
    pub(crate) len: u64,
    /// Checksum of the objects.
    pub(crate) objects: u64,
    /// Checksum of the front without the seal.
    pub(crate) front: u64,
}

impl CloseSeal {
    pub(crate) fn to_bytes(self) -> [u8; SEAL_LEN] {
        let mut bytes = [0; SEAL_LEN];
        let Closed {
            flush,
            end,
            has_seals,
        } = self.closed;
        bytes[..8].copy_from_slice(if has_seals { WITH_SEALS } else { WITHOUT_SEALS });
        let numbers = [self.start, self.len, self.objects, self.front, flush, end];
        for (place, number) in bytes[8..56].as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        let crc = crc32(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The seal in a front; `None` where the front has none. Fails where a seal is damaged that says that extents have
    /// seals.
    pub(crate) fn of(front: &[u8]) -> Result<Option<Self>, Fault> {
        let Some(bytes) = front.get(SEAL_AT..SEAL_AT + SEAL_LEN) else {
            return Ok(None);
        };
        let has_seals = bytes[..8] == *WITH_SEALS;
        if !has_seals && bytes[..8] != *WITHOUT_SEALS {
            return Ok(None);
        }
        if bytes[60..] != crc32(&bytes[..60]).to_le_bytes() {
            if !has_seals {
                return Ok(None);
            }
            return Err("the seal of the close does not match its checksum".into());
        }
        let mut numbers = [0; 6];
        for (number, place) in numbers.iter_mut().zip(bytes[8..56].as_chunks().0) {
            *number = u64::from_le_bytes(*place);
        }
        let [start, len, objects, front, flush, end] = numbers;
        Ok(Some(CloseSeal {
            closed: Closed {
                flush,
                end,
                has_seals,
            },
            start,
            len,
            objects,
            front,
        }))
    }

    /// Whether the front is the one that this close wrote.
    pub(crate) fn is_of(&self, front: &[u8]) -> bool {
        sum_of(front) == self.front
    }
}

/// The checksum of a front without the seal in it.
pub(crate) fn sum_of(front: &[u8]) -> u64 {
    let mut bytes = front.to_vec();
    bytes[SEAL_AT..SEAL_AT + SEAL_LEN].fill(0);
    xxh3_64(&bytes)
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}
