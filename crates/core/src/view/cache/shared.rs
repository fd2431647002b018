//! Bytes that threads share: one makes what is missing while the others that want it wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::Bytes;
use super::experts::Asked;
use super::policy::Policy;

/// A cache of bytes. Its lock is held for look-ups, never while something is made.
#[derive(Debug)]
pub(super) struct Shared<K: Hash + Eq> {
    inner: Mutex<Inner<K>>,
}

#[derive(Debug)]
struct Inner<K: Hash + Eq> {
    policy: Policy<K, Bytes>,
    making: HashMap<K, Arc<Flight>>,
    counts: Counts,
}

/// What was asked of a cache since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// It was there, or another thread was making it.
    pub hits: u64,
    /// It had to be made.
    pub misses: u64,
    /// It was made ahead of its reader.
    pub ahead: u64,
}

/// An entry that one thread is making.
#[derive(Debug, Default)]
struct Flight {
    landed: Mutex<Option<Landed>>,
    landing: Condvar,
}

#[derive(Debug, Clone)]
enum Landed {
    Made(Bytes),
    /// By an error or a panic, which is the maker's own.
    Failed,
}

impl Flight {
    /// The first word counts.
    fn land(&self, landed: Landed) {
        self.landed.lock().get_or_insert(landed);
        self.landing.notify_all();
    }

    fn wait(&self) -> Landed {
        let mut landed = self.landed.lock();
        loop {
            match &*landed {
                Some(landed) => return landed.clone(),
                None => self.landing.wait(&mut landed),
            }
        }
    }
}

/// The duty to make an entry. However its holder ends, those who wait are told.
struct Turn<'a, K: Hash + Eq> {
    shared: &'a Shared<K>,
    key: &'a K,
    flight: Arc<Flight>,
}

impl<K: Hash + Eq> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        self.shared.inner.lock().making.remove(self.key);
        self.flight.land(Landed::Failed);
    }
}

enum Found<'a, K: Hash + Eq> {
    There(Bytes),
    Coming(Arc<Flight>),
    Missing(Turn<'a, K>),
}

impl<K> Shared<K>
where
    K: Hash + Eq + Clone + Debug + Send + 'static,
{
    /// `capacity` in bytes.
    pub fn new(capacity: u64) -> Self {
        Shared {
            inner: Mutex::new(Inner {
                policy: Policy::new(capacity),
                making: HashMap::new(),
                counts: Counts::default(),
            }),
        }
    }

    /// Bytes in use.
    pub fn weight(&self) -> u64 {
        self.inner.lock().policy.weight()
    }

    pub fn counts(&self) -> Counts {
        self.inner.lock().counts
    }

    /// Lets go of all that is there; what is being made will be kept as usual.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        let empty = inner.policy.emptied();
        let full = std::mem::replace(&mut inner.policy, empty);
        drop(inner);
        // Giving much memory back may take a while: not under the lock.
        drop(full);
    }

    /// Whether the entry is there, or being made.
    pub fn has(&self, key: &K) -> bool {
        let inner = self.inner.lock();
        inner.policy.contains(key) || inner.making.contains_key(key)
    }

    /// The bytes of an entry, of which the caller hands out those in the range `asked`. Of several
    /// threads that miss it one makes it. A failure is its maker's; another thread then tries.
    pub fn get_or_make<E>(
        &self,
        key: &K,
        asked: Range<u64>,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        loop {
            match self.find(key, &asked) {
                Found::There(bytes) => return Ok(bytes),
                Found::Missing(turn) => return turn.make(&asked, make),
                Found::Coming(flight) => {
                    if let Landed::Made(bytes) = flight.wait() {
                        let mut inner = self.inner.lock();
                        inner.counts.hits += 1;
                        inner.policy.get(key, |bytes| share(bytes, &asked));
                        return Ok(bytes);
                    }
                }
            }
        }
    }

    /// Makes an entry that somebody will want soon, unless it is there or being made.
    pub fn make_ahead<E>(&self, key: &K, make: impl FnOnce() -> Result<Bytes, E>) -> Result<(), E> {
        if self.has(key) {
            return Ok(());
        }
        match self.find(key, &(0..0)) {
            Found::Missing(turn) => turn.make(&(0..0), make).map(drop),
            Found::There(_) | Found::Coming(_) => Ok(()),
        }
    }

    fn find<'a>(&'a self, key: &'a K, asked: &Range<u64>) -> Found<'a, K> {
        let inner = &mut *self.inner.lock();
        if let Some(bytes) = inner.policy.get(key, |bytes| share(bytes, asked)) {
            inner.counts.hits += 1;
            return Found::There(bytes);
        }
        match inner.making.entry(key.clone()) {
            Entry::Occupied(flight) => Found::Coming(Arc::clone(flight.get())),
            Entry::Vacant(vacant) => Found::Missing(Turn {
                shared: self,
                key,
                flight: Arc::clone(vacant.insert(Arc::default())),
            }),
        }
    }
}

