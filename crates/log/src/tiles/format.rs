//! The format of a member, and its header in any of them.

use super::member::MemberHeader;
use super::{classic, hdf5};
use crate::netcdf;
use crate::signature::find_signature;
use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;

/// The format of a member, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Classic,
    Hdf5 {
        /// The place of the superblock.
        base: u64,
    },
}

impl Format {
    /// `None` for other files.
    pub fn of(file: &SourceFile) -> Result<Option<Self>, Fault> {
        if netcdf::has_magic(file)? {
            return Ok(Some(Format::Classic));
        }
        let signature = find_signature(file)?;
        Ok(signature.map(|base| Format::Hdf5 { base }))
    }
}

/// Reads the header of a member. A fault that says "refused" is of a file that can be read, and has what no joined file can have.
/// Damage is a header that is cut off or broken.
pub fn header(file: &SourceFile) -> Result<MemberHeader, Fault> {
    match Format::of(file)? {
        Some(Format::Classic) => classic::header(file),
        Some(Format::Hdf5 { base }) => hdf5::header(file, base),
        None if file.is_empty() => Err("the file is empty: it has no header".into()),
        None => Err("it is not a netCDF file".into()),
    }
}
