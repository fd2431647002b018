//! Look-up of paths by a process of root, where other users may change names on the way.
//!
//! A user who may write to a directory can replace anything in it with a link at any time, and root would follow this
//! link. So the walk goes name by name, each below the directory found before. It does not follow links that other
//! users may have made. It holds what it finds by descriptor, so later changes of names have no effect.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;

use crate::source_dir::SourceDir;
use h5logfs_common::error::{Error, Result};

/// Largest number of links on a path, as in the kernel.
const MOST_LINKS: usize = 40;

/// The rights of users other than root in a directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OthersMay {
    /// They change nothing.
    #[default]
    OnlyRead,
    /// They add files of their own.
    Add,
    /// They rename and remove root's files.
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

/// The file at the end of a path.
#[derive(Debug)]
pub struct PathEnd {
    /// Its directory, and its name there. `None` for the root of the file system, and for `..` in the path.
    place: Option<(OwnedFd, OsString)>,
    /// The file, open as a path only (`O_PATH`).
    file: OwnedFd,
    /// The rights of others in the directories that lead to the file.
    pub others: OthersMay,
}

impl PathEnd {
    /// `stat` of the file.
    pub fn stat(&self) -> Result<Stat> {
        fstat(&self.file).map_err(|e| Error::io("a file that was found", e.into()))
    }
}

/// Follows a path. `None` where nothing exists at its end, and no other user can create it. Fails where another user
/// can, and at a link that another user may have made.
pub fn walk(path: &Path) -> Result<Option<PathEnd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |e: Errno| Error::io(path, e.into());
    let mut at = openat(CWD, ".", flags, Mode::empty()).map_err(failed)?;
    let mut place = None;
    let mut names: VecDeque<OsString> = names_of(path);
    let (mut links, mut gone) = (0, PathBuf::new());
    let mut worst = OthersMay::default();
    while let Some(name) = names.pop_front() {
        let others = OthersMay::of(&fstat(&at).map_err(failed)?);
        worst = worst.max(others);
        let next = match openat(&at, &name, flags, Mode::empty()) {
            Err(Errno::NOENT) if others == OthersMay::OnlyRead && worst < OthersMay::Replace => {
                return Ok(None);
            }
            next => next.map_err(failed)?,
        };
        let found = fstat(&next).map_err(failed)?;
        gone.push(&name);
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            let is_name = name != "/" && name != "..";
            let dir = std::mem::replace(&mut at, next);
            place = is_name.then_some((dir, name));
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(failed(Errno::LOOP));
        }
        if others != OthersMay::OnlyRead && found.st_uid != 0 {
            let reason = "is a link of another user: give the path that it leads to";
            return Err(Error::of(&gone, reason));
        }
        let target = readlinkat(&next, "", Vec::new()).map_err(failed)?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        gone.pop();
        for name in names_of(&target).into_iter().rev() {
            names.push_front(name);
        }
    }
    Ok(Some(PathEnd {
        place,
        file: at,
        others: worst,
    }))
}

/// The names in a path. The root is one of them.
fn names_of(path: &Path) -> VecDeque<OsString> {
    let components = path.components();
    components
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// The directory at a path, by its real path. Safe for root: no link of another user is followed.
pub fn directory(path: &Path) -> Result<SourceDir> {
    let failed = |e: std::io::Error| Error::io(path, e);
    if !is_root() {
        return SourceDir::open(&path.canonicalize().map_err(failed)?);
    }
    let found = walk(path)?.ok_or_else(|| failed(Errno::NOENT.into()))?;
    held(&found.file, path)
}

/// The directory that holds a file, and the name of the file there. Safe for root: no link of another user leads there,
/// and files below the directory are never opened through a link.
pub fn directory_of(file: &Path) -> Result<(SourceDir, PathBuf)> {
    if !is_root() {
        return SourceDir::of_file(file);
    }
    let found = walk(file)?.ok_or_else(|| Error::io(file, Errno::NOENT.into()))?;
    match found.place {
        Some((dir, name)) => Ok((held(&dir, file)?, name.into())),
        None => Err(Error::of(file, "is a directory")),
    }
}

/// The [`SourceDir`] of a directory that a walk found.
fn held(found: &OwnedFd, path: &Path) -> Result<SourceDir> {
    let failed = |e: std::io::Error| Error::io(path, e);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(found, ".", flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    let real = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let real = Path::new(&real).read_link().map_err(failed)?;
    SourceDir::of_open(dir, real)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn links_of_other_users_are_not_followed() {
        if !is_root() {
            eprintln!("skipped: only root has files of several users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let others = |path: &Path| walk(path).map(|found| found.map(|found| found.others));
        fs::create_dir(at("own")).unwrap();
        fs::write(at("own/file"), "").unwrap();
        symlink("own", at("link")).unwrap();
        // All users may add files to the temporary directory.
        let usual = others(dir.path()).unwrap();
        assert_eq!(others(&at("link/file")).unwrap(), usual);
        let (held, name) = directory_of(&at("link/file")).unwrap();
        assert_eq!(
            (held.path(), name.as_path()),
            (
                at("own").canonicalize().unwrap().as_path(),
                Path::new("file")
            )
        );
        let (held, name) = directory_of(&at("own/../own/file")).unwrap();
        assert!(held.stat(&name).is_ok());
        assert!(directory_of(&at("own/..")).is_err());
        chown(at("own"), Some(61_000), None).unwrap();
        assert_eq!(others(&at("own/file")).unwrap(), Some(OthersMay::Replace));
        // Another user can replace root's link in a directory of his own at any moment. The walk then refuses it.
        symlink("file", at("own/roots")).unwrap();
        assert!(directory_of(&at("own/roots")).is_ok());
        rustix::fs::chownat(
            CWD,
            at("own/roots"),
            Some(rustix::process::Uid::from_raw(61_000)),
            None,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
        for path in ["own/roots", "link/roots"] {
            let refused = directory_of(&at(path)).unwrap_err().to_string();
            assert!(refused.contains("is a link of another user"), "{refused}");
            let dirs = [at("own"), at(path)];
            let own = SourceDir::open(dir.path()).unwrap();
            let refused = own.with_further(&dirs).unwrap_err().to_string();
            assert!(refused.contains("is a link of another user"), "{refused}");
        }
        assert!(walk(&at("own/none")).is_err());
    }
}
