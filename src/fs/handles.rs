//! Open files and directories.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Hold;
use h5logfs_common::messages;
use h5logfs_common::task::Task;
use h5logfs_log::descriptors;
use h5logfs_log::settled::state::SettledState;
use h5logfs_log::source_file::SourceFile;
use h5logfs_view::View;
use h5logfs_view::cache::Generation;

use super::directory::Directory;
use super::virtual_files::Permit;

#[derive(Debug)]
pub enum Handle {
    /// The view of the log at the open. It does not show later changes of the log.
    View(Arc<View>),
    Plain {
        file: File,
        /// For error messages.
        path: PathBuf,
    },
    /// A settled log. It may become a log again, and be settled once more with other bytes in the same places.
    Settled {
        file: File,
        /// The state at the open.
        state: Arc<SettledState>,
        /// For error messages.
        path: PathBuf,
    },
    Directory(Directory),
    /// The content of a virtual file at the open.
    Virtual {
        content: Vec<u8>,
        _permit: Permit,
    },
    VirtualDirectory {
        /// Inode number.
        number: u64,
        _permit: Permit,
    },
}

impl Handle {
    /// The number of descriptors that the handle takes. All handles of a view share descriptors.
    fn descriptors(&self) -> usize {
        match self {
            Handle::View(view) => view.descriptors(),
            Handle::Plain { .. } | Handle::Settled { .. } | Handle::Directory(_) => 1,
            Handle::Virtual { .. } | Handle::VirtualDirectory { .. } => 0,
        }
    }

