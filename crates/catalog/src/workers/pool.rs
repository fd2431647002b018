//! Workers that a zygote forks, a limited number at a time. The pool belongs to one process, and its drop ends the
//! processes of the pool.

use std::io;
use std::time::Instant;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::scan::ScanRequest;
use h5logfs_log::snapshot::Snapshot;
use parking_lot::Mutex;
use rustix::fs::Stat;

use super::broker::{Broker, NoSnapshot};
use super::failure;
use super::failure_budget::FailureBudget;
use super::idle::IdleWorkers;
use super::limits::Limits;
use super::slots::Slots;
use super::worker::Worker;
use super::zygote::{NoWorker, Zygote};

/// The workers of a scanner that threads share.
#[derive(Debug)]
pub struct Pool {
    slots: Slots,
    failures: FailureBudget,
    pub idle: IdleWorkers,
    /// The process that forks workers. A new one replaces it when it dies. The lock is held while a worker starts,
    /// because answers do not say whose they are. A wait for it lasts as long as the zygote's time limit, or longer
    /// where a zygote has to start first.
    zygote: Mutex<Zygote>,
}

impl Pool {
    /// Starts the zygote. A warning in the log tells which confinement the system lacks.
    pub fn start(limits: &Limits) -> Result<Self> {
        let zygote = start_zygote(limits)?;
        if let Some(lacking) = &zygote.lacking {
            log::warn!("scans are not fully confined: {lacking}");
        }
        Ok(Pool {
            slots: Slots::new(limits.workers),
            failures: FailureBudget::new(limits.cpu),
            idle: IdleWorkers::new(limits.batch, limits.workers),
            zygote: Mutex::new(zygote),
        })
    }

    /// Waits for a free worker, and has it do a scan. `file` is the state of the file to be scanned.
    pub fn scan(
        &self,
        limits: &Limits,
        task: &Task,
        request: &ScanRequest<'_>,
        file: &Stat,
    ) -> Result<Reserved<Snapshot>> {
        let owner = file.st_uid;
        let _slot = self.slots.take(owner);
        // Earlier scans may have spent the budget of the owner while this one waited.
        if let Some(reason) = self.failures.refusal(owner, Instant::now()) {
            let path = request.dir.full_path(request.relative);
            return Err(Error::of(path, reason));
        }
        let broker = Broker::new(*request, limits.metadata, owner);
        let rights = self.idle.rights(request, file);
        let idle = rights.as_ref().and_then(|rights| self.idle.take(rights));
        let by_idle = idle.map(|worker| self.scan_by(worker, limits, task, &broker, owner));
        let (scanned, worker) = match by_idle {
            Some((Ok(scanned), worker)) => (scanned, worker),
            // A failure counts only in a process that has seen no other file.
            _ => {
                let (scanned, worker) =
                    self.scan_by(self.worker(limits)?, limits, task, &broker, owner);
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
        mut worker: Worker,
        limits: &Limits,
        task: &Task,
        broker: &Broker<'_>,
        owner: u32,
    ) -> (Result<Reserved<Snapshot>>, Option<Worker>) {
        let start = Instant::now();
        let cause = match worker.scan(limits, task, broker) {
            Ok(bytes) => return (broker.check(task, &bytes), Some(worker)),
            Err(cause) => cause,
        };
        if !matches!(cause, NoSnapshot::Failed(_)) {
            self.failures.add(owner, start.elapsed(), Instant::now());
        }
        (Err(failure(limits, broker, cause, worker.process)), None)
    }

    /// Starts a worker. Replaces a dead zygote, but only once.
    fn worker(&self, limits: &Limits) -> Result<Worker> {
        let mut zygote = self.zygote.lock();
        let mut made = zygote.worker();
        if matches!(made, Err(NoWorker::ZygoteDied)) {
            log::warn!("the process that starts scan workers has died; it is started again");
            *zygote = start_zygote(limits)?;
            made = zygote.worker();
        }
        made.map_err(|e| match e {
            NoWorker::Refused(e) => Error::io("scan worker", e),
            NoWorker::ZygoteDied => Error::io("scan worker", io::ErrorKind::BrokenPipe.into()),
        })
    }
}

fn start_zygote(limits: &Limits) -> Result<Zygote> {
    Zygote::start(limits).map_err(|e| Error::io("scan worker", e))
}
