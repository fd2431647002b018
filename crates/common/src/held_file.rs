//! Files that stay open in a process that may belong to others.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{DupFlags, dup3};

/// A file or directory that stays open for long. A program that closes all descriptors that it does not know closes this
/// one, too, and its number may then lead to a file of that program: that one is never closed from here.
#[derive(Debug)]
pub struct HeldFile {
    /// `None` only while it is dropped.
    file: Option<File>,
    inode: Inode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode {
    device: (u32, u32),
    number: u64,
}

impl Inode {
    /// That of an open file, as this machine knows it: a file server may be away, or know the file no longer.
    fn of(file: impl AsFd) -> io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(file, "", flags, StatxFlags::INO)?;
        Ok(Inode {
            device: (found.stx_dev_major, found.stx_dev_minor),
            number: found.stx_ino,
        })
    }
}

impl HeldFile {
    /// Holds `file`. Fails where its inode cannot be told.
    pub fn new(file: File) -> io::Result<Self> {
        Ok(HeldFile {
            inode: Inode::of(&file)?,
            file: Some(file),
        })
    }

    /// Whether the descriptor still is that of the file that was opened.
    pub fn is_there(&self) -> bool {
        Inode::of(self.as_fd()).is_ok_and(|now| now == self.inode)
    }

    /// Whether the file has no name left, as far as this machine knows: its space is free when nobody has it open.
    pub fn is_unlinked(&self) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(self.as_fd(), "", flags, StatxFlags::NLINK);
        found.is_ok_and(|found| found.stx_nlink == 0)
    }

    /// Puts another opening of the same file in the place of this one, at once for all threads that use it. Fails where it
    /// is another file.
    pub fn replace_by(&self, again: File) -> io::Result<()> {
        if Inode::of(&again)? != self.inode {
            return Err(io::Error::other("another file has taken its name"));
        }
        if !self.is_there() {
            return Err(io::Error::other("the program has closed its descriptor"));
        }
        // SAFETY: The number is that of an open file that belongs to `self`, and it is not closed here. `dup3` lets it refer
        // to another one in one step, so that whoever borrows it meanwhile has an open file throughout.
        let own = unsafe { OwnedFd::from_raw_fd(self.as_raw_fd()) };
        dup3(&again, &mut ManuallyDrop::new(own), DupFlags::CLOEXEC)?;
        Ok(())
    }
}

impl Deref for HeldFile {
    type Target = File;

    fn deref(&self) -> &File {
        let file = self.file.as_ref();
        file.unwrap_or_else(|| unreachable!("a file that is being dropped is not used"))
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        if self.is_there() {
            return;
        }
        if let Some(file) = self.file.take() {
            // The number is no longer ours.
            let _ = file.into_raw_fd();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let held = HeldFile::new(file.reopen().unwrap()).unwrap();
        let number = held.as_raw_fd();
        let link = format!("/proc/self/fd/{number}");
        assert_eq!(std::fs::read_link(&link).unwrap(), file.path());
        drop(held);
        assert!(std::fs::read_link(&link).map_or(true, |now| now != file.path()));
    }

    #[test]
    fn a_file_without_a_name_is_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let held = HeldFile::new(file.reopen().unwrap()).unwrap();
        assert!(!held.is_unlinked());
        file.close().unwrap();
        assert!(held.is_unlinked() && held.is_there());
    }

    #[test]
    fn another_opening_of_the_file_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let held = HeldFile::new(File::open(&path).unwrap()).unwrap();
        let number = held.as_raw_fd();
        let mut begin = [0; 2];
        (&*held).read_exact(&mut begin).unwrap();
        held.replace_by(File::open(&path).unwrap()).unwrap();
        (&*held).read_exact(&mut begin).unwrap();
        // It is another opening, which has read nothing yet.
        assert_eq!((&begin, held.as_raw_fd()), (b"te", number));
        let other = dir.path().join("other");
        std::fs::write(&other, "text").unwrap();
        assert!(held.replace_by(File::open(&other).unwrap()).is_err());
        assert!(held.is_there());
    }
}
