//! Rules for the files that belong to a log. Any user may be able to make a file of the right name: in a sticky
//! directory, in a directory of burst-buffer logs for all users, in the directory of a project. So names alone do not
//! decide.
//!
//! A file belongs to a log if the owner of the log file owns it. A file of root, or of the owner of its directory,
//! belongs to the log if no other user may write to that directory. The rule also holds for a directory of subfiles,
//! and for each file in it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

const ROOT: u32 = 0;
/// Write permission of users other than the owner. With a POSIX access control list, the bits of the group are its
/// mask, which limits all its entries for other users and for groups.
const WRITE_OF_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// The permission that all users need to read a file, or to list a directory.
const READ: u32 = 0o004;
const READ_AND_SEARCH: u32 = 0o005;

/// The facts that decide whether a file or directory belongs to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The user who owns it.
    pub owner: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u64,
}

impl From<&Metadata> for Ownership {
    fn from(m: &Metadata) -> Self {
        Ownership {
            owner: m.uid(),
            mode: m.mode(),
            links: m.nlink(),
        }
    }
}

impl From<&Stat> for Ownership {
    // The types of the fields of `Stat` differ from one processor to the next.
    #[allow(clippy::unnecessary_cast)]
    fn from(stat: &Stat) -> Self {
        Ownership {
            owner: stat.st_uid,
            mode: stat.st_mode as u32,
            links: stat.st_nlink as u64,
        }
    }
}

impl Ownership {
    fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.mode as _) == FileType::Directory
    }

    /// Whether users other than the owner may write to the file or directory.
    fn is_shared(&self) -> bool {
        self.mode & WRITE_OF_OTHERS != 0
    }

    /// Whether another user may have made this name in `directory`. In a sticky directory no user can rename a file of
    /// another one. A user can make a hard link to such a file where the system allows that.
    fn may_be_linked_by_others(&self, directory: &Ownership) -> bool {
        let takes_links = directory.is_shared() && directory.mode & STICKY != 0;
        takes_links && self.links > 1 && !self.is_dir()
    }

    /// Whether all users may read the file.
    pub fn is_public(&self) -> bool {
        let needed = if self.is_dir() { READ_AND_SEARCH } else { READ };
        self.mode & needed == needed
    }
}

/// The reason why a file does not belong to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Foreign {
    /// The file belongs to a user whom the owner of the log file has no reason to trust.
    #[error(
        "user {owner} owns it, and user {log_owner} owns the log file; \
         if it is part of the log, give both the same owner"
    )]
    OtherOwner {
        /// The owner of the file.
        owner: u32,
        /// The owner of the log file.
        log_owner: u32,
    },
    /// Another user may have made a hard link of this name.
    #[error(
        "it has {links} hard links, in a directory where other users may make them; \
         if it is part of the log, copy it"
    )]
    HardLinks {
        /// Their number.
        links: u64,
    },
    /// The owner of the log file may not be allowed to read the file.
    #[error(
        "user {owner} owns it, and user {log_owner} owns the log file, but not all users may read it"
    )]
    Private {
        /// The owner of the file.
        owner: u32,
        /// The owner of the log file.
        log_owner: u32,
    },
}

/// Whether `part`, a file or directory in `directory`, belongs to a log whose log file `log_owner` owns.
pub fn belongs(part: &Ownership, log_owner: u32, directory: &Ownership) -> Result<(), Foreign> {
    let owner = part.owner;
    let owns_directory = !directory.is_shared() && owner == directory.owner;
    if owner != log_owner && owner != ROOT && !owns_directory {
        return Err(Foreign::OtherOwner { owner, log_owner });
    }
    if part.may_be_linked_by_others(directory) {
        return Err(Foreign::HardLinks { links: part.links });
    }
    Ok(())
}

