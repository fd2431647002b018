//! A file that a job holds open, with the name that must lead to it. A job that continued after another file has
//! taken the name would write to a file that nobody finds.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, Statx, StatxFlags, flock,
    renameat_with, statx,
};
use rustix::io::Errno;

use super::{SUFFIX, path_of};
use crate::file_id::FileId;
use crate::logvol::names::{SPILL_DIR, SUBFILE_DIR};
use crate::own_parts::is_unfinished;
use crate::rights;

/// An open file and its name. While it is open, no other file can get its inode number.
#[derive(Debug)]
pub struct HeldFile {
    file: Arc<File>,
    path: PathBuf,
    inode: Inode,
}

/// The identity of a file.
#[derive(Debug, PartialEq, Eq)]
struct Inode {
    device_major: u32,
    device_minor: u32,
    number: u64,
}

impl HeldFile {
    /// An open file that `path` leads to.
    pub fn new(file: File, path: PathBuf) -> io::Result<Self> {
        let inode = Inode::of(file.as_fd(), Path::new(""), AtFlags::EMPTY_PATH)?;
        let file = Arc::new(file);
        Ok(HeldFile { file, path, inode })
    }

    /// An open file whose metadata is known.
    pub fn known(file: Arc<File>, path: PathBuf, found: &Metadata) -> Self {
        let inode = Inode {
            device_major: rustix::fs::major(found.dev()),
            device_minor: rustix::fs::minor(found.dev()),
            number: found.ino(),
        };
        HeldFile { file, path, inode }
    }

    /// Creates a file whose first visible content is that from `begin`. Until then it has a temporary name with
    /// `number` in it. With `replace` the file replaces an existing one atomically once it is on disk: a crash of the
    /// system leaves the old or the new file. Without `replace` an existing file is an error.
    pub fn create(
        path: &Path,
        number: &str,
        replace: bool,
        begin: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let (new, file) = create_hidden(path, number)?;
        let begun = give_rights(&file, path, replace).and_then(|()| begin(&file));
        let placed = begun.and_then(|()| {
            if replace {
                file.sync_all()?;
                std::fs::rename(&new, path)
            } else {
                rename_without_replacing(&new, path)
            }
        });
        if let Err(e) = placed {
            let _ = std::fs::remove_file(&new);
            return Err(e);
        }
        Self::new(file, path.to_owned())
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The inode number, which is the same on all nodes.
    pub fn number(&self) -> u64 {
        self.inode.number
    }

    /// Fails where the name leads to another file, or to none. This is one system call, which does not ask for the
    /// size: parallel file systems must ask all servers for that. If a file system gives no answer, nothing is
    /// proven, so this is no failure.
    pub fn check_name(&self) -> io::Result<()> {
        match Inode::of(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(inode) if inode != self.inode => {
                Err(io::Error::other("another file has its name now"))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "it was moved or removed",
            )),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn swap_file(&mut self, file: impl Into<Arc<File>>) -> Arc<File> {
        std::mem::replace(&mut self.file, file.into())
    }
}

/// The part of a temporary name between the final name and a number.
const NEW: &str = ".h5logfs-new-";

/// The most attempts to find a free name.
const MOST_ATTEMPTS: u32 = 1000;

/// The longest temporary name of a file beside the log at `log`: that of a new journal.
pub fn longest_beside(log: &Path) -> PathBuf {
    hidden(&path_of(log), &FileId::default().number(), 0)
}

/// The temporary name of a file that will be at `path`.
fn hidden(path: &Path, number: &str, attempt: u32) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!("{NEW}{number}"));
    if attempt > 0 {
        name.push(format!("-{attempt}"));
    }
    path.with_file_name(name)
}

/// Gives a new file for `path` the permissions of its log, or of the file that it replaces.
fn give_rights(new: &File, path: &Path, replace: bool) -> io::Result<()> {
    let log = log_of(path).filter(|log| log.symlink_metadata().is_ok_and(|log| log.is_file()));
    match log {
        Some(log) => rights::limit(new, &log),
        None if replace && path.symlink_metadata().is_ok() => rights::take_over(new, path),
        None => Ok(()),
    }
}

/// The log that the file at `path` belongs to, by its name.
pub fn log_of(path: &Path) -> Option<PathBuf> {
    let begin_of = |name: &OsStr, suffix: &str| {
        let name = name.as_bytes().strip_suffix(suffix.as_bytes())?;
        (!name.is_empty()).then(|| OsStr::from_bytes(name).to_owned())
    };
    let name = path.file_name()?;
    // Some names have a number.
    let bytes = name.as_bytes();
    let digits = bytes.iter().rev().take_while(|b| b.is_ascii_digit());
    let without_number = bytes[..bytes.len() - digits.count()].strip_suffix(b"-");
    let names = [Some(name), without_number.map(OsStr::from_bytes)];
    let mut names = names.into_iter().flatten();
    let beside = names
        .find_map(|name| begin_of(name, SUFFIX).or_else(|| begin_of(name, super::kept::SUFFIX)));
    if let Some(log) = beside {
        return Some(path.with_file_name(log));
    }
    let dir = path.parent()?;
    let name = dir.file_name()?;
    let log = begin_of(name, SUBFILE_DIR).or_else(|| begin_of(name, SPILL_DIR))?;
    Some(dir.with_file_name(log))
}

/// Creates a file beside `path` under a free name. A process that died while it created a file may have left its name
/// in use.
fn create_hidden(path: &Path, number: &str) -> io::Result<(PathBuf, File)> {
    let mut attempt = 0;
    loop {
        let new = hidden(path, number, attempt);
        match File::create_new(&new) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < MOST_ATTEMPTS => {
                attempt += 1;
            }
            created => return created.map(|file| (new, file)),
        }
    }
}

