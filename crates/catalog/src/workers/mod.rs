//! The client side of scans in other processes. libhdf5 was not made for hostile files: some make it crash or
//! loop.
//!
//! ```text
//! daemon ── request for a worker ──▶ zygote ──fork──▶ worker
//!    ▲                       (no rights, no files)      │
//!    └───────── asks for files; sends a Snapshot ───────┘
//! ```
//!
//! A [`WorkerPool`] starts the zygote, a small process that forks workers. [`OneScan`] starts a worker
//! itself, where nothing may be left between scans. All of them run the program `h5logfs`, and a [`ForkedScan`], which that
//! program uses for one file, forks the worker from it. The serving side is in the crate `h5logfs-scan`.
//!
//! * `zygote` starts and ends the zygote, which forks workers, and `child` ends them.
//! * `hidden_child` starts a process that a host does not see among its children, `hidden_program` the program h5logfs in
//!   one, and `one_close` closes a log that way.
//! * `broker` opens the files that a worker asks for, and checks its snapshot.
//! * `idle` keeps workers from one scan of a listing to the next.
//! * `limits` holds the limits of a scan.
//! * `slots` limits the number of workers, in all and for each owner of files.
//! * `failure_budget` refuses scans for an owner whose files keep killing workers.

mod broker;
mod child;
mod failure_budget;
mod forked_scan;
mod hidden_child;
mod hidden_program;
mod idle;
mod limits;
pub(crate) mod one_close;
mod one_scan;
mod slots;
mod zygote;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ScanRequest, Scanner};
use h5logfs_log::snapshot::Snapshot;
use parking_lot::Mutex;
use rustix::fs::Stat;
use rustix::process::Signal;

use broker::{Broker, NoSnapshot};
use failure_budget::FailureBudget;
pub use forked_scan::ForkedScan;
use idle::{Idle, IdleWorkers};
pub use limits::{LARGEST_BATCH, Limits, MOST_WORKERS, PROGRAM_VARIABLE, SMALLEST_MEMORY};
pub use one_scan::OneScan;
use slots::Slots;
use zygote::{NoWorker, Zygote};

/// A scanner whose scans run in processes without rights, a limited number at a time.
///
/// The pool belongs to one process and ends its processes on drop. Threads share it: [`Scanner::scan`] waits for a
/// free worker. It fails with [`Error::ScanDied`] for a scan that crashes or exceeds its [`Limits`].
#[derive(Debug)]
pub struct WorkerPool {
    limits: Limits,
    slots: Slots,
    failures: FailureBudget,
    idle: IdleWorkers,
    /// A new one replaces it when it dies. Held while it starts a worker, since answers come without a name: with its
    /// time limit, and for one that has to be started first.
    zygote: Mutex<Zygote>,
}

/// How long a worker may take to end after it has sent its outcome.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

impl WorkerPool {
    /// Starts the zygote. Fails with [`Error::Io`] if the program is not found or cannot be confined. Confinement that
    /// the system supports in part is a warning in the log.
    pub fn start(limits: Limits) -> Result<Self> {
        let zygote = start_zygote(&limits)?;
        if let Some(lacking) = &zygote.lacking {
            log::warn!("scans are not fully confined: {lacking}");
        }
        Ok(WorkerPool {
            slots: Slots::new(limits.workers),
            failures: FailureBudget::new(limits.cpu),
            idle: IdleWorkers::new(limits.batch, limits.workers),
            zygote: Mutex::new(zygote),
            limits,
        })
    }

    fn scan_with_worker(
        &self,
        task: &Task,
        request: ScanRequest<'_>,
    ) -> Result<Reserved<Snapshot>> {
        let file = stat_of(&request)?;
        let owner = file.st_uid;
        let _slot = self.slots.take(owner);
        // Earlier scans may have spent the budget of the owner while this one waited.
        if let Some(reason) = self.failures.refusal(owner, Instant::now()) {
            let path = request.dir.full_path(request.relative);
            return Err(Error::of(path, reason));
        }
        let broker = Broker::new(request, self.limits.metadata, owner);
        let rights = self.idle.rights(&request, &file);
        let idle = rights.as_ref().and_then(|rights| self.idle.take(rights));
        let by_idle = idle.map(|worker| self.scan_by(worker, task, &broker, owner));
        let (scanned, worker) = match by_idle {
            Some((Ok(scanned), worker)) => (scanned, worker),
            // A file is judged by a process that has seen no other one.
            _ => {
                let (scanned, worker) = self.scan_by(self.worker()?, task, &broker, owner);
                (scanned?, worker)
            }
        };
        if let Some((rights, worker)) = rights.zip(worker) {
            self.idle.put(rights, worker, &scanned);
        }
        Ok(scanned)
    }

