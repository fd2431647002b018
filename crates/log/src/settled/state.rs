//! One settled state of a file. A settled file may become a log again and be settled once more. The same places then
//! hold other bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{Mark, Record, Superblock};
use h5logfs_hdf5_format::SUPERBLOCK;

/// Offset in a version-0 superblock of the address of the root group's object header.
const ROOT_AT: usize = 64;

/// Tells a settled state of a file from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledState {
    record: Record,
}

impl SettledState {
    /// The state of a file of `len` bytes whose signature is at `signature`. `None` where the file is no settled log,
    /// and where a program has appended to it since: such a file never becomes a log again.
    ///
    /// For most files this reads only the superblock.
    pub fn of(file: &File, len: u64, signature: u64) -> io::Result<Option<Self>> {
        let Some(record_at) = len.checked_sub(Record::SIZE as u64) else {
            return Ok(None);
        };
        let Some(superblock) = superblock(file, signature)? else {
            return Ok(None);
        };
        let mut root = [0; 8];
        root.copy_from_slice(&superblock[ROOT_AT..ROOT_AT + 8]);
        // The objects follow a log and a mark.
        let is_behind = u64::from_le_bytes(root) >= (SUPERBLOCK + Mark::SIZE) as u64;
        if superblock[8] != 0 || !is_behind {
            return Ok(None);
        }
        let found = record(file, record_at)?;
        let is_own = |record: &Record| record.end == len && record.user_block == signature;
        let state = found.filter(is_own).map(|record| SettledState { record });
        Ok(state.filter(|state| state.record.mark.superblock != superblock))
    }

    /// A number that other settled states of the file do not have.
    pub fn number(&self) -> u64 {
        // The checksum covers all appended bytes.
        (self.record.checksum >> 64) as u64 ^ self.record.checksum as u64
    }

    /// Whether the file is still in this state. Changes that programs made to the ordinary file do not count. A file
    /// that becomes a log again gets the superblock of the log first, so a positive answer also holds for everything
    /// that was read before the call.
    pub fn is_that_of(&self, file: &File) -> io::Result<bool> {
        let record_at = self.record.end - Record::SIZE as u64;
        if record(file, record_at)?.as_ref() != Some(&self.record) {
            return Ok(false);
        }
        let now = superblock(file, self.record.user_block)?;
        Ok(now.is_some_and(|now| now != self.record.mark.superblock))
    }
}

/// The superblock at `signature`; `None` where the file ends before.
fn superblock(file: &File, signature: u64) -> io::Result<Option<Superblock>> {
    let mut bytes = [0; SUPERBLOCK];
    let is_there = read_if_there(file, &mut bytes, signature)?;
    Ok(is_there.then_some(bytes))
}

/// The record at `at`; `None` where there is none.
fn record(file: &File, at: u64) -> io::Result<Option<Record>> {
    let mut bytes = [0; Record::SIZE];
    let is_there = read_if_there(file, &mut bytes, at)?;
    Ok(Record::from_bytes(&bytes).filter(|_| is_there))
}

fn read_if_there(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
