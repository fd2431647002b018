//! Files that are opened when they are read: a set may have thousands of members, and a process few descriptors. All such files
//! of the process share one list of open ones, of which the least recently used are closed.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use super::descriptors;
use super::source_dir::SourceDir;
use super::source_file::Identity;
use h5logfs_common::held_file::HeldFile;
use h5logfs_common::lru::Lru;

/// The most files that are open at a time.
const MOST_OPEN: u64 = 512;

/// The open files, by the numbers of their [`OnDemand`].
static OPEN: LazyLock<Lru<u64, Arc<HeldFile>>> =
    LazyLock::new(|| Lru::new((descriptors::limit() / 4).clamp(4, MOST_OPEN)));

/// A file that is opened when it is read.
#[derive(Debug)]
pub(super) struct OnDemand {
    number: u64,
    dir: SourceDir,
    relative: PathBuf,
    identity: Identity,
}

impl OnDemand {
    /// The file at `relative` below `dir`, in this state.
    pub fn new(dir: SourceDir, relative: PathBuf, identity: Identity) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        OnDemand {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            dir,
            relative,
            identity,
        }
    }

    /// The open file; `None` where another file, or another state of it, is at its place.
    pub fn open(&self) -> io::Result<Option<Arc<HeldFile>>> {
        if let Some(open) = OPEN.get(&self.number) {
            return Ok(Some(open));
        }
        let file = self.dir.open_file(&self.relative)?;
        if !self.is_in(&file)? {
            return Ok(None);
        }
        let file = Arc::new(HeldFile::new(file)?);
        OPEN.insert(self.number, Arc::clone(&file), 1);
        Ok(Some(file))
    }

    /// The state of the file that is open, or else of the one at its place.
    pub fn identity(&self) -> io::Result<Identity> {
        match OPEN.get(&self.number) {
            Some(open) => Ok(Identity::from(&open.metadata()?)),
            None => Ok(Identity::from(&self.dir.stat(&self.relative)?)),
        }
    }

    /// Closes the file until it is read again.
    pub fn close(&self) {
        OPEN.remove(&self.number);
    }

    fn is_in(&self, file: &File) -> io::Result<bool> {
        let now = Identity::from(&file.metadata()?);
        Ok(self.identity.is_still(now, false))
    }

    /// Whether no file is at its place.
    pub fn is_unlinked(&self) -> bool {
        let found = self.dir.stat(&self.relative);
        found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.close();
    }
}
