//! A lane for requests that take long, and who may be in the way of whom.
//!
//! The threads that serve the kernel are few, and a scan may take as long as its limits say. So none of them
//! waits for one: what would have to is done by a thread of its own, and a mount of which some files are
//! slow to scan, or made to be so, goes on serving all others. Reads may take long, too: a file can be made so that
//! one chunk costs minutes. So no user has more than half of these threads, and as many besides for the reads that he
//! asks for at the same time: more would take memory for as many chunks.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread;

use fuser::Errno;
use parking_lot::Mutex;

use h5logfs_core::error::Result;

use super::errno::{guarded, guarded_now};
use super::service::Service;

/// Requests of one user that wait for scans at the same time in threads of their own. Those after them wait in a queue:
/// there are never more than the user has threads.
const MOST_WAITING: usize = 64;

/// What a thread of their own does for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Reads,
    /// And whatever else may have to wait.
    Scans,
}

type Job = Box<dyn FnOnce(&Service) + Send>;

/// Does requests, of which some take long.
#[derive(Debug)]
pub struct Lane {
    service: Arc<Service>,
    /// Of the threads that serve the kernel, those that one user may have.
    most_here: usize,
    users: Arc<Users>,
}

/// What users have in work, by their numbers; none has nothing.
#[derive(Debug, Default)]
struct Users(Mutex<HashMap<(u32, Kind), Work>>);

#[derive(Default)]
struct Work {
    /// Requests that threads do which serve the kernel.
    here: usize,
    /// Threads of their own.
    waiting: usize,
    queue: VecDeque<Job>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued = self.queue.len();
        write!(
            f,
            "{} here, {} waiting, {queued} queued",
            self.here, self.waiting
        )
    }
}

impl Users {
    /// Changes what is known of a user, which is nothing where he has nothing in work.
    fn change<T>(&self, user: (u32, Kind), change: impl FnOnce(&mut Work) -> T) -> T {
        let mut users = self.0.lock();
        let work = users.entry(user).or_default();
        let outcome = change(work);
        if work.here == 0 && work.waiting == 0 {
            users.remove(&user);
        }
        outcome
    }
}

/// One of a user's requests in a thread that serves the kernel, until this goes.
struct Here<'a>(&'a Users, u32);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.change((self.1, Kind::Reads), |work| work.here -= 1);
    }
}

/// One of a user's threads of their own, until this goes, or there is nothing left to do.
struct Waiting {
    users: Arc<Users>,
    user: (u32, Kind),
    has_left: bool,
}

impl Waiting {
    /// The next job. Whoever finds none has left in the same moment: a job that comes after that gets a new thread.
    fn next(&mut self) -> Option<Job> {
        let job = self.users.change(self.user, |work| {
            let job = work.queue.pop_front();
            work.waiting -= usize::from(job.is_none());
            job
        });
        self.has_left = job.is_none();
        job
    }
}

impl Drop for Waiting {
    /// There was no such thread, or it has panicked.
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        // Nobody would do what is queued behind the last one.
        let _unanswered = self.users.change(self.user, |work| {
            work.waiting -= 1;
            match work.waiting {
                0 => std::mem::take(&mut work.queue),
                _ => VecDeque::new(),
            }
        });
    }
}

impl Lane {
    /// `threads`: those that serve the kernel, for several users where `is_shared`.
    pub fn new(service: Arc<Service>, threads: usize, is_shared: bool) -> Self {
        Lane {
            service,
            most_here: match is_shared {
                true => (threads / 2).max(1),
                false => usize::MAX,
            },
            users: Arc::default(),
        }
    }

    /// Does `work` for `user`, here and now if that needs no scan and he has not too much in work, and gives the
    /// outcome to `answer`.
    pub fn run<T>(
        &self,
        user: u32,
        work: impl Fn(&Service) -> Result<T> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        self.run_then(user, work, answer, |_| ());
    }

    /// The same, and where the request had to wait, `then` what is likely to be asked for next.
    pub fn run_then<T>(
        &self,
        user: u32,
        work: impl Fn(&Service) -> Result<T> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
        then: impl FnOnce(&Service) + Send + 'static,
    ) {
        let done = self
            .here(user)
            .and_then(|_here| guarded_now(|| work(&self.service)));
        match done {
            Some(outcome) => answer(outcome),
            None => self.wait(user, move |service| {
                answer(guarded(|| work(service)));
                then(service);
            }),
        }
    }

