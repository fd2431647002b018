//! The kernel's rules for reading a file and searching a directory, as a function of the user and the permissions of the file.
//!
//! The rules are those of `acl_permission_check` and `posix_acl_permission` in Linux. A test compares them with the kernel.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use super::xattr::{self, proc_path};

/// The extended attribute with a file's access control list.
pub const ACCESS_LIST: &str = "system.posix_acl_access";

const ROOT: u32 = 0;

/// A right that a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To read a file, or to list a directory.
    Read,
    /// To look up names in a directory.
    Search,
}

impl Right {
    /// The bit of the right in each class of a mode, and in each entry of an access control list.
    fn bit(self) -> u32 {
        match self {
            Right::Read => 4,
            Right::Search => 1,
        }
    }

    pub fn verb(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Search => "search",
        }
    }
}

/// The user and the process that sent a request to the kernel.
#[derive(Debug)]
pub struct Caller {
    uid: u32,
    gid: u32,
    pid: u32,
    /// Supplementary groups. A request does not contain them, so they are read when a decision needs them. `None` if they
    /// cannot be determined.
    groups: OnceCell<Option<Vec<u32>>>,
}

impl Caller {
    /// A caller. `uid` and `gid`: the file system IDs. `pid`: 0 for a process outside of this process's namespace.
    pub fn new(uid: u32, gid: u32, pid: u32) -> Self {
        Caller {
            uid,
            gid,
            pid,
            groups: OnceCell::new(),
        }
    }

    pub fn uid(&self) -> u32 {
        self.uid
    }

    pub fn is_root(&self) -> bool {
        self.uid == ROOT
    }

    /// Whether the user is a member of `group`. `None` if that cannot be determined.
    fn is_in(&self, group: u32) -> Option<bool> {
        if self.gid == group {
            return Some(true);
        }
        let groups = self.groups.get_or_init(|| self.ask_for_groups());
        groups.as_ref().map(|groups| groups.contains(&group))
    }

    /// Reads the groups. The process waits for the answer to its request, so no other process can have its number.
    fn ask_for_groups(&self) -> Option<Vec<u32>> {
        let path = (self.pid != 0).then(|| format!("/proc/{}/status", self.pid))?;
        groups_in(&fs::read_to_string(path).ok()?, self.uid, self.gid)
    }
}

/// Whether the user is root, or the user who has mounted.
pub fn is_administrator(uid: u32) -> bool {
    uid == ROOT || uid == rustix::process::geteuid().as_raw()
}

/// The supplementary groups in the text of `/proc/PID/status`. `None` if the file system IDs of the process differ from those
/// of the request: then the process acts for another user with other groups.
fn groups_in(status: &str, uid: u32, gid: u32) -> Option<Vec<u32>> {
    let numbers = |field: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().map(|n| n.parse().ok()).collect()
    };
    // The IDs in a line are real, effective, saved, and file system ID.
    let is_same = |field, id| numbers(field).is_some_and(|ids| ids.get(3) == Some(&id));
    (is_same("Uid:", uid) && is_same("Gid:", gid)).then(|| numbers("Groups:"))?
}

/// The permissions of a file.
#[derive(Debug)]
pub struct Permissions {
    owner: u32,
    group: u32,
    mode: u32,
    acl: Option<Acl>,
}

impl Permissions {
    /// The present permissions of an open file.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        let acl = xattr::get(&file, OsStr::new(ACCESS_LIST))?;
        let acl = acl.map(|bytes| {
            let reason = "an access control list that cannot be read";
            Acl::parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, reason))
        });
        Ok(Permissions {
            owner: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode,
            acl: acl.transpose()?,
        })
    }

    pub fn grant(&self, right: Right, caller: &Caller) -> bool {
        let has = |class: u32| (self.mode >> class) & right.bit() != 0;
        let (owner, group, other) = (has(6), has(3), has(0));
        if caller.is_root() {
            return true;
        }
        if caller.uid == self.owner {
            return owner;
        }
        match &self.acl {
            // The kernel ignores a list whose mask grants nothing.
            Some(acl) if self.mode & 0o070 != 0 => acl.grants(right, self.group, caller),
            _ if group == other => other,
            _ => match caller.is_in(self.group) {
                Some(true) => group,
                Some(false) => other,
                None => group && other,
            },
        }
    }
}

