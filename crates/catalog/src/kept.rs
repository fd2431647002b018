//! The snapshot of a log, as it is kept from one daemon to the next.
//!
//! It is found by the state of the log file alone, and says itself which subfiles it was made of, in
//! which states. What changed within two seconds of its scan is not kept: the next write might leave
//! the same times.
//!
//! That a file is no log is not kept: libhdf5 says so sooner than an item is written.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use h5logfs_core::error::Result;
use h5logfs_core::index::store::{FileState, FileTime, Store, StoreEntry, StoreKey};
use h5logfs_core::journal;
use h5logfs_core::log::source_dir::{SourceDir, SourcePath};
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::scan::Settings;
use h5logfs_core::snapshot::{Snapshot, Source};

const ITEM: &str = "scan";

#[derive(Serialize, Deserialize)]
struct Item<'a> {
    /// When the inode of each source was changed.
    changed: Vec<FileTime>,
    snapshot: Cow<'a, Snapshot>,
}

/// What decides the outcome of a scan, beside the log file itself.
pub(super) struct ScannedWith<'a> {
    /// The library that makes the image.
    pub library: String,
    pub settings: &'a Settings,
    /// The companion files, as they are.
    pub companions: &'a [Source],
}

/// The place of one log file's snapshot.
pub(super) struct Kept<'a> {
    dir: &'a SourceDir,
    relative: &'a Path,
    main: FileState,
    log: StoreEntry,
    /// From before the file was looked at.
    since: SystemTime,
}

impl<'a> Kept<'a> {
    /// `source`: the same file, open.
    pub fn of(
        store: &Arc<Store>,
        with: ScannedWith<'_>,
        dir: &'a SourceDir,
        relative: &'a Path,
        source: &SourceFile,
    ) -> Result<Self> {
        let since = SystemTime::now();
        let main = FileState::from(&source.metadata()?);
        let name = relative.file_name().unwrap_or_default();
        // Those that come or go leave no trace in the file, nor do those that have no part in what is kept and may
        // have one now.
        let beside = with
            .companions
            .iter()
            .map(|c| (c.place.dir, c.place.path.file_name(), c.identity));
        let beside: Vec<_> = beside.collect();
        // Where a file lies decides whether a log elsewhere is its own.
        let is_alone = with.settings.log_dirs.is_empty();
        let at = (!is_alone).then(|| (dir.path(), relative));
        let key = StoreKey {
            main,
            name: name.as_encoded_bytes().to_owned(),
            settings: format!(
                "{}, {}, companions={beside:?}, at={at:?}",
                with.library, with.settings
            ),
        };
        Ok(Kept {
            dir,
            relative,
            main,
            log: store.entry(&key),
            since,
        })
    }

    /// For what else is to be kept of this state of the log: of its subfiles, too.
    fn log_of(&self, changed: &[FileTime]) -> StoreEntry {
        let numbers = changed
            .iter()
            .flat_map(|(s, ns)| [s.to_le_bytes(), ns.to_le_bytes()]);
        self.log.with(&numbers.flatten().collect::<Vec<u8>>())
    }

    /// The snapshot of an earlier scan, if all files of the log are as they were then, and where more
    /// may be kept of them. It was not checked yet.
    pub fn find(&self, source: &SourceFile) -> Option<(Snapshot, StoreEntry)> {
        let bytes = self.log.get(ITEM)?;
        // A journal counts for more than what the file itself says.
        if !matches!(journal::of_file(self.dir, self.relative, source), Ok(None)) {
            return None;
        }
        match postcard::take_from_bytes(&bytes) {
            Ok((item, [])) => self.still(item),
            _ => {
                log::debug!("{}: what was kept has no sense", source.path().display());
                None
            }
        }
    }

    /// The snapshot, if its sources are as they were.
    fn still(&self, item: Item<'_>) -> Option<(Snapshot, StoreEntry)> {
        let mut snapshot = item.snapshot.into_owned();
        self.place(&mut snapshot)?;
        let now = self.states(&snapshot)?;
        let same = now
            .iter()
            .map(|s| s.changed)
            .eq(item.changed.iter().copied());
        same.then(|| (snapshot, self.log_of(&item.changed)))
    }

    /// The snapshot as it is kept, and where more may be kept; `None` where it must not be: of a log that is not closed, or that
    /// was changed just before.
    pub fn pack(&self, snapshot: &Snapshot) -> Option<(Vec<u8>, StoreEntry)> {
        let states = self.states(snapshot)?;
        let settled = states.iter().all(|s| s.was_settled(self.since));
        if snapshot.journal.is_some() || !settled || states.first() != Some(&self.main) {
            return None;
        }
        let item = Item {
            changed: states.iter().map(|s| s.changed).collect(),
            snapshot: Cow::Borrowed(snapshot),
        };
        let packed = postcard::to_stdvec(&item).ok()?;
        Some((packed, self.log_of(&item.changed)))
    }

    pub fn keep(&self, packed: &[u8]) {
        self.log.put(ITEM, packed);
    }

    fn state(&self, place: &SourcePath) -> Option<FileState> {
        let stat = self.dir.of(place).ok()?.stat(&place.path).ok()?;
        Some(FileState::from(&stat))
    }

    /// Of all source files, if they are still those of the snapshot.
    fn states(&self, snapshot: &Snapshot) -> Option<Vec<FileState>> {
        let sources = snapshot.sources.iter();
        sources
            .map(|source| {
                let state = self.state(&source.place)?;
                (state.identity == source.identity).then_some(state)
            })
            .collect()
    }

    /// The log may have been seen from another directory: its files lie beside each other wherever that
    /// is. `None` where they do not, as in no snapshot that a scan has made.
    fn place(&self, snapshot: &mut Snapshot) -> Option<()> {
        let old = snapshot.sources.first()?.place.path.parent()?.to_owned();
        let new = self.relative.parent()?;
        for place in snapshot.sources.iter_mut().map(|source| &mut source.place) {
            if place.dir == 0 {
                place.path = new.join(place.path.strip_prefix(&old).ok()?);
            }
        }
        let main = snapshot.sources.first()?;
        (main.place == SourcePath::below(self.relative)).then_some(())
    }
}
