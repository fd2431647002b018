//! Entries of the catalog: its knowledge of a path, in one of the states of the file.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Presented;
use crate::lookup::Listings;
use crate::lookup::companions::{self, Companions, NamesNow};
use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::Error;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::settled::state::SettledState;
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::Identity;
use h5logfs_view::View;
use h5logfs_view::cache::Generation;

/// Lifetime of a remembered failure. In this time, many readers of a broken file cause one scan. After it the file is
/// tried again, because the cause may be mended elsewhere, for example by a subfile that arrives late.
const FAILURE_LIFETIME: Duration = Duration::from_secs(10);

/// Lifetime of an entry for a log that is not all visible yet. Missing data arrive without a change of any time or
/// size. Where data are lost, it is [`FAILURE_LIFETIME`].
const LATE_LIFETIME: Duration = Duration::from_secs(1);

/// Lifetime of a comparison of all files of a log, where not all of them matter. A request for hidden names is such a
/// case, since a listing asks for each file of the log. The data files of a job are another one, since its flushes show
/// in the journal.
const COMPARISON_LIFETIME: Duration = Duration::from_millis(100);

/// Lifetime of the finding that a file with the name of a companion belongs to another user. A change of its owner
/// leaves no trace in the directory.
const FOREIGN_LIFETIME: Duration = Duration::from_secs(10);

/// The most bytes of a remembered error, with its wrapping.
const MAX_ERROR: usize = 5 << 10;

/// The companion files of a file, in their states before the scan.
#[derive(Debug, Default)]
pub struct CompanionStates {
    /// `None` for a file that needs none.
    pub companions: Option<Companions>,
    /// The states of the companion files that belong to the file.
    pub states: Vec<Source>,
    /// The permission bits that all members of a set allow; `None` for any other file.
    pub allowed: Option<u16>,
}

/// Facts about a path, and the states of the files from which they are known.
#[derive(Debug)]
pub struct CatalogEntry {
    /// The files of the log, the main file first, and companion files that no other file refers to.
    pub files: Vec<Source>,
    /// See [`CompanionStates::companions`]. The lock is held while the owners of new files are asked for, because
    /// waiting threads would ask for the same.
    companions: Option<Mutex<Companions>>,
    /// Whether the files are a set of files.
    is_set: bool,
    /// Names in the directory of the main file that lead to other files of the log, and are not listed. Only a view has
    /// any.
    pub hidden: HashSet<OsString>,
    pub presented: Presented,
    /// The newest flush of the log; 0 where it is not known.
    pub newest: u64,
    /// Whether a flush was asked for by its number. Later flushes change nothing.
    pub is_of_flush: bool,
    /// Lifetime of the entry for files that have not changed. `None` stands for ever.
    lifetime: Option<Duration>,
    /// Whether the system refused an operation, which says nothing about the file. The next request then tries again.
    is_transient: bool,
    since: Instant,
    /// The time of the last comparison of the files with their states: milliseconds after `since`.
    compared: AtomicU64,
    /// The time when the owners of the companion files were last compared: milliseconds after `since`.
    owners_compared: AtomicU64,
    /// The view, alive while a program has it open or the budget keeps it.
    pub view: Weak<View>,
    memory: usize,
}

impl CatalogEntry {
    /// `since` is the begin of the scan. `files` has the main file first.
    pub fn new(
        since: Instant,
        mut files: Vec<Source>,
        companions: CompanionStates,
        presented: Presented,
        view: Weak<View>,
    ) -> Self {
        let is_set = companions
            .companions
            .as_ref()
            .is_some_and(|found| found.set.is_some());
        // The directory's names show which members a set has.
        let hidden = if is_set {
            None
        } else {
            companion_names(&files)
        };
        let hidden = hidden.unwrap_or_default();
        let places: HashSet<SourcePath> = files.iter().map(|file| file.place.clone()).collect();
        // The first member stands for a set, also where it cannot be read.
        let first = companions.states.first().map(|file| file.place.clone());
        let others = companions.states.into_iter();
        files.extend(others.filter(|file| !places.contains(&file.place)));
        let main = first.filter(|_| is_set);
        let main = main.and_then(|main| files.iter().position(|file| file.place == main));
        if let Some(main) = main {
            files.swap(0, main);
        }
        let entry = CatalogEntry {
            files,
            companions: companions.companions.map(Mutex::new),
            is_set,
            hidden,
            lifetime: None,
            is_transient: matches!(&presented, Presented::Broken(e) if is_transient(e)),
            presented,
            newest: 0,
            is_of_flush: false,
            since,
            compared: AtomicU64::new(0),
            owners_compared: AtomicU64::new(0),
            view,
            memory: 0,
        };
        CatalogEntry {
            memory: entry.measure(),
            ..entry
        }
    }

