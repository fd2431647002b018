//! Extended attributes: those of files of the source, and which of them are shown.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use h5logfs_core::error::Result;
use h5logfs_core::view::View;

use super::access::ACCESS_LIST;

/// What new files in a directory inherit.
const DEFAULT_LIST: &str = "system.posix_acl_default";

/// Those of a log file that the mount makes up. The whole prefix is the mount's: what the source has there is not shown.
const OWN_PREFIX: &[u8] = b"user.h5logfs.";
const USER_PREFIX: &[u8] = b"user.";

/// Room for most values, and the most that a value or all names of a file have (xattr(7)).
const USUAL: usize = 256;
const MOST: usize = 64 << 10;

/// What an attribute is to the mount, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Made up by the mount.
    Own,
    /// The source's, for who may read the file.
    User,
    /// The source's, for who can see the file.
    AccessList,
    /// Not shown. Labels and capabilities of the source say nothing in this mount, and others are for administrators.
    Foreign,
}

impl Kind {
    pub fn of(name: &OsStr) -> Self {
        let bytes = name.as_bytes();
        if bytes.starts_with(OWN_PREFIX) {
            Kind::Own
        } else if bytes.starts_with(USER_PREFIX) {
            Kind::User
        } else if name == ACCESS_LIST || name == DEFAULT_LIST {
            Kind::AccessList
        } else {
            Kind::Foreign
        }
    }
}

/// One that the mount makes up for each log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    Layout,
    Records,
    Covered,
}

impl Own {
    const ALL: [(&str, Own); 3] = [
        ("user.h5logfs.layout", Own::Layout),
        ("user.h5logfs.records", Own::Records),
        ("user.h5logfs.covered", Own::Covered),
    ];

    pub fn named(name: &OsStr) -> Option<Self> {
        let found = Self::ALL.iter().find(|(own, _)| name == *own);
        found.map(|(_, own)| *own)
    }

    /// What it says of a view, for a person or a script to read.
    pub fn value(self, view: &View) -> Result<Vec<u8>> {
        let text = match self {
            Own::Layout => view.snapshot().log.layout().name().to_owned(),
            Own::Records => view.entries()?.to_string(),
            Own::Covered => match view.covered_in_all()? {
                Some(share) => share.to_string(),
                None => "unknown".to_owned(),
            },
        };
        Ok(text.into_bytes())
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static OsStr> {
        Self::ALL.iter().map(|(name, _)| OsStr::new(*name))
    }
}

/// The value of an attribute. `None` where the file has none of that name, or its file system has no such attributes.
pub fn get(file: impl AsFd, name: &OsStr) -> Result<Option<Vec<u8>>, Errno> {
    let read = |buffer: &mut [u8]| match rustix::fs::fgetxattr(&file, name, &mut *buffer) {
        Err(Errno::BADF) => rustix::fs::getxattr(proc_path(file.as_fd()), name, buffer),
        other => other,
    };
    match filled(read) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        other => other.map(Some),
    }
}

/// The names of a file's attributes that are shown, each followed by a zero byte.
pub fn list(file: impl AsFd, is_shown: impl Fn(Kind) -> bool) -> Result<Vec<u8>, Errno> {
    let read = |buffer: &mut [u8]| match rustix::fs::flistxattr(&file, &mut *buffer) {
        Err(Errno::BADF) => rustix::fs::listxattr(proc_path(file.as_fd()), buffer),
        other => other,
    };
    let names = match filled(read) {
        Err(Errno::OPNOTSUPP) => Vec::new(),
        other => other?,
    };
    let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| {
        let name = OsStr::from_bytes(name.strip_suffix(&[0]).unwrap_or(name));
        is_shown(Kind::of(name))
    });
    Ok(shown.flatten().copied().collect())
}

/// What `read` fills a buffer with.
fn filled(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; USUAL];
    let len = match read(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(MOST, 0);
            read(&mut buffer)?
        }
        other => other?,
    };
    buffer.truncate(len);
    Ok(buffer)
}

/// The path by which the system knows an open file. Some calls take no descriptor that only names a file (`O_PATH`), but its
/// path.
pub fn proc_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
