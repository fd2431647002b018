//! Shadows of logs that this process has closed. A program may write a step, close its file, and open it again for the next
//! one: then the metadata image is still open in libhdf5, and nothing makes it of its image. Whether it is what the log holds is for
//! the first rank to say, which remembers the log ([`super::reopening`]).

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

/// Shadows that are kept: the last ones. Programs write few logs at a time.
const MOST: usize = 4;
/// The most bytes of one.
pub const LARGEST: usize = 1 << 20;

/// What the system tells of a file. As long as it is the same, the file is the log that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    identity: Identity,
    changed: (i64, i64),
    mode: u32,
}

impl Seen {
    /// What it tells of the file at a path.
    pub fn at(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Seen {
            identity: Identity::from(&found),
            changed: (found.ctime(), found.ctime_nsec()),
            mode: found.mode(),
        })
    }
}

/// The metadata image of a log that is closed.
#[derive(Debug)]
pub struct KeptImage {
    /// Where the log was.
    pub path: PathBuf,
    /// The file when it was closed.
    pub seen: Option<Seen>,
    /// The number of the opening that this close has ended, which all its ranks know.
    pub opening: u64,
    /// The metadata image.
    pub metadata_image: Closed,
    /// The file access property list of the program. One that is equal asks for the same metadata image.
    pub access: Arc<PropertyList>,
    /// The memory that the ranks of a node have shared. All of them have it, or none.
    pub memory: Option<NodeMemory>,
    /// What the library had.
    pub constants: Arc<Constants>,
}

/// The last first. libhdf5 is not called with the lock held. A fork may leave it to nobody, so no thread waits for it.
static KEPT: Mutex<VecDeque<KeptImage>> = Mutex::new(VecDeque::new());

/// Keeps the metadata image of a log that is closed now.
pub fn keep(kept: KeptImage) {
    let Some(mut all) = KEPT.try_lock() else {
        return;
    };
    let same = all.iter().position(|other| other.path == kept.path);
    let out = same.or((all.len() == MOST).then_some(MOST - 1));
    let out = out.and_then(|out| all.remove(out));
    all.push_front(kept);
    drop(all);
    // It calls libhdf5.
    drop(out);
}

/// Takes the metadata image of the log at a path, if it is kept.
fn take(path: &Path) -> Option<KeptImage> {
    let mut all = KEPT.try_lock()?;
    let found = all.iter().position(|kept| kept.path == path)?;
    all.remove(found)
}

/// Takes the metadata image of the log at a path, if it is what a program gets that opens the log with this file access property list.
/// Another one is given up.
pub fn take_for(info: &Info, path: &Path, fapl: Id) -> Option<KeptImage> {
    let kept = take(path).filter(|kept| kept.metadata_image.is_of(&info.library))?;
    let access = kept.access.id;
    // SAFETY: both are lists of this library.
    let is_same = |f: &Functions| unsafe { (f.H5Pequal)(access, fapl) > 0 };
    info.library.nested(is_same).then_some(kept)
}

/// Gives up the metadata image of the log at a path, which is made anew or deleted.
pub fn forget(path: &Path) {
    drop(take(path));
}

/// Gives up all metadata images of a library, which ends.
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
