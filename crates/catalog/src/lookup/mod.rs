//! The look-up of a file: everything that can be known of it without a scan. It needs no libhdf5 and no other process.
//!
//! * [`look`] says whether a file may be a log. The log crate [recognizes](h5logfs_log::recognition) the bytes of a file, and
//!   knows the [names](h5logfs_log::part_names) of the files of a log.
//! * [`companions`](mod@companions) finds the files beside a log that belong to it.
//! * `listings` remembers the names in directories.
//! * [`sets`] finds the sets of files that make up a file.
//! * [`unscanned`] makes the snapshots of files that need no scan.
//! * [`overwrite`] keeps files of logs from being written over.

pub mod companions;
mod listings;
pub mod overwrite;
pub mod sets;
pub mod unscanned;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use listings::Listings;

use companions::{Companions, ForeignFiles, companions, owned};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::find_signature;
use h5logfs_log::journal::{self, ShownFlush};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::part_names;
use h5logfs_log::recognition::{Appearance, IN_SUBFILES, Kind, has_all_data, may_be_log_at};
use h5logfs_log::scan::{ScanRequest, Scanner, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;
use sets::Set;

/// Facts about a file that need no scan.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Whether a scan may find a log.
    pub may_be_log: bool,
    /// The companion files that come and go. `None` for a kind of file that has none.
    pub companions: Option<Companions>,
    /// Files of other users with names of companion files.
    pub foreign: ForeignFiles,
    /// The kind of a file that is one HDF5 file in several parts. It needs no scan: see [`unscanned`].
    pub unscanned: Option<Kind>,
    /// Place of the HDF5 signature, if it was looked for and found.
    pub signature: Option<u64>,
}

impl Look {
    /// A look at a file with these companion files. The caller decides whether it may be a log.
    fn with_companions((companions, foreign): (Companions, ForeignFiles)) -> Self {
        Look {
            companions: Some(companions),
            foreign,
            ..Look::default()
        }
    }

    /// A note for users about the foreign files. `None` where there are none.
    pub fn foreign_diagnostic(&self) -> Option<Diagnostic> {
        // A warning would let any user make a check of another user's file fail, so this is only a note.
        self.foreign.text().map(Diagnostic::note)
    }

    /// Adds the foreign files to the outcome of a scan.
    pub fn complete(&self, outcome: Result<Reserved<Snapshot>>) -> Result<Reserved<Snapshot>> {
        let Some(foreign) = self.foreign_diagnostic() else {
            return outcome;
        };
        match outcome {
            Ok(snapshot) => {
                let (mut snapshot, reservation) = snapshot.into_parts();
                snapshot.diagnostics.push(foreign);
                Ok(Reserved::new(snapshot, reservation))
            }
            Err(Error::NotALog { path, reason }) => Err(Error::NotALog {
                path,
                reason: format!("{reason}; {foreign}"),
            }),
            error => error,
        }
    }
}

/// The file at a path, open.
#[derive(Debug)]
pub struct Main {
    /// The log file, or the first member of a set.
    pub source: SourceFile,
    /// Its path below the directory.
    pub place: PathBuf,
    /// The set that makes up the file at the path.
    pub set: Option<Arc<Set>>,
}

