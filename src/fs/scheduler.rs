//! The scheduler of requests: it decides which thread serves a request.
//!
//! Few threads serve the kernel, and a scan may take as long as its limits allow. So these threads never wait for a
//! scan. A request that has to wait moves to an extra thread, and the mount goes on serving all other files.
//!
//! Reads may take long too: one chunk of a hostile file can cost minutes. On a mount that users share, each user may
//! occupy half of the threads that serve the kernel, and as many extra threads for reads. More would take memory for
//! as many chunks.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use fuser::Errno;
use parking_lot::Mutex;

use h5logfs_catalog::{Lookup, Wait};
use h5logfs_core::error::Result;

use super::errno::{guarded, guarded_waiting};
use super::service::Service;

/// The most extra threads of one user that wait for scans. Further requests wait in a queue.
const MAX_WAITING_THREADS: usize = 64;

type Job = Box<dyn FnOnce(&Service) + Send>;

pub struct Scheduler {
    service: Arc<Service>,
    /// Where users share the mount.
    quota: Option<Quota>,
    /// Reads beyond the quota.
    reads: Arc<ExtraThreads>,
    /// Requests that wait for scans.
    scans: Arc<ExtraThreads>,
}

/// The share of each user in the threads that serve the kernel.
struct Quota {
    threads: usize,
    in_use: Mutex<HashMap<u32, usize>>,
}

/// Permits a request to run in a thread that serves the kernel.
struct Permit<'a> {
    quota: Option<&'a Quota>,
    user: u32,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let Some(quota) = self.quota else { return };
        let mut in_use = quota.in_use.lock();
        if let Some(threads) = in_use.get_mut(&self.user) {
            *threads -= 1;
            if *threads == 0 {
                in_use.remove(&self.user);
            }
        }
    }
}

/// Extra threads, as many as there are jobs, but not more than a maximum for each user.
struct ExtraThreads {
    max_per_user: usize,
    users: Mutex<HashMap<u32, UserJobs>>,
}

#[derive(Default)]
struct UserJobs {
    threads: usize,
    queue: VecDeque<Job>,
}

impl ExtraThreads {
    fn new(max_per_user: usize) -> Arc<Self> {
        Arc::new(ExtraThreads {
            max_per_user,
            users: Mutex::default(),
        })
    }

    fn run(self: &Arc<Self>, service: &Arc<Service>, user: u32, job: Job) {
        let mut users = self.users.lock();
        let jobs = users.entry(user).or_default();
        if jobs.threads >= self.max_per_user {
            jobs.queue.push_back(job);
            return;
        }
        jobs.threads += 1;
        drop(users);
        let (threads, service) = (Arc::clone(self), Arc::clone(service));
        let jobs = move || {
            let mut next = Some(job);
            while let Some(job) = next {
                // After a panic, which is logged, the jobs in the queue still have to run.
                let _ = catch_unwind(AssertUnwindSafe(|| job(&service)));
                next = threads.next_job(user);
            }
        };
        // Without a thread the reply is dropped with the job, and fuser answers EIO.
        if let Err(e) = thread::Builder::new().name("waiting".into()).spawn(jobs) {
            log::error!("no thread for a request that has to wait: {e}");
            let _unanswered = Self::end_thread(&mut self.users.lock(), user);
        }
    }

    /// The next job of the user. Without one the thread counts as ended under the same lock, so that a later job gets a
    /// new thread.
    fn next_job(&self, user: u32) -> Option<Job> {
        let mut users = self.users.lock();
        let job = users.get_mut(&user)?.queue.pop_front();
        if job.is_none() {
            Self::end_thread(&mut users, user);
        }
        job
    }

    /// Counts one thread less. Returns the jobs of a user without a thread.
    fn end_thread(users: &mut HashMap<u32, UserJobs>, user: u32) -> Option<UserJobs> {
        let jobs = users.get_mut(&user)?;
        jobs.threads -= 1;
        if jobs.threads == 0 {
            users.remove(&user)
        } else {
            None
        }
    }
}

impl Scheduler {
    /// `threads`: how many serve the kernel.
    pub fn new(service: Arc<Service>, threads: usize, is_shared: bool) -> Self {
        let share = (threads / 2).max(1);
        Scheduler {
            service,
            quota: is_shared.then(|| Quota {
                threads: share,
                in_use: Mutex::default(),
            }),
            reads: ExtraThreads::new(share),
            scans: ExtraThreads::new(MAX_WAITING_THREADS),
        }
    }

    /// Runs `work` for `user` and passes the outcome to `answer`. `work` is run in this thread with [`Wait::No`]. Where
    /// it needs a scan, or the user occupies too many threads, an extra thread runs it with [`Wait::Yes`].
    pub fn run<T>(
        &self,
        user: u32,
        work: impl Fn(&Service, Wait) -> Result<Lookup<T>> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        self.run_then(user, work, answer, |_| ());
    }

