//! The file of a log, examined before anything changes. It is opened once, and the findings are kept.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::FaultResult;
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::{FRONT, begins_unclosed, unclosed_front};
use h5logfs_log::journal::HeldFile;
use h5logfs_log::journal::closed::{CloseSeal, intact_seal};
use h5logfs_log::source_file::Identity;

/// The file of a log, or any other regular file, with its state when it was opened.
pub struct FoundLog {
    path: PathBuf,
    file: Arc<File>,
    metadata: Metadata,
    /// First bytes; none if the file is shorter than a log.
    front: Vec<u8>,
}

impl FoundLog {
    /// Opens the file at `path` for reading.
    pub fn at(path: &Path) -> FaultResult<Self> {
        open(path, false)
            .and_then(|file| Self::read(path, file))
            .map_err(|e| Fault::from(e).of_file(path))
    }

    /// Opens the file at `path` for a change, with the shared lock of programs that do not change it yet. `h5logfs settle`,
    /// and programs that write to the file as HDF5, take an exclusive lock.
    pub(crate) fn locked(path: &Path) -> FaultResult<Self> {
        let about = |e: io::Error| Fault::from(e).of_file(path);
        let file = open(path, true).map_err(about)?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Err(Fault::Refused(format!(
                "{}: another program changes it, as its lock shows: wait until it ends",
                path.display()
            ))),
            // Some file systems have no locks.
            _ => Self::read(path, file).map_err(about),
        }
    }

    fn read(path: &Path, file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let is_log = metadata.len() >= FRONT;
        let mut front = vec![0; if is_log { FRONT as usize } else { 0 }];
        file.read_exact_at(&mut front, 0)?;
        Ok(FoundLog {
            path: path.to_owned(),
            file: Arc::new(file),
            metadata,
            front,
        })
    }

    /// Releases the lock. The open file may live on, for example in a process that was forked meanwhile.
    pub(crate) fn unlock(&self) {
        // A file system without locks has nothing to release.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// The open file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Metadata of the file when it was opened.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Identity of the file.
    pub fn identity(&self) -> Identity {
        Identity::from(&self.metadata)
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.metadata.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The identifier of a log of our writers; `None` for others.
    pub fn id(&self) -> Option<FileId> {
        FileId::in_front(&self.front)
    }

    /// Whether the file has the front of an unclosed log.
    pub fn is_unclosed(&self) -> bool {
        begins_unclosed(&self.front)
    }

    /// The seal of its close, if front and objects are unchanged since then. `None` if its objects take more than `most`
    /// bytes.
    pub fn seal(&self, most: u64) -> Option<CloseSeal> {
        intact_seal(&self.file, self.len(), &self.front, most)
    }

    /// Gives the file the front of an unclosed log, unless it has one, and cuts off the bytes after `end`.
    pub(crate) fn make_unclosed(&self, id: &FileId, end: u64) -> io::Result<()> {
        if !self.is_unclosed() {
            self.file.write_all_at(&unclosed_front(id), 0)?;
        }
        self.file.set_len(end)
    }

    /// The file in a form whose name is checked.
    pub(crate) fn hold(&self) -> HeldFile {
        HeldFile::known(Arc::clone(&self.file), self.path.clone(), &self.metadata)
    }
}

/// Opens a file that was a regular one a moment ago. Does not wait if the name leads to anything else by now. An opening for
/// writing waits until others give up a lease.
fn open(path: &Path, writes: bool) -> io::Result<File> {
    let mut flags = OFlags::NOFOLLOW | OFlags::NOCTTY;
    flags.set(OFlags::NONBLOCK, !writes);
    let mut options = OpenOptions::new();
    options.read(true).write(writes);
    options.custom_flags(flags.bits() as i32).open(path)
}
