//! The watcher: it stops work that takes too long or that no program waits for.
//!
//! A thread that works on a request says so in a slot of its own ([`Watch::run`]). That takes no lock that other threads
//! need and no look at a clock. While there is work, the thread of the watcher looks at all slots every 50 ms. What it
//! finds there for the second time has taken a while. The watcher then asks the kernel about the thread that sent the
//! request, and for the processor time of the thread that works on it, and sets the flag at which the work stops. Where
//! users share the mount, the thread has a lower priority from then on, until the request ends.
//!
//! The kernel also tells of a killed caller by a message (`FUSE_INTERRUPT`). fuser does not pass it on, and it does not
//! come for read-ahead, whose caller the kernel lets go at once.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::ops::Bound;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use h5logfs_common::fault::Stop;
use h5logfs_common::sync::atomic::{AtomicBool, Ordering, fence};
use h5logfs_common::sync::thread::{self, Thread};
use h5logfs_common::sync::{Mutex, thread_local};
use h5logfs_common::task::StopFlag;

use super::errno::errno_of;
use super::extra_threads::ExtraThreads;
use super::priority::Priorities;
use super::thread_state::{ThreadState, is_gone};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// A request is old when it was seen so many times.
const OLD: u32 = 2;
/// While the mount ends, a request that was seen so many times has to end: after about half a second.
const LAST: u32 = 10;
/// How many callers of waiting requests are looked at in each round. This bounds what the watcher costs.
const CALLERS: usize = 64;

/// Watches the threads that work on requests.
#[derive(Debug)]
pub struct Watch {
    /// The processor time that one request may take.
    limit: Duration,
    /// Where threads that work on old requests have a lower priority.
    priorities: Option<Priorities>,
    workers: Mutex<Vec<Weak<Worker>>>,
    queues: Mutex<Vec<Weak<ExtraThreads>>>,
    /// The watcher's thread looks around, or will soon. Otherwise it sleeps.
    is_awake: AtomicBool,
    thread: OnceLock<Thread>,
    /// The mount ends.
    is_ending: AtomicBool,
}

/// A thread that works on one request at a time.
#[derive(Debug)]
struct Worker {
    watch: Weak<Watch>,
    priorities: Option<Priorities>,
    thread: u32,
    slot: Mutex<Slot>,
}

impl Worker {
    /// The request of this number is old. It may have ended meanwhile.
    fn lower(&self, number: u64) {
        let Some(priorities) = self.priorities else {
            return;
        };
        let mut slot = self.slot.lock();
        if slot.number == number && slot.request.is_some() && !slot.is_lowered {
            priorities.lower(self.thread);
            slot.is_lowered = true;
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    /// Counts the requests of this thread.
    number: u64,
    request: Option<Running>,
    /// The thread has a lower priority for it.
    is_lowered: bool,
}

#[derive(Debug, Clone)]
struct Running {
    /// The thread that sent the request.
    caller: u32,
    stop: StopFlag,
}

thread_local! {
    static WORKER: RefCell<Option<Arc<Worker>>> = const { RefCell::new(None) };
}

/// Empties a slot on drop.
struct Finish<'a>(&'a Worker);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.slot.lock();
        slot.request = None;
        if mem::take(&mut slot.is_lowered)
            && let Some(priorities) = self.0.priorities
        {
            priorities.restore(self.0.thread);
        }
    }
}

