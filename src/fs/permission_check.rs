//! The permission check: may this user open this file now? A view has bytes of several files, and the user must be permitted
//! to read each of them.
//!
//! Two users must be permitted:
//!
//! * The user of this process, which may hold a file open since a time when it was permitted to open it.
//! * The calling user, if it may differ. The kernel has checked, too, but with attributes that may be a second old, and for the
//!   main file only.
//!
//! A path may lead to another file a moment later. So the check opens the directories of the path one by one, each inside the
//! one before, and compares the file that it finds there with the opened file.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use h5logfs_common::error::{Error, Result};
use h5logfs_log::snapshot::Source;
use h5logfs_log::source_dir::{SourceDir, SourcePath, stat_in};
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_view::View;

use super::access::{Caller, Permissions, Right, may_read};

/// Checks whether one user may open files of the source directory.
#[derive(Debug, Clone, Copy)]
pub struct PermissionCheck<'a> {
    dir: &'a SourceDir,
    /// The calling user; `None` for the user of this process, and for root.
    caller: Option<&'a Caller>,
}

impl<'a> PermissionCheck<'a> {
    pub fn new(dir: &'a SourceDir, caller: Option<&'a Caller>) -> Self {
        let caller = caller.filter(|caller| !caller.is_root());
        PermissionCheck { dir, caller }
    }

    /// Checks a file that this request has opened at `path`. The system has checked the user of this process.
    pub fn just_opened(&self, path: &Path, file: impl AsFd) -> Result<()> {
        match self.caller {
            Some(caller) => {
                check_right(caller, Right::Read, &self.dir.full_path(path), &file)?;
                PathWalk::new(caller).check_leads_to(self.dir, 0, path, file)
            }
            None => Ok(()),
        }
    }

    /// Checks a file that may have been opened long ago.
    fn held_open(&self, path: &Path, file: impl AsFd) -> Result<()> {
        match may_read(&file) {
            Ok(true) => self.caller.map_or(Ok(()), |caller| {
                check_right(caller, Right::Read, path, file)
            }),
            Ok(false) => {
                log::debug!("{}: this process may no longer read it", path.display());
                Err(Error::io(path, Errno::ACCESS.into()))
            }
            Err(e) => Err(Error::io(path, e.into())),
        }
    }

    /// Checks all files with bytes of a view, and their directories. Takes some system calls a file.
    pub fn view(&self, view: &View) -> Result<()> {
        let mut walk = self.caller.map(PathWalk::new);
        if view.snapshot().joined.is_some() {
            return self.members(walk.as_mut(), &view.snapshot().sources);
        }
        let mut last = None;
        for (place, file) in view.files() {
            // One file may contain several sources.
            if last.replace(place) != Some(place) {
                self.source(walk.as_mut(), place, file)?;
            }
        }
        match &view.snapshot().journal {
            Some(journal) => self.by_name(walk.as_mut(), journal),
            None => Ok(()),
        }
    }

