//! Explains what cannot be recovered, why, and what to do instead.

use std::io;
use std::path::{Path, PathBuf};

use h5logfs_common::error::{Error, Result};
use h5logfs_log::journal::{self, Recorded, job_of};
use h5logfs_log::log_dir;
use h5logfs_log::log_files::{LogFiles, foreign};
use h5logfs_log::logvol::remains::Remains;
use h5logfs_log::part_names::log_of;
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::tiles::named as tiles;
use h5logfs_log::walk;
use h5logfs_log::{carries_mark, find_signature, netcdf};

/// The reason for a directory of ADIOS2.
const NOTHING_TO_RECOVER: &str = "there is nothing to recover. Its complete steps are read as they are, also while a job writes it or after \
    the job has died; only ADIOS2 knows what a job has put into a step that it did not complete";

/// The reason for a set of netCDF files.
const NOTHING_IN_MEMBERS: &str = "there is nothing to recover. They are read as they are, also while a model writes them or after it has died";

/// The directory of the log file at `path`, and the file's name there. Fails if `path` is no file, or is a part of a
/// log.
pub fn open_directory(path: &Path) -> Result<(SourceDir, PathBuf)> {
    log_dir::check_change_for(&log_dir::file_of(path), NOTHING_TO_RECOVER)?;
    tiles::check_change(path, NOTHING_IN_MEMBERS)?;
    let journal = journal::path_of(path);
    let (dir, name) = walk::directory_of(path).map_err(|e| match &e {
        Error::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound && journal.exists() => {
            let journal = journal.display();
            Error::of(path, format!("it is not there, but its journal {journal} is: the log was moved or removed. Put it back beside its journal"))
        }
        _ => e,
    })?;
    let full = dir.full_path(&name);
    if full.is_dir() {
        return Err(Error::of(path, "is a directory: give the log files in it"));
    }
    match log_of(&full).filter(|log| log.is_file()) {
        Some(log) => Err(Error::of(
            path,
            format!("is a part of the log {}: give that", log.display()),
        )),
        None => Ok((dir, name)),
    }
}

/// Whether the log is closed. Fails with the reason if the file is no log that can be recovered.
pub fn is_closed(files: &LogFiles<'_>, file: &SourceFile) -> Result<bool> {
    if file.file_id()?.is_none() {
        let reason = if journal::lacks_front(files, file)? {
            WITHOUT_FRONT.to_owned()
        } else {
            not_ours(file)?
        };
        return Err(Error::of(file.path(), reason));
    }
    if journal::may_belong_to(files, file)? {
        return Ok(false);
    }
    match files.open(&journal_place(files)) {
        // The unreadable file may be the journal of this log.
        Err(e @ Error::Io { .. }) if !is_missing(&e) => Err(e),
        _ => Ok(true),
    }
}

/// Whether another writer has made the log, and has closed it.
pub fn is_closed_by_others(files: &LogFiles<'_>, file: &SourceFile) -> Result<bool> {
    if file.file_id()?.is_some() || journal::lacks_front(files, file)? {
        return Ok(false);
    }
    match find_signature(file)? {
        Some(signature) => carries_mark(file, signature),
        None => Ok(false),
    }
}

/// The reason for a log with a journal but without a front. Its data may have been on the way to the disk when the
/// power failed.
const WITHOUT_FRONT: &str = "it has a journal, but its first bytes are not visible here: if another node has just written \
    them, wait. If the power failed before they reached the disk, they are lost: remove the file and its journal, \
                             or replace them with the options `overwrite` and `discard_unclosed`";

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
}

fn journal_place(files: &LogFiles<'_>) -> SourcePath {
    SourcePath::below(journal::path_of(files.log()))
}

/// Describes a file that the writer of h5logfs did not make.
fn not_ours(file: &SourceFile) -> Result<String> {
    if file.is_empty() {
        return Ok(
            "it is empty: there is nothing to recover. The Log VOL connector leaves such a file if its job ends before its first flush".into(),
        );
    }
    let signature = find_signature(file)?;
    if let Some(signature) = signature {
        return Ok(if carries_mark(file, signature)? {
            "it is a log that another writer has closed: there is nothing to recover. `h5logfs check` tells whether all of it can be read".into()
        } else {
            "it is plain HDF5: there is nothing to recover".into()
        });
    }
    if netcdf::has_magic(file)? || netcdf::has_log_magic(file)? {
        return Ok(
            "it is netCDF, or a burst-buffer log of it. h5logfs reads these as they are: there is nothing to recover".into(),
        );
    }
    let remains = Remains::of(file).map_err(|e| Error::of(file.path(), e))?;
    Ok(match remains {
        Some(remains) => remains.to_string(),
        None => "it is neither HDF5 nor a log of h5logfs's writer".into(),
    })
}

/// The error for a journal of an unclosed log that cannot be opened.
pub fn without_journal(files: &LogFiles<'_>, cause: io::Error) -> Error {
    let path = files.dir().full_path(files.log());
    let journal = files.full_path(&journal_place(files));
    let name = journal.display();
    match cause.kind() {
        io::ErrorKind::NotFound => Error::of(
            path,
            format!(
                "it was not closed, and its journal {name} is not there: copy that beside it from where the job ran. Without it the log cannot be recovered"
            ),
        ),
        io::ErrorKind::PermissionDenied if foreign(&cause).is_none() => Error::of(
            path,
            format!(
                "its journal {name} cannot be written to: {cause}. The owner of the log has to recover it, and has to own the journal"
            ),
        ),
        _ => Error::io(journal, cause),
    }
}

/// Fails if another user has written the journal of a log that has a metadata image. libhdf5 would read the image with
/// all rights of this process, and libhdf5 was not made for hostile bytes.
pub fn check_owner(path: &Path, journal: &Recorded) -> Result<()> {
    let (user, owner) = (rustix::process::geteuid().as_raw(), journal.identity.owner);
    if user == owner {
        return Ok(());
    }
    let reason = format!(
        "an HDF5 program of user {owner} has written its metadata. Only that user can recover it safely: `setpriv --reuid={owner} --clear-groups h5logfs recover …`, as root"
    );
    Err(Error::of(path, reason))
}

/// The reason why the log cannot be recovered while its journal is locked.
pub fn running(files: &LogFiles<'_>) -> String {
    let journal = files.open(&journal_place(files)).ok();
    let job = journal.as_ref().and_then(job_of);
    let job = job.map_or(String::new(), |job| format!(": {job}"));
    format!("the job that writes it is still running{job}")
}
