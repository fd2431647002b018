//! A lane for requests that have to wait for a scan.
//!
//! The threads that serve the kernel are few, and a scan may take as long as its limits say. So none of them
//! waits for one: what would have to is done by a thread of its own, and a mount of which some files are
//! slow to scan, or made to be so, goes on serving all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fuser::Errno;

use crate::error::Result;

use super::errno::{guarded, guarded_now};
use super::service::Service;

/// Requests that wait at the same time, at most. Those after them wait where they are.
const MOST: usize = 1024;

/// Does requests, of which some have to wait.
#[derive(Debug)]
pub struct Lane {
    service: Arc<Service>,
    waiting: Arc<AtomicUsize>,
}

/// One of those that wait, until this goes.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lane {
    pub fn new(service: Arc<Service>) -> Self {
        Lane {
            service,
            waiting: Arc::default(),
        }
    }

    /// Does `work`, here and now if that needs no scan, and gives the outcome to `answer`.
    pub fn run<T>(
        &self,
        work: impl Fn(&Service) -> Result<T> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        match guarded_now(|| work(&self.service)) {
            Some(outcome) => answer(outcome),
            None => self.wait(move |service| answer(guarded(|| work(service)))),
        }
    }

    /// Does a job that has to wait.
    pub fn wait(&self, job: impl FnOnce(&Service) + Send + 'static) {
        let there = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(&self.waiting));
        let service = Arc::clone(&self.service);
        let job = move || {
            let _waiting = waiting;
            job(&service);
        };
        if there >= MOST {
            return job();
        }
        // Where there is no thread to be had, the answer goes with the job, and fuser says EIO.
        if let Err(e) = thread::Builder::new().name("waiting".into()).spawn(job) {
            log::error!("no thread for a request that has to wait: {e}");
        }
    }
}
