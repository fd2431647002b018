//! Users that exist only as numbers. The kernel needs no more, so nothing is created or removed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::fs::XattrFlags;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tempfile::TempDir;

use super::{Mounted, User, can_act, can_mount, is_root};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person {
    pub name: &'static str,
    pub uid: u32,
    /// A group of this user only.
    pub gid: u32,
    pub group: Option<u32>,
}

/// A group of several users.
pub const TEAM: u32 = 62_100;

pub const ALICE: Person = Person::new("alice", 61_101, None);
pub const BOB: Person = Person::new("bob", 61_102, None);
pub const CAROL: Person = Person::new("carol", 61_103, Some(TEAM));
pub const ALL: [Person; 3] = [ALICE, BOB, CAROL];

impl Person {
    const fn new(name: &'static str, number: u32, group: Option<u32>) -> Self {
        Person {
            name,
            uid: number,
            gid: number,
            group,
        }
    }

    pub fn command(self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={}", self.uid),
            format!("--regid={}", self.gid),
            match self.group {
                Some(group) => format!("--groups={group}"),
                None => "--clear-groups".to_owned(),
            },
        ]);
        command.args(["--", program]).env("LC_ALL", "C");
        command
    }

    /// Does `work` in a thread with this person's rights, which threads that it starts inherit. For the kernel a
    /// thread has its own credentials.
    pub fn act<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let acting = scope.spawn(|| {
                let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
                let groups = self.group.map(Gid::from_raw);
                set_thread_groups(groups.as_slice()).unwrap();
                set_thread_res_gid(gid, gid, gid).unwrap();
                set_thread_res_uid(uid, uid, uid).unwrap();
                work()
            });
            acting.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The content of a file; `None` where this person is denied it.
    pub fn read(self, path: &Path) -> Option<Vec<u8>> {
        self.output("cat", path)
    }

    /// Whether this person can list a directory.
    pub fn can_list(self, path: &Path) -> bool {
        self.output("ls", path).is_some()
    }

    /// The kernel's answer, without opening anything.
    pub fn has_access(self, path: &Path) -> bool {
        let asked = self.command("test").arg("-r").arg(path).status();
        asked.unwrap().success()
    }

    fn output(self, program: &str, path: &Path) -> Option<Vec<u8>> {
        let output = self.command(program).arg(path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let denied = said.contains("Permission denied");
        assert!(output.status.success() || denied, "{path:?}: {said}");
        (!denied).then_some(output.stdout)
    }

    /// Gives a file to this person, with this mode.
    pub fn owns(self, path: &Path, mode: u32) {
        chown(path, Some(self.uid), Some(self.gid)).unwrap();
        set_mode(path, mode);
    }
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Whether files of several users can be made here; prints the reason if not.
pub fn can_be_others() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can act as several users");
        return false;
    }
    can_act(User::Nobody)
}

/// An entry of an access control list, with bits as in a mode.
#[derive(Debug, Clone, Copy)]
pub enum Entry {
    User(u32, u16),
    Group(u32, u16),
}

pub const ACCESS_LIST: &str = "system.posix_acl_access";
pub const DEFAULT_LIST: &str = "system.posix_acl_default";

/// The content of the attribute (`linux/posix_acl_xattr.h`). `classes` has the bits of the owner, the owning group,
/// the mask, and others.
pub fn list(classes: [u16; 4], named: &[Entry]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let [owner, group, mask, other] = classes;
    let mut entries = vec![(1, owner, NOBODY)];
    entries.extend(named.iter().filter_map(|entry| match entry {
        Entry::User(id, bits) => Some((2, *bits, *id)),
        Entry::Group(..) => None,
    }));
    entries.push((4, group, NOBODY));
    entries.extend(named.iter().filter_map(|entry| match entry {
        Entry::Group(id, bits) => Some((8, *bits, *id)),
        Entry::User(..) => None,
    }));
    entries.extend([(16, mask, NOBODY), (32, other, NOBODY)]);
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(bits));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

pub fn set_list(path: &Path, classes: [u16; 4], named: &[Entry]) {
    let list = list(classes, named);
    rustix::fs::setxattr(path, ACCESS_LIST, &list, XattrFlags::empty()).unwrap();
}

/// Whether the file system of `directory` has access control lists; prints if not.
pub fn has_lists(dir: &Path) -> bool {
    let entries = list([7, 5, 5, 5], &[]);
    let set = rustix::fs::setxattr(dir, ACCESS_LIST, &entries, XattrFlags::empty());
    if let Err(e) = set {
        eprintln!(
            "skipped: {} has no access control lists: {e}",
            dir.display()
        );
    }
    set.is_ok()
}

/// A file or directory below `tests`.
pub fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// A source that all users can enter.
pub fn open_source() -> TempDir {
    let source = tempfile::tempdir().unwrap();
    set_mode(source.path(), 0o755);
    source
}

/// Copies `from` to `to`, readable for all.
pub fn copy(from: &Path, to: &Path) {
    let mut copying = Command::new("cp");
    copying.arg("-rL").args([from, to]);
    assert!(copying.status().unwrap().success());
    let readable = Command::new("chmod")
        .args(["-R", "u=rwX,go=rX"])
        .arg(to)
        .status();
    assert!(readable.unwrap().success());
}

/// Mounts as root for all users.
pub fn mount_for_all(source: &Path) -> Mounted {
    Mounted::new(source, "allow_other,index_dir=none")
}

/// Whether root can mount here and act as several users; prints the reason if not.
pub fn ready() -> bool {
    can_be_others() && can_mount(User::Caller)
}
