//! Open directories. A listing is read piece by piece, as the kernel asks for it, so a directory may have any number of
//! names.
//!
//! A position is the one that the source has for it, and the kernel gets the same. The source keeps it valid while the
//! directory changes.

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

/// What one call of the system returns of a directory, in bytes.
const PIECE: usize = 32 << 10;
/// The memory for pieces of all open directories, in bytes.
const MEMORY: u64 = 16 << 20;

/// One name in a directory.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: OsString,
    pub kind: FileType,
    pub inode: u64,
    /// The position after it.
    pub next: u64,
}

/// In the position after a name that the source does not have, and that stands in front of the name at the position itself. No
/// source has such positions: they would be negative.
const BEFORE_NEXT: u64 = 1 << 63;

/// Where a listing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The position in the source.
    pub position: u64,
    /// What stands in front of the name there was listed.
    pub without_front: bool,
}

impl From<u64> for Start {
    /// From what the kernel asks for.
    fn from(position: u64) -> Self {
        Start {
            position: position & !BEFORE_NEXT,
            without_front: position & BEFORE_NEXT != 0,
        }
    }
}

impl Listed {
    /// As the source has it, but of another kind.
    pub fn of_kind(&self, kind: FileType) -> Self {
        Listed {
            name: self.name.clone(),
            kind,
            ..*self
        }
    }

    /// A file of this name in front of it, where the name itself is at `position`.
    pub fn in_front(&self, name: OsString, position: u64) -> Self {
        Listed {
            name,
            kind: FileType::RegularFile,
            inode: self.inode,
            next: position | BEFORE_NEXT,
        }
    }

    /// Whether it is the directory itself, or the one above.
    pub fn is_dots(&self) -> bool {
        self.name == "." || self.name == ".."
    }
}

#[derive(Debug)]
pub struct Directory {
    pub fd: OwnedFd,
    pub path: PathBuf,
    /// The flush of which logs are shown in it; `None`: their present states.
    pub flush: Option<u64>,
    /// The number of its inode.
    pub inode: u64,
    /// Held while the descriptor is moved and read, since it has one position for all threads.
    reading: Mutex<()>,
    /// How many of its files are scanned next, before the kernel looks them up.
    ahead: AtomicUsize,
}

/// The number of listed files that are scanned ahead the first time, and at most.
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
        }
    }

    /// A path in it, in the state that it shows.
    pub fn at<'a>(&self, path: &'a Path) -> At<'a> {
        At {
            path,
            flush: self.flush,
        }
    }

    /// How many files are scanned ahead. A program that still looks names up when these are scanned will look up more, so
    /// it is twice as many the next time.
    pub fn scanned_ahead(&self) -> usize {
        let twice = |ahead: usize| Some((2 * ahead).min(MOST_AHEAD));
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        self.ahead
            .fetch_update(set, read, twice)
            .unwrap_or(FIRST_AHEAD)
    }

    /// The names that follow `position`: none at the end of the directory.
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
                // Zero would mean a deleted entry.
                inode: entry.ino().max(1),
                next: entry.next_entry_cookie(),
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

/// Names that follow each other in a directory.
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

    /// The names after a position; `None` where they are not in this piece.
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

/// What the allocator takes for itself, about.
const ALLOCATION: usize = 16;

/// The pieces of directories that were read last, by the numbers of their handles. What does not fit is read again.
#[derive(Debug)]
pub struct Pieces(Lru<u64, Arc<Recent>>);

/// The last two pieces: programs that ask for the attributes of names are behind those that read them.
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
    /// The piece with the names after `position`. `handle`: that of the directory. The start of a directory is always
    /// read: this is what `rewinddir` is for.
    pub fn get(
        &self,
        handle: u64,
        directory: &Directory,
        position: u64,
    ) -> Result<Arc<Piece>, Errno> {
        let known = self.0.get(&handle).filter(|_| position != 0);
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

    /// A piece that was read lately, and has `name` with names after it.
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
