//! The virtual directory `.h5logfs` with read-only files about the mount.
//!
//! The directory is found by name at the root of the mount and is not listed there, as with `.zfs`: a copy of the whole
//! mount should not contain it. It hides a file of the same name in the source. Otherwise an owner of the source could
//! forge the statistics.
//!
//! A file has the size 0, as in `/proc`. Its content is made when it is opened, so that all reads see one state.

use std::ffi::OsStr;
use std::time::SystemTime;

use rustix::fs::FileType;

use super::attributes::Attributes;
use super::inodes::ROOT;
use super::monitor::Monitor;
use super::source_tree::Listed;

/// The name of the directory, at the root of the mount.
pub const NAME: &str = ".h5logfs";

/// Inode numbers. Those of the inode table count up from 1 and do not reach these.
const DIRECTORY: u64 = 1 << 62;
const JSON: u64 = DIRECTORY + 1;
const PROMETHEUS: u64 = DIRECTORY + 2;

/// The most virtual files that may be open at once. Each takes some kilobytes, and all users may open them.
pub const MAX_OPEN: u64 = 1024;

const FILES: [(&str, u64); 2] = [("stats", JSON), ("stats.prom", PROMETHEUS)];

pub fn is_virtual(number: u64) -> bool {
    number >= DIRECTORY
}

/// Whether [`look_up`] decides about `name` in `parent`.
pub fn contains(parent: u64, name: &OsStr) -> bool {
    is_virtual(parent) || parent == ROOT && name == NAME
}

/// The inode number and the attributes of a virtual file.
pub fn look_up(parent: u64, name: &OsStr) -> Option<(u64, Attributes)> {
    let number = if parent == ROOT && name == NAME {
        DIRECTORY
    } else {
        FILES.iter().find(|(file, _)| name == *file)?.1
    };
    Some((number, attributes(number)?))
}

/// The attributes of a virtual inode. The user who runs the daemon owns it.
pub fn attributes(number: u64) -> Option<Attributes> {
    let (kind, permissions, links) = match number {
        DIRECTORY => (FileType::Directory, 0o555, 2),
        JSON | PROMETHEUS => (FileType::RegularFile, 0o444, 1),
        _ => return None,
    };
    let now = SystemTime::now();
    Some(Attributes {
        permissions,
        links,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        accessed: now,
        modified: now,
        changed: now,
        ..Attributes::of_kind(kind)
    })
}

/// The content of a virtual file.
pub fn content(number: u64, monitor: &Monitor) -> Option<String> {
    match number {
        JSON => Some(monitor.report().to_json()),
        PROMETHEUS => Some(monitor.report().to_prometheus()),
        _ => None,
    }
}

pub fn listing() -> Vec<Listed> {
    let listed = FILES.iter().map(|(name, number)| Listed {
        name: name.into(),
        kind: FileType::RegularFile,
        inode: *number,
    });
    listed.collect()
}
