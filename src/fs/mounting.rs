//! Mounts and unmounts a `/dev/fuse` descriptor.
//!
//! fuser can do both, but it unmounts by path. Another user may have unmounted our file system and mounted another one there.
//! So this module mounts, and passes the descriptor to fuser.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use h5logfs_common::error::{Error, Result};

use super::mount_users;
use super::mounts::{MOUNT_TYPE, MountId, Mounts, Table};

const DEVICE: &str = "/dev/fuse";

/// The path of an open descriptor, without its number.
const DESCRIPTORS: &str = "/dev/fd/";

/// The advice in messages that mounting is impossible.
pub const WITHOUT_MOUNT: &str = "without a mount, HDF5 programs read logs with HDF5_DRIVER=h5logfs (h5logfs_driver(7)), Python with the package h5logfs, and `h5logfs export` makes an HDF5 file";

/// Directories that may contain fusermount3, besides PATH. mount(8) starts its helpers without a PATH.
const USUAL_DIRECTORIES: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// Environment variable with the socket on which a service manager receives messages of its service.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// A command for a helper program of the daemon. It does not get the socket of the service manager, which would take its
/// messages for the daemon's.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove(NOTIFY_SOCKET);
    command
}

/// The parameters of a mount.
#[derive(Debug)]
pub struct Request<'a> {
    /// Source in the table of mounts.
    pub source: &'a Path,
    /// Mount point from `checked_mount_point`.
    pub mount_point: &'a Path,
    pub allow_other: bool,
    pub helper: Helper,
}

/// The program that mounts if this process may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// fusermount3.
    Fusermount,
    /// None: in a user namespace, fusermount3 has no more rights than this process.
    None,
}

/// A mount of this process. A drop unmounts it, unless it is unmounted already.
#[derive(Debug)]
pub struct Mounted {
    id: MountId,
    /// The table of mounts, held open because readers may have taken all other descriptors by the unmount.
    table: Table,
    /// Whether a drop has nothing to unmount.
    ended: bool,
}

impl Mounted {
    pub fn id(&self) -> MountId {
        self.id
    }

    /// Unmounts without waiting for open files, which stay readable.
    pub fn unmount(&self) -> Result<()> {
        match self.table.read()?.path_of(self.id) {
            Some(path) => unmount_path(path, InUse::Detach),
            None => Ok(()),
        }
    }

