//! Data of a rank's pending entries: in its own memory, or in memory shared by the ranks of its node.

use std::ops::Range;

use crate::entries::DatasetInfo;
use crate::neighbours::Shared;
use crate::selection::Blocks;
use h5logfs_common::fault::Fault;

/// Data of pending entries.
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

    /// Bytes of the notifications about the data.
    pub fn notes_len(&self) -> u64 {
        match self {
            Buffer::Own(_) => 0,
            Buffer::Shared(shared) => shared.notes_len(),
        }
    }

    /// Makes room for `more` bytes.
    pub fn reserve(&mut self, more: usize) -> Result<(), Fault> {
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
    ) -> Result<(), Fault> {
        match self {
            Buffer::Own(data) => data.extend_from_slice(bytes),
            Buffer::Shared(shared) => shared.push(dataset, blocks, bytes).map_err(about_memory)?,
        }
        Ok(())
    }

    /// Adds data whose entries exist and which other ranks are not notified of. Only for a buffer in own memory.
    pub fn extend(&mut self, bytes: &[u8]) {
        match self {
            Buffer::Own(data) => data.extend_from_slice(bytes),
            Buffer::Shared(_) => unreachable!("a log that is read takes records alone"),
        }
    }

    /// Records a spill: all data lie in `extent` of a data file, and count with the next flush.
    pub fn set_spilled(&mut self, file: usize, extent: Option<&Range<u64>>) {
        match (self, extent) {
            (Buffer::Own(data), _) => data.clear(),
            (Buffer::Shared(shared), Some(extent)) => shared.set_spilled(file, extent),
            (Buffer::Shared(_), None) => {}
        }
    }

    /// Records that flush number `flush` has written all data.
    pub fn set_flushed(&mut self, flush: u64) {
        match self {
            Buffer::Own(data) => data.clear(),
            Buffer::Shared(shared) => shared.set_flushed(flush),
        }
    }

    /// Releases unused memory.
    pub fn shrink(&mut self) {
        match self {
            Buffer::Own(data) => data.shrink_to_fit(),
            Buffer::Shared(shared) => shared.shrink(),
        }
    }
}

fn about_memory(e: std::io::Error) -> Fault {
    Fault::from(e).at("memory that the ranks of a node share")
}
