//! Single flight: one thread makes a value that several threads need, and the others wait.
//!
//! A thread asks the cache first. After a miss it takes the key, and asks the cache once more, because another thread
//! may have made the value meanwhile. No lock is held while a value is made.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// Longest time between two looks of a waiting thread.
const PAUSE: Duration = Duration::from_millis(50);

/// Taken keys, each with the condition for its waiters.
#[derive(Debug)]
pub struct SingleFlight<K> {
    taken: Mutex<HashMap<K, Arc<Condvar>>>,
}

/// A taken key, released on drop.
#[derive(Debug)]
pub struct Guard<'a, K: Hash + Eq> {
    flights: &'a SingleFlight<K>,
    key: K,
}

impl<K> Default for SingleFlight<K> {
    fn default() -> Self {
        SingleFlight {
            taken: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq + Clone> SingleFlight<K> {
    /// Waits until no thread has the key. A thread that already has it would wait for ever.
    pub fn take(&self, key: K) -> Guard<'_, K> {
        let mut taken = self.taken.lock();
        while let Some(released) = taken.get(&key).map(Arc::clone) {
            released.wait(&mut taken);
        }
        taken.insert(key.clone(), Arc::default());
        Guard { flights: self, key }
    }

    /// As [`take`](Self::take), but waits only while `is_wanted`. `None` once it is not.
    pub fn take_while(&self, key: K, is_wanted: impl Fn() -> bool) -> Option<Guard<'_, K>> {
        let mut taken = self.taken.lock();
        while let Some(released) = taken.get(&key).map(Arc::clone) {
            if !is_wanted() {
                return None;
            }
            released.wait_for(&mut taken, PAUSE);
        }
        taken.insert(key.clone(), Arc::default());
        Some(Guard { flights: self, key })
    }

    /// Whether a thread has the key.
    pub fn is_taken<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.taken.lock().contains_key(key)
    }

    /// As [`take`](Self::take), but does not wait. `None` if another thread has the key.
    pub fn try_take(&self, key: K) -> Option<Guard<'_, K>> {
        let mut taken = self.taken.lock();
        if taken.contains_key(&key) {
            return None;
        }
        taken.insert(key.clone(), Arc::default());
        Some(Guard { flights: self, key })
    }
}

impl<K: Hash + Eq> Drop for Guard<'_, K> {
    fn drop(&mut self) {
        if let Some(released) = self.flights.taken.lock().remove(&self.key) {
            released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_key_has_one_thread_at_a_time() {
        let flights = SingleFlight::default();
        let (elsewhere, there) = (flights.take("b"), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _guard = flights.take("a");
                        assert_eq!(there.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        there.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(flights.try_take("b").is_none());
        drop(elsewhere);
        assert!(flights.taken.lock().is_empty());
        assert!(flights.try_take("b").is_some());
    }

    #[test]
    fn a_waiter_that_is_not_wanted_any_more_goes_on_without_the_key() {
        let flights = SingleFlight::default();
        let _taken = flights.take(1);
        let looks = AtomicUsize::new(0);
        let wanted = || looks.fetch_add(1, Ordering::SeqCst) < 2;
        assert!(flights.take_while(1, wanted).is_none());
        assert!(flights.take_while(2, || false).is_some());
    }

    #[test]
    fn a_panic_releases_the_key() {
        let flights = SingleFlight::default();
        let died = catch_unwind(AssertUnwindSafe(|| {
            let _guard = flights.take(1);
            panic!("while making");
        }));
        assert!(died.is_err() && flights.try_take(1).is_some());
    }
}