    /// Cleans up after the end of the session. Normally the mount is gone, and another file system may be at the path. A
    /// mount whose connection was cut remains, and is unmounted here. Returns whether the mount is gone.
    pub fn clean_up(mut self) -> bool {
        self.ended = true;
        let outcome = self.table.read();
        match outcome.and_then(|mounts| unmount_if_dead_in(&mounts, self.id)) {
            Ok(gone) => gone,
            Err(error) => {
                log::warn!("cannot unmount: {error}");
                false
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Err(error) = self.unmount() {
            log::warn!("cannot unmount: {error}");
        }
    }
}

/// Unmounts the mount `id` if no daemon serves it any more. Returns whether the mount is gone.
pub fn unmount_if_dead(id: MountId) -> Result<bool> {
    unmount_if_dead_in(&Mounts::now()?, id)
}

fn unmount_if_dead_in(mounts: &Mounts, id: MountId) -> Result<bool> {
    match mounts.path_of(id) {
        Some(path) if is_dead(path) => unmount_path(path, InUse::Detach).map(|()| true),
        still_there => Ok(still_there.is_none()),
    }
}

/// The treatment of a mount that programs still use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// The mount stays.
    Keep,
    /// The mount leaves the directory tree. Open files stay readable, and the daemon ends after the last of them.
    Detach,
}

/// Unmounts the h5logfs at `path`. Fails if there is none, or if another mount covers it.
pub fn unmount(path: &Path, in_use: InUse) -> Result<()> {
    let real = real_path(path).map_err(|e| Error::io(path, e))?;
    let Some(id) = Mounts::now()?.ours_at(&real) else {
        return Err(Error::of(path, "no h5logfs is mounted here"));
    };
    unmount_path(&real, in_use).map_err(|error| {
        if Mounts::now().is_ok_and(|now| now.path_of(id).is_none()) {
            return error;
        }
        let users = mount_users::describe(id, &real);
        if users.is_empty() {
            return error;
        }
        let reason = format!("it is in use: {users}; --lazy detaches it anyway");
        Error::of(path, reason)
    })
}

/// Unmounts an h5logfs at `path` whose daemon has died. Other mounts stay.
pub fn unmount_dead(path: &Path) -> Result<()> {
    unmount_dead_since(path, None)
}

/// The h5logfs at `path`, dead or not.
pub fn mount_at(path: &Path) -> Result<Option<MountId>> {
    let real = real_path(path).map_err(|e| Error::io(path, e))?;
    Ok(Mounts::now()?.ours_at(&real))
}

/// Unmounts an h5logfs at `path` whose daemon has died, unless it was there `before`.
pub fn unmount_dead_since(path: &Path, before: Option<MountId>) -> Result<()> {
    match mount_at(path)? {
        Some(id) if Some(id) != before => unmount_if_dead(id).map(drop),
        _ => Ok(()),
    }
}

/// Whether the file system at `path` has lost its daemon. The request bypasses the kernel's cache of attributes.
pub fn is_dead(path: &Path) -> bool {
    let answer = rustix::fs::statx(
        CWD,
        path,
        AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT,
        StatxFlags::BASIC_STATS,
    );
    matches!(answer, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// The mount point without symbolic links. Fails if it is not usable.
pub fn checked_mount_point(path: &Path) -> Result<PathBuf> {
    let real = real_path(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::of(path, "the mount point does not exist"),
        _ => Error::io(path, e),
    })?;
    if Mounts::now()?.ours_at(&real).is_some() {
        let reason = if is_dead(&real) {
            "an h5logfs that has died is still mounted here; unmount it first (umount, or fusermount3 -u)"
        } else {
            "an h5logfs is mounted here already"
        };
        return Err(Error::of(path, reason));
    }
    let metadata = fs::metadata(&real).map_err(|e| Error::io(path, e))?;
    if metadata.is_dir() {
        Ok(real)
    } else {
        Err(Error::of(
            path,
            "the mount point must be a directory, also when a single file is mounted",
        ))
    }
}

/// Resolves symbolic links. For a dead mount, only the parent directory can be resolved.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(e), Some(parent), Some(name)) if Errno::from_io_error(&e) == Some(Errno::NOTCONN) => {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            Ok(parent.canonicalize()?.join(name))
        }
        (outcome, ..) => outcome,
    }
}

/// Mounts with mount(2) if permitted, otherwise with fusermount3.
pub fn mount(request: &Request<'_>) -> Result<(OwnedFd, Mounted)> {
    let table = Table::open()?;
    let device = mount_device(request)?;
    match mounted_at(request.mount_point, &table) {
        Ok(id) => {
            let ended = false;
            Ok((device, Mounted { id, table, ended }))
        }
        Err(e) => {
            if let Err(error) = unmount_path(request.mount_point, InUse::Detach) {
                log::warn!("cannot unmount: {error}");
            }
            Err(e)
        }
    }
}

/// The number in a path such as `/dev/fd/5`. By libfuse's convention, the caller has opened the device, has mounted, and
/// passes the descriptor by this number. `None` for any other path.
pub fn given_device(mount_point: &Path) -> Option<RawFd> {
    let number = mount_point.to_str()?.strip_prefix(DESCRIPTORS)?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    number.parse().ok().filter(|_| is_number)
}

