//! A cache of bounded weight that threads share. The entry that was used least recently is evicted first.

use std::fmt::Debug;
use std::hash::Hash;

use lru::LruCache;

use h5logfs_common::single_flight::SingleFlight;
use h5logfs_common::sync::Mutex;
use h5logfs_common::task::Task;

/// Bytes that an entry is charged besides its own: its place in the list and in the table, the allocator's share.
pub(super) const OVERHEAD: u64 = 256;

/// What is kept is weighed in bytes.
pub(crate) trait Weight {
    /// Without [`OVERHEAD`].
    fn weight(&self) -> u64;
}

/// The lock is held for look-ups, never while a value is made or freed.
#[derive(Debug)]
pub(crate) struct Cache<K: Hash + Eq, V> {
    capacity: u64,
    inner: Mutex<Inner<K, V>>,
    flights: SingleFlight<K>,
}

#[derive(Debug)]
struct Inner<K: Hash + Eq, V> {
    /// Each with what it was charged.
    entries: LruCache<K, (u64, V)>,
    weight: u64,
    counts: Counts,
}

/// What was asked of a cache since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The value was there, or another thread was making it.
    pub hits: u64,
    /// The value had to be made.
    pub misses: u64,
    /// The value was made ahead of its reader.
    pub ahead: u64,
}

impl<K: Hash + Eq, V: Weight> Inner<K, V> {
    fn remove(&mut self, key: &K) -> Option<V> {
        let (weight, value) = self.entries.pop(key)?;
        self.weight -= weight;
        Some(value)
    }

    /// Returns what was evicted for the new entry, or the value itself where it does not fit at all.
    fn insert(&mut self, key: K, value: V, capacity: u64) -> Vec<V> {
        let mut gone: Vec<V> = self.remove(&key).into_iter().collect();
        let weight = value.weight().saturating_add(OVERHEAD);
        let Some(room) = capacity.checked_sub(weight) else {
            gone.push(value);
            return gone;
        };
        while self.weight > room
            && let Some((_, (weight, oldest))) = self.entries.pop_lru()
        {
            self.weight -= weight;
            gone.push(oldest);
        }
        self.weight += weight;
        self.entries.put(key, (weight, value));
        gone
    }
}

impl<K: Hash + Eq + Clone, V: Weight + Clone> Cache<K, V> {
    /// `capacity` in bytes.
    pub fn new(capacity: u64) -> Self {
        let inner = Inner {
            entries: LruCache::unbounded(),
            weight: 0,
            counts: Counts::default(),
        };
        Cache {
            capacity,
            inner: Mutex::new(inner),
            flights: SingleFlight::default(),
        }
    }

    /// Bytes in use.
    pub fn weight(&self) -> u64 {
        self.inner.lock().weight
    }

    pub fn counts(&self) -> Counts {
        self.inner.lock().counts
    }