impl Watch {
    /// `limit`: the processor time that one request may take. `priorities`: where old requests are to have a lower one.
    pub fn start(limit: Duration, priorities: Option<Priorities>) -> Arc<Self> {
        let watch = Arc::new(Watch {
            limit,
            priorities,
            workers: Mutex::default(),
            queues: Mutex::default(),
            is_awake: AtomicBool::new(true),
            thread: OnceLock::new(),
            is_ending: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&watch);
        let thread = thread::Builder::new().name("watch".into());
        match thread.spawn(move || Looks::default().go_on(&weak)) {
            Ok(thread) => {
                let _first = watch.thread.set(thread.thread().clone());
            }
            Err(e) => log::error!("no thread that stops long requests: {e}"),
        }
        watch
    }

    /// Has the requests that wait in `queue` looked at, too.
    pub fn add_queue(&self, queue: &Arc<ExtraThreads>) {
        self.queues.lock().push(Arc::downgrade(queue));
    }

    /// Runs `work` for a request of the thread `caller`. The flag tells when it has to stop.
    pub fn run<T>(self: &Arc<Self>, caller: u32, work: impl FnOnce(&StopFlag) -> T) -> T {
        let worker = self.worker();
        let stop = StopFlag::default();
        let mut slot = worker.slot.lock();
        slot.number += 1;
        slot.request = Some(Running {
            caller,
            stop: stop.clone(),
        });
        drop(slot);
        let _finish = Finish(&worker);
        self.wake();
        work(&stop)
    }

    /// The mount ends: requests that wait or are old fail at once, and later ones when they are as old as those.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// The worker of this thread.
    fn worker(self: &Arc<Self>) -> Arc<Worker> {
        WORKER.with(|own| {
            let mut own = own.borrow_mut();
            let known = own.as_ref();
            if let Some(worker) = known.filter(|w| w.watch.as_ptr() == Arc::as_ptr(self)) {
                return Arc::clone(worker);
            }
            let thread = rustix::thread::gettid().as_raw_pid().cast_unsigned();
            if let Some(priorities) = self.priorities {
                // It may have been started by one that has a lower priority now.
                priorities.restore(thread);
            }
            let worker = Arc::new(Worker {
                watch: Arc::downgrade(self),
                priorities: self.priorities,
                thread,
                slot: Mutex::default(),
            });
            self.workers.lock().push(Arc::downgrade(&worker));
            Arc::clone(own.insert(worker))
        })
    }

    /// Call this after a change that the watcher has to see. While the watcher is awake, it costs a look at a flag.
    fn wake(&self) {
        // Either this thread sees that the watcher goes to sleep, or the watcher sees the change.
        fence(Ordering::SeqCst);
        if !self.is_awake.load(Ordering::Relaxed) && !self.is_awake.swap(true, Ordering::Relaxed) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The threads that work on requests now, each with the number of its request.
    fn running(&self) -> Vec<(Arc<Worker>, u64, Running)> {
        let mut running = Vec::new();
        // Threads that have ended have dropped their workers.
        self.workers.lock().retain(|worker| {
            let Some(worker) = worker.upgrade() else {
                return false;
            };
            let slot = worker.slot.lock();
            let (number, request) = (slot.number, slot.request.clone());
            drop(slot);
            running.extend(request.map(|request| (worker, number, request)));
            true
        });
        running
    }

    fn queues(&self) -> Vec<Arc<ExtraThreads>> {
        self.queues
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.unpark();
    }
}

/// What the watcher's thread remembers from look to look.
#[derive(Debug, Default)]
struct Looks {
    /// The requests that ran at the last look, by the thread that works on them.
    running: HashMap<u32, Seen>,
    /// The last caller of a waiting request that was looked at.
    last_caller: u32,
}

/// A request that was seen at work.
#[derive(Debug, Default)]
struct Seen {
    number: u64,
    times: u32,
    /// When the calling thread began.
    caller_started: Option<u64>,
    /// The processor time of the working thread when the request was old for the first time.
    cpu: Duration,
}

impl Looks {
    /// Looks around until the watch is dropped.
    fn go_on(mut self, watch: &Weak<Watch>) {
        while let Some(watch) = watch.upgrade() {
            let is_busy = self.look(&watch);
            if !is_busy {
                watch.is_awake.store(false, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let is_idle = watch.running().is_empty();
                drop(watch);
                if is_idle {
                    thread::park();
                }
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Returns whether there is work.
    fn look(&mut self, watch: &Watch) -> bool {
        watch.is_awake.store(true, Ordering::Relaxed);
        let is_ending = watch.is_ending.load(Ordering::SeqCst);
        let mut before = mem::take(&mut self.running);
        for (worker, number, request) in watch.running() {
            let thread = worker.thread;
            let known = before.remove(&thread).filter(|seen| seen.number == number);
            let mut seen = known.unwrap_or_else(|| Seen::first(number));
            if let Some(why) = seen.again(thread, &request, watch.limit, is_ending) {
                request.stop.stop(why);
            }
            if seen.times == OLD {
                worker.lower(number);
            }
            self.running.insert(thread, seen);
        }
        for queue in watch.queues() {
            self.look_at_queue(&queue, is_ending);
        }
        !self.running.is_empty()
    }

    /// Ends requests that wait for a thread, where no program waits for them.
    fn look_at_queue(&mut self, queue: &ExtraThreads, is_ending: bool) {
        if is_ending {
            return queue.refuse(|_| true, errno_of(Stop::Ending));
        }
        let callers = queue.callers();
        let behind = callers.range((Bound::Excluded(self.last_caller), Bound::Unbounded));
        let round = behind.chain(&callers).take(CALLERS.min(callers.len()));
        let gone: HashSet<u32> = round
            .inspect(|caller| self.last_caller = **caller)
            .filter(|caller| is_gone(**caller, None))
            .copied()
            .collect();
        if !gone.is_empty() {
            queue.refuse(|caller| gone.contains(&caller), errno_of(Stop::CallerGone));
        }
    }
}

impl Seen {
    fn first(number: u64) -> Self {
        Seen {
            number,
            ..Seen::default()
        }
    }

    /// The request is seen at work once more, in the thread `worker`. Returns why it has to stop, if it has to.
    fn again(
        &mut self,
        worker: u32,
        request: &Running,
        limit: Duration,
        is_ending: bool,
    ) -> Option<Stop> {
        self.times += 1;
        if self.times < OLD || request.stop.stopped().is_some() {
            return None;
        }
        if is_ending && self.times >= LAST {
            return Some(Stop::Ending);
        }
        if is_gone(request.caller, self.caller_started) {
            return Some(Stop::CallerGone);
        }
        let cpu = ThreadState::of_own(worker)?.cpu;
        if self.times == OLD {
            self.caller_started = ThreadState::of(request.caller).map(|caller| caller.started);
            self.cpu = cpu;
        }
        (cpu.saturating_sub(self.cpu) >= limit).then_some(Stop::Deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    /// More than a test ever waits.
    const LONG: Duration = Duration::from_secs(1000);

    fn own_thread() -> u32 {
        rustix::thread::gettid().as_raw_pid().cast_unsigned()
    }

    /// Waits until the flag is set. Uses as little processor time as it can, or as much.
    fn until_stopped(stop: &StopFlag, is_busy: bool) -> Stop {
        let start = Instant::now();
        loop {
            if let Some(why) = stop.stopped() {
                return why;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "not stopped");
            if !is_busy {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn work_for_a_killed_caller_stops() {
        let mut caller = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let watch = Watch::start(LONG, None);
        let (begun, heard) = mpsc::channel();
        thread::scope(|scope| {
            let (watch, number) = (&watch, caller.id());
            let working = scope.spawn(move || {
                watch.run(number, |stop| {
                    begun.send(stop.clone()).unwrap();
                    until_stopped(stop, false)
                })
            });
            let stop = heard.recv().unwrap();
            // As long as the caller lives, the watcher looks and does nothing.
            thread::sleep(INTERVAL * (OLD + 2));
            assert_eq!(stop.stopped(), None);
            caller.kill().unwrap();
            assert_eq!(working.join().unwrap(), Stop::CallerGone);
        });
        caller.wait().unwrap();
    }

    #[test]
    fn processor_time_is_limited_and_other_time_is_not() {
        let watch = Watch::start(Duration::from_millis(200), None);
        let waited = watch.run(own_thread(), |stop| {
            thread::sleep(Duration::from_millis(600));
            stop.stopped()
        });
        assert_eq!(waited, None);
        let stopped = watch.run(own_thread(), |stop| until_stopped(stop, true));
        assert_eq!(stopped, Stop::Deadline);
        // The next request begins anew, also after the watcher has slept.
        thread::sleep(INTERVAL * 4);
        let stopped = watch.run(own_thread(), |stop| until_stopped(stop, true));
        assert_eq!(stopped, Stop::Deadline);
    }

    #[test]
    fn old_work_stops_when_the_mount_ends() {
        let watch = Watch::start(LONG, None);
        watch.end();
        let stopped = watch.run(own_thread(), |stop| until_stopped(stop, false));
        assert_eq!(stopped, Stop::Ending);
    }

    #[test]
    fn work_that_takes_long_gives_way() {
        let Some(priorities) = Priorities::of_process() else {
            eprintln!("skipped: this process cannot raise its priority again");
            return;
        };
        let watch = Watch::start(LONG, Some(priorities));
        let now = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        let usual = now();
        watch.run(own_thread(), |_| {
            assert_eq!(now(), usual);
            let start = Instant::now();
            while now() == usual {
                assert!(start.elapsed() < Duration::from_secs(60), "{usual}");
                thread::sleep(Duration::from_millis(5));
            }
            assert!(now() > usual);
        });
        assert_eq!(now(), usual);
        watch.run(own_thread(), |_| assert_eq!(now(), usual));
    }

    #[test]
    fn the_watcher_ends_with_its_watch() {
        let watch = Watch::start(LONG, None);
        watch.run(own_thread(), |_| ());
        let weak = Arc::downgrade(&watch);
        drop(watch);
        let start = Instant::now();
        while weak.strong_count() > 0 {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
    }
}

#[cfg(all(test, feature = "model"))]
mod model {
    use h5logfs_common::sync::model;

    use super::*;

    #[test]
    fn the_watcher_sleeps_through_no_work() {
        model::check(|| {
            let watch = Watch::start(Duration::from_secs(1000), None);
            let working = {
                let watch = Arc::clone(&watch);
                thread::spawn(move || {
                    // The watcher may go to sleep after this one.
                    watch.run(0, |_| ());
                    watch.run(0, |stop| {
                        while stop.stopped().is_none() {
                            thread::yield_now();
                        }
                        stop.stopped()
                    })
                })
            };
            watch.end();
            assert_eq!(working.join().unwrap(), Some(Stop::Ending));
        });
    }
}
