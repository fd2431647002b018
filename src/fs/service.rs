//! The meaning of each request, without fuser and without a kernel. Inputs are inode numbers and handles; outputs are values
//! and errors.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::fs::StatVfs;
use rustix::io::Errno as Os;

use h5logfs_catalog::{Lookup, Wait};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::messages;
use h5logfs_common::parallel;
use h5logfs_common::task::{StopFlag, Task};
use h5logfs_log::log_dir::Naming;

use super::access::{Caller, is_administrator};
use super::attributes::Attributes;
use super::directory::{Directory, Listed, Piece, Pieces, Start};
use super::errno::is_called_off;
use super::handles::{Handle, Handles};
use super::inodes::{Inode, InodeTable};
use super::monitor::Monitor;
use super::place::Place;
use super::source_tree::{Entry, Opened, Shown, SourceTree};
use super::virtual_files::{self, OpenFiles, Permit};

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    pub handle: u64,
    pub pages: PageCache,
    /// The handle; `None` for a virtual file.
    pub content: Option<Arc<Handle>>,
}

/// The kernel's caching of an open file's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// The kernel keeps its pages: the bytes behind the inode number never change.
    Keep,
    /// The kernel drops its pages when the file is opened.
    Refresh,
    /// The kernel caches nothing, and does not know the size of the file.
    Bypass,
}

/// The inode of a name.
#[derive(Debug)]
pub struct NamedInode {
    pub number: u64,
    pub attributes: Attributes,
    pub names: NameCache,
}

/// The kernel's caching of an inode's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameCache {
    /// The kernel keeps name and attributes for a while.
    Keep,
    /// Each open looks the name up. The log grows, and an open shows its state at the look-up.
    LookUp,
    /// The attributes are not valid, either: the kernel must look the name up, and gets the error.
    Unknown,
}

impl NameCache {
    fn of(entry: &Entry) -> Self {
        if entry.grows {
            NameCache::LookUp
        } else {
            NameCache::Keep
        }
    }
}

/// The outcome of adding a name to a page of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    Yes,
    /// The file is gone.
    No,
    /// The name does not fit.
    Full,
}

/// Most pieces of a directory that a request without waiting examines. Most of the names may be hidden.
const PIECES_AT_ONCE: usize = 4;

/// Marks a directory in which a thread scans ahead, until it is dropped.
struct ScanAhead<'a>(&'a Mutex<HashSet<u64>>, u64);

impl Drop for ScanAhead<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

#[derive(Debug)]
pub struct Service {
    source: SourceTree,
    inodes: Arc<InodeTable>,
    handles: Handles,
    pieces: Pieces,
    virtual_files: Arc<OpenFiles>,
    /// The inode numbers of directories in which a thread scans ahead.
    scanning_ahead: Mutex<HashSet<u64>>,
    monitor: Arc<Monitor>,
}

impl Service {
    pub fn new(source: SourceTree, mount_point: &Path) -> Result<Self> {
        let Lookup::Known(root) = source.entry(&Place::root(), Wait::Yes)? else {
            return Err(source.failure(Path::new(""), Os::IO));
        };
        let catalog = Arc::clone(source.catalog());
        Ok(Service {
            source,
            inodes: Arc::new(InodeTable::new(root)),
            handles: Handles::default(),
            pieces: Pieces::default(),
            virtual_files: Arc::default(),
            scanning_ahead: Mutex::default(),
            monitor: Arc::new(Monitor::new(catalog, mount_point)),
        })
    }

    pub fn monitor(&self) -> &Arc<Monitor> {
        &self.monitor
    }

    pub fn inodes(&self) -> &Arc<InodeTable> {
        &self.inodes
    }

    fn failure(&self, errno: Os) -> Error {
        self.source.failure(Path::new(""), errno)
    }

    /// The inode of a request.
    fn inode(&self, number: u64) -> Result<Inode> {
        let inode = self.inodes.get(number);
        let inode = inode.ok_or_else(|| self.failure(Os::STALE))?;
        messages::about(inode.attributes.uid);
        Ok(inode)
    }

