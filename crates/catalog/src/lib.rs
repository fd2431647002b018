//! From a path to an opened view: the one place that keeps snapshots, and knows when a file has
//! changed.

mod kept;
mod known;
mod turns;
pub mod workers;

use std::cell::Cell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

use quick_cache::sync::Cache;

use h5logfs_core::error::{Error, Result};
use h5logfs_core::index::store::Store;
use h5logfs_core::log::arrangement::Arrangement;
use h5logfs_core::log::source_dir::{SourceDir, SourcePath};
use h5logfs_core::log::source_file::{Identity, SourceFile};
use h5logfs_core::scan::companions::{self, Look};
use h5logfs_core::scan::{Listings, ScanRequest, Scanner, Settings};
use h5logfs_core::snapshot::Source;
use h5logfs_core::view::View;
use h5logfs_core::view::cache::{Budget, Generation, MemoryLimits};
use kept::{Kept, ScannedWith};
use known::Known;
use turns::Turns;

/// Files that the catalog remembers something about: a few hundred bytes each.
const REMEMBERED: usize = 1 << 16;

thread_local! {
    /// This thread has others to serve, and does not wait for scans.
    static IN_A_HURRY: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, in which nothing of any catalog waits for a scan: it fails with [`Error::Unscanned`]
/// instead. For threads that others wait for; who has seen that error asks again in a thread of its own.
pub fn without_waiting<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(bool);
    impl Drop for Restored {
        fn drop(&mut self) {
            IN_A_HURRY.set(self.0);
        }
    }
    let _restored = Restored(IN_A_HURRY.replace(true));
    work()
}

/// What a regular file is to a reader, as far as `stat` goes.
#[derive(Debug, Clone)]
pub enum Presented {
    /// Not a log: its own bytes.
    Plain,
    /// A log file, presented as the canonical file.
    View {
        /// Tells one state of the log from the next.
        generation: Generation,
        /// Length of the canonical file.
        len: u64,
    },
    /// A log file that cannot be presented: opening it is an error, which is none of its neighbours'.
    Broken(Arc<Error>),
}

/// A file of which all bytes are its own, in this state.
fn whole(place: SourcePath, identity: Identity) -> Source {
    Source {
        place,
        identity,
        grows: false,
        arrangement: Arrangement::Whole,
    }
}

/// A file by itself, as it is now.
fn own(relative: &Path, file: &SourceFile) -> Source {
    whole(SourcePath::below(relative), file.identity())
}

fn report(view: &View, how: &str, start: Instant) {
    log::info!(
        "{}: {how} in {:.1?}: {} datasets, {} bytes as HDF5",
        view.path().display(),
        start.elapsed(),
        view.snapshot().datasets.len(),
        view.len()
    );
}

/// The log files below one directory. Shared by all threads.
#[derive(Debug)]
pub struct Catalog {
    dir: SourceDir,
    settings: Settings,
    /// Names beside the files.
    listings: Listings,
    budget: Arc<Budget>,
    known: Cache<PathBuf, Arc<Known>>,
    scanner: Box<dyn Scanner>,
    /// Of several threads that want a file scanned one does it.
    scanning: Turns,
    /// Where the outcome of scans is kept on disk.
    store: Option<Arc<Store>>,
}

impl Catalog {
    /// `memory` bounds all that is kept of all files together.
    pub fn new(dir: SourceDir, memory: MemoryLimits, scanner: impl Scanner + 'static) -> Self {
        Catalog {
            dir,
            settings: Settings::default(),
            listings: Listings::default(),
            budget: Arc::new(Budget::new(memory)),
            known: Cache::new(REMEMBERED),
            scanner: Box::new(scanner),
            scanning: Turns::default(),
            store: None,
        }
    }

    /// How files are to be scanned. The directory has to have been opened with the further ones that they name.
    pub fn with_settings(self, settings: Settings) -> Self {
        Catalog { settings, ..self }
    }