    /// The same. An extra thread runs `then` after the answer.
    pub fn run_then<T>(
        &self,
        user: u32,
        work: impl Fn(&Service, Wait) -> Result<Lookup<T>> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
        then: impl FnOnce(&Service) + Send + 'static,
    ) {
        if let Some(_permit) = self.permit(user) {
            match guarded(|| work(&self.service, Wait::No)) {
                Ok(Lookup::Known(outcome)) => return answer(Ok(outcome)),
                Ok(Lookup::NeedsScan) => {}
                Err(errno) => return answer(Err(errno)),
            }
        }
        self.wait(user, move |service| {
            answer(guarded_waiting(|wait| work(service, wait)));
            then(service);
        });
    }

    /// `None` where the user occupies the whole quota.
    fn permit(&self, user: u32) -> Option<Permit<'_>> {
        let quota = self.quota.as_ref();
        if let Some(quota) = quota {
            let mut in_use = quota.in_use.lock();
            let threads = in_use.entry(user).or_default();
            if *threads >= quota.threads {
                return None;
            }
            *threads += 1;
        }
        Some(Permit { quota, user })
    }

    /// Runs a read of `user`: in this thread, or in an extra one where the user occupies too many threads.
    pub fn read(&self, user: u32, job: impl FnOnce(&Service) + Send + 'static) {
        match self.permit(user) {
            Some(_permit) => job(&self.service),
            None => self.reads.run(&self.service, user, Box::new(job)),
        }
    }

    /// Runs a job that may wait for scans in an extra thread.
    pub fn wait(&self, user: u32, job: impl FnOnce(&Service) + Send + 'static) {
        self.scans.run(&self.service, user, Box::new(job));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use crate::fs::source_tree::{PathFilter, SourceTree};
    use h5logfs_catalog::Catalog;
    use h5logfs_core::log::source_dir::SourceDir;
    use h5logfs_core::view::cache::MemoryLimits;
    use h5logfs_scan::InProcess;

    use super::*;

    fn scheduler(threads: usize, is_shared: bool) -> Scheduler {
        let dir = SourceDir::open(Path::new("/")).unwrap();
        let catalog = Catalog::new(dir, MemoryLimits::each(1 << 20), InProcess::default());
        let service = Service::new(
            SourceTree::new(catalog, PathFilter::default()),
            Path::new("/mnt"),
        )
        .unwrap();
        Scheduler::new(Arc::new(service), threads, is_shared)
    }

    /// A job that sends a message when it begins, and runs until the returned sender is dropped.
    fn long(begun: &Sender<()>) -> (impl FnOnce(&Service) + Send + 'static, Sender<()>) {
        let (end, told) = mpsc::channel::<()>();
        let begun = begun.clone();
        let job = move |_: &Service| {
            begun.send(()).unwrap();
            let _ = told.recv();
        };
        (job, end)
    }

    fn soon(heard: &Receiver<()>) -> bool {
        heard.recv_timeout(Duration::from_secs(20)).is_ok()
    }

    #[test]
    fn who_waits_much_holds_up_no_thread_that_serves_others() {
        let scheduler = scheduler(1, true);
        let (begun, heard) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..MAX_WAITING_THREADS + 1 {
            let (job, end) = long(&begun);
            scheduler.wait(1, job);
            ends.push(end);
        }
        assert!((0..MAX_WAITING_THREADS).all(|_| soon(&heard)));
        assert!(heard.try_recv().is_err());
        // Another user gets a thread at once. The last job of the first user runs when a thread is free.
        let (job, end) = long(&begun);
        scheduler.wait(2, job);
        assert!(soon(&heard));
        drop(end);
        drop(ends);
        assert!(soon(&heard));
    }

    #[test]
    fn nobody_has_all_threads_that_serve_the_kernel() {
        let (begun, heard) = mpsc::channel();
        let scheduler = scheduler(4, true);
        let jobs: Vec<_> = (0..2).map(|_| long(&begun)).collect();
        thread::scope(|scope| {
            let mut ends = Vec::new();
            for (job, end) in jobs {
                ends.push(end);
                scope.spawn(|| scheduler.read(1, job));
            }
            assert!(soon(&heard) && soon(&heard));
            // The third read runs in an extra thread: this call returns before the job ends.
            let (third, end) = long(&begun);
            scheduler.read(1, third);
            assert!(soon(&heard));
            let here = thread::current().id();
            let (told, answer) = mpsc::channel();
            scheduler.read(2, move |_| {
                told.send(thread::current().id() == here).unwrap()
            });
            assert_eq!(answer.recv(), Ok(true));
            drop((ends, end));
        });
    }

    #[test]
    fn jobs_behind_a_panic_run() {
        let service = scheduler(1, false).service;
        let threads = ExtraThreads::new(1);
        let (told, heard) = mpsc::channel();
        threads.run(&service, 1, Box::new(|_| panic!("a bug")));
        threads.run(&service, 1, Box::new(move |_| told.send(()).unwrap()));
        assert!(soon(&heard));
    }
}
