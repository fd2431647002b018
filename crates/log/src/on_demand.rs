//! Files and directories that are opened when they are needed: a set may have thousands of members, a program may open
//! hundreds of logs, and a process has few descriptors. All of the process share one list of open ones, of which the
//! least recently used are closed.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use super::descriptors;
use super::source_dir::SourceDir;
use super::source_file::Identity;
use h5logfs_common::held_file::HeldFile;
use h5logfs_common::lru::Lru;

/// The most descriptors that are open at a time.
const MOST_OPEN: u64 = 512;

/// The open descriptors, by the numbers of their [`Handle`]s.
static OPEN: LazyLock<Lru<u64, Arc<HeldFile>>> =
    LazyLock::new(|| Lru::new((descriptors::limit() / 4).clamp(4, MOST_OPEN)));

thread_local! {
    /// The descriptor that this thread used last. Threads that read one file do not wait for each other at the list.
    static LAST: RefCell<Last> = const {
        RefCell::new(Last {
            number: u64::MAX,
            file: Weak::new(),
            uses: 0,
        })
    };
}

/// A use of the list in so many uses of a descriptor is enough to keep it from being the oldest.
const USES: u32 = 64;

struct Last {
    number: u64,
    file: Weak<HeldFile>,
    uses: u32,
}

impl Last {
    /// The descriptor with this number, if it is this one and still open.
    fn again(&mut self, number: u64) -> Option<Arc<HeldFile>> {
        if self.number != number || self.uses == USES {
            return None;
        }
        self.uses += 1;
        self.file.upgrade()
    }
}

/// The place of a descriptor in the list of open ones. The descriptor is closed when others are used more, and when
/// this is dropped.
#[derive(Debug)]
pub struct Handle(u64);

impl Handle {
    /// A place without a descriptor.
    pub fn empty() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Handle(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The descriptor, if it is open. It becomes the most recently used one, as far as the list is told.
    pub fn get(&self) -> Option<Arc<HeldFile>> {
        let last = LAST.try_with(|last| last.borrow_mut().again(self.0));
        if let Some(open) = last.ok().flatten() {
            return Some(open);
        }
        let open = OPEN.get(&self.0)?;
        let last = Last {
            number: self.0,
            file: Arc::downgrade(&open),
            uses: 0,
        };
        // A thread that ends has none.
        let _ = LAST.try_with(|place| place.replace(last));
        Some(open)
    }

    /// Keeps a descriptor open.
    pub fn keep(&self, file: Arc<HeldFile>) -> Arc<HeldFile> {
        OPEN.insert(self.0, Arc::clone(&file), 1);
        file
    }

    /// Closes the descriptor. Work that has it goes on.
    pub fn close(&self) {
        OPEN.remove(&self.0);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

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
