//! Companion files: files that make a log of another file, which does not change when they come and go.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::listings::named_after;
use super::{Listings, Settings};
use crate::adios;
use crate::front;
use crate::journal::{self, Moment, kept::path_of_kept};
use crate::log_dir;
use crate::log_files::{LogFiles, foreign};
use crate::logvol::names::{SPILL_DIR, SUBFILE_DIR, spill_dir, subfile_dir};
use crate::netcdf;
use crate::ownership::Foreign;
use crate::snapshot::Snapshot;
use crate::source_dir::{SourceDir, SourcePath};
use crate::source_file::SourceFile;
use crate::striped::driver_info::Driver;
use crate::striped::names::{SubfileName, first_members};
use crate::striped::{self, Kind, lone, subfiles};
use crate::{find_signature, plain};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;

/// What is known of a file without a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// A scan may find a log.
    pub may_be_log: bool,
    /// The companion files that come and go; `None` for a kind of file that has none.
    pub companions: Option<Companions>,
    /// Files that have names of companion files, and belong to other users.
    pub foreign: ForeignFiles,
    /// It is one HDF5 file in several, of this kind. It needs no scan: see [`unscanned`](super::unscanned).
    pub unscanned: Option<Kind>,
    /// Where its HDF5 signature was found, if that was looked for.
    pub signature: Option<u64>,
}

/// The companion files of one file that may come and go without a change of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Companions {
    /// All files with the names of such files, sorted.
    pub named: Vec<SourcePath>,
    /// Those that belong to the log (see [`ownership`](crate::ownership)).
    pub own: Vec<SourcePath>,
}

impl Companions {
    /// Whether some of the files do not belong to the log.
    pub fn has_foreign(&self) -> bool {
        self.own.len() < self.named.len()
    }

    /// The companion files when the names are `named` instead. Only files whose names are new are examined.
    pub fn renamed(&self, files: &LogFiles<'_>, named: Vec<SourcePath>) -> Self {
        let is_own = |place: &&SourcePath| {
            let is_new = self.named.binary_search(place).is_err();
            self.own.binary_search(place).is_ok() || (is_new && !is_foreign(files, place))
        };
        let own = named.iter().filter(is_own).cloned().collect();
        Companions { named, own }
    }
}

fn is_foreign(files: &LogFiles<'_>, place: &SourcePath) -> bool {
    files.check(place).is_err_and(|e| foreign(&e).is_some())
}

/// The files that have names of companion files of one log, but do not belong to it. There may be any number of them, so
/// only the first is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignFiles {
    first: Option<(PathBuf, Foreign)>,
    others: usize,
}

impl ForeignFiles {
    /// Adds what is at `place` if it does not belong to the log; returns whether it did.
    fn add_if_foreign(&mut self, files: &LogFiles<'_>, place: &SourcePath) -> bool {
        let error = files.check(place).err();
        let Some(reason) = error.and_then(|e| foreign(&e)) else {
            return false;
        };
        match self.first {
            Some(_) => self.others += 1,
            None => self.first = Some((files.full_path(place), reason)),
        }
        true
    }

    /// What a user should know of them; `None` where there are none.
    pub fn text(&self) -> Option<String> {
        let (path, reason) = self.first.as_ref()?;
        let others = match self.others {
            0 => String::new(),
            n => format!(" (and {n} more files)"),
        };
        Some(format!("{}: not used{others}: {reason}", path.display()))
    }
}