    /// Checks the members of a set, which all lie in one directory and are opened when they are read. There may be very many.
    fn members<'p>(
        &self,
        walk: Option<&mut PathWalk<'_, 'p>>,
        members: &'p [Source],
    ) -> Result<()> {
        let Some(first) = members.first() else {
            return Ok(());
        };
        let (dir, parent) = (self.dir_of(&first.place)?, first.place.path.parent());
        let parent = parent.unwrap_or(Path::new(""));
        let opened;
        let directory = match walk {
            Some(walk) => walk.directory(dir, first.place.dir, parent)?,
            None => {
                let found = dir.open_below(parent, OFlags::PATH | OFlags::DIRECTORY);
                opened = found.map_err(|e| Error::io(dir.full_path(parent), e))?;
                opened.as_fd()
            }
        };
        members.iter().try_for_each(|member| {
            let path = || dir.full_path(&member.place.path);
            let name = member
                .place
                .path
                .strip_prefix(parent)
                .unwrap_or(&member.place.path);
            self.member(directory, name.as_os_str(), member.identity)
                .map_err(|errno| Error::io(path(), errno.into()))
        })
    }

    /// Checks the member of this name, which must still be the same file.
    fn member(
        &self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        member: Identity,
    ) -> Result<(), Errno> {
        let itself = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let is_same = |stat: &Stat| member.is_same_file(Identity::from(stat));
        let found = match self.caller {
            Some(caller) => {
                let opened = rustix::fs::openat(directory, name, itself, Mode::empty());
                let opened = opened.map_err(gone_is_stale)?;
                let permissions = Permissions::of(&opened).map_err(|_| Errno::ACCESS)?;
                if !permissions.grant(Right::Read, caller) {
                    return Err(Errno::ACCESS);
                }
                rustix::fs::fstat(opened)?
            }
            None => {
                let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
                found.map_err(gone_is_stale)?
            }
        };
        if !is_same(&found) {
            return Err(Errno::STALE);
        }
        rustix::fs::accessat(directory, name, Access::READ_OK, AtFlags::EACCESS)
    }

    /// Checks a file that is not held open. If it is gone, the log has been closed. It must be looked up again.
    fn by_name<'p>(&self, walk: Option<&mut PathWalk<'_, 'p>>, file: &'p Source) -> Result<()> {
        let place = &file.place;
        let dir = self.dir_of(place)?;
        let path = dir.full_path(&place.path);
        let opened = dir.open_below(&place.path, OFlags::PATH | OFlags::NOFOLLOW);
        let opened = opened.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::io(&path, Errno::STALE.into()),
            _ => Error::io(&path, e),
        })?;
        self.held_open(&path, &opened)?;
        self.check_path(walk, place, opened)
    }

    /// Checks one of these files, and repeats it after reopening the file, because a file server may have restarted.
    fn source<'p>(
        &self,
        mut walk: Option<&mut PathWalk<'_, 'p>>,
        place: &'p SourcePath,
        file: &SourceFile,
    ) -> Result<()> {
        let mut check = || {
            let held = file.to_file().map_err(|e| Error::io(file.path(), e))?;
            self.held_open(file.path(), &held)?;
            self.check_path(walk.as_deref_mut(), place, &held)
        };
        match check() {
            Err(error) if error.is_stale() => file.metadata().and_then(|_| check()),
            checked => checked,
        }
    }

    /// Checks the directories of a path for the calling user. For the user of this process the system checks them whenever it
    /// resolves a path.
    fn check_path<'p>(
        &self,
        walk: Option<&mut PathWalk<'_, 'p>>,
        place: &'p SourcePath,
        file: impl AsFd,
    ) -> Result<()> {
        match walk {
            Some(walk) => walk.check_leads_to(self.dir_of(place)?, place.dir, &place.path, file),
            None => Ok(()),
        }
    }

    fn dir_of(&self, place: &SourcePath) -> Result<&'a SourceDir> {
        let found = self.dir.of(place);
        found.map_err(|e| Error::io(&place.path, e))
    }
}

/// Walks along paths as one user.
struct PathWalk<'a, 'p> {
    caller: &'a Caller,
    /// Directories that the user may search, by the number of their source directory and their path.
    directories: HashMap<(u16, &'p Path), OwnedFd>,
}

impl<'a, 'p> PathWalk<'a, 'p> {
    fn new(caller: &'a Caller) -> Self {
        PathWalk {
            caller,
            directories: HashMap::new(),
        }
    }

    /// Fails if the user may not walk to `path` below `dir`, or if another file than `file` is there. `number`: number of
    /// `dir`.
    fn check_leads_to(
        &mut self,
        dir: &SourceDir,
        number: u16,
        path: &'p Path,
        file: impl AsFd,
    ) -> Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            // The path is `dir` itself.
            return Ok(());
        };
        let failed = |e: Errno| Error::io(dir.full_path(path), e.into());
        let parent = self.directory(dir, number, parent)?;
        let there = stat_in(parent, name);
        let there = there.map_err(|e| Error::io(dir.full_path(path), e))?;
        let opened = rustix::fs::fstat(file).map_err(failed)?;
        let (there, opened) = (Identity::from(&there), Identity::from(&opened));
        if (there.device, there.inode) == (opened.device, opened.inode) {
            Ok(())
        } else {
            Err(failed(Errno::STALE))
        }
    }

    fn directory(
        &mut self,
        dir: &SourceDir,
        number: u16,
        path: &'p Path,
    ) -> Result<BorrowedFd<'_>> {
        let key = (number, path);
        if !self.directories.contains_key(&key) {
            let full = dir.full_path(path);
            let failed = |e: Errno| Error::io(&full, e.into());
            let opened = match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => {
                    open_in(self.directory(dir, number, parent)?, name).map_err(failed)
                }
                (None, None) if path.as_os_str().is_empty() => {
                    let itself = dir.open_below(path, OFlags::PATH | OFlags::DIRECTORY);
                    itself.map_err(|e| Error::io(&full, e))
                }
                _ => Err(failed(Errno::XDEV)),
            };
            let opened = opened?;
            check_right(self.caller, Right::Search, &full, &opened)?;
            self.directories.insert(key, opened);
        }
        let held = self.directories.get(&key).map(AsFd::as_fd);
        held.ok_or_else(|| Error::io(path, Errno::NOENT.into()))
    }
}

