//! The source directory as the mount shows it: the present state of each path.
//!
//! Every access goes through the descriptor of the source directory, never through an absolute path: the mount point may be
//! the source directory itself.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, Stat, StatVfs};
use rustix::io::Errno;

use h5logfs_catalog::lookup::sets::Set;
use h5logfs_catalog::{At, Catalog, Lookup, Presented, Wait};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::task::Task;
use h5logfs_log::log_dir::{self, Naming};
use h5logfs_log::log_files::may_hide;
use h5logfs_log::settled::state::SettledState;
use h5logfs_log::source_dir::stat_in;
use h5logfs_log::source_file::Identity;
use h5logfs_view::View;

use super::access::Caller;
use super::attributes::Attributes;
use super::directory::{Directory, Listed};
use super::permission_check::PermissionCheck;
use super::place::{Held, Place, Version};
use super::xattr::{self, LogAttribute, XattrClass};

/// Flags for a directory in which only names are looked up.
const SEARCH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Most looks at a changing file.
const ATTEMPTS: usize = 3;

/// The present state of a path.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub version: Version,
    pub attributes: Attributes,
    /// Whether a job may append to the file at any time: it is an unclosed log.
    pub grows: bool,
}

impl Entry {
    /// The entry of a file that is not a log.
    fn of_source(stat: &Stat) -> Self {
        Entry {
            version: Version::from(stat),
            attributes: Attributes::from(stat),
            grows: false,
        }
    }

    /// An entry for a listed name of unknown state.
    pub fn unknown(kind: FileType, inode: u64) -> Self {
        let version = Version::Source {
            device: 0,
            inode,
            kind: kind.as_raw_mode(),
        };
        Entry {
            version,
            attributes: Attributes::of_kind(kind),
            grows: false,
        }
    }
}

/// The presentation of logs that are directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DirectoryLogs {
    /// Files of their names, those of SCORPIO under the name that the program meant. Their other names lead to the same file,
    /// and are not listed.
    #[default]
    Files,
    /// Directories, with additional files: those of SCORPIO under the name that the program meant, others with
    /// [`log_dir::ENDING`].
    Directories,
}

/// The presentation of sets of files that make up a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tiles {
    /// The file, in place of the members.
    Joined,
    /// The file, and the members.
    #[default]
    Both,
    /// The members. No file is made up.
    Members,
}

/// The presentation of a name of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    No,
    As(FileType),
    /// A file, under the name that leads in this way to the log in the directory.
    By(Naming),
    /// A directory, and the file of [`Shown::By`].
    With(Naming),
}

/// A regular file, open for reading.
#[derive(Debug)]
pub enum Opened {
    View(Arc<View>),
    Plain(File),
    /// A settled log, in this state.
    Settled(File, Arc<SettledState>),
}

/// The paths of the source that the mount shows; by default all.
#[derive(Debug, Default)]
pub struct PathFilter {
    /// The only visible name, if a single log is mounted.
    pub only: Option<OsString>,
    /// The hidden path: the mount point inside the source, where the daemon would wait for itself.
    pub without: Option<PathBuf>,
}

impl PathFilter {
    fn shows(&self, path: &Path) -> bool {
        // A log that is a directory may be shown with its content.
        let is_other = |only: &OsString| !path.starts_with(only);
        let is_root = path.as_os_str().is_empty();
        is_root
            || !self.only.as_ref().is_some_and(is_other) && self.without.as_deref() != Some(path)
    }
}

