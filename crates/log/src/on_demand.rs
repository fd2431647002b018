//! A file that is opened when it is read, and closed while others are read more.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::open_files::Handle;
use super::source_dir::SourceDir;
use super::source_file::Identity;
use h5logfs_common::held_file::HeldFile;

/// A file that is opened when it is read.
#[derive(Debug)]
pub(super) struct OnDemand {
    handle: Handle,
    dir: SourceDir,
    relative: PathBuf,
}

impl OnDemand {
    /// The file at `relative` below `dir`.
    pub fn new(dir: SourceDir, relative: PathBuf) -> Self {
        OnDemand {
            handle: Handle::empty(),
            dir,
            relative,
        }
    }

    /// The file that is open already.
    pub fn of_open(dir: SourceDir, relative: PathBuf, file: HeldFile) -> Self {
        let new = OnDemand::new(dir, relative);
        new.handle.keep(Arc::new(file));
        new
    }

    /// The open file. If it has to be opened, `is_same` tells whether the file at its place is the one that is meant;
    /// `None` where it is not.
    pub fn open(
        &self,
        is_same: impl FnOnce(&File) -> io::Result<bool>,
    ) -> io::Result<Option<Arc<HeldFile>>> {
        if let Some(open) = self.handle.get() {
            return Ok(Some(open));
        }
        let file = self.dir.open_file(&self.relative)?;
        if !is_same(&file)? {
            return Ok(None);
        }
        Ok(Some(self.handle.keep(Arc::new(HeldFile::new(file)?))))
    }

    /// The state of the file that is open, or else of the one at its place.
    pub fn identity(&self) -> io::Result<Identity> {
        match self.handle.get() {
            Some(open) => Ok(Identity::from(&open.metadata()?)),
            None => Ok(Identity::from(&self.dir.stat(&self.relative)?)),
        }
    }

    /// Closes the file until it is read again.
    pub fn close(&self) {
        self.handle.close();
    }

    /// Closes the file and its directory until they are needed again.
    pub fn release(&self) {
        self.handle.close();
        self.dir.release();
    }

    /// Whether the file has no name left, or no file is at its place.
    pub fn is_unlinked(&self) -> bool {
        if let Some(open) = self.handle.get() {
            return open.is_unlinked();
        }
        let found = self.dir.stat(&self.relative);
        found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}
