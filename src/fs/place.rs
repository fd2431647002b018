//! The place of a file, its identity, and its state.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use h5logfs_catalog::At;
use h5logfs_catalog::lookup::sets::Set;
use h5logfs_log::journal;
use h5logfs_log::log_dir::{self, Naming};
use h5logfs_log::source_dir::stat_in;
use h5logfs_log::source_file::Identity;

use super::attributes::Attributes;

/// Identifies one state of a file. States with the same version share an inode, and the kernel's cached pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// Not a log. The kind belongs to the version because the source may reuse an inode number.
    Source {
        device: u64,
        inode: u64,
        /// File type bits of the mode.
        kind: u32,
    },
    /// A settled log, in this state. Another state may have other bytes in the same places.
    Settled { device: u64, inode: u64, state: u64 },
    /// A log, in one of its generations.
    View {
        device: u64,
        inode: u64,
        generation: u64,
        naming: Naming,
    },
    /// A log that cannot be shown. It is listed, but opening it fails.
    Broken {
        device: u64,
        inode: u64,
        naming: Naming,
    },
}

impl Version {
    pub fn is_directory(&self) -> bool {
        let directory = FileType::Directory.as_raw_mode();
        matches!(self, Version::Source { kind, .. } if *kind == directory)
    }

    /// Whether the file is shown unchanged.
    pub fn is_as_it_is(&self) -> bool {
        matches!(self, Version::Source { .. } | Version::Settled { .. })
    }

    /// The way from the name to the file.
    pub fn naming(&self) -> Naming {
        match self {
            Version::Source { .. } | Version::Settled { .. } => Naming::File,
            Version::View { naming, .. } | Version::Broken { naming, .. } => *naming,
        }
    }
}

/// The version of a file that is not a log.
impl From<&Stat> for Version {
    fn from(stat: &Stat) -> Self {
        let Identity { device, inode, .. } = Identity::from(stat);
        Version::Source {
            device,
            inode,
            kind: Attributes::from(stat).kind.as_raw_mode(),
        }
    }
}

impl Version {
    /// Whether `stat` belongs to the same file, in any state.
    pub fn is_of(&self, stat: &Stat) -> bool {
        let Identity { device, inode, .. } = Identity::from(stat);
        match *self {
            Version::Source { .. } => *self == Version::from(stat),
            Version::Settled {
                device: d,
                inode: i,
                ..
            }
            | Version::View {
                device: d,
                inode: i,
                ..
            }
            | Version::Broken {
                device: d,
                inode: i,
                ..
            } => (d, i) == (device, inode),
        }
    }
}

/// The kernel's place of a file: a name in a directory.
#[derive(Debug, Clone)]
pub struct Place {
    pub path: PathBuf,
    /// The version of the directory; `None` for the source directory itself. Another directory may have taken the path by now,
    /// and may be closed to a user who could search the old one.
    pub directory: Option<Version>,
    /// The flush whose logs are shown below it; `None`: their present states.
    pub flush: Option<u64>,
}

impl Place {
    /// The source directory.
    pub fn root() -> Self {
        Place {
            path: PathBuf::new(),
            directory: None,
            flush: None,
        }
    }

    /// The path and the flush of the place.
    pub fn at(&self) -> At<'_> {
        At {
            path: &self.path,
            flush: self.flush,
        }
    }

    /// The place of the file to which its name leads.
    pub fn of_file(&self, naming: Naming) -> Self {
        Place {
            path: naming.file(&self.path).into_owned(),
            ..self.clone()
        }
    }
}

/// A path whose directory is open.
pub struct Held<'a> {
    pub directory: BorrowedFd<'a>,
    pub path: &'a Path,
    /// The flush: see [`Place::flush`].
    pub flush: Option<u64>,
    /// The way from a name to the file of this path.
    pub naming: Naming,
    /// The set of files that makes up the file, where no file has its name. Its first member stands for it.
    pub set: Option<Arc<Set>>,
}

impl<'a> Held<'a> {
    pub fn new(directory: &'a OwnedFd, At { path, flush }: At<'a>) -> Self {
        Held {
            directory: directory.as_fd(),
            path,
            flush,
            naming: Naming::File,
            set: None,
        }
    }

    /// The path of a set in this directory.
    pub fn with_set(&self, set: Arc<Set>) -> Self {
        Held {
            naming: Naming::Joined,
            set: Some(set),
            ..*self
        }
    }

    /// Whether the path leads to a file inside a log that is a directory, shown unchanged.
    pub fn is_part(&self) -> bool {
        self.naming == Naming::File && log_dir::is_file_in(self.directory, self.name())
    }

    pub fn at(&self) -> At<'a> {
        At {
            path: self.path,
            flush: self.flush,
        }
    }

    /// Whether a journal lies beside the file. An unclosed log has one.
    pub fn has_journal(&self) -> bool {
        let journal = journal::path_of(self.path);
        let name = journal.file_name();
        name.is_some_and(|name| stat_in(self.directory, name).is_ok())
    }

    /// The name in the directory.
    pub fn name(&self) -> &'a OsStr {
        self.path.file_name().unwrap_or(OsStr::new("."))
    }

    /// The name of the file: that of the first member of a set.
    fn file(&self) -> &OsStr {
        self.set.as_ref().map_or(self.name(), |set| &set.first)
    }

    pub fn stat(&self) -> io::Result<Stat> {
        stat_in(self.directory, self.file())
    }

    pub fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.directory, self.file(), flags, Mode::empty())
    }
}
