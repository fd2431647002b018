//! Extra threads, for work that must not occupy a thread that serves the kernel.
//!
//! A user without such a thread gets one at once, so no other user's work delays this one. Further threads are limited, for
//! each user and for all users together. Waiting requests are in a queue of their user, and free threads take from these
//! queues in turn. A queue costs some hundred bytes a request.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fuser::{Errno, Request};

use h5logfs_common::sync::atomic::{AtomicUsize, Ordering};
use h5logfs_common::sync::{Condvar, Mutex, thread};
use h5logfs_common::task::StopFlag;

use super::service::Service;
use super::watch::Watch;

/// The work of a request. It gets a flag that tells when it must stop, or an error: then there is no work, and the error is
/// the answer.
pub type Job = Box<dyn FnOnce(&Service, Result<&StopFlag, Errno>) + Send>;

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    pub user: u32,
    /// Thread of the calling program; 0 if the daemon cannot see it.
    pub thread: u32,
}

impl From<&Request> for Sender {
    fn from(request: &Request) -> Self {
        Sender {
            user: request.uid(),
            thread: request.pid(),
        }
    }
}

/// Most threads. Each user may have one in any case.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub of_one_user: usize,
    pub of_all_users: usize,
}

/// Assumed number of pending background requests if the kernel does not report it.
const FEW_IN_BACKGROUND: u64 = 512;

/// Most idle threads, and how long they wait for work. `ls -l` of many logs sends one request after the other.
const MOST_IDLE: usize = 4;
const IDLE: Duration = Duration::from_millis(100);

pub struct ExtraThreads {
    service: Arc<Service>,
    watch: Arc<Watch>,
    limits: Limits,
    /// Number of threads elsewhere that count towards the limit of all users.
    beside: Arc<AtomicUsize>,
    pool: Mutex<Pool>,
    /// Notified when a job is handed to an idle thread.
    handed: Condvar,
}

#[derive(Default)]
struct Pool {
    /// Users who have threads.
    users: HashMap<u32, User>,
    /// Users with waiting requests, in the order in which they get the next threads.
    turns: VecDeque<u32>,
    threads: usize,
    waiting: usize,
    /// Number of idle threads without a handed job.
    idle: usize,
    /// Jobs handed to idle threads.
    handed: VecDeque<(Sender, Job)>,
}

#[derive(Default)]
struct User {
    threads: usize,
    queue: VecDeque<(Sender, Job)>,
}

impl ExtraThreads {
    /// A pool. `beside`: number of threads elsewhere that count towards the limit of all users.
    pub fn new(
        service: Arc<Service>,
        watch: &Arc<Watch>,
        limits: Limits,
        beside: Arc<AtomicUsize>,
    ) -> Arc<Self> {
        let threads = Arc::new(ExtraThreads {
            service,
            watch: Arc::clone(watch),
            limits,
            beside,
            pool: Mutex::default(),
            handed: Condvar::new(),
        });
        watch.add_queue(&threads);
        threads
    }

    /// Runs a job in an extra thread, at once or in its turn.
    pub fn run(self: &Arc<Self>, from: Sender, job: Job) {
        // This comes before the lock: the first call reads a file.
        let most = max_waiting();
        let mut pool = self.pool.lock();
        if !pool.may_start(from.user, self.limits()) {
            pool.enqueue(from, job);
            let refused = (pool.waiting > most).then(|| pool.last_of_longest());
            drop(pool);
            if let Some(job) = refused.flatten() {
                self.answer(job, Errno::EAGAIN);
            }
            return;
        }
        pool.start(from.user);
        if pool.idle > 0 {
            pool.idle -= 1;
            pool.handed.push_back((from, job));
            drop(pool);
            self.handed.notify_one();
            return;
        }
        drop(pool);
        self.start(from, job);
    }

    /// The present limits, reduced by occupied threads elsewhere.
    fn limits(&self) -> Limits {
        let elsewhere = self.beside.load(Ordering::Relaxed);
        Limits {
            of_all_users: self.limits.of_all_users.saturating_sub(elsewhere),
            ..self.limits
        }
    }

    /// Starts a thread, which the pool already counts.
    fn start(self: &Arc<Self>, from: Sender, job: Job) {
        let threads = Arc::clone(self);
        let jobs = move || {
            let mut next = Some((from, job));
            while let Some((from, job)) = next {
                // Other jobs must run even after a panic, which is logged.
                let _ = catch_unwind(AssertUnwindSafe(|| threads.work(from, job)));
                next = threads.next(from.user);
            }
        };
        // Without a thread the job drops the reply, and fuser answers EIO.
        if let Err(e) = thread::Builder::new().name("waiting".into()).spawn(jobs) {
            log::error!("cannot start a thread for a request that has to wait: {e}");
            let mut pool = self.pool.lock();
            pool.end(from.user);
            // Jobs that have come meanwhile wait for a thread that ends. Without any thread they would wait for ever.
            let refused = match pool.threads {
                0 => pool.remove(|_| true),
                _ => Vec::new(),
            };
            drop(pool);
            for job in refused {
                self.answer(job, Errno::EAGAIN);
            }
        }
    }

