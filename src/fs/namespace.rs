//! A namespace of mounts: what this process mounts is there for it and for the processes that it starts, and for nobody else. It is
//! gone when the last of these has ended, however that was.
//!
//! An ordinary user gets one with a namespace of users around it, in which this process may mount and has no other right that it
//! did not have before. The program that it starts has the rights of the user alone.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use h5logfs_common::error::{Error, Result};

use super::mounting::{self, Request, WITHOUT_MOUNT};

/// Why there is no namespace for a user: what the system says, and what may be behind it.
fn refused(error: Errno) -> Error {
    const LIMIT: &str = "/proc/sys/user/max_user_namespaces";
    let is_off = fs::read_to_string(LIMIT).is_ok_and(|limit| limit.trim() == "0");
    let reason = if is_off {
        format!("{LIMIT} is 0: users get no namespaces here")
    } else {
        format!("{error}: users get no namespaces here, as in many containers")
    };
    let reason = format!(
        "{reason}; `h5logfs mount` needs none where fusermount3 is installed; {WITHOUT_MOUNT}"
    );
    Error::of("user namespace", reason)
}

/// Enters a new namespace of mounts. The process must have one thread only. Mounts that are made outside still appear in it.
pub fn enter() -> Result<()> {
    if !(geteuid().is_root() && unshare(UnshareFlags::NEWNS).is_ok()) {
        // Asked before: inside, users are nobody until they are mapped.
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).map_err(refused)?;
        // The kernel lets only those map a group who cannot leave one.
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", &format!("{group} {group} 1"))?;
    }
    let others = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", others).map_err(|e| Error::io("/", e.into()))
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the flags have nothing to do with memory or descriptors, which other threads might share.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Some systems let users make a namespace, and give them no rights in it.
fn write(path: &str, text: &str) -> Result<()> {
    let written: io::Result<()> = fs::write(path, text);
    written.map_err(|e| refused(Errno::from_io_error(&e).unwrap_or(Errno::PERM)))
}

/// Whether this process could mount in a namespace of its own. It cannot do anything else afterwards: what it has mounted has no
/// daemon.
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
