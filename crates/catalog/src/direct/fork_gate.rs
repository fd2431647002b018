//! Keeps the process from forking while a thread is at work with logs.
//!
//! A forked process has one thread, and a lock that another thread held stays locked for ever. So each piece of work
//! passes this gate, and a fork waits until no thread is inside. The gate itself has no lock.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use h5logfs_common::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use h5logfs_common::sync::thread;

static GATE: Gate = Gate::new();
/// Whether the C library calls this code around each fork.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of nested pieces of work of this thread.
    static INSIDE_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Longest wait of a fork. A read of a file system that hangs must not hang the host for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Pause between two looks at the gate.
const PAUSE: Duration = Duration::from_micros(50);

/// Error of a process that was forked while another thread was inside. Locks may be held that nothing releases.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process was forked while another thread was reading a log, and that took longer than {} seconds; \
     it cannot read logs",
    LONGEST_WAIT.as_secs()
)]
pub struct Broken;

/// A piece of work. It ends on drop, in the thread that began it.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

/// The state of the gate.
#[derive(Debug)]
struct Gate {
    /// Pieces of work inside, in the lower half. Threads that fork or wait to do so, in the upper half.
    ///
    /// One number holds both counts, because a thread that enters must see the forks and count itself in one step. A
    /// process that is forked between two steps would find a thread inside that waits before the gate.
    counts: AtomicU64,
    /// Whether this process was forked while another thread was inside.
    is_broken: AtomicBool,
}

/// One thread in the upper half of [`Gate::counts`].
const FORK: u64 = 1 << 32;

impl Gate {
    const fn new() -> Self {
        Gate {
            counts: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Begins a piece of work for a thread that is inside `own` times. Fails for a thread that is not inside yet while
    /// another one forks. A fork waits only for threads that are inside already.
    fn try_enter(&self, own: u64) -> bool {
        let entered = |counts| (own > 0 || counts < FORK).then_some(counts + 1);
        self.counts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, entered)
            .is_ok()
    }

    fn leave(&self) {
        self.counts.fetch_sub(1, Ordering::SeqCst);
    }

    /// Shuts the gate, and waits until no other thread is inside. This thread is inside `own` times.
    fn before_fork(&self, own: u64) {
        self.counts.fetch_add(FORK, Ordering::SeqCst);
        let until = Instant::now() + LONGEST_WAIT;
        while inside(self.counts.load(Ordering::SeqCst)) > own && Instant::now() < until {
            thread::sleep(PAUSE);
        }
    }

    /// Ends a fork of this process. Other forks may go on.
    fn after_fork(&self) {
        self.counts.fetch_sub(FORK, Ordering::SeqCst);
    }

    /// Sets the counts in the new process, where the thread that has forked is the only one. It was inside `own` times.
    fn in_new_process(&self, own: u64) {
        if inside(self.counts.swap(own, Ordering::SeqCst)) > own {
            self.is_broken.store(true, Ordering::SeqCst);
        }
    }
}

/// The lower half of [`Gate::counts`].
fn inside(counts: u64) -> u64 {
    counts % FORK
}

/// Begins a piece of work, after the end of all forks in progress.
pub fn enter() -> Result<Inside, Broken> {
    register();
    if GATE.is_broken.load(Ordering::SeqCst) {
        return Err(Broken);
    }
    let own = INSIDE_HERE.get();
    while !GATE.try_enter(own) {
        thread::sleep(PAUSE);
    }
    INSIDE_HERE.set(own + 1);
    Ok(Inside(PhantomData))
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE_HERE.set(INSIDE_HERE.get() - 1);
        GATE.leave();
    }
}

/// Has the C library call the gate. Several threads may do this at once: each fork then counts as several, which end
/// together. A `Once` would stay locked in a process that is forked meanwhile.
fn register() {
    if IS_REGISTERED.load(Ordering::SeqCst) {
        return;
    }
    // SAFETY: the three functions stay valid as long as this code is loaded; the C library forgets them when it is
    // unloaded. Where there is no memory for them, forks do not wait.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_new_process)) };
    IS_REGISTERED.store(true, Ordering::SeqCst);
}

