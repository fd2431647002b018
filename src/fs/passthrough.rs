//! Files that the kernel reads without the daemon (`FUSE_PASSTHROUGH`, Linux 6.9 and later): plain ones, and views whose bytes are
//! those of one file.
//!
//! The kernel admits that only where root has mounted. It refuses to have an inode open in both ways at the same time. So
//! the first of the handles that are open at the same time decides for the others, which share its backing file. An inode
//! number stands for one file of the source, or for one state of a view, so they are of the same file.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackingId, InitFlags, KernelConfig, ReplyOpen};
use parking_lot::Mutex;

/// How many file systems may be stacked up to and including this one. The source may so be none that lies on others
/// itself, and one overlay may lie on the mount.
const STACK_DEPTH: u32 = 1;

/// The open files of a mount that the kernel may read.
#[derive(Debug, Default)]
pub struct Passthrough {
    is_possible: AtomicBool,
    /// By inode number. Held while the kernel is told of a file, which opens none and waits for no other process: of two
    /// opens of one inode the second must see what the first has got.
    open: Mutex<HashMap<u64, OpenInode>>,
}

#[derive(Debug, Default)]
struct OpenInode {
    handles: usize,
    /// `None` where the daemon reads the file.
    backing: Option<Arc<BackingId>>,
}

impl Passthrough {
    /// Asks the kernel for it.
    pub fn request(&self, config: &mut KernelConfig) {
        let may = rustix::process::geteuid().is_root();
        let can = may
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(STACK_DEPTH).is_ok();
        self.is_possible.store(can, Ordering::Relaxed);
    }

    /// Counts a handle of such a file, whose bytes `file` has. Returns what the kernel is to read; `None` where it is to ask the daemon.
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
                    log::debug!("all files are read by the daemon: {e}");
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
