//! The source directory as the mount shows it: the present state of each path.
//!
//! Every access goes through the descriptor of the source directory, never through an absolute path: the
//! mount point may be the source directory itself.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, OFlags, Stat, StatVfs};
use rustix::io::Errno;

use h5logfs_catalog::{Catalog, Lookup, Presented, Wait};
use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::source_dir::stat_in;
use h5logfs_core::log::source_file::Identity;
use h5logfs_core::view::View;

use super::access::Caller;
use super::attributes::Attributes;
use super::permission_check::PermissionCheck;
use super::xattr::{self, LogAttribute, XattrClass};

/// Identifies one state of a file. Two states with the same version share an inode, and the pages that the kernel
/// caches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// Not a log. The kind belongs to the version because the source may use an inode number again.
    Source {
        device: u64,
        inode: u64,
        /// The bits of the mode for the file type.
        kind: u32,
    },
    /// A log in one of its generations.
    View { generation: u64 },
    /// A log that cannot be presented. It is listed, and to open it fails.
    Broken { device: u64, inode: u64 },
}

/// The version of a file that is not a log.
impl From<&Stat> for Version {
    fn from(stat: &Stat) -> Self {
        let Identity { device, inode, .. } = Identity::from(stat);
        Version::Source {
            device,
            inode,
            kind: Attributes::from(stat).kind.as_raw_mode(),
        }
    }
}

/// The present state of a path.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub version: Version,
    pub attributes: Attributes,
    /// A log that a job may append to at any time.
    pub grows: bool,
}

impl Entry {
    /// An entry for a name whose state is not known, from a listing alone.
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

/// One name in a directory.
#[derive(Debug)]
pub struct Listed {
    pub name: OsString,
    pub kind: FileType,
    pub inode: u64,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub enum Opened {
    View(Arc<View>),
    Plain(File),
}

/// The paths of the source that the mount shows; by default all.
#[derive(Debug, Default)]
pub struct PathFilter {
    /// Only this name: a single file is mounted.
    pub only: Option<OsString>,
    /// All but this path: the mount point inside the source. The daemon would wait for itself there.
    pub without: Option<PathBuf>,
}

impl PathFilter {
    fn shows(&self, path: &Path) -> bool {
        let is_other = |only: &OsString| path.as_os_str() != only;
        let is_root = path.as_os_str().is_empty();
        is_root
            || !self.only.as_ref().is_some_and(is_other) && self.without.as_deref() != Some(path)
    }
}

#[derive(Debug)]
pub struct SourceTree {
    catalog: Arc<Catalog>,
    filter: PathFilter,
}

impl SourceTree {
    pub fn new(catalog: Catalog, filter: PathFilter) -> Self {
        SourceTree {
            catalog: Arc::new(catalog),
            filter,
        }
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The present state of `path`. A log that cannot be presented has the size of its file: `ls` must show the other
    /// files of its directory.
    pub fn entry(&self, path: &Path, wait: Wait) -> Result<Lookup<Entry>> {
        self.entry_of(path, self.stat(path), wait)
    }

    /// The same for a path whose directory must have the version `parent`. Another directory may have taken the place
    /// of that one, and may be closed to a user who could search the old one.
    pub fn entry_below(&self, parent: Version, path: &Path, wait: Wait) -> Result<Lookup<Entry>> {
        let Some(directory) = path.parent().filter(|p| !p.as_os_str().is_empty()) else {
            return self.entry(path, wait);
        };
        let fd = self
            .check_shown(path)
            .and_then(|()| self.open_below(directory, OFlags::PATH | OFlags::DIRECTORY))
            .and_then(|fd| self.check_version(parent, directory, fd));
        match fd {
            Ok(fd) => self.entry_in(&fd, path, wait),
            Err(error) => self.entry_of(path, Err(error), wait),
        }
    }

    /// `fd`, if it has this version.
    fn check_version(&self, version: Version, path: &Path, fd: OwnedFd) -> Result<OwnedFd> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| self.failure(path, e))?;
        if Version::from(&stat) == version {
            Ok(fd)
        } else {
            Err(self.failure(path, Errno::STALE))
        }
    }

    /// The same for a path whose directory is open as `directory`.
    pub fn entry_in(&self, directory: &OwnedFd, path: &Path, wait: Wait) -> Result<Lookup<Entry>> {
        let name = path.file_name().unwrap_or_default();
        let stat = stat_in(directory, name);
        self.entry_of(path, stat.map_err(|e| self.io_failure(path, e)), wait)
    }

