//! Faults: the reasons for failures, in code that does not know the file or the object.
//!
//! The kind of a fault decides how the caller reacts. Damage is remembered and may be skipped. Refused memory is
//! requested again. Nobody waits for work that was stopped. An error of the system keeps its number. So no layer below
//! the surface turns a fault into text. [`Error`](crate::error::Error) adds the file and the object; the surface makes
//! the text. Ranks of a job exchange a [`Kind`] and a text.

use std::fmt::Display;
use std::io;
use std::num::TryFromIntError;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The reason for a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Bytes of a file break the rules of its format, or are missing. Trying again gives the same result.
    #[error("{0}")]
    Damage(String),

    /// A program's request cannot be met, whatever the files contain. It had no effect.
    #[error("{0}")]
    Refused(String),

    /// The file asks for more than an option allows. Trying again with the same options gives the same result.
    #[error(transparent)]
    TooLarge(Box<TooLarge>),

    /// Memory is not available now. Another attempt may succeed.
    #[error(transparent)]
    NoMemory(Shortage),

    /// The work was stopped before its end.
    #[error(transparent)]
    Stopped(Stop),

    /// A call of the system failed.
    #[error("{}{}", before(file.as_deref()), io::Error::from(*errno))]
    Io {
        /// The file, if it may differ from the one that the caller adds.
        file: Option<PathBuf>,
        /// The error of the system.
        errno: Errno,
    },

    /// A file of the log is no longer the one that was opened.
    #[error("{}: changed since it was opened", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },

    /// A fault in other words: with advice, or as reported by another process.
    #[error("{text}")]
    Told {
        /// The kind of the original fault.
        kind: Kind,
        /// Text.
        text: String,
    },
}

/// The kind of a fault, with the number of a system error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Damage,
    Refused,
    TooLarge,
    NoMemory,
    Stopped,
    Io(Errno),
    Changed,
}

/// A size that exceeds an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {bytes} bytes is larger than {option}, {limit} bytes")]
pub struct TooLarge {
    /// The object that is too large: a chunk, an index.
    pub what: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// The option that bounds it.
    pub option: &'static str,
    /// The value of the option, in bytes.
    pub limit: u64,
}

/// The reason why memory was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// All work together has too much memory.
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
    /// One user has too much memory.
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
    /// The system has no memory left.
    #[error("the system has no memory for {bytes} bytes")]
    System {
        /// Bytes that were asked for.
        bytes: u64,
    },
}

/// The reason why work stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Stop {
    /// The caller no longer waits for the answer.
    #[error("stopped: the caller is gone")]
    CallerGone = 1,
    /// The work took more processor time than allowed.
    #[error(
        "stopped: it takes more processor time than a file of its size can need, or than read_cpu"
    )]
    Deadline = 2,
    /// The mount, or the program, ends.
    #[error("stopped: the mount ends")]
    Ending = 3,
    /// This work exceeded its processor time a moment ago, and was not started again.
    #[error(
        "a moment ago it took more processor time than a file of its size can need, or than read_cpu"
    )]
    DeadlineBefore = 4,
}

fn before(file: Option<&Path>) -> String {
    file.map_or(String::new(), |file| format!("{}: ", file.display()))
}

impl Kind {
    /// The kinds without an error of the system, in the order of their numbers.
    const OTHERS: [Kind; 6] = [
        Kind::Damage,
        Kind::Refused,
        Kind::TooLarge,
        Kind::NoMemory,
        Kind::Stopped,
        Kind::Changed,
    ];

    /// A number to send to another process: the error number of the system, or a negative number.
    pub fn number(self) -> i32 {
        match self {
            Kind::Io(errno) => errno.raw_os_error(),
            other => {
                !(Self::OTHERS
                    .iter()
                    .position(|kind| *kind == other)
                    .unwrap_or(0) as i32)
            }
        }
    }

    /// The kind with this number.
    pub fn of_number(number: i32) -> Self {
        match number {
            1..4096 => Kind::Io(Errno::from_raw_os_error(number)),
            _ => *Self::OTHERS.get(!number as usize).unwrap_or(&Kind::Damage),
        }
    }

    /// A fault of this kind with `text`.
    pub fn told(self, text: impl Into<String>) -> Fault {
        let text = text.into();
        match self {
            Kind::Damage => Fault::Damage(text),
            Kind::Refused => Fault::Refused(text),
            kind => Fault::Told { kind, text },
        }
    }
}

impl Fault {
    /// The kind of this fault.
    pub fn kind(&self) -> Kind {
        match self {
            Fault::Damage(_) => Kind::Damage,
            Fault::Refused(_) => Kind::Refused,
            Fault::TooLarge(_) => Kind::TooLarge,
            Fault::NoMemory(_) => Kind::NoMemory,
            Fault::Stopped(_) => Kind::Stopped,
            Fault::Io { errno, .. } => Kind::Io(*errno),
            Fault::Changed { .. } => Kind::Changed,
            Fault::Told { kind, .. } => *kind,
        }
    }

    /// This fault with another text.
    pub fn told(&self, text: impl Into<String>) -> Self {
        self.kind().told(text)
    }

    /// This fault with advice appended.
    pub fn with(&self, advice: impl Display) -> Self {
        self.told(format!("{self}. {advice}"))
    }

    /// This fault with `place`, the place in a file, in front of its text.
    pub fn at(self, place: impl Display) -> Self {
        match &self {
            Fault::Damage(text) | Fault::Refused(text) | Fault::Told { text, .. } => {
                self.told(format!("{place}: {text}"))
            }
            _ => self,
        }
    }

    /// This fault, of the file at `path`.
    pub fn of_file(self, path: &Path) -> Self {
        match self {
            Fault::Io { file: None, errno } => Fault::Io {
                file: Some(path.to_owned()),
                errno,
            },
            other => other.at(path.display()),
        }
    }

    /// Whether the work must end: it was stopped, or has no memory. After any other fault another way may succeed.
    pub fn ends_work(&self) -> bool {
        matches!(self.kind(), Kind::Stopped | Kind::NoMemory)
    }

    /// The text of damage, for code that makes a diagnostic from it and goes on. Any other fault is returned as the
    /// error.
    pub fn into_damage(self) -> Result<String, Self> {
        match self {
            Fault::Damage(reason) => Ok(reason),
            other => Err(other),
        }
    }
}

/// A plain text describes damage.
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

/// A number in a file that does not fit its type is damage.
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

/// Surfaces show text.
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

/// An error of the system keeps its number. An error without a number concerns bytes: too few, or wrong.
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
    fn what_is_told_keeps_its_kind() {
        let full = Fault::from(Errno::NOSPC).of_file(Path::new("f"));
        let told = full.with("Free some space");
        assert_eq!(told.kind(), Kind::Io(Errno::NOSPC));
        assert!(told.to_string().starts_with("f: No space left on device"));
        let elsewhere = told.clone().at("rank 3");
        assert_eq!(elsewhere, told.told(format!("rank 3: {told}")));
        for kind in Kind::OTHERS.into_iter().chain([Kind::Io(Errno::NOSPC)]) {
            let fault = Kind::of_number(kind.number()).told("words");
            assert_eq!((fault.kind(), &*fault.to_string()), (kind, "words"));
        }
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
