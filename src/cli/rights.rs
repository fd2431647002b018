//! The rights with which root changes files of other users.
//!
//! A user with write access to a directory may replace anything in it by a link or another directory at any time. A command
//! that changes a log looks up several names, one after the other. So root changes a log in such a directory with the rights
//! of the log's owner: wherever a name leads, nothing is accessible that this user could not access.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::{Gid, Uid, User, getgrouplist, setfsgid, setfsuid};
use rustix::process::{geteuid, getgroups};
use rustix::thread::set_thread_groups;

use h5logfs_log::walk::{OthersMay, walk};

/// Runs `act`, which changes the log `file`. If root runs it and others may write to a directory on the path, this thread,
/// and threads that it starts meanwhile, have the owner's rights to files.
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

/// The rights of another user, until this is dropped. It stores the previous rights, which need not be those of the real
/// user: a set-user-ID root program has only the effective user.
struct Rights {
    user: Uid,
    group: Gid,
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
        let own_groups = getgroups()?;
        set_thread_groups(&groups)?;
        // These calls return the previous value and report no errors.
        let before = Rights {
            group: setfsgid(Gid::from_raw(gid)),
            user: setfsuid(Uid::from_raw(uid)),
            groups: own_groups,
        };
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
        setfsuid(self.user);
        setfsgid(self.group);
        if let Err(e) = set_thread_groups(&self.groups) {
            log::warn!("cannot take back the groups of root: {e}");
        }
    }
}

/// The user with whose rights a file is to be changed, and a group of that user; `None` if root may do it. Fails if that
/// could be misused against others.
fn owner_to_be(file: &Path) -> Result<Option<(u32, u32)>> {
    let name = file.display();
    let Some(found) = walk(file)? else {
        return Ok(None);
    };
    let stat = found.stat()?;
    match found.others {
        OthersMay::OnlyRead => Ok(None),
        _ if stat.st_uid != 0 => Ok(Some((stat.st_uid, stat.st_gid))),
        OthersMay::Add => Ok(None),
        OthersMay::Replace => bail!(
            "{name}: root owns it, in a directory where other users may put another file in its place: give it to the \
             owner of the directory, or move it"
        ),
    }
}