/// A POSIX access control list.
#[derive(Debug)]
struct Acl(Vec<AclEntry>);

#[derive(Debug, Clone, Copy)]
struct AclEntry {
    tag: AclTag,
    /// The rights, as the bits of one class of a mode.
    bits: u32,
}

/// The users covered by an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AclTag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

impl Acl {
    const VERSION: u32 = 2;

    /// Decodes the attribute: a version, and 8 bytes for each entry with tag, rights and ID (`linux/posix_acl_xattr.h`).
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        let (entries, rest) = entries.as_chunks::<8>();
        if u32::from_le_bytes(*version) != Self::VERSION || !rest.is_empty() {
            return None;
        }
        let parsed = entries.iter().map(AclEntry::parse);
        parsed.collect::<Option<_>>().map(Acl)
    }

    /// Whether a caller who does not own the file has the right.
    fn grants(&self, right: Right, owning_group: u32, caller: &Caller) -> bool {
        let of = |tag| self.0.iter().find(move |entry| entry.tag == tag);
        let mask = of(AclTag::Mask).map_or(7, |mask| mask.bits);
        let grants = |entry: &AclEntry, mask: u32| entry.bits & mask & right.bit() != 0;
        if let Some(user) = of(AclTag::User(caller.uid)) {
            return grants(user, mask);
        }
        let membership = |entry: &AclEntry| match entry.tag {
            AclTag::OwningGroup => caller.is_in(owning_group),
            AclTag::Group(group) => caller.is_in(group),
            _ => Some(false),
        };
        let other = of(AclTag::Other).is_some_and(|other| grants(other, 7));
        let (mut is_member, mut may_be_refused) = (false, false);
        for entry in &self.0 {
            match (membership(entry), grants(entry, mask)) {
                (Some(true), true) => return true,
                (Some(true), false) => is_member = true,
                // A caller of unknown membership gets only what both members and others get.
                (None, granted) => may_be_refused |= !granted,
                (Some(false), _) => {}
            }
        }
        !is_member && !may_be_refused && other
    }
}

impl AclEntry {
    fn parse(bytes: &[u8; 8]) -> Option<Self> {
        let [t0, t1, b0, b1, id @ ..] = *bytes;
        let id = u32::from_le_bytes(id);
        let tag = match u16::from_le_bytes([t0, t1]) {
            0x01 => AclTag::Owner,
            0x02 => AclTag::User(id),
            0x04 => AclTag::OwningGroup,
            0x08 => AclTag::Group(id),
            0x10 => AclTag::Mask,
            0x20 => AclTag::Other,
            _ => return None,
        };
        Some(AclEntry {
            tag,
            bits: u32::from(u16::from_le_bytes([b0, b1])),
        })
    }
}

