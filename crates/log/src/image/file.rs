//! The metadata of a file on disk.

use super::{HeaderBytes, Result};
use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;

/// An HDF5 file after its user block.
#[derive(Debug, Clone, Copy)]
pub struct Hdf5<'a> {
    /// The file.
    pub source: &'a SourceFile,
    /// The size of the user block.
    pub base: u64,
}

impl HeaderBytes for Hdf5<'_> {
    fn size(&self) -> u64 {
        self.source.len().saturating_sub(self.base)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let offset = self.base.checked_add(at).ok_or("an address past 2^64")?;
        let read = self.source.read_exact_at(buf, offset);
        read.map_err(Fault::from)
    }
}
