//! Closes logs in a separate process, which the host does not see.
//!
//! A program may open, write and close its log for each step. The start of a process would then take most of the time
//! of a step. So a host that closes logs in quick succession keeps the process. The process waits for the next log for
//! a moment ([`PATIENCE`](h5logfs_log::scan::protocol::PATIENCE)), and then ends by itself.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::process::Process;
use h5logfs_common::task::Task;
use h5logfs_log::scan::protocol::{Channel, CloseTask, CloseWork, Forever, Request};
use parking_lot::Mutex;

use super::hidden_program;
use super::worker::{self, Worker, not_started};

/// The hidden subcommand of the program `h5logfs` that closes logs.
const SUBCOMMAND: &str = "close-log";

/// The most bytes of an answer, which is a message for a person.
const LARGEST_ANSWER: usize = 1 << 20;

/// Longest time between two closes of a program that closes its log for each step.
const SOON: Duration = Duration::from_secs(10);

/// The state of this host. A fork may leave the lock to nobody, so no thread waits for it.
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    closer: None,
    last: None,
});

/// Options of a close.
#[derive(Debug, Clone, Copy, Default)]
pub struct Close {
    /// Whether to wait until the log is on the disk.
    pub sync: bool,
    /// Makes the closed log an ordinary HDF5 file, as `h5logfs settle` does, with this many bytes of memory for each of
    /// its purposes.
    pub settle: Option<u64>,
    /// The number of the journal's file ([`HeldFile::number`](h5logfs_log::journal::HeldFile::number)). A log with
    /// another journal belongs to another job, and is not closed. `None` accepts any journal.
    pub journal: Option<u64>,
}

/// The outcome of a close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// All that was asked for is done.
    Done,
    /// The log is closed, but no ordinary HDF5 file, for this reason.
    NotSettled(Fault),
    /// All that was asked for is done, except for data that this message of the program names.
    Without(String),
}

/// Closes the log at an absolute path. No process may hold the lock of its journal. Fails with the message of the
/// program.
pub fn close(program: &Path, log: &Path, how: Close) -> Result<Closed> {
    let Close {
        sync,
        settle,
        journal,
    } = how;
    let close = CloseWork::Close {
        sync,
        settle,
        journal,
    };
    work(program, log, close)
}

/// Adds a flush of the unflushed data of the log at an absolute path. No process may hold the lock of its journal.
/// Fails with the message of the program. Returns its message about data that cannot be taken in.
pub fn take_in(program: &Path, log: &Path) -> Result<Option<String>> {
    Ok(match work(program, log, CloseWork::TakeIn)? {
        Closed::Done => None,
        Closed::Without(left) => Some(left),
        Closed::NotSettled(reason) => Some(reason.to_string()),
    })
}

fn work(program: &Path, log: &Path, work: CloseWork) -> Result<Closed> {
    if let Some(closer) = Kept::take(program) {
        match closer.work(log, work) {
            // The work may be done or not, and can be repeated.
            Answer::Ended => drop(closer.end()),
            Answer::Closed(closed) => {
                Kept::put(closer);
                return closed;
            }
            Answer::EndedInSettling => return Ok(Closed::NotSettled(closer.end().into())),
        }
    }
    let closer = Closer::start(program).map_err(|e| {
        let what = match work {
            CloseWork::Close { .. } => "a log is closed",
            CloseWork::TakeIn => "unflushed data are merged",
        };
        Error::of(log, not_started(what, program, &e))
    })?;
    match closer.work(log, work) {
        Answer::Closed(closed) => {
            Kept::put(closer);
            closed
        }
        Answer::Ended => Err(Error::of(log, closer.end())),
        Answer::EndedInSettling => Ok(Closed::NotSettled(closer.end().into())),
    }
}

/// The answer of a closing process about one log.
enum Answer {
    Closed(Result<Closed>),
    /// No answer: the process has ended.
    Ended,
    /// No answer about settling: the process ended when the log was closed.
    EndedInSettling,
}

/// A process that closes logs.
struct Closer {
    process: worker::Process,
    socket: Arc<OwnedFd>,
    channel: Channel<Arc<OwnedFd>, Forever>,
    /// Device and inode of the socket. A host may close descriptors that it does not know, and the next file that it
    /// opens gets their numbers.
    identity: Option<(u64, u64)>,
    program: PathBuf,
    host: Host,
}