    /// The inode of `name` in `parent`.
    pub fn look_up(&self, parent: u64, name: &OsStr, wait: Wait) -> Result<Lookup<NamedInode>> {
        if virtual_files::contains(parent, name) {
            let number = virtual_files::look_up(parent, name);
            return self.virtual_file(number.ok_or_else(|| self.failure(Os::NOENT))?, wait);
        }
        let directory = self.inode(parent)?;
        let place = Place {
            path: directory.place.path.join(name),
            directory: Some(directory.version),
            flush: directory.place.flush,
        };
        let found = self.source.entry(&place, wait);
        self.count_look_up(&found);
        let Lookup::Known(entry) = found? else {
            return Ok(Lookup::NeedsScan);
        };
        let number = self
            .inodes
            .look_up(parent, name, entry)
            .ok_or_else(|| self.source.failure(&place.path, Os::STALE))?;
        Ok(Lookup::Known(NamedInode {
            number,
            attributes: entry.attributes,
            names: NameCache::of(&entry),
        }))
    }

    /// A virtual file, or the directory of a flush, which shows the source directory.
    fn virtual_file(&self, number: u64, wait: Wait) -> Result<Lookup<NamedInode>> {
        if let Some(found) = virtual_file(number) {
            return Ok(Lookup::Known(found));
        }
        let attributes = self.attributes(number, wait)?;
        Ok(attributes.map(|attributes| NamedInode {
            number,
            attributes,
            names: NameCache::Keep,
        }))
    }

    /// Counts a finished look-up. One that needs a scan is tried again.
    fn count_look_up(&self, found: &Result<Lookup<Entry>>) {
        if !matches!(found, Ok(Lookup::NeedsScan)) {
            self.monitor.stats().lookups.count();
        }
    }

    /// Looks up a listed name. Counts a look-up, which the kernel forgets later. `None` if the file is gone. After another
    /// failure the attributes are unknown.
    fn look_up_listed(
        &self,
        directory: &Directory,
        listed: &Listed,
        wait: Wait,
    ) -> Result<Lookup<Option<NamedInode>>> {
        let path = directory.path.join(&listed.name);
        // No listing waits for the scan of a set: the kernel asks for the attributes if a program does.
        let wait = if listed.is_joined { Wait::No } else { wait };
        let found = self
            .source
            .entry_in(&directory.fd, directory.at(&path), wait);
        self.count_look_up(&found);
        let (entry, names) = match found {
            Ok(Lookup::Known(entry)) => (entry, NameCache::of(&entry)),
            Ok(Lookup::NeedsScan) if !listed.is_joined => return Ok(Lookup::NeedsScan),
            Err(error) if error.is_not_found() => return Ok(Lookup::Known(None)),
            Ok(Lookup::NeedsScan) | Err(_) => {
                let unknown = Entry::unknown(listed.kind, listed.inode);
                (unknown, NameCache::Unknown)
            }
        };
        let number = self.inodes.look_up(directory.inode, &listed.name, entry);
        Ok(Lookup::Known(number.map(|number| NamedInode {
            number,
            attributes: entry.attributes,
            names,
        })))
    }

    /// Scans listed files, several at a time, for the look-ups that follow.
    fn scan_listed(&self, directory: &Directory, listed: &[Listed]) {
        let listed = &listed[..listed.len().min(directory.scanned_ahead())];
        // There is at least one share, even for an empty directory.
        let shares = parallel::shares().min(listed.len()).max(1);
        let _listing = self.source.catalog().listing();
        parallel::share(shares, |number| {
            let own = listed.iter().skip(number).step_by(shares);
            let may =
                |listed: &&Listed| !listed.is_dots() && self.source.may_list(directory, listed);
            for listed in own.filter(may) {
                let path = directory.path.join(&listed.name);
                // The look-up that follows reports an error.
                let at = directory.at(&path);
                let _ = self.source.entry_in(&directory.fd, at, Wait::Yes);
            }
        });
    }

    /// Scans the files after `name` in an open listing of `parent`: `ls -l` looks up one after the other. No request waits
    /// for this.
    pub fn scan_after(&self, parent: u64, name: &OsStr) {
        if !self.scanning_ahead.lock().insert(parent) {
            return;
        }
        let _mark = ScanAhead(&self.scanning_ahead, parent);
        // A directory may be listed under another name than its own.
        let meant = Naming::Meant.directory(Path::new(name));
        let names = meant.as_ref().map(|path| path.as_os_str());
        for name in [name].into_iter().chain(names) {
            for (number, handle) in self.handles.directories_of(parent) {
                let piece = self.pieces.with(number, name);
                let after = piece.as_ref().and_then(|piece| piece.after_name(name));
                if let (Handle::Directory(directory), Some(after)) = (&*handle, after) {
                    return self.scan_listed(directory, after);
                }
            }
        }
    }

