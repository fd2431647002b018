//! Entries in an order, and what they weigh together.

use std::hash::Hash;

use lru::LruCache;

/// Bytes that an entry is charged besides its own: its places in the queues, its head, the allocator's
/// share. Keys of entries that have left are remembered for a while, which is counted in, too.
pub(super) const OVERHEAD: u64 = 768;

/// Entries from the oldest to the youngest. Each weighs its size and [`OVERHEAD`].
#[derive(Debug)]
pub(super) struct Queue<K: Hash + Eq, T> {
    /// Size and value.
    entries: LruCache<K, (u64, T)>,
    weight: u64,
}

impl<K: Hash + Eq, T> Queue<K, T> {
    pub fn new() -> Self {
        Queue {
            entries: LruCache::unbounded(),
            weight: 0,
        }
    }

    /// Bytes of all entries together.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains(key)
    }

    /// Adds an entry as the youngest, in the place of one that has the same key.
    pub fn put(&mut self, key: K, size: u64, value: T) {
        self.weight = self.weight.saturating_add(weight(size));
        if let Some((old, _)) = self.entries.put(key, (size, value)) {
            self.weight -= weight(old);
        }
    }

    /// The value of an entry, which becomes the youngest.
    pub fn touch(&mut self, key: &K) -> Option<&mut T> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    /// The value of an entry, which stays in its place.
    pub fn peek_mut(&mut self, key: &K) -> Option<&mut T> {
        self.entries.peek_mut(key).map(|(_, value)| value)
    }

    pub fn oldest(&self) -> Option<&T> {
        self.entries.peek_lru().map(|(_, (_, value))| value)
    }

    pub fn take(&mut self, key: &K) -> Option<(u64, T)> {
        let entry = self.entries.pop(key)?;
        self.weight -= weight(entry.0);
        Some(entry)
    }

    /// Key, size and value of the oldest entry, which leaves.
    pub fn take_oldest(&mut self) -> Option<(K, u64, T)> {
        let (key, (size, value)) = self.entries.pop_lru()?;
        self.weight -= weight(size);
        Some((key, size, value))
    }
}

/// What an entry of `size` bytes weighs.
pub(super) fn weight(size: u64) -> u64 {
    size.saturating_add(OVERHEAD)
}
