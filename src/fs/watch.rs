//! The watcher stops work that takes too long or that no program waits for.
//!
//! A thread records its request in a slot of its own ([`Watch::run`]), which takes no lock that other threads need, and does
//! not read the clock. While there is work, the watcher's thread looks at all slots every 50 ms. A request seen for the
//! second time has taken a while. The watcher then asks the kernel about the thread that sent the request, and for the
//! processor time of the working thread, and sets the flag at which the work stops. On a shared mount, it also lowers the
//! priority of the working thread until the request ends.
//!
//! The kernel also reports a killed caller (`FUSE_INTERRUPT`). fuser does not pass this on, and it does not come for
//! read-ahead, whose caller the kernel releases at once.

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

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// Number of looks after which a request is old.
const OLD: u32 = 2;
/// Number of looks after which a request must end while the mount ends: about half a second.
const LAST: u32 = 10;
/// Most callers of waiting requests examined in each round, to bound the cost.
const CALLERS: usize = 64;

/// Watches the threads that work on requests.
#[derive(Debug)]
pub struct Watch {
    /// Processor time allowed for one request.
    limit: Duration,
    /// The priorities, if threads with old requests get a lower one.
    priorities: Option<Priorities>,
    workers: Mutex<Vec<Weak<Worker>>>,
    queues: Mutex<Vec<Weak<ExtraThreads>>>,
    /// Whether the watcher's thread looks at the slots, or will soon. Otherwise it sleeps.
    is_awake: AtomicBool,
    thread: OnceLock<Thread>,
    /// Whether the mount is ending.
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
    /// Lowers the priority for the old request `number`, unless it has ended.
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
    /// Number of this thread's requests so far.
    number: u64,
    request: Option<Running>,
    /// Whether the thread has a lower priority for it.
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
    /// Starts the watcher. `limit`: processor time allowed for one request. `priorities`: lowers the priority of old
    /// requests.
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
            Err(e) => log::error!("cannot start the thread that stops long requests: {e}"),
        }
        watch
    }

    /// Also watches the requests that wait in `queue`.
    pub fn add_queue(&self, queue: &Arc<ExtraThreads>) {
        self.queues.lock().push(Arc::downgrade(queue));
    }

    /// Runs `work` for a request of the thread `caller`. The flag tells when it must stop.
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

    /// Ends requests, because the mount ends: waiting and old requests fail at once, later ones when they are old.
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
                // The thread may have been started by one with a lower priority.
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

    /// Call this after a change that the watcher must see. While the watcher is awake, it costs a look at a flag.
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
        // Ended threads have dropped their workers.
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

/// The memory of the watcher's thread between looks.
#[derive(Debug, Default)]
struct Looks {
    /// Requests running at the last look, by working thread.
    running: HashMap<u32, RequestAtWork>,
    /// The caller of a waiting request examined last.
    last_caller: u32,
}

/// A request that was seen at work.
#[derive(Debug, Default)]
struct RequestAtWork {
    number: u64,
    times: u32,
    /// Start time of the calling thread.
    caller_started: Option<u64>,
    /// Processor time of the working thread when the request became old.
    cpu: Duration,
}

impl Looks {
    /// Looks at the slots until the watch is dropped.
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

    /// Looks at all slots once. Returns whether there is work.
    fn look(&mut self, watch: &Watch) -> bool {
        watch.is_awake.store(true, Ordering::Relaxed);
        let is_ending = watch.is_ending.load(Ordering::SeqCst);
        let mut before = mem::take(&mut self.running);
        for (worker, number, request) in watch.running() {
            let thread = worker.thread;
            let known = before.remove(&thread).filter(|seen| seen.number == number);
            let mut seen = known.unwrap_or_else(|| RequestAtWork::first(number));
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

    /// Ends requests that wait for a thread, if no program waits for them.
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

impl RequestAtWork {
    fn first(number: u64) -> Self {
        RequestAtWork {
            number,
            ..RequestAtWork::default()
        }
    }

    /// Sees the request at work once more, in the thread `worker`. Returns why it must stop, if so.
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

    /// Longer than a test ever waits.
    const LONG: Duration = Duration::from_secs(1000);

    fn own_thread() -> u32 {
        rustix::thread::gettid().as_raw_pid().cast_unsigned()
    }

    /// Waits until the flag is set, with little processor time, or busily.
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
            // As long as the caller lives, the watcher only looks.
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
        // The next request begins anew, even after the watcher has slept.
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
                    // The watcher may go to sleep after this request.
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
