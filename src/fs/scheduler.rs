//! The scheduler of requests: it decides which thread serves a request.
//!
//! Few threads serve the kernel, and a scan may take as long as its limits allow. So these threads never wait for a scan. A
//! request that has to wait moves to an extra thread, and the mount goes on serving all other files.
//!
//! Reads may take long, too: one chunk of a hostile file can cost minutes. So on a shared mount each user may occupy half of
//! the threads that serve the kernel, and all users together leave one of them free. That thread takes up the next request at
//! once, whoever sends it. Requests without a place run in [`ExtraThreads`]. Each user has one. There are more only while
//! reads occupy, in both kinds together, no more threads than serve the kernel.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fuser::Errno;

use h5logfs_catalog::{Lookup, Wait};
use h5logfs_common::error::Result;
use h5logfs_common::sync::Mutex;
use h5logfs_common::sync::atomic::{AtomicUsize, Ordering};
use h5logfs_common::task::StopFlag;

use super::errno::{guarded, guarded_until, guarded_waiting, known};
use super::extra_threads::{ExtraThreads, Job, Limits, Sender};
use super::priority::Priorities;
use super::service::Service;
use super::watch::Watch;

/// Most extra threads of one user that wait for scans. Further requests wait in a queue.
const MAX_WAITING_THREADS: usize = 64;

/// Fewest threads that serve the kernel on a shared mount: one stays free.
const FEWEST_SHARED: usize = 2;

pub struct Scheduler {
    service: Arc<Service>,
    watch: Arc<Watch>,
    /// The places, on a shared mount.
    places: Option<Places>,
    /// Reads without a place.
    reads: Arc<ExtraThreads>,
    /// Requests that wait for scans.
    scans: Arc<ExtraThreads>,
}

/// The rules by which a mount schedules its requests.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Number of threads that serve the kernel.
    pub threads: usize,
    /// Whether several users may use the mount.
    pub is_shared: bool,
    /// Processor time allowed for one request.
    pub cpu: Duration,
}

impl Rules {
    /// Rules with enough threads.
    pub fn new(threads: usize, is_shared: bool, cpu: Duration) -> Self {
        let fewest = if is_shared { FEWEST_SHARED } else { 1 };
        Rules {
            threads: threads.max(fewest),
            is_shared,
            cpu,
        }
    }
}

/// The places of requests in the threads that serve the kernel.
struct Places {
    of_one_user: usize,
    of_all_users: usize,
    taken: Mutex<Taken>,
    /// Number of taken places.
    number: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Taken {
    users: HashMap<u32, usize>,
    all: usize,
}

/// Permits a request to run in a thread that serves the kernel.
struct Place<'a> {
    places: Option<&'a Places>,
    user: u32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(places) = self.places else { return };
        let mut taken = places.taken.lock();
        taken.all -= 1;
        places.number.store(taken.all, Ordering::Relaxed);
        if let Some(own) = taken.users.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                taken.users.remove(&self.user);
            }
        }
    }
}

impl Places {
    fn new(threads: usize, number: &Arc<AtomicUsize>) -> Self {
        Places {
            of_one_user: (threads / 2).max(1),
            of_all_users: threads - 1,
            taken: Mutex::default(),
            number: Arc::clone(number),
        }
    }

    fn take(&self, user: u32) -> bool {
        let taken = &mut *self.taken.lock();
        let own = taken.users.get(&user).copied().unwrap_or(0);
        let is_free = own < self.of_one_user && taken.all < self.of_all_users;
        if is_free {
            taken.users.insert(user, own + 1);
            taken.all += 1;
            self.number.store(taken.all, Ordering::Relaxed);
        }
        is_free
    }
}

impl Scheduler {
    pub fn new(service: Arc<Service>, rules: Rules) -> Self {
        let priorities = rules.is_shared.then(Priorities::of_process).flatten();
        let watch = Watch::start(rules.cpu, priorities);
        let threads =
            |limits, beside| ExtraThreads::new(Arc::clone(&service), &watch, limits, beside);
        let taken = Arc::new(AtomicUsize::new(0));
        Scheduler {
            places: rules.is_shared.then(|| Places::new(rules.threads, &taken)),
            reads: threads(
                Limits {
                    of_one_user: (rules.threads / 2).max(1),
                    of_all_users: rules.threads,
                },
                taken,
            ),
            scans: threads(
                Limits {
                    of_one_user: MAX_WAITING_THREADS,
                    of_all_users: usize::MAX,
                },
                Arc::new(AtomicUsize::new(0)),
            ),
            service,
            watch,
        }
    }