impl<K> Turn<'_, K>
where
    K: Hash + Eq + Clone + Debug + Send + 'static,
{
    /// Nothing is handed out of what is made ahead.
    fn make<E>(
        self,
        asked: &Range<u64>,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let bytes = make()?;
        let ahead = asked.is_empty();
        let mut inner = self.shared.inner.lock();
        match ahead {
            true => inner.counts.ahead += 1,
            false => inner.counts.misses += 1,
        }
        let share = share(&bytes, asked);
        let (key, value) = (self.key.clone(), Arc::clone(&bytes));
        inner.policy.insert(key, value, share, ahead);
        drop(inner);
        self.flight.land(Landed::Made(Arc::clone(&bytes)));
        Ok(bytes)
    }
}

/// How much of an entry lies in a range.
fn share(bytes: &Bytes, asked: &Range<u64>) -> Asked {
    let size = bytes.len() as u64;
    Asked {
        size,
        bytes: asked.end.min(size).saturating_sub(asked.start),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    const READERS: usize = 8;

    fn bytes(len: usize) -> Bytes {
        Arc::new(vec![7; len])
    }

    /// Several readers want the same entry at the same time; the first one to make it ends in its own
    /// way, late enough for the others to wait. Returns how often it was made, and what each got.
    fn race(
        shared: &Shared<u8>,
        first: impl Fn() -> Result<Bytes, &'static str> + Sync,
    ) -> (usize, Vec<Result<Bytes, &'static str>>) {
        let (made, start) = (AtomicUsize::new(0), Barrier::new(READERS));
        let make = || match made.fetch_add(1, Ordering::SeqCst) {
            0 => {
                thread::sleep(Duration::from_millis(50));
                first()
            }
            _ => Ok(bytes(1000)),
        };
        let read = || {
            start.wait();
            let read = || shared.get_or_make(&1, 0..10, make);
            catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err("panic"))
        };
        let got = thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
            readers.into_iter().map(|r| r.join().unwrap()).collect()
        });
        (made.load(Ordering::SeqCst), got)
    }

    #[test]
    fn one_thread_makes_a_missing_entry_and_the_others_wait() {
        let shared = Shared::new(1 << 20);
        let (made, got) = race(&shared, || Ok(bytes(1000)));
        assert_eq!(made, 1);
        assert!(got.iter().all(|g| g.as_ref().unwrap().len() == 1000));
        let counts = Counts {
            hits: READERS as u64 - 1,
            misses: 1,
            ahead: 0,
        };
        assert_eq!(shared.counts(), counts);
    }

    #[test]
    fn those_who_wait_get_what_is_too_large_to_be_kept() {
        let shared = Shared::new(100);
        let (_, got) = race(&shared, || Ok(bytes(5000)));
        assert!(got.iter().any(|g| g.as_ref().unwrap().len() == 5000));
        assert_eq!(shared.weight(), 0);
    }

    #[test]
    fn a_failure_is_its_makers_own() {
        let shared = Shared::new(1 << 20);
        let (made, got) = race(&shared, || Err("torn"));
        assert_eq!(made, 2);
        let failed = got.iter().filter(|g| **g == Err("torn")).count();
        let whole = got.iter().filter(|g| g.is_ok()).count();
        assert_eq!((failed, whole), (1, READERS - 1));
    }

    #[test]
    fn a_panic_leaves_nobody_waiting() {
        let shared = Shared::new(1 << 20);
        let (made, got) = race(&shared, || panic!("while making"));
        assert_eq!(made, 2);
        let failed = got.iter().filter(|g| **g == Err("panic")).count();
        let whole = got.iter().filter(|g| g.is_ok()).count();
        assert_eq!((failed, whole), (1, READERS - 1));
    }

    #[test]
    fn what_is_made_ahead_is_there_when_it_is_asked() {
        let shared = Shared::new(1 << 20);
        let made = shared.make_ahead(&1, || Ok::<_, ()>(bytes(9)));
        assert_eq!(made, Ok(()));
        let again = shared.make_ahead(&1, || Err("made twice"));
        assert_eq!(again, Ok(()));
        let got = shared.get_or_make(&1, 0..9, || Err("made twice"));
        assert_eq!(got, Ok(bytes(9)));
        let failed = shared.make_ahead(&2, || Err("torn"));
        assert_eq!((failed, shared.has(&2)), (Err("torn"), false));
        let counts = Counts {
            hits: 1,
            misses: 0,
            ahead: 1,
        };
        assert_eq!(shared.counts(), counts);
    }
}