    /// The next job for a thread that has worked for `user`. The thread waits a while for one. It starts another thread if
    /// the limits have risen.
    fn next(self: &Arc<Self>, user: u32) -> Option<(Sender, Job)> {
        let mut pool = self.pool.lock();
        let next = pool.next(user, self.limits());
        if next.is_some() {
            let further = pool.take_turn(self.limits());
            drop(pool);
            if let Some((from, job)) = further {
                self.start(from, job);
            }
            return next;
        }
        if pool.idle >= MOST_IDLE {
            return None;
        }
        pool.idle += 1;
        let until = Instant::now() + IDLE;
        while pool.handed.is_empty() {
            if self.handed.wait_until(&mut pool, until).timed_out() && pool.handed.is_empty() {
                pool.idle -= 1;
                return None;
            }
        }
        pool.handed.pop_front()
    }

    fn work(&self, from: Sender, job: Job) {
        self.watch
            .run(from.thread, |stop| job(&self.service, Ok(stop)));
    }

    fn answer(&self, job: Job, errno: Errno) {
        let _ = catch_unwind(AssertUnwindSafe(|| job(&self.service, Err(errno))));
    }

    /// The calling threads of waiting requests.
    pub fn callers(&self) -> BTreeSet<u32> {
        let pool = self.pool.lock();
        let waiting = pool.users.values().flat_map(|user| &user.queue);
        waiting.map(|(from, _)| from.thread).collect()
    }

    /// Whether no request waits, and no thread exists.
    #[cfg(all(test, feature = "model"))]
    pub fn are_gone(&self) -> bool {
        let pool = self.pool.lock();
        let counts = [pool.threads, pool.waiting, pool.idle, pool.handed.len()];
        counts == [0; 4] && pool.users.is_empty() && pool.turns.is_empty()
    }

    /// Answers the waiting requests of the callers selected by `which`.
    pub fn refuse(&self, which: impl Fn(u32) -> bool, errno: Errno) {
        let refused = self.pool.lock().remove(which);
        for job in refused {
            self.answer(job, errno);
        }
    }
}

/// Most waiting requests. More would fill the kernel's queue, which all users share.
fn max_waiting() -> usize {
    usize::from(max_background()) / 2
}

/// Most pending background requests that the kernel allows, whatever a daemon requests. Read after the daemon's request: the
/// kernel computes it at the first mount.
fn max_background() -> u16 {
    static MOST: LazyLock<u16> = LazyLock::new(|| {
        if rustix::process::geteuid().is_root() {
            return u16::MAX;
        }
        let told = fs::read_to_string("/sys/module/fuse/parameters/max_user_bgreq");
        let told = told.ok().and_then(|told| told.trim().parse::<u64>().ok());
        let told = told.filter(|most| *most > 0).unwrap_or(FEW_IN_BACKGROUND);
        u16::try_from(told).unwrap_or(u16::MAX)
    });
    *MOST
}

impl Pool {
    fn may_start(&self, user: u32, limits: Limits) -> bool {
        match self.users.get(&user).map_or(0, |user| user.threads) {
            0 => true,
            own => own < limits.of_one_user && self.threads < limits.of_all_users,
        }
    }

    /// Counts a new thread of the user.
    fn start(&mut self, user: u32) {
        self.users.entry(user).or_default().threads += 1;
        self.threads += 1;
    }

    /// Counts a thread of the user less.
    fn end(&mut self, number: u32) {
        self.threads -= 1;
        if let Some(user) = self.users.get_mut(&number) {
            user.threads -= 1;
            if user.threads == 0 && user.queue.is_empty() {
                self.users.remove(&number);
            }
        }
    }

    fn enqueue(&mut self, from: Sender, job: Job) {
        let user = self.users.entry(from.user).or_default();
        if user.queue.is_empty() {
            self.turns.push_back(from.user);
        }
        user.queue.push_back((from, job));
        self.waiting += 1;
    }

    /// The next job for a thread that has worked for `user`. Without one the thread counts as ended under the same lock, so
    /// that a later job gets a new thread.
    fn next(&mut self, user: u32, limits: Limits) -> Option<(Sender, Job)> {
        self.end(user);
        self.take_turn(limits)
    }

    /// The next job to get a thread, if the limits allow one.
    fn take_turn(&mut self, limits: Limits) -> Option<(Sender, Job)> {
        let turn = |may: &dyn Fn(&u32) -> bool| self.turns.iter().position(may);
        // A user whose last thread this was keeps it.
        let has_none = |user: &u32| self.users.get(user).is_some_and(|user| user.threads == 0);
        let turn = turn(&has_none).or_else(|| turn(&|user| self.may_start(*user, limits)))?;
        let user = self.turns.remove(turn)?;
        let queue = &mut self.users.get_mut(&user)?.queue;
        let job = queue.pop_front()?;
        if !queue.is_empty() {
            self.turns.push_back(user);
        }
        self.waiting -= 1;
        self.start(user);
        Some(job)
    }

