//! The files that hold log bytes: found below one folder, opened read-only, read with `pread`.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, Stat};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A directory held by descriptor; every path below is resolved relative to it and never leaves
/// it, neither by `..` nor by a symbolic link (`openat2` with `RESOLVE_BENEATH`).
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// For messages only.
    path: PathBuf,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self> {
        let fd = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Error::io(path, e.into()))?;
        Ok(Folder {
            fd,
            path: path.to_owned(),
        })
    }

    /// The folder that holds `file`, and the file's name in it; symbolic links are followed.
    pub fn of_file(file: &Path) -> Result<(Self, PathBuf)> {
        let real = file.canonicalize().map_err(|e| Error::io(file, e))?;
        match (real.parent(), real.file_name()) {
            (Some(parent), Some(name)) => Ok((Folder::open(parent)?, name.into())),
            _ => Err(Error::bad_file(file, "is a directory")),
        }
    }

    /// The path of `relative` as a user knows it.
    pub fn full_path(&self, relative: &Path) -> PathBuf {
        self.path.join(relative)
    }

    /// Opens a path below this folder. An empty path is the folder itself.
    pub fn open_below(&self, relative: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let relative = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        let flags = flags | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        loop {
            match rustix::fs::openat2(&self.fd, relative, flags, Mode::empty(), beneath) {
                // A rename elsewhere in the tree raced with the look-up: the kernel asks us to try again.
                Err(rustix::io::Errno::AGAIN) => continue,
                other => return Ok(other?),
            }
        }
    }

    /// Opens a regular file for reading; anything else (a FIFO would block) is refused.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        let fd = self.open_below(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let file = File::from(fd);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(file)
    }

    /// What the system tells of whatever is at a path, a symbolic link itself included.
    pub fn stat(&self, relative: &Path) -> io::Result<Stat> {
        if is_one_name(relative) {
            return stat_in(&self.fd, relative.as_os_str());
        }
        let fd = self.open_below(relative, OFlags::PATH | OFlags::NOFOLLOW)?;
        Ok(rustix::fs::fstat(&fd)?)
    }

    /// The same of what no symbolic link is, as the standard library has it.
    pub fn metadata(&self, relative: &Path) -> io::Result<Metadata> {
        let fd = self.open_below(relative, OFlags::PATH)?;
        File::from(fd).metadata()
    }

    /// The names in a directory below this folder, without `.` and `..`.
    pub fn list(&self, relative: &Path) -> io::Result<Vec<OsString>> {
        use std::os::unix::ffi::OsStringExt;
        let fd = self.open_below(relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }
}

/// Whether a path is the name of something in the folder itself: neither `.` nor `..`, nor of several parts.
fn is_one_name(relative: &Path) -> bool {
    let mut parts = relative.components();
    let first = parts.next();
    matches!(first, Some(Component::Normal(name)) if name == relative.as_os_str())
}

/// What the system tells of `name` in an open directory. One call where a path takes three, and as
/// safe, since a lone name that is not followed leads nowhere else; `..` and paths are not for here.
pub fn stat_in(directory: impl AsFd, name: &OsStr) -> io::Result<Stat> {
    let itself = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statat(directory, name, itself)?)
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What tells one state of a file from another: a file with the same identity has the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    /// Time of the last modification, in seconds and nanoseconds.
    pub modified: (i64, i64),
}

impl Identity {
    /// Whether the file that is `now` still has these bytes; where it `grows`, in its first `size`
    /// ones, whatever was appended.
    pub fn is_still(&self, now: Identity, grows: bool) -> bool {
        let same_file = (self.device, self.inode) == (now.device, now.inode);
        *self == now || (grows && same_file && self.size <= now.size)
    }
}

impl From<&Metadata> for Identity {
    fn from(m: &Metadata) -> Self {
        Identity {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            modified: (m.mtime(), m.mtime_nsec()),
        }
    }
}

impl From<&Stat> for Identity {
    // The types of the fields of `Stat` differ from one processor to the next.
    #[allow(clippy::unnecessary_cast)]
    fn from(stat: &Stat) -> Self {
        Identity {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }
}

/// One file that holds log bytes, open for reading, in the state in which the scan saw it.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    path: PathBuf,
    identity: Identity,
    grows: bool,
    /// Bytes read of it.
    read: AtomicU64,
}

impl SourceFile {
    pub fn open(folder: &Folder, relative: &Path) -> Result<Self> {
        let path = folder.full_path(relative);
        let opened = folder
            .open_file(relative)
            .and_then(|file| Ok((Identity::from(&file.metadata()?), file)));
        match opened {
            Ok((identity, file)) => Ok(SourceFile {
                file,
                path,
                identity,
                grows: false,
                read: AtomicU64::new(0),
            }),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    /// From now on only the first `len` bytes count, and more may be appended to the file: nobody
    /// writes to these bytes any more. Fails where the file is shorter.
    pub fn first_bytes(mut self, len: u64) -> Result<Self> {
        if self.identity.size < len {
            let reason = format!(
                "it has {} bytes, where the journal speaks of {len}",
                self.identity.size
            );
            return Err(Error::bad_file(&self.path, reason));
        }
        self.identity.size = len;
        self.grows = true;
        Ok(self)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether bytes may be appended to it.
    pub fn grows(&self) -> bool {
        self.grows
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Bytes read of the file so far, by all threads.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Length in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.identity.size
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What `stat` says of it now.
    pub fn metadata(&self) -> Result<Metadata> {
        let metadata = self.file.metadata();
        metadata.map_err(|e| Error::io(&self.path, e))
    }

    /// Fails when somebody has changed the file since: its bytes are no longer those of the snapshot.
    pub fn check_unchanged(&self) -> Result<()> {
        let now = Identity::from(&self.metadata()?);
        match self.identity.is_still(now, self.grows) {
            true => Ok(()),
            false => Err(Error::Changed {
                path: self.path.clone(),
            }),
        }
    }

    /// Fills `buf` from `offset`; bytes past the end of the file are an error.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.file.read_exact_at(buf, offset).map_err(|e| {
            let e = match e.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(
                    e.kind(),
                    format!("the file ends before {} bytes from {offset}", buf.len()),
                ),
                _ => e,
            };
            Error::io(&self.path, e)
        })
    }
}

impl AsFd for SourceFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn stat_tells_the_same_at_any_depth_and_never_follows() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "text").unwrap();
        std::fs::create_dir(folder.path().join("directory")).unwrap();
        std::fs::hard_link(
            folder.path().join("file"),
            folder.path().join("directory/file"),
        )
        .unwrap();
        std::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("../file", folder.path().join("directory/link")).unwrap();
        let held = Folder::open(folder.path()).unwrap();
        let identity = |path: &str| Identity::from(&held.stat(Path::new(path)).unwrap());
        let metadata = std::fs::metadata(folder.path().join("file")).unwrap();
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