    /// The single file that holds all bytes of this one, if there is one.
    pub fn only_file(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Handle::View(view) => view.only_file().and_then(SourceFile::descriptor),
            Handle::Plain { file, .. } => Some(file.as_fd()),
            Handle::Settled { .. }
            | Handle::Directory(_)
            | Handle::Virtual { .. }
            | Handle::VirtualDirectory { .. } => None,
        }
    }

    /// Makes the owner of this file the subject of the following messages.
    pub fn about_owner(&self) {
        let fd = match self {
            Handle::View(view) => view.files().next().and_then(|(_, file)| file.descriptor()),
            Handle::Plain { file, .. } | Handle::Settled { file, .. } => Some(file.as_fd()),
            Handle::Directory(directory) => Some(directory.fd.as_fd()),
            Handle::Virtual { .. } | Handle::VirtualDirectory { .. } => None,
        };
        if let Some(Ok(stat)) = fd.map(rustix::fs::fstat) {
            messages::about(stat.st_uid);
        }
    }

    /// Fills `buf` from `offset`. Returns fewer bytes only at the end of the file, because the kernel takes a short answer
    /// for that.
    pub fn read(&self, task: &Task, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self {
            Handle::View(view) => view.read_for(task, offset, buf),
            Handle::Plain { file, path } => {
                read_full(file, offset, buf).map_err(|e| Error::io(path, e))
            }
            Handle::Settled { file, state, path } => {
                let filled = read_full(file, offset, buf).map_err(|e| Error::io(path, e))?;
                // The state must be checked after the read.
                if !state.is_that_of(file).map_err(|e| Error::io(path, e))? {
                    let reason = "it was settled when it was opened, and is a log again, or was settled anew: open it again";
                    return Err(Error::of(path, reason));
                }
                Ok(filled)
            }
            Handle::Directory(directory) => {
                Err(Error::io(&directory.path, rustix::io::Errno::ISDIR.into()))
            }
            Handle::Virtual { content, .. } => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let left = content.get(from..).unwrap_or_default();
                let len = left.len().min(buf.len());
                buf[..len].copy_from_slice(&left[..len]);
                Ok(len)
            }
            Handle::VirtualDirectory { .. } => Err(Error::io("", rustix::io::Errno::ISDIR.into())),
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

/// A limit for the open files of a user on a shared mount, because they take descriptors of the daemon. A single file may take
/// twice the share. Memory of open views is limited by another rule.
#[derive(Debug, Clone, Copy)]
struct UserShare {
    descriptors: usize,
}

/// Whether `more` may be added to a user's `used`.
fn permits(share: usize, used: usize, more: usize) -> bool {
    let limit = if used == 0 {
        share.saturating_mul(2)
    } else {
        share
    };
    used.saturating_add(more) <= limit
}

impl Default for UserShare {
    fn default() -> Self {
        let descriptors = usize::try_from(descriptors::limit() / 4).unwrap_or(usize::MAX);
        UserShare { descriptors }
    }
}

#[derive(Debug, Default)]
pub struct Handles {
    last: AtomicU64,
    share: UserShare,
    open: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    handles: HashMap<u64, OpenHandle>,
    /// Usage of each user with handles, on a shared mount.
    users: HashMap<u32, Usage>,
}

#[derive(Debug)]
struct OpenHandle {
    /// The user who opened the file, on a shared mount.
    user: Option<u32>,
    handle: Arc<Handle>,
}

#[derive(Debug, Default)]
struct Usage {
    handles: usize,
    descriptors: usize,
    views: HashMap<Generation, OpenView>,
}

/// A view opened by a user.
#[derive(Debug)]
struct OpenView {
    /// Number of handles.
    times: usize,
    /// Counts the memory of the view for the user.
    _hold: Hold,
}

impl Usage {
    /// Counts another handle of `user`. Returns false if that exceeds the share.
    fn open(&mut self, user: u32, handle: &Handle, share: UserShare) -> bool {
        if let Handle::View(view) = handle
            && let Some(open) = self.views.get_mut(&view.generation())
        {
            open.times += 1;
            self.handles += 1;
            return true;
        }
        let more = handle.descriptors();
        if more > 0 && !permits(share.descriptors, self.descriptors, more) {
            return false;
        }
        if let Handle::View(view) = handle {
            let Some(hold) = view.hold_for(user) else {
                return false;
            };
            let open = OpenView {
                times: 1,
                _hold: hold,
            };
            self.views.insert(view.generation(), open);
        }
        self.descriptors += more;
        self.handles += 1;
        true
    }

    fn close(&mut self, open: &OpenHandle) {
        self.handles -= 1;
        if let Handle::View(view) = &*open.handle
            && let Some(of_user) = self.views.get_mut(&view.generation())
        {
            of_user.times -= 1;
            if of_user.times > 0 {
                return;
            }
            self.views.remove(&view.generation());
        }
        self.descriptors -= open.handle.descriptors();
    }
}

impl Handles {
    /// Adds a handle and returns its number. `None` if the user has too many.
    pub fn insert(&self, handle: Handle, user: Option<u32>) -> Option<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut table = self.open.write();
        if let Some(user) = user {
            let usage = table.users.entry(user).or_default();
            if !usage.open(user, &handle, self.share) {
                if usage.handles == 0 {
                    table.users.remove(&user);
                }
                return None;
            }
        }
        let open = OpenHandle {
            user,
            handle: Arc::new(handle),
        };
        table.handles.insert(number, open);
        Some(number)
    }

    /// The open directories of an inode, by handle.
    pub fn directories_of(&self, inode: u64) -> Vec<(u64, Arc<Handle>)> {
        let table = self.open.read();
        let handles = table.handles.iter();
        let of_inode = handles.filter(|(_, open)| match &*open.handle {
            Handle::Directory(directory) => directory.inode == inode,
            _ => false,
        });
        of_inode
            .map(|(number, open)| (*number, Arc::clone(&open.handle)))
            .collect()
    }

    pub fn get(&self, number: u64) -> Option<Arc<Handle>> {
        let table = self.open.read();
        table
            .handles
            .get(&number)
            .map(|open| Arc::clone(&open.handle))
    }

    /// The user who opened the file, on a shared mount.
    pub fn user(&self, number: u64) -> Option<u32> {
        self.open.read().handles.get(&number)?.user
    }

    /// Removes a handle. It closes when the last request that uses it ends.
    pub fn remove(&self, number: u64) {
        // Closing may take a while, so it happens without the lock.
        let _removed = self.open.write().remove(number);
    }
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<OpenHandle> {
        let open = self.handles.remove(&number)?;
        if let Some(user) = open.user
            && let Some(usage) = self.users.get_mut(&user)
        {
            usage.close(&open);
            if usage.handles == 0 {
                self.users.remove(&user);
            }
        }
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use h5logfs_catalog::Catalog;
    use h5logfs_log::source_dir::SourceDir;
    use h5logfs_scan::InProcess;
    use h5logfs_view::cache::MemoryLimits;

    use super::*;
    use crate::fs::place::Place;
    use crate::fs::virtual_files::OpenFiles;

    #[test]
    fn plain_files_are_read_up_to_their_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let handle = Handle::Plain {
            file,
            path: "f".into(),
        };
        let mut buf = [0; 8];
        assert_eq!(handle.read(&Task::unlimited(), 0, &mut buf).unwrap(), 8);
        assert_eq!(handle.read(&Task::unlimited(), 6, &mut buf).unwrap(), 4);
        assert_eq!(&buf[..4], b"6789");
        assert_eq!(handle.read(&Task::unlimited(), 10, &mut buf).unwrap(), 0);
    }

    #[test]
    fn virtual_files_are_read_in_pieces() {
        let permit = Arc::<OpenFiles>::default().open(0).unwrap();
        let handle = Handle::Virtual {
            content: b"0123456789".to_vec(),
            _permit: permit,
        };
        let mut buf = [0; 8];
        assert_eq!(handle.read(&Task::unlimited(), 0, &mut buf).unwrap(), 8);
        assert_eq!(handle.read(&Task::unlimited(), 8, &mut buf).unwrap(), 2);
        assert_eq!(&buf[..2], b"89");
        assert_eq!(handle.read(&Task::unlimited(), 11, &mut buf).unwrap(), 0);
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

    /// Each user has a share of five descriptors.
    fn shared() -> Handles {
        Handles {
            share: UserShare { descriptors: 5 },
            ..Handles::default()
        }
    }

    fn directory() -> Handle {
        let fd = std::fs::File::open("/").unwrap().into();
        Handle::Directory(Directory::new(fd, Place::root(), 1))
    }

    #[test]
    fn a_user_has_a_share_of_descriptors() {
        let handles = shared();
        let open = |user| handles.insert(directory(), user);
        let opened: Vec<u64> = (0..5).map(|_| open(Some(7)).unwrap()).collect();
        assert!(open(Some(7)).is_none());
        assert!(open(Some(8)).is_some() && open(None).is_some());
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