    /// Takes the last job of the user with most waiting requests.
    fn last_of_longest(&mut self) -> Option<Job> {
        let longest = self.users.values_mut().max_by_key(|user| user.queue.len());
        let (_, job) = longest?.queue.pop_back()?;
        self.forget_empty();
        self.waiting -= 1;
        Some(job)
    }

    /// Takes the jobs of the callers selected by `which`.
    fn remove(&mut self, which: impl Fn(u32) -> bool) -> Vec<Job> {
        let mut removed = Vec::new();
        for user in self.users.values_mut() {
            let queue = std::mem::take(&mut user.queue);
            for (from, job) in queue {
                if which(from.thread) {
                    removed.push(job);
                } else {
                    user.queue.push_back((from, job));
                }
            }
        }
        self.waiting -= removed.len();
        self.forget_empty();
        removed
    }

    /// Ends the turns of users without waiting requests.
    fn forget_empty(&mut self) {
        let users = &self.users;
        let waits = |number: &u32| users.get(number).is_some_and(|user| !user.queue.is_empty());
        self.turns.retain(waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        of_one_user: 2,
        of_all_users: 3,
    };

    fn from(user: u32, thread: u32) -> Sender {
        Sender { user, thread }
    }

    /// A request of a user arrives. Returns whether it gets a thread at once.
    fn request(pool: &mut Pool, from: Sender) -> bool {
        let starts = pool.may_start(from.user, LIMITS);
        if starts {
            pool.start(from.user);
        } else {
            pool.enqueue(from, Box::new(|_, _| ()));
        }
        starts
    }

    /// A thread has finished a job of `user`. Returns the next request.
    fn next(pool: &mut Pool, user: u32) -> Option<Sender> {
        pool.next(user, LIMITS).map(|(from, _)| from)
    }

    #[test]
    fn each_user_has_a_thread_and_takes_turns_for_more() {
        let mut pool = Pool::default();
        let mut request = |user, thread| request(&mut pool, from(user, thread));
        assert!(request(1, 10) && request(1, 11) && !request(1, 12) && !request(1, 13));
        assert!(request(2, 20) && !request(2, 21) && !request(2, 22));
        // There are three threads, and this user has none.
        assert!(request(3, 30) && !request(3, 31));
        // The last thread of a user stays with that user.
        assert_eq!(next(&mut pool, 3), Some(from(3, 31)));
        assert_eq!(next(&mut pool, 3), None);
        assert_eq!(next(&mut pool, 1), Some(from(1, 12)));
        assert_eq!(next(&mut pool, 1), Some(from(2, 21)));
        assert_eq!(next(&mut pool, 2), Some(from(1, 13)));
        assert_eq!(next(&mut pool, 1), Some(from(2, 22)));
        assert_eq!(pool.waiting, 0);
        for user in [1, 2, 2] {
            assert_eq!(next(&mut pool, user), None);
        }
        assert!(pool.users.is_empty() && pool.turns.is_empty() && pool.threads == 0);
    }

    #[test]
    fn threads_elsewhere_leave_fewer() {
        let mut pool = Pool::default();
        assert!(request(&mut pool, from(1, 10)));
        (11..14).for_each(|thread| pool.enqueue(from(1, thread), Box::new(|_, _| ())));
        let mut take = |elsewhere: usize| {
            let of_all_users = LIMITS.of_all_users - elsewhere;
            let limits = Limits {
                of_all_users,
                ..LIMITS
            };
            pool.take_turn(limits).map(|(from, _)| from.thread)
        };
        assert_eq!([take(2), take(1), take(0)], [None, Some(11), None]);
        // A user without a thread gets one in any case.
        assert!(pool.may_start(
            2,
            Limits {
                of_all_users: 0,
                ..LIMITS
            }
        ));
    }

    #[test]
    fn the_longest_queue_gives_way() {
        let mut pool = Pool::default();
        for thread in 0..5 {
            request(&mut pool, from(1, thread));
        }
        assert!(request(&mut pool, from(2, 20)) && !request(&mut pool, from(2, 21)));
        assert!(pool.last_of_longest().is_some());
        let callers = |pool: &Pool| -> Vec<u32> {
            let waiting = pool.users.values().flat_map(|user| &user.queue);
            let mut callers: Vec<u32> = waiting.map(|(from, _)| from.thread).collect();
            callers.sort_unstable();
            callers
        };
        assert_eq!((callers(&pool), pool.waiting), (vec![2, 3, 21], 3));
        // Removed jobs leave no turn behind.
        assert_eq!(pool.remove(|thread| thread >= 3).len(), 2);
        assert_eq!((callers(&pool), pool.waiting), (vec![2], 1));
        assert_eq!(pool.turns, [1]);
        assert!(pool.last_of_longest().is_some() && pool.last_of_longest().is_none());
    }
}
