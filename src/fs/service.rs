//! What each request means, without fuser and without a kernel: inode numbers and handles in,
//! values and errors out.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::fs::StatVfs;
use rustix::io::Errno as Os;

use h5logfs_core::error::{Error, Result};
use h5logfs_core::parallel;

use super::access::Caller;
use super::attributes::Attributes;
use super::handles::{Directory, Handle, Handles};
use super::mirror::{Entry, Listed, Mirror, Opened};
use super::tree::{Known, ROOT, Tree};
use super::virtual_files;
use super::watching::Watch;

/// A file that has been opened.
#[derive(Debug)]
pub struct OpenFile {
    pub handle: u64,
    pub pages: Pages,
}

/// What the kernel may do with pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The bytes behind the inode number never change: what is there may be used.
    Kept,
    /// They are read anew by each who opens the file.
    Fresh,
    /// There are none: the size of the file is not known, either.
    None,
}

/// A directory in which many names are looked up one after the other.
#[derive(Debug)]
pub struct Parent {
    number: u64,
    path: PathBuf,
    fd: OwnedFd,
    /// Of the directory itself.
    pub attributes: Attributes,
}

/// A name of a listing with what the kernel is told of it.
#[derive(Debug)]
pub struct Found {
    pub number: u64,
    pub attributes: Attributes,
    /// Whether the attributes are true. The kernel has to ask again, and be told the error, otherwise.
    pub is_known: bool,
}

/// Files of a listing that are scanned at a time, before somebody looks them up.
pub const SCANNED_AHEAD: usize = 128;

/// Somebody scans ahead in a directory, until this goes.
struct Ahead<'a>(&'a Mutex<HashSet<u64>>, u64);

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

#[derive(Debug)]
pub struct Service {
    mirror: Mirror,
    tree: Tree,
    handles: Handles,
    virtual_handles: AtomicU64,
    /// Directories in which somebody scans files ahead of who looks them up.
    ahead: Mutex<HashSet<u64>>,
    watch: Arc<Watch>,
}

impl Service {
    pub fn new(mirror: Mirror) -> Result<Self> {
        let root = mirror.entry(Path::new(""))?;
        let catalog = Arc::clone(mirror.catalog());
        Ok(Service {
            mirror,
            tree: Tree::new(root),
            handles: Handles::default(),
            virtual_handles: AtomicU64::new(0),
            ahead: Mutex::default(),
            watch: Arc::new(Watch::new(catalog, Path::new(""))),
        })
    }

    /// Says where it is mounted, which those who watch are told.
    pub fn mounted_at(mut self, mount_point: &Path) -> Self {
        let catalog = Arc::clone(self.mirror.catalog());
        self.watch = Arc::new(Watch::new(catalog, mount_point));
        self
    }

    pub fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    fn known(&self, number: u64) -> Result<Known> {
        self.tree
            .known(number)
            .ok_or_else(|| self.mirror.failure(Path::new(""), Os::STALE))
    }

    /// The inode number that `name` in `parent` has now.
    pub fn look_up(&self, parent: u64, name: &OsStr) -> Result<(u64, Attributes)> {
        if let Some(found) = virtual_files::look_up(parent, name) {
            return found.ok_or_else(|| self.mirror.failure(Path::new(""), Os::NOENT));
        }
        let directory = self.known(parent)?;
        let path = directory.path.join(name);
        let entry = self.mirror.entry_below(directory.version, &path);
        self.count_look_up(&entry);
        let entry = entry?;
        let number = self
            .tree
            .look_up(parent, name, entry)
            .ok_or_else(|| self.mirror.failure(&path, Os::STALE))?;
        Ok((number, entry.attributes))
    }

    /// What needs a scan first is looked up again by who waits for it.
    fn count_look_up(&self, found: &Result<Entry>) {
        if !matches!(found, Err(Error::Unscanned { .. })) {
            self.watch.stats().lookups.count();
        }
    }

