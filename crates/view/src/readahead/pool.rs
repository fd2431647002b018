//! The threads of read-ahead.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

use super::Job;
use h5logfs_common::parallel;

/// The most jobs that may wait. Beyond that, the oldest are dropped.
const MAX_WAITING: usize = 256;
/// The most threads.
const MAX_THREADS: usize = 8;

/// A few threads, which start when there is something to do and end when the pool is dropped. They have the priority of
/// the thread that made the pool, not that of a reader that needs one.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    priority: Option<i32>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            shared: Arc::default(),
            threads: Mutex::default(),
            priority: getpriority_process(None).ok(),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Number of threads that wait for a job.
    idle: usize,
    closed: bool,
}

impl Pool {
    /// Adds jobs, and drops `overtaken`, whose chunk the reader now makes itself.
    pub(super) fn push(&self, overtaken: &Job, jobs: impl Iterator<Item = Job>) {
        // The iterator looks into the cache, so it runs before the lock is taken.
        let jobs: Vec<Job> = jobs.collect();
        let mut queue = self.shared.queue.lock();
        queue.waiting.retain(|job| !job.is_same(overtaken));
        queue.waiting.extend(jobs);
        let too_many = queue.waiting.len().saturating_sub(MAX_WAITING);
        queue.waiting.drain(..too_many);
        let (waiting, idle) = (queue.waiting.len(), queue.idle);
        drop(queue);
        if waiting > idle {
            self.start_one();
        }
        for _ in 0..waiting.min(idle) {
            self.shared.wake.notify_one();
        }
    }

    fn start_one(&self) {
        let mut threads = self.threads.lock();
        if threads.len() >= parallel::cores().min(MAX_THREADS) {
            return;
        }
        let (shared, priority) = (Arc::clone(&self.shared), self.priority);
        let started = thread::Builder::new()
            .name("read-ahead".into())
            .spawn(move || {
                if let Some(priority) = priority {
                    // Linux sets the priority of a thread like that of a process. A thread that cannot have it goes on
                    // with its own.
                    let _ = setpriority_process(Some(gettid()), priority);
                }
                shared.work();
            });
        match started {
            Ok(thread) => threads.push(thread),
            Err(e) => log::debug!("cannot start a thread for read-ahead: {e}"),
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            // A panic is dropped like an error, because the reader will meet it.
            let took_too_long = catch_unwind(AssertUnwindSafe(|| job.run()));
            if matches!(took_too_long, Ok(true)) {
                // The other chunks would take too long, too.
                self.queue
                    .lock()
                    .waiting
                    .retain(|other| !other.is_beside(&job));
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.waiting.pop_front() {
                return Some(job);
            }
            queue.idle += 1;
            self.wake.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.wake.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // One of the threads may itself drop the last view, and with it the budget.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
