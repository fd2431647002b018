//! Memory whose size depends on the content of files. It is reserved before it is allocated.
//!
//! One [`Memory`] of fixed size holds everything that a process decodes, assembles and keeps of logs. A [`Reservation`]
//! is a piece of it. It lasts as long as its purpose: until a chunk is assembled, or as long as an index is kept. When
//! memory is short, caches drop values. If this is not enough, the reservation fails, and nothing is allocated.
//!
//! Users share the memory. The work of one user, and the values that this user's open files keep from eviction, take at
//! most half of what the other users leave. So bad files cannot take all memory, however many there are, and users who
//! act together leave some as well. Values that only a cache keeps count for no user.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytemuck::Zeroable;

use crate::buffers;
use crate::fault::Shortage;
use crate::single_flight::SingleFlight;
use crate::sync::{Condvar, Mutex};

/// A cache that can drop values, and with them their reservations.
pub trait Evict: Send + Sync + Debug {
    /// Drops the least needed value. Returns whether there was one.
    fn evict_one(&self) -> bool;
}

/// Memory of fixed size, shared by threads and users.
#[derive(Debug)]
pub struct Memory {
    /// Size in bytes.
    limit: u64,
    state: Mutex<State>,
    /// Notified when memory is released. Work that waits for memory waits here.
    released: Condvar,
    /// Lets one work of each user at a time try again.
    retrying: SingleFlight<Option<u32>>,
    caches: Option<Weak<dyn Evict>>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of all reservations: now, and the maximum so far.
    used: u64,
    most: u64,
    /// Bytes counted for each user, and their sum.
    users: HashMap<u32, u64>,
    of_users: u64,
}

impl State {
    /// Counts `bytes` for a user. Fails if that exceeds the user's share.
    fn count(&mut self, limit: u64, user: u32, bytes: u64) -> Result<(), Shortage> {
        let used = self.users.get(&user).copied().unwrap_or(0);
        let others = self.of_users - used;
        let share = limit.saturating_sub(others) / 2;
        if used.saturating_add(bytes) > share {
            return Err(Shortage::Share { bytes, used, share });
        }
        if bytes > 0 {
            self.users.insert(user, used + bytes);
            self.of_users += bytes;
        }
        Ok(())
    }

    fn uncount(&mut self, user: u32, bytes: u64) {
        self.of_users -= bytes;
        if let Some(used) = self.users.get_mut(&user) {
            *used -= bytes;
            if *used == 0 {
                self.users.remove(&user);
            }
        }
    }

    fn take(&mut self, limit: u64, user: Option<u32>, bytes: u64) -> Result<(), Shortage> {
        if self.used.saturating_add(bytes) > limit {
            return Err(Shortage::Limit {
                bytes,
                used: self.used,
                limit,
            });
        }
        if let Some(user) = user {
            self.count(limit, user, bytes)?;
        }
        self.used += bytes;
        self.most = self.most.max(self.used);
        Ok(())
    }
}

impl Memory {
    /// Memory of `limit` bytes. `caches` drops values when there is no other room.
    pub fn new(limit: u64, caches: Option<Weak<dyn Evict>>) -> Arc<Self> {
        Arc::new(Memory {
            limit,
            state: Mutex::default(),
            released: Condvar::new(),
            retrying: SingleFlight::default(),
            caches,
        })
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// Most bytes reserved at one time.
    pub fn most_used(&self) -> u64 {
        self.state.lock().most
    }

    fn take(&self, user: Option<u32>, bytes: u64) -> Result<(), Shortage> {
        loop {
            let refused = match self.state.lock().take(self.limit, user, bytes) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let helps = matches!(refused, Shortage::Limit { .. }) && bytes <= self.limit;
            let caches = self.caches.as_ref().and_then(Weak::upgrade);
            if !helps || !caches.is_some_and(|caches| caches.evict_one()) {
                return Err(refused);
            }
        }
    }

    fn give_back(&self, user: Option<u32>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.used -= bytes;
        if let Some(user) = user {
            state.uncount(user, bytes);
        }
        drop(state);
        self.released.notify_all();
    }

    /// Most bytes that one user's work may reserve when no other work runs.
    fn most(&self, user: Option<u32>) -> u64 {
        if user.is_some() {
            self.limit / 2
        } else {
            self.limit
        }
    }

    /// Waits until some memory is released, but not longer than `at_most`.
    fn wait(&self, at_most: Duration) {
        self.released.wait_for(&mut self.state.lock(), at_most);
    }

    /// Counts existing `bytes` for `user`, who keeps them from eviction. `None` if that exceeds the user's share.
    pub fn hold(self: &Arc<Self>, user: u32, bytes: u64) -> Option<Hold> {
        self.state.lock().count(self.limit, user, bytes).ok()?;
        Some(Hold {
            memory: Arc::clone(self),
            user,
            bytes,
        })
    }
}

/// Bytes that a user keeps from eviction.
#[derive(Debug)]
pub struct Hold {
    memory: Arc<Memory>,
    user: u32,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.memory.state.lock().uncount(self.user, self.bytes);
        self.memory.released.notify_all();
    }
}

