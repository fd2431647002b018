//! Tells whether a file that was a log has been closed and settled (`docs/formats/settled.md`): then it is no log any more, and
//! programs may write where its data lie.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_128;

/// The first bytes of the mark that `h5logfs settle` puts behind a closed file.
pub const SETTLING: &[u8; 16] = b"h5logfs-settling";
/// Bytes of a superblock, and where that of the log stands in the mark.
const SUPERBLOCK: usize = 96;
const SUPERBLOCK_AT: usize = 32;
/// Bytes of the mark. The last 16 are the checksum of the others.
const MARK: usize = SUPERBLOCK_AT + SUPERBLOCK + 16;
/// The page with the seal of the close. Its last 64 bytes are the seal: a magic number, and where the objects begin and how many
/// bytes they have. The log ends behind them.
const PAGE: usize = 4096;
const SEAL_AT: usize = PAGE - 64;
const SEALS: [&[u8; 8]; 2] = [b"h5lgclos", b"h5lgdone"];

/// Whether the mark lies behind the log, and the superblock of the file is not that of the log any more.
pub fn is_settled(file: &File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    if len < PAGE as u64 {
        return Ok(false);
    }
    let mut page = [0; PAGE];
    file.read_exact_at(&mut page, 0)?;
    let Some(mark_at) = end_of_log(&page) else {
        return Ok(false);
    };
    let mut mark = [0; MARK];
    if len.saturating_sub(mark_at) < MARK as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut mark, mark_at)?;
    let (mark, sum) = mark.split_at(SUPERBLOCK_AT + SUPERBLOCK);
    // What an interrupted attempt has left of a mark is none.
    let is_mark = mark.starts_with(SETTLING) && xxh3_128(mark).to_le_bytes() == sum;
    Ok(is_mark && mark[SUPERBLOCK_AT..] != page[..SUPERBLOCK])
}

/// Where the log ends, rounded up as for the mark; `None` where no close has told it.
fn end_of_log(page: &[u8; PAGE]) -> Option<u64> {
    let seal = &page[SEAL_AT..];
    let number = |at: usize| {
        let bytes = seal.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let is_seal = SEALS.iter().any(|magic| seal.starts_with(*magic));
    let end = number(8)?.checked_add(number(16)?)?;
    is_seal.then(|| end.checked_next_multiple_of(8)).flatten()
}
