//! The files that hold log bytes: found below one directory, opened read-only, read with `pread`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, Stat, StatVfs};
use serde::{Deserialize, Serialize};

use super::arrangement::Arrangement;
use crate::error::{Error, Result};
use crate::stats::Stats;

/// A directory held by descriptor; every path below is resolved relative to it and never leaves
/// it, neither by `..` nor by a symbolic link (`openat2` with `RESOLVE_BENEATH`).
#[derive(Debug)]
pub struct SourceDir {
    access: Access,
    /// For messages, and to be compared with what logs say of themselves.
    path: PathBuf,
    /// Where else logs of the files below may lie.
    further: Vec<SourceDir>,
}

/// How a process gets at the files of a directory.
#[derive(Debug)]
enum Access {
    Held(OwnedFd),
    /// It may open nothing: another process does, for the directory of this number.
    Lent(u16, Arc<dyn FileOpener>),
}

/// Who opens files for a process that must not open any.
pub trait FileOpener: fmt::Debug + Send + Sync {
    /// The regular file at `place`, open for reading.
    fn open_file(&self, place: &SourcePath) -> io::Result<File>;

    /// The names in the directory at `place`, without `.` and `..`.
    fn list(&self, place: &SourcePath) -> io::Result<Vec<OsString>>;
}

impl SourceDir {
    /// The directory of `path`, and the `further` ones, whose files `lender` opens.
    pub fn lent(path: PathBuf, further: Vec<PathBuf>, lender: Arc<dyn FileOpener>) -> Self {
        let dir = |(number, path)| SourceDir {
            access: Access::Lent(number, Arc::clone(&lender)),
            path,
            further: Vec::new(),
        };
        SourceDir {
            further: (1..).zip(further).map(dir).collect(),
            ..dir((0, path))
        }
    }

    pub fn open(path: &Path) -> Result<Self> {
        let fd = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Error::io(path, e.into()))?;
        Ok(SourceDir {
            access: Access::Held(fd),
            path: path.to_owned(),
            further: Vec::new(),
        })
    }

    /// With further directories in which logs of the files below this one may lie.
    pub fn with_further(mut self, paths: &[PathBuf]) -> Result<Self> {
        let opened = paths.iter().map(|path| {
            let real = path.canonicalize().map_err(|e| Error::io(path, e))?;
            SourceDir::open(&real)
        });
        self.further = opened.collect::<Result<_>>()?;
        Ok(self)
    }

    /// This directory and the further ones, in the order of their numbers in [`SourcePath`].
    pub fn all(&self) -> impl Iterator<Item = &SourceDir> {
        std::iter::once(self).chain(&self.further)
    }

    /// The directory of a place, this one or a further one.
    pub fn of(&self, place: &SourcePath) -> io::Result<&SourceDir> {
        let found = self.all().nth(usize::from(place.dir));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself, for a process that holds it.
    fn held(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.access {
            Access::Held(fd) => Ok(fd.as_fd()),
            Access::Lent(..) => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Space on the file system of the directory.
    pub fn space(&self) -> io::Result<StatVfs> {
        Ok(rustix::fs::fstatvfs(self.held()?)?)
    }

    /// The directory that holds `file`, and the file's name in it; symbolic links are followed.
    pub fn of_file(file: &Path) -> Result<(Self, PathBuf)> {
        let real = file.canonicalize().map_err(|e| Error::io(file, e))?;
        match (real.parent(), real.file_name()) {
            (Some(parent), Some(name)) => Ok((SourceDir::open(parent)?, name.into())),
            _ => Err(Error::bad_file(file, "is a directory")),
        }
    }

    /// The path of `relative` as a user knows it.
    pub fn full_path(&self, relative: &Path) -> PathBuf {
        self.path.join(relative)
    }

    /// Opens a path below this directory. An empty path is the directory itself.
    pub fn open_below(&self, relative: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let relative = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        let flags = flags | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let directory = self.held()?;
        loop {
            match rustix::fs::openat2(directory, relative, flags, Mode::empty(), beneath) {
                // A rename elsewhere in the tree raced with the look-up: the kernel asks us to try again.
                Err(rustix::io::Errno::AGAIN) => continue,
                other => return Ok(other?),
            }
        }
    }

    /// Opens a regular file for reading; anything else (a FIFO would block) is refused.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        if let Access::Lent(number, lender) = &self.access {
            return lender.open_file(&SourcePath::in_dir(*number, relative));
        }
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
            return stat_in(self.held()?, relative.as_os_str());
        }
        let fd = self.open_below(relative, OFlags::PATH | OFlags::NOFOLLOW)?;
        Ok(rustix::fs::fstat(&fd)?)
    }

    /// The names in a directory below this directory, without `.` and `..`.
    pub fn list(&self, relative: &Path) -> io::Result<Vec<OsString>> {
        use std::os::unix::ffi::OsStringExt;
        if let Access::Lent(number, lender) = &self.access {
            return lender.list(&SourcePath::in_dir(*number, relative));
        }
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

/// Where a file is to be found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourcePath {
    /// 0 is the directory that was scanned, n the nth further one.
    pub dir: u16,
    /// Relative to that directory.
    #[serde(with = "bytes_of_path")]
    pub path: PathBuf,
}

