//! The metadata of the canonical file, for code that reads HDF5 structures.

use super::View;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;

/// The file metadata behind the user block. Where files of the log have the bytes of the canonical file as they are,
/// all bytes behind the user block count.
#[derive(Debug, Clone, Copy)]
pub struct Metadata<'a>(pub(super) &'a View);

impl HeaderBytes for Metadata<'_> {
    fn size(&self) -> u64 {
        let Metadata(view) = self;
        view.preamble_len().saturating_sub(view.snapshot.user_block)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err("an address past the metadata".into());
        }
        let Metadata(view) = self;
        if view.snapshot.log.layout().flat().is_some() {
            view.read_at(view.snapshot.user_block + at, buf)?;
            return Ok(());
        }
        // A look-up of an object takes many small reads, which need no task.
        let at = usize::try_from(at)?;
        let found = view.preamble.get(at..at + buf.len());
        buf.copy_from_slice(found.ok_or("an address past the metadata")?);
        Ok(())
    }
}
