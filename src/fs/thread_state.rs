//! The state of a thread in `/proc`: of a program's thread that waits for an answer, or of the daemon's thread that works on it.

use std::fs;
use std::path::Path;
use std::process;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

/// The signal that each thread gets when a signal ends its process.
const SIGKILL: u64 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadState {
    /// Start time in the kernel's units. With the number it identifies one thread for ever.
    pub started: u64,
    /// Whether the thread has ended, or will end before it runs again.
    pub is_ending: bool,
    /// Processor time used.
    pub cpu: Duration,
}

impl ThreadState {
    /// The state of a thread of any process; `None` if it is not visible.
    pub fn of(thread: u32) -> Option<Self> {
        Self::at(&format!("/proc/{thread}/stat"))
    }

    /// The state of a thread of this process.
    pub fn of_own(thread: u32) -> Option<Self> {
        Self::at(&format!("/proc/self/task/{thread}/stat"))
    }

    fn at(path: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    /// Parses a line of proc_pid_stat(5). The name of the program is the second field, may be anything, and ends with the
    /// last parenthesis.
    fn parse(line: &str) -> Option<Self> {
        let (_, after_name) = line.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        // The manual page counts from 1, and field 3 follows the name.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let is_dead = matches!(*fields.first()?, "Z" | "X" | "x");
        let is_killed = number(31)? & 1 << (SIGKILL - 1) != 0;
        let ticks = number(14)?.saturating_add(number(15)?);
        Some(ThreadState {
            started: number(22)?,
            is_ending: is_dead || is_killed,
            cpu: Duration::from_secs(ticks) / ticks_per_second(),
        })
    }
}

fn ticks_per_second() -> u32 {
    u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100)
}

/// Whether a thread has ended, or will end before it runs again. False if that is unknown: the thread may be in another PID
/// namespace (the kernel then gives its number as 0), or hidden (`hidepid`). `started`: its start time, if known.
pub fn is_gone(thread: u32, started: Option<u64>) -> bool {
    let state = if *HAS_PROC {
        ThreadState::of(thread)
    } else {
        None
    };
    match state {
        Some(state) => state.is_ending || started.is_some_and(|started| started != state.started),
        // This also finds hidden threads.
        None => i32::try_from(thread)
            .ok()
            .and_then(Pid::from_raw)
            .is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH)),
    }
}

/// Whether `/proc` numbers threads as this process does. The `/proc` of another PID namespace would show other threads.
static HAS_PROC: LazyLock<bool> = LazyLock::new(|| {
    fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&process::id().to_string()))
});

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    fn own_thread() -> u32 {
        rustix::thread::gettid().as_raw_pid() as u32
    }

    #[test]
    fn this_thread_runs() {
        let own = own_thread();
        let state = ThreadState::of(own).unwrap();
        assert!(!state.is_ending && !is_gone(own, Some(state.started)));
        // Another thread had that number before.
        assert!(is_gone(own, Some(state.started - 1)));
        assert_eq!(ThreadState::of_own(own).unwrap().started, state.started);
    }

    #[test]
    fn a_thread_that_has_ended_is_gone() {
        let ended = thread::spawn(own_thread).join().unwrap();
        // The kernel removes the thread soon after others have noticed its end.
        while !is_gone(ended, None) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_is_killed_is_gone_before_its_parent_has_heard() {
        let mut process = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        assert!(!is_gone(process.id(), None));
        process.kill().unwrap();
        while !is_gone(process.id(), None) {
            thread::yield_now();
        }
        process.wait().unwrap();
    }

    #[test]
    fn a_thread_without_a_number_may_wait() {
        assert!(!is_gone(0, None));
    }

    #[test]
    fn a_line_is_taken_apart() {
        let line =
            "7 (a) Z (b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 12345 0 0 0 0 0 0 0 0";
        let state = |signals: u64| ThreadState::parse(&format!("{line} {signals} 0 0 0"));
        let running = state(0).unwrap();
        assert_eq!((running.started, running.is_ending), (12345, false));
        assert_eq!(running.cpu, Duration::from_secs(200) / ticks_per_second());
        // SIGTERM may be handled; SIGKILL may not.
        assert!(!state(1 << 14).unwrap().is_ending && state(1 << 8).unwrap().is_ending);
        assert!(ThreadState::parse(&line.replace(") S", ") Z")).is_none());
        assert!(ThreadState::parse("7 (a").is_none() && ThreadState::parse("").is_none());
    }
}