    /// Has a worker do a scan. Returns the worker, too, unless it has ended.
    fn scan_by(
        &self,
        mut worker: Idle,
        task: &Task,
        broker: &Broker<'_>,
        owner: u32,
    ) -> (Result<Reserved<Snapshot>>, Option<Idle>) {
        let start = Instant::now();
        worker.scans += 1;
        let served = broker.serve(task, worker.socket.as_fd(), start + self.limits.time);
        let cause = match served {
            Ok(bytes) => return (broker.check(task, &bytes), Some(worker)),
            Err(cause) => cause,
        };
        if !matches!(cause, NoSnapshot::Failed(_)) {
            self.failures.add(owner, start.elapsed(), Instant::now());
        }
        let end = || worker.process.end(EXIT_TIMEOUT)?.terminating_signal();
        (Err(failure(&self.limits, broker, cause, end)), None)
    }

    /// Starts a worker. Replaces a zygote that has died, once.
    fn worker(&self) -> Result<Idle> {
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
}

/// The state of the file that is to be scanned.
fn stat_of(request: &ScanRequest<'_>) -> Result<Stat> {
    let found = request.dir.stat(request.relative);
    found.map_err(|e| Error::io(request.dir.full_path(request.relative), e))
}

/// What serves the only scan of a worker. Fails where the file cannot be looked at.
fn broker_of<'a>(limits: &Limits, request: ScanRequest<'a>) -> Result<Broker<'a>> {
    let owner = stat_of(&request)?.st_uid;
    Ok(Broker::new(request, limits.metadata, owner))
}

/// Has a worker that does one scan do it. `let_go` ends the worker once it has answered; `end` waits for the end of one that has not,
/// and returns the signal that has ended it.
fn scan_once<W>(
    limits: &Limits,
    task: &Task,
    broker: &Broker<'_>,
    (worker, socket): (W, OwnedFd),
    let_go: impl FnOnce(W),
    end: impl FnOnce(W) -> Option<i32>,
) -> Result<Reserved<Snapshot>> {
    let served = broker.serve(task, socket.as_fd(), Instant::now() + limits.time);
    // If the scan goes on for which nobody waits any more, it ends with this.
    drop(socket);
    match served {
        Ok(bytes) => {
            // Meanwhile the worker ends.
            let checked = broker.check(task, &bytes);
            let_go(worker);
            checked
        }
        Err(cause) => Err(failure(limits, broker, cause, || end(worker))),
    }
}

/// Why there is no snapshot. `end` waits for the end of the worker, and returns the signal that has ended it.
fn failure(
    limits: &Limits,
    broker: &Broker<'_>,
    cause: NoSnapshot,
    end: impl FnOnce() -> Option<i32>,
) -> Error {
    match cause {
        NoSnapshot::Failed(error) => error,
        cause => Error::ScanDied {
            path: broker.path(),
            reason: describe(limits, cause, end),
        },
    }
}

/// Tells why there is no snapshot. `end` waits for the end of the worker, and returns the signal that has ended it.
fn describe(limits: &Limits, cause: NoSnapshot, end: impl FnOnce() -> Option<i32>) -> String {
    let signal = match cause {
        NoSnapshot::TimedOut => {
            return format!("it took more than {} s (scan_time)", limits.time.as_secs());
        }
        NoSnapshot::BadMessage(reason) => {
            return format!("the worker does not make sense: {reason}");
        }
        NoSnapshot::WorkerGone | NoSnapshot::Failed(_) => end(),
    };
    match signal {
        Some(signal) if signal == Signal::XCPU.as_raw() || signal == Signal::KILL.as_raw() => {
            let cpu = limits.cpu.as_secs();
            format!(
                "it needs more processor time than a file of its size can need, or than {cpu} s (scan_cpu), or memory ran out"
            )
        }
        Some(signal) if signal == Signal::ABORT.as_raw() => format!(
            "the worker gave up (signal {signal}); it may need more than {} bytes of memory (scan_memory)",
            limits.memory
        ),
        // libhdf5 does not always notice that there is no memory.
        Some(signal) if signal == Signal::SEGV.as_raw() || signal == Signal::BUS.as_raw() => {
            format!(
                "the worker crashed (signal {signal}): the file is damaged, or needs more than {} bytes of memory (scan_memory)",
                limits.memory
            )
        }
        Some(signal) => format!("the worker was killed by signal {signal}"),
        None => "the worker ended without a word".to_owned(),
    }
}

fn start_zygote(limits: &Limits) -> Result<Zygote> {
    Zygote::start(limits).map_err(|e| Error::io("scan worker", e))
}

impl Scanner for WorkerPool {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        self.scan_with_worker(task, request)
    }

    fn begin_listing(&self) {
        self.idle.begin_listing();
    }

    fn end_listing(&self) {
        self.idle.end_listing();
    }
}
