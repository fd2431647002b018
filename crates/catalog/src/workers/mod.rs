//! The client side of scans in other processes. libhdf5 was not made for hostile files: some make it crash or loop for
//! ever.
//!
//! ```text
//! daemon ── request for a worker ──▶ zygote ──fork──▶ worker
//!    ▲                       (no rights, no files)      │
//!    └───────── asks for files; sends a Snapshot ───────┘
//! ```
//!
//! [`Workers`] is the scanner. Its policy decides what becomes of a worker after a scan, and how many workers there may
//! be. All workers run the program `h5logfs`, whose serving side is in the crate `h5logfs-scan`.
//!
//! * `worker` is a running worker, whoever has started it.
//! * `once` is the policy of one scan for each worker, `pool` that of a limited number of workers that threads share.
//! * `fork` forks a worker from this process. `zygote` starts and ends the zygote, which forks workers. `hidden_child`
//!   starts a process that a host does not see among its children, and `hidden_program` the program h5logfs in one.
//! * `one_close` has such a process close a log.
//! * `broker` opens the files that a worker asks for, and checks its snapshot.
//! * `idle` keeps workers from one scan of a listing to the next.
//! * `limits` holds the limits of a scan.
//! * `slots` limits the number of workers, in all and for each owner of files.
//! * `failure_budget` refuses scans for an owner whose files keep killing workers.

mod broker;
mod failure_budget;
mod fork;
mod hidden_child;
mod hidden_program;
mod idle;
mod limits;
mod once;
pub(crate) mod one_close;
mod pool;
mod slots;
mod worker;
mod zygote;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ScanRequest, Scanner};
use h5logfs_log::snapshot::Snapshot;
use rustix::process::Signal;

use broker::{Broker, NoSnapshot};
pub use fork::Serve;
pub use limits::{LARGEST_BATCH, Limits, MOST_WORKERS, PROGRAM_VARIABLE, SMALLEST_MEMORY};
use once::Once;
use pool::Pool;
use worker::Process;

/// A scanner whose scans run in processes without rights. [`Scanner::scan`] fails with [`Error::ScanDied`] for a scan that
/// crashes or exceeds its [`Limits`].
#[derive(Debug)]
pub struct Workers {
    limits: Limits,
    policy: Policy,
}

/// The lifetime of workers, and their number.
#[derive(Debug)]
enum Policy {
    /// A worker ends after its scan. There are as many workers as scans.
    Once(Once),
    /// A worker may do another scan of the same listing. Threads share a limited number of workers.
    Pooled(Box<Pool>),
}

impl Workers {
    /// A limited number of workers, which a zygote forks. Threads share them, and wait for a free one. Fails with [`Error::Io`]
    /// if the program is not found or cannot be confined.
    pub fn pooled(limits: Limits) -> Result<Self> {
        let pool = Pool::start(&limits)?;
        let policy = Policy::Pooled(Box::new(pool));
        Ok(Workers { limits, policy })
    }

    /// One worker for each scan, which the host does not see. This is for hosts that do not know us.
    pub fn once(limits: Limits) -> Self {
        Workers {
            limits,
            policy: Policy::Once(Once::default()),
        }
    }

    /// One worker for each scan. The first one is a fork of this process, made now. This is for the program `h5logfs`
    /// just after its start.
    pub fn once_forked(limits: Limits, serve: Serve) -> Self {
        let policy = Policy::Once(Once::forked(&limits, serve));
        Workers { limits, policy }
    }

    fn pool(&self) -> Option<&Pool> {
        match &self.policy {
            Policy::Once(_) => None,
            Policy::Pooled(pool) => Some(pool),
        }
    }
}

impl Scanner for Workers {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        let limits = &self.limits;
        let file = request.dir.stat(request.file());
        let file = file.map_err(|e| Error::io(request.dir.full_path(request.relative), e))?;
        match &self.policy {
            Policy::Once(once) => {
                let broker = Broker::new(request, limits.metadata, file.st_uid);
                once.scan(limits, task, &broker)
            }
            Policy::Pooled(pool) => pool.scan(limits, task, &request, &file),
        }
    }

    fn begin_listing(&self) {
        if let Some(pool) = self.pool() {
            pool.idle.begin_listing();
        }
    }

    fn end_listing(&self) {
        if let Some(pool) = self.pool() {
            pool.idle.end_listing();
        }
    }
}

/// The error of a scan without a snapshot. Waits for the end of the worker where its end tells more.
fn failure(limits: &Limits, broker: &Broker<'_>, cause: NoSnapshot, worker: Process) -> Error {
    match cause {
        NoSnapshot::Failed(error) => error,
        cause => Error::ScanDied {
            path: broker.path(),
            reason: describe(limits, cause, worker),
        },
    }
}

/// The reason for a missing snapshot, in words. Waits for the end of the worker.
fn describe(limits: &Limits, cause: NoSnapshot, worker: Process) -> String {
    let signal = match cause {
        NoSnapshot::TimedOut => {
            return format!("it took more than {} s (scan_time)", limits.time.as_secs());
        }
        NoSnapshot::BadMessage(reason) => {
            return format!("the worker sent an invalid message: {reason}");
        }
        NoSnapshot::WorkerGone | NoSnapshot::Failed(_) => worker.end(),
    };
    match signal {
        Some(signal) if signal == Signal::XCPU.as_raw() || signal == Signal::KILL.as_raw() => {
            let cpu = limits.cpu.as_secs();
            format!(
                "it took more processor time than a file of its size can need, or more than {cpu} s (scan_cpu), or memory ran out"
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
        None => "the worker ended without an answer".to_owned(),
    }
}
