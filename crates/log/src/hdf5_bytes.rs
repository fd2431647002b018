//! HDF5 files on disk as the bytes that `h5logfs_hdf5_format` reads.

use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;

impl HeaderBytes for SourceFile {
    fn size(&self) -> u64 {
        self.len()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.read_exact_at(buf, at).map_err(Fault::from)
    }
}

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

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let offset = self.base.checked_add(at).ok_or("an address past 2^64")?;
        self.source.read(offset, buf)
    }
}

/// The name of the scale of a netCDF dimension that has no variable begins so.
const NO_VARIABLE: &[u8] = b"This is a netCDF dimension but not a netCDF variable";

/// Whether a dimension scale with this attribute `NAME` only stands for a dimension. Nobody writes its elements.
pub fn is_bare_dimension(name: &[u8]) -> bool {
    name.starts_with(NO_VARIABLE)
}
