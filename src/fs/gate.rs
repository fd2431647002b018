//! Who is let through to the bytes of a file: each request to read is held against the permissions of all that it
//! would read of, as they are at that moment.
//!
//! Two things have to permit it. This process, which may hold files open since a time when it was allowed to
//! open them. And the one who asks, where that may be another user: the kernel checks by attributes that it may have
//! held for a second, and it knows only the log file, where a view has bytes of many.
//!
//! Names may lead elsewhere by the next moment. So what counts is the file that was opened: it has to lie where a way of
//! directories leads to it that were looked at one by one, each held while the next one was opened in it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::source_dir::{SourceDir, SourcePath, stat_in};
use h5logfs_core::log::source_file::Identity;
use h5logfs_core::view::View;

use super::access::{Caller, Permissions, Right, may_read};

/// One who asks for files below a directory.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'a> {
    dir: &'a SourceDir,
    /// `None` where nobody but the user of this process can be it, and for root.
    caller: Option<&'a Caller>,
}

impl<'a> Gate<'a> {
    pub fn new(dir: &'a SourceDir, caller: Option<&'a Caller>) -> Self {
        let caller = caller.filter(|caller| !caller.is_root());
        Gate { dir, caller }
    }

    /// What was opened at `path` below the directory for this request, so that this process was allowed to.
    pub fn fresh(&self, path: &Path, file: impl AsFd) -> Result<()> {
        match self.caller {
            Some(caller) => {
                check(caller, Right::Read, &self.dir.full_path(path), &file)?;
                Ways::of(caller).lead((self.dir, 0), path, file)
            }
            None => Ok(()),
        }
    }

    /// A file that may have been opened long ago.
    fn held(&self, path: &Path, file: impl AsFd) -> Result<()> {
        match may_read(&file) {
            Ok(true) => self
                .caller
                .map_or(Ok(()), |caller| check(caller, Right::Read, path, file)),
            Ok(false) => {
                log::debug!("{}: we may not read it any more", path.display());
                Err(Error::io(path, Errno::ACCESS.into()))
            }
            Err(e) => Err(Error::io(path, e.into())),
        }
    }

    /// All files that a view shows bytes of, and the directories in which they lie. Costs some system calls a
    /// file, by the descriptors that the view holds.
    pub fn view(&self, view: &View) -> Result<()> {
        let mut ways = self.caller.map(Ways::of);
        let mut last = None;
        for (place, file) in view.files() {
            // One file may be several sources.
            if last.replace(place) != Some(place) {
                self.held(file.path(), file)?;
                self.lead(&mut ways, place, file)?;
            }
        }
        if let Some(journal) = &view.snapshot().journal {
            let place = &journal.place;
            let dir = self.dir_of(place)?;
            let path = dir.full_path(&place.path);
            let opened = dir.open_below(&place.path, OFlags::PATH | OFlags::NOFOLLOW);
            let opened = opened.map_err(|e| Error::io(&path, e))?;
            self.held(&path, &opened)?;
            self.lead(&mut ways, place, opened)?;
        }
        Ok(())
    }

    /// For this process the system asks for the directories each time that it resolves a path.
    fn lead<'p>(
        &self,
        ways: &mut Option<Ways<'_, 'p>>,
        place: &'p SourcePath,
        file: impl AsFd,
    ) -> Result<()> {
        match ways {
            Some(ways) => {
                let dir = self.dir_of(place)?;
                ways.lead((dir, place.dir), &place.path, file)
            }
            None => Ok(()),
        }
    }

    fn dir_of(&self, place: &SourcePath) -> Result<&'a SourceDir> {
        let found = self.dir.of(place);
        found.map_err(|e| Error::io(&place.path, e))
    }
}

