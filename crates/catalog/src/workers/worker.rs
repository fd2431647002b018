//! A worker is a process that scans or closes logs for this one, with a socket for messages to it. It starts in one of
//! three ways: a [zygote](super::zygote) forks it, this process [forks](super::fork) it, or it is the program
//! `h5logfs`, which the host [does not see](super::hidden_child).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::broker::{Broker, NoSnapshot};
use super::hidden_child::HiddenChild;
use super::hidden_program;
use super::limits::{Limits, PROGRAM_VARIABLE};

/// Longest time in which a worker may end after it has sent its outcome.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    pub process: Process,
    /// The socket to the worker. The worker ends when this is closed.
    pub socket: OwnedFd,
    /// Number of scans that the worker has done.
    pub scans: usize,
}

/// The process of a worker. Its kind says who can wait for it. Killed on drop.
#[derive(Debug)]
pub enum Process {
    /// A child of this process, forked by the zygote with `CLONE_PARENT` or by this process itself.
    Child(Child),
    /// A process that the host does not see among its children.
    Hidden(HiddenChild),
}

impl Worker {
    /// `process` is a child of this process that nobody else waits for.
    pub fn of_child(process: Pid, socket: OwnedFd) -> Self {
        Worker {
            process: Process::Child(Child::new(process)),
            socket,
            scans: 0,
        }
    }

    /// Starts the program with these arguments, so that the host does not see it.
    pub fn of_program(program: &Path, arguments: Vec<String>) -> io::Result<Self> {
        let arguments = arguments.into_iter().map(OsString::from);
        let (child, socket) = hidden_program::start(program, arguments.collect())?;
        Ok(Worker {
            process: Process::Hidden(child),
            socket,
            scans: 0,
        })
    }

    /// Has the worker do a scan. Returns the snapshot as bytes.
    pub fn scan(
        &mut self,
        limits: &Limits,
        task: &Task,
        broker: &Broker<'_>,
    ) -> Result<Reserved<Vec<u8>>, NoSnapshot> {
        self.scans += 1;
        broker.serve(task, self.socket.as_fd(), Instant::now() + limits.time)
    }
}

impl Process {
    /// Waits for a moment for the end of the process. Returns the signal that ended it, if one did.
    pub fn end(self) -> Option<i32> {
        match self {
            Process::Child(child) => child.end(EXIT_TIMEOUT)?.terminating_signal(),
            Process::Hidden(child) => child.end(EXIT_TIMEOUT),
        }
    }
}

/// A message that the program cannot be started. `what` says what the program does.
pub fn not_started(what: &str, program: &Path, error: &io::Error) -> String {
    format!(
        "{what} by the program h5logfs, and {} cannot be started: {error}; {PROGRAM_VARIABLE} can name another program",
        program.display()
    )
}

/// A child of this process. Killed on drop.
#[derive(Debug)]
pub struct Child(Pid);

impl Child {
    /// `process` is a child of this process that nobody else waits for.
    pub fn new(process: Pid) -> Self {
        Child(process)
    }

    /// Waits for the end of the process, and kills it after `timeout`.
    fn end(self, timeout: Duration) -> Option<WaitStatus> {
        let until = Instant::now() + timeout;
        let mut pause = Duration::from_micros(50);
        let status = loop {
            match rustix::process::waitpid(Some(self.0), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => break Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(pause),
                Ok(None) => break self.kill(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break None,
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        // From now on another process may have this number.
        std::mem::forget(self);
        status
    }

    fn kill(&self) -> Option<WaitStatus> {
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
        loop {
            match rustix::process::waitpid(Some(self.0), WaitOptions::empty()) {
                Ok(ended) => return ended.map(|(_, status)| status),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
