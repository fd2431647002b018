//! Why something failed, below whoever knows the file and the object that it is about.
//!
//! The kind decides what happens next: damage is remembered and may be skipped, refused memory is asked for again, work
//! that was stopped has no one who waits for it, and an error of the system keeps its number. So a kind is never made a
//! text on its way up. [`Error`](crate::error::Error) adds the file and the object; the surface makes the text.

use std::fmt::Display;
use std::io;
use std::num::TryFromIntError;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Bytes of a file break the rules of its format, or are not there. Trying again gives the same.
    #[error("{0}")]
    Damage(String),

    /// The file asks for more than an option allows. Trying again with the same options gives the same.
    #[error(transparent)]
    TooLarge(Box<TooLarge>),

    /// There is no memory for it now. Another attempt may succeed.
    #[error(transparent)]
    NoMemory(Shortage),

    /// The work was stopped before its end.
    #[error(transparent)]
    Stopped(Stop),

    /// A call of the system failed.
    #[error("{}{}", before(file.as_deref()), io::Error::from(*errno))]
    Io {
        /// The file, where it may be another one than whoever adds the file knows.
        file: Option<PathBuf>,
        /// The error of the system.
        errno: Errno,
    },

    /// A file of the log is not the one that was opened any more.
    #[error("{}: changed since it was opened", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
}

/// Something that exceeds an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {bytes} bytes is larger than {option}, {limit} bytes")]
pub struct TooLarge {
    /// What is too large: a chunk, an index.
    pub what: &'static str,
    /// Its size.
    pub bytes: u64,
    /// The option that bounds it.
    pub option: &'static str,
    /// The value of the option, in bytes.
    pub limit: u64,
}

/// Why memory could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// All work together has too much.
    #[error(
        "no memory for {bytes} bytes: {used} of the {limit} bytes that cache_size and index_memory allow are in use"
    )]
    Limit {
        /// Bytes that were asked for.
        bytes: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes that may be in use.
        limit: u64,
    },
    /// One user has too much.
    #[error(
        "no memory for {bytes} bytes: the user has {used} bytes in use, of a share of {share} bytes of cache_size and \
         index_memory"
    )]
    Share {
        /// Bytes that were asked for.
        bytes: u64,
        /// Bytes that the user has in use.
        used: u64,
        /// Bytes that the user may have in use.
        share: u64,
    },
    /// The system has none.
    #[error("the system has no memory for {bytes} bytes")]
    System {
        /// Bytes that were asked for.
        bytes: u64,
    },
}

/// Why work stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Stop {
    /// The caller does not wait for the answer any more.
    #[error("stopped: the caller is gone")]
    CallerGone = 1,
    /// The work took more processor time than it may.
    #[error("stopped: it takes more processor time than one request may (read_cpu)")]
    Deadline = 2,
    /// The mount, or the program, ends.
    #[error("stopped: the mount ends")]
    Ending = 3,
    /// The same work took more processor time than it may a moment ago, and was not begun again.
    #[error("a moment ago it took more processor time than one request may (read_cpu)")]
    DeadlineBefore = 4,
}

fn before(file: Option<&Path>) -> String {
    file.map_or(String::new(), |file| format!("{}: ", file.display()))
}

impl Fault {
    /// The same, of something at `place` in a file. Only damage lies at a place.
    pub fn at(self, place: impl Display) -> Self {
        match self {
            Fault::Damage(reason) => Fault::Damage(format!("{place}: {reason}")),
            other => other,
        }
    }

    /// The same, of the file at `path`.
    pub fn of_file(self, path: &Path) -> Self {
        match self {
            Fault::Io { file: None, errno } => Fault::Io {
                file: Some(path.to_owned()),
                errno,
            },
            other => other.at(path.display()),
        }
    }

    /// Whether the work has to end: it was stopped, or has no memory. Otherwise another way may lead further.
    pub fn ends_work(&self) -> bool {
        matches!(self, Fault::Stopped(_) | Fault::NoMemory(_))
    }

    /// The text of damage, for code that makes a diagnostic of it and goes on. All else is still a fault.
    pub fn into_damage(self) -> Result<String, Self> {
        match self {
            Fault::Damage(reason) => Ok(reason),
            other => Err(other),
        }
    }
}

/// A text alone says what is wrong with a file.
impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Fault::Damage(reason)
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Self {
        Fault::Damage(reason.to_owned())
    }
}

/// A number in a file that does not fit where it has to.
impl From<TryFromIntError> for Fault {
    fn from(error: TryFromIntError) -> Self {
        Fault::Damage(error.to_string())
    }
}

impl From<TooLarge> for Fault {
    fn from(too_large: TooLarge) -> Self {
        Fault::TooLarge(Box::new(too_large))
    }
}

impl From<Shortage> for Fault {
    fn from(shortage: Shortage) -> Self {
        Fault::NoMemory(shortage)
    }
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        Fault::Stopped(stop)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Fault::Io { file: None, errno }
    }
}

/// For surfaces, which show texts.
impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.to_string()
    }
}

impl From<Shortage> for String {
    fn from(shortage: Shortage) -> Self {
        shortage.to_string()
    }
}

impl From<Stop> for String {
    fn from(stop: Stop) -> Self {
        stop.to_string()
    }
}

/// An error of the system keeps its number. One without a number is about bytes: too few of them, or wrong ones.
impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => match error.downcast::<Fault>() {
                Ok(fault) => fault,
                Err(error) => Fault::Damage(error.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_added_where_the_fault_lies_in_a_file() {
        let torn = Fault::from("torn").at("entry 3").at("table 1");
        assert_eq!(torn.to_string(), "table 1: entry 3: torn");
        let stale = Fault::from(Errno::STALE);
        assert_eq!(stale.clone().at("entry 3"), stale);
        assert_eq!(
            Fault::from(Stop::Ending).at("x"),
            Fault::Stopped(Stop::Ending)
        );
    }

    #[test]
    fn what_passes_through_an_error_of_the_library_keeps_its_kind() {
        let shortage = Fault::from(Shortage::System { bytes: 7 });
        assert_eq!(Fault::from(io::Error::other(shortage.clone())), shortage);
        let none = io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
        assert!(matches!(
            Fault::from(none),
            Fault::Io {
                errno: Errno::NOSPC,
                ..
            }
        ));
        let short = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(matches!(Fault::from(short), Fault::Damage(_)));
    }
}
