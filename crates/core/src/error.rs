//! The one error type of the crate.
//!
//! Every variant carries what a user needs to find the fault: the file, the object, the reason.
//! `fs` alone turns one into an errno.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
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

    /// The same in a form that costs little to be remembered: what it says may be a file's own words, of any length.
    pub fn shortened(mut self) -> Self {
        match &mut self {
            Error::NotALog { path, reason }
            | Error::BadFile { path, reason }
            | Error::ScanDied { path, reason } => {
                shorten_path(path);
                shorten(reason);
            }
            Error::BadData {
                path,
                dataset,
                place,
                reason,
            } => {
                shorten_path(path);
                [dataset, place, reason].into_iter().for_each(shorten);
            }
            Error::Io { path, .. } | Error::Changed { path } => shorten_path(path),
            Error::Remembered(_) => {}
        }
        self
    }
}

/// Bytes of a reason; more than a line of the log has.
const LONGEST_REASON: usize = 4096;

/// More bytes than any path has that the system knows.
const LONGEST_PATH: usize = 16 << 10;

fn shorten_path(path: &mut PathBuf) {
    if let Some(start) = path.as_os_str().as_bytes().get(..LONGEST_PATH) {
        *path = OsStr::from_bytes(start).into();
    }
}

fn shorten(reason: &mut String) {
    if reason.len() > LONGEST_REASON {
        let end = (0..=LONGEST_REASON).rfind(|end| reason.is_char_boundary(*end));
        reason.truncate(end.unwrap_or(0));
        reason.push('…');
        reason.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_short() {
        let reason = |text: String| match Error::bad_file("f", text).shortened() {
            Error::BadFile { reason, .. } => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason("torn".into()), "torn");
        let path = "a".repeat(1 << 20);
        let io = Error::io(path, std::io::ErrorKind::NotFound.into()).shortened();
        assert!(io.to_string().len() < 2 * LONGEST_PATH);
        let short = reason("ä".repeat(1 << 20));
        assert!(short.len() < LONGEST_REASON + 8 && short.capacity() < 2 * LONGEST_REASON);
        assert!(short.starts_with("ää") && short.ends_with("ä…"));
    }
}
