//! The priority of threads that work on one request for long.
//!
//! Users of a shared mount share the processors. A thread with a long request yields to other requests: the kernel runs these
//! at once, and gives the thread the rest. If nobody else needs the processors, it is as fast as before.

use std::thread;

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// Difference in priority. A thread with normal priority then gets three times as much of a processor.
const BY: i32 = 5;
/// The lowest priority.
const LOWEST: i32 = 19;

/// The priorities of this process's threads, as nice values: larger is lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priorities {
    usual: i32,
    lowered: i32,
}

impl Priorities {
    /// The priorities; `None` if a thread cannot lower its priority and restore it. Without `CAP_SYS_NICE` it can only be
    /// lowered, unless `RLIMIT_NICE` allows more.
    pub fn of_process() -> Option<Self> {
        let usual = getpriority_process(None).ok()?;
        let lowered = (usual + BY).min(LOWEST);
        let priorities = Priorities { usual, lowered };
        // A separate thread tries, and ends with whatever priority it has.
        let tried = thread::spawn(move || {
            let own = Some(rustix::thread::gettid());
            let lowered = setpriority_process(own, priorities.lowered);
            lowered.and_then(|()| setpriority_process(own, priorities.usual))
        });
        let is_possible = tried.join().is_ok_and(|tried| tried.is_ok());
        (is_possible && usual < lowered).then_some(priorities)
    }

    /// Lowers the priority of a thread of this process.
    pub fn lower(self, thread: u32) {
        set(thread, self.lowered);
    }

    /// Restores the normal priority of a thread.
    pub fn restore(self, thread: u32) {
        set(thread, self.usual);
    }
}

fn set(thread: u32, priority: i32) {
    // In Linux a thread is a process.
    let Some(thread) = Pid::from_raw(thread.cast_signed()) else {
        return;
    };
    if let Err(e) = setpriority_process(Some(thread), priority) {
        log::debug!("cannot change the priority of a thread: {e}");
    }
}
