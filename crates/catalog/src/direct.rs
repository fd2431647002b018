//! Opens single logs in the process that reads them: for plug-ins and libraries, in a host that does not know us.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::source_dir::SourceDir;
use h5logfs_core::view::View;
use h5logfs_core::view::cache::MemoryLimits;

use crate::Catalog;
use crate::workers::{Limits, WorkerPool};

/// How logs are opened and scanned. Two lists of options that say the same are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {}

impl Options {
    /// Parses options as `mount -o` takes them: `cache_size=1G,chunk=4M`. Fails with a sentence that names the option.
    pub fn parse(list: &OsStr) -> Result<Self, String> {
        if list.is_empty() {
            return Ok(Options::default());
        }
        Err(format!("unknown option {}", list.display()))
    }
}

/// What a path leads to.
#[derive(Debug)]
pub enum Opened {
    /// No log: the file is what its bytes are. Also a path that leads to no regular file, or to nothing.
    Plain,
    /// A log, open as its canonical HDF5 file.
    Log(OpenLog),
}

/// An open log. Threads share it.
#[derive(Debug)]
pub struct OpenLog {
    view: Arc<View>,
}

impl OpenLog {
    /// The canonical file.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Bytes of the canonical file.
    pub fn len(&self) -> u64 {
        self.view.len()
    }

    /// Whether the canonical file has no bytes, which none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from the byte `offset` of the canonical file on. Returns how many bytes were read: fewer than asked
    /// for only at the end of the file.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.view.read_at(offset, buf)
    }
}

/// Opens what is at `path`, in its present state. Fails for a log that cannot be presented.
pub fn open(path: &Path, _options: &Options) -> Result<Opened> {
    if !path.is_file() {
        return Ok(Opened::Plain);
    }
    let (dir, name) = SourceDir::of_file(path)?;
    let pool = WorkerPool::start(Limits::default())?;
    let catalog = Catalog::new(dir, MemoryLimits::default(), pool);
    match catalog.open(&name) {
        Ok(view) => Ok(Opened::Log(OpenLog { view })),
        Err(Error::NotALog { .. }) => Ok(Opened::Plain),
        Err(error) => Err(error),
    }
}
