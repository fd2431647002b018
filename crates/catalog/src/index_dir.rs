//! The index directory, which keeps outcomes of scans and indexes for later readers.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_view::index::store::Store;

use crate::directories;

/// The place where outcomes of scans and indexes are kept for later readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexDir {
    /// The usual directory of the user. If it cannot be used, nothing is kept, and a warning says so.
    Usual,
    /// This directory.
    At(PathBuf),
    /// No place: nothing is kept.
    None,
}

impl IndexDir {
    /// Opens the store, which may grow to `size` bytes.
    pub fn open(&self, size: u64) -> Result<Option<Arc<Store>>> {
        self.open_by(size, of_its_own)
    }

    /// [`IndexDir::open`] for one of many logs in a process. They share a store, whose directory is closed while other
    /// files are needed more.
    pub fn open_shared(&self, size: u64) -> Result<Option<Arc<Store>>> {
        self.open_by(size, shared)
    }

    fn open_by(&self, size: u64, open: Open) -> Result<Option<Arc<Store>>> {
        match self {
            IndexDir::None => Ok(None),
            IndexDir::At(path) => match open(path, size) {
                Ok(store) => Ok(Some(store)),
                Err(e) => Err(Error::io(format!("index_dir={}", path.display()), e)),
            },
            IndexDir::Usual => Ok(open_usual(size, open)),
        }
    }

    /// The usual directory of the user, and the store in it, which may grow to `size` bytes. Fails with the reason
    /// where nothing can be kept there.
    pub fn usual(size: u64) -> Result<(PathBuf, Arc<Store>), Fault> {
        Self::usual_by(size, of_its_own)
    }

    fn usual_by(size: u64, open: Open) -> Result<(PathBuf, Arc<Store>), Fault> {
        let path = directories::indexes()
            .ok_or_else(|| Fault::Refused("there is no home directory for indexes".into()))?;
        let parents = path.parent().map_or(Ok(()), |parent| {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)
        });
        match parents.and_then(|()| open(&path, size)) {
            Ok(store) => Ok((path, store)),
            Err(e) => {
                let path = path.display();
                let reason = format!("{path}: indexes cannot be kept there: {e}");
                Err(Fault::from(e).told(reason))
            }
        }
    }
}

/// Opens the store in the usual directory. Without a store the next reader takes longer, and nothing else changes.
fn open_usual(size: u64, open: Open) -> Option<Arc<Store>> {
    match IndexDir::usual_by(size, open) {
        Ok((_, store)) => Some(store),
        Err(reason) => {
            log::warn!("{reason}: they will be made again");
            None
        }
    }
}

/// Opens the store at a path, which may grow to so many bytes.
type Open = fn(&Path, u64) -> io::Result<Arc<Store>>;

fn of_its_own(path: &Path, size: u64) -> io::Result<Arc<Store>> {
    Store::open(path, size).map(Arc::new)
}

/// A store of open logs, with its path and size.
type Known = (PathBuf, u64, Weak<Store>);

fn shared(path: &Path, size: u64) -> io::Result<Arc<Store>> {
    static ALL: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    let mut all = ALL.lock();
    all.retain(|(.., store)| store.strong_count() > 0);
    let known = all.iter().find(|known| known.0 == path && known.1 == size);
    if let Some(store) = known.and_then(|(.., store)| store.upgrade()) {
        store.reopen()?;
        return Ok(store);
    }
    let store = Arc::new(Store::open_on_demand(path, size)?);
    all.push((path.to_owned(), size, Arc::downgrade(&store)));
    Ok(store)
}
