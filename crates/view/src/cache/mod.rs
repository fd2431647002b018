//! The memory budget of the process, and its uses.
//!
//! The budget has two limits. `cache_size` is for bytes: chunks, and records that had to be decoded. `index_memory` is
//! for what finds bytes: views, record tables, indexes. A reader that goes once through a large dataset fills the
//! first, and must not make the daemon forget what it knows of every file.
//!
//! Together the limits are the [`Memory`] from which work in progress takes its share. Where a decoder or the assembly
//! of a chunk needs more than is free, cached values make room, chunks first.

pub(super) mod kept;
pub(super) mod lru;
pub(super) mod scratch;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::View;
use super::grid::ChunkId;
use super::plan::{GatherPlan, PlanKey};
use super::readahead::Pool;
use crate::index::DatasetIndex;
use crate::index::saved::Strip;
use h5logfs_common::fault::{Fault, Stop};
use h5logfs_common::memory::{Evict, Hold, Memory, Reserved};
use h5logfs_common::stats::{Share, Stats, Usage};
use h5logfs_common::task::Task;
use h5logfs_log::RecordTable;
use h5logfs_log::model::StoredBytes;
use h5logfs_log::scan::settings::INDEX_MEMORY;
use kept::KeptChunks;
pub use lru::Counts;
use lru::{Cache, OVERHEAD, Weight};
use scratch::Scratch;

/// Number of one state of one log file. No number is used twice in a process.
pub type Generation = u64;

/// Bytes that several readers share, with the memory that was reserved for them.
pub type Bytes = Arc<Reserved<Vec<u8>>>;

/// Limits of memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes for chunks and decoded records.
    pub cache_size: u64,
    /// Bytes for the metadata of log files, their record tables and indexes.
    pub index_memory: u64,
}

impl MemoryLimits {
    /// Two limits of `bytes` each.
    pub fn each(bytes: u64) -> Self {
        MemoryLimits {
            cache_size: bytes,
            index_memory: bytes,
        }
    }
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits::each(INDEX_MEMORY)
    }
}

/// Key of kept bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum BytesKey {
    /// Stored bytes of a chunk.
    Chunk(Generation, ChunkId),
    /// Decoded bytes of a record of a dataset. The stored form and the number of decoded bytes belong to the key,
    /// because a damaged log may have several records in one place.
    Record(Generation, u32, StoredBytes, u64),
}

/// A part of a view that is made at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The index of a dataset, or of a strip of it.
    Index(Generation, usize, Option<Strip>),
    /// A chunk.
    Chunk(Generation, ChunkId),
}

/// Time for which the budget remembers that a part takes longer than a request may. Otherwise each reader that waits
/// for the part would take as long, and so would each page that the kernel asks for again.
const TOO_LONG: Duration = Duration::from_secs(10);

/// The most such parts that are remembered.
const MOST_TOO_LONG: u64 = 256;

/// The most chunks that are remembered because readers have got them.
const MOST_GIVEN: u64 = 4096;

/// With less room, no chunk need stay in the cache after its first reader.
const ROOM: u64 = 8 << 20;

/// The length of a chunk that a reader has got.
#[derive(Debug, Clone, Copy)]
struct Given(u64);

impl Weight for Given {
    fn weight(&self) -> u64 {
        self.0
    }
}

impl Weight for Instant {
    fn weight(&self) -> u64 {
        0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum IndexKey {
    View(Generation),
    /// The record tables, as the scan has found them (`false`) or after an append (`true`).
    Table(Generation, bool),
    Index(Generation, u32, Option<Strip>),
    Plan(Generation, PlanKey),
}

impl BytesKey {
    fn generation(&self) -> Generation {
        let (BytesKey::Chunk(generation, ..) | BytesKey::Record(generation, ..)) = self;
        *generation
    }
}

impl IndexKey {
    fn generation(&self) -> Generation {
        let (IndexKey::View(generation)
        | IndexKey::Table(generation, _)
        | IndexKey::Index(generation, ..)
        | IndexKey::Plan(generation, _)) = self;
        *generation
    }
}

#[derive(Debug, Clone)]
enum Indexed {
    View(Arc<View>),
    Table(Arc<dyn RecordTable>),
    Index(Arc<DatasetIndex>),
    Plan(Arc<GatherPlan>),
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
            Indexed::Plan(plan) => plan.bytes() as u64,
        }
    }
}

/// The memory that all views of a process share.
#[derive(Debug)]
pub struct Budget {
    memory: Arc<Memory>,
    caches: Arc<Caches>,
    /// Threads for read-ahead. `None` where there may be no threads.
    ahead: Option<Pool>,
    /// The times when parts took longer than a request may.
    too_long: Cache<Part, Instant>,
    /// Chunks that readers have got, as far as the cache could have held them since.
    given: Cache<(Generation, ChunkId), Given>,
    limits: MemoryLimits,
    stats: Arc<Stats>,
}

