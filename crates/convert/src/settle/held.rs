//! A file to be settled, or to become a log again: open, locked, and not written by a job.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::SUPERBLOCK;
use h5logfs_log::journal::{self, Beside, JobState};
use h5logfs_log::log_dir;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::part_names::log_of;
use h5logfs_log::settled::record::{Mark, Superblock};
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_log::tiles::named as tiles;
use h5logfs_log::walk;
use h5logfs_log::{find_signature, netcdf};

/// The purpose of opening a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Inspection only. No lock is taken.
    Look,
    /// A change.
    Change,
}

/// The advice for an ADIOS2 directory.
const COPY_INSTEAD: &str =
    "it cannot be settled in place. `h5logfs compact` makes an ordinary HDF5 file of it, beside it";

/// The advice for a set of netCDF files.
const JOIN_INSTEAD: &str = "`h5logfs export` and `h5logfs compact` make one file of them";

/// An open file. It is locked until dropped.
#[derive(Debug)]
pub struct Held {
    dir: SourceDir,
    name: PathBuf,
    path: PathBuf,
    file: File,
    user_block: u64,
    superblock: Superblock,
}

impl Held {
    /// Opens the file at `path`; symbolic links are followed. Fails with the reason where it cannot be settled.
    pub fn open(path: &Path, intent: Intent) -> Result<Self> {
        log_dir::check_change_for(&log_dir::file_of(path), COPY_INSTEAD)?;
        tiles::check_change(path, JOIN_INSTEAD)?;
        let (dir, name) = walk::directory_of(path)?;
        let path = dir.full_path(&name);
        check_place(&path)?;
        let seen = SourceFile::open(&dir, &name)?;
        check_no_job(&dir, &name, &seen)?;
        let file = open(&dir, &name, intent).map_err(|e| Error::io(&path, e))?;
        let now = file.metadata().map_err(|e| Error::io(&path, e))?;
        if !seen.identity().is_same_file(Identity::from(&now)) {
            return Err(Error::Changed { path });
        }
        if intent == Intent::Change {
            lock(&file).map_err(|e| locked(&path, e))?;
            // A job may have opened the log before the lock was taken. From now on no job can.
            check_no_job(&dir, &name, &seen)?;
        }
        let Some(user_block) = find_signature(&seen)? else {
            return Err(Error::of(path, not_hdf5(&seen)?));
        };
        let mut superblock = [0; SUPERBLOCK];
        let read = file.read_exact_at(&mut superblock, user_block);
        read.map_err(|e| Error::io(&path, e))?;
        Ok(Held {
            dir,
            name,
            path,
            file,
            user_block,
            superblock,
        })
    }

    /// The directory of the file.
    pub fn dir(&self) -> &SourceDir {
        &self.dir
    }

    /// The name of the file in its directory.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The path of the file, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes before the superblock. Addresses count from the superblock.
    pub fn user_block(&self) -> u64 {
        self.user_block
    }

    /// The superblock as of opening, with the bytes that follow a shorter one.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether the superblock is that of opening.
    pub fn is_as_opened(&self) -> bool {
        let mut now = [0; SUPERBLOCK];
        let read = self.file.read_exact_at(&mut now, self.user_block);
        read.is_ok() && now == self.superblock
    }

    /// The current identity of the file.
    pub fn identity(&self) -> Result<Identity> {
        let metadata = self.file.metadata().map_err(|e| self.failed(e))?;
        Ok(Identity::from(&metadata))
    }

    /// An operating system error about the file.
    pub fn failed(&self, cause: io::Error) -> Error {
        Error::io(&self.path, cause)
    }

    /// An error about the file.
    pub fn refused(&self, reason: impl Into<Fault>) -> Error {
        Error::of(&self.path, reason)
    }