/// Takes over the device that the caller has opened under this number. Nobody else in this process may use the number.
pub fn take_device(number: RawFd) -> Result<OwnedFd> {
    let failed = |reason: String| Error::of(format!("{DESCRIPTORS}{number}"), reason);
    let is_standard = number <= 2;
    // SAFETY: the descriptor is only examined. An unused number is an error of the system.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    let found = rustix::fs::fstat(borrowed).map_err(|e| failed(e.to_string()))?;
    let is_device = rustix::fs::stat(DEVICE).map_or_else(
        |_| {
            (
                rustix::fs::major(found.st_rdev),
                rustix::fs::minor(found.st_rdev),
            ) == (10, 229)
        },
        |device| device.st_rdev == found.st_rdev,
    );
    if is_standard || !is_device {
        let reason = "it is not a descriptor of /dev/fuse: open that, mount with it, and give the number of the descriptor";
        return Err(failed(reason.to_owned()));
    }
    // SAFETY: `fstat` shows that the descriptor is open. The caller of the program has made it for this purpose, and no other
    // part of the program knows the number.
    let device = unsafe { OwnedFd::from_raw_fd(number) };
    // While another process has it, the kernel considers the file system alive.
    rustix::io::fcntl_setfd(&device, FdFlags::CLOEXEC).map_err(|e| failed(e.to_string()))?;
    Ok(device)
}

/// Mounts, and returns the device by which the mount is served.
pub fn mount_device(request: &Request<'_>) -> Result<OwnedFd> {
    let failed = |path: &Path, e: Errno| Error::io(path, e.into());
    match mount_directly(request) {
        Err((_, Errno::PERM | Errno::ACCESS)) if request.helper == Helper::Fusermount => {
            mount_with_helper(request)
        }
        Err((path, e @ (Errno::PERM | Errno::ACCESS))) => {
            let reason = format!("{}; {WITHOUT_MOUNT}", io::Error::from(e));
            Err(Error::of(path, reason))
        }
        Err((_, Errno::NOENT | Errno::NODEV | Errno::NXIO)) => {
            let reason = format!(
                "there is no FUSE device; is the kernel module fuse loaded? Otherwise: {WITHOUT_MOUNT}"
            );
            Err(Error::of(DEVICE, reason))
        }
        mounted => mounted.map_err(|(path, e)| failed(path, e)),
    }
}

fn mounted_at(mount_point: &Path, table: &Table) -> Result<MountId> {
    let id = table.read()?.ours_at(mount_point);
    id.ok_or_else(|| Error::of(mount_point, "the mount has disappeared again"))
}

pub fn open_device() -> Result<OwnedFd, Errno> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Mounts without a helper. Fails with the path concerned.
fn mount_directly<'a>(request: &Request<'a>) -> Result<OwnedFd, (&'a Path, Errno)> {
    let device = open_device().map_err(|e| (Path::new(DEVICE), e))?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    for option in access_options(request) {
        data.push(',');
        data.push_str(option);
    }
    let failed = |e| (request.mount_point, e);
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    rustix::mount::mount(
        request.source,
        request.mount_point,
        MOUNT_TYPE,
        flags,
        data.as_c_str(),
    )
    .map_err(failed)?;
    Ok(device)
}

/// Options that give other users access within the permissions of the source files.
fn access_options(request: &Request<'_>) -> &'static [&'static str] {
    if request.allow_other {
        &["allow_other", "default_permissions"]
    } else {
        &[]
    }
}

/// Mounts with fusermount3, which is set-uid root. It opens the device, mounts, and sends the descriptor through the socket
/// whose number is in `_FUSE_COMMFD`.
fn mount_with_helper(request: &Request<'_>) -> Result<OwnedFd> {
    let helper = find_helper()?;
    let failed = |e: io::Error| Error::io(&helper, e);
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| failed(e.into()))?;
    // This statement drops the command, and with it this process's copy of the helper's end of the socket. With that copy, a wait
    // for a failed helper would never end.
    let child = command(&helper)
        .arg("-o")
        .arg(helper_options(request))
        .arg("--")
        .arg(request.mount_point)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let received = receive_descriptor(&ours);
    drop(ours);
    let message = error_message_of(child).map_err(failed)?;
    match (received, message) {
        (Ok(Some(device)), None) => Ok(device),
        (_, Some(message)) => Err(Error::of(
            request.mount_point,
            format!("{message}; {WITHOUT_MOUNT}"),
        )),
        (Err(e), None) => Err(failed(e.into())),
        (Ok(None), None) => Err(Error::of(&helper, "sent no descriptor")),
    }
}

