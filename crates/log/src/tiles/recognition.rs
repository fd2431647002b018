//! Whether a file is a member of a set, by its header (section 9).

use std::ffi::OsStr;

use super::Family;
use super::families;
use super::format::{self, Format};
use super::hdf5;
use super::names::{Candidate, MemberName};
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;

/// What the first member of a candidate says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognized {
    /// The files of this stem are members of a set.
    Set,
    /// They are, but of a kind that is not joined. The reason goes on after the name of the file.
    Refused(String),
    /// They are ordinary files.
    No,
}

/// Reads the header of `file`, which has this name and is the first of its stem. Fails where the header is cut off or broken, or
/// cannot be read: another file of the stem may tell.
pub fn recognize(file: &SourceFile, name: &MemberName<'_>) -> Result<Recognized> {
    by_header(file, name).map_err(|fault| Error::of(file.path(), fault))
}

/// [`recognize`] for a candidate, whose members `open` opens. A few members are tried where the first ones cannot be read.
pub fn recognize_any(
    candidate: &Candidate,
    open: impl Fn(&OsStr) -> Result<SourceFile>,
) -> Result<Recognized> {
    let mut outcome = Ok(Recognized::No);
    for member in candidate.names().take(MOST_TRIED) {
        let Some(name) = MemberName::parse(&member) else {
            break;
        };
        let found = open(&member).and_then(|file| recognize(&file, &name));
        match found {
            Ok(_) => return found,
            // The first one is that of which users are told.
            Err(_) => outcome = outcome.and(found),
        }
    }
    outcome
}

/// Most members of a candidate that are opened.
const MOST_TRIED: usize = 4;

fn by_header(file: &SourceFile, name: &MemberName<'_>) -> std::result::Result<Recognized, Fault> {
    let format = Format::of(file)?;
    if format.is_none() && !file.is_empty() {
        return Ok(Recognized::No);
    }
    let mut is_marked = false;
    if let Some(Format::Hdf5 { base }) = format {
        is_marked = families::has_mark(name.family, &hdf5::attributes(file, base)?);
        if !is_marked && name.family != Family::Fms {
            return Ok(Recognized::No);
        }
    }
    match format::header(file) {
        Ok(header) => Ok(families::recognize(name, &header)),
        Err(Fault::Refused(reason)) if is_marked => Ok(Recognized::Refused(reason)),
        Err(Fault::Refused(_)) => Ok(Recognized::No),
        Err(fault) => Err(fault),
    }
}
