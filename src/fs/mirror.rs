//! What a path below the mounted directory is now.
//!
//! Every access goes through the descriptor of that directory, never through an absolute path: the
//! mount may lie on top of the very directory that it shows.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, OFlags, Stat, StatVfs};
use rustix::io::Errno;

use h5logfs_catalog::{Catalog, Presented};
use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::source_dir::stat_in;
use h5logfs_core::log::source_file::Identity;
use h5logfs_core::view::View;

use super::access::Caller;
use super::attributes::Attributes;
use super::gate::Gate;
use super::xattr;

/// Tells one state of what bears a name from the next. Two states with the same version may share
/// an inode and the pages that the kernel has cached for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// Shown as it is. The kind is part of it because the source may use an inode number again.
    Source {
        device: u64,
        inode: u64,
        /// The file type bits of the mode.
        kind: u32,
    },
    /// A log file, in one of its generations.
    View { generation: u64 },
    /// A log file that cannot be presented; it is listed and does not open.
    Broken { device: u64, inode: u64 },
}

/// Of what is shown as it is.
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

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub version: Version,
    pub attributes: Attributes,
}

impl Entry {
    /// What a listing tells of a name alone.
    pub fn unknown(kind: FileType, inode: u64) -> Self {
        let version = Version::Source {
            device: 0,
            inode,
            kind: kind.as_raw_mode(),
        };
        Entry {
            version,
            attributes: Attributes::of_kind(kind),
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

/// Parts of the directory that the mount leaves out.
#[derive(Debug, Default)]
pub struct Limits {
    /// The directory shows only this name: a single file was mounted.
    pub only: Option<OsString>,
    /// The mount point, where it lies inside the directory: following it would lead the daemon to
    /// wait for itself.
    pub without: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Mirror {
    catalog: Arc<Catalog>,
    limits: Limits,
}

impl Mirror {
    pub fn new(catalog: Catalog, limits: Limits) -> Self {
        Mirror {
            catalog: Arc::new(catalog),
            limits,
        }
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// What `path` is now. A log file that cannot be presented is an entry like any other, with
    /// the size of the log: its neighbours must stay visible to `ls`.
    pub fn entry(&self, path: &Path) -> Result<Entry> {
        self.entry_as(path, self.stat(path))
    }

    /// The same for `path`, whose directory has to be the one that `version` names: another one in its place may be
    /// closed to who could search that one.
    pub fn entry_below(&self, version: Version, path: &Path) -> Result<Entry> {
        let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) else {
            return self.entry(path);
        };
        let directory = self
            .check_shown(path)
            .and_then(|()| self.open_below(parent, OFlags::PATH | OFlags::DIRECTORY))
            .and_then(|directory| self.check_is(version, parent, directory));
        match directory {
            Ok(directory) => self.entry_in(&directory, path),
            Err(error) => self.entry_as(path, Err(error)),
        }
    }

    /// `fd`, if it is what `version` names.
    fn check_is(&self, version: Version, path: &Path, fd: OwnedFd) -> Result<OwnedFd> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| self.failure(path, e))?;
        match Version::from(&stat) == version {
            true => Ok(fd),
            false => Err(self.failure(path, Errno::STALE)),
        }
    }

    /// The same for `path` as the listing of its directory gave it, which is held open.
    pub fn entry_in(&self, directory: &OwnedFd, path: &Path) -> Result<Entry> {
        let name = path.file_name().unwrap_or_default();
        let stat = stat_in(directory, name);
        self.entry_as(path, stat.map_err(|e| self.io_failure(path, e)))
    }

    fn entry_as(&self, path: &Path, stat: Result<Stat>) -> Result<Entry> {
        let stat = stat.inspect_err(|_| self.catalog.forget(path))?;
        let (attributes, seen) = (Attributes::from(&stat), Identity::from(&stat));
        let Identity { device, inode, .. } = seen;
        let source = Version::from(&stat);
        let broken = Version::Broken { device, inode };
        let (version, attributes) = match attributes.kind {
            FileType::Directory | FileType::RegularFile if self.is_hidden(path)? => {
                return Err(self.failure(path, Errno::NOENT));
            }
            FileType::RegularFile => match self.catalog.get_seen(path, seen) {
                Ok(Presented::Plain) => (source, attributes),
                Ok(Presented::View { generation, len }) => {
                    (Version::View { generation }, attributes.with_size(len))
                }
                Err(error @ Error::Unscanned { .. }) => return Err(error),
                Ok(Presented::Broken(_)) | Err(_) => (broken, attributes),
            },
            _ => (source, attributes),
        };
        Ok(Entry {
            version,
            attributes,
        })
    }

    /// Opens the regular file at `path`, if it is still in the state that `version` names, and `caller` may read all
    /// that it shows; `None` is the user of this process.
    pub fn open_file(
        &self,
        path: &Path,
        version: Version,
        caller: Option<&Caller>,
    ) -> Result<Opened> {
        let gate = self.gate(caller);
        match (self.catalog.get(path)?, version) {
            (Presented::View { .. }, Version::View { generation }) => {
                let view = self.catalog.open(path)?;
                gate.view(&view)?;
                if view.generation() == generation {
                    Ok(Opened::View(view))
                } else {
                    Err(self.failure(path, Errno::STALE))
                }
            }
            (Presented::Plain, Version::Source { device, inode, .. }) => {
                let file = self.open_plain(path, device, inode)?;
                gate.fresh(path, &file)?;
                Ok(Opened::Plain(file))
            }
            (Presented::Broken(error), Version::Broken { .. }) => Err(Error::Remembered(error)),
            _ => Err(self.failure(path, Errno::STALE)),
        }
    }

    fn gate<'a>(&'a self, caller: Option<&'a Caller>) -> Gate<'a> {
        Gate::new(self.catalog.dir(), caller)
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

    /// The same to list it, for `caller`.
    pub fn open_for_listing(&self, path: &Path, caller: Option<&Caller>) -> Result<OwnedFd> {
        let fd = self.open_directory(path)?;
        self.gate(caller).fresh(path, &fd)?;
        Ok(fd)
    }

    /// The value of an extended attribute, where it has one of that name; that of a log file's own is told of the state
    /// that `version` names.
    pub fn xattr(
        &self,
        path: &Path,
        version: Version,
        name: &OsStr,
        caller: Option<&Caller>,
    ) -> Result<Option<Vec<u8>>> {
        match xattr::Kind::of(name) {
            xattr::Kind::Own => match (xattr::Own::named(name), version) {
                (Some(own), Version::View { .. }) => {
                    match self.open_file(path, version, caller)? {
                        Opened::View(view) => own.value(&view).map(Some),
                        Opened::Plain(_) => Ok(None),
                    }
                }
                _ => Ok(None),
            },
            xattr::Kind::User => {
                let fd = self.open_name(path)?;
                self.gate(caller).fresh(path, &fd)?;
                self.xattr_of(path, &fd, name)
            }
            // Where only one user gets in they decide nothing, and programs need not ask for that of each file.
            xattr::Kind::AccessList if caller.is_some() => {
                self.xattr_of(path, &self.open_name(path)?, name)
            }
            xattr::Kind::AccessList | xattr::Kind::Foreign => {
                Err(self.failure(path, Errno::OPNOTSUPP))
            }
        }
    }

    fn xattr_of(&self, path: &Path, fd: &OwnedFd, name: &OsStr) -> Result<Option<Vec<u8>>> {
        xattr::get(fd, name).map_err(|e| self.failure(path, e))
    }

    /// The names of the extended attributes, each followed by a zero byte.
    pub fn xattrs(
        &self,
        path: &Path,
        version: Version,
        caller: Option<&Caller>,
    ) -> Result<Vec<u8>> {
        let is_shown = |kind| match kind {
            xattr::Kind::User => true,
            xattr::Kind::AccessList => caller.is_some(),
            xattr::Kind::Own | xattr::Kind::Foreign => false,
        };
        let listed = xattr::list(&self.open_name(path)?, is_shown);
        let mut names = listed.map_err(|e| self.failure(path, e))?;
        if let Version::View { .. } = version {
            for own in xattr::Own::names() {
                names.extend_from_slice(own.as_bytes());
                names.push(0);
            }
        }
        Ok(names)
    }

    /// Whatever is at `path`, to be asked about and not to be read.
    fn open_name(&self, path: &Path) -> Result<OwnedFd> {
        self.open_below(path, OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// The names in the open directory `fd` that are shown, without `.` and `..`.
    pub fn list(&self, path: &Path, fd: &OwnedFd) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in Dir::read_from(fd).map_err(|e| self.failure(path, e))? {
            let entry = entry.map_err(|e| self.failure(path, e))?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let below = path.join(&name);
            let kind = self.known_kind(&below, entry.file_type());
            let may_hide = matches!(kind, FileType::Directory | FileType::RegularFile);
            let hidden = may_hide && self.is_hidden(&below)?;
            if !hidden && !self.is_left_out(&below) {
                // Zero would mean a deleted entry.
                let inode = entry.ino().max(1);
                listed.push(Listed { name, kind, inode });
            }
        }
        Ok(listed)
    }

    /// Some file systems do not keep the kind of a file in its directory.
    fn known_kind(&self, path: &Path, kind: FileType) -> FileType {
        if kind != FileType::Unknown || self.is_left_out(path) {
            return kind;
        }
        self.stat(path)
            .map_or(FileType::Unknown, |stat| Attributes::from(&stat).kind)
    }

    /// The target of the symbolic link that `version` names, unchanged.
    pub fn link_target(&self, path: &Path, version: Version) -> Result<Vec<u8>> {
        let fd = self.check_is(version, path, self.open_name(path)?)?;
        rustix::fs::readlinkat(&fd, "", Vec::new())
            .map(|target| target.into_bytes())
            .map_err(|e| self.failure(path, e))
    }

    /// Space on the file system of the directory.
    pub fn space(&self) -> Result<StatVfs> {
        let space = self.catalog.dir().space();
        space.map_err(|e| self.io_failure(Path::new(""), e))
    }

    /// The error that `path` gives with the errno `errno`.
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
        match self.is_left_out(path) {
            true => Err(self.failure(path, Errno::NOENT)),
            false => Ok(()),
        }
    }

    fn is_hidden(&self, path: &Path) -> Result<bool> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => self.catalog.is_hidden(parent, name),
            _ => Ok(false),
        }
    }

    fn is_left_out(&self, path: &Path) -> bool {
        if path.as_os_str().is_empty() {
            return false;
        }
        let other = |only: &OsString| path.as_os_str() != OsStr::new(only);
        self.limits.only.as_ref().is_some_and(other) || self.limits.without.as_deref() == Some(path)
    }
}