fn helper_options(request: &Request<'_>) -> OsString {
    let mut options = b"ro,nosuid,nodev,subtype=h5logfs,fsname=".to_vec();
    options.extend(escaped(request.source));
    for option in access_options(request) {
        options.push(b',');
        options.extend(option.as_bytes());
    }
    OsString::from_vec(options)
}

/// Escapes a path in an option, which a comma would end.
fn escaped(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

fn receive_descriptor(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// The error message of a failed program; `None` after success.
fn error_message_of(child: Child) -> io::Result<Option<String>> {
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(None);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(Some(if message.is_empty() {
        format!("fusermount3 failed ({})", output.status)
    } else {
        message
    }))
}

fn find_helper() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(USUAL_DIRECTORIES.map(PathBuf::from));
    // An empty or relative entry of PATH could be a directory prepared by any user.
    let dirs: Vec<PathBuf> = dirs.filter(|f| f.is_absolute()).collect();
    ["fusermount3", "fusermount"]
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            let reason = format!(
                "not found; install the package fuse3, mount as root, or use `h5logfs run`; {WITHOUT_MOUNT}"
            );
            Error::of("fusermount3", reason)
        })
}

fn unmount_path(path: &Path, in_use: InUse) -> Result<()> {
    let flags = match in_use {
        InUse::Keep => UnmountFlags::NOFOLLOW,
        InUse::Detach => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(path, flags) {
        Err(Errno::PERM) => unmount_with_helper(path, in_use),
        other => other.map_err(|e| Error::io(path, e.into())),
    }
}

fn unmount_with_helper(path: &Path, in_use: InUse) -> Result<()> {
    let helper = find_helper()?;
    let detach = (in_use == InUse::Detach).then_some("-z");
    let child = command(&helper)
        .arg("-u")
        .args(detach)
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    match child.and_then(error_message_of) {
        Ok(None) => Ok(()),
        Ok(Some(message)) => Err(Error::of(path, message)),
        Err(e) => Err(Error::io(&helper, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(source: &str, allow_other: bool) -> Request<'_> {
        Request {
            source: Path::new(source),
            mount_point: Path::new("/mnt"),
            allow_other,
            helper: Helper::Fusermount,
        }
    }

    #[test]
    fn a_source_cannot_smuggle_in_options() {
        assert_eq!(
            helper_options(&request("/a,suid\\", false)),
            "ro,nosuid,nodev,subtype=h5logfs,fsname=/a\\,suid\\\\"
        );
    }

    #[test]
    fn others_get_in_past_permissions_only() {
        let options = helper_options(&request("/a", true));
        assert_eq!(
            options,
            "ro,nosuid,nodev,subtype=h5logfs,fsname=/a,allow_other,default_permissions"
        );
    }

    #[test]
    fn descriptors_are_known_by_their_paths() {
        let given = |path: &str| given_device(Path::new(path));
        assert_eq!(given("/dev/fd/5"), Some(5));
        for path in [
            "/dev/fd/",
            "/dev/fd/x",
            "/dev/fd/+5",
            "/dev/fd/5/x",
            "/dev/fuse",
            "5",
        ] {
            assert_eq!(given(path), None, "{path}");
        }
        let other = fs::File::open("/dev/null").unwrap();
        let refused = take_device(other.as_raw_fd()).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("not a descriptor of /dev/fuse")
        );
        assert!(take_device(1_000_000).is_err());
    }

    #[test]
    fn bad_mount_points_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = checked_mount_point(&dir.path().join("missing")).unwrap_err();
        assert!(missing.to_string().contains("does not exist"), "{missing}");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let file = checked_mount_point(&file).unwrap_err();
        assert!(file.to_string().contains("must be a directory"), "{file}");
    }
}
