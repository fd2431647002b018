//! Open directories. A listing is read piece by piece as the kernel asks for it, so a directory may have any number of names.
//!
//! Positions are those of the source, and the kernel gets them unchanged. The source keeps them valid while the directory
//! changes.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Errno;

use h5logfs_catalog::At;
use h5logfs_common::lru::Lru;

use super::place::Place;

/// Bytes of a directory returned by one system call.
const PIECE: usize = 32 << 10;
/// Memory for pieces of all open directories, in bytes.
const MEMORY: u64 = 16 << 20;

/// A name in a directory.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: OsString,
    pub kind: FileType,
    pub inode: u64,
    /// Position after the name.
    pub next: u64,
    /// Whether the name is that of a file which a set of files makes up. Its attributes may take a scan of many files.
    pub is_joined: bool,
}

/// Flag in the position after an added name, which precedes the name at the position itself. No source has such positions:
/// they would be negative.
const BEFORE_NEXT: u64 = 1 << 63;

/// The start of a listing's next part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Position in the source.
    pub position: u64,
    /// Whether the added name before that position was already listed.
    pub without_front: bool,
}

impl From<u64> for Start {
    /// Decodes a position from the kernel.
    fn from(position: u64) -> Self {
        Start {
            position: position & !BEFORE_NEXT,
            without_front: position & BEFORE_NEXT != 0,
        }
    }
}

impl Listed {
    /// The name with another kind.
    pub fn of_kind(&self, kind: FileType) -> Self {
        Listed {
            name: self.name.clone(),
            kind,
            ..*self
        }
    }

    /// A file in place of this name.
    pub fn as_file(&self, name: OsString) -> Self {
        Listed {
            name,
            kind: FileType::RegularFile,
            ..*self
        }
    }

    /// An added file with this name, placed before the name at `position`.
    pub fn in_front(&self, name: OsString, position: u64) -> Self {
        Listed {
            name,
            kind: FileType::RegularFile,
            inode: self.inode,
            next: position | BEFORE_NEXT,
            is_joined: false,
        }
    }

    /// Whether the name is `.` or `..`.
    pub fn is_dots(&self) -> bool {
        self.name == "." || self.name == ".."
    }
}

#[derive(Debug)]
pub struct Directory {
    pub fd: OwnedFd,
    pub path: PathBuf,
    /// The flush whose logs the directory shows; `None`: their present states.
    pub flush: Option<u64>,
    /// Inode number.
    pub inode: u64,
    /// Held while the descriptor is moved and read: its position is shared by all threads.
    reading: Mutex<()>,
    /// Number of files to scan ahead of the kernel's look-ups.
    ahead: AtomicUsize,
    /// See [`Directory::joined`]. The lock is held while the sets are looked for, because waiting threads would do the same.
    joined: Mutex<Option<Arc<JoinedNames>>>,
}

/// The joined names of sets, by the names of first members.
pub type JoinedNames = HashMap<OsString, OsString>;

/// The number of listed files scanned ahead: first, and at most.
const FIRST_AHEAD: usize = 128;
const MOST_AHEAD: usize = 1024;

impl Directory {
    pub fn new(fd: OwnedFd, place: Place, inode: u64) -> Self {
        Directory {
            fd,
            path: place.path,
            flush: place.flush,
            inode,
            reading: Mutex::default(),
            ahead: AtomicUsize::new(FIRST_AHEAD),
            joined: Mutex::default(),
        }
    }

    /// The joined names, which `find` finds once for each listing from the start of the directory.
    pub fn joined(&self, find: impl FnOnce() -> JoinedNames) -> Arc<JoinedNames> {
        Arc::clone(self.joined.lock().get_or_insert_with(|| Arc::new(find())))
    }

