//! The priority of threads that work on one request for long.
//!
//! Where users share a mount, their requests share the processors. A thread whose request takes long gives way to those of
//! other requests: the kernel lets these run at once, and it gives the thread what they leave. Where nobody else wants the
//! processors, it has as much of them as before.

use std::thread;

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// By how much the priority is lower. A thread with the usual one then gets three times as much of a processor.
const BY: i32 = 5;
/// The lowest priority.
const LOWEST: i32 = 19;

/// The priorities of the threads of this process, as the kernel counts them: the larger, the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priorities {
    usual: i32,
    lowered: i32,
}

impl Priorities {
    /// `None` where a thread cannot have a lower priority and the usual one again: without `CAP_SYS_NICE` the way leads
    /// down only, as far as `RLIMIT_NICE` does not say otherwise.
    pub fn of_process() -> Option<Self> {
        let usual = getpriority_process(None).ok()?;
        let lowered = (usual + BY).min(LOWEST);
        let priorities = Priorities { usual, lowered };
        // In a thread of its own, which ends with whatever priority it has.
        let tried = thread::spawn(move || {
            let own = Some(rustix::thread::gettid());
            let lowered = setpriority_process(own, priorities.lowered);
            lowered.and_then(|()| setpriority_process(own, priorities.usual))
        });
        let is_possible = tried.join().is_ok_and(|tried| tried.is_ok());
        (is_possible && usual < lowered).then_some(priorities)
    }

    /// Gives a thread of this process the lower priority.
    pub fn lower(self, thread: u32) {
        set(thread, self.lowered);
    }

    /// Gives a thread its usual priority again.
    pub fn restore(self, thread: u32) {
        set(thread, self.usual);
    }
}

fn set(thread: u32, priority: i32) {
    // For Linux a thread is a process.
    let Some(thread) = Pid::from_raw(thread.cast_signed()) else {
        return;
    };
    if let Err(e) = setpriority_process(Some(thread), priority) {
        log::debug!("no other priority for a thread: {e}");
    }
}
