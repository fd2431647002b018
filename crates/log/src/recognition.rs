//! Recognition of logs from a few bytes of a file. Most files of a tree are no logs, and a scan costs a process.

use crate::flat::{Flat, FlatMember};
use crate::log_files::LogFiles;
use crate::signature::find_signature;
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use crate::striped::driver_info::Driver;
use crate::striped::{self, family, lone, subfiles};
use crate::{adios, classic, front, journal, logvol, netcdf, plain};
use h5logfs_common::error::{Error, Result};

pub use crate::striped::{FileAndMembers, Kind};

/// The kind of a file according to its own bytes. The files beside it are not considered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appearance {
    /// An empty file. It is a log if files of logs lie beside it, and a stub if subfiles do.
    Empty,
    /// A file that has all its data. It is a log if files of logs lie beside it.
    Complete,
    /// An HDF5 file in several parts of this kind, whatever lies beside it.
    InParts(Kind),
    /// An HDF5 file that declares that its data are in subfiles.
    Stub,
    /// An HDF5 file that may be a stub. Only the subfiles decide.
    MaybeStub,
    /// Any other file. [`may_be_log`] examines it further.
    Other,
}

impl Appearance {
    /// Reads a few bytes of `file`. The test for a stub comes before all other tests of HDF5 files, because a stub may
    /// look like a file that has all its data.
    pub fn of(file: &SourceFile) -> Result<Self> {
        if file.is_empty() {
            return Ok(Appearance::Empty);
        }
        if netcdf::has_magic(file)? {
            return Ok(Appearance::Complete);
        }
        Ok(match striped::driver(file)? {
            Driver::None => Appearance::Other,
            Driver::Family(_) => Appearance::InParts(Kind::Family),
            Driver::Multi => Appearance::InParts(Kind::Multi),
            Driver::Subfiling(_) => Appearance::Stub,
            Driver::Elsewhere => Appearance::MaybeStub,
        })
    }
}

/// The kind of a stub whose subfiles are known.
pub const IN_SUBFILES: Kind = Kind::Subfiling;

/// Whether a stub without subfiles has all its data itself.
pub fn has_all_data(stub: &SourceFile) -> Result<bool> {
    lone::is_whole(stub)
}

/// Whether the file is of a kind that holds data, not text.
pub fn holds_data(file: &SourceFile) -> Result<bool> {
    let is_hdf5 = find_signature(file)?.is_some() || front::is_unclosed(file)?;
    Ok(is_hdf5 || netcdf::has_magic(file)? || netcdf::has_log_magic(file)?)
}

/// Whether a scan may find a log in a file that is no netCDF classic file.
pub fn may_be_log(files: &LogFiles<'_>, source: &SourceFile) -> Result<bool> {
    may_be_log_at(files, source, find_signature(source)?)
}

/// [`may_be_log`] for a file with a known `signature`.
pub fn may_be_log_at(
    files: &LogFiles<'_>,
    source: &SourceFile,
    signature: Option<u64>,
) -> Result<bool> {
    let Some(signature) = signature else {
        if adios::is_index(files.log(), source)? {
            return Ok(true);
        }
        return Ok(front::is_unclosed(source)? || journal::lacks_front(files, source)?);
    };
    // The journal decides about a file of our writer. A settled file has no journal.
    let may_be_log =
        !plain::is_certain(source, signature) || journal::may_belong_to(files, source)?;
    if !may_be_log {
        log::debug!("{}: passed through: plain HDF5", source.path().display());
    }
    Ok(may_be_log)
}

/// Finds the members of `file`, which is one HDF5 file in several of this kind. `companions`: those of its [companion
/// files](crate::part_names::companions_of) that belong to it. Fails with [`Error::NotALog`] for [`Kind::Multi`].
pub fn find_members(
    kind: Kind,
    files: &LogFiles<'_>,
    file: &SourceFile,
    companions: &[SourcePath],
) -> Result<FileAndMembers> {
    match kind {
        Kind::Subfiling => subfiles::Entry::of(files, file).find(companions),
        Kind::Family => family::find(files, file),
        Kind::Whole => whole_file(file),
        Kind::Multi => Err(Error::NotALog {
            path: file.path().to_owned(),
            reason: striped::MULTI.into(),
        }),
    }
}

/// Shows an HDF5 file unchanged. Fails with [`Error::NotALog`] for any other file.
pub fn whole_file(file: &SourceFile) -> Result<FileAndMembers> {
    let user_block = find_signature(file)?.ok_or_else(|| Error::NotALog {
        path: file.path().to_owned(),
        reason: "it is not an HDF5 file".into(),
    })?;
    let member = FlatMember {
        source: Some(0),
        name: String::new(),
    };
    let flat = Flat {
        len: file.len(),
        user_block,
        promised: file.len(),
        stripe: file.len().max(1),
        members: vec![member],
        patches: Vec::new(),
    };
    Ok(FileAndMembers {
        tables: striped::Tables {
            kind: Kind::Whole,
            flat,
        },
        members: Vec::new(),
        diagnostics: Vec::new(),
    })
}

/// Marks of each layout. The metadata of a log of this layout contain all its marks.
const MARKS: &[&[&str]] = &[&[logvol::MARK], &[classic::METADATA_LOG, classic::DATA_LOG]];

/// Bytes searched for a layout's marks in a file that libhdf5 cannot open.
const MARK_WINDOW: u64 = 1 << 20;

/// Whether a damaged HDF5 file carries the marks of a log layout near its signature. The daemon refuses such a
/// file, and passes any other damaged file through.
pub fn carries_mark(file: &SourceFile, signature: u64) -> Result<bool> {
    let left = file.len().saturating_sub(signature);
    let mut front = vec![0; left.min(MARK_WINDOW) as usize];
    file.read_exact_at(&mut front, signature)?;
    let has = |mark: &&str| front.windows(mark.len()).any(|w| w == mark.as_bytes());
    Ok(MARKS.iter().any(|marks| marks.iter().all(has)))
}