#[derive(Debug)]
struct Caches {
    indexes: Cache<IndexKey, Indexed>,
    bytes: Cache<BytesKey, Bytes>,
    copies: KeptChunks,
    scratch: Scratch,
}

impl Evict for Caches {
    /// Chunks go before indexes, because they are made faster.
    fn evict_one(&self) -> bool {
        self.scratch.drop_one() || self.evict_bytes() || self.indexes.evict_one()
    }
}

impl Caches {
    /// Drops chunks or a decoded record. Returns whether there was something.
    fn evict_bytes(&self) -> bool {
        self.copies.evict_one() || self.bytes.evict_one()
    }

    /// Bytes of chunks and of decoded records.
    fn bytes_used(&self) -> u64 {
        self.copies.weight() + self.bytes.weight()
    }
}

impl Budget {
    /// An empty budget with these limits.
    pub fn new(limits: MemoryLimits) -> Self {
        let caches = Arc::new(Caches {
            indexes: Cache::new(limits.index_memory),
            bytes: Cache::new(limits.cache_size),
            copies: KeptChunks::default(),
            scratch: Scratch::default(),
        });
        let evict: Weak<dyn Evict> = Arc::<Caches>::downgrade(&caches);
        let all = limits.cache_size.saturating_add(limits.index_memory);
        Budget {
            memory: Memory::new(all, Some(evict)),
            caches,
            ahead: Some(Pool::default()),
            too_long: Cache::new(MOST_TOO_LONG * OVERHEAD),
            given: Cache::new(limits.cache_size),
            limits,
            stats: Arc::default(),
        }
    }

    /// This budget without read-ahead, for hosts that may fork. A thread would not survive a fork.
    pub fn without_threads(self) -> Self {
        Budget {
            ahead: None,
            ..self
        }
    }

    /// Drops everything that is kept for a view.
    pub fn forget(&self, view: Generation) {
        self.forget_all(&HashSet::from([view]));
    }

    /// [`Budget::forget`] for several views. This looks through everything that is kept.
    pub fn forget_all(&self, views: &HashSet<Generation>) {
        let is_meant = |generation| views.contains(&generation);
        self.caches
            .bytes
            .remove_all(|key| is_meant(key.generation()));
        self.caches.copies.remove_all(is_meant);
        self.caches
            .indexes
            .remove_all(|key| is_meant(key.generation()));
    }

    /// Drops values, chunks first, until at most `most` bytes are kept.
    pub fn shrink_to(&self, most: u64) {
        while self.used() > most && self.caches.evict_one() {}
    }

    /// Drops chunks and decoded records until at most `most` bytes of them are kept. Indexes stay.
    pub fn shrink_chunks_to(&self, most: u64) {
        while self.caches.bytes_used() > most && self.caches.evict_bytes() {}
    }

    /// A task that takes its memory from this budget, on behalf of `user` where users share it.
    pub fn task(&self, user: Option<u32>) -> Task {
        Task::new(&self.memory, user)
    }

    /// Counts `bytes` that are reserved already for a user who keeps them in use. `None` where the user's share is
    /// exceeded.
    pub(super) fn hold(&self, user: u32, bytes: u64) -> Option<Hold> {
        self.memory.hold(user, bytes)
    }

    /// The limits of the budget.
    pub fn limits(&self) -> MemoryLimits {
        self.limits
    }

    /// Bytes that are kept now.
    pub fn used(&self) -> u64 {
        self.caches.indexes.weight() + self.caches.bytes_used() + self.caches.scratch.bytes()
    }

    /// Hits and misses of the cache of bytes.
    pub fn counts(&self) -> Counts {
        let counts = self.caches.bytes.counts();
        Counts {
            hits: counts.hits + self.caches.copies.hits(),
            ..counts
        }
    }

    /// Statistics of all who share the budget.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The figures of the budget for a report.
    pub fn usage(&self) -> Usage {
        let counts = self.counts();
        Usage {
            hits: counts.hits,
            misses: counts.misses,
            made_ahead: counts.ahead,
            cache_size: Share {
                used: self.caches.bytes_used(),
                limit: self.limits.cache_size,
            },
            index_memory: Share {
                used: self.caches.indexes.weight(),
                limit: self.limits.index_memory,
            },
            ..Usage::default()
        }
    }

    /// Drops everything that is kept. Open views go on working, and fill the budget again.
    pub fn clear(&self) {
        self.caches.bytes.clear();
        self.caches.copies.remove_all(|_| true);
        self.caches.indexes.clear();
        while self.caches.scratch.drop_one() {}
    }

