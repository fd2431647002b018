//! Directories whose files hold log bytes. A path below such a directory never leads out of it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatVfs};
use serde::{Deserialize, Serialize};

use crate::not_regular::NotRegular;
use crate::open_files::Handle;
use crate::walk;
use h5logfs_common::error::{Error, Result, is_stale};
use h5logfs_common::held_file::HeldFile;

/// A directory held by descriptor. Every path below it is resolved relative to it and never leads out
/// of it, neither by `..` nor by a symbolic link (`openat2` with `RESOLVE_BENEATH`).
///
/// A file server may forget the open directory (ESTALE). The path is then resolved again, and must lead to the same
/// directory.
#[derive(Debug)]
pub struct SourceDir {
    access: Access,
    /// Path of the directory, for messages, for comparison with the paths that logs name, and to open the directory
    /// again.
    path: PathBuf,
    /// The path leads to a mount of this process, which would wait for itself there.
    is_covered: bool,
    /// Other directories in which logs of the files below may lie.
    further: Vec<SourceDir>,
}

/// The access of this process to the files of a directory.
#[derive(Debug, Clone)]
enum Access {
    /// The process opens files itself.
    Held(Arc<HeldFile>),
    /// The same, where the directory is closed while others are needed more.
    OnDemand(Arc<OnDemand>),
    /// The process must not open files. Another process opens them for it. The number is the directory's in
    /// [`SourcePath`].
    Remote(u16, Arc<dyn FileOpener>),
}

/// A directory that is opened when it is needed.
#[derive(Debug)]
struct OnDemand {
    handle: Handle,
    /// Device and inode. The path must lead to the same directory.
    inode: (u64, u64),
}

impl OnDemand {
    fn of(held: Arc<HeldFile>) -> io::Result<Self> {
        let found = held.metadata()?;
        let handle = Handle::empty();
        handle.keep(held);
        Ok(OnDemand {
            handle,
            inode: (found.dev(), found.ino()),
        })
    }

    /// The directory at `path`, if it still is this one.
    fn open(&self, path: &Path) -> io::Result<Arc<HeldFile>> {
        if let Some(open) = self.handle.get() {
            return Ok(open);
        }
        let again = open_directory(path)?;
        let found = again.metadata()?;
        if (found.dev(), found.ino()) != self.inode {
            return Err(io::Error::other("another directory has taken its name"));
        }
        Ok(self.handle.keep(Arc::new(HeldFile::new(again)?)))
    }
}

/// Opens files on behalf of a process that must not open any.
pub trait FileOpener: fmt::Debug + Send + Sync {
    /// Opens the regular file at `place` for reading.
    fn open_file(&self, place: &SourcePath) -> io::Result<File>;

    /// Lists the directory at `place`, without `.` and `..`.
    fn list(&self, place: &SourcePath) -> io::Result<Vec<OsString>>;
}

impl SourceDir {
    /// The directory at `path`, and the `further` ones, for a process whose files `opener` opens.
    pub fn remote(path: PathBuf, further: Vec<PathBuf>, opener: Arc<dyn FileOpener>) -> Self {
        let dir = |(number, path)| SourceDir {
            access: Access::Remote(number, Arc::clone(&opener)),
            path,
            is_covered: false,
            further: Vec::new(),
        };
        SourceDir {
            further: (1..).zip(further).map(dir).collect(),
            ..dir((0, path))
        }
    }

    /// The directory at `path`; symbolic links are followed.
    pub fn open(path: &Path) -> Result<Self> {
        let held = open_directory(path).and_then(HeldFile::new);
        let held = held.map_err(|e| Error::io(path, e))?;
        Ok(SourceDir {
            access: Access::Held(Arc::new(held)),
            path: path.to_owned(),
            is_covered: false,
            further: Vec::new(),
        })
    }

    /// An open directory; `path` is its path as a user knows it.
    pub(super) fn of_open(directory: OwnedFd, path: PathBuf) -> Result<Self> {
        let held = HeldFile::new(directory.into()).map_err(|e| Error::io(&path, e))?;
        Ok(SourceDir {
            access: Access::Held(Arc::new(held)),
            path,
            is_covered: false,
            further: Vec::new(),
        })
    }

    /// This directory without its further ones. Both share the descriptor.
    pub(super) fn alone(&self) -> Self {
        SourceDir {
            access: self.access.clone(),
            path: self.path.clone(),
            is_covered: self.is_covered,
            further: Vec::new(),
        }
    }