    /// The attributes of an inode. If another file has its name now, an open inode keeps its last attributes; for any other
    /// inode the kernel must look the name up again.
    pub fn attributes(&self, number: u64, wait: Wait) -> Result<Lookup<Attributes>> {
        if let Some(attributes) = virtual_files::attributes(number) {
            return Ok(Lookup::Known(attributes));
        }
        let inode = self.inode(number)?;
        // A growing log has another generation now, or will soon.
        if self.source.has_only_grown(&inode.place, inode.version) {
            return Ok(Lookup::Known(inode.attributes));
        }
        let is_root = inode.place.directory.is_none();
        match self.source.entry(&inode.place, wait) {
            Ok(Lookup::NeedsScan) => Ok(Lookup::NeedsScan),
            Ok(Lookup::Known(entry)) if entry.version == inode.version || is_root => {
                self.inodes.remember(number, entry.attributes);
                Ok(Lookup::Known(entry.attributes))
            }
            _ if inode.is_open => Ok(Lookup::Known(inode.attributes)),
            Ok(_) => Err(self.source.failure(&inode.place.path, Os::STALE)),
            Err(error) => Err(error),
        }
    }

    /// Opens a file. `caller`, here and below: the calling user, if it may differ from the user of this process.
    pub fn open_file(
        &self,
        number: u64,
        caller: Option<&Caller>,
        wait: Wait,
    ) -> Result<Lookup<OpenFile>> {
        if let Some(text) = virtual_files::content(number, &self.monitor) {
            let file = Handle::Virtual {
                content: text.into_bytes(),
                _permit: self.permit_virtual(caller)?,
            };
            return Ok(Lookup::Known(OpenFile {
                handle: self.insert_virtual(file)?,
                pages: PageCache::Bypass,
                content: None,
            }));
        }
        asked_by(caller.map(Caller::uid));
        let start = Instant::now();
        let opened = self.open_source(number, caller, wait);
        self.count_open(start, &opened);
        opened
    }

    fn count_open(&self, start: Instant, opened: &Result<Lookup<OpenFile>>) {
        let stats = self.monitor.stats();
        match opened {
            // The open is tried again after the scan.
            Ok(Lookup::NeedsScan) => return,
            Ok(Lookup::Known(file)) if file.pages == PageCache::Keep => {
                stats.opens_of_views.count();
            }
            Ok(Lookup::Known(_)) => stats.opens_of_plain_files.count(),
            // The kernel looks the file up again.
            Err(error) if error.is_stale() => {}
            Err(_) => stats.failed_opens.count(),
        }
        stats.open_time.record(start.elapsed());
    }

    fn open_source(
        &self,
        number: u64,
        caller: Option<&Caller>,
        wait: Wait,
    ) -> Result<Lookup<OpenFile>> {
        let Inode { place, version, .. } = self.inode(number)?;
        let opened = self.source.open_file(&place, version, caller, wait)?;
        let path = place.path;
        let (handle, pages) = match opened {
            Lookup::Known(Opened::View(view)) => (Handle::View(view), PageCache::Keep),
            Lookup::Known(Opened::Plain(file)) => {
                (Handle::Plain { file, path }, PageCache::Refresh)
            }
            Lookup::Known(Opened::Settled(file, state)) => {
                let path = self.source.catalog().dir().full_path(&path);
                (Handle::Settled { file, state, path }, PageCache::Refresh)
            }
            Lookup::NeedsScan => return Ok(Lookup::NeedsScan),
        };
        let handle = self.insert(number, handle, caller)?;
        let content = Some(self.handle(handle)?);
        Ok(Lookup::Known(OpenFile {
            handle,
            pages,
            content,
        }))
    }

    /// Work for `user`, on a shared mount, until `stop` is set.
    pub fn task(&self, user: Option<u32>, stop: &StopFlag) -> Task {
        let task = self.source.catalog().budget().task(user);
        // Views are read through the page cache.
        task.stopped_by(stop.clone()).for_keeper()
    }

    /// Fills `buf` from `offset`. Returns fewer bytes only at the end of the file.
    pub fn read(&self, task: &Task, handle: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let number = handle;
        let handle = self.handle(number)?;
        if matches!(*handle, Handle::Virtual { .. }) {
            // Reads of the statistics do not count in the statistics.
            return handle.read(task, offset, buf);
        }
        let (start, asked) = (Instant::now(), buf.len());
        let outcome = handle.read(task, offset, buf);
        if outcome.is_err() {
            if task.stopped().is_some_and(is_called_off) {
                // No program waits for this read.
                return outcome;
            }
            handle.about_owner();
            asked_by(self.handles.user(number));
        }
        let returned = outcome.as_ref().ok().copied();
        self.monitor.stats().count_read(start, asked, returned);
        outcome
    }

