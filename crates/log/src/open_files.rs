//! The files and directories that a process has open: a set may have thousands of members, a program may open hundreds of
//! logs, and a process has few descriptors. All share one list, of which the least recently used ones are closed.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use super::descriptors;
use h5logfs_common::held_file::HeldFile;
use h5logfs_common::lru::Lru;

/// The most descriptors that are open at a time.
const MOST_OPEN: u64 = 512;

/// The open descriptors, by the numbers of their [`Handle`]s.
static OPEN: LazyLock<Lru<u64, Arc<HeldFile>>> =
    LazyLock::new(|| Lru::new((descriptors::limit() / 4).clamp(4, MOST_OPEN)));

thread_local! {
    /// The descriptor that this thread used last. Threads that read one file do not wait for each other at the list.
    static LAST: RefCell<Last> = const {
        RefCell::new(Last {
            number: u64::MAX,
            file: Weak::new(),
            uses: 0,
        })
    };
}

/// A use of the list in so many uses of a descriptor is enough to keep it from being the oldest.
const USES: u32 = 64;

struct Last {
    number: u64,
    file: Weak<HeldFile>,
    uses: u32,
}

impl Last {
    /// The descriptor with this number, if it is this one and still open.
    fn again(&mut self, number: u64) -> Option<Arc<HeldFile>> {
        if self.number != number || self.uses == USES {
            return None;
        }
        self.uses += 1;
        self.file.upgrade()
    }
}

/// The place of a descriptor in the list of open ones. The descriptor is closed when others are used more, and when
/// this is dropped.
#[derive(Debug)]
pub struct Handle(u64);

impl Handle {
    /// A place without a descriptor.
    pub fn empty() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Handle(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The descriptor, if it is open. It becomes the most recently used one, as far as the list is told.
    pub fn get(&self) -> Option<Arc<HeldFile>> {
        let last = LAST.try_with(|last| last.borrow_mut().again(self.0));
        if let Some(open) = last.ok().flatten() {
            return Some(open);
        }
        let open = OPEN.get(&self.0)?;
        let last = Last {
            number: self.0,
            file: Arc::downgrade(&open),
            uses: 0,
        };
        // A thread that ends has none.
        let _ = LAST.try_with(|place| place.replace(last));
        Some(open)
    }

    /// Keeps a descriptor open.
    pub fn keep(&self, file: Arc<HeldFile>) -> Arc<HeldFile> {
        OPEN.insert(self.0, Arc::clone(&file), 1);
        file
    }

    /// Closes the descriptor. Work that has it goes on.
    pub fn close(&self) {
        OPEN.remove(&self.0);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
