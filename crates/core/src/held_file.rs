//! Files that stay open in a process that may belong to others.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;

/// A file or directory that stays open for long. A program that closes all descriptors that it does not know closes this
/// one, too, and its number may then lead to a file of that program: that one is never closed from here.
#[derive(Debug)]
pub(crate) struct HeldFile {
    /// `None` only while it is dropped.
    file: Option<File>,
    /// Device and inode number.
    identity: (u64, u64),
}

impl HeldFile {
    pub fn new(file: File) -> io::Result<Self> {
        Ok(HeldFile {
            identity: identity(&file)?,
            file: Some(file),
        })
    }

    /// Whether the descriptor still is that of the file that was opened.
    pub fn is_there(&self) -> bool {
        identity(self).is_ok_and(|now| now == self.identity)
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
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
    use std::os::fd::AsRawFd;

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
}