    /// Prepares the directory for a process that will serve a mount at `mount_point`: no path that leads there is
    /// resolved.
    pub fn covered_by(mut self, mount_point: &Path) -> Self {
        self.is_covered = self.path.starts_with(mount_point);
        let further = self.further.into_iter();
        self.further = further.map(|dir| dir.covered_by(mount_point)).collect();
        self
    }

    /// Lets this directory and its further ones be closed while others are needed more.
    pub fn closed_between_uses(mut self) -> Result<Self> {
        if let (Access::Held(held), false) = (&self.access, self.is_covered) {
            let own = OnDemand::of(Arc::clone(held));
            let own = own.map_err(|e| Error::io(&self.path, e))?;
            self.access = Access::OnDemand(Arc::new(own));
        }
        let further = self.further.into_iter().map(SourceDir::closed_between_uses);
        self.further = further.collect::<Result<_>>()?;
        Ok(self)
    }

    /// Whether the directory is closed while others are needed more.
    pub fn is_closed_between_uses(&self) -> bool {
        matches!(self.access, Access::OnDemand(_))
    }

    /// Closes the directory until it is needed again, if it may be closed.
    pub(super) fn release(&self) {
        if let Access::OnDemand(own) = &self.access {
            own.handle.close();
        }
    }

    /// Adds directories in which logs of the files below this one may lie. Safe for root: the walk follows no link of
    /// another user.
    pub fn with_further(mut self, paths: &[PathBuf]) -> Result<Self> {
        let opened = paths.iter().map(|path| walk::directory(path));
        self.further = opened.collect::<Result<_>>()?;
        Ok(self)
    }

    /// This directory and the further ones, in the order of their numbers in [`SourcePath`].
    pub fn all(&self) -> impl Iterator<Item = &SourceDir> {
        std::iter::once(self).chain(&self.further)
    }

