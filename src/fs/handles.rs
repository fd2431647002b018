//! Open files and directories.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::descriptors;
use h5logfs_core::view::View;
use h5logfs_core::view::cache::Generation;

use super::mirror::Listed;

#[derive(Debug)]
pub enum Handle {
    /// The view as it was when the file was opened, whatever becomes of the log.
    View(Arc<View>),
    Plain {
        file: File,
        /// For messages only.
        path: PathBuf,
    },
    Directory(Directory),
    /// A virtual file as it was when it was opened.
    Virtual(Vec<u8>),
    VirtualDirectory,
}

impl Handle {
    /// How many the daemon holds for it. A view has its own, however often it is open.
    fn descriptors(&self) -> usize {
        match self {
            Handle::View(view) => view.files().count(),
            Handle::Plain { .. } | Handle::Directory(_) => 1,
            Handle::Virtual(_) | Handle::VirtualDirectory => 0,
        }
    }

    /// Fills `buf` from `offset`, as far as there are bytes before the end of the file. The kernel
    /// takes a shorter answer for the end of the file.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self {
            Handle::View(view) => view.read_at(offset, buf),
            Handle::Plain { file, path } => {
                read_full(file, offset, buf).map_err(|e| Error::io(path, e))
            }
            Handle::Directory(directory) => {
                Err(Error::io(&directory.path, rustix::io::Errno::ISDIR.into()))
            }
            Handle::Virtual(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let left = bytes.get(from..).unwrap_or_default();
                let len = left.len().min(buf.len());
                buf[..len].copy_from_slice(&left[..len]);
                Ok(len)
            }
            Handle::VirtualDirectory => Err(Error::io("", rustix::io::Errno::ISDIR.into())),
        }
    }
}

fn read_full(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// An open directory, and its names as they were when reading last began.
#[derive(Debug)]
pub struct Directory {
    pub fd: OwnedFd,
    pub path: PathBuf,
    listing: Mutex<Arc<Vec<Listed>>>,
}

impl Directory {
    pub fn new(fd: OwnedFd, path: PathBuf) -> Self {
        Directory {
            fd,
            path,
            listing: Mutex::default(),
        }
    }

    /// The listing that was made last.
    fn last(&self) -> Arc<Vec<Listed>> {
        self.listing.lock().clone()
    }

    /// Positions stay valid while the directory changes because they count in one listing;
    /// reading from the start (`rewinddir`) makes a new one.
    pub fn listing(
        &self,
        from_start: bool,
        list: impl FnOnce() -> Result<Vec<Listed>>,
    ) -> Result<Arc<Vec<Listed>>> {
        if from_start {
            let fresh = Arc::new(list()?);
            *self.listing.lock() = fresh.clone();
            return Ok(fresh);
        }
        Ok(self.last())
    }

    /// Lets go of the names.
    pub fn forget(&self) {
        *self.listing.lock() = Arc::default();
    }
}

/// What one user may have open, where several get in: each open file takes descriptors of the daemon, and each open
/// directory memory for its names. Of either, one may have twice as much where it is all that the user has.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    descriptors: usize,
    names: usize,
}

impl Share {
    fn permits(share: usize, used: usize, more: usize) -> bool {
        let most = match used {
            0 => share.saturating_mul(2),
            _ => share,
        };
        used.saturating_add(more) <= most
    }
}

impl Default for Share {
    fn default() -> Self {
        let descriptors = usize::try_from(descriptors::limit() / 4).unwrap_or(usize::MAX);
        Share {
            descriptors,
            names: MOST_NAMES,
        }
    }
}

/// About a hundred bytes each.
const MOST_NAMES: usize = 8 << 20;

#[derive(Debug, Default)]
pub struct Handles {
    last: AtomicU64,
    share: Share,
    open: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    handles: HashMap<u64, Held>,
    /// By the numbers of users; none has nothing.
    users: HashMap<u32, Used>,
}

#[derive(Debug)]
struct Held {
    /// Who opened it, where several users get in.
    user: Option<u32>,
    names: usize,
    handle: Arc<Handle>,
}

#[derive(Debug, Default)]
struct Used {
    handles: usize,
    descriptors: usize,
    names: usize,
    /// How often each view is open, by its generation.
    views: HashMap<Generation, usize>,
}

impl Used {
    /// Whether one handle more is within the share.
    fn open(&mut self, handle: &Handle, share: Share) -> bool {
        let more = match handle {
            Handle::View(view) if self.views.contains_key(&view.generation()) => 0,
            handle => handle.descriptors(),
        };
        if more > 0 && !Share::permits(share.descriptors, self.descriptors, more) {
            return false;
        }
        if let Handle::View(view) = handle {
            *self.views.entry(view.generation()).or_default() += 1;
        }
        self.descriptors += more;
        self.handles += 1;
        true
    }

    fn close(&mut self, held: &Held) {
        self.handles -= 1;
        self.names -= held.names;
        if let Handle::View(view) = &*held.handle
            && let Some(times) = self.views.get_mut(&view.generation())
        {
            *times -= 1;
            if *times > 0 {
                return;
            }
            self.views.remove(&view.generation());
        }
        self.descriptors -= held.handle.descriptors();
    }
}