impl SourcePath {
    /// Below the directory itself.
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

/// Paths as they are: serde's own form has to be text.
pub mod bytes_of_path {
    use std::ffi::OsStr;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(OsStr::as_bytes(path.as_os_str()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let bytes: Vec<u8> = serde_bytes::deserialize(from)?;
        Ok(std::ffi::OsString::from_vec(bytes).into())
    }
}

/// Whether a path is the name of something in the directory itself: neither `.` nor `..`, nor of several parts.
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

/// One file that holds log bytes, open for reading, in the state in which the scan saw it. Of a file
/// whose bytes are those of several logs each log is a source by itself.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    path: PathBuf,
    identity: Identity,
    grows: bool,
    arrangement: Arrangement,
    /// Bytes read of it.
    read: AtomicU64,
    /// Where they are counted with those of others.
    stats: Option<Arc<Stats>>,
}

impl SourceFile {
    /// The file at `relative` below `directory`.
    pub fn open(dir: &SourceDir, relative: &Path) -> Result<Self> {
        let path = dir.full_path(relative);
        let opened = dir
            .open_file(relative)
            .and_then(|file| Ok((Identity::from(&file.metadata()?), file)));
        match opened {
            Ok((identity, file)) => Ok(SourceFile {
                file,
                path,
                identity,
                grows: false,
                arrangement: Arrangement::Whole,
                read: AtomicU64::new(0),
                stats: None,
            }),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    /// The file at a place of `directory`, or of one of its further ones.
    pub fn open_at(dir: &SourceDir, place: &SourcePath) -> Result<Self> {
        match dir.of(place) {
            Ok(dir) => Self::open(dir, &place.path),
            Err(e) => Err(Error::io(&place.path, e)),
        }
    }

    /// What is read of it counts in `stats`, too.
    pub fn counted_in(self, stats: Arc<Stats>) -> Self {
        SourceFile {
            stats: Some(stats),
            ..self
        }
    }

    /// With bytes that do not lie one after the other. Fails where that makes no sense.
    pub fn arranged(mut self, arrangement: Arrangement) -> Result<Self> {
        let checked = arrangement.check();
        let checked = checked.and_then(|()| arrangement.check_in(self.identity.size));
        checked.map_err(|e| Error::bad_file(&self.path, e))?;
        self.arrangement = arrangement;
        Ok(self)
    }

    pub fn arrangement(&self) -> &Arrangement {
        &self.arrangement
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

    /// How many bytes it had when it was opened; zeros after the end do not count.
    pub fn len(&self) -> u64 {
        self.arrangement.len(self.identity.size)
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

    /// How many bytes from `offset` on lie together in the file, at least as far as the source tells.
    pub fn together(&self, offset: u64) -> u64 {
        self.arrangement.locate(offset).map_or(0, |(_, left)| left)
    }

    /// Whether all of `len` bytes from `offset` on are there, as far as can be told without a look at the file.
    pub fn has(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        end.is_some_and(|end| end <= self.len()) && self.arrangement.has(offset, len)
    }

    /// Fills `buf` from `offset`; bytes past the end of the file are an error.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match &self.arrangement {
            Arrangement::Whole => self.read_file(buf, offset),
            Arrangement::ZerosAfter => {
                let there = self.len().saturating_sub(offset).min(buf.len() as u64);
                let (there, after) = buf.split_at_mut(there as usize);
                after.fill(0);
                match there.is_empty() {
                    true => Ok(()),
                    false => self.read_file(there, offset),
                }
            }
            arrangement => self.read_blocks(arrangement, buf, offset),
        }
    }

    fn read_blocks(&self, arrangement: &Arrangement, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let Some((place, left)) = arrangement.locate(at) else {
                let reason = format!("it has no bytes at {at}, of those that lie in blocks");
                let missing = io::Error::new(io::ErrorKind::UnexpectedEof, reason);
                return Err(Error::io(&self.path, missing));
            };
            let end = buf.len().min(done.saturating_add(left as usize));
            self.read_file(&mut buf[done..end], place)?;
            done = end;
        }
        Ok(())
    }

    fn read_file(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        if let Some(stats) = &self.stats {
            stats.log_bytes.add(buf.len() as u64);
        }
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

    fn numbered(len: u64) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        std::fs::write(dir.path().join("file"), &bytes).unwrap();
        (dir, bytes)
    }

    fn arranged(dir: &tempfile::TempDir, arrangement: Arrangement) -> SourceFile {
        let held = SourceDir::open(dir.path()).unwrap();
        let file = SourceFile::open(&held, Path::new("file")).unwrap();
        file.arranged(arrangement).unwrap()
    }

    fn read(source: &SourceFile, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0xff; len];
        let read = source.read_exact_at(&mut bytes, offset);
        read.ok().map(|()| bytes)
    }

