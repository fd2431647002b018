//! A worker that is a child of this process: one that the zygote has forked, with `CLONE_PARENT`, or this process itself.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

/// A running worker. Killed on drop.
#[derive(Debug)]
pub struct Worker(Pid);

impl Worker {
    /// `process`: a child of this process that nobody else waits for.
    pub fn new(process: Pid) -> Self {
        Worker(process)
    }

    /// Waits for the end of the worker, and kills it after `timeout`.
    pub fn end(self, timeout: Duration) -> Option<WaitStatus> {
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
        // From now on another process may have its number.
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

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}