    fn measure(&self) -> usize {
        let path = |place: &SourcePath| size_of::<SourcePath>() + place.path.as_os_str().len();
        let files = self
            .files
            .iter()
            .map(|file| size_of::<Source>() + path(&file.place));
        let hidden = self
            .hidden
            .iter()
            .map(|name| size_of::<OsString>() + name.len());
        let companions = self.companions.as_ref().map_or(0, |companions| {
            let companions = companions.lock();
            companions
                .named
                .iter()
                .chain(&companions.own)
                .map(path)
                .sum()
        });
        let presented = match &self.presented {
            Presented::Broken(_) => MAX_ERROR,
            Presented::Settled(_) => size_of::<SettledState>(),
            _ => 0,
        };
        size_of::<Self>() + files.sum::<usize>() + hidden.sum::<usize>() + companions + presented
    }

    /// `is_of_flush`: see [`CatalogEntry::is_of_flush`].
    pub fn of_view(
        since: Instant,
        view: &Arc<View>,
        companions: CompanionStates,
        is_of_flush: bool,
    ) -> Self {
        let snapshot = view.snapshot();
        let is_of_flush = is_of_flush && snapshot.journal.is_some();
        let files = snapshot.sources.iter().chain(&snapshot.journal);
        let mut files: Vec<Source> = files.map(Source::file).collect();
        // One file may be several sources.
        files.dedup();
        let presented = Presented::View {
            generation: view.generation(),
            len: view.len(),
            allowed: companions.allowed,
            grows: snapshot.journal.is_some() && !is_of_flush,
            modified: if is_of_flush {
                snapshot.flushed_at.map(seconds)
            } else {
                let journal = snapshot.journal.as_ref();
                let journal = journal.map(|journal| journal.identity.modified);
                // A program that writes to such a file need not touch the member that is listed.
                // The files of a set are equal.
                let all = snapshot.log.layout().flat().is_some() || snapshot.joined.is_some();
                let files = snapshot.sources.iter().filter(|_| all);
                journal.or_else(|| files.map(|file| file.identity.modified).max())
            },
        };
        let is_lost = || {
            snapshot
                .diagnostics
                .iter()
                .any(|d| d.severity > Severity::Note)
        };
        CatalogEntry {
            newest: snapshot.newest,
            is_of_flush,
            lifetime: snapshot.is_late.then(|| {
                if is_lost() {
                    FAILURE_LIFETIME
                } else {
                    LATE_LIFETIME
                }
            }),
            ..Self::new(since, files, companions, presented, Arc::downgrade(view))
        }
    }

    /// Generation and length of the view of a closed log, if `snapshot` is of the same state of the same files. Two
    /// scans of one state yield the same bytes.
    pub fn generation_of(&self, snapshot: &Snapshot) -> Option<(Generation, u64)> {
        let mut sources = snapshot.sources.iter().map(Source::file);
        match self.presented {
            Presented::View {
                generation,
                len,
                grows: false,
                ..
            } if snapshot.journal.is_none() => sources
                .all(|source| self.files.contains(&source))
                .then_some((generation, len)),
            _ => None,
        }
    }

    /// Whether the entry is a view, and the file `name` beside it is a part of the log.
    pub fn hides(&self, name: &OsStr) -> bool {
        matches!(self.presented, Presented::View { .. }) && self.hidden.contains(name)
    }

    /// Begin of the scan that made the entry.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Memory of the entry when it was made, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Whether the entry is about this file, in whatever state.
    pub fn is_of(&self, file: Identity) -> bool {
        let main = self.files.first().map(|main| main.identity);
        main.is_some_and(|main| (main.device, main.inode) == (file.device, file.inode))
    }

    /// Whether the entry still counts for files that have not changed.
    pub fn is_valid(&self) -> bool {
        match &self.presented {
            // A file that kills a worker is not scanned again until it changes.
            Presented::Broken(e) if matches!(**e, Error::ScanDied { .. }) => true,
            Presented::Broken(_) => !self.is_transient && self.since.elapsed() <= FAILURE_LIFETIME,
            _ => self
                .lifetime
                .is_none_or(|lifetime| self.since.elapsed() <= lifetime),
        }
    }

