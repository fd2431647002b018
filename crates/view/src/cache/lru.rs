//! A cache of bounded weight that threads share: an [`Lru`] whose missing values are made by one of the threads that
//! want them.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use h5logfs_common::lru::Lru;
use h5logfs_common::single_flight::SingleFlight;
use h5logfs_common::task::Task;

/// Bytes that an entry is charged besides its own, for its place in the list and in the table, and for the allocator.
pub(super) const OVERHEAD: u64 = 256;

/// The weight of a kept value, in bytes.
pub(crate) trait Weight {
    /// The weight without [`OVERHEAD`].
    fn weight(&self) -> u64;
}

/// Kept values, and the flights of values that are being made.
#[derive(Debug)]
pub(crate) struct Cache<K: Hash + Eq, V> {
    values: Lru<K, V>,
    flights: SingleFlight<K>,
    misses: AtomicU64,
    ahead: AtomicU64,
}

/// Requests to a cache since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of values that were there, or that another thread was making.
    pub hits: u64,
    /// Number of values that had to be made.
    pub misses: u64,
    /// Number of values that were made ahead of their readers.
    pub ahead: u64,
}

impl<K: Hash + Eq + Clone, V: Weight + Clone> Cache<K, V> {
    /// A cache of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Cache {
            values: Lru::new(capacity),
            flights: SingleFlight::default(),
            misses: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
        }
    }

    /// Bytes in use.
    pub fn weight(&self) -> u64 {
        self.values.weight()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            hits: self.values.hits(),
            misses: self.misses.load(Ordering::Relaxed),
            ahead: self.ahead.load(Ordering::Relaxed),
        }
    }

    /// Drops all entries. A value that is being made will be kept as usual.
    pub fn clear(&self) {
        self.values.clear();
    }

    /// Drops the entry that was used least recently. Returns whether there was one.
    pub fn evict_one(&self) -> bool {
        self.values.evict_one()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.values.contains(key)
    }

    /// The value, if it is there. This counts as a hit.
    pub fn get(&self, key: &K) -> Option<V> {
        self.values.get(key)
    }

    /// Keeps a value, unless it weighs more than the capacity. Returns whether the key is new.
    pub fn insert(&self, key: K, value: V) -> bool {
        let weight = value.weight().saturating_add(OVERHEAD);
        self.values.insert(key, value, weight)
    }

    pub fn remove(&self, key: &K) {
        drop(self.values.remove(key));
    }

    /// All values at this moment. This does not count as a use of them.
    pub fn values(&self) -> Vec<V> {
        self.values.values()
    }

    /// Removes the entries whose keys `is_meant` accepts.
    pub fn remove_all(&self, is_meant: impl Fn(&K) -> bool) {
        self.values.retain(|key, _| !is_meant(key));
    }

    /// The value. If it is missing, one of the threads that want it makes it, while the others wait. An error concerns
    /// only its maker, and another thread then tries. A value that is evicted at once is made again by each of the
    /// threads. A thread whose task has to stop does not wait: it makes the value, and fails at once.
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
            None => self.make(key, make, &self.misses),
        }
    }

    /// Makes a value that will be wanted soon, unless it is there or being made.
    pub fn make_ahead<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<(), E> {
        let flight = self.flights.try_take(key.clone());
        if flight.is_none() || self.contains(key) {
            return Ok(());
        }
        self.make(key, make, &self.ahead).map(drop)
    }

    /// Makes a value that is not kept, and counts it as a miss. `None` where the value is there, or being made.
    pub fn make_aside<T>(&self, key: &K, make: impl FnOnce() -> T) -> Option<T> {
        let _flight = self.flights.try_take(key.clone())?;
        if self.contains(key) {
            return None;
        }
        let made = make();
        self.misses.fetch_add(1, Ordering::Relaxed);
        Some(made)
    }

    fn make<E>(
        &self,
        key: &K,
        make: impl FnOnce() -> Result<V, E>,
        count: &AtomicU64,
    ) -> Result<V, E> {
        let value = make()?;
        count.fetch_add(1, Ordering::Relaxed);
        self.insert(key.clone(), value.clone());
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

    /// Several readers want the same value at the same time. The first maker ends as `first` does, late enough for the
    /// others to wait. Returns how often the value was made, and what each reader got.
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
        /// Compares the cache with a list whose last entry is the youngest.
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
                let mut sizes = cache.values();
                sizes.reverse();
                let wanted: Vec<u64> = naive.iter().map(|(_, size)| *size).collect();
                prop_assert_eq!(sizes, wanted);
                prop_assert!(naive.iter().all(|(key, _)| cache.contains(key)));
                prop_assert_eq!(cache.weight(), total(&naive));
            }
        }
    }
}

/// Work with the cache as a read does it: first the index, then the chunk, each under its flight.
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

        /// Reads as `Chunks::make` does.
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
