//! Maps the path of a file to a [`View`] of the log in it.
//!
//! A [`Catalog`] covers the files below one directory. It has a [`Scanner`] scan a file that is new or has changed,
//! keeps the outcome, and notices when the file changes again. [`Workers`] is a scanner that runs libhdf5 in other
//! processes, without rights.
//!
#![doc = "```ignore"]
#![doc = include_str!("../examples/read_log.rs")]
#![doc = "```"]
//!
//! A scan may take as long as its limits allow. A thread that must not wait so long asks with [`Wait::No`] and
//! gets [`Lookup::NeedsScan`] instead of the outcome of a scan.
//!
//! [`Workers`]: workers::Workers

#![deny(missing_docs)]

mod at;
pub mod changes;
pub mod direct;
pub mod directories;
mod entry;
pub mod index_dir;
pub mod lookup;
mod opening;
pub mod options;
mod outdated;
mod reported;
mod stored_scan;
mod superseded;
pub mod workers;

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::lru::Lru;
use h5logfs_common::messages;
use h5logfs_common::single_flight::SingleFlight;
use h5logfs_log::journal::{self, unflushed::is_spill_dir};
use h5logfs_log::log_files::may_hide;
use h5logfs_log::part_names;
use h5logfs_log::scan::{ListingScans, Scanner, Settings};
use h5logfs_log::settled::state::SettledState;
use h5logfs_log::snapshot::Source;
use h5logfs_log::source_dir::{SourceDir, SourcePath, stat_in};
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_view::cache::{Budget, Generation, MemoryLimits};
use h5logfs_view::index::store::Store;
use h5logfs_view::{Compared, View};

pub use at::At;
use at::{Entries, Key};
use entry::{CatalogEntry, CompanionStates};
use lookup::sets::Set;
use lookup::{Listings, Look, Main};
use opening::{Candidate, Opener, SCAN_ATTEMPTS, companion_states};
use outdated::Outdated;
use reported::Reported;
use superseded::Superseded;

/// Flags that open a directory for look-ups of names.
const OPEN_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Bytes for the entries of all files. Most entries take a few hundred.
const MEMORY: u64 = 32 << 20;
/// Bytes for the comparisons of unclosed logs with their checksums.
const COMPARED_MEMORY: u64 = 32 << 20;
/// Interval between two checks for deleted logs whose views are kept.
const LOOK_FOR_DELETED: Duration = Duration::from_secs(1);
/// Bytes of an entry's place in the table, and of the allocator's overhead.
const OVERHEAD: usize = 128;

/// Number of this build, a hash of its sources. Builds may read logs differently, so a build uses only the items of an
/// index directory that have its own number.
pub const BUILD: &str = env!("H5LOGFS_BUILD");

/// Whether a request may wait for a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The request scans the file where necessary, or waits for another thread that scans it.
    Yes,
    /// The request answers at once, with [`Lookup::NeedsScan`] where only a scan can tell more.
    No,
}

/// The answer to a request that may need a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Lookup<T> {
    /// The answer itself.
    Known(T),
    /// The file must be scanned first, and the request was [`Wait::No`].
    NeedsScan,
}

impl<T> Lookup<T> {
    /// Applies `f` to the answer, where there is one.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Lookup::Known(answer) => Lookup::Known(f(answer)),
            Lookup::NeedsScan => Lookup::NeedsScan,
        }
    }
}

/// The presentation of a regular file.
#[derive(Debug, Clone)]
pub enum Presented {
    /// No log. The file is presented with its own bytes.
    Plain,
    /// A log that `h5logfs settle` turned into an ordinary HDF5 file, in this state. The file is presented with its own
    /// bytes.
    Settled(Arc<SettledState>),
    /// A log. The file is presented as the canonical HDF5 file.
    View {
        /// The number of this state of the log. It changes whenever the log changes.
        generation: Generation,
        /// Length of the canonical file in bytes.
        len: u64,
        /// Whether the next flush may make another state.
        grows: bool,
        /// Time of this state in seconds and nanoseconds since 1970, where the log file alone does not tell it.
        modified: Option<(i64, i64)>,
        /// The permission bits that all files of the log allow, where those of the log file do not decide alone.
        allowed: Option<u16>,
    },
    /// No such state. A file that is no log has only its present one.
    Absent,
    /// A log that cannot be presented. An open fails with this error.
    Broken(Arc<Error>),
}

