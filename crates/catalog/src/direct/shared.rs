//! Memory that open logs with the same limits share, and the states of closed logs in it.
//!
//! A program may open a log again and again. So chunks and indexes of a closed log stay for a while, without the view
//! and its descriptors. They are bounded, because the host does not expect them.

use std::collections::VecDeque;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, Generation, MemoryLimits};

use crate::options::ReadOptions;

/// Number of closed logs that are remembered.
const MOST_CLOSED: usize = 16;

/// Bytes that stay when no log is open.
const KEPT: u64 = 128 << 20;

/// Coarsest tick of a file system's clock. A file that has just changed may change again and keep its time.
const TICK: Duration = Duration::from_secs(2);

/// The memory of open logs with the same limits.
#[derive(Debug)]
pub struct Shared {
    limits: MemoryLimits,
    pub budget: Arc<Budget>,
    logs: Mutex<Logs>,
}

#[derive(Debug, Default)]
struct Logs {
    /// Number of logs that are open or being opened.
    open: usize,
    /// Remembered logs, in the order of their closes.
    closed: VecDeque<Remembered>,
}

/// One state of a log, as it was opened.
#[derive(Debug, Clone)]
pub struct Remembered {
    directory: PathBuf,
    /// Options that decide the bytes of the view.
    settings: String,
    files: Vec<Source>,
    generation: Generation,
    len: u64,
}

static ALL: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// The use of the memory by one log. The log counts as open until this is dropped.
#[derive(Debug)]
pub struct InUse(Arc<Shared>);

/// The memory for a log that is to be opened with these limits. Memory with other limits goes if no log with those is
/// open.
pub fn of(limits: MemoryLimits) -> InUse {
    let mut all = ALL.lock();
    all.retain(|shared| shared.limits == limits || shared.logs.lock().open > 0);
    let known = all.iter().find(|shared| shared.limits == limits);
    let shared = known.map(Arc::clone).unwrap_or_else(|| {
        let new = Arc::new(Shared {
            limits,
            budget: Arc::new(Budget::new(limits).without_threads()),
            logs: Mutex::default(),
        });
        all.push(Arc::clone(&new));
        new
    });
    // The log counts before its scan, which takes long. Otherwise an open with other limits would drop the memory
    // meanwhile.
    InUse::new(shared)
}

impl InUse {
    fn new(shared: Arc<Shared>) -> Self {
        shared.logs.lock().open += 1;
        InUse(shared)
    }
}

impl Clone for InUse {
    fn clone(&self) -> Self {
        InUse::new(Arc::clone(&self.0))
    }
}

impl Deref for InUse {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut logs = self.logs.lock();
        logs.open -= 1;
        let was_last = logs.open == 0;
        drop(logs);
        if was_last {
            self.budget.shrink_to(KEPT);
        }
    }
}

impl Shared {
    /// Generation and length of an earlier view of the log with this snapshot, whose chunks may still be there.
    pub fn before(
        &self,
        dir: &SourceDir,
        options: &ReadOptions,
        snapshot: &Snapshot,
    ) -> Option<(Generation, u64)> {
        let settings = options.settings.to_string();
        let is_meant = |log: &&Remembered| {
            log.directory == dir.path()
                && log.settings == settings
                && snapshot.journal.is_none()
                && snapshot
                    .sources
                    .iter()
                    .map(Source::file)
                    .eq(log.files.iter().cloned())
        };
        let logs = self.logs.lock();
        let found = logs.closed.iter().find(is_meant);
        found.map(|log| (log.generation, log.len))
    }

    /// Notes that the view of a log is closed. `remembered` is its state, if that is certain.
    pub fn closed(&self, generation: Generation, remembered: Option<Remembered>) {
        let mut logs = self.logs.lock();
        logs.closed.retain(|log| log.generation != generation);
        let forgotten = if remembered.is_none() {
            Some(generation)
        } else if logs.closed.len() == MOST_CLOSED {
            logs.closed.pop_front().map(|log| log.generation)
        } else {
            None
        };
        logs.closed.extend(remembered);
        drop(logs);
        if let Some(generation) = forgotten {
            self.budget.forget(generation);
        }
    }
}

impl Remembered {
    /// The state of an open log. `None` for a log that a job may append to, and for one whose files changed too
    /// recently to be sure of their states.
    pub fn of(dir: &Path, options: &ReadOptions, view: &View) -> Option<Self> {
        let snapshot = view.snapshot();
        let limit = SystemTime::now().checked_sub(TICK)?;
        let limit = limit.duration_since(UNIX_EPOCH).ok()?;
        let limit = (limit.as_secs() as i64, i64::from(limit.subsec_nanos()));
        let files: Vec<Source> = snapshot.sources.iter().map(Source::file).collect();
        let is_certain =
            snapshot.journal.is_none() && files.iter().all(|file| file.identity.modified < limit);
        is_certain.then(|| Remembered {
            directory: dir.to_owned(),
            settings: options.settings.to_string(),
            files,
            generation: view.generation(),
            len: view.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_being_opened_has_the_budget_of_those_that_follow() {
        let (limits, others) = (MemoryLimits::each(1234), MemoryLimits::each(4321));
        let being_scanned = of(limits);
        drop(of(others));
        let next = of(limits);
        assert!(Arc::ptr_eq(&being_scanned.budget, &next.budget));
        // An open with other limits drops the memory that no log uses.
        let budget = Arc::downgrade(&next.budget);
        drop((being_scanned, next));
        drop(of(others));
        assert_eq!(budget.strong_count(), 0);
    }
}
