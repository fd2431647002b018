//! The client side of scans in another process: libhdf5 was not made for hostile files, and some files make
//! it crash or loop.
//!
//! ```text
//! daemon ──"a worker, please"──▶ zygote ──fork──▶ worker
//!    ▲                     (no rights, no files)     │
//!    └────── asks for files; sends a Snapshot ───────┘
//! ```
//!
//! * [`zygote`] starts the zygote and the workers, and ends them. The program that they run is the serving
//!   side, in the crate `h5logfs-scan`.
//! * [`broker`] opens the files that a worker asks for, and checks the snapshot that it sends.
//! * [`limits`] is what a scan may take.
//! * [`slots`] bounds how many workers there are at once, and for each owner of files.
//! * [`failure_budget`] refuses scans of an owner whose files keep killing workers.

mod broker;
mod failure_budget;
mod limits;
mod slots;
mod zygote;

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use h5logfs_core::error::{Error, Result};
use h5logfs_core::scan::{ScanRequest, Scanner};
use h5logfs_core::snapshot::Snapshot;
use parking_lot::Mutex;
use rustix::process::{Signal, WaitStatus};

use broker::{Broker, Stopped};
use failure_budget::FailureBudget;
pub use limits::{Limits, MOST_WORKERS, SMALLEST_MEMORY};
use slots::Slots;
pub use zygote::SUBCOMMAND;
use zygote::{NoWorker, Worker, Zygote};

/// A scanner whose scans run in processes without rights, a bounded number of them at once.
#[derive(Debug)]
pub struct WorkerPool {
    limits: Limits,
    slots: Slots,
    failures: FailureBudget,
    /// Started again when it has died.
    zygote: Mutex<Zygote>,
}

/// How long a worker that has sent its outcome may take to end.
const LAST_WORD: Duration = Duration::from_secs(1);

impl WorkerPool {
    /// Starts the zygote. Fails where that cannot be confined, or the program is not found.
    pub fn start(limits: Limits) -> Result<Self> {
        let zygote = start_zygote(&limits)?;
        if let Some(lacking) = &zygote.lacking {
            log::warn!("scans are not fully confined: {lacking}");
        }
        Ok(WorkerPool {
            slots: Slots::new(limits.workers),
            failures: FailureBudget::new(limits.cpu),
            zygote: Mutex::new(zygote),
            limits,
        })
    }

    fn scan_file(&self, request: ScanRequest<'_>) -> Result<Snapshot> {
        let path = request.dir.full_path(request.relative);
        let owner = request.dir.stat(request.relative);
        let owner = owner.map_err(|e| Error::io(&path, e))?.st_uid;
        let _slot = self.slots.take(owner);
        // Asked after the wait, since scans in front of this one may have spent the budget of its owner.
        let start = Instant::now();
        if let Some(reason) = self.failures.refusal(owner, start) {
            return Err(Error::bad_file(path, reason));
        }
        let (worker, socket) = self.worker()?;
        let until = start + self.limits.time;
        let broker = Broker::new(request, self.limits.metadata, owner);
        match broker.serve(socket, until) {
            Ok(bytes) => {
                worker.end(LAST_WORD);
                broker.check(&bytes)
            }
            Err(Stopped::Said(error)) => {
                worker.end(LAST_WORD);
                Err(error)
            }
            Err(stopped) => {
                let reason = self.why(stopped, worker);
                self.failures.add(owner, start.elapsed(), Instant::now());
                Err(Error::ScanDied { path, reason })
            }
        }
    }

    /// Replaces a zygote that has died, once.
    fn worker(&self) -> Result<(Worker, OwnedFd)> {
        let mut zygote = self.zygote.lock();
        let mut made = zygote.worker();
        if matches!(made, Err(NoWorker::ZygoteDied)) {
            log::warn!("the zygote of the scan workers has died; it is started again");
            *zygote = start_zygote(&self.limits)?;
            made = zygote.worker();
        }
        made.map_err(|e| match e {
            NoWorker::Refused(e) => Error::io("scan worker", e),
            NoWorker::ZygoteDied => Error::io("scan worker", io::ErrorKind::BrokenPipe.into()),
        })
    }

    /// Why there will be no snapshot, for the log.
    fn why(&self, stopped: Stopped, worker: Worker) -> String {
        let limits = &self.limits;
        let reason = match stopped {
            Stopped::TooLate => {
                return format!("it took more than {} s (scan_time)", limits.time.as_secs());
            }
            Stopped::Nonsense(reason) => {
                return format!("the worker does not make sense: {reason}");
            }
            Stopped::Gone | Stopped::Said(_) => worker.end(LAST_WORD),
        };
        let signal = reason.and_then(WaitStatus::terminating_signal);
        match signal {
            Some(signal) if signal == Signal::XCPU.as_raw() || signal == Signal::KILL.as_raw() => {
                let cpu = limits.cpu.as_secs();
                format!(
                    "it needs more than {cpu} s of processor time (scan_cpu), or memory ran out"
                )
            }
            Some(signal) if signal == Signal::ABORT.as_raw() => format!(
                "the worker gave up (signal {signal}); it may need more than {} bytes of memory (scan_memory)",
                limits.memory
            ),
            Some(signal) => format!("the worker was killed by signal {signal}"),
            None => "the worker ended without a word".to_owned(),
        }
    }
}

fn start_zygote(limits: &Limits) -> Result<Zygote> {
    Zygote::start(limits).map_err(|e| Error::io("scan worker", e))
}

impl Scanner for WorkerPool {
    fn scan(&self, request: ScanRequest<'_>) -> Result<Snapshot> {
        self.scan_file(request)
    }

    fn library(&self) -> String {
        self.zygote.lock().library.clone()
    }
}