/// Whether this process may read an open file now. The system decides.
pub fn may_read(file: impl AsFd) -> Result<bool, Errno> {
    let path = proc_path(file.as_fd());
    match rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use rustix::fs::XattrFlags;

    use super::*;

    const ANYBODY: u32 = u32::MAX;

    fn list(entries: &[(u16, u32, u16)]) -> Vec<u8> {
        let mut bytes = Acl::VERSION.to_le_bytes().to_vec();
        for (tag, id, bits) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller {
            uid,
            gid,
            pid: 0,
            groups: OnceCell::from(Some(groups.to_vec())),
        }
    }

    #[test]
    fn groups_count_only_for_the_ids_of_the_request() {
        let status = "Name:\tcat\nUid:\t1\t2\t3\t7\nGid:\t4\t5\t6\t8\nGroups:\t10 20 \n";
        assert_eq!(groups_in(status, 7, 8), Some(vec![10, 20]));
        assert_eq!(groups_in(status, 2, 8), None);
        assert_eq!(groups_in(status, 7, 5), None);
        assert_eq!(groups_in("", 0, 0), None);
        assert_eq!(
            groups_in("Uid:\t1 1 1 1\nGid:\t1 1 1 1\nGroups:\t\n", 1, 1),
            Some(vec![])
        );
    }

    #[test]
    fn our_own_groups_are_found() {
        let us = rustix::process::getgroups().unwrap();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let pid = std::process::id();
        let found = |pid| Caller::new(uid.as_raw(), gid.as_raw(), pid).ask_for_groups();
        let us: BTreeSet<u32> = us.iter().map(|group| group.as_raw()).collect();
        let ours = found(pid).unwrap();
        assert_eq!(ours.into_iter().collect::<BTreeSet<_>>(), us);
        assert_eq!(found(0), None);
    }

    #[test]
    fn who_may_be_in_a_group_gets_no_more_for_it() {
        let unknown = Caller::new(1, 2, 0);
        let permissions = |mode, entries: &[(u16, u32, u16)]| Permissions {
            owner: 0,
            group: 3,
            mode,
            acl: (!entries.is_empty()).then(|| Acl::parse(&list(entries)).unwrap()),
        };
        let reads = |mode, entries: &[_]| permissions(mode, entries).grant(Right::Read, &unknown);
        assert!(reads(0o644, &[]));
        assert!(!reads(0o604, &[]) && !reads(0o640, &[]));
        // The entries are owner, owning group, another group, mask, others.
        let of = |owning, named, other| {
            [
                (1, ANYBODY, 6),
                (4, ANYBODY, owning),
                (8, 9, named),
                (0x10, ANYBODY, 7),
                (0x20, ANYBODY, other),
            ]
        };
        assert!(reads(0o674, &of(4, 4, 4)));
        assert!(!reads(0o674, &of(4, 0, 4)) && !reads(0o674, &of(0, 4, 4)));
        assert!(!reads(0o670, &of(4, 4, 0)));
    }

    #[test]
    fn lists_with_no_sense_are_refused() {
        let good = list(&[(1, ANYBODY, 6), (4, ANYBODY, 4), (0x20, ANYBODY, 0)]);
        assert_eq!(Acl::parse(&good).unwrap().0.len(), 3);
        for len in 0..good.len() {
            let cut = Acl::parse(&good[..len]);
            assert!(
                cut.is_none_or(|cut| len % 8 == 4 && cut.0.len() < 3),
                "{len}"
            );
        }
        assert!(Acl::parse(&list(&[(3, 0, 4)])).is_none());
        let mut other = good;
        other[0] = 1;
        assert!(Acl::parse(&other).is_none());
    }

    // Comparison with the kernel. The users and groups exist as numbers only.

    const USERS: std::ops::Range<u32> = 61_001..61_004;
    const GROUPS: std::ops::Range<u32> = 62_001..62_005;

    /// Permissions of a file. With an access control list, the group bits of the mode are its mask.
    #[derive(Debug, Clone)]
    struct Case {
        owner: u32,
        group: u32,
        mode: u32,
        /// Entries of the list: true for a user and false for a group, the number, and the rights.
        named: Vec<(bool, u32, u16)>,
        /// The rights of the owning group in the list.
        owning_group: u16,
    }

    fn case() -> impl Strategy<Value = Case> {
        let named = (any::<bool>(), 0..4u32, 0..8u16);
        let named = prop::collection::vec(named, 0..5);
        // Classes with all rights or none are more frequent than one in eight.
        let bits = || prop_oneof![Just(0), Just(7), 0..8u32];
        let mode = (bits(), bits(), bits()).prop_map(|(u, g, o)| u << 6 | g << 3 | o);
        let all = (USERS, GROUPS, mode, named, 0..8u16);
        all.prop_map(|(owner, group, mode, named, owning_group)| Case {
            owner,
            group,
            mode,
            named,
            owning_group,
        })
    }

    impl Case {
        fn list(&self) -> Vec<u8> {
            let class = |shift: u32| ((self.mode >> shift) & 7) as u16;
            let named = |user: bool| self.named.iter().filter(move |n| n.0 == user);
            let users = named(true).map(|(_, n, bits)| (2, USERS.start + n % 3, *bits));
            let groups = named(false).map(|(_, n, bits)| (8, GROUPS.start + n, *bits));
            let mut all = vec![(1, ANYBODY, class(6))];
            all.extend(users);
            all.push((4, ANYBODY, self.owning_group));
            all.extend(groups);
            all.extend([(0x10, ANYBODY, class(3)), (0x20, ANYBODY, class(0))]);
            // Each user and group has one entry.
            let mut seen = BTreeSet::new();
            all.retain(|(tag, id, _)| seen.insert((*tag, *id)));
            list(&all)
        }

        fn apply(&self, path: &Path) -> io::Result<()> {
            chown(path, Some(self.owner), Some(self.group))?;
            fs::set_permissions(path, fs::Permissions::from_mode(self.mode))?;
            if !self.named.is_empty() {
                rustix::fs::setxattr(path, ACCESS_LIST, &self.list(), XattrFlags::empty())?;
            }
            Ok(())
        }
    }

    /// The files in `dir` that a process with these ids can read or search, according to the kernel.
    fn told_by_kernel(dir: &Path, uid: u32, gid: u32, groups: &[u32]) -> BTreeSet<String> {
        let groups = match groups {
            [] => "--clear-groups".to_owned(),
            _ => {
                let numbers: Vec<String> = groups.iter().map(u32::to_string).collect();
                format!("--groups={}", numbers.join(","))
            }
        };
        let found = Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={gid}"), groups])
            .args(["--", "sh", "-c"])
            .arg(r#"for f in *; do test -r $f && echo $f r; test -d $f -a -x $f && echo $f x; done; :"#)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(found.status.success(), "{found:?}");
        let said = String::from_utf8(found.stdout).unwrap();
        said.lines().map(str::to_owned).collect()
    }

    fn told_by_us(dir: &Path, caller: &Caller) -> BTreeSet<String> {
        let mut told = BTreeSet::new();
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let permissions = Permissions::of(fs::File::open(entry.path()).unwrap()).unwrap();
            if permissions.grant(Right::Read, caller) {
                told.insert(format!("{name} r"));
            }
            if entry.path().is_dir() && permissions.grant(Right::Search, caller) {
                told.insert(format!("{name} x"));
            }
        }
        told
    }

    #[test]
    fn we_decide_as_the_kernel_does() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can act as other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut runner = TestRunner::default();
        let (mut with_list, cases) = (0, 400);
        for number in 0..cases {
            let case = case().new_tree(&mut runner).unwrap().current();
            let path = dir.path().join(format!("{number}"));
            match number % 3 {
                0 => fs::create_dir(&path).unwrap(),
                _ => fs::write(&path, "").unwrap(),
            }
            match case.apply(&path) {
                Err(e) if e.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                    eprintln!(
                        "skipped: {} has no access control lists",
                        dir.path().display()
                    );
                    return;
                }
                other => other.unwrap(),
            }
            with_list += usize::from(!case.named.is_empty());
        }
        assert!(with_list > cases / 2);
        let groups = |some: &[u32]| some.iter().map(|n| GROUPS.start + n).collect::<Vec<_>>();
        for uid in (USERS.start - 1..USERS.end).chain([ROOT]) {
            for (gid, others) in [(0, &[][..]), (1, &[2]), (3, &[0, 1]), (7, &[])] {
                let (gid, others) = (GROUPS.start + gid, groups(others));
                let kernel = told_by_kernel(dir.path(), uid, gid, &others);
                let us = told_by_us(dir.path(), &caller(uid, gid, &others));
                let differ: Vec<_> = kernel.symmetric_difference(&us).collect();
                assert!(
                    differ.is_empty(),
                    "user {uid}, {gid}, {others:?}: {differ:?}"
                );
                assert!(kernel.len() > cases / 8);
            }
        }
    }
}