    /// Drops all entries; a value that is being made will be kept as usual.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.weight = 0;
        let entries = std::mem::replace(&mut inner.entries, LruCache::unbounded());
        drop(inner);
        drop(entries);
    }

    /// Drops the entry that was used least recently. Returns whether there was one.
    pub fn evict_one(&self) -> bool {
        let mut inner = self.inner.lock();
        let oldest = inner.entries.pop_lru();
        if let Some((_, (weight, _))) = &oldest {
            inner.weight -= weight;
        }
        drop(inner);
        oldest.is_some()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.inner.lock().entries.contains(key)
    }

    /// The value, if it is there: a hit.
    pub fn get(&self, key: &K) -> Option<V> {
        let inner = &mut *self.inner.lock();
        let value = inner.entries.get(key)?.1.clone();
        inner.counts.hits += 1;
        Some(value)
    }

    /// Keeps a value, unless it weighs more than the capacity. Returns whether the key is new.
    pub fn insert(&self, key: K, value: V) -> bool {
        let mut inner = self.inner.lock();
        let is_new = !inner.entries.contains(&key);
        let gone = inner.insert(key, value, self.capacity);
        drop(inner);
        drop(gone);
        is_new
    }

    pub fn remove(&self, key: &K) {
        let gone = self.inner.lock().remove(key);
        drop(gone);
    }

    /// All values at this moment. To ask for them is no use.
    pub fn values(&self) -> Vec<V> {
        let inner = self.inner.lock();
        let values = inner.entries.iter().map(|(_, (_, value))| value);
        values.cloned().collect()
    }

    /// Removes the entries whose keys `is_meant`.
    pub fn remove_all(&self, is_meant: impl Fn(&K) -> bool) {
        let mut inner = self.inner.lock();
        let keys = inner.entries.iter().map(|(key, _)| key);
        let keys: Vec<K> = keys.filter(|key| is_meant(key)).cloned().collect();
        let gone: Vec<V> = keys.iter().filter_map(|key| inner.remove(key)).collect();
        drop(inner);
        drop(gone);
    }

    /// The value, made if it is missing: by one of the threads that want it, while the others wait. An error is its
    /// maker's own; another thread then tries. A value that is evicted at once is made again by each of them. A thread
    /// whose task has to stop does not wait: it makes the value, and fails at once.
    pub fn get_or_make<E>(
        &self,
        task: &Task,
        key: &K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let is_wanted = || task.stopped().is_none();
        let _flight = self.flights.take_while(key.clone(), is_wanted);
        match self.get(key) {
            Some(value) => Ok(value),
            None => self.make(key, make, |counts| &mut counts.misses),
        }
    }

    /// Makes a value that will be wanted soon, unless it is there or being made.
    pub fn make_ahead<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<(), E> {
        let flight = self.flights.try_take(key.clone());
        if flight.is_none() || self.contains(key) {
            return Ok(());
        }
        self.make(key, make, |counts| &mut counts.ahead).map(drop)
    }

    /// Makes a value that is not kept, as one that was missing. `None` where it is there, or being made.
    pub fn make_aside<T>(&self, key: &K, make: impl FnOnce() -> T) -> Option<T> {
        let _flight = self.flights.try_take(key.clone())?;
        if self.contains(key) {
            return None;
        }
        let made = make();
        self.inner.lock().counts.misses += 1;
        Some(made)
    }

    fn make<E>(
        &self,
        key: &K,
        make: impl FnOnce() -> Result<V, E>,
        count: impl FnOnce(&mut Counts) -> &mut u64,
    ) -> Result<V, E> {
        let value = make()?;
        let mut inner = self.inner.lock();
        *count(&mut inner.counts) += 1;
        let gone = inner.insert(key.clone(), value.clone(), self.capacity);
        drop(inner);
        drop(gone);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use h5logfs_common::fault::Stop;
    use h5logfs_common::task::StopFlag;

    impl Weight for u64 {
        fn weight(&self) -> u64 {
            *self
        }
    }

    const READERS: usize = 8;

    /// Several readers want the same value at the same time; the first one to make it ends in its own way, late
    /// enough for the others to wait. Returns how often it was made, and what each got.
    fn race(
        cache: &Cache<u8, u64>,
        first: impl Fn() -> Result<u64, &'static str> + Sync,
    ) -> (usize, Vec<Result<u64, &'static str>>) {
        let (made, start) = (AtomicUsize::new(0), Barrier::new(READERS));
        let make = || match made.fetch_add(1, Ordering::SeqCst) {
            0 => {
                thread::sleep(Duration::from_millis(50));
                first()
            }
            _ => Ok(1000),
        };
        let read = || {
            start.wait();
            let read = || cache.get_or_make(&Task::unlimited(), &1, make);
            catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err("panic"))
        };
        let got = thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
            readers.into_iter().map(|r| r.join().unwrap()).collect()
        });
        (made.load(Ordering::SeqCst), got)
    }

    #[test]
    fn a_maker_that_is_stopped_leaves_the_value_to_those_who_wait() {
        let cache = Cache::new(1 << 20);
        let (stop, begun) = (StopFlag::default(), Barrier::new(2));
        let stopped = Task::unlimited().stopped_by(stop.clone());
        let made = thread::scope(|scope| {
            let making = scope.spawn(|| {
                cache.get_or_make::<String>(&stopped, &1, || {
                    begun.wait();
                    loop {
                        stopped.check()?;
                        thread::yield_now();
                    }
                })
            });
            begun.wait();
            let waiting =
                scope.spawn(|| cache.get_or_make(&Task::unlimited(), &1, || Ok::<u64, String>(9)));
            // A waiter whose own task is stopped does not wait for the maker.
            let flag = StopFlag::default();
            flag.stop(Stop::CallerGone);
            let other = Task::unlimited().stopped_by(flag);
            let outcome = cache.get_or_make(&other, &1, || Err("stopped".to_owned()));
            assert_eq!(outcome, Err("stopped".into()));
            stop.stop(Stop::CallerGone);
            assert!(making.join().unwrap().is_err());
            waiting.join().unwrap()
        });
        assert_eq!(made, Ok(9));
    }

    #[test]
    fn one_thread_makes_a_missing_value_and_the_others_wait() {
        let cache = Cache::new(1 << 20);
        let (made, got) = race(&cache, || Ok(1000));
        assert_eq!((made, got), (1, vec![Ok(1000); READERS]));
        let counts = Counts {
            hits: READERS as u64 - 1,
            misses: 1,
            ahead: 0,
        };
        assert_eq!(cache.counts(), counts);
    }

    #[test]
    fn what_is_too_large_to_be_kept_is_handed_out() {
        let cache = Cache::new(100);
        let (_, got) = race(&cache, || Ok(1000));
        assert_eq!((cache.weight(), got), (0, vec![Ok(1000); READERS]));
    }

    #[test]
    fn a_failure_is_its_makers_own() {
        for failure in ["torn", "panic"] {
            let cache = Cache::new(1 << 20);
            let (made, got) = race(&cache, || match failure {
                "panic" => panic!("while making"),
                _ => Err(failure),
            });
            assert_eq!(made, 2);
            let failed = got.iter().filter(|g| **g == Err(failure)).count();
            let whole = got.iter().filter(|g| g.is_ok()).count();
            assert_eq!((failed, whole), (1, READERS - 1));
        }
    }

    #[test]
    fn what_is_made_ahead_is_there_when_it_is_asked() {
        let cache = Cache::new(1 << 20);
        assert_eq!(cache.make_ahead(&1, || Ok::<_, ()>(9)), Ok(()));
        assert_eq!(cache.make_ahead(&1, || Err("made twice")), Ok(()));
        assert_eq!(
            cache.get_or_make(&Task::unlimited(), &1, || Err("made twice")),
            Ok(9)
        );
        assert_eq!(cache.make_ahead(&2, || Err("torn")), Err("torn"));
        assert!(!cache.contains(&2));
        let flight = cache.flights.take(2);
        assert_eq!(cache.make_ahead(&2, || Err("made twice")), Ok(()));
        drop(flight);
        let counts = Counts {
            hits: 1,
            misses: 0,
            ahead: 1,
        };
        assert_eq!(cache.counts(), counts);
    }

    proptest! {
        /// Against a list, the youngest entry last.
        #[test]
        fn it_does_as_a_naive_one(
            capacity in 0u64..20_000,
            steps in prop::collection::vec((0u8..30, 0u64..3000, 0..4), 1..300),
        ) {
            let (cache, mut naive) = (Cache::new(capacity), Vec::<(u8, u64)>::new());
            for (key, size, step) in steps {
                let at = naive.iter().position(|(k, _)| *k == key);
                let before = at.map(|at| naive.remove(at));
                let now = match step {
                    0 => {
                        cache.remove(&key);
                        None
                    }
                    1 => {
                        prop_assert_eq!(cache.get(&key), before.map(|(_, size)| size));
                        before
                    }
                    2 => {
                        cache.insert(key, size);
                        Some((key, size))
                    }
                    _ => {
                        let size = before.map_or(size, |(_, size)| size);
                        prop_assert_eq!(cache.get_or_make(&Task::unlimited(), &key, || Ok::<_, ()>(size)), Ok(size));
                        Some((key, size))
                    }
                };
                let total = |list: &[(u8, u64)]| list.iter().map(|(_, s)| s + OVERHEAD).sum::<u64>();
                let fits = |(_, size): &(u8, u64)| size + OVERHEAD <= capacity;
                naive.extend(now.filter(fits));
                while total(&naive) > capacity {
                    naive.remove(0);
                }
                let inner = cache.inner.lock();
                let mut entries: Vec<_> = inner.entries.iter().map(|(k, (_, v))| (*k, *v)).collect();
                entries.reverse();
                prop_assert_eq!(&entries, &naive);
                prop_assert_eq!(inner.weight, total(&naive));
            }
        }
    }
}