/// Removes the temporary files with these final names that dead processes have left in a directory. A locked file is
/// still being created. A file that does not begin like one of ours belongs to a user.
pub fn remove_left_behind(dir: &Path, is_name: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let has_name = name_to_be(&entry.file_name()).is_some_and(&is_name);
        if !has_name || !is_unfinished(&entry.path())? {
            continue;
        }
        // NFS locks only files that are open for writing.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(entry.path(), flags, Mode::empty())?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The final name of a file with a temporary name.
fn name_to_be(hidden: &OsStr) -> Option<&OsStr> {
    let name = hidden.as_bytes().strip_prefix(b".")?;
    let end = name
        .windows(NEW.len())
        .rposition(|part| part == NEW.as_bytes())?;
    Some(OsStr::from_bytes(&name[..end]))
}

/// Renames a file to a name that must be free. Of several processes one succeeds, except where the file system has
/// neither such renames nor hard links.
pub fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => return Err(Errno::EXIST.into()),
        // NFS and others lack such renames.
        Err(_) => {}
    }
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        // The name may be free again, and a third process may take it.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
        Err(_) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => std::fs::rename(from, to),
    }
}

/// The inode number of a file that is not held open. `None` where there is no such file, or it is not visible yet.
pub fn number_at(path: &Path) -> Option<u64> {
    let found = Inode::of(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    found.ok().map(|inode| inode.number)
}

impl Inode {
    fn of(dir: impl AsFd, path: &Path, flags: AtFlags) -> rustix::io::Result<Self> {
        let found: Statx = statx(dir, path, flags, StatxFlags::INO)?;
        Ok(Inode {
            device_major: found.stx_dev_major,
            device_minor: found.stx_dev_minor,
            number: found.stx_ino,
        })
    }
}

/// Waits until the content of a file or directory is on disk.
pub fn sync(path: &Path) -> h5logfs_common::error::Result<()> {
    let synced = File::open(path).and_then(|f| f.sync_all());
    synced.map_err(|e| h5logfs_common::error::Error::io(path, e))
}

/// The directory of a file.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::unclosed_front;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let names = || fs::read_dir(dir.path()).unwrap().count();
        let create = |replace, text: &str| {
            HeldFile::create(&path, "17", replace, |mut file| {
                assert!(!path.exists() || fs::read_to_string(&path).unwrap() == "first");
                file.write_all(text.as_bytes())
            })
        };
        let first = create(false, "first").unwrap();
        first.check_name().unwrap();
        let exists = create(false, "second").unwrap_err();
        assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
        first.check_name().unwrap();
        let third = create(true, "third").unwrap();
        third.check_name().unwrap();
        first.check_name().unwrap_err();
        let full = || HeldFile::create(&path, "17", true, |_| Err(Errno::NOSPC.into()));
        full().unwrap_err();
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), names()),
            ("third".into(), 1)
        );
        fs::remove_file(&path).unwrap();
        full().unwrap_err();
        assert_eq!(names(), 0);
    }

    #[test]
    fn what_a_dead_process_left_is_in_nobodys_way_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let left = ["17", "17-1"].map(|end| dir.path().join(format!(".log{NEW}{end}")));
        // A file cut off in the first write, and one with a whole front.
        let front = unclosed_front(&FileId([7; 16]));
        fs::write(&left[0], &front[..9]).unwrap();
        fs::write(&left[1], &front).unwrap();
        // A user's files with names like ours.
        let users = ["18", "notes"].map(|end| dir.path().join(format!(".log{NEW}{end}")));
        fs::write(&users[0], "notes").unwrap();
        fs::create_dir(&users[1]).unwrap();
        let other = dir.path().join(format!(".other{NEW}17"));
        fs::write(&other, "").unwrap();
        let held = HeldFile::create(&path, "17", false, |_| Ok(())).unwrap();
        held.check_name().unwrap();
        // One file is still being created.
        let making = File::open(&left[1]).unwrap();
        flock(&making, FlockOperation::LockExclusive).unwrap();
        let remove = || remove_left_behind(dir.path(), |name| name == "log").unwrap();
        remove();
        assert!(!left[0].exists() && left[1].exists() && path.exists());
        drop(making);
        remove();
        assert!(!left[1].exists() && other.exists());
        assert!(users.iter().all(|user| user.exists()));
    }

    #[test]
    fn the_log_of_a_part_is_known_by_its_name() {
        for part in [
            "a.h5.h5logfs-journal",
            "a.h5.h5logfs-unflushed",
            "a.h5.h5logfs-unflushed-12",
            "a.h5.subfiles/b.h5.3",
            "a.h5.h5logfs-spill/0.1",
        ] {
            let log = log_of(&Path::new("/d").join(part));
            assert_eq!(log.as_deref(), Some(Path::new("/d/a.h5")), "{part}");
        }
        for other in ["a.h5", "a-2", ".h5logfs-journal", "/", "x/a.h5"] {
            assert_eq!(log_of(&Path::new("/d").join(other)), None, "{other}");
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let held = HeldFile::new(File::create(at("log")).unwrap(), at("log")).unwrap();
        held.check_name().unwrap();
        fs::rename(at("log"), at("away")).unwrap();
        let gone = held.check_name().unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound, "{gone}");
        // A link to the file is not the file.
        symlink("away", at("log")).unwrap();
        held.check_name().unwrap_err();
        fs::remove_file(at("log")).unwrap();
        File::create(at("log")).unwrap();
        let other = held.check_name().unwrap_err();
        assert!(other.to_string().contains("has its name now"), "{other}");
        fs::rename(at("away"), at("log")).unwrap();
        held.check_name().unwrap();
    }
}
