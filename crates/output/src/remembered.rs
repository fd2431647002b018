//! Logs that this process has closed. A program may write a step, close its file, and open it again for the next step.
//! The state of the log is then known without a scan, which takes longer for larger logs, and may start a process.
//!
//! The remembered state counts only while front and objects of the file are those that this close has written, as its
//! seal proves (`docs/formats/journal.md`, section 5.1). So changes by another program are noticed, whatever the times
//! of the file.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use h5logfs_log::journal::closed::CloseSeal;
use h5logfs_log::journal::known_table::KnownTable;

use crate::Base;
use crate::found::FoundLog;
use crate::plain_close::JustClosed;

/// Number of remembered logs. Programs write few at a time.
const MOST: usize = 8;
/// Largest objects of a remembered log, in bytes of its file.
pub const LARGEST: u64 = 4 << 20;

/// The last closed logs, each with its objects in the form of the program.
pub struct Memory<T>(
    /// The logs. A fork may leave the lock without an owner, so no thread waits for it.
    Mutex<VecDeque<Remembered<T>>>,
);

struct Remembered<T> {
    path: PathBuf,
    seal: CloseSeal,
    objects: T,
    base: Base,
    table: KnownTable,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Memory<T> {
    /// An empty memory.
    pub const fn new() -> Self {
        Memory(Mutex::new(VecDeque::new()))
    }

    /// Remembers a log in one file that was just closed, unless it has many objects.
    pub fn remember(&self, path: &Path, objects: T, base: Base, closed: JustClosed) {
        let JustClosed { table, seal } = closed;
        // Each subfile has its own seal.
        if base.subfiles > 0 {
            return;
        }
        let seal = seal.or_else(|| seal_of(&FoundLog::at(path).ok()?, &base));
        let seal = seal.filter(|seal| seal.objects_len() <= LARGEST);
        let (Some(seal), Ok(mut known)) = (seal, self.0.try_lock()) else {
            return;
        };
        known.retain(|known| known.path != path);
        known.truncate(MOST - 1);
        known.push_front(Remembered {
            path: path.to_owned(),
            seal,
            objects,
            base,
            table,
        });
    }

    /// The state of the log at `path`, found as `log`, if this process has closed it, and nobody has changed it since. The
    /// table is empty if it was too large to keep.
    pub fn recall(&self, path: &Path, log: &FoundLog) -> Option<(T, Base, KnownTable)> {
        let mut known = self.0.try_lock().ok()?;
        let at = known.iter().position(|known| known.path == path)?;
        let found = known.remove(at)?;
        drop(known);
        let Remembered {
            seal: closed,
            objects,
            base,
            table,
            ..
        } = found;
        let is_unchanged = seal_of(log, &base) == Some(closed);
        let table = table.of_file(log.metadata(), &base.id);
        is_unchanged.then_some((objects, base, table))
    }
}

/// The seal of the log, if all sealed bytes are unchanged.
fn seal_of(log: &FoundLog, base: &Base) -> Option<CloseSeal> {
    let is_same = log.id() == Some(base.id);
    is_same.then(|| log.seal(LARGEST)).flatten()
}
