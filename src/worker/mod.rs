//! Scans in a process of their own, which has no rights: libhdf5 was not made for files that nobody
//! vouches for, and some of them make it crash, or go on forever.
//!
//! ```text
//! daemon ──"a worker, please"──▶ stem ──fork──▶ worker
//!    ▲                     (no rights, no files)   │
//!    └────── asks for files; sends a Snapshot ─────┘
//! ```
//!
//! * [`serve`] is the stem and the worker; [`confine`] is what they give up.
//! * [`stem`] starts both, and ends them.
//! * [`message`] is what daemon and worker say to each other.
//! * [`lending`] is the daemon's side of that: which files a worker gets, and what it is believed.
//! * [`limits`] is what a scan may take.
//! * [`slots`] is how many workers there are at once, and for whom; [`losses`] is what scans that died have cost.

mod confine;
mod lending;
mod limits;
mod losses;
mod message;
mod serve;
mod slots;
mod stem;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Signal, WaitStatus};

use crate::error::{Error, Result};
use crate::log::source::{Folder, Place, SourceFile};
use crate::scan::{self, Listings, Settings};
use crate::snapshot::Snapshot;
use lending::{Lending, Stopped};
pub use limits::{Limits, MOST_WORKERS, SMALLEST_MEMORY};
use losses::Losses;
use message::Direction;
pub use serve::{Granted, serve};
use slots::Slots;
use stem::{NoWorker, Stem, Worker};

/// Who scans.
#[derive(Debug)]
pub enum Scanner {
    /// This process, one file at a time: for files that are trusted.
    Here(Mutex<()>),
    /// Processes without rights.
    Workers(Box<Workers>),
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner::Here(Mutex::new(()))
    }
}

/// One file to be scanned.
#[derive(Debug, Clone, Copy)]
pub struct Scan<'a> {
    pub folder: &'a Folder,
    /// The file, below the folder.
    pub relative: &'a Path,
    /// The files beside it that could make a log of it, where such files can.
    pub companions: Option<&'a [Place]>,
    pub settings: &'a Settings,
}

impl Scanner {
    /// A scanner of workers.
    pub fn confined(limits: Limits) -> Result<Self> {
        let workers = Workers::start(limits)?;
        Ok(Scanner::Workers(Box::new(workers)))
    }

    /// As [`scan::scan_beside`]. [`Error::ScanDied`] says that the file does to libhdf5 what it should
    /// not.
    pub fn scan(&self, wanted: Scan<'_>) -> Result<Snapshot> {
        let Scan {
            folder,
            relative,
            companions,
            settings,
        } = wanted;
        match self {
            Scanner::Here(one_at_a_time) => {
                let _turn = one_at_a_time.lock();
                scan::scan_beside(folder, relative, companions, settings)
            }
            Scanner::Workers(workers) => workers.scan(wanted),
        }
    }

    /// The same for who does not know what lies beside the file.
    pub fn scan_alone(
        &self,
        folder: &Folder,
        relative: &Path,
        settings: &Settings,
    ) -> Result<Snapshot> {
        let source = SourceFile::open(folder, relative)?;
        let listings = Listings::default();
        let look = scan::look(folder, relative, &source, settings, &listings)?;
        self.scan(Scan {
            folder,
            relative,
            companions: look.companions.as_deref(),
            settings,
        })
    }
}

/// Processes that scan, as many as are allowed at once.
#[derive(Debug)]
pub struct Workers {
    limits: Limits,
    slots: Slots,
    losses: Losses,
    /// Made anew should it go.
    stem: Mutex<Stem>,
}

/// A worker that has said its last word ends at once.
const LAST_WORD: Duration = Duration::from_secs(1);

impl Workers {
    fn start(limits: Limits) -> Result<Self> {
        let stem = start_stem(&limits)?;
        if let Some(lacking) = &stem.lacking {
            log::warn!("scans are not shut in as they should be: {lacking}");
        }
        Ok(Workers {
            slots: Slots::new(limits.workers),
            losses: Losses::new(limits.cpu),
            stem: Mutex::new(stem),
            limits,
        })
    }

    fn scan(&self, wanted: Scan<'_>) -> Result<Snapshot> {
        let path = wanted.folder.full_path(wanted.relative);
        let owner = wanted.folder.stat(wanted.relative);
        let owner = owner.map_err(|e| Error::io(&path, e))?.st_uid;
        let _slot = self.slots.take(owner);
        // After the wait: those in front may have spent the time of this one's owner.
        let start = Instant::now();
        if let Some(reason) = self.losses.refusal(owner, start) {
            return Err(Error::bad_file(path, reason));
        }
        let (worker, socket) = self.worker()?;
        let until = start + self.limits.time;
        let lending = Lending::new(wanted, self.limits.metadata, owner);
        match lending.serve(socket, until) {
            Ok(bytes) => {
                worker.end(LAST_WORD);
                lending.believe(&bytes)
            }
            Err(Stopped::Said(error)) => {
                worker.end(LAST_WORD);
                Err(error)
            }
            Err(stopped) => {
                let reason = self.why(stopped, worker);
                self.losses.add(owner, start.elapsed(), Instant::now());
                Err(Error::ScanDied { path, reason })
            }
        }
    }

    /// A stem that is gone is replaced, once.
    fn worker(&self) -> Result<(Worker, std::os::fd::OwnedFd)> {
        let mut stem = self.stem.lock();
        let mut made = stem.worker();
        if matches!(made, Err(NoWorker::StemGone)) {
            log::warn!("the process that makes scan workers is gone; it is started again");
            *stem = start_stem(&self.limits)?;
            made = stem.worker();
        }
        made.map_err(|e| match e {
            NoWorker::Refused(e) => Error::io("scan worker", e),
            NoWorker::StemGone => Error::io("scan worker", io::ErrorKind::BrokenPipe.into()),
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

fn start_stem(limits: &Limits) -> Result<Stem> {
    Stem::start(limits).map_err(|e| Error::io("scan worker", e))
}

/// Waits until the socket can be read, or written to; false when it is `until` before.
fn poll(socket: BorrowedFd<'_>, to: Direction, until: Option<Instant>) -> io::Result<bool> {
    let flags = match to {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    };
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = [PollFd::from_borrowed_fd(socket, flags)];
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
