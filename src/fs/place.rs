//! Where a file is, which one it is, and in which state.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use h5logfs_catalog::At;
use h5logfs_log::journal;
use h5logfs_log::log_dir::{self, Naming};
use h5logfs_log::source_dir::stat_in;
use h5logfs_log::source_file::Identity;

use super::attributes::Attributes;

/// Identifies one state of a file. Two states with the same version share an inode, and the pages that the kernel
/// caches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// Not a log. The kind belongs to the version because the source may use an inode number again.
    Source {
        device: u64,
        inode: u64,
        /// The bits of the mode for the file type.
        kind: u32,
    },
    /// A log that was settled, in this state. In another one it has other bytes in the same places.
    Settled { device: u64, inode: u64, state: u64 },
    /// A log in one of its generations.
    View {
        device: u64,
        inode: u64,
        generation: u64,
        naming: Naming,
    },
    /// A log that cannot be presented. It is listed, and to open it fails.
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

    /// Whether the file is shown as it is in the source.
    pub fn is_as_it_is(&self) -> bool {
        matches!(self, Version::Source { .. } | Version::Settled { .. })
    }

    /// How its name leads to the file.
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
    /// Whether `stat` is that of the same file, in whatever state.
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

/// Where the kernel knows a file: a name in a directory.
#[derive(Debug, Clone)]
pub struct Place {
    pub path: PathBuf,
    /// The version of its directory; `None` for the source directory itself. Another directory may have taken the path
    /// of that one, and may be closed to a user who could search the old one.
    pub directory: Option<Version>,
    /// The flush of which logs are shown below it; `None`: their present states.
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

    /// What is there.
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
    /// See [`Place::flush`].
    pub flush: Option<u64>,
    /// How a name led to the file of this path.
    pub naming: Naming,
}

impl<'a> Held<'a> {
    pub fn new(directory: &'a OwnedFd, At { path, flush }: At<'a>) -> Self {
        Held {
            directory: directory.as_fd(),
            path,
            flush,
            naming: Naming::File,
        }
    }

    /// Whether it is a file in a log that is a directory, which is shown as it is.
    pub fn is_part(&self) -> bool {
        self.naming == Naming::File && log_dir::is_file_in(self.directory, self.name())
    }

    pub fn at(&self) -> At<'a> {
        At {
            path: self.path,
            flush: self.flush,
        }
    }

    /// Whether the file that stands beside a log that is not closed stands beside this one.
    pub fn has_journal(&self) -> bool {
        let journal = journal::path_of(self.path);
        let name = journal.file_name();
        name.is_some_and(|name| stat_in(self.directory, name).is_ok())
    }

    /// The name in the directory.
    pub fn name(&self) -> &'a OsStr {
        self.path.file_name().unwrap_or(OsStr::new("."))
    }

    pub fn stat(&self) -> io::Result<Stat> {
        stat_in(self.directory, self.name())
    }

    pub fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.directory, self.name(), flags, Mode::empty())
    }
}