/// Whether the error means that a path leads to no file, or to no directory where one should be.
fn leads_nowhere(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Whether a file or a log of SCORPIO has this name in a directory.
fn is_taken(directory: &Directory, name: &OsStr) -> bool {
    stat_in(&directory.fd, name).is_ok() || Naming::Meant.open_in(&directory.fd, name).is_some()
}

/// Whether a path may continue below a file of this kind.
fn leads_further(kind: FileType) -> bool {
    matches!(kind, FileType::Directory | FileType::Symlink)
}

#[derive(Debug)]
pub struct SourceTree {
    catalog: Arc<Catalog>,
    filter: PathFilter,
    directory_logs: DirectoryLogs,
    tiles: Tiles,
}

impl SourceTree {
    pub fn new(catalog: Catalog, filter: PathFilter) -> Self {
        SourceTree {
            catalog: Arc::new(catalog),
            filter,
            directory_logs: DirectoryLogs::default(),
            tiles: Tiles::default(),
        }
    }

    /// Sets the presentation of logs that are directories.
    pub fn with_directory_logs(self, directory_logs: DirectoryLogs) -> Self {
        SourceTree {
            directory_logs,
            ..self
        }
    }

    /// Sets the presentation of sets of files.
    pub fn with_tiles(self, tiles: Tiles) -> Self {
        SourceTree { tiles, ..self }
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The present state of a file. A log that cannot be shown has the size of its file, because `ls` must show the other
    /// files of its directory.
    pub fn entry(&self, place: &Place, wait: Wait) -> Result<Lookup<Entry>> {
        let held = self.hold(place);
        let held = held.inspect_err(|_| self.forget(place.at()))?;
        self.entry_in(&held, place.at(), wait)
    }

    /// Forgets the known state of a path, also for a log that is a directory.
    fn forget(&self, at: At<'_>) {
        self.catalog.forget(at);
        let path = &Naming::Directory.file(at.path);
        self.catalog.forget(At { path, ..at });
    }

    /// Opens the directory of `place`, if it still is the one that the kernel knows.
    ///
    /// All information of the mount about a file by its path goes through this directory. Even an error that reveals whether
    /// a name exists would say too much about another directory.
    fn hold(&self, place: &Place) -> Result<OwnedFd> {
        let path = &place.path;
        if place.directory.is_some() && path.file_name().is_none() {
            // The name is `..` or similar.
            return Err(self.failure(path, Errno::XDEV));
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        let opened = self.catalog.dir().open_below(directory, SEARCH);
        let opened =
            opened.map_err(|e| self.elsewhere(directory, self.io_failure(directory, e)))?;
        if let Some(version) = place.directory {
            self.check_version(version, directory, &opened)?;
        }
        Ok(opened)
    }

    fn check_version(&self, version: Version, path: &Path, file: impl AsFd) -> Result<()> {
        let stat = rustix::fs::fstat(file).map_err(|e| self.failure(path, e))?;
        if version.is_of(&stat) {
            Ok(())
        } else {
            Err(self.failure(path, Errno::STALE))
        }
    }

    /// Like [`hold`](Self::hold), for the file to which the name at `place` leads in this version.
    fn hold_file(&self, place: &Place, version: Version) -> Result<OwnedFd> {
        let directory = self.hold(place)?;
        let named = version.naming().directory(&place.path);
        self.check_shown(named.as_deref().unwrap_or(&place.path))?;
        let Some(named) = named else {
            return Ok(directory);
        };
        let opened = Held::new(&directory, At::from(&*named)).open(SEARCH);
        opened.map_err(|e| self.elsewhere(&named, self.failure(&named, e)))
    }

    /// Opens the file at `place`, of any kind, if it still has this version.
    fn open(&self, place: &Place, version: Version, flags: OFlags) -> Result<OwnedFd> {
        let directory = self.hold_file(place, version)?;
        let file = place.of_file(version.naming());
        let opened = self.held(&directory, file.at(), version)?.open(flags);
        let opened = opened.map_err(|e| self.failure(&file.path, e))?;
        self.check_version(version, &file.path, &opened)?;
        Ok(opened)
    }

    /// The file of this version at `at`, whose directory is open.
    fn held<'a>(&self, directory: &'a OwnedFd, at: At<'a>, version: Version) -> Result<Held<'a>> {
        let (held, naming) = (Held::new(directory, at), version.naming());
        if naming != Naming::Joined {
            return Ok(Held { naming, ..held });
        }
        let set = self.set_of(&held);
        let set = set.ok_or_else(|| self.failure(at.path, Errno::STALE))?;
        Ok(held.with_set(set))
    }

    /// The set of files that makes up the file of this name, where no file has it.
    fn set_of(&self, held: &Held<'_>) -> Option<Arc<Set>> {
        let is_shown = self.tiles != Tiles::Members && held.flush.is_none();
        (is_shown && self.filter.shows(held.path)).then(|| self.catalog.set_at(held.path))?
    }

    /// Opens the file for its attributes only.
    fn open_name(&self, place: &Place, version: Version) -> Result<OwnedFd> {
        self.open(place, version, OFlags::PATH)
    }

    /// Like [`entry`](Self::entry), for the file at `at`, whose directory is open as `directory`.
    pub fn entry_in(&self, directory: &OwnedFd, at: At<'_>, wait: Wait) -> Result<Lookup<Entry>> {
        let (held, path) = (Held::new(directory, at), at.path);
        let shown = self.check_shown(path);
        let stat = match shown.and_then(|()| self.stat(&held)) {
            Ok(stat) => stat,
            Err(error) => {
                if error.is_not_found()
                    && let Some(set) = self.set_of(&held)
                    && let Some(joined) = self.entry_of_log(&held.with_set(set), wait)?
                {
                    return Ok(joined);
                }
                self.forget(at);
                for naming in [Naming::Meant, Naming::Ending] {
                    if let Some(log) = self.entry_of_directory(&held, naming, wait)? {
                        return Ok(log);
                    }
                }
                return Err(error);
            }
        };
        let kind = Attributes::from(&stat).kind;
        if kind == FileType::Symlink
            && let Some(log) = self.entry_of_directory(&held, Naming::Meant, wait)?
        {
            return Ok(log);
        }
        if matches!(kind, FileType::Directory | FileType::RegularFile) {
            match self.is_hidden(&held, wait) {
                Lookup::Known(false) => {}
                Lookup::Known(true) => return Err(self.failure(path, Errno::NOENT)),
                Lookup::NeedsScan => return Ok(Lookup::NeedsScan),
            }
        }
        if kind == FileType::RegularFile {
            if self.is_hidden_member(&held) {
                return Err(self.failure(path, Errno::NOENT));
            }
            return self.entry_of_file(&held, wait);
        }
        if kind == FileType::Directory
            && self.directory_logs == DirectoryLogs::Files
            && let Some(log) = self.entry_of_directory(&held, Naming::Directory, wait)?
        {
            return Ok(log);
        }
        if at.flush.is_some() && !leads_further(kind) {
            return Err(self.failure(path, Errno::NOENT));
        }
        Ok(Lookup::Known(Entry::of_source(&stat)))
    }

    /// Like [`entry`](Self::entry), for the log in a directory to which the name of `held` leads in this way. `None` if there is
    /// none.
    fn entry_of_directory(
        &self,
        held: &Held<'_>,
        naming: Naming,
        wait: Wait,
    ) -> Result<Option<Lookup<Entry>>> {
        let Some(path) = naming.directory(held.path) else {
            return Ok(None);
        };
        if self.check_shown(&path).is_err() {
            return Ok(None);
        }
        let Some(directory) = naming.open_in(held.directory, held.name()) else {
            return Ok(None);
        };
        let file = Held {
            directory: directory.as_fd(),
            path: &naming.file(held.path),
            flush: held.flush,
            naming,
            set: None,
        };
        self.entry_of_log(&file, wait)
    }

    /// Like [`entry_of_file`](Self::entry_of_file); `None` for a file that is shown unchanged.
    fn entry_of_log(&self, held: &Held<'_>, wait: Wait) -> Result<Option<Lookup<Entry>>> {
        Ok(match self.entry_of_file(held, wait)? {
            Lookup::Known(entry) if entry.version.is_as_it_is() => None,
            entry => Some(entry),
        })
    }

    fn entry_of_file(&self, held: &Held<'_>, wait: Wait) -> Result<Lookup<Entry>> {
        let Lookup::Known((stat, presented)) = self.presented(held, wait)? else {
            return Ok(Lookup::NeedsScan);
        };
        let mut entry = Entry::of_source(&stat);
        let Identity { device, inode, .. } = Identity::from(&stat);
        match presented {
            Ok(Presented::Absent) => return Err(self.failure(held.path, Errno::NOENT)),
            // The states of an unreadable file are unknown.
            Err(error) if held.flush.is_some() => return Err(self.elsewhere(held.path, error)),
            Ok(Presented::Plain) => {}
            Ok(Presented::Settled(state)) => {
                entry.version = Version::Settled {
                    device,
                    inode,
                    state: state.number(),
                };
            }
            Ok(Presented::View {
                generation,
                len,
                grows,
                modified,
                allowed,
            }) => {
                entry.version = Version::View {
                    device,
                    inode,
                    generation,
                    naming: held.naming,
                };
                entry.attributes = entry.attributes.with_size(len);
                if let Some(allowed) = allowed {
                    entry.attributes = entry.attributes.with_permissions_in(allowed);
                }
                if let Some(time) = modified {
                    entry.attributes = match held.flush {
                        Some(_) => entry.attributes.changed_at(time),
                        None => entry.attributes.changed_since(time),
                    };
                }
                entry.grows = grows;
            }
            Ok(Presented::Broken(_)) | Err(_) => {
                let naming = held.naming;
                entry.version = Version::Broken {
                    device,
                    inode,
                    naming,
                };
            }
        }
        Ok(Lookup::Known(entry))
    }

    /// The presentation of the regular file, and its state at that time. The catalog finds files by path, so the answer may
    /// be about a file in a replaced directory. Then it is dropped.
    fn presented(&self, held: &Held<'_>, wait: Wait) -> Result<Lookup<(Stat, Result<Presented>)>> {
        let is_part = held.is_part();
        for _ in 0..ATTEMPTS {
            let stat = self.stat(held)?;
            if is_part {
                let shown = held.flush.map_or(Presented::Plain, |_| Presented::Absent);
                return Ok(Lookup::Known((stat, Ok(shown))));
            }
            let identity = Identity::from(&stat);
            match self.catalog.look_up(held.at(), Some(identity), wait) {
                Ok(Lookup::NeedsScan) => return Ok(Lookup::NeedsScan),
                Ok(Lookup::Known(presented)) => return Ok(Lookup::Known((stat, Ok(presented)))),
                Err(Error::Changed { .. }) => {}
                Err(error) => return Ok(Lookup::Known((stat, Err(error)))),
            }
        }
        Err(self.failure(held.path, Errno::STALE))
    }

    /// The view of this version, for an unclosed log that has only grown since its look-up.
    fn looked_up(&self, place: &Place, version: Version) -> Option<Arc<View>> {
        let Version::View {
            generation, naming, ..
        } = version
        else {
            return None;
        };
        let path = &naming.file(&place.path);
        let flush = place.flush;
        self.catalog.looked_up(At { path, flush }, generation)
    }

    /// Whether `place` still leads to the log of this version, and the log has only grown since its look-up.
    pub fn has_only_grown(&self, place: &Place, version: Version) -> bool {
        self.looked_up(place, version).is_some()
    }

    /// Opens the regular file at `place` if it still has this version, and if `caller` may read all files with its bytes.
    /// Without a caller, the user of this process is checked.
    ///
    /// A log that has only grown since its look-up still has its version. Otherwise, while a job flushes often, each state
    /// would be out of date before it could be opened.
    pub fn open_file(
        &self,
        place: &Place,
        version: Version,
        caller: Option<&Caller>,
        wait: Wait,
    ) -> Result<Lookup<Opened>> {
        let directory = self.hold_file(place, version)?;
        let file = &place.of_file(version.naming());
        let path = &file.path;
        let held = self.held(&directory, file.at(), version)?;
        let check = self.permission_check(caller);
        if let Some(view) = self.looked_up(place, version) {
            check.view(&view)?;
            return Ok(Lookup::Known(Opened::View(view)));
        }
        let Lookup::Known((stat, presented)) = self.presented(&held, wait)? else {
            return Ok(Lookup::NeedsScan);
        };
        if !version.is_of(&stat) {
            return Err(self.failure(path, Errno::STALE));
        }
        match (presented.map_err(|e| self.elsewhere(path, e))?, version) {
            (Presented::View { .. }, Version::View { generation, .. }) => {
                let Lookup::Known(view) = self.catalog.open_with(file.at(), wait)? else {
                    return Ok(Lookup::NeedsScan);
                };
                check.view(&view)?;
                if view.generation() != generation {
                    return Err(self.failure(path, Errno::STALE));
                }
                Ok(Lookup::Known(Opened::View(view)))
            }
            (Presented::Plain, Version::Source { .. }) => {
                let file = self.open_plain(place, version, &check)?;
                Ok(Lookup::Known(Opened::Plain(file)))
            }
            (Presented::Settled(settled), Version::Settled { state, .. })
                if settled.number() == state =>
            {
                let file = self.open_plain(place, version, &check)?;
                Ok(Lookup::Known(Opened::Settled(file, settled)))
            }
            (Presented::Broken(error), Version::Broken { .. }) => Err(Error::Remembered(error)),
            _ => Err(self.failure(path, Errno::STALE)),
        }
    }

    fn open_plain(
        &self,
        place: &Place,
        version: Version,
        check: &PermissionCheck<'_>,
    ) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open(place, version, flags)?;
        check.just_opened(&place.path, &file)?;
        Ok(file.into())
    }

    /// An error of the catalog about an existing file. If the catalog has found none, the path leads elsewhere by now.
    fn elsewhere(&self, path: &Path, error: Error) -> Error {
        match &error {
            Error::Io { cause, .. } if leads_nowhere(cause) => self.failure(path, Errno::STALE),
            _ => error,
        }
    }

    fn permission_check<'a>(&'a self, caller: Option<&'a Caller>) -> PermissionCheck<'a> {
        PermissionCheck::new(self.catalog.dir(), caller)
    }

    /// Opens a directory if `caller` may list it.
    pub fn open_for_listing(
        &self,
        place: &Place,
        version: Version,
        caller: Option<&Caller>,
    ) -> Result<OwnedFd> {
        let fd = self.open(place, version, OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.permission_check(caller)
            .just_opened(&place.path, &fd)?;
        let path = &place.path;
        // Where logs are files, a directory that should be one is an error and not an empty place.
        if self.directory_logs == DirectoryLogs::Files
            && !path.as_os_str().is_empty()
            && let Some(reason) = log_dir::is_incomplete(&fd)
        {
            let reason = format!("{reason}; the option bp=directory shows its files");
            return Err(Error::of(self.catalog.dir().full_path(path), reason));
        }
        Ok(fd)
    }

    /// The value of an extended attribute. `version`: version of the file, for the attributes that the mount adds to logs.
    pub fn xattr(
        &self,
        place: &Place,
        version: Version,
        name: &OsStr,
        caller: Option<&Caller>,
        wait: Wait,
        task: &Task,
    ) -> Result<Lookup<Vec<u8>>> {
        let path = &place.path;
        match XattrClass::of(name) {
            XattrClass::Log => {
                let (Some(attribute), Version::View { .. }) = (LogAttribute::named(name), version)
                else {
                    return Err(self.failure(path, Errno::NODATA));
                };
                match self.open_file(place, version, caller, wait)? {
                    Lookup::Known(Opened::View(view)) => {
                        attribute.value(&view, task).map(Lookup::Known)
                    }
                    Lookup::Known(Opened::Plain(_) | Opened::Settled(..)) => {
                        Err(self.failure(path, Errno::NODATA))
                    }
                    Lookup::NeedsScan => Ok(Lookup::NeedsScan),
                }
            }
            XattrClass::User => {
                let fd = self.open_name(place, version)?;
                let file = place.of_file(version.naming());
                self.permission_check(caller).just_opened(&file.path, &fd)?;
                self.source_xattr(path, &fd, name)
            }
            // On a mount for one user, access control lists have no effect, and programs need not ask for each.
            XattrClass::AccessList if caller.is_some() => {
                self.source_xattr(path, &self.open_name(place, version)?, name)
            }
            XattrClass::AccessList | XattrClass::Hidden => {
                Err(self.failure(path, Errno::OPNOTSUPP))
            }
        }
    }

    fn source_xattr(&self, path: &Path, fd: &OwnedFd, name: &OsStr) -> Result<Lookup<Vec<u8>>> {
        let value = xattr::get(fd, name).and_then(|value| value.ok_or(Errno::NODATA));
        value.map(Lookup::Known).map_err(|e| self.failure(path, e))
    }

    /// The names of the extended attributes, each followed by a zero byte.
    pub fn xattrs(
        &self,
        place: &Place,
        version: Version,
        caller: Option<&Caller>,
    ) -> Result<Vec<u8>> {
        let is_shown = |class| match class {
            XattrClass::User => true,
            XattrClass::AccessList => caller.is_some(),
            XattrClass::Log | XattrClass::Hidden => false,
        };
        let listed = xattr::list(&self.open_name(place, version)?, is_shown);
        let mut names = listed.map_err(|e| self.failure(&place.path, e))?;
        if let Version::View { .. } = version {
            for name in LogAttribute::names() {
                names.extend_from_slice(name.as_bytes());
                names.push(0);
            }
        }
        Ok(names)
    }

    /// The presentation of a name of an open directory.
    pub fn shows(&self, directory: &Directory, listed: &Listed, wait: Wait) -> Lookup<Shown> {
        let itself = self.shows_itself(directory, listed, wait);
        if !self.has_joined_name(directory, listed) {
            return itself;
        }
        itself.map(|itself| match itself {
            Shown::No => Shown::By(Naming::Joined),
            _ => Shown::With(Naming::Joined),
        })
    }

    /// Whether a set of files makes up a file, and this is its first member, beside which it is listed.
    fn has_joined_name(&self, directory: &Directory, listed: &Listed) -> bool {
        if self.tiles == Tiles::Members || directory.flush.is_some() {
            return false;
        }
        let names = directory.joined(|| {
            let sets = self.catalog.sets_in(&directory.path).into_iter();
            sets.map(|set| (set.first.clone(), set.candidate.joined.clone()))
                .collect()
        });
        let joined = names.get(&listed.name);
        joined.is_some_and(|joined| self.filter.shows(&directory.path.join(joined)))
    }

    /// Whether the file is a member of a set that is shown in its place.
    fn is_hidden_member(&self, held: &Held<'_>) -> bool {
        if self.tiles != Tiles::Joined || held.flush.is_some() {
            return false;
        }
        let parent = held.path.parent().unwrap_or(Path::new(""));
        let set = self.catalog.set_with(parent, held.name());
        set.is_some_and(|set| may_hide(held.directory, &set.first, held.name()).unwrap_or(false))
    }

    /// Like [`shows`](Self::shows), for the name itself.
    fn shows_itself(&self, directory: &Directory, listed: &Listed, wait: Wait) -> Lookup<Shown> {
        let path = directory.path.join(&listed.name);
        if !self.filter.shows(&path) || !self.may_list(directory, listed) {
            return Lookup::Known(Shown::No);
        }
        let held = Held::new(&directory.fd, directory.at(&path));
        let kind = self.kind(&held, listed);
        match kind {
            FileType::RegularFile if self.is_hidden_member(&held) => Lookup::Known(Shown::No),
            FileType::RegularFile if directory.flush.is_some() => {
                let found = self.entry_in(&directory.fd, held.at(), wait);
                match found {
                    Ok(found) => found.map(|_| Shown::As(kind)),
                    Err(_) => Lookup::Known(Shown::No),
                }
            }
            FileType::Directory | FileType::RegularFile => {
                let hidden = self.is_hidden(&held, wait);
                hidden.map(|is_hidden| match kind {
                    _ if is_hidden => Shown::No,
                    FileType::Directory => self.shows_directory(directory, &listed.name),
                    kind => Shown::As(kind),
                })
            }
            // The directory is listed under the name of the link.
            FileType::Symlink if log_dir::is_link_in(&directory.fd, &listed.name) => {
                Lookup::Known(Shown::No)
            }
            _ => Lookup::Known(Shown::As(kind)),
        }
    }

    /// Like [`shows`](Self::shows), for the name of a directory. Costs one more system call for each directory that is no log.
    fn shows_directory(&self, directory: &Directory, name: &OsStr) -> Shown {
        let itself = Shown::As(FileType::Directory);
        let Some(log) = log_dir::open_in(&directory.fd, name) else {
            return itself;
        };
        let naming = log_dir::listed_in(&directory.fd, name, &log);
        match self.directory_logs {
            DirectoryLogs::Files => Shown::By(naming),
            DirectoryLogs::Directories if directory.flush.is_some() => itself,
            DirectoryLogs::Directories if naming == Naming::Meant => Shown::With(naming),
            DirectoryLogs::Directories if is_taken(directory, &log_dir::with_ending(name)) => {
                itself
            }
            DirectoryLogs::Directories => Shown::With(Naming::Ending),
        }
    }

    /// Whether a name may be listed, as far as that is known without a scan. Below a flush only unclosed logs are listed: any
    /// other file would have to be scanned to know whether it has that flush.
    pub fn may_list(&self, directory: &Directory, listed: &Listed) -> bool {
        if directory.flush.is_none() {
            return true;
        }
        let path = directory.path.join(&listed.name);
        let held = Held::new(&directory.fd, directory.at(&path));
        match self.kind(&held, listed) {
            FileType::RegularFile => held.has_journal(),
            FileType::Directory if self.directory_logs == DirectoryLogs::Files => {
                !log_dir::is_in(&directory.fd, &listed.name)
            }
            kind => leads_further(kind),
        }
    }

    /// The kind of a file, which some file systems do not store in its directory.
    fn kind(&self, held: &Held<'_>, listed: &Listed) -> FileType {
        match listed.kind {
            FileType::Unknown => {
                let stat = held.stat();
                stat.map_or(listed.kind, |stat| Attributes::from(&stat).kind)
            }
            kind => kind,
        }
    }

    /// The target of a symbolic link, unchanged.
    pub fn link_target(&self, place: &Place, version: Version) -> Result<Vec<u8>> {
        let link = self.open_name(place, version)?;
        rustix::fs::readlinkat(&link, "", Vec::new())
            .map(|target| target.into_bytes())
            .map_err(|e| self.failure(&place.path, e))
    }

    /// The space on the file system of the source.
    pub fn space(&self) -> Result<StatVfs> {
        let space = self.catalog.dir().space();
        space.map_err(|e| self.io_failure(Path::new(""), e))
    }

    /// The error `errno` for `path`.
    pub fn failure(&self, path: &Path, errno: Errno) -> Error {
        self.io_failure(path, errno.into())
    }

    fn io_failure(&self, path: &Path, cause: io::Error) -> Error {
        Error::io(self.catalog.dir().full_path(path), cause)
    }

    fn stat(&self, held: &Held<'_>) -> Result<Stat> {
        held.stat().map_err(|e| self.io_failure(held.path, e))
    }

    fn check_shown(&self, path: &Path) -> Result<()> {
        if self.filter.shows(path) {
            Ok(())
        } else {
            Err(self.failure(path, Errno::NOENT))
        }
    }

    fn is_hidden(&self, held: &Held<'_>, wait: Wait) -> Lookup<bool> {
        match (held.path.parent(), held.path.file_name()) {
            (Some(parent), Some(name)) => {
                self.catalog
                    .is_hidden_in(held.directory, parent, name, wait)
            }
            _ => Lookup::Known(false),
        }
    }
}