    /// Stops work.
    pub fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Runs `work` and passes the outcome to `answer`. This thread runs `work` with [`Wait::No`]. If it needs a scan, or if
    /// there is no place, an extra thread runs it with [`Wait::Yes`].
    pub fn run<T>(
        &self,
        from: Sender,
        work: impl Fn(&Service, Wait) -> Result<Lookup<T>> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        self.run_then(from, work, answer, |_| ());
    }

    /// As [`run`](Self::run). An extra thread runs `then` after the answer.
    pub fn run_then<T>(
        &self,
        from: Sender,
        work: impl Fn(&Service, Wait) -> Result<Lookup<T>> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
        then: impl FnOnce(&Service) + Send + 'static,
    ) {
        if let Some(_place) = self.place(from.user) {
            match guarded(|| work(&self.service, Wait::No)) {
                Ok(Lookup::Known(outcome)) => return answer(Ok(outcome)),
                Ok(Lookup::NeedsScan) => {}
                Err(errno) => return answer(Err(errno)),
            }
        }
        self.wait(from, move |service, stop| {
            if let Err(errno) = stop {
                return answer(Err(errno));
            }
            answer(guarded_waiting(|wait| work(service, wait)));
            then(service);
        });
    }

    /// As [`run`](Self::run), for work that may take long after the scan: it runs among the reads of the user. `scan` runs
    /// before, if it is needed.
    pub fn run_long<T: 'static>(
        &self,
        from: Sender,
        scan: impl FnOnce(&Service) + Send + 'static,
        work: impl Fn(&Service, Wait, &StopFlag) -> Result<Lookup<T>> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let (reads, scans) = (Arc::clone(&self.reads), Arc::clone(&self.scans));
        let attempt = move |service: &Service, wait, stop: Result<&StopFlag, Errno>| {
            stop.and_then(|stop| guarded_until(stop, || work(service, wait, stop)))
        };
        self.read(from, move |service, stop| {
            match attempt(service, Wait::No, stop) {
                Ok(Lookup::Known(outcome)) => return answer(Ok(outcome)),
                Ok(Lookup::NeedsScan) => {}
                Err(errno) => return answer(Err(errno)),
            }
            let again: Job = Box::new(move |service, stop| {
                answer(attempt(service, Wait::Yes, stop).and_then(known));
            });
            let first: Job = Box::new(move |service, stop| match stop {
                Ok(_) => {
                    scan(service);
                    reads.run(from, again);
                }
                Err(errno) => again(service, Err(errno)),
            });
            scans.run(from, first);
        });
    }

    /// Takes a place; `None` if the user, or all users together, occupy too many threads.
    fn place(&self, user: u32) -> Option<Place<'_>> {
        let places = self.places.as_ref();
        let is_free = places.is_none_or(|places| places.take(user));
        is_free.then(|| Place { places, user })
    }

    /// Runs a read: in this thread, or in an extra one if there is no place.
    pub fn read(
        &self,
        from: Sender,
        job: impl FnOnce(&Service, Result<&StopFlag, Errno>) + Send + 'static,
    ) {
        match self.place(from.user) {
            Some(_place) => self
                .watch
                .run(from.thread, |stop| job(&self.service, Ok(stop))),
            None => self.reads.run(from, Box::new(job)),
        }
    }

    /// Runs a job that may wait for scans in an extra thread.
    pub fn wait(
        &self,
        from: Sender,
        job: impl FnOnce(&Service, Result<&StopFlag, Errno>) + Send + 'static,
    ) {
        self.scans.run(from, Box::new(job));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{self, Receiver, Sender as Tell};
    use std::thread;

    use crate::fs::source_tree::{PathFilter, SourceTree};
    use h5logfs_catalog::Catalog;
    use h5logfs_log::source_dir::SourceDir;
    use h5logfs_scan::InProcess;
    use h5logfs_view::cache::MemoryLimits;

    use super::*;

    fn scheduler(threads: usize) -> Scheduler {
        let rules = Rules::new(threads, true, Duration::from_secs(1000));
        Scheduler::new(service(), rules)
    }

    pub(super) fn service() -> Arc<Service> {
        let dir = SourceDir::open(Path::new("/")).unwrap();
        let catalog = Catalog::new(dir, MemoryLimits::each(1 << 20), InProcess::default());
        let source = SourceTree::new(catalog, PathFilter::default());
        Arc::new(Service::new(source, Path::new("/mnt")).unwrap())
    }

    /// A pool of one thread, for all users together.
    fn one_thread(watch: &Arc<Watch>) -> Arc<ExtraThreads> {
        let limits = Limits {
            of_one_user: 1,
            of_all_users: 1,
        };
        ExtraThreads::new(service(), watch, limits, Arc::new(AtomicUsize::new(0)))
    }

    fn of(user: u32) -> Sender {
        Sender { user, thread: 0 }
    }

    /// A job that sends its user's number when it begins, and runs until the returned sender is dropped.
    fn long(
        user: u32,
        begun: &Tell<u32>,
    ) -> (
        impl FnOnce(&Service, Result<&StopFlag, Errno>) + Send + 'static,
        Tell<()>,
    ) {
        let (end, told) = mpsc::channel::<()>();
        let begun = begun.clone();
        let job = move |_: &Service, stop: Result<&StopFlag, Errno>| {
            assert!(stop.is_ok());
            begun.send(user).unwrap();
            let _ = told.recv();
        };
        (job, end)
    }

    fn soon(heard: &Receiver<u32>) -> u32 {
        heard.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn much_waiting_for_scans_occupies_no_thread_that_serves_the_kernel() {
        let scheduler = scheduler(2);
        let (begun, heard) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..MAX_WAITING_THREADS + 1 {
            let (job, end) = long(1, &begun);
            scheduler.wait(of(1), job);
            ends.push(end);
        }
        assert!((0..MAX_WAITING_THREADS).all(|_| soon(&heard) == 1));
        assert!(heard.try_recv().is_err());
        // Another user gets a thread at once. The last job of the first user runs when a thread is free.
        let (job, end) = long(2, &begun);
        scheduler.wait(of(2), job);
        assert_eq!(soon(&heard), 2);
        drop(end);
        drop(ends);
        assert_eq!(soon(&heard), 1);
    }

    #[test]
    fn a_thread_that_serves_the_kernel_stays_free() {
        let (begun, heard) = mpsc::channel();
        let scheduler = scheduler(4);
        // Each user may have two of the four threads, and all together three.
        let jobs: Vec<_> = [1, 1, 2].map(|user| (user, long(user, &begun))).into();
        thread::scope(|scope| {
            let mut ends = Vec::new();
            let scheduler = &scheduler;
            for (user, (job, end)) in jobs {
                ends.push(end);
                scope.spawn(move || scheduler.read(of(user), job));
            }
            assert_eq!((0..3).map(|_| soon(&heard)).sum::<u32>(), 4);
            // Further reads run in extra threads: these calls return before the jobs end.
            for user in [1, 2, 3] {
                let (job, end) = long(user, &begun);
                scheduler.read(of(user), job);
                assert_eq!(soon(&heard), user);
                ends.push(end);
            }
            drop(ends);
        });
        let here = thread::current().id();
        let (told, answer) = mpsc::channel();
        scheduler.read(of(3), move |_, _| {
            told.send(thread::current().id() == here).unwrap();
        });
        assert_eq!(answer.recv(), Ok(true));
    }

    #[test]
    fn long_work_runs_among_the_reads_of_its_user_after_the_scan() {
        let scheduler = scheduler(2);
        let (told, heard) = mpsc::channel();
        let scanned = told.clone();
        let scan = move |_: &Service| scanned.send("scan").unwrap();
        let work = |_: &Service, wait, _: &StopFlag| match wait {
            Wait::No => Ok(Lookup::NeedsScan),
            Wait::Yes => Ok(Lookup::Known("work")),
        };
        scheduler.run_long(of(1), scan, work, move |outcome| {
            told.send(outcome.unwrap()).unwrap();
        });
        assert_eq!(heard.iter().collect::<Vec<_>>(), ["scan", "work"]);
    }

    #[test]
    fn jobs_behind_a_panic_run() {
        let threads = one_thread(&Watch::start(Duration::from_secs(1000), None));
        let (begun, heard) = mpsc::channel();
        threads.run(of(1), Box::new(|_, _| panic!("a bug")));
        let (job, _end) = long(1, &begun);
        threads.run(of(1), Box::new(job));
        assert_eq!(soon(&heard), 1);
    }

    #[test]
    fn waiting_requests_end_with_their_callers_and_with_the_mount() {
        let watch = Watch::start(Duration::from_secs(1000), None);
        let threads = one_thread(&watch);
        let (begun, heard) = mpsc::channel();
        let (job, end) = long(1, &begun);
        threads.run(of(1), Box::new(job));
        assert_eq!(soon(&heard), 1);
        let (told, answers) = mpsc::channel();
        let ended = thread::spawn(|| rustix::thread::gettid().as_raw_pid().cast_unsigned());
        for thread in [ended.join().unwrap(), 0] {
            let told = told.clone();
            let job: Job = Box::new(move |_, stop| {
                let errno = stop.unwrap_err().code();
                told.send((thread, errno)).unwrap();
            });
            threads.run(Sender { user: 1, thread }, job);
        }
        let (thread, errno) = answers.recv().unwrap();
        assert_eq!((thread != 0, errno), (true, Errno::EINTR.code()));
        watch.end();
        assert_eq!(answers.recv().unwrap(), (0, Errno::ENOTCONN.code()));
        drop(end);
    }

    #[test]
    fn one_thread_is_not_enough_for_several_users() {
        let threads = |is_shared| Rules::new(1, is_shared, Duration::ZERO).threads;
        assert_eq!((threads(false), threads(true)), (1, 2));
    }
}

#[cfg(all(test, feature = "model"))]
mod model {
    // Steps of the model itself, between which no other thread runs.
    use std::sync::atomic::{AtomicU32 as Uninterrupted, Ordering};

    use h5logfs_common::sync::{model, thread};

    use super::tests::service;
    use super::*;

    /// The users of the requests that each of two threads takes from the kernel.
    const REQUESTS: [&[u32]; 2] = [&[1, 2, 1], &[1, 1, 2]];

    #[test]
    fn each_request_is_answered_once_and_a_thread_stays_free() {
        model::check(|| {
            let rules = Rules::new(REQUESTS.len(), true, Duration::from_secs(1000));
            let scheduler = Arc::new(Scheduler::new(service(), rules));
            let answers = Arc::new(Uninterrupted::new(0));
            // Threads that serve the kernel, and work.
            let occupied = Arc::new(Uninterrupted::new(0));
            let serving = REQUESTS.map(|users| {
                let (scheduler, answers) = (Arc::clone(&scheduler), Arc::clone(&answers));
                let occupied = Arc::clone(&occupied);
                thread::spawn(move || {
                    let here = thread::current().id();
                    for user in users {
                        let (answers, occupied) = (Arc::clone(&answers), Arc::clone(&occupied));
                        let from = Sender {
                            user: *user,
                            thread: 0,
                        };
                        scheduler.read(from, move |_, stop| {
                            let serves = thread::current().id() == here;
                            if serves {
                                let others = occupied.fetch_add(1, Ordering::SeqCst);
                                assert_eq!(others, 0, "no thread is free");
                            }
                            if stop.is_ok() {
                                thread::yield_now();
                            }
                            if serves {
                                occupied.fetch_sub(1, Ordering::SeqCst);
                            }
                            answers.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                })
            });
            scheduler.watch().end();
            for thread in serving {
                thread.join().unwrap();
            }
            while !scheduler.reads.are_gone() {
                thread::yield_now();
            }
            let requests = REQUESTS.iter().map(|users| users.len()).sum::<usize>();
            assert_eq!(answers.load(Ordering::SeqCst) as usize, requests);
        });
    }
}
