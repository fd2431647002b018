//! A scanner for hosts that do not know us: each scan runs in a process of its own, which the host does not see.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ScanRequest, Scanner};
use h5logfs_log::snapshot::Snapshot;
use parking_lot::Mutex;

use super::broker::Broker;
use super::hidden_child::HiddenChild;
use super::limits::{Limits, PROGRAM_VARIABLE, ScanUser};
use super::{EXIT_TIMEOUT, failure, hidden_program, stat_of};

/// The hidden subcommand of the program `h5logfs` that does one scan.
const SUBCOMMAND: &str = "scan-worker";

/// A process that does one scan, and the socket for messages to it.
type Worker = (HiddenChild, OwnedFd);

/// Scans in processes without rights, of which each does one scan.
#[derive(Debug)]
pub struct OneScan {
    limits: Limits,
    /// What there is between scans. `None`: nothing.
    between: Option<Between>,
}

/// Workers that have not begun or not ended.
#[derive(Debug)]
struct Between {
    ready: Mutex<Option<Worker>>,
    answered: Mutex<Vec<HiddenChild>>,
}

impl OneScan {
    /// A scanner for a host. Nothing is left of it between scans: no process, no descriptor, no thread. The program is looked
    /// for when there is something to scan.
    pub fn new(limits: Limits) -> Self {
        OneScan {
            limits,
            between: None,
        }
    }

    /// A scanner for a program that nobody else lives in, and that is about to scan a file. The start of a worker takes a
    /// quarter of a small scan and its end a tenth, and the program goes on meanwhile: the first worker starts here, and the
    /// drop of the scanner waits until all have ended.
    pub fn at_once(limits: Limits) -> Self {
        // A scan that finds no worker starts one, and says why it cannot.
        let ready = start(&limits).ok();
        OneScan {
            limits,
            between: Some(Between {
                ready: Mutex::new(ready),
                answered: Mutex::default(),
            }),
        }
    }

    fn worker(&self) -> io::Result<Worker> {
        let between = self.between.as_ref();
        let ready = between.and_then(|between| between.ready.lock().take());
        ready.map_or_else(|| start(&self.limits), Ok)
    }

    /// Lets a worker end that has answered.
    fn end(&self, worker: HiddenChild) {
        match &self.between {
            Some(between) => between.answered.lock().push(worker),
            None => {
                worker.end(EXIT_TIMEOUT);
            }
        }
    }
}

impl Drop for OneScan {
    fn drop(&mut self) {
        let between = self.between.take();
        for worker in between.into_iter().flat_map(|b| b.answered.into_inner()) {
            worker.end(EXIT_TIMEOUT);
        }
    }
}

impl Scanner for OneScan {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        let owner = stat_of(&request)?.st_uid;
        let until = Instant::now() + self.limits.time;
        let (worker, socket) = self.worker().map_err(|e| {
            let (path, program) = (request.dir.full_path(request.relative), &self.limits.program);
            let program = program.display();
            Error::of(
                path,
                format!(
                    "a log is scanned by the program h5logfs, and {program} cannot be started: {e}; \
                     {PROGRAM_VARIABLE} can name another one"
                ),
            )
        })?;
        let broker = Broker::new(request, self.limits.metadata, owner);
        let served = broker.serve(task, socket.as_fd(), until);
        // If the scan goes on for which nobody waits any more, it ends with this.
        drop(socket);
        match served {
            Ok(bytes) => {
                // Meanwhile the worker ends.
                let checked = broker.check(task, &bytes);
                self.end(worker);
                checked
            }
            Err(cause) => {
                let end = || worker.end(EXIT_TIMEOUT);
                Err(failure(&self.limits, &broker, cause, end))
            }
        }
    }
}

fn start(limits: &Limits) -> io::Result<Worker> {
    let mut arguments = vec![
        SUBCOMMAND.to_owned(),
        format!("--memory={}", limits.memory),
        format!("--cpu={}", limits.cpu.as_secs()),
        hidden_program::release(),
    ];
    if let Some(ScanUser { uid, gid }) = limits.user()? {
        arguments.push(format!("--user={uid}:{gid}"));
    }
    let arguments = arguments.into_iter().map(OsString::from);
    hidden_program::start(&limits.program, arguments.collect())
}
