//! Open files and directories.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::view::View;

use super::mirror::Listed;

#[derive(Debug)]
pub enum Handle {
    /// The view as it was when the file was opened, whatever becomes of the log.
    View(Arc<View>),
    Plain {
        file: File,
        /// For messages only.
        path: PathBuf,
    },
    Directory(Directory),
    /// A virtual file as it was when it was opened.
    Virtual(Vec<u8>),
    VirtualDirectory,
}

impl Handle {
    /// Fills `buf` from `offset`, as far as there are bytes before the end of the file. The kernel
    /// takes a shorter answer for the end of the file.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self {
            Handle::View(view) => view.read_at(offset, buf),
            Handle::Plain { file, path } => {
                read_full(file, offset, buf).map_err(|e| Error::io(path, e))
            }
            Handle::Directory(directory) => {
                Err(Error::io(&directory.path, rustix::io::Errno::ISDIR.into()))
            }
            Handle::Virtual(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let left = bytes.get(from..).unwrap_or_default();
                let len = left.len().min(buf.len());
                buf[..len].copy_from_slice(&left[..len]);
                Ok(len)
            }
            Handle::VirtualDirectory => Err(Error::io("", rustix::io::Errno::ISDIR.into())),
        }
    }
}

fn read_full(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// An open directory, and its names as they were when reading last began.
#[derive(Debug)]
pub struct Directory {
    pub fd: OwnedFd,
    pub path: PathBuf,
    listing: Mutex<Arc<Vec<Listed>>>,
}

impl Directory {
    pub fn new(fd: OwnedFd, path: PathBuf) -> Self {
        Directory {
            fd,
            path,
            listing: Mutex::default(),
        }
    }

    /// Positions stay valid while the directory changes because they count in one listing;
    /// reading from the start (`rewinddir`) makes a new one.
    pub fn listing(
        &self,
        from_start: bool,
        list: impl FnOnce() -> Result<Vec<Listed>>,
    ) -> Result<Arc<Vec<Listed>>> {
        if from_start {
            let fresh = Arc::new(list()?);
            *self.listing.lock() = fresh.clone();
            return Ok(fresh);
        }
        Ok(self.listing.lock().clone())
    }
}

#[derive(Debug, Default)]
pub struct Handles {
    last: AtomicU64,
    open: RwLock<HashMap<u64, Arc<Handle>>>,
}

impl Handles {
    pub fn insert(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(handle));
        number
    }

    pub fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.read().get(&number).cloned()
    }

    /// The handle goes when the last request that uses it is done.
    pub fn remove(&self, number: u64) {
        let removed = self.open.write().remove(&number);
        // Closing may take a while: not under the lock.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn plain_files_are_read_up_to_their_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let handle = Handle::Plain {
            file,
            path: "f".into(),
        };
        let mut buf = [0; 8];
        assert_eq!(handle.read(0, &mut buf).unwrap(), 8);
        assert_eq!(handle.read(6, &mut buf).unwrap(), 4);
        assert_eq!(&buf[..4], b"6789");
        assert_eq!(handle.read(10, &mut buf).unwrap(), 0);
    }

    #[test]
    fn virtual_files_are_read_in_pieces() {
        let handle = Handle::Virtual(b"0123456789".to_vec());
        let mut buf = [0; 8];
        assert_eq!(handle.read(0, &mut buf).unwrap(), 8);
        assert_eq!(handle.read(8, &mut buf).unwrap(), 2);
        assert_eq!(&buf[..2], b"89");
        assert_eq!(handle.read(11, &mut buf).unwrap(), 0);
    }

    #[test]
    fn handles_have_numbers_of_their_own() {
        let handles = Handles::default();
        let plain = || Handle::Plain {
            file: tempfile::tempfile().unwrap(),
            path: "f".into(),
        };
        let (a, b) = (handles.insert(plain()), handles.insert(plain()));
        assert_ne!(a, b);
        handles.remove(a);
        assert!(handles.get(a).is_none());
        assert!(handles.get(b).is_some());
    }
}
