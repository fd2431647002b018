//! States of logs, and the table of their entries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_common::lru::Lru;
use h5logfs_log::journal::ShownFlush;
use h5logfs_log::scan::Settings;

use crate::entry::CatalogEntry;

/// Bytes for the entries of flushes that are asked for by number. These have memory of their own, so requests for many
/// of them displace no present state.
const MEMORY_OF_FLUSHES: u64 = 8 << 20;

/// A file, in one of its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<'a> {
    /// Path below the directory of the catalog.
    pub path: &'a Path,
    /// The flush that left the state. `None` for the present state, which [`Settings::shown_flush`] chooses.
    pub flush: Option<u64>,
}

/// An [`At`] with a path of its own.
pub(crate) type Key = (PathBuf, Option<u64>);

impl<'a> From<&'a Path> for At<'a> {
    fn from(path: &'a Path) -> Self {
        At { path, flush: None }
    }
}

impl At<'_> {
    pub(crate) fn key(self) -> Key {
        (self.path.to_owned(), self.flush)
    }

    /// The settings of a scan of this state.
    pub(crate) fn settings(self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        if let Some(flush) = self.flush {
            settings.shown_flush = ShownFlush::Flush(flush);
            settings.unflushed = false;
        }
        settings
    }
}

/// Remembered entries of files, by state.
#[derive(Debug)]
pub struct Entries {
    present: Lru<PathBuf, Arc<CatalogEntry>>,
    of_flushes: Lru<(PathBuf, u64), Arc<CatalogEntry>>,
}

impl Entries {
    /// `memory` limits the bytes of the present states.
    pub fn new(memory: u64) -> Self {
        Entries {
            present: Lru::new(memory),
            of_flushes: Lru::new(MEMORY_OF_FLUSHES),
        }
    }

    pub fn get(&self, at: At<'_>) -> Option<Arc<CatalogEntry>> {
        match at.flush {
            None => self.present.get(at.path),
            Some(flush) => self.of_flushes.get(&(at.path.to_owned(), flush)),
        }
    }

    pub fn insert(&self, at: At<'_>, entry: Arc<CatalogEntry>, weight: u64) {
        let path = at.path.to_owned();
        match at.flush {
            None => self.present.insert(path, entry, weight),
            Some(flush) => self.of_flushes.insert((path, flush), entry, weight),
        };
    }

    /// Forgets this entry, but not another one that has taken its place.
    pub fn remove_same(&self, at: At<'_>, entry: &Arc<CatalogEntry>) {
        let is_meant = |now: &Arc<CatalogEntry>| Arc::ptr_eq(now, entry);
        match at.flush {
            None => self.present.remove_if(at.path, is_meant),
            Some(flush) => {
                let key = (at.path.to_owned(), flush);
                self.of_flushes.remove_if(&key, is_meant);
            }
        }
    }

    pub fn remove(&self, at: At<'_>) -> Option<Arc<CatalogEntry>> {
        match at.flush {
            None => self.present.remove(at.path),
            Some(flush) => self.of_flushes.remove(&(at.path.to_owned(), flush)),
        }
    }

    /// Forgets all entries that `is_kept` rejects.
    pub fn retain(&self, is_kept: impl Fn(&CatalogEntry) -> bool) {
        self.present.retain(|_, entry| is_kept(entry));
        self.of_flushes.retain(|_, entry| is_kept(entry));
    }
}