/// Opens the directory `name`, a single component, in another one.
fn open_in(directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let itself = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, itself, Mode::empty())
}

/// A log whose file is gone must be looked up again.
fn gone_is_stale(errno: Errno) -> Errno {
    match errno {
        Errno::NOENT => Errno::STALE,
        errno => errno,
    }
}

fn check_right(caller: &Caller, right: Right, path: &Path, file: impl AsFd) -> Result<()> {
    let permissions = Permissions::of(file).map_err(|e| Error::io(path, e))?;
    if permissions.grant(right, caller) {
        return Ok(());
    }
    let (uid, verb) = (caller.uid(), right.verb());
    log::debug!("{}: user {uid} may not {verb} it", path.display());
    Err(Error::io(path, Errno::ACCESS.into()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;

    use h5logfs_catalog::Catalog;
    use h5logfs_scan::InProcess;
    use h5logfs_view::cache::MemoryLimits;

    use super::*;

    const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/nd.log.h5");

    fn errno<T: std::fmt::Debug>(outcome: Result<T>) -> Option<Errno> {
        match outcome {
            Ok(_) => None,
            Err(Error::Io { cause, .. }) => Errno::from_io_error(&cause),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_lay_in_a_private_directory_is_not_opened_by_an_open_one_in_its_place() {
        let source = tempfile::tempdir().unwrap();
        let below = |name: &str| source.path().join(name);
        for (name, mode) in [("private", 0o700), ("open", 0o755), ("", 0o755)] {
            fs::create_dir_all(below(name)).unwrap();
            fs::set_permissions(below(name), fs::Permissions::from_mode(mode)).unwrap();
            for file in ["log.h5", "inner/file"].iter().filter(|_| !name.is_empty()) {
                let path = below(name).join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::copy(LOG, &path).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
            }
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let memory = MemoryLimits::each(1 << 20);
        let catalog = Catalog::new(
            SourceDir::open(source.path()).unwrap(),
            memory,
            InProcess::default(),
        );
        let somebody = Caller::new(61_001, 62_001, 0);
        let check = PermissionCheck::new(&dir, Some(&somebody));

        // The files are opened while the private directory has the name, and checked after it has lost it.
        fs::rename(below("private"), below("way")).unwrap();
        let log = Path::new("way/log.h5");
        let view = catalog.open(log).unwrap();
        let plain = File::open(below("way/log.h5")).unwrap();
        let inner = File::open(below("way/inner")).unwrap();
        assert_eq!(errno(check.view(&view)), Some(Errno::ACCESS));
        assert_eq!(errno(check.just_opened(log, &plain)), Some(Errno::ACCESS));
        fs::rename(below("way"), below("private")).unwrap();
        fs::rename(below("open"), below("way")).unwrap();
        assert_eq!(errno(check.view(&view)), Some(Errno::STALE));
        assert_eq!(errno(check.just_opened(log, &plain)), Some(Errno::STALE));
        let path = Path::new("way/inner");
        assert_eq!(errno(check.just_opened(path, &inner)), Some(Errno::STALE));

        // All users may read the files in the open directory.
        let view = catalog.open(log).unwrap();
        assert_eq!(errno(check.view(&view)), None);
        let plain = File::open(below("way/log.h5")).unwrap();
        assert_eq!(errno(check.just_opened(log, plain)), None);
        assert_eq!(
            errno(check.just_opened(Path::new(""), source_itself(&source))),
            None
        );
    }

    fn source_itself(source: &tempfile::TempDir) -> File {
        File::open(source.path()).unwrap()
    }
}
