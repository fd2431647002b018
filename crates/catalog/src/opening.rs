//! Opens the view of a log file: from the store, or by a scan.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use h5logfs_common::error::Result;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ScanRequest, Scanner, Settings};
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_view::cache::{Budget, Generation};
use h5logfs_view::index::store::{Store, StoreEntry};
use h5logfs_view::{Compared, View};

use crate::lookup::{Look, unscanned};
use crate::stored_scan::{ScanInputs, StoredScan};

/// Attempts at a scan of a file that changes meanwhile.
pub(crate) const SCAN_ATTEMPTS: usize = 3;

/// Longest wait for another process that scans the same log for the same store.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The budget, the scanner and the store that opens use.
#[derive(Debug)]
pub(crate) struct Opener {
    pub budget: Arc<Budget>,
    pub scanner: Box<dyn Scanner>,
    /// Outcomes of scans on disk.
    pub store: Option<Arc<Store>>,
}

/// A file that may be a log.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub dir: &'a SourceDir,
    pub settings: &'a Settings,
    pub relative: &'a Path,
    pub source: &'a SourceFile,
    pub look: &'a Look,
    /// The companion files in their present states.
    pub companions: &'a [Source],
    /// Finds generation and length of an earlier view of the state that a scan has found.
    pub before: &'a Before<'a>,
    /// Earlier comparisons of the log with its checksums.
    pub known: Option<&'a Compared>,
}

/// The type of [`Candidate::before`].
pub(crate) type Before<'a> = dyn Fn(&Snapshot) -> Option<(Generation, u64)> + 'a;

/// The view of a log in a state that was not known before.
pub(crate) struct Opened {
    pub view: Arc<View>,
    /// The way in which the view was found, in words. `time` is its duration.
    pub how: &'static str,
    pub time: Duration,
}

/// The state of the file at `place`; `None` where there is none.
pub(crate) fn identity(dir: &SourceDir, place: &SourcePath) -> Option<Identity> {
    let stat = dir.of(place).ok()?.stat(&place.path).ok()?;
    Some(Identity::from(&stat))
}

/// The present states of the companion files that a look-up has found, and the permissions that all of them allow.
pub(crate) fn companion_states(dir: &SourceDir, look: &Look) -> (Vec<Source>, u16) {
    const ALL: u16 = 0o777;
    let (mut states, mut allowed) = (Vec::new(), ALL);
    for place in look.companions.iter().flat_map(|found| &found.own) {
        let stat = dir.of(place).and_then(|dir| dir.stat(&place.path));
        if let Ok(stat) = stat {
            allowed &= (stat.st_mode & u32::from(ALL)) as u16;
            states.push(Source::whole(place.clone(), Identity::from(&stat)));
        }
    }
    (states, allowed)
}

impl Opener {
    /// Opens the view from the store, or else scans the file. Fails with [`Error::NotALog`] for any other file.
    ///
    /// Of several processes with the same store, one scans and the others wait.
    ///
    /// [`Error::NotALog`]: h5logfs_common::error::Error::NotALog
    pub fn open(&self, candidate: Candidate<'_>) -> Result<Opened> {
        // A file that needs no scan is not worth storing.
        let store = self.store.as_ref();
        let Some(store) = store.filter(|_| candidate.look.unscanned.is_none()) else {
            return self.scan(candidate, None);
        };
        let inputs = ScanInputs {
            settings: candidate.settings,
            companions: candidate.companions,
        };
        let Candidate {
            dir,
            relative,
            source,
            ..
        } = candidate;
        let stored = StoredScan::new(store, inputs, dir, relative, source)?;
        if let Some(opened) = self.open_stored(candidate, &stored) {
            return Ok(opened);
        }
        let flight = stored.flight(source, LONGEST_WAIT);
        if flight.as_ref().is_some_and(|flight| flight.has_waited) {
            if let Some(opened) = self.open_stored(candidate, &stored) {
                return Ok(opened);
            }
            // The other process could not store its outcome. Processes that still wait need not take turns.
            drop(flight);
            return self.scan(candidate, Some(&stored));
        }
        self.scan(candidate, Some(&stored))
    }

