//! Tells whether a file that was a log has been closed and settled (`docs/formats/settled.md`): then it is no log any more, and
//! programs may write where its data lie.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_128;

use crate::front_bytes::{SEAL_AT, SEAL_LEN, WITH_SEALS, WITHOUT_SEALS};

/// The first bytes of the mark that `h5logfs settle` puts behind a closed file.
pub const SETTLING: &[u8; 16] = b"h5logfs-settling";
/// Bytes of a superblock, and where that of the log stands in the mark.
const SUPERBLOCK: usize = 96;
const SUPERBLOCK_AT: usize = 32;
/// Bytes of the mark. The last 16 are the checksum of the others.
const MARK: usize = SUPERBLOCK_AT + SUPERBLOCK + 16;

/// Whether the mark lies behind the log, and the superblock of the file is not that of the log any more. Of a log that is not
/// closed this reads no more than where its seal would be.
pub fn is_settled(file: &File, len: u64) -> io::Result<bool> {
    if len < (SEAL_AT + SEAL_LEN) as u64 {
        return Ok(false);
    }
    let mut seal = [0; SEAL_LEN];
    file.read_exact_at(&mut seal, SEAL_AT as u64)?;
    let mark_at = end_of_log(&seal);
    let Some(mark_at) = mark_at.filter(|at| len.saturating_sub(*at) >= MARK as u64) else {
        return Ok(false);
    };
    let mut mark = [0; MARK];
    file.read_exact_at(&mut mark, mark_at)?;
    let (mark, sum) = mark.split_at(SUPERBLOCK_AT + SUPERBLOCK);
    // What an interrupted attempt has left of a mark is none.
    if !mark.starts_with(SETTLING) || xxh3_128(mark).to_le_bytes() != sum {
        return Ok(false);
    }
    let mut superblock = [0; SUPERBLOCK];
    file.read_exact_at(&mut superblock, 0)?;
    Ok(mark[SUPERBLOCK_AT..] != superblock)
}

/// Where the log ends, rounded up as for the mark; `None` where no close has told it. Behind the magic number the seal tells where
/// the objects begin, and how many bytes they have.
fn end_of_log(seal: &[u8; SEAL_LEN]) -> Option<u64> {
    let (numbers, _) = seal.as_chunks::<8>();
    let [magic, start, len, ..] = numbers else {
        return None;
    };
    let is_seal = magic == WITH_SEALS || magic == WITHOUT_SEALS;
    let end = u64::from_le_bytes(*start).checked_add(u64::from_le_bytes(*len))?;
    is_seal.then(|| end.checked_next_multiple_of(8)).flatten()
}