    /// The directory of a place: this one or a further one.
    pub fn of(&self, place: &SourcePath) -> io::Result<&SourceDir> {
        let found = self.all().nth(usize::from(place.dir));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Path of the directory as a user knows it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether another process opens the files.
    pub fn is_remote(&self) -> bool {
        matches!(self.access, Access::Remote(..))
    }

    /// Calls `act` with the descriptor, and once more if the directory had to be opened again. Fails in a process that
    /// has no descriptor.
    fn in_held<T>(&self, act: impl Fn(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match &self.access {
            Access::Held(held) => match act(held.as_fd()) {
                Err(e) if is_stale(&e) && self.reopen(held) => act(held.as_fd()),
                outcome => outcome,
            },
            Access::OnDemand(own) => match act(own.open(&self.path)?.as_fd()) {
                Err(e) if is_stale(&e) => {
                    own.handle.close();
                    act(own.open(&self.path)?.as_fd())
                }
                outcome => outcome,
            },
            Access::Remote(..) => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Opens the directory again where a file server no longer knows the open one. Returns whether the descriptor is
    /// usable now.
    fn reopen(&self, held: &HeldFile) -> bool {
        match held.metadata() {
            // Another thread has opened it again, or only something below the directory is stale.
            Ok(_) => return true,
            Err(e) if self.is_covered || !is_stale(&e) => return false,
            Err(_) => {}
        }
        let again = open_directory(&self.path).and_then(|again| held.replace_by(again));
        if let Err(e) = &again {
            log::debug!("{}: stale, and not opened again: {e}", self.path.display());
        }
        again.is_ok()
    }

    /// Free and used space of the directory's file system.
    pub fn space(&self) -> io::Result<StatVfs> {
        self.in_held(|held| Ok(rustix::fs::fstatvfs(held)?))
    }

    /// The directory that holds `file`, and the file's name in it; symbolic links are followed.
    pub fn of_file(file: &Path) -> Result<(Self, PathBuf)> {
        let real = canonical(file).map_err(|e| Error::io(file, e))?;
        Self::of_real_file(&real)
    }

    /// [`SourceDir::of_file`] for a path without symbolic links. No system call has to look for links.
    pub fn of_real_file(file: &Path) -> Result<(Self, PathBuf)> {
        match (file.parent(), file.file_name()) {
            (Some(parent), Some(name)) => Ok((SourceDir::open(parent)?, name.into())),
            _ => Err(Error::of(file, "is a directory")),
        }
    }

    /// The path of `relative` as a user knows it.
    pub fn full_path(&self, relative: &Path) -> PathBuf {
        self.path.join(relative)
    }

    /// Opens a path below this directory. An empty path is the directory itself.
    pub fn open_below(&self, relative: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        if !relative.as_os_str().is_empty() {
            return self.in_held(|held| open_beneath(held, relative, flags));
        }
        self.in_held(|held| {
            // Opening the directory itself asks no file server, so it would not show that the handle is stale.
            rustix::fs::fstat(held)?;
            open_beneath(held, Path::new("."), flags)
        })
    }

    /// Opens a regular file for reading. Refuses anything else: opening a FIFO would block.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        if let Access::Remote(number, opener) = &self.access {
            return opener.open_file(&SourcePath::in_dir(*number, relative));
        }
        let fd = self.open_below(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        regular(fd)
    }

    /// Removes a file in this directory, whatever its path leads to by now.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.in_held(|held| Ok(rustix::fs::unlinkat(held, name, AtFlags::empty())?))
    }

    /// `stat` of whatever is at a path; a symbolic link is not followed.
    pub fn stat(&self, relative: &Path) -> io::Result<Stat> {
        if is_one_name(relative) {
            return self.in_held(|held| stat_in(held, relative.as_os_str()));
        }
        let fd = self.open_below(relative, OFlags::PATH | OFlags::NOFOLLOW)?;
        Ok(rustix::fs::fstat(&fd)?)
    }

    /// The names in a directory below this directory, without `.` and `..`.
    pub fn list(&self, relative: &Path) -> io::Result<Vec<OsString>> {
        if let Access::Remote(number, opener) = &self.access {
            return opener.list(&SourcePath::in_dir(*number, relative));
        }
        list_open(self.open_below(relative, OFlags::RDONLY | OFlags::DIRECTORY)?)
    }

    /// Passes the names in a directory below this directory to `visit`, without `.` and `..`, and whether each may be that of a
    /// regular file: some file systems do not tell.
    pub fn visit(&self, relative: &Path, mut visit: impl FnMut(&OsStr, bool)) -> io::Result<()> {
        if let Access::Remote(number, opener) = &self.access {
            let names = opener.list(&SourcePath::in_dir(*number, relative))?;
            names.iter().for_each(|name| visit(name, true));
            return Ok(());
        }
        let directory = self.open_below(relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        visit_open(directory, visit)
    }
}

/// The path of an existing file without symbolic links. If the path has none, two system calls suffice, whatever its
/// length.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // A path with a slash at its end can only be that of a directory.
    let may_be_real = path.is_absolute()
        && !path.as_os_str().as_bytes().ends_with(b"/")
        && !path.components().any(|part| part == Component::ParentDir);
    let open = || {
        let links = ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(CWD, path, flags, Mode::empty(), links)
    };
    if may_be_real && open().is_ok() {
        return Ok(path.components().collect());
    }
    path.canonicalize()
}

/// The path of a file, without symbolic links and `..` before its name. The file need not exist. The result leads to
/// the same file while that is not moved, whatever becomes of the links and directories in the given path. If the
/// directory does not exist, or the path does not end with a name, the path is only made absolute.
pub fn resolved(path: &Path) -> PathBuf {
    let resolve = || {
        let name = path.file_name()?;
        if !path.as_os_str().as_bytes().ends_with(name.as_bytes()) {
            return None;
        }
        let parent = path.parent()?;
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        Some(canonical(parent).ok()?.join(name))
    };
    resolve()
        .or_else(|| std::path::absolute(path).ok())
        .unwrap_or_else(|| path.to_owned())
}

/// The directory at a path; symbolic links are followed.
fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Opens a path below an open directory, without following symbolic links.
pub(super) fn open_beneath(
    directory: impl AsFd,
    relative: &Path,
    flags: OFlags,
) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(&directory, relative, flags, Mode::empty(), beneath) {
            // A rename elsewhere in the tree raced with the look-up. The kernel asks for another try.
            Err(rustix::io::Errno::AGAIN) => continue,
            other => return Ok(other?),
        }
    }
}

/// The names in an open directory, without `.` and `..`.
pub(super) fn list_open(directory: OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    visit_open(directory, |name, _| names.push(name.to_owned()))?;
    Ok(names)
}

fn visit_open(directory: OwnedFd, mut visit: impl FnMut(&OsStr, bool)) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            let kind = entry.file_type();
            visit(
                name,
                matches!(kind, FileType::RegularFile | FileType::Unknown),
            );
        }
    }
    Ok(())
}

/// The file that was opened. Fails for anything that is not a regular file, with a [`NotRegular`] inside.
pub(super) fn regular(opened: OwnedFd) -> io::Result<File> {
    match NotRegular::of(&rustix::fs::fstat(&opened)?) {
        None => Ok(opened.into()),
        Some(other) => Err(other.into_io()),
    }
}