    /// The directory `number` for looking up what a listing of it gave.
    pub fn parent(&self, number: u64) -> Result<Parent> {
        if let Some(attributes) = virtual_files::attributes(number) {
            // What is in it is found by the number alone.
            let path = PathBuf::new();
            let fd = self.mirror.open_directory(&path)?;
            return Ok(Parent {
                number,
                path,
                fd,
                attributes,
            });
        }
        let Known {
            path, attributes, ..
        } = self.known(number)?;
        let fd = self.mirror.open_directory(&path)?;
        Ok(Parent {
            number,
            path,
            fd,
            attributes,
        })
    }

    /// A look-up of what a listing gave, which the kernel will forget one day like any other. None
    /// when it is gone. What cannot be looked up for another reason is there nevertheless; it fails only
    /// where nobody waits for a scan.
    pub fn look_up_listed(&self, parent: &Parent, listed: &Listed) -> Result<Option<Found>> {
        if let Some(found) = virtual_files::look_up(parent.number, &listed.name) {
            return Ok(found.map(|(number, attributes)| Found {
                number,
                attributes,
                is_known: true,
            }));
        }
        let path = parent.path.join(&listed.name);
        let outcome = self.mirror.entry_in(&parent.fd, &path);
        self.count_look_up(&outcome);
        let is_known = outcome.is_ok();
        let entry = match outcome {
            Ok(entry) => entry,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error @ Error::Unscanned { .. }) => return Err(error),
            Err(_) => Entry::unknown(listed.kind, listed.inode),
        };
        let number = self.tree.look_up(parent.number, &listed.name, entry);
        Ok(number.map(|number| Found {
            number,
            attributes: entry.attributes,
            is_known,
        }))
    }

    /// Has all that is listed scanned, several files at a time: whoever looks them up one after the other
    /// finds them known.
    pub fn scan_listed(&self, parent: &Parent, listed: &[Listed]) {
        // At least one, also for a directory without a name in it.
        let shares = parallel::shares().min(listed.len()).max(1);
        parallel::share(shares, |number| {
            for listed in listed.iter().skip(number).step_by(shares) {
                // Whoever looks it up is told what is wrong with it.
                let _ = self
                    .mirror
                    .entry_in(&parent.fd, &parent.path.join(&listed.name));
            }
        });
    }

    /// Has files scanned that come after `name` in `parent`, where somebody lists that: `ls -l` looks up one
    /// after the other. Nobody waits for this.
    pub fn scan_after(&self, parent: u64, name: &OsStr) {
        if !self.ahead.lock().insert(parent) {
            return;
        }
        let _here = Ahead(&self.ahead, parent);
        let Ok(directory) = self.parent(parent) else {
            return;
        };
        let listing = self.handles.listing_of(&directory.path).unwrap_or_default();
        if let Some(at) = listing.iter().position(|listed| listed.name == name) {
            let after = listing.get(at + 1..).unwrap_or_default();
            self.scan_listed(&directory, &after[..after.len().min(SCANNED_AHEAD)]);
        }
    }

    /// The attributes of an inode. When something else bears its name by now, those who have it
    /// open still get what they opened; all others look its name up again.
    pub fn attributes(&self, number: u64) -> Result<Attributes> {
        if let Some(attributes) = virtual_files::attributes(number) {
            return Ok(attributes);
        }
        let known = self.known(number)?;
        match self.mirror.entry(&known.path) {
            Ok(entry) if entry.version == known.version || number == ROOT => {
                self.tree.remember(number, entry.attributes);
                Ok(entry.attributes)
            }
            Err(error @ Error::Unscanned { .. }) => Err(error),
            _ if known.is_open => Ok(known.attributes),
            Ok(_) => Err(self.mirror.failure(&known.path, Os::STALE)),
            Err(error) => Err(error),
        }
    }

    /// `caller`, here and below: who asks, where that may be another than the user of this process.
    pub fn open_file(&self, number: u64, caller: Option<&Caller>) -> Result<OpenFile> {
        if let Some(text) = virtual_files::content(number, &self.watch) {
            return Ok(OpenFile {
                handle: self.keep_virtual(Handle::Virtual(text.into_bytes()))?,
                pages: Pages::None,
            });
        }
        let start = Instant::now();
        let opened = self.open_shown(number, caller);
        if !will_be_repeated(&opened) {
            self.count_open(start, &opened);
        }
        opened
    }

    fn count_open(&self, start: Instant, opened: &Result<OpenFile>) {
        let stats = self.watch.stats();
        stats.open_time.record(start.elapsed());
        match opened {
            Ok(OpenFile {
                pages: Pages::Kept, ..
            }) => stats.opens_of_views.count(),
            Ok(_) => stats.opens_of_plain_files.count(),
            // The kernel looks such a file up again by itself.
            Err(error) if is_stale(error) => {}
            Err(_) => stats.failed_opens.count(),
        }
    }

    fn open_shown(&self, number: u64, caller: Option<&Caller>) -> Result<OpenFile> {
        let known = self.known(number)?;
        let opened = self.mirror.open_file(&known.path, known.version, caller)?;
        let (handle, pages) = match opened {
            Opened::View(view) => (Handle::View(view), Pages::Kept),
            Opened::Plain(file) => {
                let path = known.path;
                (Handle::Plain { file, path }, Pages::Fresh)
            }
        };
        Ok(OpenFile {
            handle: self.keep(number, handle, caller)?,
            pages,
        })
    }

    /// Fills `buf` from `offset`, as far as there are bytes before the end of the file.
    pub fn read(&self, handle: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let handle = self.handle(handle)?;
        if matches!(*handle, Handle::Virtual(_)) {
            // Who watches leaves no trace in what is watched.
            return handle.read(offset, buf);
        }
        let (start, asked) = (Instant::now(), buf.len());
        let outcome = handle.read(offset, buf);
        let returned = outcome.as_ref().ok().copied();
        self.watch.stats().count_read(start, asked, returned);
        outcome
    }

    pub fn open_directory(&self, number: u64, caller: Option<&Caller>) -> Result<u64> {
        if virtual_files::is_virtual(number) {
            return self.keep_virtual(Handle::VirtualDirectory);
        }
        let known = self.known(number)?;
        let fd = self.mirror.open_for_listing(&known.path, caller)?;
        let directory = Directory::new(fd, known.path);
        self.keep(number, Handle::Directory(directory), caller)
    }

    fn keep(&self, number: u64, handle: Handle, caller: Option<&Caller>) -> Result<u64> {
        let kept = self.handles.insert(handle, caller.map(Caller::uid));
        let kept = kept.ok_or_else(|| self.mirror.failure(Path::new(""), Os::MFILE))?;
        self.watch.stats().handles_opened.count();
        self.tree.opened(number);
        Ok(kept)
    }

    fn keep_virtual(&self, handle: Handle) -> Result<u64> {
        if self.virtual_handles.fetch_add(1, Ordering::Relaxed) >= virtual_files::MOST_OPEN {
            self.virtual_handles.fetch_sub(1, Ordering::Relaxed);
            return Err(self.mirror.failure(Path::new(""), Os::NFILE));
        }
        let kept = self.handles.insert(handle, None);
        kept.ok_or_else(|| self.mirror.failure(Path::new(""), Os::MFILE))
    }

    fn handle(&self, handle: u64) -> Result<Arc<Handle>> {
        self.handles
            .get(handle)
            .ok_or_else(|| self.mirror.failure(Path::new(""), Os::BADF))
    }

    pub fn close(&self, number: u64, handle: u64) {
        self.handles.remove(handle);
        if virtual_files::is_virtual(number) {
            self.virtual_handles.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.watch.stats().handles_closed.count();
            self.tree.closed(number);
        }
    }

    /// The names in an open directory; `from_start` reads them anew.
    pub fn listing(&self, handle: u64, from_start: bool) -> Result<Arc<Vec<Listed>>> {
        match &*self.handle(handle)? {
            Handle::Directory(directory) => {
                let listing = directory.listing(from_start, || self.list(directory))?;
                if from_start && !self.handles.may_hold(handle, listing.len()) {
                    directory.forget();
                    return Err(self.mirror.failure(&directory.path, Os::NOMEM));
                }
                Ok(listing)
            }
            Handle::VirtualDirectory => Ok(Arc::new(virtual_files::listing())),
            _ => Err(self.mirror.failure(Path::new(""), Os::NOTDIR)),
        }
    }

    fn list(&self, directory: &Directory) -> Result<Vec<Listed>> {
        let mut listed = self.mirror.list(&directory.path, &directory.fd)?;
        let is_root = directory.path.as_os_str().is_empty();
        listed.retain(|l| !is_root || !virtual_files::is_own_name(&l.name));
        Ok(listed)
    }

    pub fn forget(&self, number: u64, count: u64) {
        self.tree.forget(number, count);
    }

    pub fn space(&self) -> Result<StatVfs> {
        self.mirror.space()
    }

    /// The value of an extended attribute, where there is one of that name.
    pub fn xattr(
        &self,
        number: u64,
        name: &OsStr,
        caller: Option<&Caller>,
    ) -> Result<Option<Vec<u8>>> {
        if virtual_files::is_virtual(number) {
            return Ok(None);
        }
        let known = self.known(number)?;
        self.mirror.xattr(&known.path, known.version, name, caller)
    }

    /// The names of the extended attributes, each followed by a zero byte.
    pub fn xattrs(&self, number: u64, caller: Option<&Caller>) -> Result<Vec<u8>> {
        if virtual_files::is_virtual(number) {
            return Ok(Vec::new());
        }
        let known = self.known(number)?;
        self.mirror.xattrs(&known.path, known.version, caller)
    }

    pub fn link_target(&self, number: u64) -> Result<Vec<u8>> {
        let known = self.known(number)?;
        self.mirror.link_target(&known.path, known.version)
    }
}

