//! The directory in which outcomes of scans and indexes are kept for later readers.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_view::index::store::Store;

use crate::directories;

/// Where the outcomes of scans and the indexes are stored for the next reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexDir {
    /// In the usual directory of the user. Where that is impossible: nowhere, with a warning.
    Usual,
    /// In this directory.
    At(PathBuf),
    /// Nowhere.
    None,
}

impl IndexDir {
    /// Opens the store. `size`: bytes that it may grow to.
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

    /// The usual directory of the user, and the store in it. `size`: bytes that it may grow to. Fails with a sentence where
    /// nothing can be kept there.
    pub fn usual(size: u64) -> Result<(PathBuf, Arc<Store>), Fault> {
        let path = directories::indexes()
            .ok_or_else(|| Fault::Refused("there is no home to keep indexes in".into()))?;
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

/// The store where no directory was named. Without one the next reader takes longer, and nothing else.
fn open_usual(size: u64) -> Option<Arc<Store>> {
    match IndexDir::usual(size) {
        Ok((_, store)) => Some(store),
        Err(reason) => {
            log::warn!("{reason}: they will be made again");
            None
        }
    }
}
