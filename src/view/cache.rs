//! The memory budget of the process, and what it is spent on.
//!
//! Half of it is for bytes: chunks, and records that had to be decoded. The other half is for what
//! leads to bytes: views, record tables, indexes. A reader that goes once through a large dataset
//! fills the first half, and must not make the daemon forget what it knows of every file.
//!
//! `quick_cache` rather than a locked `lru`: it weighs entries in bytes, what is used again and again
//! outlives what passes by once, and of several threads that miss the same entry one makes it while
//! the others wait, which is just what the eight pieces of a chunk need that a kernel asks for at once.

use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::View;
use crate::index::DatasetIndex;
use crate::log::RecordTable;

/// One state of one log file; never used twice in a process.
pub type Generation = u64;

/// Bytes that several readers share; a vector, so that making them shared copies nothing.
pub type Bytes = Arc<Vec<u8>>;

/// Names bytes that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum BytesKey {
    /// Stored bytes of a chunk: dataset, number in its grid.
    Chunk(Generation, u32, u64),
    /// Decoded bytes of a record: source file, offset.
    Record(Generation, u16, u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LeadKey {
    View(Generation),
    Table(Generation),
    Index(Generation, u32),
}

#[derive(Debug, Clone)]
enum Lead {
    View(Arc<View>),
    Table(Arc<dyn RecordTable>),
    Index(Arc<DatasetIndex>),
}

/// Bytes that an entry is charged besides its value.
const OVERHEAD: u64 = 128;

#[derive(Debug, Clone)]
struct Weights;

impl Weighter<LeadKey, Lead> for Weights {
    fn weight(&self, _: &LeadKey, lead: &Lead) -> u64 {
        OVERHEAD
            + match lead {
                Lead::View(view) => view.weight,
                Lead::Table(table) => table.bytes() as u64,
                Lead::Index(index) => index.bytes() as u64,
            }
    }
}

impl Weighter<BytesKey, Bytes> for Weights {
    fn weight(&self, _: &BytesKey, bytes: &Bytes) -> u64 {
        OVERHEAD + bytes.len() as u64
    }
}

/// Shared by all views of a process.
#[derive(Debug)]
pub struct Budget {
    leads: Cache<LeadKey, Lead, Weights>,
    bytes: Cache<BytesKey, Bytes, Weights>,
    half: u64,
}

impl Budget {
    /// `size`: the most bytes that all entries together may hold.
    pub fn new(size: u64) -> Self {
        let half = size / 2;
        Budget {
            leads: cache(half),
            bytes: cache(half),
            half,
        }
    }

    /// The most that a chunk or a record may take.
    pub fn largest(&self) -> u64 {
        self.half
    }

    /// Bytes in use now.
    pub fn used(&self) -> u64 {
        self.leads.weight() + self.bytes.weight()
    }

    pub fn view(&self, generation: Generation) -> Option<Arc<View>> {
        match self.leads.get(&LeadKey::View(generation)) {
            Some(Lead::View(view)) => Some(view),
            _ => None,
        }
    }

    pub fn drop_view(&self, generation: Generation) {
        self.leads.remove(&LeadKey::View(generation));
    }

    pub fn keep_view(&self, view: &Arc<View>) {
        let key = LeadKey::View(view.generation());
        self.leads.insert(key, Lead::View(Arc::clone(view)));
    }

    /// The record tables of a log, made by one thread while others that want them wait.
    pub(super) fn table<E>(
        &self,
        generation: Generation,
        make: impl FnOnce() -> Result<Arc<dyn RecordTable>, E>,
    ) -> Result<Arc<dyn RecordTable>, E> {
        let key = LeadKey::Table(generation);
        match self
            .leads
            .get_or_insert_with(&key, || make().map(Lead::Table))?
        {
            Lead::Table(table) => Ok(table),
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
        let key = LeadKey::Index(generation, dataset);
        match self
            .leads
            .get_or_insert_with(&key, || make().map(Lead::Index))?
        {
            Lead::Index(index) => Ok(index),
            _ => unreachable!("under the key of an index lies an index"),
        }
    }

    /// Bytes of a chunk or a record, likewise.
    pub(super) fn bytes<E>(
        &self,
        key: BytesKey,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        self.bytes.get_or_insert_with(&key, make)
    }
}

/// A cache that holds entries of `bytes` bytes together.
fn cache<K: Eq + Hash + Clone, V: Clone>(bytes: u64) -> Cache<K, V, Weights>
where
    Weights: Weighter<K, V>,
{
    /// It makes room for more when they come.
    const ENTRIES: usize = 1024;
    // One shard: of several each would have its share only, and a large chunk would fit into none.
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(ENTRIES)
        .weight_capacity(bytes)
        .build();
    match options {
        Ok(options) => Cache::with_options(
            options,
            Weights,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ),
        Err(_) => Cache::with_weighter(ENTRIES, bytes, Weights),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn bytes(len: usize) -> Bytes {
        Arc::new(vec![7; len])
    }

    #[test]
    fn one_thread_makes_a_missing_entry_and_the_others_wait() {
        let budget = Budget::new(1 << 20);
        let made = AtomicUsize::new(0);
        let start = Barrier::new(8);
        let make = || {
            made.fetch_add(1, Ordering::SeqCst);
            // Give the others time to come and ask.
            std::thread::sleep(std::time::Duration::from_millis(50));
            Ok::<_, ()>(bytes(1000))
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let got = budget.bytes(BytesKey::Chunk(1, 0, 0), make);
                    assert_eq!(got.unwrap().len(), 1000);
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let budget = Budget::new(1 << 20);
        let key = || BytesKey::Record(1, 0, 0);
        assert_eq!(budget.bytes(key(), || Err("torn")), Err("torn"));
        assert_eq!(budget.bytes(key(), || Ok::<_, ()>(bytes(3))), Ok(bytes(3)));
    }

    #[test]
    fn no_more_is_kept_than_the_budget_allows() {
        let budget = Budget::new(1 << 20);
        for chunk in 0..1000 {
            let made = budget.bytes(BytesKey::Chunk(1, 0, chunk), || Ok::<_, ()>(bytes(10_000)));
            assert_eq!(made.unwrap().len(), 10_000);
            assert!(budget.used() <= 1 << 20);
        }
        // What does not fit at all is made each time, and kept never.
        let large = budget.bytes(BytesKey::Chunk(2, 0, 0), || Ok::<_, ()>(bytes(1 << 20)));
        assert_eq!(large.unwrap().len(), 1 << 20);
        assert!(budget.used() <= 1 << 20);
    }
}
