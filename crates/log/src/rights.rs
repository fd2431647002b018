//! Access rights of files that replace another file, or that lie beside a log. Users may do no more with them than with
//! that file.
//!
//! A program that writes over a file keeps its owner, permissions, access list and extended attributes. A new file that
//! takes its name has to get them. The journal and the other files beside a log repeat its content, so users who may
//! not read the log may not read them.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{XattrFlags, fsetxattr, lgetxattr, llistxattr};
use rustix::io::Errno;

/// The attribute that holds the access list. With a list, the group bits of the mode are its mask.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

/// Prefix of the attributes that users and their programs set.
const OF_USERS: &[u8] = b"user.";

/// Largest size of a value, and of all names, in bytes (xattr(7)).
const LONGEST: usize = 64 << 10;

const ALL: u32 = 0o777;
const OTHERS_READ: u32 = 0o004;
const GROUP: u32 = 0o070;
/// Shift from the permission bits of others to those of the group.
const TO_GROUP: u32 = 3;

/// Gives the empty file `new` the rights of the file at `old`, as far as this process may. A group other than that of
/// `old` gets the rights of all others.
pub fn limit(new: &File, old: &Path) -> io::Result<()> {
    let wanted = old.symlink_metadata()?;
    // Where all users may read the file, its list protects nothing. A file server need not be asked for it.
    let list = if wanted.mode() & OTHERS_READ == 0 {
        value(old, ACCESS_LIST)?
    } else {
        None
    };
    give(new, &wanted, list)
}

/// Gives `new`, which is to replace the file at `old`, the rights of that file and the extended attributes that users
/// have set.
pub fn take_over(new: &File, old: &Path) -> io::Result<()> {
    give(new, &old.symlink_metadata()?, value(old, ACCESS_LIST)?)?;
    for name in names(old)? {
        if let Some(value) = value(old, &name)? {
            fsetxattr(new, &*name, &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

fn give(new: &File, wanted: &Metadata, list: Option<Vec<u8>>) -> io::Result<()> {
    let mut found = new.metadata()?;
    if (found.uid(), found.gid()) != (wanted.uid(), wanted.gid()) {
        // Only root may give a file away.
        if fchown(new, Some(wanted.uid()), Some(wanted.gid())).is_err() {
            let _ = fchown(new, None, Some(wanted.gid()));
        }
        found = new.metadata()?;
    }
    let mode = match list {
        // With a list, the rights of the group stand in the list.
        Some(_) => wanted.mode() & ALL & !GROUP,
        None => mode_for(wanted, found.gid()),
    };
    if found.mode() & ALL != mode {
        new.set_permissions(Permissions::from_mode(mode))?;
    }
    match list.filter(|_| found.gid() == wanted.gid()) {
        Some(list) => Ok(fsetxattr(new, ACCESS_LIST, &list, XattrFlags::empty())?),
        None => Ok(()),
    }
}

/// The permissions of `file` for a file of group `group`.
fn mode_for(file: &Metadata, group: u32) -> u32 {
    let mode = file.mode() & ALL;
    if file.gid() == group {
        return mode;
    }
    let as_others = mode << TO_GROUP & GROUP;
    mode & (as_others | !GROUP)
}

/// The permissions of a file for its users. A group other than `group` has no more than all others. With an access
/// list, the permissions of the group are left out.
pub fn permissions(file: &Path, group: u32) -> io::Result<u32> {
    let found = file.metadata()?;
    match value(file, ACCESS_LIST)? {
        Some(_) => Ok(found.mode() & ALL & !GROUP),
        None => Ok(mode_for(&found, group)),
    }
}

/// The names of the extended attributes that users have set.
fn names(path: &Path) -> io::Result<Vec<CString>> {
    let mut names = vec![0; LONGEST];
    let len = match llistxattr(path, &mut names) {
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        len => len?,
    };
    let names = names[..len].split_inclusive(|byte| *byte == 0);
    let own = names.filter(|name| name.starts_with(OF_USERS));
    Ok(own
        .filter_map(|name| Some(CStr::from_bytes_with_nul(name).ok()?.to_owned()))
        .collect())
}

/// The value of an extended attribute, if the file has it.
fn value(path: &Path, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; LONGEST];
    match lgetxattr(path, name, &mut value) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mode(file: &File) -> u32 {
        file.metadata().unwrap().mode() & ALL
    }

    #[test]
    fn a_file_gets_the_permissions_and_what_users_have_noted() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o640)).unwrap();
        let noted = rustix::fs::setxattr(&old, "user.note", b"value", XattrFlags::empty());
        let file = File::create(&new).unwrap();
        limit(&file, &old).unwrap();
        assert_eq!((mode(&file), names(&new).unwrap().len()), (0o640, 0));
        take_over(&file, &old).unwrap();
        assert_eq!(mode(&file), 0o640);
        if noted.is_ok() {
            assert_eq!(value(&new, c"user.note").unwrap().unwrap(), b"value");
        }
    }

    #[test]
    fn another_group_may_do_what_all_others_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let group = File::create(&path).unwrap().metadata().unwrap().gid();
        for (given, to_others) in [
            (0o640, 0o600),
            (0o664, 0o644),
            (0o600, 0o600),
            (0o777, 0o777),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(given)).unwrap();
            assert_eq!(permissions(&path, group).unwrap(), given);
            assert_eq!(permissions(&path, group + 1).unwrap(), to_others);
        }
    }
}