/// A piece of work from the memory's point of view.
#[derive(Debug)]
struct Owner {
    memory: Arc<Memory>,
    user: Option<u32>,
    /// Bytes that this work has reserved.
    own: AtomicU64,
    refusal: Mutex<Option<Refusal>>,
    /// Whether [`Account::retry`] is running for this work.
    tries: AtomicBool,
}

/// The first refused reservation of a piece of work.
#[derive(Debug)]
struct Refusal {
    shortage: Shortage,
    /// Whether the reservation would succeed if no other work ran.
    by_others: bool,
}

/// The account of one piece of work, which reserves memory.
#[derive(Debug, Clone)]
pub(crate) struct Account(Arc<Owner>);

impl Account {
    pub fn new(memory: &Arc<Memory>, user: Option<u32>) -> Self {
        Account(Arc::new(Owner {
            memory: Arc::clone(memory),
            user,
            own: AtomicU64::new(0),
            refusal: Mutex::default(),
            tries: AtomicBool::new(false),
        }))
    }

    pub fn user(&self) -> Option<u32> {
        self.0.user
    }

    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// The reason why memory was refused to this work, if it was.
    pub fn refusal(&self) -> Option<Shortage> {
        let refusal = self.0.refusal.lock();
        refusal.as_ref().map(|refusal| refusal.shortage)
    }

    /// An empty reservation.
    pub fn reservation(&self) -> Reservation {
        Reservation {
            owner: Arc::clone(&self.0),
            is_own: AtomicBool::new(true),
            bytes: 0,
        }
    }

    /// Runs `job`, and repeats it if it failed only because other work held the memory. `may_go_on` is asked before
    /// each repetition. Repetitions of one user run one after the other. Within a job, only the outermost call repeats,
    /// because only it can release all memory of the work.
    pub fn retry<T, E>(
        &self,
        mut job: impl FnMut() -> Result<T, E>,
        may_go_on: impl Fn() -> bool,
    ) -> Result<T, E> {
        if self.0.tries.swap(true, Relaxed) {
            return job();
        }
        let _outermost = Outermost(&self.0.tries);
        let mut run = || {
            *self.0.refusal.lock() = None;
            job()
        };
        let by_others = || self.0.refusal.lock().as_ref().is_some_and(|r| r.by_others);
        let mut outcome = run();
        if outcome.is_ok() || !by_others() {
            return outcome;
        }
        let _turn = self.0.memory.retrying.take_while(self.0.user, &may_go_on);
        for _ in 0..ATTEMPTS {
            self.0.memory.wait(PAUSE);
            if !may_go_on() {
                break;
            }
            outcome = run();
            if outcome.is_ok() || !by_others() {
                break;
            }
        }
        outcome
    }
}

/// Marks the outermost attempt of a piece of work until it is dropped.
struct Outermost<'a>(&'a AtomicBool);