    /// Keeps in `store` what is learned, and looks there first.
    pub fn with_store(mut self, store: Arc<Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// How many files were scanned so far.
    pub fn scans(&self) -> u64 {
        self.budget.stats().scans.get()
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Lets go of what is kept in memory, and of what is known of files that nobody has open: these
    /// are looked at again.
    pub fn drop_caches(&self) {
        self.budget.clear();
        // Those who have a view open keep it, and others may share it.
        self.known.retain(|_, known| known.view.strong_count() > 0);
    }

    pub fn dir(&self) -> &SourceDir {
        &self.dir
    }

    /// What the regular file at `relative` is now. Scans it if it is new or has changed.
    pub fn get(&self, relative: &Path) -> Result<Presented> {
        self.known(relative, None).map(|k| k.presented.clone())
    }

    /// The same for who has just seen that the file's identity is `now`: the system is not asked again.
    pub fn get_seen(&self, relative: &Path, now: Identity) -> Result<Presented> {
        self.known(relative, Some(now)).map(|k| k.presented.clone())
    }

    /// Opens the view of the log file at `relative`, as it is now.
    pub fn open(&self, relative: &Path) -> Result<Arc<View>> {
        let known = self.known(relative, None)?;
        log::debug!("{}: opened", self.dir.full_path(relative).display());
        match &known.presented {
            Presented::View { generation, .. } => {
                // The budget is asked first: views that are opened often shall be kept.
                let kept = self.budget.view(*generation);
                match kept.or_else(|| known.view.upgrade()) {
                    Some(view) => Ok(view),
                    None => self.scan(relative),
                }
            }
            Presented::Broken(error) => Err(Error::Remembered(Arc::clone(error))),
            Presented::Plain => Err(Error::NotALog {
                path: self.dir.full_path(relative),
                reason: "plain file".into(),
            }),
        }
    }

    fn known(&self, relative: &Path, seen: Option<Identity>) -> Result<Arc<Known>> {
        if let Some(known) = self.current(relative, seen) {
            return Ok(known);
        }
        // Most files of a tree are no logs: they need neither the lock nor libhdf5.
        let source = SourceFile::open(&self.dir, relative)?;
        let look = self.look(relative, &source)?;
        if !look.may_be_log {
            let known = Known::new(vec![own(relative, &source)], Presented::Plain, Weak::new());
            let known = known.with_companions(look.companions, Vec::new());
            return Ok(self.remember(relative, known));
        }
        self.may_wait(relative)?;
        let _turn = self.scanning.take(relative);
        // The turn may have taken long: what was seen before is of no use any more.
        match self.current(relative, None) {
            Some(known) => Ok(known),
            None => Ok(self.scan_in_turn(relative, &source).0),
        }
    }

    fn may_wait(&self, relative: &Path) -> Result<()> {
        match IN_A_HURRY.get() {
            true => Err(Error::Unscanned {
                path: self.dir.full_path(relative),
            }),
            false => Ok(()),
        }
    }

    fn look(&self, relative: &Path, source: &SourceFile) -> Result<Look> {
        companions::look(&self.dir, relative, source, &self.settings, &self.listings)
    }

    /// What is known of the file, if it and its subfiles are still in the state that the scan saw.
    /// `seen`: the identity of the file itself, if it is known already.
    fn current(&self, relative: &Path, seen: Option<Identity>) -> Option<Arc<Known>> {
        let known = self.known.get(relative)?;
        if !known.is_believed() {
            return None;
        }
        let is_still = |file: &Source| {
            let is_own = file.place.dir == 0 && file.place.path == relative;
            let now = match seen.filter(|_| is_own) {
                Some(now) => Some(now),
                None => self.identity(&file.place),
            };
            now.is_some_and(|now| file.is_still(now))
        };
        let same = known.files.iter().all(is_still) && self.has_still(relative, &known.companions);
        match same {
            true => known.was_compared(),
            false => self.forget(relative),
        }
        same.then_some(known)
    }

    /// Whether nothing came or went that could make a log of the file.
    fn has_still(&self, relative: &Path, companions: &Option<Vec<SourcePath>>) -> bool {
        companions.as_ref().is_none_or(|then| {
            let now = companions::companions(&self.dir, relative, &self.listings);
            now.is_ok_and(|now| now == *then)
        })
    }

    fn identity(&self, place: &SourcePath) -> Option<Identity> {
        let stat = self.dir.of(place).ok()?.stat(&place.path).ok()?;
        Some(Identity::from(&stat))
    }

    fn scan(&self, relative: &Path) -> Result<Arc<View>> {
        self.may_wait(relative)?;
        let _turn = self.scanning.take(relative);
        // Somebody else may have opened it meanwhile.
        if let Some(view) = self.current(relative, None).and_then(|k| k.view.upgrade()) {
            return Ok(view);
        }
        let source = SourceFile::open(&self.dir, relative)?;
        let (known, view) = self.scan_in_turn(relative, &source);
        match (view, &known.presented) {
            (Some(view), _) => Ok(view),
            (None, Presented::Broken(error)) => Err(Error::Remembered(Arc::clone(error))),
            (None, _) => Err(Error::Changed {
                path: source.path().to_owned(),
            }),
        }
    }

    /// Scans the file, unless what a scan would say is kept, and remembers the outcome. `source`: the
    /// same file, for its identity should the scan fail.
    fn scan_in_turn(
        &self,
        relative: &Path,
        source: &SourceFile,
    ) -> (Arc<Known>, Option<Arc<View>>) {
        let (opened, companions, seen) = match self.look(relative, source) {
            Ok(Look { companions, .. }) => {
                let seen = self.seen(companions.as_deref());
                let beside = (companions.as_deref(), seen.as_slice());
                let opened = self.open_view(relative, source, beside);
                (opened, companions, seen)
            }
            Err(e) => (Err(e), None, Vec::new()),
        };
        let own = || vec![own(relative, source)];
        let known = |files, presented, view| {
            let known = Known::new(files, presented, view);
            known.with_companions(companions, seen)
        };
        match opened {
            Ok(view) => {
                let snapshot = view.snapshot();
                for diagnostic in &snapshot.diagnostics {
                    log::warn!("{}: {diagnostic}", source.path().display());
                }
                let files = snapshot.sources.iter().chain(&snapshot.journal);
                let mut files: Vec<Source> = files.map(Source::file).collect();
                // One file may be several sources.
                files.dedup();
                let presented = Presented::View {
                    generation: view.generation(),
                    len: view.len(),
                };
                self.budget.keep_view(&view);
                let known = known(files, presented, Arc::downgrade(&view));
                (self.remember(relative, known), Some(view))
            }
            Err(Error::NotALog { reason, .. }) => {
                log::debug!("{}: passed through: {reason}", source.path().display());
                let known = known(own(), Presented::Plain, Weak::new());
                (self.remember(relative, known), None)
            }
            Err(error) => {
                self.budget.stats().failed_scans.count();
                match error {
                    // Whether anybody opens the file or not: somebody may have made it for that.
                    Error::ScanDied { .. } => {
                        log::error!("{error}");
                        self.budget.stats().worker_failures.count();
                    }
                    // Whoever opens the file is told, and the log with it.
                    _ => log::debug!("{error}"),
                }
                let presented = Presented::Broken(Arc::new(error.shortened()));
                let known = known(own(), presented, Weak::new());
                (self.remember(relative, known), None)
            }
        }
    }

    /// Companions as they are now.
    fn seen(&self, companions: Option<&[SourcePath]>) -> Vec<Source> {
        let places = companions.unwrap_or(&[]).iter();
        let seen = places.filter_map(|place| Some(whole(place.clone(), self.identity(place)?)));
        seen.collect()
    }

    /// `companions`: which there are, and in which state. [`Error::NotALog`] says that there is no log.
    fn open_view(
        &self,
        relative: &Path,
        source: &SourceFile,
        (companions, seen): (Option<&[SourcePath]>, &[Source]),
    ) -> Result<Arc<View>> {
        let store = self.store.as_ref();
        let kept = store
            .map(|store| {
                let scanned_with = ScannedWith {
                    library: self.scanner.library(),
                    settings: &self.settings,
                    companions: seen,
                };
                Kept::of(store, scanned_with, &self.dir, relative, source)
            })
            .transpose()?;
        let known = kept.as_ref().and_then(|kept| self.open_kept(kept, source));
        match known {
            Some(view) => Ok(view),
            None => self.scan_file(relative, companions, source, kept.as_ref()),
        }
    }

    /// `None` where nothing is kept that can be used.
    fn open_kept(&self, kept: &Kept<'_>, source: &SourceFile) -> Option<Arc<View>> {
        let start = Instant::now();
        let (snapshot, log) = kept.find(source)?;
        let budget = Arc::clone(&self.budget);
        match View::open(&self.dir, snapshot, budget, Some(log)) {
            Ok(view) => {
                self.budget.stats().kept_scans.count();
                report(&view, "known from an earlier scan, opened", start);
                Some(view)
            }
            Err(e) => {
                log::debug!("what was kept is not used: {e}");
                None
            }
        }
    }

    fn scan_file(
        &self,
        relative: &Path,
        companions: Option<&[SourcePath]>,
        source: &SourceFile,
        kept: Option<&Kept<'_>>,
    ) -> Result<Arc<View>> {
        let (start, stats) = (Instant::now(), self.budget.stats());
        stats.scans.count();
        let request = ScanRequest {
            dir: &self.dir,
            relative,
            companions,
            settings: &self.settings,
        };
        let snapshot = stats.scan_time.time(|| self.scanner.scan(request))?;
        let (packed, log) = kept.and_then(|kept| kept.pack(&snapshot)).unzip();
        let view = View::open(&self.dir, snapshot, Arc::clone(&self.budget), log)?;
        report(&view, "scanned", start);
        match kept.zip(packed) {
            Some((kept, packed)) => kept.keep(&packed),
            None => log::debug!("{}: not kept", source.path().display()),
        }
        Ok(view)
    }

    fn remember(&self, relative: &Path, known: Known) -> Arc<Known> {
        let known = Arc::new(known);
        self.known.insert(relative.to_owned(), Arc::clone(&known));
        known
    }

    /// Lets go of what is known of a path that is no more, or no more what it was: a view that nobody
    /// has open must not keep the space of a deleted file.
    pub fn forget(&self, relative: &Path) {
        if let Some((_, known)) = self.known.remove(relative)
            && let Presented::View { generation, .. } = known.presented
        {
            self.budget.drop_view(generation);
        }
    }

    /// Whether what is called `name` in `parent` is a part of a log file beside it, and is not shown by
    /// itself: a log of it, the directory of its subfiles, or the journal of one that was not closed.
    /// Fails with [`Error::Unscanned`] only.
    pub fn is_hidden(&self, parent: &Path, name: &OsStr) -> Result<bool> {
        let Some(master) = companions::master_of(name) else {
            return Ok(false);
        };
        let relative = parent.join(master);
        let known = self.known.get(&relative).filter(|k| k.was_just_compared());
        let known = match known.map_or_else(|| self.known(&relative, None), Ok) {
            Ok(known) => known,
            Err(e @ Error::Unscanned { .. }) => return Err(e),
            Err(_) => return Ok(false),
        };
        Ok(match known.presented {
            Presented::View { .. } => known.parts.contains(name),
            // The part may be just what is wrong with it.
            Presented::Broken(_) => true,
            Presented::Plain => false,
        })
    }
}