/// Work with the cache, as a read does it: the index first, then the chunk, each under its flight.
#[cfg(all(test, feature = "model"))]
mod model {
    use std::sync::{Arc, Weak};

    use h5logfs_common::fault::Shortage;
    use h5logfs_common::memory::{Memory, Reserved};
    use h5logfs_common::sync::{model, thread};

    use super::*;

    type Value = Arc<Reserved<u64>>;

    impl Weight for Value {
        fn weight(&self) -> u64 {
            ***self
        }
    }

    const INDEX: u64 = 40;
    const CHUNK: u64 = 40;

    /// Memory for one index and one chunk, and caches that keep nothing.
    struct Log {
        memory: Arc<Memory>,
        indexes: Cache<u8, Value>,
        chunks: Cache<u8, Value>,
    }

    impl Log {
        fn new() -> Arc<Self> {
            Arc::new(Log {
                memory: Memory::new(INDEX + CHUNK, None::<Weak<_>>),
                indexes: Cache::new(0),
                chunks: Cache::new(0),
            })
        }

        fn index(&self, task: &Task) -> Result<Value, Shortage> {
            task.retry(|| self.indexes.get_or_make(task, &0, || made(task, INDEX)))
        }

        /// As `Chunks::make` does it.
        fn read(&self, task: &Task) -> Result<Value, Shortage> {
            task.retry(|| {
                let _index = self.index(task)?;
                self.chunks.get_or_make(task, &0, || made(task, CHUNK))
            })
        }

        /// Makes the chunk before a reader asks for it.
        fn ahead(&self, task: &Task) -> Result<(), Shortage> {
            let _index = self.index(task)?;
            self.chunks.make_ahead(&0, || made(task, CHUNK))
        }
    }

    fn made(task: &Task, bytes: u64) -> Result<Value, Shortage> {
        let reservation = task.reserve(bytes)?;
        Ok(Arc::new(Reserved::new(bytes, reservation)))
    }

    #[test]
    fn work_that_waits_for_memory_holds_nothing_that_others_wait_for() {
        model::check(|| {
            let log = Log::new();
            let in_thread = |run: fn(&Log, &Task)| {
                let log = Arc::clone(&log);
                thread::Builder::new().spawn(move || run(&log, &Task::new(&log.memory, None)))
            };
            let threads = [
                in_thread(|log, task| drop(log.read(task))),
                // Other work has all of the memory for a while.
                in_thread(|_, task| drop(task.reserve(INDEX + CHUNK))),
                in_thread(|log, task| {
                    let _ = log.ahead(task);
                }),
            ];
            for thread in threads {
                thread.unwrap().join().unwrap();
            }
            assert_eq!(log.memory.used(), 0);
        });
    }
}