impl Presented {
    /// Whether the file changed during its scan, or another file took its place.
    fn has_changed(&self) -> bool {
        matches!(self, Presented::Broken(e) if matches!(**e, Error::Changed { .. }) || e.is_stale())
    }
}

/// Presentation of a file that is no log.
fn plain(source: &SourceFile, signature: Option<u64>) -> Result<Presented> {
    let settled = match signature {
        Some(signature) => source.settled_state(signature)?,
        None => None,
    };
    Ok(settled.map_or(Presented::Plain, |state| {
        Presented::Settled(Arc::new(state))
    }))
}

/// Whether `view` shows the log at `relative`.
fn is_at(view: &View, relative: &Path) -> bool {
    view.snapshot().is_at(relative)
}

/// Bytes that a remembered path counts with.
fn weight(path: &Path, bytes: usize) -> u64 {
    (bytes + path.as_os_str().len() + OVERHEAD) as u64
}

/// An open file and the result of its look-up.
struct LookedAt {
    /// Begin of the look-up.
    since: Instant,
    main: Main,
    look: Look,
}

/// The files below one directory, with a view of each that is a log. Threads share the catalog.
///
/// All paths are relative to that directory.
#[derive(Debug)]
pub struct Catalog {
    dir: SourceDir,
    settings: Settings,
    opener: Opener,
    /// The names in directories, for companion files.
    listings: Listings,
    entries: Entries,
    superseded: Superseded,
    outdated: Outdated,
    /// Comparisons of unclosed logs with their checksums.
    compared: Lru<PathBuf, Arc<Compared>>,
    /// Files that are being scanned. Threads that want the same file share one scan.
    scanning: SingleFlight<Key>,
    /// Lines that were logged about each file.
    reported: Reported,
    since: Instant,
    /// Time of the last check for deleted logs, in milliseconds after `since`.
    asked_for_deleted: AtomicU64,
}

impl Catalog {
    /// A catalog of the files below `dir`. `memory` limits what is kept of all files together, in bytes.
    pub fn new(dir: SourceDir, memory: MemoryLimits, scanner: impl Scanner + 'static) -> Self {
        let budget = Arc::new(Budget::new(memory));
        let opener = Opener {
            budget: Arc::clone(&budget),
            scanner: Box::new(scanner),
            store: None,
        };
        Catalog {
            dir,
            settings: Settings::default(),
            opener,
            listings: Listings::default(),
            entries: Entries::new(MEMORY),
            compared: Lru::new(COMPARED_MEMORY),
            superseded: Superseded::new(Arc::clone(&budget)),
            outdated: Outdated::new(budget),
            scanning: SingleFlight::default(),
            reported: Reported::default(),
            since: Instant::now(),
            asked_for_deleted: AtomicU64::new(0),
        }
    }

    /// Sets how files are scanned; the default is [`Settings::default`]. The source directory must already have the
    /// directories in [`Settings::log_dirs`].
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Keeps the outcomes of scans in `store`, and looks there before each scan. Without a store they stay in memory
    /// only.
    pub fn with_store(mut self, store: Arc<Store>) -> Self {
        self.opener.store = Some(store);
        self
    }

    /// The number of scans so far. An outcome from the store does not count.
    pub fn scans(&self) -> u64 {
        self.budget().stats().scans.get()
    }

