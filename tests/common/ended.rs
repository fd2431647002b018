//! The end of a program, and its use of resources.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How a program ended. Its use includes the processes that it has waited for.
pub struct Ended {
    pub status: ExitStatus,
    /// Processor time.
    pub cpu: Duration,
    /// Peak memory of it or one of these processes, in KiB.
    pub memory: u64,
}

/// Waits for the end of a program, and kills it when patience runs out.
pub fn end_of(child: Child, patience: Duration) -> Ended {
    let process = Pid::from_child(&child);
    let (tell, told) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if told.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let _ = kill_process(process, Signal::KILL);
        }
    });
    let ended = wait(process);
    drop(tell);
    watch.join().unwrap();
    // The child has been waited for.
    drop(child);
    ended
}

fn wait(process: Pid) -> Ended {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both places exist and are large enough, and no other code waits for this process. The standard library
    // does not report the use of resources.
    let ended =
        unsafe { libc::wait4(process.as_raw_pid(), &raw mut status, 0, usage.as_mut_ptr()) };
    assert_eq!(
        ended,
        process.as_raw_pid(),
        "{}",
        io::Error::last_os_error()
    );
    // SAFETY: it was zeroed, which is valid, and the call has filled it.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ended {
        status: ExitStatus::from_raw(status),
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        memory: usage.ru_maxrss as u64,
    }
}