    /// The cached view of this generation; `None` where it was evicted or dropped.
    pub fn view(&self, generation: Generation) -> Option<Arc<View>> {
        match self.caches.indexes.get(&IndexKey::View(generation)) {
            Some(Indexed::View(view)) => Some(view),
            _ => None,
        }
    }

    /// Removes a view from the cache. Views that are in use stay open.
    pub fn drop_view(&self, generation: Generation) {
        self.caches.indexes.remove(&IndexKey::View(generation));
    }

    /// Drops everything that is kept for deleted logs that nobody has open. The space of a file is not free as long as
    /// a view of it is here. Asks no file server.
    pub fn forget_deleted(&self) {
        let is_idle = |view: &Arc<View>| {
            // The cache holds one reference, and this list another.
            Arc::strong_count(view) <= 2 && view.is_deleted()
        };
        let mut deleted = HashSet::new();
        for value in self.caches.indexes.values() {
            if let Indexed::View(view) = value
                && is_idle(&view)
            {
                deleted.insert(view.generation());
            }
        }
        if !deleted.is_empty() {
            self.forget_all(&deleted);
        }
    }

    /// Puts a view into the cache.
    pub fn keep_view(&self, view: &Arc<View>) {
        let key = IndexKey::View(view.generation());
        self.caches
            .indexes
            .insert(key, Indexed::View(Arc::clone(view)));
    }

    /// The record tables of a log. One thread makes them while others that want them wait. `is_moved`: an append to the
    /// log has left them in another place.
    pub(super) fn table<E>(
        &self,
        task: &Task,
        (generation, is_moved): (Generation, bool),
        make: impl FnOnce() -> Result<Arc<dyn RecordTable>, E>,
    ) -> Result<Arc<dyn RecordTable>, E> {
        let key = IndexKey::Table(generation, is_moved);
        match self
            .caches
            .indexes
            .get_or_make(task, &key, || make().map(Indexed::Table))?
        {
            Indexed::Table(table) => Ok(table),
            _ => unreachable!("under the key of a table lies a table"),
        }
    }

    /// The index of a dataset, or of a strip of it. One thread makes it while others that want it wait.
    pub(super) fn index<E>(
        &self,
        task: &Task,
        generation: Generation,
        (dataset, strip): (u32, Option<Strip>),
        make: impl FnOnce() -> Result<Arc<DatasetIndex>, E>,
    ) -> Result<Arc<DatasetIndex>, E> {
        let key = IndexKey::Index(generation, dataset, strip);
        match self
            .caches
            .indexes
            .get_or_make(task, &key, || make().map(Indexed::Index))?
        {
            Indexed::Index(index) => Ok(index),
            _ => unreachable!("under the key of an index lies an index"),
        }
    }

    /// The index of a whole dataset. `None` where it is not in memory.
    pub(super) fn known_index(
        &self,
        generation: Generation,
        dataset: u32,
    ) -> Option<Arc<DatasetIndex>> {
        match self
            .caches
            .indexes
            .get(&IndexKey::Index(generation, dataset, None))
        {
            Some(Indexed::Index(index)) => Some(index),
            _ => None,
        }
    }

    /// The plan of chunks that are made up in one way. One thread makes it while others that want it wait. `None` where
    /// there can be none.
    pub(super) fn plan(
        &self,
        task: &Task,
        generation: Generation,
        key: &PlanKey,
        make: impl FnOnce() -> Result<Option<GatherPlan>, Fault>,
    ) -> Result<Option<Arc<GatherPlan>>, Fault> {
        let key = IndexKey::Plan(generation, Arc::clone(key));
        let make = || match make() {
            Ok(Some(plan)) => Ok(Indexed::Plan(Arc::new(plan))),
            Ok(None) => Err(None),
            Err(reason) => Err(Some(reason)),
        };
        match self.caches.indexes.get_or_make(task, &key, make) {
            Ok(Indexed::Plan(plan)) => Ok(Some(plan)),
            Ok(_) => unreachable!("under the key of a plan lies a plan"),
            Err(None) => Ok(None),
            Err(Some(reason)) => Err(reason),
        }
    }

    /// The cache of stored bytes of chunks, and of decoded records.
    pub(super) fn bytes(&self) -> &Cache<BytesKey, Bytes> {
        &self.caches.bytes
    }

    /// Memory for bytes that are read before they move.
    pub(super) fn scratch(&self) -> &Scratch {
        &self.caches.scratch
    }

    /// Fails if the part took longer than a request may, a moment ago.
    pub(super) fn check_not_too_long(&self, part: Part) -> Result<(), Fault> {
        match self.too_long.get(&part) {
            Some(when) if when.elapsed() < TOO_LONG => Err(Stop::DeadlineBefore.into()),
            _ => Ok(()),
        }
    }

