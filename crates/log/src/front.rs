//! The front of a file that our writer made (`docs/formats/journal.md`, section 3).

use super::file_id::{FileId, MARK_END};
use super::front_bytes::UNCLOSED;
pub use super::front_bytes::begins_unclosed;
use super::source_file::SourceFile;
use crate::window::Piece;
use h5logfs_common::error::Result;

/// Bytes before the first extent. They hold all HDF5 metadata of a subfile, and the root group of every file.
pub const FRONT: u64 = MARK_END;

/// The extents of a file, which lie between its front and `end`.
pub fn extents_until(end: u64) -> Piece {
    Piece {
        offset: FRONT,
        len: end - FRONT,
    }
}

/// The front of a file that is not closed yet.
pub fn unclosed_front(id: &FileId) -> Vec<u8> {
    let mut front = vec![0; FRONT as usize];
    front[..UNCLOSED.len()].copy_from_slice(UNCLOSED);
    id.mark(&mut front);
    front
}

/// Whether a file begins with the front of an unclosed log.
pub fn is_unclosed(file: &SourceFile) -> Result<bool> {
    let mut bytes = [0; UNCLOSED.len()];
    if file.len() < FRONT {
        return Ok(false);
    }
    file.read_exact_at(&mut bytes, 0)?;
    Ok(begins_unclosed(&bytes))
}

/// Whether the first bytes of a file are the start of an unclosed front. The first write of the front may have been cut
/// off.
pub(crate) fn begins_unclosed_text(begin: &[u8]) -> bool {
    let len = begin.len().min(UNCLOSED.len());
    begin[..len] == UNCLOSED[..len]
}

/// Whether a file begins with a hole. A file system may show the size of a new file before its bytes.
pub fn is_hollow(file: &SourceFile) -> Result<bool> {
    let mut bytes = [1; UNCLOSED.len()];
    let len = file.len().min(bytes.len() as u64) as usize;
    file.read_exact_at(&mut bytes[..len], 0)?;
    Ok(len > 0 && bytes[..len].iter().all(|byte| *byte == 0))
}