    /// Whether the files are still in the same state. A log of a running job may have very many data files, and readers
    /// may ask for new flushes all the time. So these files are compared once in a while, however many readers ask. Of a set
    /// only the first member is compared, unless the file is opened (`is_open`).
    pub fn are_unchanged(&self, is_open: bool, is_unchanged: impl Fn(&Source) -> bool) -> bool {
        if self.is_set && !is_open {
            return self.files.first().is_some_and(is_unchanged);
        }
        let grows =
            self.is_of_flush || matches!(self.presented, Presented::View { grows: true, .. });
        let of_all = !grows || self.begins_comparison();
        let mut numbered = self.files.iter().enumerate();
        let unchanged = numbered.all(|(number, file)| {
            let may_skip = !of_all && number > 0 && file.grows;
            may_skip || is_unchanged(file)
        });
        if unchanged && !grows {
            self.set_now(&self.compared);
        }
        unchanged
    }

    /// Whether this thread has to compare all files, because the last comparison is too old.
    fn begins_comparison(&self) -> bool {
        let last = self.compared.load(Ordering::Relaxed);
        let now = self.since.elapsed().as_millis() as u64;
        let is_due = u128::from(now.saturating_sub(last)) >= COMPARISON_LIFETIME.as_millis();
        let swap = || {
            let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            self.compared.compare_exchange(last, now, set, failed)
        };
        is_due && swap().is_ok()
    }

    pub fn was_just_compared(&self) -> bool {
        self.is_within(COMPARISON_LIFETIME, &self.compared)
    }

    /// Whether the log at `relative` still has the same companion files. Files of other users may come and go.
    pub fn has_same_companions(
        &self,
        dir: &SourceDir,
        relative: &Path,
        listings: &Listings,
    ) -> bool {
        let Some(companions) = &self.companions else {
            return true;
        };
        let mut known = companions.lock();
        let must_compare =
            known.has_foreign() && !self.is_within(FOREIGN_LIFETIME, &self.owners_compared);
        let named = match known.names_now(dir, relative, listings) {
            Ok(NamesNow::Same) if !must_compare => return true,
            Ok(NamesNow::Same) => known.named.clone(),
            Ok(NamesNow::Other(named)) => named,
            Ok(NamesNow::Gone) | Err(_) => return false,
        };
        let owner = self.files.first().map_or(0, |log| log.identity.owner);
        let files = LogFiles::of_owner(dir, relative, owner);
        let now = if must_compare {
            self.set_now(&self.owners_compared);
            let set = known.set.clone();
            let none = Companions {
                set,
                ..Companions::default()
            };
            none.renamed(&files, named)
        } else {
            known.renamed(&files, named)
        };
        if now.own != known.own {
            return false;
        }
        let has_come = now.has_foreign() && !known.has_foreign();
        *known = now;
        drop(known);
        if has_come {
            let foreign = companions::companions(&files, listings);
            let foreign = foreign.ok().and_then(|(_, foreign)| foreign.text());
            log::info!(
                "{}: {}",
                dir.full_path(relative).display(),
                foreign.unwrap_or_default()
            );
        }
        true
    }

    fn set_now(&self, time: &AtomicU64) {
        let now = self.since.elapsed().as_millis();
        time.store(now as u64, Ordering::Relaxed);
    }

    fn is_within(&self, lifetime: Duration, time: &AtomicU64) -> bool {
        let last = Duration::from_millis(time.load(Ordering::Relaxed));
        self.since.elapsed() < last + lifetime
    }
}

/// Milliseconds as seconds and nanoseconds.
fn seconds(milliseconds: i64) -> (i64, i64) {
    let rest = milliseconds.rem_euclid(1000);
    (milliseconds.div_euclid(1000), rest * 1_000_000)
}

/// Whether the same operation may succeed if it is tried again at once.
fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Changed { .. })
}

/// Names in the directory of the first file that lead to the other files.
fn companion_names(files: &[Source]) -> Option<HashSet<OsString>> {
    let (main, others) = files.split_first()?;
    let parent = main.place.path.parent()?;
    let others = others.iter().filter(|file| file.place.dir == 0);
    let below = others.filter_map(|file| file.place.path.strip_prefix(parent).ok());
    let names = below.filter_map(|path| path.components().next());
    let names = names.map(|name| name.as_os_str().to_owned());
    Some(names.collect())
}