    /// Remembers that `task` had no time left for `part`, if so. Call this after each attempt to make `part`.
    pub(super) fn remember_if_too_long(&self, task: &Task, part: Part) {
        if task.stopped() == Some(Stop::Deadline) {
            self.too_long.insert(part, Instant::now());
        }
    }

    /// Remembers that a reader gets a chunk of `bytes` bytes. Returns whether no reader has got it before, as far as the cache
    /// could have held everything that readers got since then.
    pub(super) fn remember_given(&self, chunk: (Generation, ChunkId), bytes: u64) -> bool {
        let bytes = bytes.max(self.limits.cache_size / MOST_GIVEN);
        self.given.insert(chunk, Given(bytes))
    }

    /// Whether a chunk is remembered by [`Budget::remember_given`].
    pub(super) fn was_given(&self, chunk: &(Generation, ChunkId)) -> bool {
        self.given.contains(chunk)
    }

    /// Copies of chunks that readers got in their own memory.
    pub(super) fn copies(&self) -> &KeptChunks {
        &self.caches.copies
    }

    /// Whether more chunks fit into the cache.
    pub(super) fn has_room_for_chunks(&self) -> bool {
        self.caches.bytes_used() + ROOM < self.limits.cache_size
    }

    /// Drops copies so that `more` bytes fit beside them.
    pub(super) fn drop_copies_for(&self, more: u64) {
        let others = self.caches.bytes.weight().saturating_add(more);
        let most = self.limits.cache_size.saturating_sub(others);
        self.caches.copies.shrink_to(most);
    }

    /// Keeps a copy of a chunk that a reader got in its own memory, if there is room. The cache need not drop anything for it,
    /// because a reader may go on to as many other chunks. Returns whether the copy is kept.
    pub(super) fn keep_copy(&self, chunk: (Generation, ChunkId), bytes: &[u8]) -> bool {
        let others = self.caches.bytes.weight();
        let room = self.limits.cache_size.saturating_sub(others);
        let task = self.task(None);
        self.caches.copies.keep(&task, chunk, bytes, room)
    }

    /// The threads that make chunks ahead of their readers.
    pub(super) fn ahead(&self) -> Option<&Pool> {
        self.ahead.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Bytes {
        Arc::new(Reserved::new(vec![7; len], Task::unlimited().reservation()))
    }

    #[test]
    fn no_more_is_kept_than_the_budget_allows() {
        let limits = MemoryLimits {
            cache_size: 1 << 20,
            index_memory: 1 << 10,
        };
        let budget = Budget::new(limits);
        for chunk in 0..1000 {
            let key = BytesKey::Chunk(1, ChunkId::new(0, chunk));
            let made = budget
                .bytes()
                .get_or_make(&Task::unlimited(), &key, || Ok::<_, ()>(bytes(10_000)));
            assert_eq!(made.unwrap().len(), 10_000);
            assert!(budget.used() <= limits.cache_size);
        }
        assert!(budget.used() > limits.cache_size - 20_000);
        // A value that does not fit at all is made each time, and never kept.
        for misses in 1001..1003 {
            let key = BytesKey::Chunk(2, ChunkId::new(0, 0));
            let large = budget
                .bytes()
                .get_or_make(&Task::unlimited(), &key, || Ok::<_, ()>(bytes(1 << 20)));
            assert_eq!(large.unwrap().len(), 1 << 20);
            assert!(budget.used() <= limits.cache_size);
            assert_eq!(budget.counts().misses, misses);
        }
    }

    #[test]
    fn what_is_kept_for_one_view_is_forgotten_alone() {
        let budget = Budget::new(MemoryLimits::each(1 << 20)).without_threads();
        let keys = [1, 2].map(|view| BytesKey::Chunk(view, ChunkId::new(0, 0)));
        for key in &keys {
            let made = budget
                .bytes()
                .get_or_make(&Task::unlimited(), key, || Ok::<_, ()>(bytes(1000)));
            assert_eq!(made.unwrap().len(), 1000);
        }
        let both = budget.used();
        budget.shrink_to(both);
        assert_eq!(budget.used(), both);
        budget.forget(1);
        assert_eq!(budget.used(), both / 2);
        assert!(!budget.bytes().contains(&keys[0]) && budget.bytes().contains(&keys[1]));
        budget.shrink_to(both / 2 - 1);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_was_let_go_is_made_again() {
        let budget = Budget::new(MemoryLimits::each(1 << 20));
        let key = BytesKey::Chunk(1, ChunkId::new(0, 0));
        for misses in 1..3 {
            let made = budget
                .bytes()
                .get_or_make(&Task::unlimited(), &key, || Ok::<_, ()>(bytes(1000)));
            assert_eq!(made.unwrap().len(), 1000);
            assert_eq!(budget.counts().misses, misses);
            assert!(budget.usage().cache_size.used > 1000);
            budget.clear();
            assert_eq!(budget.used(), 0);
        }
    }
}