impl Look {
    /// What a user should know of the foreign files; `None` where there are none.
    pub fn foreign_diagnostic(&self) -> Option<Diagnostic> {
        // No more than a note: otherwise any user could make a check of another user's file fail.
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

/// Takes a first look at the file `source` at `relative`. It is cheap, for most files of a tree are not logs.
pub fn look(
    dir: &SourceDir,
    relative: &Path,
    source: &SourceFile,
    settings: &Settings,
    listings: &Listings,
) -> Result<Look> {
    let files = LogFiles::of(dir, relative, source);
    if source.is_empty() || netcdf::has_magic(source)? {
        let (companions, foreign) = match companions(&files, listings) {
            // An empty file with logs is an error. Where its directory cannot be listed, it is an empty file.
            Err(_) if source.is_empty() => {
                return Ok(Look {
                    may_be_log: false,
                    companions: None,
                    foreign: ForeignFiles::default(),
                    unscanned: None,
                    signature: None,
                });
            }
            companions => companions?,
        };
        let has_logs = companions.own.iter().any(|place| !is_subfile(place));
        // A stub that was never flushed.
        let has_subfiles = !companions.own.is_empty() && !is_subfile(&SourcePath::below(relative));
        let is_stub = !has_logs && source.is_empty() && has_subfiles;
        let without_logs = settings.without_logs && !source.is_empty();
        return Ok(Look {
            may_be_log: has_logs || is_stub || without_logs,
            companions: Some(companions),
            foreign,
            unscanned: is_stub.then_some(Kind::Subfiling),
            signature: None,
        });
    }
    // Before anything else: a stub may look like a file that has all its data.
    if let Some(look) = look_at_driver(&files, source, listings)? {
        return Ok(look);
    }
    // None of the flushes that a settled log had can be shown, which a scan says.
    let signature = find_signature(source)?;
    let may_be_log = may_be_log_at(&files, source, signature)?
        || (settings.moment != Moment::Newest && source.is_settled()?);
    let mut foreign = ForeignFiles::default();
    if may_be_log {
        for path in [journal::path_of(relative), subfile_dir(relative)] {
            foreign.add_if_foreign(&files, &SourcePath::below(path));
        }
    }
    Ok(Look {
        may_be_log,
        companions: None,
        foreign,
        unscanned: None,
        signature,
    })
}

/// The look at a file whose driver tells that it is one in several; `None` of any other.
fn look_at_driver(
    files: &LogFiles<'_>,
    source: &SourceFile,
    listings: &Listings,
) -> Result<Option<Look>> {
    let of_kind = |kind| {
        Ok(Some(Look {
            may_be_log: true,
            companions: None,
            foreign: ForeignFiles::default(),
            unscanned: Some(kind),
            signature: None,
        }))
    };
    let is_stub = match striped::driver(source)? {
        Driver::None => return Ok(None),
        Driver::Family(_) => return of_kind(Kind::Family),
        Driver::Multi => return of_kind(Kind::Multi),
        Driver::Subfiling(_) => true,
        Driver::Elsewhere => false,
    };
    let (companions, foreign) = companions(files, listings)?;
    let has_subfiles = companions.own.iter().any(is_subfile);
    // Without subfiles it is what was cut off, or all that there is.
    let may_be_log = has_subfiles || (is_stub && !lone::is_whole(source)?);
    Ok(Some(Look {
        may_be_log,
        companions: Some(companions),
        foreign,
        unscanned: may_be_log.then_some(Kind::Subfiling),
        signature: None,
    }))
}

fn is_subfile(place: &SourcePath) -> bool {
    let name = place.path.file_name();
    name.is_some_and(|name| SubfileName::parse(name).is_some())
}

/// Whether a scan may find a log in a file that is no netCDF classic file.
pub fn may_be_log(files: &LogFiles<'_>, source: &SourceFile) -> Result<bool> {
    may_be_log_at(files, source, find_signature(source)?)
}

/// The same for a file of which it is known where its signature is.
fn may_be_log_at(
    files: &LogFiles<'_>,
    source: &SourceFile,
    signature: Option<u64>,
) -> Result<bool> {
    let Some(signature) = signature else {
        if adios::is_index(files.log(), source)? {
            return Ok(true);
        }
        return Ok(front::is_unclosed(source)? || journal::lacks_front(files, source)?);
    };
    // Of a file that our writer made, the journal decides. One that was settled has none.
    let may_be_log =
        !plain::is_certain(source, signature) || journal::may_belong_to(files, source)?;
    if !may_be_log {
        log::debug!("{}: passed through: plain HDF5", source.path().display());
    }
    Ok(may_be_log)
}

/// The companion files of a log that come and go, and the files that only have the names of such. Their contents are not
/// examined.
pub fn companions(files: &LogFiles<'_>, listings: &Listings) -> Result<(Companions, ForeignFiles)> {
    let named = named(files.dir(), files.log(), listings)?;
    let mut foreign = ForeignFiles::default();
    let is_own = |place: &&SourcePath| !foreign.add_if_foreign(files, place);
    let own = named.iter().filter(is_own).cloned().collect();
    Ok((Companions { named, own }, foreign))
}

/// The files whose names make them logs of the one at `relative`, in its directory or in the further ones, sorted.
pub fn named(dir: &SourceDir, relative: &Path, listings: &Listings) -> Result<Vec<SourcePath>> {
    let name = subfiles::stub_of(relative.file_name().unwrap_or_default());
    let beside = relative.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (number, place) in dir.all().enumerate() {
        let directory = if number == 0 { beside } else { Path::new("") };
        let names = listings.logs_of(place, number as u16, directory, name)?;
        found.extend(names.into_iter().map(|name| SourcePath {
            dir: number as u16,
            path: directory.join(name),
        }));
    }
    Ok(found)
}

/// All files that are part of the log at `relative` by their names, as far as they are there: the log file, its journal,
/// its subfiles, what its ranks have spilled, what was kept of that, its burst-buffer logs, its stripes, what is in its directory where that is the log. Names alone decide, so
/// some of them may belong to no log: this is for programs that must leave alone what may be a part.
///
/// Where a directory cannot be listed, no part in it could be read either.
pub fn all_files(dir: &SourceDir, relative: &Path) -> Vec<SourcePath> {
    let mut files = vec![SourcePath::below(relative)];
    files.extend(parts(dir, relative));
    files
}

/// The same without the log file.
pub(super) fn parts(dir: &SourceDir, relative: &Path) -> Vec<SourcePath> {
    let journal = SourcePath::below(journal::path_of(relative));
    let has_journal = dir.stat(&journal.path).is_ok();
    let mut parts: Vec<SourcePath> = has_journal.then_some(journal).into_iter().collect();
    for below in [subfile_dir(relative), spill_dir(relative)] {
        let mut names = dir.list(&below).unwrap_or_default();
        names.sort();
        parts.extend(names.iter().map(|n| SourcePath::below(below.join(n))));
    }
    let kept = (1..).map(|number| path_of_kept(relative, number));
    let kept = kept.take_while(|path| dir.stat(path).is_ok());
    parts.extend(kept.map(SourcePath::below));
    parts.extend(named(dir, relative, &Listings::default()).unwrap_or_default());
    if let Some(directory) = log_dir::directory_of(relative) {
        let names = dir.list(directory).unwrap_or_default();
        let others = names.into_iter().filter(|name| name != log_dir::FILE);
        parts.extend(others.map(|name| SourcePath::below(directory.join(name))));
    }
    parts
}

/// The path of the log file to which the file at `path` belongs, by its name or that of its directory.
pub fn log_of(path: &Path) -> Option<PathBuf> {
    let beside = path.file_name().and_then(master_of);
    if let Some(master) = beside {
        return Some(path.with_file_name(master));
    }
    let dir = path.parent()?;
    let name = dir.file_name()?.as_bytes();
    let master = without_suffix(name, &[SUBFILE_DIR, SPILL_DIR])?;
    let has_name = !master.is_empty();
    has_name.then(|| dir.with_file_name(OsStr::from_bytes(master)))
}

/// The names of files that are listed under their own names and may have `name` as a member: the first members of families.
/// Only the files themselves tell whether they do.
pub fn may_be_member_of(name: &OsStr) -> Vec<OsString> {
    first_members(name)
}

/// The name of the log file to which `name` belongs, as a burst-buffer log, a subfile or the configuration of subfiles, a
/// directory of subfiles or of what ranks have spilled, a journal, or what was kept of the latter. Only the name decides.
pub fn master_of(name: &OsStr) -> Option<&OsStr> {
    let bytes = name.as_bytes();
    let master = without_suffix(bytes, &[SUBFILE_DIR, SPILL_DIR, journal::SUFFIX]);
    let master = master.or_else(|| {
        let digits = bytes.iter().rev().take_while(|b| b.is_ascii_digit());
        let (front, digits) = bytes.split_at(bytes.len() - digits.count());
        let is_numbered = !digits.is_empty();
        let front = if is_numbered {
            front.strip_suffix(b"-")?
        } else {
            front
        };
        without_suffix(front, &[journal::kept::SUFFIX])
    });
    let master = master.map(OsStr::from_bytes);
    let master = master.or_else(|| named_after(name));
    master.filter(|master| !master.is_empty())
}

fn without_suffix<'n>(name: &'n [u8], suffixes: &[&str]) -> Option<&'n [u8]> {
    let mut cut = suffixes
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix.as_bytes()));
    cut.next()
}

