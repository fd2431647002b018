//! What each request means, without fuser and without a kernel: inode numbers and handles in,
//! values and errors out.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::StatVfs;
use rustix::io::Errno as Os;

use crate::error::Result;

use super::attributes::Attributes;
use super::handles::{Directory, Handle, Handles};
use super::mirror::{Listed, Mirror, Opened};
use super::tree::{Known, ROOT, Tree};

/// A file that has been opened.
#[derive(Debug)]
pub struct OpenFile {
    pub handle: u64,
    /// The bytes behind its inode number never change: the kernel may keep its pages.
    pub is_fixed: bool,
}

#[derive(Debug)]
pub struct Service {
    mirror: Mirror,
    tree: Tree,
    handles: Handles,
}

impl Service {
    pub fn new(mirror: Mirror) -> Result<Self> {
        let root = mirror.entry(Path::new(""))?;
        Ok(Service {
            mirror,
            tree: Tree::new(root),
            handles: Handles::default(),
        })
    }

    fn known(&self, number: u64) -> Result<Known> {
        self.tree
            .known(number)
            .ok_or_else(|| self.mirror.failure(Path::new(""), Os::STALE))
    }

    /// The inode number that `name` in `parent` has now.
    pub fn look_up(&self, parent: u64, name: &OsStr) -> Result<(u64, Attributes)> {
        let path = self.known(parent)?.path.join(name);
        let entry = self.mirror.entry(&path)?;
        let number = self
            .tree
            .look_up(parent, name, entry)
            .ok_or_else(|| self.mirror.failure(&path, Os::STALE))?;
        Ok((number, entry.attributes))
    }

    /// The attributes of an inode. When something else bears its name by now, those who have it
    /// open still get what they opened; all others look its name up again.
    pub fn attributes(&self, number: u64) -> Result<Attributes> {
        let known = self.known(number)?;
        match self.mirror.entry(&known.path) {
            Ok(entry) if entry.version == known.version || number == ROOT => {
                self.tree.remember(number, entry.attributes);
                Ok(entry.attributes)
            }
            _ if known.is_open => Ok(known.attributes),
            Ok(_) => Err(self.mirror.failure(&known.path, Os::STALE)),
            Err(error) => Err(error),
        }
    }

    pub fn open_file(&self, number: u64) -> Result<OpenFile> {
        let known = self.known(number)?;
        let opened = self.mirror.open_file(&known.path, known.version)?;
        let is_fixed = matches!(opened, Opened::View(_));
        let handle = match opened {
            Opened::View(view) => Handle::View(view),
            Opened::Plain(file) => Handle::Plain {
                file,
                path: known.path,
            },
        };
        Ok(OpenFile {
            handle: self.keep(number, handle),
            is_fixed,
        })
    }

    /// Fills `buf` from `offset`, as far as there are bytes before the end of the file.
    pub fn read(&self, handle: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.handle(handle)?.read(offset, buf)
    }

    pub fn open_directory(&self, number: u64) -> Result<u64> {
        let known = self.known(number)?;
        let fd = self.mirror.open_directory(&known.path)?;
        Ok(self.keep(number, Handle::Directory(Directory::new(fd, known.path))))
    }

    fn keep(&self, number: u64, handle: Handle) -> u64 {
        self.tree.opened(number);
        self.handles.insert(handle)
    }

    fn handle(&self, handle: u64) -> Result<Arc<Handle>> {
        self.handles
            .get(handle)
            .ok_or_else(|| self.mirror.failure(Path::new(""), Os::BADF))
    }

    pub fn close(&self, number: u64, handle: u64) {
        self.handles.remove(handle);
        self.tree.closed(number);
    }

    /// The names in an open directory; `from_start` reads them anew.
    pub fn listing(&self, handle: u64, from_start: bool) -> Result<Arc<Vec<Listed>>> {
        match &*self.handle(handle)? {
            Handle::Directory(directory) => directory.listing(from_start, || {
                self.mirror.list(&directory.path, &directory.fd)
            }),
            _ => Err(self.mirror.failure(Path::new(""), Os::NOTDIR)),
        }
    }

    pub fn forget(&self, number: u64, count: u64) {
        self.tree.forget(number, count);
    }

    pub fn space(&self) -> Result<StatVfs> {
        self.mirror.space()
    }

    pub fn link_target(&self, number: u64) -> Result<Vec<u8>> {
        let known = self.known(number)?;
        self.mirror.link_target(&known.path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use crate::catalog::Catalog;
    use crate::error::Error;
    use crate::fs::mirror::Limits;
    use crate::log::source::Folder;

    use super::*;

    fn service(limits: Limits) -> (TempDir, Service) {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("file"), "text").unwrap();
        fs::create_dir(source.path().join("directory")).unwrap();
        let catalog = Catalog::new(Folder::open(source.path()).unwrap(), 1 << 20);
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
        let open = service.open_file(number).unwrap();
        replace(&source);
        assert_eq!(service.attributes(number).unwrap(), attributes);
        let mut buf = [0; 9];
        assert_eq!(service.read(open.handle, 0, &mut buf).unwrap(), 4);
        assert_eq!(errno(service.open_file(number)), Os::STALE);
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
        assert_eq!(errno(service.open_file(number)), Os::STALE);
    }

    fn names(service: &Service) -> Vec<String> {
        let handle = service.open_directory(ROOT).unwrap();
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

    #[test]
    fn names_that_climb_out_are_refused() {
        let (_source, service) = service(Limits::default());
        let outcome = service.look_up(ROOT, OsStr::new(".."));
        assert_eq!(errno(outcome), Os::XDEV);
    }
}
