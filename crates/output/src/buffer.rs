//! The data of the pending entries of a rank: in memory of its own, or in memory that the ranks of its node share.

use std::ops::Range;

use crate::entries::DatasetInfo;
use crate::neighbours::Shared;
use crate::selection::Blocks;

/// The data of pending entries.
#[derive(Debug)]
pub(crate) enum Buffer {
    Own(Vec<u8>),
    Shared(Box<Shared>),
}

impl Buffer {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Own(data) => data,
            Buffer::Shared(shared) => shared.data().as_slice(),
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            Buffer::Own(data) => data.len() as u64,
            Buffer::Shared(shared) => shared.data().len() as u64,
        }
    }

    /// Bytes of what others are told of the data.
    pub fn notes_len(&self) -> u64 {
        match self {
            Buffer::Own(_) => 0,
            Buffer::Shared(shared) => shared.notes_len(),
        }
    }

    /// Makes room for so many bytes more.
    pub fn reserve(&mut self, more: usize) -> Result<(), String> {
        match self {
            Buffer::Own(_) => Ok(()),
            Buffer::Shared(shared) => shared.reserve(more).map_err(about_memory),
        }
    }

    /// Adds the data of a record.
    pub fn push(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        bytes: &[u8],
    ) -> Result<(), String> {
        match self {
            Buffer::Own(data) => data.extend_from_slice(bytes),
            Buffer::Shared(shared) => shared.push(dataset, blocks, bytes).map_err(about_memory)?,
        }
        Ok(())
    }

    /// Adds data whose entries are there, and of which others are not told: only to memory of its own.
    pub fn extend(&mut self, bytes: &[u8]) {
        match self {
            Buffer::Own(data) => data.extend_from_slice(bytes),
            Buffer::Shared(_) => unreachable!("a log that is read takes records alone"),
        }
    }

    /// All of it lies in an extent of a data file now, and counts with the next flush.
    pub fn set_spilled(&mut self, file: usize, extent: Option<&Range<u64>>) {
        match (self, extent) {
            (Buffer::Own(data), _) => data.clear(),
            (Buffer::Shared(shared), Some(extent)) => shared.set_spilled(file, extent),
            (Buffer::Shared(_), None) => {}
        }
    }

    /// All of it is flushed: so many flushes are complete.
    pub fn set_flushed(&mut self, flush: u64) {
        match self {
            Buffer::Own(data) => data.clear(),
            Buffer::Shared(shared) => shared.set_flushed(flush),
        }
    }

    /// Gives back the memory that is not in use.
    pub fn shrink(&mut self) {
        match self {
            Buffer::Own(data) => data.shrink_to_fit(),
            Buffer::Shared(shared) => shared.shrink(),
        }
    }
}

fn about_memory(e: std::io::Error) -> String {
    format!("memory that the ranks of a node share: {e}")
}
