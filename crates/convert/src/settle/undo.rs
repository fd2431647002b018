//! Makes a settled file a log again.

use std::io;
use std::os::unix::fs::FileExt;

use super::held::Held;
use super::replace_superblock;
use h5logfs_common::error::Result;
use h5logfs_log::settled::record::{Checksum, Record};

/// Restores the log byte for byte, except for writes into chunks that lie in the log. Fails if anything else was
/// written since the file was settled.
pub fn undo(held: &Held) -> Result<()> {
    const NONE: &str = "`h5logfs settle` did not make it, or a program has written to it since: it has no record of a log \
        at its end";
    let record = record_of(held)?.ok_or_else(|| held.refused(NONE))?;
    if checksum(held, &record)? != record.checksum {
        return Err(held.refused(
            "a program has written to it since it was settled: it stays an ordinary HDF5 file",
        ));
    }
    replace_superblock(held, &record.mark.superblock)?;
    let cut = held.file().set_len(record.mark.old_len);
    let cut = cut.and_then(|()| held.file().sync_all());
    cut.map_err(|e| held.failed(e))
}

/// Whether the file is settled and its end is unchanged since.
pub fn is_settled(held: &Held) -> Result<bool> {
    Ok(record_of(held)?.is_some())
}

/// The record at the end of the file, if there is one.
fn record_of(held: &Held) -> Result<Option<Record>> {
    let len = held.identity()?.size;
    let Some(at) = len.checked_sub(Record::SIZE as u64) else {
        return Ok(None);
    };
    let mut bytes = vec![0; Record::SIZE];
    let read = held.file().read_exact_at(&mut bytes, at);
    read.map_err(|e| held.failed(e))?;
    let is_of_this = |record: &Record| record.end == len && record.user_block == held.user_block();
    Ok(Record::from_bytes(&bytes).filter(is_of_this))
}

/// The checksum of the file's current content.
fn checksum(held: &Held, record: &Record) -> Result<u128> {
    let objects_end = record.start + record.objects;
    let mut checksum = Checksum::default();
    for range in [
        objects_end..record.end - Record::SIZE as u64,
        record.start..objects_end,
    ] {
        add(held, range, &mut checksum).map_err(|e| held.failed(e))?;
    }
    checksum.add(held.superblock());
    Ok(checksum.sum())
}

fn add(held: &Held, range: std::ops::Range<u64>, checksum: &mut Checksum) -> io::Result<()> {
    const STEP: u64 = 1 << 20;
    let mut buffer = vec![0; STEP as usize];
    let mut at = range.start;
    while at < range.end {
        let part = &mut buffer[..STEP.min(range.end - at) as usize];
        held.file().read_exact_at(part, at)?;
        checksum.add(part);
        at += part.len() as u64;
    }
    Ok(())
}
