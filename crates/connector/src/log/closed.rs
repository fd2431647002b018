//! Metadata images of logs that this process has closed.
//!
//! A program may write a step, close its file, and open it again for the next step. The metadata image is then still open in
//! libhdf5, and need not be loaded again. The first rank decides whether it still equals the contents of the log, because that
//! rank remembers the log ([`super::reopening`]).

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_host::types::Id;
use h5logfs_log::source_file::Identity;
use h5logfs_output::neighbours::NodeMemory;
use parking_lot::Mutex;

use super::Constants;
use super::metadata_image::Closed;
use crate::below::info::Info;
use crate::below::list::PropertyList;
use crate::library::{Functions, Library};

/// The number of metadata images kept, the most recent ones. Programs write few logs at a time.
const MOST: usize = 4;
/// The largest metadata image that is kept, in bytes.
pub const LARGEST: usize = 1 << 20;

/// The identity and change time of a file. While they stay equal, the file is the log that was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    identity: Identity,
    changed: (i64, i64),
    mode: u32,
}

impl FileState {
    /// Reads them from the file at a path. `None` if that fails.
    pub fn at(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(FileState {
            identity: Identity::from(&found),
            changed: (found.ctime(), found.ctime_nsec()),
            mode: found.mode(),
        })
    }
}

/// The metadata image of a closed log.
#[derive(Debug)]
pub struct KeptImage {
    /// The path of the log.
    pub path: PathBuf,
    /// The state of the file when it was closed.
    pub seen: Option<FileState>,
    /// The number of the opening that this close ended. All its ranks know the number.
    pub opening: u64,
    /// The metadata image.
    pub metadata_image: Closed,
    /// The program's file access property list. An equal list leads to an equal metadata image.
    pub access: Arc<PropertyList>,
    /// Memory that the ranks of a node share. All of them have it, or none.
    pub memory: Option<NodeMemory>,
    /// Identifiers of the library that never change.
    pub constants: Arc<Constants>,
}

/// The most recent first. The lock is never held during a call of libhdf5. A fork may leave it locked for ever, so no thread
/// waits for it.
static KEPT: Mutex<VecDeque<KeptImage>> = Mutex::new(VecDeque::new());

/// Keeps the metadata image of a log that is being closed.
pub fn keep(kept: KeptImage) {
    let Some(mut all) = KEPT.try_lock() else {
        return;
    };
    let same = all.iter().position(|other| other.path == kept.path);
    let out = same.or((all.len() == MOST).then_some(MOST - 1));
    let out = out.and_then(|out| all.remove(out));
    all.push_front(kept);
    drop(all);
    // Dropping calls libhdf5, so the lock is released first.
    drop(out);
}

/// Takes the metadata image of the log at a path, if it is kept.
fn take(path: &Path) -> Option<KeptImage> {
    let mut all = KEPT.try_lock()?;
    let found = all.iter().position(|kept| kept.path == path)?;
    all.remove(found)
}

/// Takes the metadata image of the log at a path, if it fits the library and file access property list of a new opening. Discards
/// one that does not fit.
pub fn take_for(info: &Info, path: &Path, fapl: Id) -> Option<KeptImage> {
    let kept = take(path).filter(|kept| kept.metadata_image.is_of(&info.library))?;
    let access = kept.access.id;
    // SAFETY: both lists belong to this library.
    let is_same = |f: &Functions| unsafe { (f.H5Pequal)(access, fapl) > 0 };
    info.library.nested(is_same).then_some(kept)
}

/// Discards the metadata image of the log at a path, which is being overwritten or deleted.
pub fn forget(path: &Path) {
    drop(take(path));
}

/// Discards all metadata images of a library that terminates.
pub fn forget_all(library: &Library) {
    let own: Vec<KeptImage> = {
        let mut all = KEPT.lock();
        let (own, others): (_, Vec<_>) = all
            .drain(..)
            .partition(|kept| kept.metadata_image.is_of(library));
        *all = others.into();
        own
    };
    drop(own);
}
