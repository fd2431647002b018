//! Errors about a log file: a [`Fault`] with the file, and the object, concerned.
//!
//! Every variant names the file, the object and the reason, so that a user can find the cause. Only the file system
//! layer turns an error into an errno.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::fault::{Fault, Shortage, Stop};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure that concerns a log file. `path` is the file as a user knows it; `reason` is text for a person.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed: opening, reading, listing.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },

    /// Not a log file: a plain HDF5 file, or another kind of file.
    #[error("{}: not a log file: {reason}", path.display())]
    NotALog {
        /// The file.
        path: PathBuf,
        /// The reason why it is no log file.
        reason: String,
    },

    /// A log file that cannot be shown at all.
    #[error("{}: {reason}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },

    /// The requested state of a log does not exist.
    #[error("{}: {reason}", path.display())]
    NoFlush {
        /// The file.
        path: PathBuf,
        /// The states that exist.
        reason: String,
    },

    /// Elements of one dataset that cannot be read.
    #[error("{}: dataset {dataset}: {place}: {fault}", path.display())]
    BadData {
        /// The log file.
        path: PathBuf,
        /// Path of the dataset.
        dataset: String,
        /// The place in the dataset: a chunk, or "all of it".
        place: String,
        /// The reason why the elements cannot be read.
        fault: Fault,
    },

    /// The process that scanned the file crashed, or was killed for exceeding its limits.
    #[error("{}: it cannot be scanned: {reason}", path.display())]
    ScanDied {
        /// The file.
        path: PathBuf,
        /// How the process ended.
        reason: String,
    },

    /// The file needs memory that is not available: see [`memory`](crate::memory). Another attempt may succeed.
    #[error("{}: {shortage}", path.display())]
    NoMemory {
        /// The file.
        path: PathBuf,
        /// The missing amount, and the limit that applies.
        shortage: Shortage,
    },

    /// The work with the file was stopped before its end.
    #[error("{}: {why}", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: Stop,
    },

    /// The remembered error of an earlier scan of the same state of the same file.
    #[error("{0}")]
    Remembered(Arc<Error>),

    /// The log changed after its view was opened.
    #[error("{}: changed since it was opened", path.display())]
    Changed {
        /// The file that changed.
        path: PathBuf,
    },
}

impl Error {
    /// An [`Error::Io`].
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Error::Io {
            path: path.into(),
            cause: source,
        }
    }

    /// Adds the file `path` to `fault`. Damage becomes an [`Error::BadFile`].
    pub fn of(path: impl Into<PathBuf>, fault: impl Into<Fault>) -> Self {
        let path = path.into();
        match fault.into() {
            Fault::Damage(reason) | Fault::Refused(reason) | Fault::Told { text: reason, .. } => {
                Error::BadFile { path, reason }
            }
            Fault::TooLarge(too_large) => Error::BadFile {
                path,
                reason: too_large.to_string(),
            },
            Fault::NoMemory(shortage) => Error::NoMemory { path, shortage },
            Fault::Stopped(why) => Error::Stopped { path, why },
            Fault::Io { file, errno } => Error::io(file.unwrap_or(path), errno.into()),
            Fault::Changed { file } => Error::Changed { path: file },
        }
    }

    /// This error with its path replaced by `name(path)`.
    pub fn about(mut self, name: impl Fn(&Path) -> PathBuf) -> Self {
        match &mut self {
            Error::Io { path, .. }
            | Error::NotALog { path, .. }
            | Error::BadFile { path, .. }
            | Error::NoFlush { path, .. }
            | Error::BadData { path, .. }
            | Error::ScanDied { path, .. }
            | Error::NoMemory { path, .. }
            | Error::Stopped { path, .. }
            | Error::Changed { path } => *path = name(path),
            // Others share the remembered error.
            Error::Remembered(_) => {}
        }
        self
    }

    /// Whether a file server no longer knows an open file, for example because another node has removed or replaced it.
    /// Opening the path again may help.
    pub fn is_stale(&self) -> bool {
        let Error::Io { cause, .. } = self else {
            return false;
        };
        is_stale(cause)
    }

    /// Whether the file is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }

    /// This error with short texts, for a cache. Reasons may quote a file, at any length.
    pub fn shortened(mut self) -> Self {
        match &mut self {
            Error::NotALog { path, reason }
            | Error::BadFile { path, reason }
            | Error::NoFlush { path, reason }
            | Error::ScanDied { path, reason } => {
                shorten_path(path);
                shorten(reason);
            }
            Error::BadData {
                path,
                dataset,
                place,
                fault,
            } => {
                shorten_path(path);
                [dataset, place].into_iter().for_each(shorten);
                match fault {
                    Fault::Damage(reason)
                    | Fault::Refused(reason)
                    | Fault::Told { text: reason, .. } => shorten(reason),
                    Fault::Io { file, .. } => file.iter_mut().for_each(shorten_path),
                    Fault::Changed { file } => shorten_path(file),
                    Fault::TooLarge(_) | Fault::NoMemory(_) | Fault::Stopped(_) => {}
                }
            }
            Error::Io { path, .. }
            | Error::NoMemory { path, .. }
            | Error::Stopped { path, .. }
            | Error::Changed { path } => shorten_path(path),
            Error::Remembered(_) => {}
        }
        self
    }
}

/// Drops the object. The file stays where damage names it.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { path, cause } => match Fault::from(cause) {
                Fault::Io { file, errno } => Fault::Io {
                    file: file.or(Some(path)),
                    errno,
                },
                other => other.at(path.display()),
            },
            Error::BadData {
                path,
                dataset,
                place,
                fault,
            } => fault.at(format_args!(
                "{}: dataset {dataset}: {place}",
                path.display()
            )),
            Error::NoMemory { shortage, .. } => shortage.into(),
            Error::Stopped { why, .. } => why.into(),
            Error::Changed { path } => Fault::Changed { file: path },
            Error::Remembered(error) => match &*error {
                Error::Io { path, cause } if cause.raw_os_error().is_some() => Fault::Io {
                    file: Some(path.clone()),
                    errno: Errno::from_io_error(cause).unwrap_or(Errno::IO),
                },
                other => Fault::Damage(other.to_string()),
            },
            other => Fault::Damage(other.to_string()),
        }
    }
}

/// Longest remembered reason, in bytes: no line of the daemon's log is longer.
const LONGEST_REASON: usize = 4096;

/// Longest remembered path, in bytes: the system takes no longer one.
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

/// Whether `error` is `ESTALE`: see [`Error::is_stale`].
pub fn is_stale(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::STALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_short() {
        let reason = |text: String| match Error::of("f", text).shortened() {
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
