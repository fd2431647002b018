//! The descriptor of a log file, for programs that ask for one.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

/// An open descriptor of the log file. Its address stays valid while the log is open. It is read-only: only the connector knows
/// where to write.
#[derive(Debug)]
pub struct Descriptor {
    number: c_int,
    /// Open as long as this structure.
    _file: File,
}

impl Descriptor {
    /// Opens the file at a path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Descriptor {
            number: file.as_raw_fd(),
            _file: file,
        })
    }

    /// The address of the descriptor.
    pub fn place(&self) -> *const c_void {
        ptr::from_ref(&self.number).cast()
    }
}