    /// Opens the view from the store. `None` where the store has no usable snapshot.
    fn open_stored(&self, candidate: Candidate<'_>, stored: &StoredScan<'_>) -> Option<Opened> {
        let start = Instant::now();
        let task = self.budget.task(None);
        let (snapshot, log) = stored.find(&task, candidate.source)?;
        let (mut snapshot, _memory) = snapshot.into_parts();
        snapshot
            .diagnostics
            .extend(candidate.look.foreign_diagnostic());
        match self.view_of(candidate, snapshot, Some(log)) {
            Ok(view) => {
                self.budget.stats().kept_scans.count();
                Some(Opened {
                    view,
                    how: "known from an earlier scan, opened",
                    time: start.elapsed(),
                })
            }
            Err(e) => {
                log::debug!("the stored snapshot is not used: {e}");
                None
            }
        }
    }

    /// Scans the file, even if the store has a snapshot.
    pub fn snapshot(&self, candidate: Candidate<'_>) -> Result<Reserved<Snapshot>> {
        let scanned = self.scanned(&self.budget.task(None), candidate);
        candidate.look.complete(scanned)
    }

    fn scanned(&self, task: &Task, candidate: Candidate<'_>) -> Result<Reserved<Snapshot>> {
        let request = ScanRequest {
            dir: candidate.dir,
            relative: candidate.relative,
            companions: candidate.look.companions.as_ref().map(|found| &*found.own),
            settings: candidate.settings,
            known: candidate.known.map(|known| known.last),
        };
        if let Some(kind) = candidate.look.unscanned {
            return task.retry(|| unscanned::snapshot(task, request, candidate.source, kind));
        }
        let stats = self.budget.stats();
        let scan = |request| {
            stats.scans.count();
            let scan = || task.retry(|| self.scanner.scan(task, request));
            stats.scan_time.time(scan)
        };
        let scanned = scan(request)?;
        let goes_on = scanned.sealed.as_ref().is_some_and(|sealed| sealed.goes_on);
        if goes_on && !candidate.known.is_some_and(|known| known.is_of(&scanned)) {
            // A copy has taken the place of the log. The flushes that were compared are not those of the copy.
            drop(scanned);
            return scan(ScanRequest {
                known: None,
                ..request
            });
        }
        Ok(scanned)
    }

    fn scan(&self, candidate: Candidate<'_>, stored: Option<&StoredScan<'_>>) -> Result<Opened> {
        let look = candidate.look;
        let start = Instant::now();
        let task = self.budget.task(None);
        let scanned = self.scanned(&task, candidate);
        // The stored snapshot leaves out foreign files, which come and go.
        let kept = scanned.as_ref().ok().zip(stored);
        let (packed, log) = kept
            .and_then(|(snapshot, stored)| stored.pack(&task, snapshot))
            .unzip();
        let (snapshot, _memory) = look.complete(scanned)?.into_parts();
        let view = self.view_of(candidate, snapshot, log)?;
        let time = start.elapsed();
        match stored.zip(packed) {
            Some((stored, packed)) => stored.store(&packed),
            None => log::debug!("{}: not stored", view.path().display()),
        }
        Ok(Opened {
            view,
            how: "scanned",
            time,
        })
    }

    fn view_of(
        &self,
        candidate: Candidate<'_>,
        snapshot: Snapshot,
        log: Option<StoreEntry>,
    ) -> Result<Arc<View>> {
        let (dir, budget) = (candidate.dir, Arc::clone(&self.budget));
        let view = match (candidate.before)(&snapshot) {
            Some(before) => View::open_again(before, dir, snapshot, budget, log),
            None => View::open(dir, snapshot, budget, log),
        }?;
        if let Some(known) = candidate.known {
            known.give_to(&view);
        }
        Ok(view)
    }
}
