//! A bounded cache. It drops the least recently used value first.

use std::borrow::Borrow;
use std::hash::Hash;

use lru::LruCache;

use crate::sync::Mutex;

/// Values by key, each with a weight. Threads share the cache; none waits while a value is made or freed.
#[derive(Debug)]
pub struct Lru<K: Hash + Eq, V> {
    /// Largest total weight.
    capacity: u64,
    table: Mutex<Table<K, V>>,
}

#[derive(Debug)]
struct Table<K: Hash + Eq, V> {
    /// Values with their weights.
    values: LruCache<K, (u64, V)>,
    weight: u64,
    /// Number of look-ups that found a value.
    hits: u64,
}

impl<K: Hash + Eq, V> Table<K, V> {
    fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (weight, value) = self.values.pop(key)?;
        self.weight -= weight;
        Some(value)
    }
}

impl<K: Hash + Eq, V: Clone> Lru<K, V> {
    /// An empty cache. The weights of its values may sum to `capacity`.
    pub fn new(capacity: u64) -> Self {
        Lru {
            capacity,
            // The table grows as it fills.
            table: Mutex::new(Table {
                values: LruCache::unbounded(),
                weight: 0,
                hits: 0,
            }),
        }
    }

    /// The value of `key`, which becomes the most recently used.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let table = &mut *self.table.lock();
        let (_, value) = table.values.get(key)?;
        table.hits += 1;
        Some(value.clone())
    }

    /// Number of calls of [`Lru::get`] that found a value.
    pub fn hits(&self) -> u64 {
        self.table.lock().hits
    }

    /// The sum of the weights of all values.
    pub fn weight(&self) -> u64 {
        self.table.lock().weight
    }

    /// Whether the cache has a value for this key. The call does not count as a use of the value.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.table.lock().values.contains(key)
    }

    /// All values. The call does not count as a use of them.
    pub fn values(&self) -> Vec<V> {
        let table = self.table.lock();
        let values = table.values.iter().map(|(_, (_, value))| value);
        values.cloned().collect()
    }

    /// Inserts a value, and replaces the previous value of its key. A value heavier than the capacity is not kept. Returns
    /// whether the key is new.
    pub fn insert(&self, key: K, value: V, weight: u64) -> bool {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        gone.extend(table.remove(&key));
        let is_new = gone.is_empty();
        if let Some(room) = self.capacity.checked_sub(weight) {
            while table.weight > room
                && let Some((_, (weight, oldest))) = table.values.pop_lru()
            {
                table.weight -= weight;
                gone.push(oldest);
            }
            table.weight += weight;
            table.values.put(key, (weight, value));
        }
        drop(table);
        drop(gone);
        is_new
    }

    /// Removes the least recently used value. Returns whether there was one.
    pub fn evict_one(&self) -> bool {
        let mut table = self.table.lock();
        let oldest = table.values.pop_lru();
        if let Some((_, (weight, _))) = &oldest {
            table.weight -= weight;
        }
        drop(table);
        oldest.is_some()
    }

    /// Removes and returns a value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.table.lock().remove(key)
    }

    /// Removes a value if `is_meant` accepts it.
    pub fn remove_if<Q: Hash + Eq + ?Sized>(&self, key: &Q, is_meant: impl FnOnce(&V) -> bool)
    where
        K: Borrow<Q>,
    {
        let mut table = self.table.lock();
        let known = table.values.peek(key);
        let is_meant = known.is_some_and(|(_, value)| is_meant(value));
        let gone = is_meant.then(|| table.remove(key));
        drop(table);
        drop(gone);
    }

    /// Removes all values that `is_kept` rejects.
    pub fn retain(&self, is_kept: impl Fn(&K, &V) -> bool)
    where
        K: Clone,
    {
        let mut table = self.table.lock();
        let all = table.values.iter();
        let others = all.filter(|(key, (_, value))| !is_kept(key, value));
        let others: Vec<K> = others.map(|(key, _)| key.clone()).collect();
        let gone: Vec<V> = others.iter().filter_map(|key| table.remove(key)).collect();
        drop(table);
        drop(gone);
    }

    /// Removes all values.
    pub fn clear(&self) {
        let mut table = self.table.lock();
        table.weight = 0;
        let gone = std::mem::replace(&mut table.values, LruCache::unbounded());
        drop(table);
        drop(gone);
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.table.lock().values.len()
    }

    /// Whether the cache has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let lru = Lru::new(30);
        for key in 0..3 {
            lru.insert(key, key * 10, 10);
        }
        assert_eq!(lru.get(&0), Some(0));
        lru.insert(3, 30, 10);
        assert_eq!((lru.get(&0), lru.get(&1), lru.len()), (Some(0), None, 3));
        // A replaced value no longer counts, and a value heavier than the capacity is dropped itself.
        lru.insert(3, 31, 20);
        assert_eq!((lru.get(&2), lru.get(&3)), (None, Some(31)));
        lru.insert(3, 32, 31);
        assert_eq!((lru.get(&0), lru.get(&3), lru.len()), (Some(0), None, 1));
        lru.remove_if(&0, |value| *value == 1);
        assert_eq!(lru.len(), 1);
        lru.remove_if(&0, |value| *value == 0);
        assert!(lru.is_empty());
    }

    proptest! {
        /// The weight is the sum of the weights of the present values.
        #[test]
        fn it_stays_within_its_capacity(steps in prop::collection::vec((0u8..20, 0u64..50, 0..6), 1..200)) {
            let lru = Lru::new(100);
            for (key, weight, step) in steps {
                match step {
                    0 => drop(lru.remove(&key)),
                    1 => drop(lru.get(&key)),
                    2 if weight == 0 => lru.clear(),
                    2 => lru.retain(|_, known| known % 2 == weight % 2),
                    3 => drop(lru.evict_one()),
                    _ => drop(lru.insert(key, weight, weight)),
                }
                let table = lru.table.lock();
                let sum: u64 = table.values.iter().map(|(_, (weight, _))| *weight).sum();
                prop_assert_eq!(sum, table.weight);
                prop_assert!(sum <= 100);
            }
        }
    }
}