    /// The right to do a request of `user` in this thread, which serves the kernel. `None` where he has enough of them.
    fn here(&self, user: u32) -> Option<Here<'_>> {
        let may = self.users.change((user, Kind::Reads), |work| {
            let may = work.here < self.most_here;
            work.here += usize::from(may);
            may
        });
        may.then(|| Here(&self.users, user))
    }

    /// Does a read of `user`, here and now if he has not too much in work.
    pub fn read(&self, user: u32, job: impl FnOnce(&Service) + Send + 'static) {
        match self.here(user) {
            Some(_here) => job(&self.service),
            None => self.queue((user, Kind::Reads), self.most_here, Box::new(job)),
        }
    }

    /// Does a job that has to wait.
    pub fn wait(&self, user: u32, job: impl FnOnce(&Service) + Send + 'static) {
        self.queue((user, Kind::Scans), MOST_WAITING, Box::new(job));
    }

    fn queue(&self, user: (u32, Kind), most: usize, job: Job) {
        let job = self.users.change(user, |work| {
            if work.waiting >= most {
                work.queue.push_back(job);
                return None;
            }
            work.waiting += 1;
            Some(job)
        });
        let Some(job) = job else { return };
        let mut waiting = Waiting {
            users: Arc::clone(&self.users),
            user,
            has_left: false,
        };
        let service = Arc::clone(&self.service);
        let jobs = move || {
            let mut next = Some(job);
            while let Some(job) = next {
                job(&service);
                next = waiting.next();
            }
        };
        // Where there is no thread to be had, the answer goes with the job, and fuser says EIO.
        if let Err(e) = thread::Builder::new().name("waiting".into()).spawn(jobs) {
            log::error!("no thread for a request that has to wait: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use crate::fs::mirror::{Limits, Mirror};
    use h5logfs_catalog::Catalog;
    use h5logfs_core::log::source_dir::SourceDir;
    use h5logfs_core::view::cache::MemoryLimits;
    use h5logfs_scan::InProcess;

    use super::*;

    fn lane(threads: usize, is_shared: bool) -> Lane {
        let dir = SourceDir::open(Path::new("/")).unwrap();
        let catalog = Catalog::new(dir, MemoryLimits::each(1 << 20), InProcess::default());
        let service = Service::new(Mirror::new(catalog, Limits::default())).unwrap();
        Lane::new(Arc::new(service), threads, is_shared)
    }

    /// A job that says that it has begun, and goes on until it is told to end.
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
        let lane = lane(1, true);
        let (begun, heard) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..MOST_WAITING + 1 {
            let (job, end) = long(&begun);
            lane.wait(1, job);
            ends.push(end);
        }
        assert!((0..MOST_WAITING).all(|_| soon(&heard)));
        assert!(heard.try_recv().is_err());
        // Others have threads, and the last job its turn in the end.
        let (job, end) = long(&begun);
        lane.wait(2, job);
        assert!(soon(&heard));
        drop(end);
        drop(ends);
        assert!(soon(&heard));
    }

    #[test]
    fn nobody_has_all_threads_that_serve_the_kernel() {
        let (begun, heard) = mpsc::channel();
        let lane = lane(4, true);
        let jobs: Vec<_> = (0..2).map(|_| long(&begun)).collect();
        thread::scope(|scope| {
            let mut ends = Vec::new();
            for (job, end) in jobs {
                ends.push(end);
                scope.spawn(|| lane.read(1, job));
            }
            assert!(soon(&heard) && soon(&heard));
            // This thread comes back at once, though the job has not.
            let (third, end) = long(&begun);
            lane.read(1, third);
            assert!(soon(&heard));
            let here = thread::current().id();
            let (told, answer) = mpsc::channel();
            lane.read(2, move |_| {
                told.send(thread::current().id() == here).unwrap()
            });
            assert_eq!(answer.recv(), Ok(true));
            drop((ends, end));
        });
    }
}