impl Drop for Outermost<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Number of further attempts after other work has taken the memory. Before each attempt, the work waits no longer than
/// `PAUSE`.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// Reserved memory, released on drop.
#[derive(Debug)]
pub struct Reservation {
    owner: Arc<Owner>,
    /// Whether the reservation counts for the work, and the user, that made it.
    is_own: AtomicBool,
    bytes: u64,
}

impl Reservation {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The user for whom the reservation counts.
    fn user(&self) -> Option<u32> {
        self.owner.user.filter(|_| self.is_own.load(Relaxed))
    }

    /// Reserves `more` bytes.
    pub fn grow(&mut self, more: u64) -> Result<(), Shortage> {
        let owner = &*self.owner;
        if let Err(shortage) = owner.memory.take(self.user(), more) {
            let alone = owner.own.load(Relaxed).saturating_add(more);
            let by_others = alone <= owner.memory.most(owner.user);
            owner.refusal.lock().get_or_insert_with(|| Refusal {
                shortage,
                by_others,
            });
            return Err(shortage);
        }
        self.bytes += more;
        if self.is_own.load(Relaxed) {
            owner.own.fetch_add(more, Relaxed);
        }
        Ok(())
    }

    /// Releases all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.owner.memory.give_back(self.user(), less);
            self.bytes = bytes;
            if self.is_own.load(Relaxed) {
                self.owner.own.fetch_sub(less, Relaxed);
            }
        }
    }

    /// Takes over another reservation of the same work.
    pub fn absorb(&mut self, mut other: Reservation) {
        debug_assert!(Arc::ptr_eq(&self.owner, &other.owner));
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Stops counting for the user, because only a cache keeps the value now.
    pub fn release_share(&self) {
        if !self.is_own.swap(false, Relaxed) {
            return;
        }
        if let Some(user) = self.owner.user {
            self.owner.memory.state.lock().uncount(user, self.bytes);
            self.owner.memory.released.notify_all();
        }
        self.owner.own.fetch_sub(self.bytes, Relaxed);
    }

    /// Reserves and allocates capacity for `more` elements of a list counted here. The list grows by at least half, so adding
    /// elements one by one takes few steps.
    pub fn make_room<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), Shortage> {
        let (len, capacity) = (list.len(), list.capacity());
        if capacity - len >= more {
            return Ok(());
        }
        let past = Shortage::System { bytes: u64::MAX };
        let wanted = len.checked_add(more).ok_or(past)?;
        let wanted = wanted.max(capacity.saturating_add(capacity / 2)).max(8);
        let size = size_of::<T>().max(1);
        let bytes = wanted.checked_mul(size).ok_or(past)? as u64;
        // The old and the new list both exist while the elements move.
        self.grow(bytes)?;
        if let Err(shortage) = buffers::make_room(list, wanted - len) {
            self.shrink_to(self.bytes - bytes);
            return Err(shortage);
        }
        self.shrink_to(self.bytes - (capacity * size) as u64);
        Ok(())
    }

    /// Adds an element to a list counted here.
    #[inline]
    pub fn push<T>(&mut self, list: &mut Vec<T>, element: T) -> Result<(), Shortage> {
        if list.len() == list.capacity() {
            self.make_room(list, 1)?;
        }
        list.push(element);
        Ok(())
    }

    /// Adds elements to a list counted here.
    pub fn extend<T: Copy>(&mut self, list: &mut Vec<T>, elements: &[T]) -> Result<(), Shortage> {
        self.make_room(list, elements.len())?;
        list.extend_from_slice(elements);
        Ok(())
    }

    /// A list of `len` zeros, counted here.
    pub fn filled<T: Zeroable>(&mut self, len: usize) -> Result<Vec<T>, Shortage> {
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or(Shortage::System { bytes: u64::MAX })? as u64;
        self.grow(bytes)?;
        buffers::zeroed(len).inspect_err(|_| self.shrink_to(self.bytes - bytes))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// A value with its reserved memory.
#[derive(Debug)]
pub struct Reserved<T> {
    value: T,
    reservation: Reservation,
}

impl<T> Reserved<T> {
    /// Joins `value` and `reservation`, which must cover what `value` holds.
    pub fn new(value: T, reservation: Reservation) -> Self {
        Reserved { value, reservation }
    }

    /// Stops counting for the user: see [`Reservation::release_share`].
    pub fn release_share(&self) {
        self.reservation.release_share();
    }

    /// This value with its share released.
    pub fn unowned(self) -> Self {
        self.release_share();
        self
    }

    /// Splits the value from its reservation.
    pub fn into_parts(self) -> (T, Reservation) {
        (self.value, self.reservation)
    }
}

impl<T> Deref for Reserved<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// A cache whose values are reservations.
    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<Reservation>>);

    impl Evict for Kept {
        fn evict_one(&self) -> bool {
            let oldest = {
                let mut kept = self.0.lock();
                (!kept.is_empty()).then(|| kept.remove(0))
            };
            oldest.is_some()
        }
    }

    fn with_cache(limit: u64) -> (Arc<Kept>, Arc<Memory>) {
        let kept = Arc::new(Kept::default());
        let evict: Weak<dyn Evict> = Arc::<Kept>::downgrade(&kept);
        let memory = Memory::new(limit, Some(evict));
        (kept, memory)
    }

    fn reserve(memory: &Arc<Memory>, user: Option<u32>, bytes: u64) -> Option<Reservation> {
        let mut reservation = Account::new(memory, user).reservation();
        reservation.grow(bytes).ok()?;
        Some(reservation)
    }

    #[test]
    fn caches_make_room_and_what_is_in_use_does_not() {
        let (kept, memory) = with_cache(100);
        for _ in 0..10 {
            let reservation = reserve(&memory, None, 10).unwrap();
            kept.0.lock().push(reservation);
        }
        let first = reserve(&memory, None, 35).unwrap();
        assert_eq!((kept.0.lock().len(), memory.used()), (6, 95));
        assert!(reserve(&memory, None, 101).is_none());
        // A reservation that can never fit evicts nothing.
        assert_eq!(kept.0.lock().len(), 6);
        assert!(reserve(&memory, None, 66).is_none());
        assert_eq!(memory.used(), 35);
        drop(first);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_user_has_half_of_what_the_others_leave() {
        let memory = Memory::new(800, None);
        let first = reserve(&memory, Some(1), 400).unwrap();
        assert!(reserve(&memory, Some(1), 1).is_none());
        let second = reserve(&memory, Some(2), 200).unwrap();
        assert!(reserve(&memory, Some(2), 1).is_none());
        // Memory that a user's open files keep counts, although it is not new.
        let hold = memory.hold(3, 100).unwrap();
        assert!(memory.hold(3, 1).is_none() && reserve(&memory, Some(3), 1).is_none());
        assert_eq!(memory.used(), 600);
        drop(hold);
        assert!(reserve(&memory, Some(3), 100).is_some());
        // Work of no particular user has no share.
        assert!(reserve(&memory, None, 200).is_some());
        // Values that only a cache keeps count for no user, but take memory.
        first.release_share();
        assert!(reserve(&memory, Some(1), 200).is_some());
        assert!(reserve(&memory, Some(1), 201).is_none());
        drop((first, second));
        assert_eq!(memory.used(), 0);
        assert!(memory.state.lock().users.is_empty());
    }

    #[test]
    fn lists_grow_in_pieces_that_are_reserved() {
        let memory = Memory::new(1000, None);
        let mut reservation = Account::new(&memory, None).reservation();
        let mut list = Vec::new();
        let mut pushed = 0;
        while reservation.push(&mut list, 7u64).is_ok() {
            pushed += 1;
            assert_eq!(reservation.bytes(), 8 * list.capacity() as u64);
        }
        assert_eq!(list.len(), pushed);
        // A growing list exists twice.
        assert!((40..=124).contains(&pushed), "{pushed}");
        assert!(reservation.filled::<u8>(1000).is_err());
        assert!(reservation.make_room(&mut list, usize::MAX).is_err());
        let held = reservation.bytes();
        drop(reservation);
        assert_eq!(memory.used(), 0);
        assert!(memory.most_used() >= held);
    }

    #[test]
    fn work_that_others_crowd_out_waits_for_them() {
        let memory = Memory::new(100, None);
        let others = reserve(&memory, None, 60).unwrap();
        let account = Account::new(&memory, None);
        let tried = AtomicUsize::new(0);
        let job = || {
            tried.fetch_add(1, Relaxed);
            let mut reservation = account.reservation();
            reservation.grow(50)
        };
        thread::scope(|scope| {
            let work = scope.spawn(|| account.retry(job, || true));
            while tried.load(Relaxed) < 1 {
                thread::yield_now();
            }
            drop(others);
            assert_eq!(work.join().unwrap(), Ok(()));
        });
        assert!(tried.load(Relaxed) > 1 && memory.used() == 0);
    }

    #[test]
    fn within_a_job_the_outermost_attempt_is_the_one_that_waits() {
        let memory = Memory::new(100, None);
        let others = Mutex::new(reserve(&memory, None, 60));
        let account = Account::new(&memory, None);
        let (inner, outer) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let job = || {
            inner.fetch_add(1, Relaxed);
            account.reservation().grow(50)
        };
        let outcome = account.retry(
            || {
                // The other works end before the third attempt.
                if outer.fetch_add(1, Relaxed) == 2 {
                    others.lock().take();
                }
                account.retry(job, || true)
            },
            || true,
        );
        assert_eq!(outcome, Ok(()));
        assert_eq!((inner.into_inner(), outer.into_inner()), (3, 3));
    }

    #[test]
    fn work_that_never_fits_does_not_wait() {
        let memory = Memory::new(100, None);
        for (user, bytes) in [(None, 101), (Some(1), 51)] {
            let _other = reserve(&memory, None, 10).unwrap();
            let account = Account::new(&memory, user);
            let tried = AtomicUsize::new(0);
            let job = || {
                tried.fetch_add(1, Relaxed);
                account.reservation().grow(bytes)
            };
            let refused = account.retry(job, || true).unwrap_err();
            assert!(refused.to_string().contains("cache_size"), "{refused}");
            assert_eq!((tried.into_inner(), account.refusal()), (1, Some(refused)));
        }
    }

    #[test]
    fn work_that_is_not_wanted_any_more_does_not_try_again() {
        let memory = Memory::new(100, None);
        let _others = reserve(&memory, None, 60).unwrap();
        let account = Account::new(&memory, None);
        let tried = AtomicUsize::new(0);
        let job = || {
            tried.fetch_add(1, Relaxed);
            account.reservation().grow(50)
        };
        assert!(account.retry(job, || false).is_err());
        assert_eq!(tried.into_inner(), 1);
    }

    proptest! {
        /// Compares with sums over the steps.
        #[test]
        fn it_counts_as_a_naive_one(
            steps in prop::collection::vec((0u32..4, 0u64..400, 0..4), 1..200),
        ) {
            const LIMIT: u64 = 1000;
            let memory = Memory::new(LIMIT, None);
            let mut made: Vec<(u32, Reservation)> = Vec::new();
            let mut most = 0u64;
            for (user, bytes, step) in steps {
                let all: u64 = made.iter().map(|(_, r)| r.bytes()).sum();
                let own = made.iter().filter(|(u, _)| *u == user);
                let own: u64 = own.map(|(_, r)| r.bytes()).sum();
                match step {
                    0 if !made.is_empty() => drop(made.swap_remove(bytes as usize % made.len())),
                    1 if !made.is_empty() => {
                        let at = bytes as usize % made.len();
                        made[at].1.shrink_to(bytes / 2);
                    }
                    _ => {
                        let share = (LIMIT - (all - own)) / 2;
                        let fits = own + bytes <= share && all + bytes <= LIMIT;
                        let reserved = reserve(&memory, Some(user), bytes);
                        prop_assert_eq!(reserved.is_some(), fits);
                        made.extend(reserved.map(|r| (user, r)));
                    }
                }
                let used = made.iter().map(|(_, r)| r.bytes()).sum();
                most = most.max(used);
                prop_assert_eq!((memory.used(), memory.most_used()), (used, most));
            }
        }
    }
}