/// The place of a file: a directory of a [`SourceDir`], and a path below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourcePath {
    /// Number of the directory: 0 is the directory that was scanned, n the nth further one.
    pub dir: u16,
    /// Path relative to that directory.
    #[serde(with = "bytes_of_path")]
    pub path: PathBuf,
}

impl SourcePath {
    /// A path below the directory that was scanned.
    pub fn below(path: impl Into<PathBuf>) -> Self {
        SourcePath::in_dir(0, path)
    }

    fn in_dir(dir: u16, path: impl Into<PathBuf>) -> Self {
        SourcePath {
            dir,
            path: path.into(),
        }
    }
}

/// Serializes a path as bytes: serde's own form fails for paths that are not UTF-8.
pub mod bytes_of_path {
    use std::ffi::OsStr;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserializer, Serializer};

    /// Writes the bytes of the path.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(OsStr::as_bytes(path.as_os_str()))
    }

    /// Reads the bytes of a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let bytes: Vec<u8> = serde_bytes::deserialize(from)?;
        Ok(std::ffi::OsString::from_vec(bytes).into())
    }
}

/// A path in a message.
#[derive(Debug, Serialize, Deserialize)]
pub struct PathBytes(#[serde(with = "bytes_of_path")] pub PathBuf);

impl From<&Path> for PathBytes {
    fn from(path: &Path) -> Self {
        PathBytes(path.to_owned())
    }
}

/// [`bytes_of_path`] for a list of paths.
pub mod bytes_of_paths {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::source_dir::PathBytes;

    /// Writes the bytes of each path.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| PathBytes::from(path.as_path())))
    }

    /// Reads the bytes of each path.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<PathBytes>::deserialize(from)?;
        Ok(paths.into_iter().map(|path| path.0).collect())
    }
}

/// Whether a path is a single name: neither `.` nor `..`, nor a path of several parts.
fn is_one_name(relative: &Path) -> bool {
    let mut parts = relative.components();
    let first = parts.next();
    matches!(first, Some(Component::Normal(name)) if name == relative.as_os_str())
}

/// `stat` of `name` in an open directory. This takes one system call, where a path takes three. It is as safe, because
/// a single name leads nowhere else if links are not followed. The caller passes neither `..` nor paths.
pub fn stat_in(directory: impl AsFd, name: &OsStr) -> io::Result<Stat> {
    let itself = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statat(directory, name, itself)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::source_file::Identity;

    #[test]
    fn one_name_is_no_path() {
        for name in ["a", "a b", "..a", "..."] {
            assert!(is_one_name(Path::new(name)), "{name}");
        }
        for path in ["", ".", "..", "/", "/a", "a/b", "a/", "./a", "../a", "a/.."] {
            assert!(!is_one_name(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_canonical_path_has_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("a")).unwrap();
        std::fs::write(dir.join("a/file"), "").unwrap();
        std::os::unix::fs::symlink("a", dir.join("link")).unwrap();
        std::os::unix::fs::symlink("file", dir.join("a/other")).unwrap();
        let paths = [
            "a/file",
            "a/./file",
            "a//file",
            "a/../a/file",
            "link/file",
            "a/other",
        ];
        for path in paths {
            assert_eq!(
                canonical(&dir.join(path)).unwrap(),
                dir.join("a/file"),
                "{path}"
            );
        }
        for path in ["a/none", "a/file/", "a/file/..", "b/../a/file"] {
            assert!(canonical(&dir.join(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn stat_tells_the_same_at_any_depth_and_never_follows() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "text").unwrap();
        std::fs::create_dir(dir.path().join("directory")).unwrap();
        std::fs::hard_link(dir.path().join("file"), dir.path().join("directory/file")).unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("../file", dir.path().join("directory/link")).unwrap();
        let held = SourceDir::open(dir.path()).unwrap();
        let identity = |path: &str| Identity::from(&held.stat(Path::new(path)).unwrap());
        let metadata = std::fs::metadata(dir.path().join("file")).unwrap();
        assert_eq!(identity("file"), Identity::from(&metadata));
        assert_eq!(identity("directory/file"), Identity::from(&metadata));
        for link in ["link", "directory/link"] {
            assert_ne!(identity(link).inode, metadata.ino(), "{link}");
        }
        for outside in ["..", "../x", "directory/../.."] {
            let refused = held.stat(Path::new(outside)).unwrap_err();
            assert_eq!(
                refused.raw_os_error(),
                Some(rustix::io::Errno::XDEV.raw_os_error())
            );
        }
    }
}
