//! The version of this process's logs: a number that grows with each flush that wrote something.

use std::sync::atomic::{AtomicU64, Ordering};

static VERSION: AtomicU64 = AtomicU64::new(0);

/// The present version.
pub fn present() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// Counts a flush or a close.
pub fn grow() {
    VERSION.fetch_add(1, Ordering::AcqRel);
}
