//! Stub.

use super::names::MemberName;
use crate::source_file::SourceFile;
use h5logfs_common::error::Result;

/// What the content of a first member shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognized {
    /// The file is a member of a set.
    Set,
    /// The reason.
    Refused(String),
    /// An ordinary file.
    No,
}

/// Stub.
pub fn recognize(file: &SourceFile, _: &MemberName<'_>) -> Result<Recognized> {
    let mut magic = [0; 3];
    if file.len() < 3 {
        return Ok(Recognized::No);
    }
    file.read_exact_at(&mut magic, 0)?;
    Ok(if &magic == b"CDF" {
        Recognized::Set
    } else {
        Recognized::No
    })
}
