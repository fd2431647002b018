//! Counts of bytes read from log files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use h5logfs_common::stats::Stats;

/// Bytes read from one file. They count for the file itself and, if there are any, in the statistics of the daemon.
#[derive(Debug, Default)]
pub(super) struct ReadCounter {
    bytes: AtomicU64,
    stats: Option<Arc<Stats>>,
}

impl ReadCounter {
    /// A counter that adds to `stats` as well.
    pub fn with_stats(stats: Arc<Stats>) -> Self {
        ReadCounter {
            bytes: AtomicU64::new(0),
            stats: Some(stats),
        }
    }

    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(stats) = &self.stats {
            stats.log_bytes.add(bytes as u64);
        }
    }

    /// Bytes read so far, by all threads.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
