//! The directory `.h5logfs` of a mount, which no directory holds: read-only files that tell of the mount.
//!
//! It is found by name at the root of the mount and never listed there, as `.zfs` is: whoever copies
//! or compares the whole mount does not want it. It hides what has its name in the source, or an owner
//! of the source could tell those who watch anything.
//!
//! A file has the size 0, as in `/proc`, and is made when it is opened: who reads it piece by piece
//! sees one state.

use std::ffi::OsStr;
use std::time::SystemTime;

use rustix::fs::FileType;

use super::attributes::Attributes;
use super::mirror::Listed;
use super::tree::ROOT;
use super::watching::Watch;

/// Its name at the root of the mount.
const NAME: &str = ".h5logfs";

/// Inode numbers; those of the tree count from 1 on and do not come here.
const DIRECTORY: u64 = 1 << 62;
const JSON: u64 = DIRECTORY + 1;
const PROMETHEUS: u64 = DIRECTORY + 2;

/// Of them that may be open at once. Each holds some kilobytes, and everybody may open them.
pub const MOST_OPEN: u64 = 1024;

const FILES: [(&str, u64); 2] = [("stats", JSON), ("stats.prom", PROMETHEUS)];

/// Whether an inode is one of these.
pub fn is_virtual(number: u64) -> bool {
    number >= DIRECTORY
}

/// Whether `name` at the root of the mount is ours.
pub fn is_own_name(name: &OsStr) -> bool {
    name == NAME
}

/// The inode number and the attributes of `name` in `parent`; `Some(None)` where there is no such name in a
/// directory that is ours.
pub fn look_up(parent: u64, name: &OsStr) -> Option<Option<(u64, Attributes)>> {
    let number = match parent {
        ROOT if is_own_name(name) => Some(DIRECTORY),
        DIRECTORY => {
            let found = FILES.iter().find(|(own, _)| name == *own);
            found.map(|(_, number)| *number)
        }
        _ => return None,
    };
    Some(number.and_then(|number| Some((number, attributes(number)?))))
}

/// The attributes of an inode, if it is one of these. They belong to the user who runs the daemon.
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

/// What a file says now, if the inode is one of these.
pub fn content(number: u64, watch: &Watch) -> Option<String> {
    match number {
        JSON => Some(watch.report().to_json()),
        PROMETHEUS => Some(watch.report().to_prometheus()),
        _ => None,
    }
}

/// The names in the directory.
pub fn listing() -> Vec<Listed> {
    let listed = FILES.iter().map(|(name, number)| Listed {
        name: name.into(),
        kind: FileType::RegularFile,
        inode: *number,
    });
    listed.collect()
}
