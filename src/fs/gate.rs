//! Who is let through to the bytes of a file: each request to read is held against the permissions of all that it
//! would read of, as they are at that moment.
//!
//! Two things have to permit it. This process, which may hold files open since a time when it was allowed to
//! open them. And the one who asks, where that may be another user: the kernel checks by attributes that it may have
//! held for a second, and it knows only the log file, where a view has bytes of many.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::log::source::{Folder, Place};
use crate::view::View;

use super::access::{Caller, Permissions, Right, may_read};

/// One who asks for files below a folder.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'a> {
    folder: &'a Folder,
    /// `None` where nobody but the user of this process can be it, and for root.
    caller: Option<&'a Caller>,
}

impl<'a> Gate<'a> {
    pub fn new(folder: &'a Folder, caller: Option<&'a Caller>) -> Self {
        let caller = caller.filter(|caller| !caller.is_root());
        Gate { folder, caller }
    }

    /// The directories from the folder itself to what is at `path`. For this process the system asks this each time
    /// that it resolves the path.
    pub fn way(&self, path: &Path) -> Result<()> {
        self.way_below(self.folder, path, |_| true)
    }

    /// `is_new`: whether a directory has not been looked at; those above it have been together with it.
    fn way_below<'p>(
        &self,
        folder: &Folder,
        path: &'p Path,
        mut is_new: impl FnMut(&'p Path) -> bool,
    ) -> Result<()> {
        let Some(caller) = self.caller else {
            return Ok(());
        };
        for directory in path.ancestors().skip(1) {
            if !is_new(directory) {
                break;
            }
            let full = folder.full_path(directory);
            let opened = folder.open_below(directory, OFlags::PATH | OFlags::DIRECTORY);
            let opened = opened.map_err(|e| Error::io(&full, e))?;
            check(caller, Right::Search, &full, opened)?;
        }
        Ok(())
    }

    /// What was opened, at `path` for messages, for this request, so that this process was allowed to.
    pub fn fresh(&self, path: &Path, file: impl AsFd) -> Result<()> {
        match self.caller {
            Some(caller) => check(caller, Right::Read, path, file),
            None => Ok(()),
        }
    }

    /// A file that may have been opened long ago.
    fn held(&self, path: &Path, file: impl AsFd) -> Result<()> {
        match may_read(&file) {
            Ok(true) => self.fresh(path, file),
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
        let mut seen = HashSet::new();
        let mut last = None;
        for (place, file) in view.files() {
            // One file may be several sources.
            if last.replace(place) != Some(place) {
                self.held(file.path(), file)?;
                self.way_to(place, &mut seen)?;
            }
        }
        if let Some(journal) = &view.snapshot().journal {
            let place = &journal.place;
            self.way_to(place, &mut seen)?;
            let folder = self.folder_of(place)?;
            let path = folder.full_path(&place.path);
            let opened = folder.open_below(&place.path, OFlags::PATH | OFlags::NOFOLLOW);
            self.held(&path, opened.map_err(|e| Error::io(&path, e))?)?;
        }
        Ok(())
    }

    /// The directories to a place, but for those that were looked at for an earlier one.
    fn way_to<'p>(&self, place: &'p Place, seen: &mut HashSet<(u16, &'p Path)>) -> Result<()> {
        let folder = self.folder_of(place)?;
        let is_new = |directory| seen.insert((place.folder, directory));
        self.way_below(folder, &place.path, is_new)
    }

    fn folder_of(&self, place: &Place) -> Result<&'a Folder> {
        let found = self.folder.of(place);
        found.map_err(|e| Error::io(&place.path, e))
    }
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