    pub fn open_directory(&self, number: u64, caller: Option<&Caller>) -> Result<u64> {
        if virtual_files::is_virtual(number) {
            let _permit = self.permit_virtual(caller)?;
            return self.insert_virtual(Handle::VirtualDirectory { number, _permit });
        }
        asked_by(caller.map(Caller::uid));
        let Inode { place, version, .. } = self.inode(number)?;
        let fd = self.source.open_for_listing(&place, version, caller)?;
        let directory = Directory::new(fd, place, number);
        self.insert(number, Handle::Directory(directory), caller)
    }

    fn insert(&self, number: u64, handle: Handle, caller: Option<&Caller>) -> Result<u64> {
        let user = caller.map(Caller::uid);
        let handle = self.handles.insert(handle, user);
        let handle = handle.ok_or_else(|| self.failure(Os::MFILE))?;
        self.monitor.stats().handles_opened.count();
        self.inodes.opened(number);
        Ok(handle)
    }

    fn permit_virtual(&self, caller: Option<&Caller>) -> Result<Permit> {
        let own = || rustix::process::geteuid().as_raw();
        let permit = self
            .virtual_files
            .open(caller.map_or_else(own, Caller::uid));
        permit.map_err(|errno| self.failure(errno))
    }

    fn insert_virtual(&self, handle: Handle) -> Result<u64> {
        let handle = self.handles.insert(handle, None);
        handle.ok_or_else(|| self.failure(Os::MFILE))
    }

    fn handle(&self, handle: u64) -> Result<Arc<Handle>> {
        self.handles
            .get(handle)
            .ok_or_else(|| self.failure(Os::BADF))
    }

    pub fn close(&self, number: u64, handle: u64) {
        self.handles.remove(handle);
        self.pieces.remove(handle);
        if !virtual_files::is_virtual(number) {
            self.monitor.stats().handles_closed.count();
            self.inodes.closed(number);
        }
    }

    /// The handle of a directory. Its owner and the user who opened it become the subject of the following messages.
    fn handle_to_list(&self, handle: u64) -> Result<Arc<Handle>> {
        let opened = self.handle(handle)?;
        opened.about_owner();
        asked_by(self.handles.user(handle));
        Ok(opened)
    }

    /// Passes the names after `position` in an open directory to `add`, until one does not fit. A request that may not wait
    /// examines at most some thousand names.
    pub fn list(
        &self,
        handle: u64,
        position: u64,
        wait: Wait,
        mut add: impl FnMut(&Listed) -> Added,
    ) -> Result<Lookup<()>> {
        match &*self.handle_to_list(handle)? {
            Handle::VirtualDirectory { number, .. } => {
                list_virtual(*number, position, add);
                Ok(Lookup::Known(()))
            }
            Handle::Directory(directory) => {
                let add = |listed: &Listed| Ok(Lookup::Known(add(listed)));
                self.list_source(handle, directory, position, wait, add)
            }
            _ => Err(self.failure(Os::NOTDIR)),
        }
    }

    /// Like [`list`](Self::list), with the inode of each name, for which the kernel counts a look-up. The inode of `.` and `..`
    /// is that of the directory, and does not count.
    pub fn list_with_attributes(
        &self,
        handle: u64,
        position: u64,
        wait: Wait,
        mut add: impl FnMut(&Listed, &NamedInode) -> Added,
    ) -> Result<Lookup<()>> {
        match &*self.handle_to_list(handle)? {
            Handle::VirtualDirectory { number, .. } => {
                list_virtual(*number, position, |listed| {
                    let found = virtual_file(listed.inode);
                    found.map_or(Added::No, |found| add(listed, &found))
                });
                Ok(Lookup::Known(()))
            }
            Handle::Directory(directory) => {
                if wait == Wait::Yes {
                    let Start { position, .. } = Start::from(position);
                    let piece = self.piece(handle, directory, position)?;
                    self.scan_listed(directory, piece.after(position).unwrap_or_default());
                }
                let itself = self.inode(directory.inode)?;
                let add = |listed: &Listed| {
                    if listed.is_dots() {
                        let found = NamedInode {
                            number: directory.inode,
                            attributes: itself.attributes,
                            names: NameCache::Keep,
                        };
                        return Ok(Lookup::Known(add(listed, &found)));
                    }
                    let found = self.look_up_listed(directory, listed, wait)?;
                    Ok(found.map(|found| {
                        let Some(found) = found else { return Added::No };
                        let added = add(listed, &found);
                        if added == Added::Full {
                            self.inodes.forget(found.number, 1);
                        }
                        added
                    }))
                };
                self.list_source(handle, directory, position, wait, add)
            }
            _ => Err(self.failure(Os::NOTDIR)),
        }
    }

