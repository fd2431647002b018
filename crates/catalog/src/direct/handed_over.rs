//! An open log that one part of a process hands to another one, in the same thread.
//!
//! The connector opens a file to learn whether it is a log, and then has libhdf5 open it by the file driver. Without
//! the hand-over the file would be scanned twice, and its metadata would be in memory twice.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::OpenLog;
use crate::options::ReadOptions;

thread_local! {
    static LOG: RefCell<Option<HandedOver>> = const { RefCell::new(None) };
}

struct HandedOver {
    path: PathBuf,
    log: OpenLog,
}

/// Runs `act`. During it, the first [`open`](super::open) of this path in this thread, with the options of the log,
/// returns `log`.
pub fn hand_over<R>(path: &Path, log: OpenLog, act: impl FnOnce() -> R) -> R {
    let _before = Before(replace(Some(HandedOver {
        path: path.to_owned(),
        log,
    })));
    act()
}

/// The log at `path` that is handed over, if there is one.
pub(super) fn take(path: &Path, options: &ReadOptions) -> Option<OpenLog> {
    LOG.with_borrow_mut(|place| {
        let found = place.take_if(|found| found.path == path && found.log.options() == options);
        found.map(|found| found.log)
    })
}

fn replace(by: Option<HandedOver>) -> Option<HandedOver> {
    LOG.with_borrow_mut(|place| std::mem::replace(place, by))
}

/// The log that an outer [`hand_over`] offers. The drop offers it again.
struct Before(Option<HandedOver>);

impl Drop for Before {
    fn drop(&mut self) {
        // The drop of a log that nobody took runs after the borrow.
        drop(replace(self.0.take()));
    }
}