    fn entry_of(&self, path: &Path, stat: Result<Stat>, wait: Wait) -> Result<Lookup<Entry>> {
        let stat = stat.inspect_err(|_| self.catalog.forget(path))?;
        let attributes = Attributes::from(&stat);
        let mut entry = Entry {
            version: Version::from(&stat),
            attributes,
            grows: false,
        };
        if !matches!(attributes.kind, FileType::Directory | FileType::RegularFile) {
            return Ok(Lookup::Known(entry));
        }
        match self.is_hidden(path, wait) {
            Lookup::Known(false) => {}
            Lookup::Known(true) => return Err(self.failure(path, Errno::NOENT)),
            Lookup::NeedsScan => return Ok(Lookup::NeedsScan),
        }
        if attributes.kind == FileType::RegularFile {
            let identity = Identity::from(&stat);
            match self.catalog.look_up(path, Some(identity), wait) {
                Ok(Lookup::NeedsScan) => return Ok(Lookup::NeedsScan),
                Ok(Lookup::Known(Presented::Plain)) => {}
                Ok(Lookup::Known(Presented::View {
                    generation,
                    len,
                    grows,
                })) => {
                    entry.version = Version::View { generation };
                    entry.attributes = attributes.with_size(len);
                    entry.grows = grows;
                }
                Ok(Lookup::Known(Presented::Broken(_))) | Err(_) => {
                    let Identity { device, inode, .. } = identity;
                    entry.version = Version::Broken { device, inode };
                }
            }
        }
        Ok(Lookup::Known(entry))
    }

    /// The view of this version, for a log that is not closed and has only grown since its look-up.
    fn looked_up(&self, path: &Path, version: Version) -> Option<Arc<View>> {
        match version {
            Version::View { generation } => self.catalog.looked_up(path, generation),
            _ => None,
        }
    }

    /// Whether `path` still leads to the log of this version, and the log has only grown since its look-up.
    pub fn has_only_grown(&self, path: &Path, version: Version) -> bool {
        self.looked_up(path, version).is_some()
    }

    /// Opens the regular file at `path` if it still has this version, and `caller` may read all files that its bytes
    /// come from. Without a caller the user of this process asks.
    ///
    /// A log that has only grown since its look-up still has its version: while a job flushes often, each state would
    /// be out of date before it could be opened.
    pub fn open_file(
        &self,
        path: &Path,
        version: Version,
        caller: Option<&Caller>,
        wait: Wait,
    ) -> Result<Lookup<Opened>> {
        let check = self.permission_check(caller);
        if let Some(view) = self.looked_up(path, version) {
            check.view(&view)?;
            return Ok(Lookup::Known(Opened::View(view)));
        }
        let Lookup::Known(presented) = self.catalog.look_up(path, None, wait)? else {
            return Ok(Lookup::NeedsScan);
        };
        match (presented, version) {
            (Presented::View { .. }, Version::View { generation }) => {
                let Lookup::Known(view) = self.catalog.open_with(path, wait)? else {
                    return Ok(Lookup::NeedsScan);
                };
                check.view(&view)?;
                if view.generation() != generation {
                    return Err(self.failure(path, Errno::STALE));
                }
                Ok(Lookup::Known(Opened::View(view)))
            }
            (Presented::Plain, Version::Source { device, inode, .. }) => {
                let file = self.open_plain(path, device, inode)?;
                check.just_opened(path, &file)?;
                Ok(Lookup::Known(Opened::Plain(file)))
            }
            (Presented::Broken(error), Version::Broken { .. }) => Err(Error::Remembered(error)),
            _ => Err(self.failure(path, Errno::STALE)),
        }
    }

    fn permission_check<'a>(&'a self, caller: Option<&'a Caller>) -> PermissionCheck<'a> {
        PermissionCheck::new(self.catalog.dir(), caller)
    }

    fn open_plain(&self, path: &Path, device: u64, inode: u64) -> Result<File> {
        use std::os::unix::fs::MetadataExt;
        let dir = self.catalog.dir();
        let opened = dir
            .open_file(path)
            .and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|e| self.io_failure(path, e))?;
        if (metadata.dev(), metadata.ino()) == (device, inode) {
            Ok(file)
        } else {
            Err(self.failure(path, Errno::STALE))
        }
    }

