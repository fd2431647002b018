//! The memory budget of the process, and what it is spent on: chunks, inflated records, indexes,
//! record tables, views. What has to go first is decided across all of them.
//!
//! `quick_cache` rather than a locked `lru`: it weighs entries in bytes, a scan through one large
//! dataset does not drive out what others use again and again, and of several threads that miss the
//! same entry one makes it while the others wait, which is just what eight pieces of a chunk need.

use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::View;
use crate::index::DatasetIndex;
use crate::log::RecordTable;

/// One state of one log file; never used twice in a process.
pub type Generation = u64;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    View(Generation),
    Table(Generation),
    Index(Generation, u32),
    /// Stored bytes of a chunk.
    Chunk(Generation, u32, u64),
    /// Decoded bytes of a record, by source file and offset.
    Record(Generation, u16, u64),
}

#[derive(Debug, Clone)]
enum Value {
    View(Arc<View>),
    Table(Arc<dyn RecordTable>),
    Index(Arc<DatasetIndex>),
    Bytes(Arc<[u8]>),
}

/// Bytes that an entry is charged besides its value.
const OVERHEAD: u64 = 128;

#[derive(Debug, Clone)]
struct Weights;

impl Weighter<Key, Value> for Weights {
    fn weight(&self, _: &Key, value: &Value) -> u64 {
        let bytes = match value {
            Value::View(view) => view.weight(),
            Value::Table(table) => table.bytes() as u64,
            Value::Index(index) => index.bytes() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
        };
        bytes + OVERHEAD
    }
}

/// Shared by all views of a process.
#[derive(Debug)]
pub struct Budget {
    cache: Cache<Key, Value, Weights>,
    bytes: u64,
}

/// Entries that the cache makes room for at the start; it grows.
const ESTIMATED_ENTRIES: usize = 1024;

impl Budget {
    /// `bytes`: the most that all entries together may hold.
    pub fn new(bytes: u64) -> Self {
        // One shard: with more of them each would have its share only, and a large chunk fit into none.
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(ESTIMATED_ENTRIES)
            .weight_capacity(bytes)
            .build();
        let cache = match options {
            Ok(options) => Cache::with_options(
                options,
                Weights,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            Err(_) => Cache::with_weighter(ESTIMATED_ENTRIES, bytes, Weights),
        };
        Budget { cache, bytes }
    }

    /// The whole budget in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in use now.
    pub fn used(&self) -> u64 {
        self.cache.weight()
    }

    pub fn view(&self, generation: Generation) -> Option<Arc<View>> {
        match self.cache.get(&Key::View(generation)) {
            Some(Value::View(view)) => Some(view),
            _ => None,
        }
    }

    pub fn keep_view(&self, generation: Generation, view: &Arc<View>) {
        let value = Value::View(Arc::clone(view));
        self.cache.insert(Key::View(generation), value);
    }

    pub fn drop_view(&self, generation: Generation) {
        self.cache.remove(&Key::View(generation));
    }

    pub(super) fn table<E>(
        &self,
        generation: Generation,
        make: impl FnOnce() -> Result<Arc<dyn RecordTable>, E>,
    ) -> Result<Arc<dyn RecordTable>, E> {
        self.get(Key::Table(generation), Value::Table, Value::table, make)
    }

    pub(super) fn index<E>(
        &self,
        generation: Generation,
        dataset: u32,
        make: impl FnOnce() -> Result<Arc<DatasetIndex>, E>,
    ) -> Result<Arc<DatasetIndex>, E> {
        let key = Key::Index(generation, dataset);
        self.get(key, Value::Index, Value::index, make)
    }

    pub(super) fn chunk<E>(
        &self,
        generation: Generation,
        dataset: u32,
        chunk: u64,
        make: impl FnOnce() -> Result<Arc<[u8]>, E>,
    ) -> Result<Arc<[u8]>, E> {
        let key = Key::Chunk(generation, dataset, chunk);
        self.get(key, Value::Bytes, Value::bytes, make)
    }

    pub(super) fn record<E>(
        &self,
        generation: Generation,
        source: u16,
        offset: u64,
        make: impl FnOnce() -> Result<Arc<[u8]>, E>,
    ) -> Result<Arc<[u8]>, E> {
        let key = Key::Record(generation, source, offset);
        self.get(key, Value::Bytes, Value::bytes, make)
    }

    /// The entry, made by one thread while others that want it wait.
    fn get<T, E>(
        &self,
        key: Key,
        wrap: impl FnOnce(T) -> Value,
        unwrap: impl FnOnce(Value) -> Option<T>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let value = self.cache.get_or_insert_with(&key, || make().map(wrap))?;
        match unwrap(value) {
            Some(found) => Ok(found),
            None => unreachable!("the kind of a key is the kind of its value"),
        }
    }
}

impl Value {
    fn table(self) -> Option<Arc<dyn RecordTable>> {
        match self {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
    fn index(self) -> Option<Arc<DatasetIndex>> {
        match self {
            Value::Index(index) => Some(index),
            _ => None,
        }
    }
    fn bytes(self) -> Option<Arc<[u8]>> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}
