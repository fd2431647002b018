//! The one error type of the crate.
//!
//! Every variant carries what a user needs to find the fault: the file, the object, the reason.
//! `fs` alone turns one into an errno.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused: opening, reading, listing.
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },

    /// The file is none that this crate presents: another kind of file, or a plain HDF5 file.
    #[error("{}: not a log file: {reason}", path.display())]
    NotALog { path: PathBuf, reason: String },

    /// A log file that cannot be presented at all.
    #[error("{}: {reason}", path.display())]
    BadFile { path: PathBuf, reason: String },

    /// Bytes of one dataset that cannot be had.
    #[error("{}: dataset {dataset}: {place}: {reason}", path.display())]
    BadData {
        path: PathBuf,
        dataset: String,
        /// Where in the dataset: a chunk, or "all of it".
        place: String,
        reason: String,
    },

    /// The process that scanned the file came to no end of its own.
    #[error("{}: it cannot be scanned: {reason}", path.display())]
    ScanDied { path: PathBuf, reason: String },

    /// The file would have to be scanned first, and who asked does not wait for that.
    #[error("{}: not scanned yet", path.display())]
    Unscanned { path: PathBuf },

    /// The outcome of an earlier attempt at the same state of the same file.
    #[error("{0}")]
    Remembered(Arc<Error>),

    /// The log changed after this view of it was opened.
    #[error("{}: changed since it was opened", path.display())]
    Changed { path: PathBuf },
}

impl Error {
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Error::Io {
            path: path.into(),
            cause: source,
        }
    }

    pub fn bad_file(path: impl Into<PathBuf>, reason: impl ToString) -> Self {
        Error::BadFile {
            path: path.into(),
            reason: reason.to_string(),
        }
    }
}
