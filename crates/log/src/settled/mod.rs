//! Recognizes a log that was closed and settled (`docs/formats/settled.md`). Such a file is no log any more, and
//! programs may write where its data lie. [`record`] reads and writes the additions of a settled file to an ordinary
//! one. [`state`] tells one settled state of a file from another.

pub mod record;
pub mod state;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::front_bytes::{SEAL_AT, SEAL_LEN, WITH_SEALS, WITHOUT_SEALS};
use h5logfs_hdf5_format::SUPERBLOCK;
use record::Mark;

/// The first bytes of the mark that `h5logfs settle` puts after a closed file.
pub const SETTLING: &[u8; 16] = b"h5logfs-settling";

/// Whether the mark lies after the log, and the file has another superblock than the log had. For a log that is not
/// closed, this reads only the place of its seal.
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
    // A part of a mark, from an interrupted attempt, is no mark.
    let Some(mark) = Mark::from_bytes(&mark) else {
        return Ok(false);
    };
    let mut superblock = [0; SUPERBLOCK];
    file.read_exact_at(&mut superblock, 0)?;
    Ok(mark.superblock != superblock)
}

/// The end of the log, rounded up as for the mark; `None` where the file has no seal. Behind its magic number the seal
/// has the start and the length of the objects.
fn end_of_log(seal: &[u8; SEAL_LEN]) -> Option<u64> {
    let (numbers, _) = seal.as_chunks::<8>();
    let [magic, start, len, ..] = numbers else {
        return None;
    };
    let is_seal = magic == WITH_SEALS || magic == WITHOUT_SEALS;
    let end = u64::from_le_bytes(*start).checked_add(u64::from_le_bytes(*len))?;
    is_seal.then(|| end.checked_next_multiple_of(8)).flatten()
}