impl Main {
    /// Opens the file at `relative`. Where there is none, a set of files may make it up.
    pub fn open(dir: &SourceDir, relative: &Path, listings: &Listings) -> Result<Self> {
        match SourceFile::open(dir, relative) {
            Ok(source) => Ok(Main {
                source,
                place: relative.to_owned(),
                set: None,
            }),
            Err(error) if error.is_not_found() => match listings.set_at(dir, relative) {
                Some(set) => {
                    let place = relative.with_file_name(&set.first);
                    Ok(Main {
                        source: SourceFile::open(dir, &place)?,
                        place,
                        set: Some(set),
                    })
                }
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Takes a first look at the file, which was opened at `relative`.
    pub fn look(
        &self,
        dir: &SourceDir,
        relative: &Path,
        settings: &Settings,
        listings: &Listings,
    ) -> Result<Look> {
        match &self.set {
            Some(set) => Ok(look_at_set(set, &LogFiles::of(dir, relative, &self.source))),
            None => look(dir, relative, &self.source, settings, listings),
        }
    }
}

/// The look at a set. Members of other users count as foreign files.
fn look_at_set(set: &Arc<Set>, files: &LogFiles<'_>) -> Look {
    let parent = files.log().parent().unwrap_or(Path::new(""));
    let found = owned(files, set.places(parent), Some(Arc::clone(set)));
    Look {
        may_be_log: true,
        ..Look::with_companions(found)
    }
}

/// Takes a first look at the file `source` at `relative`. The look is cheap, because most files of a tree are no logs.
pub fn look(
    dir: &SourceDir,
    relative: &Path,
    source: &SourceFile,
    settings: &Settings,
    listings: &Listings,
) -> Result<Look> {
    let files = LogFiles::of(dir, relative, source);
    match Appearance::of(source)? {
        Appearance::Empty => {
            // An empty file with logs is an error. Where its directory cannot be listed, it counts as an empty file.
            let found = companions(&files, listings);
            found.map_or_else(|_| Ok(Look::default()), |found| Ok(empty(relative, found)))
        }
        Appearance::Complete => {
            let found = companions(&files, listings)?;
            let has_logs = has_logs(&found.0);
            Ok(Look {
                may_be_log: has_logs || settings.without_logs,
                ..Look::with_companions(found)
            })
        }
        Appearance::InParts(kind) => Ok(Look {
            may_be_log: true,
            unscanned: Some(kind),
            ..Look::default()
        }),
        Appearance::Stub => may_be_stub(&files, source, listings, true),
        Appearance::MaybeStub => may_be_stub(&files, source, listings, false),
        Appearance::Other => other(&files, source, settings),
    }
}

/// Whether some companion files are logs of the file, and not subfiles.
fn has_logs(companions: &Companions) -> bool {
    let mut own = companions.own.iter();
    own.any(|place| !part_names::is_subfile(place))
}

/// A look at an empty file. With subfiles it is a stub that was never flushed, unless it is a subfile itself.
fn empty(relative: &Path, found: (Companions, ForeignFiles)) -> Look {
    let has_logs = has_logs(&found.0);
    let has_subfiles =
        !found.0.own.is_empty() && !part_names::is_subfile(&SourcePath::below(relative));
    let is_stub = !has_logs && has_subfiles;
    Look {
        may_be_log: has_logs || is_stub,
        unscanned: is_stub.then_some(IN_SUBFILES),
        ..Look::with_companions(found)
    }
}

/// A look at a file whose data may be in subfiles. `says_so`: the file itself says that they are.
fn may_be_stub(
    files: &LogFiles<'_>,
    source: &SourceFile,
    listings: &Listings,
    says_so: bool,
) -> Result<Look> {
    let found = companions(files, listings)?;
    let has_subfiles = found.0.own.iter().any(part_names::is_subfile);
    // A file without subfiles is complete, or was cut off.
    let may_be_log = has_subfiles || (says_so && !has_all_data(source)?);
    Ok(Look {
        may_be_log,
        unscanned: may_be_log.then_some(IN_SUBFILES),
        ..Look::with_companions(found)
    })
}

/// A look at a file that needs no companion files.
fn other(files: &LogFiles<'_>, source: &SourceFile, settings: &Settings) -> Result<Look> {
    let signature = find_signature(source)?;
    // A settled log has no flush that can be shown, and a scan reports that.
    let may_be_log = may_be_log_at(files, source, signature)?
        || (settings.shown_flush != ShownFlush::Newest && source.is_settled()?);
    let mut foreign = ForeignFiles::default();
    if may_be_log {
        let [subfiles, _] = part_names::own_dirs(files.log());
        for path in [journal::path_of(files.log()), subfiles] {
            foreign.add_if_foreign(files, &SourcePath::below(path));
        }
    }
    Ok(Look {
        may_be_log,
        foreign,
        signature,
        ..Look::default()
    })
}

/// Looks for the companion files of a file, and scans it.
pub fn scan_file(
    task: &Task,
    scanner: &dyn Scanner,
    dir: &SourceDir,
    relative: &Path,
    settings: &Settings,
) -> Result<Reserved<Snapshot>> {
    let listings = Listings::default();
    let main = Main::open(dir, relative, &listings)?;
    let look = main.look(dir, relative, settings, &listings)?;
    let request = ScanRequest {
        dir,
        relative,
        companions: look.companions.as_ref().map(|found| &*found.own),
        settings,
        known: None,
    };
    let scanned = match look.unscanned {
        Some(kind) => unscanned::snapshot(task, request, &main.source, kind),
        None => scanner.scan(task, request),
    };
    look.complete(scanned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_needs_no_listing() {
        let source = tempfile::tempdir().unwrap();
        let below = source.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("empty"), "").unwrap();
        std::fs::write(below.join("a.nc"), b"CDF\x01").unwrap();
        let dir = SourceDir::open(source.path()).unwrap();
        let open = |name: &str| SourceFile::open(&dir, &Path::new("below").join(name)).unwrap();
        let files = [open("empty"), open("a.nc")];
        // A directory that is gone cannot be listed, like one without permission.
        std::fs::remove_dir_all(&below).unwrap();
        let [empty, complete] = files.map(|file| {
            let name = file.path().file_name().unwrap().to_owned();
            let relative = Path::new("below").join(name);
            look(
                &dir,
                &relative,
                &file,
                &Settings::default(),
                &Listings::default(),
            )
        });
        assert!(!empty.unwrap().may_be_log);
        // The logs of `a.nc` might be in the directory.
        assert!(complete.is_err());
    }
}
