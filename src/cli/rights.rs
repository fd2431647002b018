//! The rights with which root changes files of other users.
//!
//! Who may write to a directory may put a link, or another directory, in the place of anything in it at any time. A command
//! that changes a log looks up several names, one after the other. So where root changes a log in such a directory, it does
//! that with the rights of the owner of the log: whatever a name leads to meanwhile, nothing is reached that this user could
//! not reach.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::{Gid, Uid, User, getgrouplist, setfsgid, setfsuid};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{geteuid, getgid, getgroups, getuid};
use rustix::thread::set_thread_groups;

use h5logfs_common::error::Error;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Does `act`, which changes the log `file`. Where root does it and others may write to a directory on its path, this thread,
/// and those that it starts meanwhile, have the rights of the owner of the file to files.
pub fn with_owners_rights<T>(file: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
    if !geteuid().is_root() {
        return act();
    }
    match owner_to_be(file)? {
        None => act(),
        Some((uid, gid)) => {
            let _rights = Rights::of(uid, gid)
                .with_context(|| format!("{}: no rights of user {uid}", file.display()))?;
            act()
        }
    }
}

/// The rights of another user, until this is dropped.
struct Rights {
    groups: Vec<rustix::process::Gid>,
}

impl Rights {
    fn of(uid: u32, gid: u32) -> Result<Self> {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let gid = user.as_ref().map_or(gid, |user| user.gid.as_raw());
        let groups = user.and_then(|user| {
            let name = std::ffi::CString::new(user.name).ok()?;
            getgrouplist(&name, user.gid).ok()
        });
        let groups = groups.unwrap_or_else(|| vec![Gid::from_raw(gid)]);
        let groups: Vec<_> = groups
            .into_iter()
            .map(|group| rustix::process::Gid::from_raw(group.as_raw()))
            .collect();
        let before = Rights {
            groups: getgroups()?,
        };
        set_thread_groups(&groups)?;
        setfsgid(Gid::from_raw(gid));
        setfsuid(Uid::from_raw(uid));
        // These calls tell no error, but what was set before.
        ensure!(
            setfsuid(Uid::from_raw(uid)).as_raw() == uid
                && setfsgid(Gid::from_raw(gid)).as_raw() == gid,
            "the system has refused to give up the rights of root"
        );
        Ok(before)
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        setfsuid(Uid::from_raw(getuid().as_raw()));
        setfsgid(Gid::from_raw(getgid().as_raw()));
        if let Err(e) = set_thread_groups(&self.groups) {
            log::warn!("cannot take back the groups of root: {e}");
        }
    }
}

/// The user with whose rights a file is to be changed, and a group of it; `None` where root may do it. Fails where that could be
/// turned against others.
fn owner_to_be(file: &Path) -> Result<Option<(u32, u32)>> {
    let name = file.display();
    let mut walk = Walk::default();
    let Some(found) = walk.to(file)? else {
        return Ok(None);
    };
    match walk.worst {
        OthersMay::OnlyRead => Ok(None),
        _ if found.st_uid != 0 => Ok(Some((found.st_uid, found.st_gid))),
        OthersMay::Add => Ok(None),
        OthersMay::Replace => bail!(
            "{name}: is root's, in a directory where other users may put another file in its place: give it to the owner \
             of the directory, or move it"
        ),
    }
}

/// What other users than root may do in a directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OthersMay {
    #[default]
    OnlyRead,
    /// Add files of their own.
    Add,
    /// Rename and remove those of root.
    Replace,
}

impl OthersMay {
    fn of(dir: &Stat) -> Self {
        const WRITE: u32 = 0o022;
        const STICKY: u32 = 0o1000;
        if dir.st_uid != 0 {
            OthersMay::Replace
        } else if dir.st_mode & WRITE == 0 {
            OthersMay::OnlyRead
        } else if dir.st_mode & STICKY != 0 {
            OthersMay::Add
        } else {
            OthersMay::Replace
        }
    }
}

/// A path that is followed name by name.
#[derive(Default)]
struct Walk {
    /// What others may do in the directories on it.
    worst: OthersMay,
}

impl Walk {
    /// What is at the end of a path; `None` where nothing is, and nobody else may put anything there. Fails where others may,
    /// and at a link that another user may have put there.
    fn to(&mut self, path: &Path) -> Result<Option<Stat>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |dir: &OwnedFd, name: &Path| openat(dir, name, flags, Mode::empty());
        let mut at = openat(CWD, ".", flags, Mode::empty())?;
        let mut names: VecDeque<OsString> = names_of(path);
        let mut links = 0;
        let mut gone = PathBuf::new();
        while let Some(name) = names.pop_front() {
            let dir = fstat(&at)?;
            let others = OthersMay::of(&dir);
            self.worst = self.worst.max(others);
            let next = match open(&at, Path::new(&name)) {
                Err(Errno::NOENT)
                    if others == OthersMay::OnlyRead && self.worst < OthersMay::Replace =>
                {
                    return Ok(None);
                }
                next => next.map_err(|e| Error::io(path, e.into()))?,
            };
            let found = fstat(&next)?;
            gone.push(&name);
            if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
                at = next;
                continue;
            }
            links += 1;
            ensure!(links <= MOST_LINKS, "{}: too many links", path.display());
            ensure!(
                others == OthersMay::OnlyRead || found.st_uid == 0,
                "{}: is a link of another user: give the path that it leads to",
                gone.display()
            );
            let target = readlinkat(&next, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            gone.pop();
            for name in names_of(&target).into_iter().rev() {
                names.push_front(name);
            }
        }
        Ok(Some(fstat(&at)?))
    }
}

/// The names of a path, the root among them.
fn names_of(path: &Path) -> VecDeque<OsString> {
    let components = path.components();
    components
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_owned())
        .collect()
}
