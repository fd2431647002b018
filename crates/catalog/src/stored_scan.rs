//! The snapshot of a log in the store, where the next daemon finds it.
//!
//! The state of the main file is the key of a snapshot. The snapshot lists its subfiles and their states. A log
//! that changed within two seconds of its scan is not stored: the next write might leave the same times.
//!
//! Nothing is stored for a plain file, which is detected faster than an item is written.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use h5logfs_common::error::Result;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::journal;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::scan::Settings;
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;
use h5logfs_view::index::store::{FileState, FileTime, Flight, Store, StoreEntry, StoreKey};

use crate::BUILD;

/// The item with the inode change times of the sources, followed by [`Snapshot::to_bytes`].
const ITEM: &str = "scan";

/// Everything that decides the outcome of a scan, apart from the main file.
pub(super) struct ScanInputs<'a> {
    pub settings: &'a Settings,
    /// The companion files in their present states.
    pub companions: &'a [Source],
}

/// The place of one log's snapshot in the store.
pub(super) struct StoredScan<'a> {
    dir: &'a SourceDir,
    relative: &'a Path,
    main: FileState,
    log: StoreEntry,
    /// A time before `main` was read.
    since: SystemTime,
}

impl<'a> StoredScan<'a> {
    /// `source` is the file at `relative`.
    pub fn new(
        store: &Arc<Store>,
        inputs: ScanInputs<'_>,
        dir: &'a SourceDir,
        relative: &'a Path,
        source: &SourceFile,
    ) -> Result<Self> {
        let since = SystemTime::now();
        let main = FileState::from(&source.metadata()?);
        let name = relative.file_name().unwrap_or_default();
        // The main file does not change when a companion file comes, goes, or changes.
        let companions = inputs.companions.iter();
        let companions: Vec<_> = companions
            .map(|c| (c.place.dir, c.place.path.file_name(), c.identity))
            .collect();
        // The path of a file decides its companions only where there are further log directories.
        let has_log_dirs = !inputs.settings.log_dirs.is_empty();
        let at = has_log_dirs.then(|| (dir.path(), relative));
        let key = StoreKey {
            main,
            name: name.as_encoded_bytes().to_owned(),
            settings: format!(
                "{BUILD}, {}, companions={companions:?}, at={at:?}",
                inputs.settings
            ),
        };
        Ok(StoredScan {
            dir,
            relative,
            main,
            log: store.entry(&key),
            since,
        })
    }

    /// The place for indexes of the log whose sources changed at these times. A change of a subfile leads to another
    /// place.
    fn log_of(&self, changed: &[FileTime]) -> StoreEntry {
        let numbers = changed
            .iter()
            .flat_map(|(s, ns)| [s.to_le_bytes(), ns.to_le_bytes()]);
        self.log.with(&numbers.flatten().collect::<Vec<u8>>())
    }

    /// The snapshot of an earlier scan and the place for its indexes, if all files of the log are still in the same
    /// states. The caller has to check the snapshot.
    pub fn find(
        &self,
        task: &Task,
        source: &SourceFile,
    ) -> Option<(Reserved<Snapshot>, StoreEntry)> {
        let bytes = self.log.get(task, ITEM)?;
        // A log with a journal may have changed since, which the log file does not show.
        let files = LogFiles::of(self.dir, self.relative, source);
        if journal::may_belong_to(&files, source).unwrap_or(true) {
            return None;
        }
        match postcard::take_from_bytes::<Vec<FileTime>>(&bytes) {
            Ok((changed, snapshot)) => self.if_unchanged(task, &changed, snapshot),
            Err(_) => {
                log::debug!(
                    "{}: the stored snapshot cannot be decoded",
                    source.path().display()
                );
                None
            }
        }
    }

    /// The snapshot, if its sources are still in the states with these times.
    fn if_unchanged(
        &self,
        task: &Task,
        changed: &[FileTime],
        snapshot: &[u8],
    ) -> Option<(Reserved<Snapshot>, StoreEntry)> {
        let snapshot = Snapshot::from_bytes(task, snapshot).ok()?;
        let (mut snapshot, reservation) = snapshot.into_parts();
        self.relocate(&mut snapshot)?;
        let now = self.states(&snapshot)?;
        let same = now.iter().map(|s| s.changed).eq(changed.iter().copied());
        same.then(|| (Reserved::new(snapshot, reservation), self.log_of(changed)))
    }

    /// The stored form of the snapshot, and the place for its indexes. `None` for an unclosed log, for one that has
    /// just changed or lacks a file, and where there is no memory.
    pub fn pack(
        &self,
        task: &Task,
        snapshot: &Snapshot,
    ) -> Option<(Reserved<Vec<u8>>, StoreEntry)> {
        let states = self.states(snapshot)?;
        let settled = states.iter().all(|s| s.was_settled(self.since));
        let may_change = snapshot.journal.is_some() || snapshot.is_late || !settled;
        if may_change || states.first() != Some(&self.main) {
            return None;
        }
        // Twice the bytes, because the list may grow while it is filled.
        let reservation = task.reserve(2 * snapshot.bytes() as u64).ok()?;
        let changed: Vec<FileTime> = states.iter().map(|s| s.changed).collect();
        let packed = postcard::to_stdvec(&changed).ok()?;
        let packed = snapshot.append_to(packed).ok()?;
        let log = self.log_of(&changed);
        Some((Reserved::new(packed, reservation), log))
    }

    /// Lets one process at a time make the items that the store lacks. `None` where the outcome could not be stored, so that
    /// others need not wait for it.
    pub fn flight(&self, source: &SourceFile, longest: Duration) -> Option<Flight> {
        let files = LogFiles::of(self.dir, self.relative, source);
        let may_be_kept = self.main.was_settled(self.since)
            && !journal::may_belong_to(&files, source).unwrap_or(true);
        may_be_kept.then(|| self.log.flight(longest)).flatten()
    }

    pub fn store(&self, packed: &[u8]) {
        self.log.put(ITEM, packed);
    }

    fn state(&self, place: &SourcePath) -> Option<FileState> {
        let stat = self.dir.of(place).ok()?.stat(&place.path).ok()?;
        Some(FileState::from(&stat))
    }

    /// The states of all source files, if they are still those of the snapshot.
    fn states(&self, snapshot: &Snapshot) -> Option<Vec<FileState>> {
        let sources = snapshot.sources.iter();
        sources
            .map(|source| {
                let state = self.state(&source.place)?;
                (state.identity == source.identity).then_some(state)
            })
            .collect()
    }

    /// Replaces the directory of the log by its present one: the snapshot may come from a mount of another
    /// directory. `None` where the files have no directory in common, which no scan produces.
    fn relocate(&self, snapshot: &mut Snapshot) -> Option<()> {
        let old = snapshot.sources.first()?.place.path.parent()?.to_owned();
        let new = self.relative.parent()?;
        for place in snapshot.sources.iter_mut().map(|source| &mut source.place) {
            if place.dir == 0 {
                place.path = new.join(place.path.strip_prefix(&old).ok()?);
            }
        }
        if let Some(joined) = &mut snapshot.joined {
            *joined = new.join(joined.strip_prefix(&old).ok()?);
        }
        snapshot.is_at(self.relative).then_some(())
    }
}
