//! Tells whether a file that was a log has been closed and settled (`docs/formats/settled.md`): then it is no log any more, and
//! programs may write where its data lie. [`record`] has what a settled file has besides an ordinary one, and [`state`] tells one
//! settled state of a file from others.

pub mod record;
pub mod state;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::front_bytes::{SEAL_AT, SEAL_LEN, WITH_SEALS, WITHOUT_SEALS};
use h5logfs_hdf5_format::SUPERBLOCK;
use record::Mark;

/// The first bytes of the mark that `h5logfs settle` puts behind a closed file.
pub const SETTLING: &[u8; 16] = b"h5logfs-settling";

/// Whether the mark lies behind the log, and the superblock of the file is not that of the log any more. Of a log that is not
/// closed this reads no more than where its seal would be.
pub fn is_settled(file: &File, len: u64) -> io::Result<bool> {
    if len < (SEAL_AT + SEAL_LEN) as u64 {
        return Ok(false);
    }
    let mut seal = [0; SEAL_LEN];
    file.read_exact_at(&mut seal, SEAL_AT as u64)?;
    let mark_at = end_of_log(&seal);
    let Some(mark_at) = mark_at.filter(|at| len.saturating_sub(*at) >= Mark::SIZE as u64) else {
        return Ok(false);
    };
    let mut mark = [0; Mark::SIZE];
    file.read_exact_at(&mut mark, mark_at)?;
    // What an interrupted attempt has left of a mark is none.
    let Some(mark) = Mark::from_bytes(&mark) else {
        return Ok(false);
    };
    let mut superblock = [0; SUPERBLOCK];
    file.read_exact_at(&mut superblock, 0)?;
    Ok(mark.superblock != superblock)
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