    #[test]
    fn channels_of_a_striped_file_are_all_of_it() {
        for len in [0, 1, 4, 5, 11, 12, 13, 24, 25, 29] {
            let (dir, bytes) = numbered(len);
            let mut channels = Vec::new();
            for channel in 0..3 {
                let source = arranged(
                    &dir,
                    Arrangement::Striped {
                        block: 4,
                        channel,
                        channels: 3,
                    },
                );
                let all = source.len();
                let own = read(&source, 0, all as usize).unwrap();
                assert_eq!(read(&source, all, 1), None);
                if all > 5 {
                    assert_eq!(read(&source, 3, 3).unwrap(), own[3..6]);
                }
                channels.push(own.into_iter());
            }
            let mut whole = Vec::new();
            while whole.len() < bytes.len() {
                let number = whole.len() / 4 % 3;
                whole.extend(channels[number].by_ref().take(4));
            }
            assert_eq!(whole, bytes);
            assert!(channels.iter_mut().all(|rest| rest.next().is_none()));
        }
    }

    #[test]
    fn blocks_lie_anywhere_or_nowhere() {
        let (dir, bytes) = numbered(100);
        let source = arranged(
            &dir,
            Arrangement::Blocks {
                block: 10,
                at: vec![(0, 50), (1, 20), (3, 95)],
                len: 34,
            },
        );
        assert_eq!(source.len(), 34);
        let expected = [&bytes[55..60], &bytes[20..28]].concat();
        assert_eq!(read(&source, 5, 13), Some(expected));
        // Block 2 is nowhere, and block 3 is cut off.
        assert_eq!(read(&source, 19, 2), None);
        assert_eq!(read(&source, 30, 4), Some(bytes[95..99].to_vec()));
        assert_eq!(read(&source, 30, 5), None);
        assert_eq!(read(&source, u64::MAX, 1), None);
    }

    #[test]
    fn zeros_follow_where_nobody_has_written() {
        let (dir, bytes) = numbered(10);
        let source = arranged(&dir, Arrangement::ZerosAfter);
        let expected = [&bytes[8..], &[0; 3]].concat();
        assert_eq!(read(&source, 8, 5), Some(expected));
        assert_eq!(read(&source, 1 << 62, 2), Some(vec![0; 2]));
        assert_eq!(source.len(), 10);
    }

    #[test]
    fn blocks_that_are_missing_are_known() {
        let (dir, _) = numbered(40);
        let source = arranged(
            &dir,
            Arrangement::Blocks {
                block: 4,
                at: vec![(0, 8), (1, 0), (3, 20), (4, 24)],
                len: 18,
            },
        );
        for (offset, len) in (0..20).flat_map(|at| (1..20).map(move |len| (at, len))) {
            let there = read(&source, offset, len as usize).is_some();
            assert_eq!(source.has(offset, len), there, "{len} bytes at {offset}");
        }
        assert!(!source.has(0, u64::MAX) && !source.has(u64::MAX, 1));
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
