//! A scanner for hosts that do not know us: each scan runs in a process of its own, which the host does not see.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ScanRequest, Scanner};
use h5logfs_log::snapshot::Snapshot;

use super::hidden_child::HiddenChild;
use super::limits::{Limits, PROGRAM_VARIABLE, ScanUser};
use super::{EXIT_TIMEOUT, broker_of, hidden_program, scan_once};

/// The hidden subcommand of the program `h5logfs` that does one scan.
const SUBCOMMAND: &str = "scan-worker";

/// A process that does one scan, and the socket for messages to it.
type Worker = (HiddenChild, OwnedFd);

/// Scans in processes without rights, of which each does one scan. Nothing is left between scans: no process, no descriptor, no
/// thread. The program is looked for when there is something to scan.
#[derive(Debug)]
pub struct OneScan {
    pub(super) limits: Limits,
}

impl OneScan {
    /// A scanner within these limits.
    pub fn new(limits: Limits) -> Self {
        OneScan { limits }
    }
}

impl Scanner for OneScan {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        let broker = broker_of(&self.limits, request)?;
        let worker = start(&self.limits).map_err(|e| {
            let program = self.limits.program.display();
            Error::of(
                broker.path(),
                format!(
                    "a log is scanned by the program h5logfs, and {program} cannot be started: {e}; \
                     {PROGRAM_VARIABLE} can name another one"
                ),
            )
        })?;
        let end = |worker: HiddenChild| worker.end(EXIT_TIMEOUT);
        let let_go = |worker| {
            end(worker);
        };
        scan_once(&self.limits, task, &broker, worker, let_go, end)
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
