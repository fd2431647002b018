//! The logs that this process has open. Each libhdf5 finds its own alone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use h5logfs_catalog::direct;

use crate::info::Info;
use crate::session::Session;
use crate::session::writing::Log;

/// Which file a log is, and for which libhdf5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    library: usize,
    device: u64,
    inode: u64,
}

impl Identity {
    /// That of the file at a path, if there is one.
    pub fn of(info: &Info, path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Identity {
            library: info.library_number(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// A session is looked at only by its own library: its end calls that.
type Open = Vec<(Identity, Weak<Session>)>;

static OPEN: Mutex<Open> = Mutex::new(Vec::new());

/// Adds a log that was opened.
pub fn add(session: &Arc<Session>) -> Result<(), String> {
    with(|open| open.push((session.identity, Arc::downgrade(session))))
}

/// Those with an identity.
pub fn find(identity: &Identity) -> Result<Vec<Arc<Session>>, String> {
    with(|open| {
        let same = open.iter().filter(|(other, _)| other == identity);
        same.filter_map(|(_, session)| session.upgrade()).collect()
    })
}

/// The log that is written whose native file has a number.
pub fn find_number(library: usize, number: u64) -> Result<Option<Arc<Session>>, String> {
    with(|open| {
        let own = open.iter().filter(|(other, _)| other.library == library);
        let mut own = own.filter_map(|(_, session)| session.upgrade());
        own.find(|session| session.log.is_some() && session.number.get() == Some(&number))
    })
}

/// The logs that a library writes.
pub fn written(library: usize) -> Result<Vec<Arc<Session>>, String> {
    with(|open| {
        let own = open.iter().filter(|(other, _)| other.library == library);
        let own = own.filter_map(|(_, session)| session.upgrade());
        own.filter(|session| session.log.as_ref().is_some_and(Log::is_open))
            .collect()
    })
}

/// What was flushed in this process: a number that grows with each flush that wrote something.
static VERSION: AtomicU64 = AtomicU64::new(0);

/// That number.
pub fn version() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// A log was flushed or closed.
pub fn grow_version() {
    VERSION.fetch_add(1, Ordering::AcqRel);
}

fn with<R>(act: impl FnOnce(&mut Open) -> R) -> Result<R, String> {
    // The process does not fork while this thread holds the lock.
    let _inside = direct::enter().map_err(|broken| broken.to_string())?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, session)| session.strong_count() > 0);
    Ok(act(&mut open))
}