    fn list_source(
        &self,
        handle: u64,
        directory: &Directory,
        start: u64,
        wait: Wait,
        mut add: impl FnMut(&Listed) -> Result<Lookup<Added>>,
    ) -> Result<Lookup<()>> {
        let Start {
            mut position,
            mut without_front,
        } = Start::from(start);
        let mut has_any = false;
        // The names added so far are sent, and the kernel then asks for the rest. But an empty page means the end.
        let so_far = |has_any| {
            if has_any {
                Lookup::Known(())
            } else {
                Lookup::NeedsScan
            }
        };
        for number in 0.. {
            if wait == Wait::No && number == PIECES_AT_ONCE {
                return Ok(so_far(has_any));
            }
            let piece = self.piece(handle, directory, position)?;
            let names = piece.after(position).unwrap_or_default();
            if names.is_empty() {
                break;
            }
            for listed in names {
                let shown = match self.shows(directory, listed, wait) {
                    Lookup::Known(shown) => shown,
                    Lookup::NeedsScan => return Ok(so_far(has_any)),
                };
                for listed in shown_as(listed, shown, position, without_front) {
                    if virtual_files::is_hidden(directory.inode, &listed.name) {
                        continue;
                    }
                    match add(&listed)? {
                        Lookup::Known(Added::Yes) => has_any = true,
                        Lookup::Known(Added::No) => {}
                        Lookup::Known(Added::Full) => return Ok(Lookup::Known(())),
                        Lookup::NeedsScan => return Ok(so_far(has_any)),
                    }
                }
                (position, without_front) = (listed.next, false);
            }
        }
        Ok(Lookup::Known(()))
    }

    fn shows(&self, directory: &Directory, listed: &Listed, wait: Wait) -> Lookup<Shown> {
        if listed.is_dots() {
            return Lookup::Known(Shown::As(listed.kind));
        }
        if virtual_files::is_hidden(directory.inode, &listed.name) {
            return Lookup::Known(Shown::No);
        }
        self.source.shows(directory, listed, wait)
    }

    fn piece(&self, handle: u64, directory: &Directory, position: u64) -> Result<Arc<Piece>> {
        let piece = self.pieces.get(handle, directory, position);
        piece.map_err(|e| self.source.failure(&directory.path, e))
    }

    pub fn forget(&self, number: u64, count: u64) {
        self.inodes.forget(number, count);
    }

    pub fn space(&self) -> Result<StatVfs> {
        self.source.space()
    }

    /// The value of an extended attribute.
    pub fn xattr(
        &self,
        number: u64,
        name: &OsStr,
        caller: Option<&Caller>,
        wait: Wait,
        task: &Task,
    ) -> Result<Lookup<Vec<u8>>> {
        if virtual_files::is_virtual(number) {
            return Err(self.failure(Os::NODATA));
        }
        asked_by(caller.map(Caller::uid));
        let Inode { place, version, .. } = self.inode(number)?;
        self.source.xattr(&place, version, name, caller, wait, task)
    }

    /// The names of the extended attributes, each followed by a zero byte.
    pub fn xattrs(&self, number: u64, caller: Option<&Caller>) -> Result<Vec<u8>> {
        if virtual_files::is_virtual(number) {
            return Ok(Vec::new());
        }
        asked_by(caller.map(Caller::uid));
        let inode = self.inode(number)?;
        self.source.xattrs(&inode.place, inode.version, caller)
    }

    pub fn link_target(&self, number: u64) -> Result<Vec<u8>> {
        let inode = self.inode(number)?;
        self.source.link_target(&inode.place, inode.version)
    }
}

