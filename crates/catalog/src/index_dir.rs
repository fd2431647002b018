//! The index directory, which keeps outcomes of scans and indexes for later readers.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

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
        match self {
            IndexDir::None => Ok(None),
            IndexDir::At(path) => match Store::open(path, size) {
                Ok(store) => Ok(Some(Arc::new(store))),
                Err(e) => Err(Error::io(format!("index_dir={}", path.display()), e)),
            },
            IndexDir::Usual => Ok(open_usual(size)),
        }
    }

    /// The usual directory of the user, and the store in it, which may grow to `size` bytes. Fails with the reason
    /// where nothing can be kept there.
    pub fn usual(size: u64) -> Result<(PathBuf, Arc<Store>), Fault> {
        let path = directories::indexes()
            .ok_or_else(|| Fault::Refused("there is no home directory for indexes".into()))?;
        let parents = path.parent().map_or(Ok(()), |parent| {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)
        });
        match parents.and_then(|()| Store::open(&path, size)) {
            Ok(store) => Ok((path, Arc::new(store))),
            Err(e) => {
                let path = path.display();
                let reason = format!("{path}: indexes cannot be kept there: {e}");
                Err(Fault::from(e).told(reason))
            }
        }
    }
}

/// Opens the store in the usual directory. Without a store the next reader takes longer, and nothing else changes.
fn open_usual(size: u64) -> Option<Arc<Store>> {
    match IndexDir::usual(size) {
        Ok((_, store)) => Some(store),
        Err(reason) => {
            log::warn!("{reason}: they will be made again");
            None
        }
    }
}
