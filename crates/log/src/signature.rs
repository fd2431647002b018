//! The place of an HDF5 file inside the file that contains it.

use crate::source_file::SourceFile;
use h5logfs_common::error::Result;

/// Looks for an HDF5 signature at byte 0, 512, 1024, 2048, … (HDF5 File Format Specification,
/// II.A). Reads a few bytes per place, never the file.
pub fn find_signature(file: &SourceFile) -> Result<Option<u64>> {
    let mut at = 0;
    while at + HDF5_SIGNATURE.len() as u64 <= file.len() {
        let mut bytes = [0; HDF5_SIGNATURE.len()];
        file.read_exact_at(&mut bytes, at)?;
        if bytes == HDF5_SIGNATURE {
            return Ok(Some(at));
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    Ok(None)
}

const HDF5_SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