    /// The memory that the views of this catalog share, and their statistics.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.opener.budget
    }

    /// Begins a listing, whose scans share processes. Call this before the look-ups of several files in a directory,
    /// and drop the guard after them.
    pub fn listing(&self) -> ListingScans<'_> {
        ListingScans::begin(&*self.opener.scanner)
    }

    /// Empties the caches in memory, and forgets all files that are not open.
    pub fn drop_caches(&self) {
        self.budget().clear();
        self.superseded.clear();
        self.reported.clear();
        self.compared.clear();
        // A view that is open stays usable, and the next open of the file shares it.
        self.entries.retain(|entry| entry.view.strong_count() > 0);
    }

    /// The directory of this catalog.
    pub fn dir(&self) -> &SourceDir {
        &self.dir
    }

    /// Tells how the regular file at `relative` is presented. Scans it if it is new or has changed.
    ///
    /// A log that cannot be presented is [`Presented::Broken`]. An error says that the file itself cannot be
    /// opened or read.
    pub fn get(&self, relative: &Path) -> Result<Presented> {
        let entry = self.entry(relative.into(), None)?;
        Ok(entry.presented.clone())
    }

    /// [`Catalog::get`] for callers that choose whether to wait.
    ///
    /// A caller that has just made a `stat` of the file passes its `identity`, which saves a system call. The answer is
    /// then about this file: fails with [`Error::Changed`] where another one has taken its path.
    pub fn look_up<'a>(
        &self,
        at: impl Into<At<'a>>,
        identity: Option<Identity>,
        wait: Wait,
    ) -> Result<Lookup<Presented>> {
        let at = match self.resolve(at.into(), identity, wait)? {
            Lookup::Known(Some(at)) => at,
            Lookup::Known(None) => return Ok(Lookup::Known(Presented::Absent)),
            Lookup::NeedsScan => return Ok(Lookup::NeedsScan),
        };
        let entry = self.entry_with(at, identity, wait)?;
        Ok(entry.map(|entry| entry.presented.clone()))
    }

    /// The state that answers for `at`. `None` where the newest state shows that there is none, so a flush number that
    /// does not exist costs no scan of its own. The last flush of a closed log is its present state.
    fn resolve<'a>(
        &self,
        at: At<'a>,
        identity: Option<Identity>,
        wait: Wait,
    ) -> Result<Lookup<Option<At<'a>>>> {
        let Some(flush) = at.flush else {
            return Ok(Lookup::Known(Some(at)));
        };
        if self.current(at, identity).is_some() {
            return Ok(Lookup::Known(Some(at)));
        }
        let present = At::from(at.path);
        let newest = self.entry_with(present, identity, wait)?;
        Ok(newest.map(|newest| match newest.presented {
            Presented::View { grows: true, .. } => (flush <= newest.newest).then_some(at),
            Presented::View { .. } => (flush == newest.newest).then_some(present),
            Presented::Broken(_) => Some(present),
            Presented::Plain | Presented::Settled(_) | Presented::Absent => None,
        }))
    }

    /// Opens the view of the log at `relative` in its present state. Scans the file if it is new or has changed.
    ///
    /// Fails with [`Error::NotALog`] for a plain file, and with [`Error::Remembered`] for a log that cannot be
    /// presented.
    pub fn open(&self, relative: &Path) -> Result<Arc<View>> {
        self.open_at(relative.into())
    }

    fn open_at(&self, at: At<'_>) -> Result<Arc<View>> {
        let entry = self.entry(at, None)?;
        match self.view_in_memory(at.path, &entry)? {
            Some(view) => Ok(view),
            None => self.scan_for_view(at),
        }
    }

    /// [`Catalog::open`] for callers that choose whether to wait.
    pub fn open_with<'a>(&self, at: impl Into<At<'a>>, wait: Wait) -> Result<Lookup<Arc<View>>> {
        let at = at.into();
        let at = match self.resolve(at, None, wait)? {
            Lookup::Known(Some(at)) => at,
            Lookup::Known(None) => return Err(self.absent(at.path)),
            Lookup::NeedsScan => return Ok(Lookup::NeedsScan),
        };
        if wait == Wait::Yes {
            return self.open_at(at).map(Lookup::Known);
        }
        let Lookup::Known(entry) = self.entry_now(at, None)? else {
            return Ok(Lookup::NeedsScan);
        };
        let view = self.view_in_memory(at.path, &entry)?;
        Ok(view.map_or(Lookup::NeedsScan, Lookup::Known))
    }

    /// The view of a log, if it is still in memory.
    fn view_in_memory(&self, relative: &Path, entry: &CatalogEntry) -> Result<Option<Arc<View>>> {
        log::debug!("{}: opened", self.dir.full_path(relative).display());
        match &entry.presented {
            // The budget keeps views that are opened often, so it must see each open.
            Presented::View { generation, .. } => {
                let kept = self.budget().view(*generation);
                Ok(kept.or_else(|| entry.view.upgrade()))
            }
            Presented::Broken(error) => Err(Error::Remembered(Arc::clone(error))),
            Presented::Absent => Err(self.absent(relative)),
            Presented::Plain | Presented::Settled(_) => Err(Error::NotALog {
                path: self.dir.full_path(relative),
                reason: "plain file".into(),
            }),
        }
    }

    fn absent(&self, relative: &Path) -> Error {
        Error::io(self.dir.full_path(relative), Errno::NOENT.into())
    }

    fn entry_with(
        &self,
        at: At<'_>,
        identity: Option<Identity>,
        wait: Wait,
    ) -> Result<Lookup<Arc<CatalogEntry>>> {
        let entry = match wait {
            Wait::Yes => self.entry(at, identity).map(Lookup::Known),
            Wait::No => self.entry_now(at, identity),
        }?;
        match (&entry, identity) {
            (Lookup::Known(entry), Some(identity)) if !entry.is_of(identity) => {
                Err(Error::Changed {
                    path: self.dir.full_path(at.path),
                })
            }
            _ => Ok(entry),
        }
    }

    fn entry(&self, at: At<'_>, identity: Option<Identity>) -> Result<Arc<CatalogEntry>> {
        let asked = Instant::now();
        if let Some(entry) = self.current(at, identity) {
            return Ok(entry);
        }
        let _flight = self.scanning.take(at.key());
        // Another thread may have scanned the file meanwhile. `identity` is out of date by now.
        let known = self.scanned_since(at, asked);
        if let Some(entry) = known.or_else(|| self.current(at, None)) {
            return Ok(entry);
        }
        let seen = self.look_at(at.path)?;
        if seen.look.may_be_log {
            Ok(self.scan_alone(at, None, seen)?.0)
        } else {
            self.plain_entry(at, seen)
        }
    }

    /// The outcome of a scan that began at `time` or later. Such an outcome is recent enough for a request of that
    /// time, even if the log has grown since. Otherwise each reader of a busy log would scan it.
    fn scanned_since(&self, at: At<'_>, time: Instant) -> Option<Arc<CatalogEntry>> {
        let entry = self.entries.get(at)?;
        (entry.is_valid() && entry.since() >= time).then_some(entry)
    }

    /// The entry of the file, if no scan is needed for it.
    fn entry_now(
        &self,
        at: At<'_>,
        identity: Option<Identity>,
    ) -> Result<Lookup<Arc<CatalogEntry>>> {
        if let Some(entry) = self.current(at, identity) {
            return Ok(Lookup::Known(entry));
        }
        // A file that is being scanned needs no look-up.
        if self.scanning.is_taken(&at.key()) {
            return Ok(Lookup::NeedsScan);
        }
        let since = Instant::now();
        let main = self.open_main(at.path)?;
        // A set is scanned in any case, and a look at it asks for each member.
        if main.set.is_some() {
            return Ok(Lookup::NeedsScan);
        }
        // Most files of a tree are no logs, and a few of their bytes show it.
        let seen = self.look(since, at.path, main)?;
        if seen.look.may_be_log {
            return Ok(Lookup::NeedsScan);
        }
        self.plain_entry(at, seen).map(Lookup::Known)
    }

    /// The entry of a file that a look-up has found to be no log.
    fn plain_entry(&self, at: At<'_>, seen: LookedAt) -> Result<Arc<CatalogEntry>> {
        let LookedAt { since, main, look } = seen;
        let source = &main.source;
        if let Some(foreign) = look.foreign_diagnostic() {
            let file = source.metadata()?;
            let level = self.reported.level(&file, log::Level::Info, Some(&foreign));
            log::log!(level, "{}: {foreign}", source.path().display());
        }
        let companions = CompanionStates {
            companions: look.companions,
            ..CompanionStates::default()
        };
        let plain = plain(source, look.signature)?;
        Ok(self.entry_without_view(since, at, &main, plain, companions))
    }

    fn look_at(&self, relative: &Path) -> Result<LookedAt> {
        let since = Instant::now();
        let main = self.open_main(relative)?;
        self.look(since, relative, main)
    }

    fn open_main(&self, relative: &Path) -> Result<Main> {
        Main::open(&self.dir, relative, &self.listings)
    }

    fn look(&self, since: Instant, relative: &Path, main: Main) -> Result<LookedAt> {
        let look = main.look(&self.dir, relative, &self.settings, &self.listings)?;
        Ok(LookedAt { since, main, look })
    }

    /// The set of files that makes up the file at `relative`, where no file is. `None` where there is none.
    pub fn set_at(&self, relative: &Path) -> Option<Arc<Set>> {
        self.listings.set_at(&self.dir, relative)
    }

    /// All sets in the directory `parent` that make up a file.
    pub fn sets_in(&self, parent: &Path) -> Vec<Arc<Set>> {
        self.listings.sets_in(&self.dir, parent)
    }

    /// The set of files that has `name` in the directory `parent`, and makes up a file. A listing asks for each name, so
    /// the answer may be that of a moment ago. `None` where there is none.
    pub fn set_with(&self, parent: &Path, name: &OsStr) -> Option<Arc<Set>> {
        self.listings.set_with(&self.dir, parent, name)
    }

    /// The entry of the file, if all files that it was made from are still in the same state. `identity` is that of the
    /// file itself, if the caller knows it from a `stat`. Then the file is not opened yet, and not all members of a set are
    /// compared.
    fn current(&self, at: At<'_>, identity: Option<Identity>) -> Option<Arc<CatalogEntry>> {
        self.forget_deleted();
        let entry = self.entries.get(at)?;
        if !entry.is_valid() {
            self.supersede(at, &entry);
            return None;
        }
        // An open view holds its files, so no other file can get their inode numbers.
        let may_grow = entry.is_of_flush && entry.view.strong_count() > 0;
        let is_unchanged = |file: &Source| {
            let is_main = entry
                .files
                .first()
                .is_some_and(|main| main.place == file.place);
            let now = identity.filter(|_| is_main);
            let now = now.or_else(|| opening::identity(&self.dir, &file.place));
            now.is_some_and(|now| file.identity.is_still(now, file.grows || may_grow))
        };
        let is_current = entry.are_unchanged(identity.is_none(), is_unchanged)
            && entry.has_same_companions(&self.dir, at.path, &self.listings);
        if is_current {
            Some(entry)
        } else {
            self.supersede(at, &entry);
            None
        }
    }

    /// Drops the views of deleted logs, and the memory of past states, once in each interval. Nobody may ever ask for
    /// their paths again.
    fn forget_deleted(&self) {
        let now = self.since.elapsed().as_millis() as u64;
        let last = self.asked_for_deleted.load(Ordering::Relaxed);
        if u128::from(now.saturating_sub(last)) < LOOK_FOR_DELETED.as_millis() {
            return;
        }
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let swapped = self
            .asked_for_deleted
            .compare_exchange(last, now, set, failed);
        if swapped.is_ok() {
            self.budget().forget_deleted();
            self.outdated.forget();
        }
    }

    /// Forgets `entry`, because its file has changed.
    fn supersede(&self, at: At<'_>, entry: &Arc<CatalogEntry>) {
        self.entries.remove_same(at, entry);
        let Presented::View {
            generation, grows, ..
        } = entry.presented
        else {
            return;
        };
        match entry.view.upgrade() {
            Some(view) if grows => self.superseded.keep(at.path, &view),
            _ => self.budget().drop_view(generation),
        }
        self.outdated.add(generation, Weak::clone(&entry.view));
    }

    /// The view of one generation of an unclosed log, if it is still in memory and the files of the log have only grown
    /// since.
    ///
    /// A job may flush between a look-up and the open that follows. The open then gets the state of the look-up.
    pub fn looked_up<'a>(
        &self,
        at: impl Into<At<'a>>,
        generation: Generation,
    ) -> Option<Arc<View>> {
        let at = at.into();
        let kept = self.budget().view(generation);
        let current = || {
            let entry = self.entries.get(at)?;
            let view = entry.view.upgrade()?;
            (view.generation() == generation).then_some(view)
        };
        let view = kept.or_else(current)?;
        self.has_only_grown(at.path, &view).then_some(view)
    }

    fn has_only_grown(&self, relative: &Path, view: &View) -> bool {
        let snapshot = view.snapshot();
        let Some(journal) = &snapshot.journal else {
            return false;
        };
        let has_grown = |file: &Source| {
            let now = opening::identity(&self.dir, &file.place);
            now.is_some_and(|now| file.identity.is_still(now, true))
        };
        is_at(view, relative) && snapshot.sources.iter().chain([journal]).all(has_grown)
    }

    fn scan_for_view(&self, at: At<'_>) -> Result<Arc<View>> {
        let _flight = self.scanning.take(at.key());
        // Another thread may have opened it meanwhile.
        let current = self.current(at, None);
        let entry = current.as_deref();
        if let Some(view) = entry.and_then(|entry| entry.view.upgrade()) {
            return Ok(view);
        }
        let seen = self.look_at(at.path)?;
        let (entry, view) = self.scan_alone(at, entry, seen)?;
        view.ok_or_else(|| match &entry.presented {
            Presented::Broken(error) => Error::Remembered(Arc::clone(error)),
            _ => Error::Changed {
                path: self.dir.full_path(at.path),
            },
        })
    }

    /// Opens the view of the file from the store, or else scans the file, and remembers the outcome. Tries again where
    /// the file changes meanwhile. `before` is the earlier entry of the file, if it has not changed since.
    fn scan_alone(
        &self,
        at: At<'_>,
        before: Option<&CatalogEntry>,
        mut seen: LookedAt,
    ) -> Result<(Arc<CatalogEntry>, Option<Arc<View>>)> {
        for _ in 1..SCAN_ATTEMPTS {
            let scanned = self.scan_once(at, before, seen)?;
            if !scanned.0.presented.has_changed() {
                return Ok(scanned);
            }
            seen = self.look_at(at.path)?;
        }
        self.scan_once(at, before, seen)
    }

    fn scan_once(
        &self,
        at: At<'_>,
        before: Option<&CatalogEntry>,
        seen: LookedAt,
    ) -> Result<(Arc<CatalogEntry>, Option<Arc<View>>)> {
        let LookedAt { since, main, look } = seen;
        let source = &main.source;
        let _scope = messages::scope();
        let file = source.metadata()?;
        messages::about(file.uid());
        let path = source.path().display();
        let (states, allowed) = companion_states(&self.dir, &look);
        let relative = at.path;
        let journal = self.journal_of(relative);
        // Comparisons are kept for the newest flush only.
        let is_present = at.flush.is_none();
        let known = self.compared.get(relative).filter(|_| is_present);
        let opened = self.opener.open(Candidate {
            dir: &self.dir,
            settings: &at.settings(&self.settings),
            relative,
            source,
            look: &look,
            companions: &states,
            before: &|snapshot| before?.generation_of(snapshot),
            known: known.as_deref(),
        });
        let mut companions = CompanionStates {
            companions: look.companions,
            states,
            allowed: main.set.is_some().then_some(allowed),
        };
        let presented = match opened {
            Ok(opened) => {
                self.reported.opened(&file, &opened);
                let view = opened.view;
                self.budget().keep_view(&view);
                if is_present {
                    self.keep_compared(relative, &view);
                }
                let mut entry = CatalogEntry::of_view(since, &view, companions, !is_present);
                self.keep_own_names(relative, &mut entry);
                return Ok((self.remember(at, entry), Some(view)));
            }
            Err(Error::NotALog { reason, .. }) => {
                log::debug!("{path}: passed through: {reason}");
                plain(source, look.signature)?
            }
            Err(Error::NoFlush { reason, .. }) if !is_present => {
                log::debug!("{path}: {reason}");
                companions.states.extend(journal);
                Presented::Absent
            }
            // A lack of memory says nothing about the file, and the next request may find memory.
            Err(error @ Error::NoMemory { .. }) => return Err(error),
            Err(error) => {
                self.budget().stats().failed_scans.count();
                if matches!(error, Error::ScanDied { .. }) {
                    // A hostile file may be the cause, which is worth a line even if nobody opens the file.
                    log::error!("{error}");
                    self.budget().stats().worker_failures.count();
                } else {
                    // Each open of the file reports the error and logs it.
                    log::debug!("{error}");
                }
                // The log may be new. Its job changes the journal at the first flush, when all files are there.
                companions.states.extend(journal);
                Presented::Broken(Arc::new(error.shortened()))
            }
        };
        let entry = self.entry_without_view(since, at, &main, presented, companions);
        Ok((entry, None))
    }

    /// Keeps the comparisons of a log with its checksums for the next scan.
    fn keep_compared(&self, relative: &Path, view: &View) {
        match Compared::of(view) {
            Some(compared) => {
                let weight = weight(relative, compared.bytes());
                let compared = Arc::new(compared);
                self.compared.insert(relative.to_owned(), compared, weight);
            }
            None => drop(self.compared.remove(relative)),
        }
    }

    /// The journal of a log in its present state, where there is one.
    fn journal_of(&self, relative: &Path) -> Option<Source> {
        let place = SourcePath::below(journal::path_of(relative));
        let identity = opening::identity(&self.dir, &place)?;
        Some(Source::whole(place, identity))
    }

    /// The entry of a file that is presented without a view.
    fn entry_without_view(
        &self,
        since: Instant,
        at: At<'_>,
        main: &Main,
        presented: Presented,
        companions: CompanionStates,
    ) -> Arc<CatalogEntry> {
        let main = Source::whole(SourcePath::below(&main.place), main.source.identity());
        let entry = CatalogEntry::new(since, vec![main], companions, presented, Weak::new());
        self.remember(at, entry)
    }

    fn remember(&self, at: At<'_>, entry: CatalogEntry) -> Arc<CatalogEntry> {
        let weight = weight(at.path, entry.memory());
        let entry = Arc::new(entry);
        self.entries.insert(at, Arc::clone(&entry), weight);
        entry
    }

    /// Forgets a path that is gone or leads to another file. The space of a deleted file is free only when no view of
    /// it is left.
    pub fn forget<'a>(&self, at: impl Into<At<'a>>) {
        let at = at.into();
        if at.flush.is_none() {
            self.superseded.forget(at.path);
            self.compared.remove(at.path);
        }
        if let Some(entry) = self.entries.remove(at)
            && let Presented::View { generation, .. } = entry.presented
        {
            self.budget().drop_view(generation);
            self.outdated.add(generation, Weak::clone(&entry.view));
        }
    }

    /// Whether `name` in the directory `parent` is a companion of a log beside it: a subfile, the directory of
    /// subfiles, or the journal of a log that was not closed. A mount does not show companions.
    pub fn is_hidden(&self, parent: &Path, name: &OsStr, wait: Wait) -> Lookup<bool> {
        match self.dir.open_below(parent, OPEN_DIRECTORY) {
            Ok(directory) => self.is_hidden_in(directory.as_fd(), parent, name, wait),
            Err(_) => Lookup::Known(false),
        }
    }

    /// [`Catalog::is_hidden`] for a caller who has the directory open as `directory`. The answer is about the names in
    /// this directory, even where another one has taken its path.
    pub fn is_hidden_in(
        &self,
        directory: BorrowedFd<'_>,
        parent: &Path,
        name: &OsStr,
        wait: Wait,
    ) -> Lookup<bool> {
        let Some(main) = part_names::master_of(name) else {
            return self.is_hidden_member(directory, parent, name, wait);
        };
        let Ok(stat) = stat_in(directory, main) else {
            return Lookup::Known(false);
        };
        let may_hide = || may_hide(directory, main, name).unwrap_or(false);
        let (relative, identity) = (parent.join(main), Identity::from(&stat));
        let entry = match self.just_compared(At::from(&*relative), identity) {
            Some(entry) => Ok(Lookup::Known(entry)),
            // No log may hide a file of another user, so no scan is needed.
            None if !may_hide() => return Lookup::Known(false),
            None => self.entry_with(At::from(&*relative), Some(identity), wait),
        };
        let Ok(entry) = entry else {
            return Lookup::Known(false);
        };
        entry.map(|entry| match entry.presented {
            // Ranks may spill at any time, which changes no file of the view.
            Presented::View { .. } => {
                entry.hidden.contains(name) || (is_spill_dir(main, name) && may_hide())
            }
            // The companion may be the reason why the log is broken.
            Presented::Broken(_) => may_hide(),
            Presented::Plain | Presented::Settled(_) | Presented::Absent => false,
        })
    }

    /// Whether `name` is a member of a file that is listed under the name of its first member. The name alone tells
    /// little, so only a view hides a member.
    fn is_hidden_member(
        &self,
        directory: BorrowedFd<'_>,
        parent: &Path,
        name: &OsStr,
        wait: Wait,
    ) -> Lookup<bool> {
        for main in part_names::may_be_member_of(name) {
            let Ok(stat) = stat_in(directory, &main) else {
                continue;
            };
            let (relative, identity) = (parent.join(&main), Identity::from(&stat));
            let at = At::from(&*relative);
            let entry = match self.just_compared(at, identity) {
                Some(entry) => Ok(Lookup::Known(entry)),
                None => self.entry_with(at, Some(identity), wait),
            };
            match entry {
                Ok(Lookup::Known(entry)) if entry.hides(name) => return Lookup::Known(true),
                Ok(Lookup::NeedsScan) => return Lookup::NeedsScan,
                Ok(Lookup::Known(_)) | Err(_) => {}
            }
        }
        Lookup::Known(false)
    }

    /// The entry of a file in this state, if its files were compared a moment ago. A listing asks for each file of a
    /// log, and would compare all of them each time.
    fn just_compared(&self, at: At<'_>, identity: Identity) -> Option<Arc<CatalogEntry>> {
        let entry = self.entries.get(at)?;
        (entry.was_just_compared() && entry.is_of(identity)).then_some(entry)
    }

    /// Keeps only those hidden names of `entry` whose files belong to the owner of the log at `relative`.
    fn keep_own_names(&self, relative: &Path, entry: &mut CatalogEntry) {
        let (Some(parent), Some(log)) = (relative.parent(), relative.file_name()) else {
            return;
        };
        match self.dir.open_below(parent, OPEN_DIRECTORY) {
            Ok(directory) => entry
                .hidden
                .retain(|name| may_hide(&directory, log, name).unwrap_or(false)),
            Err(_) => entry.hidden.clear(),
        }
    }
}
