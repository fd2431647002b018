//! Extended attributes: those of source files, which of them are visible, and those that the mount adds to logs.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use h5logfs_common::error::Result;
use h5logfs_common::task::Task;
use h5logfs_view::View;

use super::access::ACCESS_LIST;

/// The access control list that new files in a directory inherit.
const DEFAULT_LIST: &str = "system.posix_acl_default";

/// Prefix of the attributes that the mount adds to logs. Source attributes with this prefix are hidden.
const LOG_PREFIX: &[u8] = b"user.h5logfs.";
const USER_PREFIX: &[u8] = b"user.";

/// The attribute that every view has, and no other file.
pub const LAYOUT: &str = "user.h5logfs.layout";

/// Usual length of a value, in bytes.
const USUAL_LEN: usize = 256;
/// Longest value, and longest list of names of a file (xattr(7)), in bytes.
const MAX_LEN: usize = 64 << 10;

/// The mount's treatment of an attribute, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrClass {
    /// The mount adds it to logs.
    Log,
    /// From the source, for users who may read the file.
    User,
    /// From the source, for all users who can see the file.
    AccessList,
    /// Hidden: security labels and capabilities of the source have no effect in the mount, and trusted attributes are for
    /// administrators.
    Hidden,
}

impl XattrClass {
    pub fn of(name: &OsStr) -> Self {
        let bytes = name.as_bytes();
        if bytes.starts_with(LOG_PREFIX) {
            XattrClass::Log
        } else if bytes.starts_with(USER_PREFIX) {
            XattrClass::User
        } else if name == ACCESS_LIST || name == DEFAULT_LIST {
            XattrClass::AccessList
        } else {
            XattrClass::Hidden
        }
    }
}

/// An attribute that the mount adds to each log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogAttribute {
    Layout,
    Records,
    Covered,
}

impl LogAttribute {
    const ALL: [(&str, LogAttribute); 3] = [
        (LAYOUT, LogAttribute::Layout),
        ("user.h5logfs.records", LogAttribute::Records),
        ("user.h5logfs.covered", LogAttribute::Covered),
    ];

    pub fn named(name: &OsStr) -> Option<Self> {
        let found = Self::ALL.iter().find(|(own, _)| name == *own);
        found.map(|(_, own)| *own)
    }

    /// Value for one view, as text.
    pub fn value(self, view: &View, task: &Task) -> Result<Vec<u8>> {
        let text = match self {
            LogAttribute::Layout => view.snapshot().log.layout().name().to_owned(),
            LogAttribute::Records => view.indexes().entries(task)?.to_string(),
            LogAttribute::Covered => match view.inspection().covered_in_all(task)? {
                Some(share) => share.to_string(),
                None => "unknown".to_owned(),
            },
        };
        Ok(text.into_bytes())
    }

    pub fn names() -> impl Iterator<Item = &'static OsStr> {
        Self::ALL.iter().map(|(name, _)| OsStr::new(*name))
    }
}

/// The value of an attribute; `None` if the file or its file system does not have it.
pub fn get(file: impl AsFd, name: &OsStr) -> Result<Option<Vec<u8>>, Errno> {
    let read = |buffer: &mut [u8]| match rustix::fs::fgetxattr(&file, name, &mut *buffer) {
        Err(Errno::BADF) => rustix::fs::getxattr(proc_path(file.as_fd()), name, buffer),
        other => other,
    };
    match read_all(read) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        other => other.map(Some),
    }
}

/// The names of a file's visible attributes, each followed by a zero byte.
pub fn list(file: impl AsFd, is_shown: impl Fn(XattrClass) -> bool) -> Result<Vec<u8>, Errno> {
    let read = |buffer: &mut [u8]| match rustix::fs::flistxattr(&file, &mut *buffer) {
        Err(Errno::BADF) => rustix::fs::listxattr(proc_path(file.as_fd()), buffer),
        other => other,
    };
    let names = match read_all(read) {
        Err(Errno::OPNOTSUPP) => Vec::new(),
        other => other?,
    };
    let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| {
        let name = OsStr::from_bytes(name.strip_suffix(&[0]).unwrap_or(name));
        is_shown(XattrClass::of(name))
    });
    Ok(shown.flatten().copied().collect())
}

/// Calls `read` with a sufficiently long buffer.
fn read_all(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; USUAL_LEN];
    let len = match read(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(MAX_LEN, 0);
            read(&mut buffer)?
        }
        other => other?,
    };
    buffer.truncate(len);
    Ok(buffer)
}

/// A path to an open file. Some system calls refuse a descriptor from `O_PATH`, but accept this path.
pub fn proc_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