/// Whether the log file `log` may take `part` out of a listing of `directory`, in which both lie. A user must not make
/// the files of others disappear, not even those of root.
pub fn may_hide(log: &Ownership, part: &Ownership, directory: &Ownership) -> bool {
    let is_trusted = part.owner == log.owner || !directory.is_shared();
    is_trusted
        && !log.may_be_linked_by_others(directory)
        && belongs(part, log.owner, directory).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;

    fn of(owner: u32, mode: u32, links: u64) -> Ownership {
        Ownership { owner, mode, links }
    }

    /// The users who may have written a file of this name in `directory`, or put a file of `part`'s owner there. Users
    /// are 0 (root) to 3; user 3 stands for all who own none of the files.
    fn may_have_done_it(part: &Ownership, directory: &Ownership) -> Vec<u32> {
        let classes = [(0o200, true), (0o020, false), (0o002, false)];
        let writes = |user: u32| {
            let is_owner = user == directory.owner;
            let granted = classes
                .iter()
                .any(|(bit, of_owner)| *of_owner == is_owner && directory.mode & bit != 0);
            // An owner can give himself any permission.
            user == 0 || is_owner || granted
        };
        let is_file = part.mode & 0o170_000 == FILE;
        let is_sticky = directory.mode & 0o1000 != 0;
        let links = is_file && is_sticky && part.links > 1;
        let other_owner = (1..=3).filter(|user| *user != part.owner && *user != directory.owner);
        let linked = other_owner.filter(|user| links && writes(*user));
        std::iter::once(part.owner).chain(linked).collect()
    }

    fn all(mut check: impl FnMut(&Ownership, u32, &Ownership)) {
        let modes = || (0..0o2000).map(|mode| mode & 0o1777);
        for (owner, log_owner, dir_owner) in (0..27).map(|n| (n % 3, n / 3 % 3, n / 9)) {
            for mode in modes() {
                for (kind, links) in [(FILE, 1), (FILE, 2), (DIR, 1), (DIR, 2)] {
                    let part = of(owner, kind | 0o644, links);
                    check(&part, log_owner, &of(dir_owner, DIR | mode, 2));
                }
            }
        }
    }

    #[test]
    fn a_file_belongs_to_a_log_where_only_trusted_users_can_have_put_it_there() {
        let mut accepted = 0;
        all(|part, log_owner, directory| {
            let others_write = directory.mode & 0o022 != 0;
            let mut trusted = vec![0, log_owner];
            if !others_write {
                trusted.push(directory.owner);
            }
            let who = may_have_done_it(part, directory);
            let expected = who.iter().all(|user| trusted.contains(user));
            let told = belongs(part, log_owner, directory);
            assert_eq!(
                told.is_ok(),
                expected,
                "{part:?} for {log_owner} in {directory:?}: {who:?}"
            );
            accepted += usize::from(expected);
        });
        assert!(accepted > 1000);
    }

    #[test]
    fn a_log_hides_only_what_belongs_to_it_and_never_files_of_others() {
        let mut hidden = 0;
        all(|part, log_owner, directory| {
            for links in [1, 2] {
                let log = of(log_owner, FILE | 0o644, links);
                let hides = may_hide(&log, part, directory);
                hidden += usize::from(hides);
                if hides {
                    assert!(belongs(part, log_owner, directory).is_ok());
                    let is_private = directory.mode & 0o022 == 0;
                    assert!(is_private || part.owner == log_owner);
                    assert!(is_private || links == 1 || directory.mode & 0o1000 == 0);
                }
            }
        });
        assert!(hidden > 1000);
    }

    #[test]
    fn reasons_name_the_users_and_what_to_do() {
        let sticky = of(0, DIR | 0o1777, 9);
        let text = |part| belongs(&part, 1, &sticky).unwrap_err().to_string();
        let other = text(of(2, FILE | 0o644, 1));
        assert!(
            other.starts_with("user 2 owns it, and user 1 owns the log file"),
            "{other}"
        );
        assert!(text(of(1, FILE | 0o644, 3)).starts_with("it has 3 hard links"));
    }
}