    /// A path in the directory, in the state that it shows.
    pub fn at<'a>(&self, path: &'a Path) -> At<'a> {
        At {
            path,
            flush: self.flush,
        }
    }

    /// Number of files to scan ahead. It doubles each time, because a program that is still looking up names then will look
    /// up more.
    pub fn scanned_ahead(&self) -> usize {
        let twice = |ahead: usize| Some((2 * ahead).min(MOST_AHEAD));
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        self.ahead
            .fetch_update(set, read, twice)
            .unwrap_or(FIRST_AHEAD)
    }

    /// The names after `position`: none at the end of the directory.
    fn read(&self, position: u64) -> Result<Piece, Errno> {
        let _one_at_a_time = self.reading.lock();
        seek(&self.fd, SeekFrom::Start(position))?;
        let mut buffer = Vec::with_capacity(PIECE);
        let mut entries = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            names.push(Listed {
                name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
                kind: entry.file_type(),
                // Inode number 0 would mean a deleted entry.
                inode: entry.ino().max(1),
                next: entry.next_entry_cookie(),
                is_joined: false,
            });
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(Piece {
            start: position,
            names,
        })
    }
}

/// Consecutive names of a directory.
#[derive(Debug)]
pub struct Piece {
    start: u64,
    names: Vec<Listed>,
}

impl Piece {
    /// The names at the start of a directory.
    pub fn from_start(names: Vec<Listed>) -> Self {
        Piece { start: 0, names }
    }

    /// The names after a position; `None` if they are not in this piece.
    pub fn after(&self, position: u64) -> Option<&[Listed]> {
        if position == self.start {
            return Some(&self.names);
        }
        let before = self.names.iter().position(|name| name.next == position)?;
        let after = &self.names[before + 1..];
        (!after.is_empty()).then_some(after)
    }

    pub fn after_name(&self, name: &OsStr) -> Option<&[Listed]> {
        let at = self.names.iter().position(|listed| listed.name == name)?;
        Some(&self.names[at + 1..])
    }

    fn memory(&self) -> u64 {
        let names = self.names.iter();
        let bytes = names.map(|listed| size_of::<Listed>() + listed.name.capacity() + ALLOCATION);
        (bytes.sum::<usize>() + size_of::<Self>()) as u64
    }
}

/// Approximate overhead of an allocation.
const ALLOCATION: usize = 16;

/// The most recent pieces of directories, by handle. Other pieces are read again.
#[derive(Debug)]
pub struct Pieces(Lru<u64, Arc<Recent>>);

/// The last two pieces: requests for attributes lag behind those for names.
#[derive(Debug)]
struct Recent {
    last: Arc<Piece>,
    before: Option<Arc<Piece>>,
}

impl Recent {
    fn memory(&self) -> u64 {
        let before = self.before.as_ref().map_or(0, |before| before.memory());
        self.last.memory() + before
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces(Lru::new(MEMORY))
    }
}

impl Pieces {
    /// The piece with the names after `position` of the directory `handle`. The start of a directory is always read again, as
    /// `rewinddir` requires.
    pub fn get(
        &self,
        handle: u64,
        directory: &Directory,
        position: u64,
    ) -> Result<Arc<Piece>, Errno> {
        let known = self.0.get(&handle).filter(|_| position != 0);
        if position == 0 {
            *directory.joined.lock() = None;
        }
        if let Some(recent) = &known
            && recent.last.after(position).is_some()
        {
            return Ok(Arc::clone(&recent.last));
        }
        let piece = Arc::new(directory.read(position)?);
        let recent = Recent {
            last: Arc::clone(&piece),
            before: known.map(|recent| Arc::clone(&recent.last)),
        };
        let weight = recent.memory();
        self.0.insert(handle, Arc::new(recent), weight);
        Ok(piece)
    }

    /// A recent piece that contains `name`, with names after it.
    pub fn with(&self, handle: u64, name: &OsStr) -> Option<Arc<Piece>> {
        let recent = self.0.get(&handle)?;
        let mut pieces = recent.before.iter().chain([&recent.last]);
        pieces
            .find(|piece| piece.after_name(name).is_some())
            .cloned()
    }

    pub fn remove(&self, handle: u64) {
        self.0.remove(&handle);
    }
}