unsafe extern "C" fn before_fork() {
    GATE.before_fork(INSIDE_HERE.get());
}

unsafe extern "C" fn after_fork() {
    GATE.after_fork();
}

unsafe extern "C" fn in_new_process() {
    GATE.in_new_process(INSIDE_HERE.get());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    use super::*;

    /// Forks. The new process ends at once, with status 0 where `enter` lets it in.
    fn fork() -> i32 {
        // SAFETY: the new process calls what may be called there: atomics, and `_exit`.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let status = i32::from(enter().is_err());
            // SAFETY: `_exit` takes a number.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid.
        unsafe { libc::waitpid(process, &raw mut status, 0) };
        status
    }

    #[test]
    fn a_fork_waits_for_work_and_work_for_a_fork() {
        let (begun, was_begun) = mpsc::channel();
        let done = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _outer = enter().unwrap();
                begun.send(()).unwrap();
                // Nested work must not wait for a fork that waits.
                while GATE.counts.load(Ordering::SeqCst) < FORK {
                    thread::yield_now();
                }
                let _inner = enter().unwrap();
                done.store(1, Ordering::SeqCst);
            });
            was_begun.recv().unwrap();
            assert_eq!(fork(), 0);
            assert_eq!(done.load(Ordering::SeqCst), 1);
        });
        assert_eq!(fork(), 0);
        drop(enter().unwrap());
    }

    #[test]
    fn the_gate_stays_shut_until_the_last_of_several_forks_ends() {
        let gate = Gate::new();
        gate.before_fork(0);
        gate.before_fork(0);
        // The gate in the process of one fork, while the other fork is in progress.
        let new = Gate {
            counts: AtomicU64::new(gate.counts.load(Ordering::SeqCst)),
            is_broken: AtomicBool::new(false),
        };
        new.in_new_process(0);
        assert!(new.try_enter(0) && !new.is_broken.load(Ordering::SeqCst));
        gate.after_fork();
        assert!(!gate.try_enter(0));
        gate.after_fork();
        assert!(gate.try_enter(0));
    }
}

#[cfg(all(test, feature = "model"))]
mod model {
    use std::sync::Arc;
    // Atomics that are no steps of the model: no other thread goes on between them.
    use std::sync::atomic::AtomicU64 as Uninterrupted;

    use h5logfs_common::sync::model;

    use super::*;

    /// A gate, and the number of pieces of work that hold locks.
    struct Process {
        gate: Gate,
        at_work: Uninterrupted,
    }

    impl Process {
        /// Does a piece of work with another one nested in it, then runs `meanwhile` inside the outer one.
        fn work(&self, meanwhile: impl FnOnce()) {
            while !self.gate.try_enter(0) {
                thread::sleep(PAUSE);
            }
            self.at_work.fetch_add(1, Ordering::SeqCst);
            assert!(self.gate.try_enter(1));
            self.gate.leave();
            meanwhile();
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            self.gate.leave();
        }

        /// Forks in a thread that is inside `own` times.
        fn fork(&self, own: u64) {
            self.gate.before_fork(own);
            let counts = self.gate.counts.load(Ordering::SeqCst);
            assert_eq!(self.at_work.load(Ordering::SeqCst), own);
            let new = Gate {
                counts: AtomicU64::new(counts),
                is_broken: AtomicBool::new(false),
            };
            new.in_new_process(own);
            assert!(!new.is_broken.load(Ordering::SeqCst));
            assert!(new.try_enter(own));
            self.gate.after_fork();
        }
    }

    #[test]
    fn no_process_is_forked_while_a_thread_works() {
        model::check(|| {
            let process = Arc::new(Process {
                gate: Gate::new(),
                at_work: Uninterrupted::new(0),
            });
            let in_thread = |run: fn(&Process)| {
                let process = Arc::clone(&process);
                thread::spawn(move || run(&process))
            };
            let threads = [
                in_thread(|process| process.fork(0)),
                in_thread(|process| process.fork(0)),
                in_thread(|process| process.work(|| process.fork(1))),
                in_thread(|process| {
                    process.work(|| ());
                    process.work(|| ());
                }),
            ];
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(process.gate.counts.load(Ordering::SeqCst), 0);
        });
    }
}