impl Handles {
    /// The number of a handle that `user` opens; `None` where he has too many.
    pub fn insert(&self, handle: Handle, user: Option<u32>) -> Option<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut table = self.open.write();
        if let Some(user) = user {
            let used = table.users.entry(user).or_default();
            if !used.open(&handle, self.share) {
                if used.handles == 0 {
                    table.users.remove(&user);
                }
                return None;
            }
        }
        let held = Held {
            user,
            names: 0,
            handle: Arc::new(handle),
        };
        table.handles.insert(number, held);
        Some(number)
    }

    /// Whether its user may have so many names in memory for this directory.
    pub fn may_hold(&self, number: u64, names: usize) -> bool {
        let table = &mut *self.open.write();
        let Some(held) = table.handles.get_mut(&number) else {
            return true;
        };
        let Some(used) = held.user.and_then(|user| table.users.get_mut(&user)) else {
            return true;
        };
        used.names -= held.names;
        let may = Share::permits(self.share.names, used.names, names);
        held.names = if may { names } else { 0 };
        used.names += held.names;
        may
    }

    /// What was last listed of the directory at `path`, where somebody has it open.
    pub fn listing_of(&self, path: &Path) -> Option<Arc<Vec<Listed>>> {
        let table = self.open.read();
        let listing = |held: &Held| match &*held.handle {
            Handle::Directory(directory) if directory.path == path => Some(directory.last()),
            _ => None,
        };
        let mut listings = table.handles.values().filter_map(listing);
        listings.find(|listing| !listing.is_empty())
    }

    pub fn get(&self, number: u64) -> Option<Arc<Handle>> {
        let table = self.open.read();
        table
            .handles
            .get(&number)
            .map(|held| Arc::clone(&held.handle))
    }

    /// The handle goes when the last request that uses it is done.
    pub fn remove(&self, number: u64) {
        // Closing may take a while: not under the lock.
        let _removed = self.open.write().remove(number);
    }
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<Held> {
        let held = self.handles.remove(&number)?;
        if let Some(user) = held.user
            && let Some(used) = self.users.get_mut(&user)
        {
            used.close(&held);
            if used.handles == 0 {
                self.users.remove(&user);
            }
        }
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use h5logfs_catalog::Catalog;
    use h5logfs_core::log::source_dir::SourceDir;
    use h5logfs_core::view::cache::MemoryLimits;
    use h5logfs_scan::InProcess;

    use super::*;

    #[test]
    fn plain_files_are_read_up_to_their_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let handle = Handle::Plain {
            file,
            path: "f".into(),
        };
        let mut buf = [0; 8];
        assert_eq!(handle.read(0, &mut buf).unwrap(), 8);
        assert_eq!(handle.read(6, &mut buf).unwrap(), 4);
        assert_eq!(&buf[..4], b"6789");
        assert_eq!(handle.read(10, &mut buf).unwrap(), 0);
    }

    #[test]
    fn virtual_files_are_read_in_pieces() {
        let handle = Handle::Virtual(b"0123456789".to_vec());
        let mut buf = [0; 8];
        assert_eq!(handle.read(0, &mut buf).unwrap(), 8);
        assert_eq!(handle.read(8, &mut buf).unwrap(), 2);
        assert_eq!(&buf[..2], b"89");
        assert_eq!(handle.read(11, &mut buf).unwrap(), 0);
    }

    #[test]
    fn handles_have_numbers_of_their_own() {
        let handles = Handles::default();
        let plain = || Handle::Plain {
            file: tempfile::tempfile().unwrap(),
            path: "f".into(),
        };
        let insert = || handles.insert(plain(), None).unwrap();
        let (a, b) = (insert(), insert());
        assert_ne!(a, b);
        handles.remove(a);
        assert!(handles.get(a).is_none());
        assert!(handles.get(b).is_some());
    }

    /// Shares of five descriptors and ten names.
    fn shared() -> Handles {
        Handles {
            share: Share {
                descriptors: 5,
                names: 10,
            },
            ..Handles::default()
        }
    }

    fn directory() -> Handle {
        let fd = std::fs::File::open("/").unwrap().into();
        Handle::Directory(Directory::new(fd, PathBuf::new()))
    }

    #[test]
    fn a_user_has_a_share_of_descriptors_and_names() {
        let handles = shared();
        let open = |user| handles.insert(directory(), user);
        let opened: Vec<u64> = (0..5).map(|_| open(Some(7)).unwrap()).collect();
        assert!(open(Some(7)).is_none());
        assert!(open(Some(8)).is_some() && open(None).is_some());
        let (a, b) = (opened[0], opened[1]);
        assert!(!handles.may_hold(a, 21));
        // A large one, and nothing beside that.
        assert!(handles.may_hold(a, 20) && !handles.may_hold(b, 1));
        assert!(handles.may_hold(a, 6) && handles.may_hold(b, 4));
        assert!(!handles.may_hold(b, 5) && handles.may_hold(b, 4));
        handles.remove(a);
        assert!(handles.may_hold(b, 10));
        opened.iter().for_each(|number| handles.remove(*number));
        assert!(!handles.open.read().users.contains_key(&7));
        assert!(open(Some(7)).is_some());
    }

    #[test]
    fn a_view_counts_with_all_its_files_and_once() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let memory = MemoryLimits::each(1 << 20);
        let catalog = Catalog::new(
            SourceDir::open(&corpus).unwrap(),
            memory,
            InProcess::default(),
        );
        let view = catalog.open(Path::new("subfile.log.h5")).unwrap();
        let files = view.files().count();
        assert!((2..5).contains(&files));
        let handles = shared();
        let open = || handles.insert(Handle::View(Arc::clone(&view)), Some(7));
        let opened: Vec<u64> = (0..9).map(|_| open().unwrap()).collect();
        let plain = || handles.insert(directory(), Some(7));
        assert!((files..5).all(|_| plain().is_some()) && plain().is_none());
        opened.iter().for_each(|number| handles.remove(*number));
        assert!((0..files).all(|_| plain().is_some()) && plain().is_none());
    }
}
