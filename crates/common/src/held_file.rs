//! Files that stay open in a process owned by another program.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{DupFlags, dup3};

/// A file or directory that stays open for a long time. A host program may close all descriptors that it does not know,
/// and reuse the number of this one for a file of its own. `HeldFile` never closes that file.
#[derive(Debug)]
pub struct HeldFile {
    /// `None` only during the drop.
    file: Option<File>,
    inode: Inode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode {
    device: (u32, u32),
    number: u64,
}

impl Inode {
    /// The identity of an open file, as this node knows it. A file server may be away, or may no longer know the file.
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
    /// Holds `file`. Fails if its inode cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        Ok(HeldFile {
            inode: Inode::of(&file)?,
            file: Some(file),
        })
    }

    /// Whether the descriptor still belongs to the opened file.
    pub fn is_there(&self) -> bool {
        Inode::of(self.as_fd()).is_ok_and(|now| now == self.inode)
    }

    /// Whether the file has no name left, as far as this node knows. Its space is freed when the last descriptor
    /// closes.
    pub fn is_unlinked(&self) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(self.as_fd(), "", flags, StatxFlags::NLINK);
        found.is_ok_and(|found| found.stx_nlink == 0)
    }

    /// Replaces this descriptor by another one of the same file, at once for all threads that use it. Fails if `again` is
    /// another file.
    pub fn replace_by(&self, again: File) -> io::Result<()> {
        if Inode::of(&again)? != self.inode {
            return Err(io::Error::other("another file has its name now"));
        }
        if !self.is_there() {
            return Err(io::Error::other("the program has closed its descriptor"));
        }
        // SAFETY: `self` owns the number, which refers to an open file and is not closed here. `dup3` redirects it in
        // one step, so a thread that borrows it meanwhile has an open file throughout.
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
            // The host has reused the number.
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
        // The new descriptor starts at the beginning of the file.
        assert_eq!((&begin, held.as_raw_fd()), (b"te", number));
        let other = dir.path().join("other");
        std::fs::write(&other, "text").unwrap();
        assert!(held.replace_by(File::open(&other).unwrap()).is_err());
        assert!(held.is_there());
    }
}