/// Whether the file at `path` is the log file at `master`, its journal, one of its subfiles, or what a rank has spilled.
pub fn is_own_file(master: &Path, path: &Path) -> bool {
    path == master
        || path == journal::path_of(master)
        || path.parent().is_some_and(|dir| is_own_dir(master, dir))
}

/// Whether a scan of the log file at `master` may open the file at `path`: an own file, or one of the directory whose index the
/// log file is.
pub fn may_be_read(master: &Path, path: &Path) -> bool {
    is_own_file(master, path) || adios::names::is_beside(master, path)
}

/// Whether `path` is the directory of the subfiles of the log file at `master`, or of what its ranks have spilled.
pub fn is_own_dir(master: &Path, path: &Path) -> bool {
    path == subfile_dir(master) || path == spill_dir(master)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The clock of a file system is finer than this.
    const TICK: Duration = Duration::from_millis(100);

    #[test]
    fn parts_of_logs_are_known_by_their_names() {
        let master = |name| master_of(OsStr::new(name)).and_then(OsStr::to_str);
        assert_eq!(master("a.h5.subfiles"), Some("a.h5"));
        assert_eq!(master("a_1.nc_0_12.meta"), Some("a_1.nc"));
        assert_eq!(master("a.nc_0_12.data"), Some("a.nc"));
        assert_eq!(master("a.h5.h5logfs-spill"), Some("a.h5"));
        assert_eq!(master("a.h5.h5logfs-unflushed"), Some("a.h5"));
        assert_eq!(master("a.h5.h5logfs-unflushed-12"), Some("a.h5"));
        for other in [
            ".h5logfs-unflushed-2",
            "a.h5.h5logfs-unflushed-",
            "a.h5-2",
            "2",
        ] {
            assert_eq!(master(other), None, "{other}");
        }
        for other in ["a.h5", ".subfiles", "_0_1.meta", "a.nc_0.meta", "a_0_1.txt"] {
            assert_eq!(master(other), None, "{other}");
        }
    }

    #[test]
    fn the_log_of_a_part_is_known_by_its_path() {
        let log = |path: &str| log_of(Path::new(path));
        let own = Some(PathBuf::from("/d/a.h5"));
        assert_eq!(log("/d/a.h5.h5logfs-journal"), own);
        assert_eq!(log("/d/a.h5.subfiles/a.h5.0"), own);
        assert_eq!(log("/d/a.h5.subfiles/anything"), own);
        assert_eq!(log("/d/a.h5.h5logfs-spill/0.3"), own);
        assert_eq!(log("/d/a.h5_0_7.meta"), own);
        for other in [
            "/d/a.h5",
            "/d/.subfiles/a.h5.0",
            "/",
            "a.h5",
            "/a.h5.subfilesx/b",
        ] {
            assert_eq!(log(other), None, "{other}");
        }
    }

    #[test]
    fn all_files_of_a_log_are_found() {
        let source = tempfile::tempdir().unwrap();
        for part in ["subfiles", "h5logfs-spill"] {
            std::fs::create_dir_all(source.path().join(format!("below/a.h5.{part}"))).unwrap();
        }
        let own = [
            "below/a.h5",
            "below/a.h5.h5logfs-journal",
            "below/a.h5.h5logfs-spill/0.1",
            "below/a.h5.h5logfs-unflushed",
            "below/a.h5.h5logfs-unflushed-2",
            "below/a.h5.subfiles/renamed.0",
            "below/a.h5.subfiles/renamed.1",
            "below/a.h5_0_0.data",
            "below/a.h5_0_0.meta",
        ];
        for name in own.iter().chain(&["below/b.h5", "below/b.h5_0_0.meta"]) {
            std::fs::write(source.path().join(name), "").unwrap();
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let found = || {
            let mut found = all_files(&dir, Path::new("below/a.h5"));
            found.sort();
            found
        };
        assert_eq!(found(), own.map(SourcePath::below));
        let below = |file: &SourcePath| log_of(&file.path);
        let log = Some(PathBuf::from("below/a.h5"));
        assert!(found()[1..].iter().all(|file| below(file) == log));
        for name in &own[1..] {
            std::fs::remove_file(source.path().join(name)).unwrap();
        }
        assert_eq!(found(), [SourcePath::below("below/a.h5")]);
    }

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
        let [empty, classic] = files.map(|file| {
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
        // Its logs might be there.
        assert!(classic.is_err());
    }

    #[test]
    fn only_new_names_are_examined_again() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of several users");
            return;
        }
        let source = tempfile::tempdir().unwrap();
        let own = |name: &str, owner: u32| {
            let path = source.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        };
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(source.path(), mode).unwrap();
        let names = [
            "a.nc_0_0.data",
            "a.nc_0_0.meta",
            "a.nc_1_0.data",
            "a.nc_1_0.meta",
        ];
        let [own_data, own_meta, foreign_data, foreign_meta] = names.map(SourcePath::below);
        for (name, owner) in names.iter().zip([61_001, 61_001, 61_002, 61_002]) {
            own(name, owner);
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let files = LogFiles::of_owner(&dir, Path::new("a.nc"), 61_001);
        let named = [&own_data, &foreign_data].map(Clone::clone).to_vec();
        let known = Companions::default().renamed(&files, named);
        assert_eq!(known.own, std::slice::from_ref(&own_data));
        assert!(known.has_foreign());
        // Neither a file that was known nor one that is gone is looked at.
        own(names[2], 61_001);
        std::fs::remove_file(source.path().join(names[0])).unwrap();
        let named = vec![
            own_data.clone(),
            own_meta.clone(),
            foreign_data,
            foreign_meta,
        ];
        let now = known.renamed(&files, named.clone());
        assert_eq!(
            (now.own, now.named),
            (vec![own_data, own_meta.clone()], named)
        );
        let gone = known.renamed(&files, vec![own_meta.clone()]);
        assert!(gone.own == [own_meta] && !gone.has_foreign());
    }

    #[test]
    fn companions_come_and_go() {
        let (source, further) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |directory: &tempfile::TempDir, name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        write(&source, "below/a.nc");
        write(&source, "a.nc_0_0.meta");
        write(&further, "a.nc_0_1.data");
        let dir = SourceDir::open(source.path()).unwrap();
        let dir = dir.with_further(&[further.path().to_owned()]).unwrap();
        let listings = Listings::default();
        let names = || {
            let places = named(&dir, Path::new("below/a.nc"), &listings).unwrap();
            let name = |p: SourcePath| (p.dir, p.path.to_str().unwrap().to_owned());
            places.into_iter().map(name).collect::<Vec<_>>()
        };
        let elsewhere = (1, "a.nc_0_1.data".to_owned());
        assert_eq!(names(), std::slice::from_ref(&elsewhere));
        write(&source, "below/a.nc_2_0.meta");
        write(&source, "below/other.nc_2_0.meta");
        std::thread::sleep(2 * TICK);
        let own = (0, "below/a.nc_2_0.meta".to_owned());
        assert_eq!(names(), [own, elsewhere.clone()]);
        let many = ["a.nc_10_0.meta", "a.nc_9_0.data", "a.nc_2_0.data"];
        many.iter()
            .for_each(|name| write(&source, &format!("below/{name}")));
        std::thread::sleep(2 * TICK);
        assert_eq!(names().len(), 5);
        assert!(
            named(&dir, Path::new("below/a.nc"), &listings)
                .unwrap()
                .is_sorted()
        );
        many.iter().for_each(|name| {
            std::fs::remove_file(source.path().join("below").join(name)).unwrap();
        });
        std::fs::remove_file(source.path().join("below/a.nc_2_0.meta")).unwrap();
        std::thread::sleep(2 * TICK);
        assert_eq!(names(), [elsewhere]);
    }
}
