//! An open file.

use std::cmp::Ordering;
use std::ffi::c_ulong;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use h5logfs_catalog::direct::OpenLog;

use h5logfs_host::types::Address;

use crate::declared::{FEATURES, HOLDS_BACK, POSIX_HANDLE, PublicPart};
use crate::library::Library;
use crate::memory::Memory;
use h5logfs_common::fault::Fault;

/// An open file, of which libhdf5 knows the first part.
#[repr(C)]
#[derive(Debug)]
pub struct File {
    public: PublicPart,
    /// The libhdf5 that opened it. Identifiers and files of another one must not reach it.
    pub library: Library,
    pub content: Content,
}

/// What the file shows.
#[derive(Debug)]
pub enum Content {
    /// Its own bytes, through the default driver of the library.
    Plain(NonNull<PublicPart>),
    /// The canonical file of a log.
    Log(Log),
    /// A file in memory.
    Memory(Memory),
}

impl Content {
    /// A number that orders files of different kinds.
    pub fn kind(&self) -> u8 {
        match self {
            Content::Log(_) => 0,
            Content::Plain(_) => 1,
            Content::Memory(_) => 2,
        }
    }
}

/// The canonical file of a log.
#[derive(Debug)]
pub struct Log {
    pub path: PathBuf,
    pub open: OpenLog,
    /// A program wants to write to it, so nothing of it is read.
    pub is_refused: bool,
    /// A file that is open for writing leads to it, so it was opened for that, too, whether anything is to be written or
    /// not.
    pub is_inherited: bool,
    is_told: AtomicBool,
    /// The end of what libhdf5 has allocated. It keeps its files' ends in the drivers.
    allocated: AtomicU64,
}

impl File {
    pub fn new(library: Library, content: Content) -> Self {
        File {
            public: PublicPart::new(),
            library,
            content,
        }
    }
}

impl Log {
    pub fn new(path: PathBuf, open: OpenLog, is_refused: bool) -> Self {
        Log {
            path,
            open,
            is_refused,
            is_inherited: false,
            is_told: AtomicBool::new(false),
            allocated: AtomicU64::new(0),
        }
    }

    /// What the program is told, once, of a write that is lost. libhdf5 holds back what is written, and uses what it has
    /// freed if that fails where it gives the file up: so the write succeeds.
    pub fn lost(&self) -> Option<String> {
        let is_told = self.is_told.swap(true, Relaxed);
        (!is_told).then(|| format!("what was written by a link is lost: {}", self.read_only()))
    }

    /// Orders logs. libhdf5 shows a file that it has open already in place of an equal one, and a log that has grown is another
    /// file. What is opened for writing is only looked for.
    pub fn compare(&self, other: &Self) -> Ordering {
        let (state, others) = (self.open.state(), other.open.state());
        if self.is_refused || other.is_refused {
            return state.compare_files(others);
        }
        state.cmp(others)
    }

    /// What the driver can do with it.
    pub fn features(&self) -> c_ulong {
        // A write to the superblock is told from others.
        let lacking = if self.is_inherited { HOLDS_BACK } else { 0 };
        FEATURES & !POSIX_HANDLE & !lacking
    }

    pub fn allocated(&self) -> Address {
        self.allocated.load(Relaxed)
    }

    pub fn set_allocated(&self, address: Address) {
        self.allocated.store(address, Relaxed);
    }

    /// Fills `buf`, past the end of the file with zeros, as the default driver does.
    pub fn read(&self, at: Address, buf: &mut [u8]) -> Result<(), Fault> {
        if self.is_refused {
            return Err(self.read_only().into());
        }
        let count = self.open.read_at(at, buf)?;
        buf[count..].fill(0);
        Ok(())
    }

    /// Why nothing is written to it.
    pub fn read_only(&self) -> String {
        read_only(&self.path)
    }

    /// Why it has no descriptor.
    pub fn no_descriptor(&self) -> String {
        format!(
            "{}: this is a log: a descriptor would give its own bytes, not those of the HDF5 file that is read",
            self.path.display()
        )
    }
}

/// Why nothing is written to the log at a path.
pub fn read_only(path: &Path) -> String {
    format!(
        "{}: this is a log, which HDF5 programs can only read: open it for reading, or make an HDF5 file of it with \
         `h5logfs export`",
        path.display()
    )
}