/// Whether the same work will be done again by who can wait for a scan.
fn will_be_repeated<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Unscanned { .. }))
}

fn is_stale(error: &Error) -> bool {
    matches!(error, Error::Io { cause, .. } if Os::from_io_error(cause) == Some(Os::STALE))
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::FileType;
    use tempfile::TempDir;

    use crate::fs::mirror::Limits;
    use h5logfs_catalog::Catalog;
    use h5logfs_core::log::source_dir::SourceDir;
    use h5logfs_core::view::cache::MemoryLimits;
    use h5logfs_scan::InProcess;

    use super::*;

    fn service(limits: Limits) -> (TempDir, Service) {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("file"), "text").unwrap();
        fs::create_dir(source.path().join("directory")).unwrap();
        let catalog = Catalog::new(
            SourceDir::open(source.path()).unwrap(),
            MemoryLimits::each(1 << 20),
            InProcess::default(),
        );
        let service = Service::new(Mirror::new(catalog, limits)).unwrap();
        (source, service)
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
        let (source, service) = service(Limits::default());
        let (number, attributes) = service.look_up(ROOT, OsStr::new("file")).unwrap();
        let open = service.open_file(number, None).unwrap();
        replace(&source);
        assert_eq!(service.attributes(number).unwrap(), attributes);
        let mut buf = [0; 9];
        assert_eq!(service.read(open.handle, 0, &mut buf).unwrap(), 4);
        assert_eq!(errno(service.open_file(number, None)), Os::STALE);
        service.close(number, open.handle);
        assert_eq!(errno(service.attributes(number)), Os::STALE);
        let (new, attributes) = service.look_up(ROOT, OsStr::new("file")).unwrap();
        assert_ne!(new, number);
        assert_eq!(attributes.size, 5);
    }

    #[test]
    fn what_is_not_open_is_looked_up_again() {
        let (source, service) = service(Limits::default());
        let (number, _) = service.look_up(ROOT, OsStr::new("file")).unwrap();
        replace(&source);
        assert_eq!(errno(service.attributes(number)), Os::STALE);
        assert_eq!(errno(service.open_file(number, None)), Os::STALE);
    }

    fn names(service: &Service) -> Vec<String> {
        let handle = service.open_directory(ROOT, None).unwrap();
        let listing = service.listing(handle, true).unwrap();
        let mut names: Vec<String> = listing
            .iter()
            .map(|entry| entry.name.to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn limits_hold_for_listings_and_look_ups() {
        let (_source, everything) = service(Limits::default());
        assert_eq!(names(&everything), ["directory", "file"]);
        let (_source, single) = service(Limits {
            only: Some("file".into()),
            without: None,
        });
        assert_eq!(names(&single), ["file"]);
        let outcome = single.look_up(ROOT, OsStr::new("directory"));
        assert_eq!(errno(outcome), Os::NOENT);
        let (_source, rest) = service(Limits {
            only: None,
            without: Some("directory".into()),
        });
        assert_eq!(names(&rest), ["file"]);
        let outcome = rest.look_up(ROOT, OsStr::new("directory"));
        assert_eq!(errno(outcome), Os::NOENT);
    }

    fn listed(name: &str) -> Listed {
        Listed {
            name: name.into(),
            kind: FileType::RegularFile,
            inode: 1,
        }
    }

    #[test]
    fn a_listing_with_attributes_looks_each_name_up() {
        let (source, service) = service(Limits::default());
        let parent = service.parent(ROOT).unwrap();
        let found = service
            .look_up_listed(&parent, &listed("file"))
            .unwrap()
            .unwrap();
        assert!(found.is_known);
        // The first look at the file has read some bytes of it.
        let (number, attributes) = service.look_up(ROOT, OsStr::new("file")).unwrap();
        assert_eq!((number, attributes.size), (found.number, 4));
        assert_eq!(attributes.modified, found.attributes.modified);
        // Both counted: only when both are forgotten the number is gone.
        service.forget(number, 1);
        assert_eq!(service.attributes(number).unwrap(), attributes);
        service.forget(number, 1);
        assert_eq!(errno(service.attributes(number)), Os::STALE);
        replace(&source);
        let found = service
            .look_up_listed(&parent, &listed("file"))
            .unwrap()
            .unwrap();
        assert_eq!(found.attributes.size, 5);
        fs::remove_file(source.path().join("file")).unwrap();
        assert!(
            service
                .look_up_listed(&parent, &listed("file"))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn what_cannot_be_looked_up_stays_in_the_listing() {
        let (source, service) = service(Limits::default());
        let mut parent = service.parent(ROOT).unwrap();
        // No directory: nothing can be looked up in it, for another reason than that it is gone.
        parent.fd = fs::File::open(source.path().join("file")).unwrap().into();
        let found = service
            .look_up_listed(&parent, &listed("file"))
            .unwrap()
            .unwrap();
        assert!(!found.is_known);
        assert_eq!(found.attributes.kind, FileType::RegularFile);
        // The look-up that must follow finds the file itself.
        let (number, attributes) = service.look_up(ROOT, OsStr::new("file")).unwrap();
        assert_ne!(number, found.number);
        assert_eq!(attributes.size, 4);
    }

    #[test]
    fn names_that_climb_out_are_refused() {
        let (_source, service) = service(Limits::default());
        let outcome = service.look_up(ROOT, OsStr::new(".."));
        assert_eq!(errno(outcome), Os::XDEV);
    }

    #[test]
    fn nothing_is_found_by_a_directory_in_another_ones_place() {
        let (source, service) = service(Limits::default());
        let below = |name: &str| source.path().join(name);
        for directory in ["directory", "other"] {
            fs::create_dir_all(below(directory)).unwrap();
            fs::write(below(directory).join("file"), directory).unwrap();
            std::os::unix::fs::symlink(directory, below(directory).join("link")).unwrap();
        }
        let (number, _) = service.look_up(ROOT, OsStr::new("directory")).unwrap();
        assert!(service.look_up(number, OsStr::new("file")).is_ok());
        let (link, _) = service.look_up(number, OsStr::new("link")).unwrap();
        assert_eq!(service.link_target(link).unwrap(), b"directory");
        fs::rename(below("directory"), below("gone")).unwrap();
        fs::rename(below("other"), below("directory")).unwrap();
        let outcome = service.look_up(number, OsStr::new("file"));
        assert_eq!(errno(outcome), Os::STALE);
        assert_eq!(errno(service.link_target(link)), Os::STALE);
        let (number, _) = service.look_up(ROOT, OsStr::new("directory")).unwrap();
        assert_eq!(
            service.look_up(number, OsStr::new("file")).unwrap().1.size,
            5
        );
    }
}
