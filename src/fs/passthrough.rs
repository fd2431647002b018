//! Files that the kernel reads without the daemon (`FUSE_PASSTHROUGH`, Linux 6.9 and later): plain files, and views whose
//! bytes are those of one file.
//!
//! The kernel permits this only for mounts by root. It refuses to open an inode in both ways at the same time. So the first
//! of several open handles decides for the others, which share its backing file. An inode number stands for one file of the
//! source, or for one state of a view, so they have the same file.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackingId, InitFlags, KernelConfig, ReplyOpen};
use parking_lot::Mutex;

/// Most stacked file systems, including this one. With 1, the source must not be stacked itself, and one overlay may be on
/// top of the mount.
const STACK_DEPTH: u32 = 1;

/// The open files that the kernel may read.
#[derive(Debug, Default)]
pub struct Passthrough {
    is_possible: AtomicBool,
    /// Open inodes by number. Locked while the kernel registers a file, which opens none and waits for no other process: of
    /// two opens of one inode, the second must see the result of the first.
    open: Mutex<HashMap<u64, OpenInode>>,
}

#[derive(Debug, Default)]
struct OpenInode {
    handles: usize,
    /// The backing file; `None` if the daemon reads the file.
    backing: Option<Arc<BackingId>>,
}

impl Passthrough {
    /// Requests the capability from the kernel, and records whether it was granted.
    pub fn request(&self, config: &mut KernelConfig) {
        let may = rustix::process::geteuid().is_root();
        let can = may
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(STACK_DEPTH).is_ok();
        self.is_possible.store(can, Ordering::Relaxed);
    }

    /// Counts a handle of a file with the bytes of `file`. Returns the backing file for the kernel; `None` if it must ask the
    /// daemon.
    pub fn open(&self, inode: u64, file: impl AsFd, reply: &ReplyOpen) -> Option<Arc<BackingId>> {
        let mut open = self.open.lock();
        let found = open.entry(inode).or_default();
        if found.handles == 0 && self.is_possible.load(Ordering::Relaxed) {
            found.backing = self.backing(file, reply);
        }
        found.handles += 1;
        found.backing.clone()
    }

    fn backing(&self, file: impl AsFd, reply: &ReplyOpen) -> Option<Arc<BackingId>> {
        match reply.open_backing(file) {
            Ok(backing) => Some(Arc::new(backing)),
            Err(e) => {
                if e.kind() == std::io::ErrorKind::PermissionDenied {
                    log::debug!("the daemon reads all files itself: {e}");
                    self.is_possible.store(false, Ordering::Relaxed);
                }
                None
            }
        }
    }

    /// Counts a handle less, of any kind of file.
    pub fn close(&self, inode: u64) {
        let mut open = self.open.lock();
        if let Some(found) = open.get_mut(&inode) {
            found.handles -= 1;
            if found.handles == 0 {
                open.remove(&inode);
            }
        }
    }
}