/// The names listed for a name of the source at `position`. The name itself comes last.
fn shown_as<'a>(
    listed: &'a Listed,
    shown: Shown,
    position: u64,
    without_front: bool,
) -> impl Iterator<Item = Cow<'a, Listed>> {
    let named = |naming: Naming| naming.name_for(&listed.name);
    let is_joined = matches!(
        shown,
        Shown::By(Naming::Joined) | Shown::With(Naming::Joined)
    );
    let (front, itself) = match shown {
        Shown::No => (None, None),
        Shown::As(kind) if kind != listed.kind => (None, Some(Cow::Owned(listed.of_kind(kind)))),
        Shown::As(_) => (None, Some(Cow::Borrowed(listed))),
        Shown::By(naming) => {
            let file = named(naming).map(|name| Listed {
                is_joined,
                ..listed.as_file(name)
            });
            (None, file.map(Cow::Owned))
        }
        Shown::With(naming) => {
            let name = named(naming).filter(|_| !without_front);
            let front = name.map(|name| Listed {
                is_joined,
                ..listed.in_front(name, position)
            });
            (front, Some(Cow::Borrowed(listed)))
        }
    };
    front.map(Cow::Owned).into_iter().chain(itself)
}

fn list_virtual(number: u64, position: u64, mut add: impl FnMut(&Listed) -> Added) {
    let piece = virtual_files::listing(number);
    for listed in piece.after(position).unwrap_or_default() {
        if add(listed) == Added::Full {
            return;
        }
    }
}

fn virtual_file(number: u64) -> Option<NamedInode> {
    Some(NamedInode {
        number,
        attributes: virtual_files::attributes(number)?,
        names: NameCache::Keep,
    })
}

