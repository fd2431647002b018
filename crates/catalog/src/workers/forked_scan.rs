//! A scanner for the program `h5logfs`, where nobody else lives in its process and it is about to scan one file: the worker is a fork
//! of the program as it has just been started.

use std::ffi::c_char;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use h5logfs_common::error::Result;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::protocol;
use h5logfs_log::scan::{ScanRequest, Scanner};
use h5logfs_log::snapshot::Snapshot;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::net::SocketType;
use rustix::process::Pid;

use super::child::Worker;
use super::limits::{Limits, ScanUser};
use super::one_scan::OneScan;
use super::{EXIT_TIMEOUT, broker_of, scan_once};

/// The serving side: a process that calls it does one scan within the limits, for the process at the other end of standard input. It
/// becomes the user and the group, if there are some.
pub type Serve = fn(&Limits, Option<(u32, u32)>) -> io::Result<()>;

/// Does the first scan in a process that was forked when the scanner was made, and further ones as [`OneScan`] does.
///
/// The fork has the program loaded already, which takes a third of the time of a small scan. It has the addresses of the program,
/// too, and its memory: this is for a program that has seen no more than its command line.
#[derive(Debug)]
pub struct ForkedScan {
    ready: Mutex<Option<(Worker, OwnedFd)>>,
    /// The worker once it has answered. It ends while the program goes on; the drop of the scanner waits for it.
    answered: Mutex<Option<Worker>>,
    further: OneScan,
}

impl ForkedScan {
    /// Forks the first worker, while the program finds out what there is to scan.
    pub fn new(limits: Limits, serve: Serve) -> Self {
        // The scan starts the program anew where it cannot be forked, and says why that cannot be done.
        let ready = fork(&limits, serve).ok();
        ForkedScan {
            ready: Mutex::new(ready),
            answered: Mutex::default(),
            further: OneScan::new(limits),
        }
    }
}

impl Drop for ForkedScan {
    fn drop(&mut self) {
        if let Some(worker) = self.answered.get_mut().take() {
            worker.end(EXIT_TIMEOUT);
        }
    }
}

impl Scanner for ForkedScan {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        let Some(worker) = self.ready.lock().take() else {
            return self.further.scan(task, request);
        };
        let limits = &self.further.limits;
        let broker = broker_of(limits, request)?;
        let let_go = |worker| *self.answered.lock() = Some(worker);
        let end = |worker: Worker| worker.end(EXIT_TIMEOUT)?.terminating_signal();
        scan_once(limits, task, &broker, worker, let_go, end)
    }
}

/// Returns the worker with the socket for messages to it.
fn fork(limits: &Limits, serve: Serve) -> io::Result<(Worker, OwnedFd)> {
    let user = limits.user()?;
    let user = user.map(|ScanUser { uid, gid }| (uid, gid));
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process of several threads"));
    }
    let (ours, theirs) = protocol::pair(SocketType::STREAM)?;
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: this process has one thread, so no other one holds a lock that the fork would wait for.
    let process = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let work = || prepare(&theirs, &null).and_then(|()| serve(limits, user));
            // What the program has on its stack is not for the fork to put in order.
            let done = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: it takes a number, and runs none of the exit handlers of the program.
            unsafe { libc::_exit(i32::from(!matches!(done, Ok(Ok(()))))) }
        }
        process => process,
    };
    let process = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidData)?;
    Ok((Worker::new(process), ours))
}

unsafe extern "C" {
    /// Pointers to the texts of the environment, and a null pointer behind them (POSIX).
    static mut environ: *mut *mut c_char;
}

/// Overwrites the environment with zeros, and leaves this process without one. libhdf5 would heed it, and a file that takes a worker
/// over could put it into what the command writes.
fn forget_environment() {
    // SAFETY: this process has one thread, and its Rust code keeps no pointer into the environment. Each text lies in memory of the
    // process and ends with a zero byte.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            (*at).write_bytes(0, libc::strlen(*at));
            at = at.add(1);
        }
        libc::clearenv();
    }
}

/// Gives this process what a started program has: no environment of the command, a process group of its own, and no other standard
/// streams than the socket.
fn prepare(socket: &OwnedFd, null: &OwnedFd) -> io::Result<()> {
    forget_environment();
    rustix::process::setpgid(None, None)?;
    rustix::process::chdir(c"/")?;
    rustix::stdio::dup2_stdin(socket)?;
    rustix::stdio::dup2_stdout(null)?;
    rustix::stdio::dup2_stderr(null)?;
    Ok(())
}
