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

/// An open file. libhdf5 knows its first part.
#[repr(C)]
#[derive(Debug)]
pub struct File {
    public: PublicPart,
    /// The libhdf5 that opened it. Identifiers and files of another libhdf5 must not reach it.
    pub library: Library,
    pub content: Content,
}

/// The content of an open file.
#[derive(Debug)]
pub enum Content {
    /// A plain file, through the default driver of the library.
    Plain(NonNull<PublicPart>),
    /// The canonical file of a log.
    Log(CanonicalFile),
    /// A file in memory.
    Memory(Memory),
}

impl Content {
    /// A number that orders different kinds of files.
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
pub struct CanonicalFile {
    pub path: PathBuf,
    pub open: OpenLog,
    /// The file was opened for writing, so nothing of it is read.
    pub is_refused: bool,
    /// The file was opened for writing only because a file that leads to it is open for writing.
    pub is_inherited: bool,
    is_told: AtomicBool,
    /// End of the space that libhdf5 has allocated. libhdf5 stores it in the drivers.
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

impl CanonicalFile {
    pub fn new(path: PathBuf, open: OpenLog, is_refused: bool) -> Self {
        CanonicalFile {
            path,
            open,
            is_refused,
            is_inherited: false,
            is_told: AtomicBool::new(false),
            allocated: AtomicU64::new(0),
        }
    }

    /// The message about a lost write, for the first one. libhdf5 holds writes back, and uses freed memory if such a write
    /// fails while it closes the file. So the write succeeds.
    pub fn lost(&self) -> Option<String> {
        let is_told = self.is_told.swap(true, Relaxed);
        (!is_told).then(|| format!("data written through a link are lost: {}", self.read_only()))
    }

    /// Orders logs. libhdf5 reuses an open file that is equal to a new one, so a log that has grown is another file. A file
    /// opened for writing is only looked up.
    pub fn compare(&self, other: &Self) -> Ordering {
        let (state, others) = (self.open.state(), other.open.state());
        if self.is_refused || other.is_refused {
            return state.compare_files(others);
        }
        state.cmp(others)
    }

    /// Features of the driver for this log.
    pub fn features(&self) -> c_ulong {
        // With writes held back, a write to the superblock could not be told from others.
        let lacking = if self.is_inherited { HOLDS_BACK } else { 0 };
        FEATURES & !POSIX_HANDLE & !lacking
    }

    pub fn allocated(&self) -> Address {
        self.allocated.load(Relaxed)
    }

    pub fn set_allocated(&self, address: Address) {
        self.allocated.store(address, Relaxed);
    }

    /// Fills `buf`, with zeros past the end of the file, as the default driver does.
    pub fn read(&self, at: Address, buf: &mut [u8]) -> Result<(), Fault> {
        if self.is_refused {
            return Err(self.read_only().into());
        }
        let count = self.open.read_at(at, buf)?;
        buf[count..].fill(0);
        Ok(())
    }

    /// Why nothing can be written to it.
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

/// Why nothing can be written to the log at a path.
pub fn read_only(path: &Path) -> String {
    format!(
        "{}: this is a log, which HDF5 programs can only read: open it for reading, or make an HDF5 file of it with \
         `h5logfs export`",
        path.display()
    )
}
