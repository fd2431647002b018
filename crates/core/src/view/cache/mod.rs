//! The memory budget of the process, and what it is spent on.
//!
//! It has two limits. `cache_size` is for bytes: chunks, and records that had to be decoded.
//! `index_memory` is for what finds bytes: views, record tables, indexes. A reader that goes once
//! through a large dataset fills the first, and must not make the daemon forget what it knows of every
//! file.

mod lru;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::View;
use super::readahead::Pool;
use crate::index::DatasetIndex;
use crate::log::RecordTable;
use crate::log::model::StoredBytes;
use crate::stats::{Share, Stats, Usage};
pub use lru::Counts;
use lru::{Cache, Weight};

/// One state of one log file; never used twice in a process.
pub type Generation = u64;

/// Bytes that several readers share; a vector, so that making them shared copies nothing.
pub type Bytes = Arc<Vec<u8>>;

/// How much memory may be used, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// For chunks and decoded records.
    pub cache_size: u64,
    /// For the metadata of log files, their record tables and indexes.
    pub index_memory: u64,
}

impl MemoryLimits {
    /// `bytes` for each of the two.
    pub fn each(bytes: u64) -> Self {
        MemoryLimits {
            cache_size: bytes,
            index_memory: bytes,
        }
    }
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits::each(256 << 20)
    }
}

/// Names bytes that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum BytesKey {
    /// Stored bytes of a chunk: dataset, number in its grid.
    Chunk(Generation, u32, u64),
    /// Decoded bytes of a record of a dataset: how it is stored, and how many bytes come of it. A damaged
    /// log may have several records in one place.
    Record(Generation, u32, StoredBytes, u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum IndexKey {
    View(Generation),
    Table(Generation),
    Index(Generation, u32),
}

#[derive(Debug, Clone)]
enum Indexed {
    View(Arc<View>),
    Table(Arc<dyn RecordTable>),
    Index(Arc<DatasetIndex>),
}

impl Weight for Bytes {
    fn weight(&self) -> u64 {
        self.len() as u64
    }
}

impl Weight for Indexed {
    fn weight(&self) -> u64 {
        match self {
            Indexed::View(view) => view.weight,
            Indexed::Table(table) => table.bytes() as u64,
            Indexed::Index(index) => index.bytes() as u64,
        }
    }
}

/// Shared by all views of a process.
#[derive(Debug)]
pub struct Budget {
    /// Bytes of the metadata of all views that are there, kept or not.
    views: AtomicU64,
    index_cache: Cache<IndexKey, Indexed>,
    bytes: Cache<BytesKey, Bytes>,
    ahead: Pool,
    limits: MemoryLimits,
    stats: Arc<Stats>,
}

impl Budget {
    /// An empty cache with these limits.
    pub fn new(limits: MemoryLimits) -> Self {
        Budget {
            views: AtomicU64::new(0),
            index_cache: Cache::new(limits.index_memory),
            bytes: Cache::new(limits.cache_size),
            ahead: Pool::default(),
            limits,
            stats: Arc::default(),
        }
    }

    /// The limits that it was made with.
    pub fn limits(&self) -> MemoryLimits {
        self.limits
    }

    /// Bytes in use now.
    pub fn used(&self) -> u64 {
        self.index_cache.weight() + self.bytes.weight()
    }

    /// What was asked of the cache of bytes.
    pub fn counts(&self) -> Counts {
        self.bytes.counts()
    }

    /// Where all who share the budget count.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// What a report says of the budget.
    pub fn usage(&self) -> Usage {
        let counts = self.counts();
        Usage {
            hits: counts.hits,
            misses: counts.misses,
            made_ahead: counts.ahead,
            cache_size: Share {
                used: self.bytes.weight(),
                limit: self.limits.cache_size,
            },
            index_memory: Share {
                used: self.index_cache.weight(),
                limit: self.limits.index_memory,
            },
            ..Usage::default()
        }
    }

    /// Lets go of all that it keeps. Views that are open go on working, and fill it again.
    pub fn clear(&self) {
        self.bytes.clear();
        self.index_cache.clear();
    }

    /// Reserves memory for the `bytes` of metadata of a view, until the reservation is dropped. Views that are
    /// in use cannot be dropped, so they have a limit of their own: twice `index_memory`. `None` where that is
    /// exceeded.
    pub(super) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let reservation = Reservation {
            budget: Arc::clone(self),
            bytes,
        };
        let all = self.views.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (all <= self.limits.index_memory.saturating_mul(2)).then_some(reservation)
    }

    /// The cached view of this generation; `None` where it was evicted or dropped.
    pub fn view(&self, generation: Generation) -> Option<Arc<View>> {
        match self.index_cache.get(&IndexKey::View(generation)) {
            Some(Indexed::View(view)) => Some(view),
            _ => None,
        }
    }

    /// Removes a view from the cache. Views that are in use stay open.
    pub fn drop_view(&self, generation: Generation) {
        self.index_cache.remove(&IndexKey::View(generation));
    }

    /// Puts a view into the cache.
    pub fn keep_view(&self, view: &Arc<View>) {
        let key = IndexKey::View(view.generation());
        self.index_cache
            .insert(key, Indexed::View(Arc::clone(view)));
    }

    /// The record tables of a log, made by one thread while others that want them wait.
    pub(super) fn table<E>(
        &self,
        generation: Generation,
        make: impl FnOnce() -> Result<Arc<dyn RecordTable>, E>,
    ) -> Result<Arc<dyn RecordTable>, E> {
        let key = IndexKey::Table(generation);
        match self
            .index_cache
            .get_or_make(&key, || make().map(Indexed::Table))?
        {
            Indexed::Table(table) => Ok(table),
            _ => unreachable!("under the key of a table lies a table"),
        }
    }

    /// The index of a dataset, likewise.
    pub(super) fn index<E>(
        &self,
        generation: Generation,
        dataset: u32,
        make: impl FnOnce() -> Result<Arc<DatasetIndex>, E>,
    ) -> Result<Arc<DatasetIndex>, E> {
        let key = IndexKey::Index(generation, dataset);
        match self
            .index_cache
            .get_or_make(&key, || make().map(Indexed::Index))?
        {
            Indexed::Index(index) => Ok(index),
            _ => unreachable!("under the key of an index lies an index"),
        }
    }

    /// Stored bytes of chunks, and decoded records.
    pub(super) fn bytes(&self) -> &Cache<BytesKey, Bytes> {
        &self.bytes
    }

    /// The threads that make chunks ahead of their readers.
    pub(super) fn ahead(&self) -> &Pool {
        &self.ahead
    }
}

