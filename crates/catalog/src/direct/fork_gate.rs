//! Keeps the process from forking while a thread is at work with logs.
//!
//! A forked process has one thread. A lock that another thread held is then held for ever. So each piece of work passes
//! this gate, and a fork waits until no thread is inside. The gate itself has no lock.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Threads inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// A thread forks, or waits to do so.
static FORKING: AtomicBool = AtomicBool::new(false);
/// This process was forked while a thread was inside.
static BROKEN: AtomicBool = AtomicBool::new(false);
static REGISTER: Once = Once::new();

thread_local! {
    /// How often this thread is inside.
    static INSIDE_HERE: Cell<usize> = const { Cell::new(0) };
}

/// How long a fork waits. A read of a file system that hangs must not hang the host for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// The process was forked while another thread was inside, so locks may be held that nothing releases.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process was forked while another thread was reading a log, and that took longer than {} seconds; \
     it cannot read logs",
    LONGEST_WAIT.as_secs()
)]
pub struct Broken;

/// A piece of work. It ends on drop, in the thread in which it has begun.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

/// Begins a piece of work: waits for a fork that is going on.
pub fn enter() -> Result<Inside, Broken> {
    REGISTER.call_once(register);
    if BROKEN.load(Ordering::SeqCst) {
        return Err(Broken);
    }
    let depth = INSIDE_HERE.get();
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        // A fork waits for this thread where it is inside already.
        if depth > 0 || !FORKING.load(Ordering::SeqCst) {
            break;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        thread::sleep(PAUSE);
    }
    INSIDE_HERE.set(depth + 1);
    Ok(Inside(PhantomData))
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE_HERE.set(INSIDE_HERE.get() - 1);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

fn register() {
    // SAFETY: the three functions stay valid as long as this code is loaded; the C library forgets them when it is
    // unloaded. Where there is no memory for them, forks do not wait.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_new_process)) };
}

unsafe extern "C" fn before_fork() {
    FORKING.store(true, Ordering::SeqCst);
    let until = Instant::now() + LONGEST_WAIT;
    while INSIDE.load(Ordering::SeqCst) > INSIDE_HERE.get() && Instant::now() < until {
        thread::sleep(PAUSE);
    }
}

unsafe extern "C" fn after_fork() {
    FORKING.store(false, Ordering::SeqCst);
}

unsafe extern "C" fn in_new_process() {
    let own = INSIDE_HERE.get();
    if INSIDE.swap(own, Ordering::SeqCst) > own {
        BROKEN.store(true, Ordering::SeqCst);
    }
    FORKING.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    use super::*;

    /// Forks; the new process ends at once, with status 0 where `enter` lets it in.
    fn fork() -> i32 {
        // SAFETY: the new process calls what may be called there: atomics, and `_exit`.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let status = i32::from(enter().is_err());
            // SAFETY: it takes a number.
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
                // Until the fork waits: then a nested piece of work must not wait for it.
                while !FORKING.load(Ordering::SeqCst) {
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
}
