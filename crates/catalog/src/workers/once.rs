//! Workers that do one scan each. Nothing is left between scans: no process, no descriptor, no thread. The program is
//! looked for only when there is something to scan.

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::snapshot::Snapshot;
use parking_lot::Mutex;

use super::broker::Broker;
use super::fork::{Serve, fork};
use super::limits::Limits;
use super::worker::{Process, Worker, not_started};
use super::{failure, hidden_program};

/// The hidden subcommand of the program `h5logfs` that does one scan.
const SUBCOMMAND: &str = "scan-worker";

/// The workers of a scanner that keeps none.
#[derive(Debug, Default)]
pub struct Once {
    /// A worker that was started with the scanner.
    ready: Mutex<Option<Worker>>,
    /// A child of this process that has answered. It ends while the program goes on, and the drop of the scanner waits
    /// for its end.
    answered: Mutex<Option<Process>>,
}

impl Once {
    /// Forks the first worker, which starts while the program looks for the file to scan.
    pub fn forked(limits: &Limits, serve: Serve) -> Self {
        Once {
            // Where the fork fails, the scan starts the program anew, and reports why that cannot be done.
            ready: Mutex::new(fork(limits, serve).ok()),
            answered: Mutex::default(),
        }
    }

    /// Has a worker do a scan.
    pub fn scan(
        &self,
        limits: &Limits,
        task: &Task,
        broker: &Broker<'_>,
    ) -> Result<Reserved<Snapshot>> {
        let mut worker = self.worker(limits, broker)?;
        let served = worker.scan(limits, task, broker);
        let Worker {
            process, socket, ..
        } = worker;
        // A scan for which nobody waits any more ends with its socket.
        drop(socket);
        match served {
            Ok(bytes) => {
                // The worker ends meanwhile.
                let checked = broker.check(task, &bytes);
                self.let_go(process);
                checked
            }
            Err(cause) => Err(failure(limits, broker, cause, process)),
        }
    }

    fn worker(&self, limits: &Limits, broker: &Broker<'_>) -> Result<Worker> {
        if let Some(ready) = self.ready.lock().take() {
            return Ok(ready);
        }
        let arguments = limits.arguments(SUBCOMMAND).map(|mut arguments| {
            arguments.push(hidden_program::release());
            arguments
        });
        let program = &limits.program;
        let started = arguments.and_then(|arguments| Worker::of_program(program, arguments));
        started.map_err(|e| Error::of(broker.path(), not_started("a log is scanned", program, &e)))
    }

    /// Lets a worker end that has answered. A host must find nothing left of a hidden worker, so its end is waited for.
    fn let_go(&self, process: Process) {
        match process {
            Process::Child(_) => *self.answered.lock() = Some(process),
            Process::Hidden(_) => {
                process.end();
            }
        }
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        if let Some(process) = self.answered.get_mut().take() {
            process.end();
        }
    }
}