/// Memory that a view takes while it is open.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.views.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_that_are_open_have_a_limit() {
        let budget = Arc::new(Budget::new(MemoryLimits::each(1000)));
        let first = budget.reserve(1000);
        let second = budget.reserve(900).unwrap();
        assert!(first.is_some() && budget.reserve(101).is_none());
        drop(second);
        assert!(budget.reserve(1000).is_some());
        drop(first);
        assert_eq!(budget.views.load(Ordering::Relaxed), 0);
    }

    fn bytes(len: usize) -> Bytes {
        Arc::new(vec![7; len])
    }

    #[test]
    fn no_more_is_kept_than_the_budget_allows() {
        let limits = MemoryLimits {
            cache_size: 1 << 20,
            index_memory: 1 << 10,
        };
        let budget = Budget::new(limits);
        for chunk in 0..1000 {
            let key = BytesKey::Chunk(1, 0, chunk);
            let made = budget
                .bytes
                .get_or_make(&key, || Ok::<_, ()>(bytes(10_000)));
            assert_eq!(made.unwrap().len(), 10_000);
            assert!(budget.used() <= limits.cache_size);
        }
        assert!(budget.used() > limits.cache_size - 20_000);
        // What does not fit at all is made each time, and kept never.
        for misses in 1001..1003 {
            let key = BytesKey::Chunk(2, 0, 0);
            let large = budget
                .bytes
                .get_or_make(&key, || Ok::<_, ()>(bytes(1 << 20)));
            assert_eq!(large.unwrap().len(), 1 << 20);
            assert!(budget.used() <= limits.cache_size);
            assert_eq!(budget.counts().misses, misses);
        }
    }

    #[test]
    fn what_was_let_go_is_made_again() {
        let budget = Budget::new(MemoryLimits::each(1 << 20));
        let key = BytesKey::Chunk(1, 0, 0);
        for misses in 1..3 {
            let made = budget.bytes.get_or_make(&key, || Ok::<_, ()>(bytes(1000)));
            assert_eq!(made.unwrap().len(), 1000);
            assert_eq!(budget.counts().misses, misses);
            assert!(budget.usage().cache_size.used > 1000);
            budget.clear();
            assert_eq!(budget.used(), 0);
        }
    }
}