fn identity(socket: &OwnedFd) -> Option<(u64, u64)> {
    let found = rustix::fs::fstat(socket).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// The properties of a process that decide what its children can do.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    process: Process,
    user: u32,
    group: u32,
    /// Device and inode of its root directory.
    root: Option<(u64, u64)>,
}

impl Host {
    /// This process as it is now.
    fn now() -> Self {
        let root = fs::metadata("/").ok();
        Host {
            process: Process::this(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            root: root.map(|root| (root.dev(), root.ino())),
        }
    }
}

impl Closer {
    fn start(program: &Path) -> io::Result<Self> {
        let arguments = vec![SUBCOMMAND.to_owned(), hidden_program::release()];
        let Worker {
            process, socket, ..
        } = Worker::of_program(program, arguments)?;
        let socket = Arc::new(socket);
        Ok(Closer {
            process,
            channel: Channel::new(Arc::clone(&socket), Forever),
            identity: identity(&socket),
            socket,
            program: program.to_owned(),
            host: Host::now(),
        })
    }

    fn work(&self, log: &Path, work: CloseWork) -> Answer {
        let task = CloseTask {
            log: log.into(),
            work,
        };
        let sent = self.channel.send(&task, None).ok();
        match sent.and_then(|()| self.outcome()) {
            None => return Answer::Ended,
            Some(Err(reason)) => return Answer::Closed(Err(reason)),
            Some(Ok(left)) if !left.is_empty() => return Answer::Closed(Ok(Closed::Without(left))),
            Some(Ok(_)) => {}
        }
        let settles = matches!(
            work,
            CloseWork::Close {
                settle: Some(_),
                ..
            }
        );
        if !settles {
            return Answer::Closed(Ok(Closed::Done));
        }
        match self.outcome() {
            None => Answer::EndedInSettling,
            Some(Ok(_)) => Answer::Closed(Ok(Closed::Done)),
            Some(Err(reason)) => Answer::Closed(Ok(Closed::NotSettled(reason.into()))),
        }
    }

    /// The message of the program about its work, or its error. `None` where it has ended.
    fn outcome(&self) -> Option<Result<String>> {
        let received = self
            .channel
            .receive_request(LARGEST_ANSWER, &mut Task::unlimited().reservation());
        match received {
            Ok(Request::Done(outcome)) => {
                let said = outcome.into_result();
                Some(said.map(|said| String::from_utf8_lossy(&said).into_owned()))
            }
            _ => None,
        }
    }

    /// Whether the descriptor still is the socket.
    fn is_connected(&self) -> bool {
        self.identity.is_some() && identity(&self.socket) == self.identity
    }

    /// Lets the process end. Returns how it ended, in words, or nothing where another process has started it.
    fn end(self) -> String {
        let is_connected = self.is_connected();
        let Closer {
            process,
            socket,
            channel,
            host,
            ..
        } = self;
        if is_connected {
            drop((channel, socket));
        } else {
            // By now the number of the descriptor belongs to the host.
            mem::forget((channel, socket));
        }
        if !host.process.is_this() {
            // The process is the child of another one, from which this one was forked.
            mem::forget(process);
            return String::new();
        }
        match process.end() {
            Some(signal) => format!("the program that closes it was killed by signal {signal}"),
            None => "the program that closes it ended without an answer".into(),
        }
    }
}

/// The state of a host between two closes.
struct Kept {
    closer: Option<Closer>,
    /// Time of the last close.
    last: Option<Instant>,
}

impl Kept {
    /// The process that was kept, if it runs this program.
    fn take(program: &Path) -> Option<Closer> {
        let closer = KEPT.try_lock()?.closer.take()?;
        if closer.program == program && closer.host == Host::now() && closer.is_connected() {
            return Some(closer);
        }
        closer.end();
        None
    }

    /// Keeps a process where another close may follow soon. Otherwise lets it end.
    fn put(closer: Closer) {
        let now = Instant::now();
        let mut own = Some(closer);
        let mut before = None;
        if let Some(mut kept) = KEPT.try_lock() {
            let last = kept.last.replace(now);
            if last.is_some_and(|last| now.duration_since(last) < SOON) {
                before = mem::replace(&mut kept.closer, own.take());
            }
        }
        for closer in own.into_iter().chain(before) {
            closer.end();
        }
    }
}
