//! A mount namespace: mounts of this process exist only for it and for the processes that it starts. They disappear when the
//! last of these has ended, in whatever way.
//!
//! An ordinary user gets one inside a user namespace. In it, this process may mount, and gains no other right. The program
//! that it starts has only the rights of the user.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use h5logfs_common::error::{Error, Result};

use super::mounting::{self, Request, WITHOUT_MOUNT};

/// The error without a namespace: the message of the system, and its probable cause.
fn refused(error: Errno) -> Error {
    const LIMIT: &str = "/proc/sys/user/max_user_namespaces";
    let is_off = fs::read_to_string(LIMIT).is_ok_and(|limit| limit.trim() == "0");
    let reason = if is_off {
        format!("{LIMIT} is 0: users cannot create namespaces here")
    } else {
        format!("{error}: users cannot create namespaces here, as in many containers")
    };
    let reason = format!(
        "{reason}; `h5logfs mount` needs none where fusermount3 is installed; {WITHOUT_MOUNT}"
    );
    Error::of("user namespace", reason)
}

/// Enters a new mount namespace. The process must have only one thread. Later mounts outside still appear in it.
pub fn enter() -> Result<()> {
    if !(geteuid().is_root() && unshare(UnshareFlags::NEWNS).is_ok()) {
        // Read before: inside, users are nobody until they are mapped.
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).map_err(refused)?;
        // The kernel only lets a process map a group if it cannot leave one.
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", &format!("{group} {group} 1"))?;
    }
    let others = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", others).map_err(|e| Error::io("/", e.into()))
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the flags do not concern memory or descriptors, which other threads might share.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Writes a setting. Some systems let users make a namespace, but give them no rights in it.
fn write(path: &str, text: &str) -> Result<()> {
    let written: io::Result<()> = fs::write(path, text);
    written.map_err(|e| refused(Errno::from_io_error(&e).unwrap_or(Errno::PERM)))
}

/// Tests whether this process can mount in its own namespace. Afterwards the process is good for nothing else: its mount has
/// no daemon.
pub fn try_mount() -> Result<()> {
    enter()?;
    let mount_point = std::env::temp_dir();
    let request = Request {
        source: "h5logfs-doctor".as_ref(),
        mount_point: &mount_point,
        allow_other: false,
        helper: mounting::Helper::None,
    };
    mounting::mount_device(&request).map(drop)
}
