//! The logs that this process has open. Each libhdf5 finds only its own.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use h5logfs_catalog::direct;

use super::{Identity, Session};
use crate::below::info::Info;
use crate::log::WrittenLog;
use h5logfs_common::fault::Fault;

/// Open logs. Only its own library may use a session, because the end of a session calls that library.
type Open = Vec<(Identity, Weak<Session>)>;

/// Nothing is called with the lock held: any call may drop the last reference to a session, whose end calls libhdf5.
static OPEN: Mutex<Open> = Mutex::new(Vec::new());

/// Adds an opened log.
pub fn add(session: &Arc<Session>) -> Result<(), Fault> {
    with(|open| open.push((session.identity, Arc::downgrade(session))))
}

/// The logs that a libhdf5 has open at a path, even under another name.
pub fn open_at(info: &Info, path: &Path) -> Result<Vec<Arc<Session>>, Fault> {
    let Some(identity) = Identity::of(info, path) else {
        return Ok(Vec::new());
    };
    let mut found = find(|other| *other == identity)?;
    found.retain(|session| session.is_open());
    Ok(found)
}

/// The log that a library writes, by the number of its native file.
pub fn find_number(library: usize, number: u64) -> Result<Option<Arc<Session>>, Fault> {
    let mut own = find(|other| other.library == library)?.into_iter();
    Ok(own.find(|session| {
        // The metadata image of a closed log may now serve an open one, under the same number.
        let log = session.log().filter(|log| log.is_open());
        log.is_some_and(|log| log.number() == number)
    }))
}

/// The logs that a library writes.
pub fn written(library: usize) -> Result<Vec<Arc<Session>>, Fault> {
    let mut own = find(|other| other.library == library)?;
    own.retain(|session| session.log().is_some_and(WrittenLog::is_open));
    Ok(own)
}

fn find(is_wanted: impl Fn(&Identity) -> bool) -> Result<Vec<Arc<Session>>, Fault> {
    with(|open| {
        let wanted = open.iter().filter(|(other, _)| is_wanted(other));
        wanted
            .filter_map(|(_, session)| session.upgrade())
            .collect()
    })
}

fn with<R>(act: impl FnOnce(&mut Open) -> R) -> Result<R, Fault> {
    // The process does not fork while this thread holds the lock.
    let _inside = direct::enter().map_err(|broken| broken.to_string())?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, session)| session.strong_count() > 0);
    Ok(act(&mut open))
}
