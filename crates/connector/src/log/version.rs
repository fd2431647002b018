//! What was flushed in this process: a number that grows with each flush that wrote something.

use std::sync::atomic::{AtomicU64, Ordering};

static VERSION: AtomicU64 = AtomicU64::new(0);

/// That number.
pub fn present() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// A log was flushed or closed.
pub fn grow() {
    VERSION.fetch_add(1, Ordering::AcqRel);
}