/// Makes a request of this user the subject of the following messages. Root, for example for a backup, and the user who
/// mounted read all files, so their requests have no share of their own in the log.
fn asked_by(user: Option<u32>) {
    if let Some(user) = user.filter(|user| !is_administrator(*user)) {
        messages::asked_by(user);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::FileType;
    use tempfile::TempDir;

    use crate::fs::inodes::ROOT;
    use crate::fs::source_tree::PathFilter;
    use h5logfs_catalog::Catalog;
    use h5logfs_log::source_dir::SourceDir;
    use h5logfs_scan::InProcess;
    use h5logfs_view::cache::MemoryLimits;

    use super::*;

    fn service(filter: PathFilter) -> (TempDir, Service) {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("file"), "text").unwrap();
        fs::create_dir(source.path().join("directory")).unwrap();
        let catalog = Catalog::new(
            SourceDir::open(source.path()).unwrap(),
            MemoryLimits::each(1 << 20),
            InProcess::default(),
        );
        let service = Service::new(SourceTree::new(catalog, filter), Path::new("/mnt")).unwrap();
        (source, service)
    }

    /// The answer to a request that may wait.
    fn known<T>(outcome: Result<Lookup<T>>) -> T {
        match outcome.unwrap() {
            Lookup::Known(answer) => answer,
            Lookup::NeedsScan => panic!("not scanned"),
        }
    }

    fn look_up(service: &Service, parent: u64, name: &str) -> Result<Lookup<(u64, Attributes)>> {
        let found = service.look_up(parent, OsStr::new(name), Wait::Yes)?;
        Ok(found.map(|found| (found.number, found.attributes)))
    }

    fn errno<T: std::fmt::Debug>(outcome: Result<T>) -> Os {
        match outcome {
            Err(Error::Io { cause: source, .. }) => Os::from_io_error(&source).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn replace(source: &TempDir) {
        fs::write(source.path().join("new"), "other").unwrap();
        fs::rename(source.path().join("new"), source.path().join("file")).unwrap();
    }

    #[test]
    fn what_is_open_outlives_its_name() {
        let (source, service) = service(PathFilter::default());
        let (number, attributes) = known(look_up(&service, ROOT, "file"));
        let open = known(service.open_file(number, None, Wait::Yes));
        replace(&source);
        assert_eq!(known(service.attributes(number, Wait::Yes)), attributes);
        let mut buf = [0; 9];
        assert_eq!(
            service
                .read(&Task::unlimited(), open.handle, 0, &mut buf)
                .unwrap(),
            4
        );
        assert_eq!(errno(service.open_file(number, None, Wait::Yes)), Os::STALE);
        service.close(number, open.handle);
        assert_eq!(errno(service.attributes(number, Wait::Yes)), Os::STALE);
        let (new, attributes) = known(look_up(&service, ROOT, "file"));
        assert_ne!(new, number);
        assert_eq!(attributes.size, 5);
    }

    #[test]
    fn what_is_not_open_is_looked_up_again() {
        let (source, service) = service(PathFilter::default());
        let (number, _) = known(look_up(&service, ROOT, "file"));
        replace(&source);
        assert_eq!(errno(service.attributes(number, Wait::Yes)), Os::STALE);
        assert_eq!(errno(service.open_file(number, None, Wait::Yes)), Os::STALE);
    }

    fn names(service: &Service) -> Vec<String> {
        let handle = service.open_directory(ROOT, None).unwrap();
        let mut names = Vec::new();
        known(service.list(handle, 0, Wait::Yes, |listed| {
            if !listed.is_dots() {
                names.push(listed.name.to_str().unwrap().to_owned());
            }
            Added::Yes
        }));
        names.sort();
        names
    }

    #[test]
    fn limits_hold_for_listings_and_look_ups() {
        let (_source, everything) = service(PathFilter::default());
        assert_eq!(names(&everything), ["directory", "file"]);
        let (_source, single) = service(PathFilter {
            only: Some("file".into()),
            without: None,
        });
        assert_eq!(names(&single), ["file"]);
        let outcome = look_up(&single, ROOT, "directory");
        assert_eq!(errno(outcome), Os::NOENT);
        let (_source, rest) = service(PathFilter {
            only: None,
            without: Some("directory".into()),
        });
        assert_eq!(names(&rest), ["file"]);
        let outcome = look_up(&rest, ROOT, "directory");
        assert_eq!(errno(outcome), Os::NOENT);
    }

    fn listed(name: &str) -> Listed {
        Listed {
            name: name.into(),
            kind: FileType::RegularFile,
            is_joined: false,
            inode: 1,
            next: 1,
        }
    }

    fn root(source: &TempDir) -> Directory {
        let fd = fs::File::open(source.path()).unwrap();
        Directory::new(fd.into(), Place::root(), ROOT)
    }

    #[test]
    fn pages_of_a_listing_follow_each_other() {
        let (source, service) = service(PathFilter::default());
        let many = source.path().join("directory");
        // The names take more than one piece.
        let expected: Vec<String> = (0..3000).map(|n| format!("{n:04}")).collect();
        for name in &expected {
            fs::write(many.join(name), "").unwrap();
        }
        let (number, _) = known(look_up(&service, ROOT, "directory"));
        let handle = service.open_directory(number, None).unwrap();
        let mut names = Vec::new();
        let mut position = 0;
        loop {
            let mut left = 100;
            known(service.list(handle, position, Wait::No, |listed| {
                if left == 0 {
                    return Added::Full;
                }
                left -= 1;
                position = listed.next;
                names.extend(
                    listed
                        .name
                        .to_str()
                        .filter(|_| !listed.is_dots())
                        .map(str::to_owned),
                );
                Added::Yes
            }));
            // A new or removed name does not move the others.
            fs::remove_file(many.join(&expected[0])).ok();
            if left == 100 {
                break;
            }
        }
        names.sort();
        names.retain(|name| *name != *expected[0]);
        assert_eq!(names, expected[1..]);
    }

    #[test]
    fn a_page_may_end_between_a_directory_and_its_file() {
        let directory = Listed {
            kind: FileType::Directory,
            next: 9,
            ..listed("run.bp")
        };
        let names = |shown: Shown, start: Start| {
            let Start {
                position,
                without_front,
            } = start;
            let shown = shown_as(&directory, shown, position, without_front);
            let names = shown.map(|listed| (listed.name.clone(), listed.kind, listed.next));
            names.collect::<Vec<_>>()
        };
        for (naming, name) in [(Naming::Ending, "run.bp.h5"), (Naming::Meant, "run")] {
            let all = names(Shown::With(naming), Start::from(4));
            let [(file, FileType::RegularFile, between), last] = &all[..] else {
                panic!("{all:?}");
            };
            assert_eq!(file, name);
            assert_eq!(*last, ("run.bp".into(), FileType::Directory, 9));
            let rest = Start::from(*between);
            assert_eq!(rest.position, 4);
            assert_eq!(names(Shown::With(naming), rest), std::slice::from_ref(last));
        }
        for (naming, name) in [(Naming::Directory, "run.bp"), (Naming::Meant, "run")] {
            let alone = (name.into(), FileType::RegularFile, 9);
            assert_eq!(names(Shown::By(naming), Start::from(4)), [alone]);
        }
    }

    #[test]
    fn a_listing_with_attributes_looks_each_name_up() {
        let (source, service) = service(PathFilter::default());
        let root = root(&source);
        let found = known(service.look_up_listed(&root, &listed("file"), Wait::Yes)).unwrap();
        assert_eq!(found.names, NameCache::Keep);
        // The first look-up has read some bytes of the file, which changes its access time.
        let (number, attributes) = known(look_up(&service, ROOT, "file"));
        assert_eq!((number, attributes.size), (found.number, 4));
        assert_eq!(attributes.modified, found.attributes.modified);
        // Both look-ups count. The number is gone when the kernel has forgotten both.
        service.forget(number, 1);
        assert_eq!(known(service.attributes(number, Wait::Yes)), attributes);
        service.forget(number, 1);
        assert_eq!(errno(service.attributes(number, Wait::Yes)), Os::STALE);
        replace(&source);
        let found = known(service.look_up_listed(&root, &listed("file"), Wait::Yes)).unwrap();
        assert_eq!(found.attributes.size, 5);
        fs::remove_file(source.path().join("file")).unwrap();
        assert!(known(service.look_up_listed(&root, &listed("file"), Wait::Yes)).is_none());
    }

    #[test]
    fn what_cannot_be_looked_up_stays_in_the_listing() {
        let (source, service) = service(PathFilter::default());
        // The descriptor is that of a file, so look-ups in it fail.
        let file = fs::File::open(source.path().join("file")).unwrap();
        let root = Directory::new(file.into(), Place::root(), ROOT);
        let found = known(service.look_up_listed(&root, &listed("file"), Wait::Yes)).unwrap();
        assert_eq!(found.names, NameCache::Unknown);
        assert_eq!(found.attributes.kind, FileType::RegularFile);
        // The look-up that follows finds the file itself.
        let (number, attributes) = known(look_up(&service, ROOT, "file"));
        assert_ne!(number, found.number);
        assert_eq!(attributes.size, 4);
    }

    #[test]
    fn names_that_climb_out_are_refused() {
        let (_source, service) = service(PathFilter::default());
        let outcome = look_up(&service, ROOT, "..");
        assert_eq!(errno(outcome), Os::XDEV);
    }

    #[test]
    fn nothing_is_found_by_a_directory_in_another_ones_place() {
        let (source, service) = service(PathFilter::default());
        let below = |name: &str| source.path().join(name);
        for directory in ["directory", "other"] {
            fs::create_dir_all(below(directory)).unwrap();
            fs::write(below(directory).join("file"), directory).unwrap();
            std::os::unix::fs::symlink(directory, below(directory).join("link")).unwrap();
        }
        let (number, _) = known(look_up(&service, ROOT, "directory"));
        assert!(look_up(&service, number, "file").is_ok());
        let (link, _) = known(look_up(&service, number, "link"));
        let (file, _) = known(look_up(&service, number, "file"));
        assert_eq!(service.link_target(link).unwrap(), b"directory");
        assert!(service.xattrs(file, None).unwrap().is_empty());
        fs::rename(below("directory"), below("gone")).unwrap();
        fs::rename(below("other"), below("directory")).unwrap();
        let outcome = look_up(&service, number, "file");
        assert_eq!(errno(outcome), Os::STALE);
        assert_eq!(errno(service.link_target(link)), Os::STALE);
        assert_eq!(errno(service.xattrs(file, None)), Os::STALE);
        assert_eq!(errno(service.attributes(file, Wait::Yes)), Os::STALE);
        assert_eq!(errno(service.open_file(file, None, Wait::Yes)), Os::STALE);
        assert_eq!(errno(service.open_directory(number, None)), Os::STALE);
        // The error must not reveal which names exist.
        fs::remove_file(below("directory").join("file")).unwrap();
        fs::remove_file(below("directory").join("link")).unwrap();
        assert_eq!(errno(service.link_target(link)), Os::STALE);
        assert_eq!(errno(service.xattrs(file, None)), Os::STALE);
        assert_eq!(errno(service.attributes(file, Wait::Yes)), Os::STALE);
        assert_eq!(errno(service.open_file(file, None, Wait::Yes)), Os::STALE);
        fs::write(below("directory").join("file"), "other").unwrap();
        let (number, _) = known(look_up(&service, ROOT, "directory"));
        assert_eq!(known(look_up(&service, number, "file")).1.size, 5);
    }
}