    pub fn open_directory(&self, path: &Path) -> Result<OwnedFd> {
        self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the directory at `path` if `caller` may list it.
    pub fn open_for_listing(&self, path: &Path, caller: Option<&Caller>) -> Result<OwnedFd> {
        let fd = self.open_directory(path)?;
        self.permission_check(caller).just_opened(path, &fd)?;
        Ok(fd)
    }

    /// The value of an extended attribute. `version` is that of the file, for the attributes that the mount adds to logs.
    pub fn xattr(
        &self,
        path: &Path,
        version: Version,
        name: &OsStr,
        caller: Option<&Caller>,
        wait: Wait,
    ) -> Result<Lookup<Vec<u8>>> {
        match XattrClass::of(name) {
            XattrClass::Log => {
                let (Some(attribute), Version::View { .. }) = (LogAttribute::named(name), version)
                else {
                    return Err(self.failure(path, Errno::NODATA));
                };
                match self.open_file(path, version, caller, wait)? {
                    Lookup::Known(Opened::View(view)) => {
                        let task = view.task(caller.map(Caller::uid));
                        attribute.value(&view, &task).map(Lookup::Known)
                    }
                    Lookup::Known(Opened::Plain(_)) => Err(self.failure(path, Errno::NODATA)),
                    Lookup::NeedsScan => Ok(Lookup::NeedsScan),
                }
            }
            XattrClass::User => {
                let fd = self.open_name(path)?;
                self.permission_check(caller).just_opened(path, &fd)?;
                self.source_xattr(path, &fd, name)
            }
            // On a mount for one user, access control lists decide nothing, and programs need not ask for each.
            XattrClass::AccessList if caller.is_some() => {
                self.source_xattr(path, &self.open_name(path)?, name)
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
        path: &Path,
        version: Version,
        caller: Option<&Caller>,
    ) -> Result<Vec<u8>> {
        let is_shown = |class| match class {
            XattrClass::User => true,
            XattrClass::AccessList => caller.is_some(),
            XattrClass::Log | XattrClass::Hidden => false,
        };
        let listed = xattr::list(&self.open_name(path)?, is_shown);
        let mut names = listed.map_err(|e| self.failure(path, e))?;
        if let Version::View { .. } = version {
            for name in LogAttribute::names() {
                names.extend_from_slice(name.as_bytes());
                names.push(0);
            }
        }
        Ok(names)
    }

    /// Opens `path`, of any kind, for its attributes only.
    fn open_name(&self, path: &Path) -> Result<OwnedFd> {
        self.open_below(path, OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// The names in the open directory `fd` that are shown, without `.` and `..`.
    pub fn list(&self, path: &Path, fd: &OwnedFd, wait: Wait) -> Result<Lookup<Vec<Listed>>> {
        let mut listed = Vec::new();
        for entry in Dir::read_from(fd).map_err(|e| self.failure(path, e))? {
            let entry = entry.map_err(|e| self.failure(path, e))?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let below = path.join(&name);
            if !self.filter.shows(&below) {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Some file systems do not store the kind of a file in its directory.
                let stat = self.stat(&below);
                kind = stat.map_or(kind, |stat| Attributes::from(&stat).kind);
            }
            if matches!(kind, FileType::Directory | FileType::RegularFile) {
                match self.is_hidden(&below, wait) {
                    Lookup::Known(false) => {}
                    Lookup::Known(true) => continue,
                    Lookup::NeedsScan => return Ok(Lookup::NeedsScan),
                }
            }
            // Zero would mean a deleted entry.
            let inode = entry.ino().max(1);
            listed.push(Listed { name, kind, inode });
        }
        Ok(Lookup::Known(listed))
    }

    /// The target of the symbolic link at `path`, unchanged, if it still has this version.
    pub fn link_target(&self, path: &Path, version: Version) -> Result<Vec<u8>> {
        let fd = self.check_version(version, path, self.open_name(path)?)?;
        rustix::fs::readlinkat(&fd, "", Vec::new())
            .map(|target| target.into_bytes())
            .map_err(|e| self.failure(path, e))
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

    fn open_below(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        self.check_shown(path)?;
        let opened = self.catalog.dir().open_below(path, flags);
        opened.map_err(|e| self.io_failure(path, e))
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        self.check_shown(path)?;
        let stat = self.catalog.dir().stat(path);
        stat.map_err(|e| self.io_failure(path, e))
    }

    fn check_shown(&self, path: &Path) -> Result<()> {
        if self.filter.shows(path) {
            Ok(())
        } else {
            Err(self.failure(path, Errno::NOENT))
        }
    }

    fn is_hidden(&self, path: &Path, wait: Wait) -> Lookup<bool> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => self.catalog.is_hidden(parent, name, wait),
            _ => Lookup::Known(false),
        }
    }
}