    /// Fails where a job has begun to write the log.
    pub fn check_no_job(&self) -> Result<()> {
        let now = SourceFile::open(&self.dir, &self.name)?;
        if !now.identity().is_same_file(self.identity()?) {
            return Err(Error::Changed {
                path: self.path.clone(),
            });
        }
        check_no_job(&self.dir, &self.name, &now)
    }

    /// The mark of an interrupted attempt to settle the file, if there is one.
    pub fn interrupted(&self) -> Result<Option<Mark>> {
        let superblock = h5logfs_hdf5_format::Superblock::read(&self.superblock[..]);
        let Ok(end) = superblock.map(|superblock| superblock.end) else {
            return Ok(None);
        };
        let start = start_behind(end, self.user_block);
        let mut bytes = vec![0; Mark::SIZE];
        match start.map(|start| self.file.read_exact_at(&mut bytes, start)) {
            Some(Ok(())) => {}
            Some(Err(e)) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(self.failed(e)),
            _ => return Ok(None),
        }
        let is_own = |mark: &Mark| mark.old_len == end && mark.superblock == self.superblock;
        Ok(Mark::from_bytes(&bytes).filter(is_own))
    }
}

/// The start of data appended to a file of `len` bytes: an address that is a multiple of 8.
pub fn start_behind(len: u64, user_block: u64) -> Option<u64> {
    let address = len.checked_sub(user_block)?.checked_next_multiple_of(8)?;
    let start = address.checked_add(user_block)?;
    (start <= i64::MAX as u64).then_some(start)
}

fn open(dir: &SourceDir, name: &Path, intent: Intent) -> io::Result<File> {
    match intent {
        Intent::Look => dir.open_file(name),
        Intent::Change => {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
            dir.open_below(name, flags).map(File::from)
        }
    }
}

/// Takes the lock that HDF5 programs take on files they write. Our writer shares it while it reopens a log.
fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        // The file system has no locks.
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn locked(path: &Path, cause: io::Error) -> Error {
    if cause.kind() != io::ErrorKind::WouldBlock {
        return Error::io(path, cause);
    }
    let reason = "another program has it open, as its lock shows: wait until it ends";
    Error::of(path, reason)
}

/// Fails where the path is a directory or a part of a log.
fn check_place(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(Error::of(path, "is a directory: give the log files in it"));
    }
    match log_of(path).filter(|log| log.is_file()) {
        Some(log) => Err(Error::of(
            path,
            format!("is a part of the log {}", log.display()),
        )),
        None => Ok(()),
    }
}

/// Fails where the log is not closed.
fn check_no_job(dir: &SourceDir, name: &Path, file: &SourceFile) -> Result<()> {
    let files = LogFiles::of(dir, name, file);
    if !journal::may_belong_to(&files, file)? {
        return Ok(());
    }
    let journal = files.open(&SourcePath::below(journal::path_of(name)));
    let journal = journal.ok();
    let state = journal
        .as_ref()
        .and_then(SourceFile::descriptor)
        .map(JobState::of);
    let is_stale = || matches!(Beside::of(&files, file), Ok(Beside::Stale(_)));
    let reason = if state == Some(JobState::Running) {
        let job = journal.as_ref().and_then(journal::job_of);
        let job = job.map_or(String::new(), |job| format!(": {job}"));
        format!("the job that writes it is still running{job}. Wait until it ends")
    } else if is_stale() {
        "an older journal is beside it: let `h5logfs recover` remove that first".to_owned()
    } else {
        "it was not closed: let `h5logfs recover` close it first".to_owned()
    };
    Err(Error::of(file.path(), reason))
}

/// The description of a file that is not HDF5.
fn not_hdf5(file: &SourceFile) -> Result<&'static str> {
    if netcdf::has_magic(file)? || netcdf::has_log_magic(file)? {
        return Ok(
            "it is not HDF5, so it cannot become an HDF5 file where it is: `h5logfs compact` or `h5logfs export` makes \
             an HDF5 file of it and its logs",
        );
    }
    Ok("it is neither HDF5 nor a log that was closed")
}