/// Directories that somebody may search, as may be those above them. They are held, by the directory's number and path.
struct Ways<'a, 'p> {
    caller: &'a Caller,
    directories: HashMap<(u16, &'p Path), OwnedFd>,
}

impl<'a, 'p> Ways<'a, 'p> {
    fn of(caller: &'a Caller) -> Self {
        Ways {
            caller,
            directories: HashMap::new(),
        }
    }

    /// Fails where the caller may not go to `path`, or finds something else there than `file`.
    fn lead(&mut self, dir: (&SourceDir, u16), path: &'p Path, file: impl AsFd) -> Result<()> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            // The directory itself.
            return Ok(());
        };
        let failed = |e: Errno| Error::io(dir.0.full_path(path), e.into());
        let directory = self.directory(dir, above)?;
        let there = stat_in(directory, name);
        let there = there.map_err(|e| Error::io(dir.0.full_path(path), e))?;
        let opened = rustix::fs::fstat(file).map_err(failed)?;
        let number = |identity: Identity| (identity.device, identity.inode);
        match number(Identity::from(&there)) == number(Identity::from(&opened)) {
            true => Ok(()),
            false => Err(failed(Errno::STALE)),
        }
    }

    fn directory(&mut self, dir: (&SourceDir, u16), path: &'p Path) -> Result<BorrowedFd<'_>> {
        let key = (dir.1, path);
        if !self.directories.contains_key(&key) {
            let full = dir.0.full_path(path);
            let failed = |e: Errno| Error::io(&full, e.into());
            let opened = match (path.parent(), path.file_name()) {
                (Some(above), Some(name)) => {
                    open_in(self.directory(dir, above)?, name).map_err(failed)
                }
                (None, None) if path.as_os_str().is_empty() => {
                    let itself = dir.0.open_below(path, OFlags::PATH | OFlags::DIRECTORY);
                    itself.map_err(|e| Error::io(&full, e))
                }
                _ => Err(failed(Errno::XDEV)),
            };
            let opened = opened?;
            check(self.caller, Right::Search, &full, &opened)?;
            self.directories.insert(key, opened);
        }
        let held = self.directories.get(&key).map(AsFd::as_fd);
        held.ok_or_else(|| Error::io(path, Errno::NOENT.into()))
    }
}

/// The directory `name`, which is no path, in another one.
fn open_in(directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let itself = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, itself, Mode::empty())
}

fn check(caller: &Caller, right: Right, path: &Path, file: impl AsFd) -> Result<()> {
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
    use h5logfs_core::view::cache::MemoryLimits;
    use h5logfs_scan::InProcess;

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
        let gate = Gate::new(&dir, Some(&somebody));

        // Opened while the private one has the name, and looked at when it has it no more.
        fs::rename(below("private"), below("way")).unwrap();
        let log = Path::new("way/log.h5");
        let view = catalog.open(log).unwrap();
        let plain = File::open(below("way/log.h5")).unwrap();
        let inner = File::open(below("way/inner")).unwrap();
        assert_eq!(errno(gate.view(&view)), Some(Errno::ACCESS));
        assert_eq!(errno(gate.fresh(log, &plain)), Some(Errno::ACCESS));
        fs::rename(below("way"), below("private")).unwrap();
        fs::rename(below("open"), below("way")).unwrap();
        assert_eq!(errno(gate.view(&view)), Some(Errno::STALE));
        assert_eq!(errno(gate.fresh(log, &plain)), Some(Errno::STALE));
        let path = Path::new("way/inner");
        assert_eq!(errno(gate.fresh(path, &inner)), Some(Errno::STALE));

        // What the open one has is for everybody.
        let view = catalog.open(log).unwrap();
        assert_eq!(errno(gate.view(&view)), None);
        let plain = File::open(below("way/log.h5")).unwrap();
        assert_eq!(errno(gate.fresh(log, plain)), None);
        assert_eq!(
            errno(gate.fresh(Path::new(""), source_itself(&source))),
            None
        );
    }

    fn source_itself(source: &tempfile::TempDir) -> File {
        File::open(source.path()).unwrap()
    }
}
