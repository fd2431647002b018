//! The place of an HDF5 file inside the file that contains it.

use crate::source_file::SourceFile;
use h5logfs_common::error::Result;
use h5logfs_hdf5_format::superblock;

/// Looks for an HDF5 signature at byte 0, 512, 1024, 2048, … Reads a few bytes of each place, never the file.
pub fn find_signature(file: &SourceFile) -> Result<Option<u64>> {
    superblock::find_signature(file.len(), |at, bytes| file.read_exact_at(bytes, at))
}
