//! The virtual directory `.h5logfs` with read-only files about the mount.
//!
//! The directory is found by name at the root of the mount, but not listed there, like `.zfs`: a copy of the whole mount
//! should not contain it. It hides a file of the same name in the source, because an owner of the source could otherwise
//! forge the statistics.
//!
//! The subdirectory `at` has a directory for each flush number: the source directory, with the logs as that flush left them.
//! These directories are not listed, and have no stored state: the inode number contains the flush.
//!
//! A file has the size 0, as in `/proc`. Its content is made when it is opened, so that all reads see one state.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::access::is_administrator;
use super::attributes::Attributes;
use super::directory::{Listed, Piece};
use super::inodes::ROOT;
use super::monitor::Monitor;

/// Name of the directory, at the root of the mount.
pub const NAME: &str = ".h5logfs";

/// Inode numbers. Those of the inode table count up from 1 and do not reach these.
pub const DIRECTORY: u64 = 1 << 62;
const JSON: u64 = DIRECTORY + 1;
const PROMETHEUS: u64 = DIRECTORY + 2;
const AT: u64 = DIRECTORY + 3;
/// Base of the inode numbers of flush directories; the number of the flush is added.
const FLUSHES: u64 = DIRECTORY + (1 << 61);
/// Largest flush number with a directory.
const MOST_FLUSHES: u64 = (1 << 61) - 1;

const NAMES: [(&str, u64, FileType); 3] = [
    ("stats", JSON, FileType::RegularFile),
    ("stats.prom", PROMETHEUS, FileType::RegularFile),
    ("at", AT, FileType::Directory),
];

pub fn is_virtual(number: u64) -> bool {
    (DIRECTORY..FLUSHES).contains(&number)
}

/// The flush of a directory.
pub fn flush_of(number: u64) -> Option<u64> {
    number.checked_sub(FLUSHES).filter(|flush| *flush > 0)
}

/// The inode number of the directory of a flush. Each flush has exactly one name.
fn of_flush(name: &OsStr) -> Option<u64> {
    let name = name.to_str()?;
    let flush = name.parse().ok()?;
    let is_one = (1..=MOST_FLUSHES).contains(&flush) && flush.to_string() == name;
    is_one.then_some(FLUSHES + flush)
}

/// Whether [`look_up`] decides about `name` in `parent`.
pub fn contains(parent: u64, name: &OsStr) -> bool {
    is_virtual(parent) || is_hidden(parent, name)
}

/// Whether a name of the source is hidden in `parent`.
pub fn is_hidden(parent: u64, name: &OsStr) -> bool {
    (parent == ROOT || flush_of(parent).is_some()) && name == NAME
}

/// The path in the source for a path of the mount; `None` if it is not from the source.
pub fn path_in_source(shown: &Path) -> Option<&Path> {
    let Ok(below) = shown.strip_prefix(NAME) else {
        return Some(shown);
    };
    let mut names = below.strip_prefix("at").ok()?.components();
    of_flush(names.next()?.as_os_str())?;
    Some(names.as_path())
}

/// The inode number of a virtual file, or of the directory of a flush.
pub fn look_up(parent: u64, name: &OsStr) -> Option<u64> {
    match parent {
        ROOT => Some(DIRECTORY),
        DIRECTORY => Some(NAMES.iter().find(|(file, ..)| name == *file)?.1),
        AT => of_flush(name),
        _ => None,
    }
}

/// The attributes of a virtual inode, owned by the user who runs the daemon.
pub fn attributes(number: u64) -> Option<Attributes> {
    let (kind, permissions, links) = match number {
        DIRECTORY => (FileType::Directory, 0o555, 3),
        AT => (FileType::Directory, 0o555, 2),
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

/// The names in a virtual directory. Positions are their indices.
pub fn listing(number: u64) -> Piece {
    let dots = [(".", number), ("..", DIRECTORY)];
    let dots = dots.map(|(name, number)| (name, number, FileType::Directory));
    let names = NAMES.into_iter().filter(|_| number == DIRECTORY);
    let all = dots.into_iter().chain(names).zip(1..);
    let listed = all.map(|((name, inode, kind), next)| Listed {
        name: name.into(),
        kind,
        inode,
        next,
        is_joined: false,
    });
    Piece::from_start(listed.collect())
}

/// Most virtual files and directories that ordinary users may have open, all together and each. An open file takes some
/// kilobytes, and all users may open them.
const MAX_OPEN: usize = 1024;
const MAX_OPEN_OF_USER: usize = 64;

/// Counts the open virtual files of each user. Root and the user who mounted do not compete with others: each of the two has
/// [`MAX_OPEN`].
#[derive(Debug, Default)]
pub struct OpenFiles(Mutex<HashMap<u32, usize>>);

/// An open virtual file. A drop counts it as closed.
#[derive(Debug)]
pub struct Permit {
    open: Arc<OpenFiles>,
    user: u32,
}

impl OpenFiles {
    pub fn open(self: &Arc<Self>, user: u32) -> Result<Permit, Errno> {
        let mut users = self.0.lock();
        let own = users.get(&user).copied().unwrap_or(0);
        let limit = if is_administrator(user) {
            MAX_OPEN
        } else {
            let others = users.iter().filter(|(user, _)| !is_administrator(**user));
            if others.map(|(_, open)| open).sum::<usize>() >= MAX_OPEN {
                return Err(Errno::NFILE);
            }
            MAX_OPEN_OF_USER
        };
        if own >= limit {
            return Err(Errno::MFILE);
        }
        users.insert(user, own + 1);
        Ok(Permit {
            open: Arc::clone(self),
            user,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut users = self.open.0.lock();
        if let Some(open) = users.get_mut(&self.user) {
            *open -= 1;
            if *open == 0 {
                users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 61_101;

    fn opened(files: &Arc<OpenFiles>, user: u32) -> Vec<Permit> {
        std::iter::from_fn(|| files.open(user).ok()).collect()
    }

    #[test]
    fn a_user_leaves_files_for_others() {
        let files = Arc::new(OpenFiles::default());
        let held = opened(&files, FIRST);
        assert_eq!(held.len(), MAX_OPEN_OF_USER);
        assert_eq!(files.open(FIRST).unwrap_err(), Errno::MFILE);
        assert_eq!(opened(&files, FIRST + 1).len(), MAX_OPEN_OF_USER);
        drop(held);
        assert_eq!(opened(&files, FIRST).len(), MAX_OPEN_OF_USER);
        assert!(files.0.lock().is_empty());
    }

    #[test]
    fn users_together_leave_files_for_administrators() {
        let files = Arc::new(OpenFiles::default());
        let held: Vec<_> = (FIRST..FIRST + 100)
            .flat_map(|user| opened(&files, user))
            .collect();
        assert_eq!(held.len(), MAX_OPEN);
        assert_eq!(files.open(FIRST + 99).unwrap_err(), Errno::NFILE);
        for user in [0, rustix::process::geteuid().as_raw()] {
            let own = opened(&files, user);
            assert_eq!(own.len(), MAX_OPEN);
            assert_eq!(files.open(user).unwrap_err(), Errno::MFILE);
        }
    }
}
