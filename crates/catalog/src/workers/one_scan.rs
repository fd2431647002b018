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

use super::broker::Broker;
use super::hidden_child::HiddenChild;
use super::limits::{Limits, PROGRAM_VARIABLE, ScanUser};
use super::{EXIT_TIMEOUT, failure, hidden_program, stat_of};

/// The hidden subcommand of the program `h5logfs` that does one scan.
const SUBCOMMAND: &str = "scan-worker";

/// Scans in processes without rights, of which each does one scan. Nothing is left of it between scans: no process, no
/// descriptor, no thread.
#[derive(Debug)]
pub struct OneScan {
    limits: Limits,
}

impl OneScan {
    /// A scanner with these limits. The program is looked for when there is something to scan.
    pub fn new(limits: Limits) -> Self {
        OneScan { limits }
    }
}

impl Scanner for OneScan {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        let owner = stat_of(&request)?.st_uid;
        let until = Instant::now() + self.limits.time;
        let (worker, socket) = start(&self.limits).map_err(|e| {
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
        let end = || worker.end(EXIT_TIMEOUT);
        match served {
            Ok(bytes) => {
                // Meanwhile the worker ends.
                let checked = broker.check(task, &bytes);
                end();
                checked
            }
            Err(cause) => Err(failure(&self.limits, &broker, cause, end)),
        }
    }
}

/// Starts a worker. Returns it with the socket for messages to it.
fn start(limits: &Limits) -> io::Result<(HiddenChild, OwnedFd)> {
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
