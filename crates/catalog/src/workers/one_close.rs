//! Closes logs in a process of its own, which the host does not see.
//!
//! A program may open, write and close its log for each step. The start of a process would take most of the time of a step
//! then. So where a host closes logs one soon after the other, it keeps the process, which waits for the next one for a
//! moment ([`PATIENCE`](h5logfs_log::scan::protocol::PATIENCE)), and ends by itself.

use std::ffi::OsString;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::scan::protocol::{Channel, CloseTask, Forever, Request};
use parking_lot::Mutex;

use super::hidden_child::HiddenChild;
use super::limits::PROGRAM_VARIABLE;
use super::{EXIT_TIMEOUT, hidden_program};

/// The hidden subcommand of the program `h5logfs` that closes logs.
const SUBCOMMAND: &str = "close-log";

/// The most bytes of an answer, which is a message for a person.
const LARGEST_ANSWER: usize = 1 << 20;

/// Closes that follow each other within this time are those of a program that closes its log for each step.
const SOON: Duration = Duration::from_secs(10);

/// A fork may leave the lock to nobody, so no thread waits for it.
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    closer: None,
    last: None,
});

/// How a log is closed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Close {
    /// Wait until it is on the disk.
    pub sync: bool,
    /// Then make it an ordinary HDF5 file, as `h5logfs settle` does, with so many bytes of memory for each of its purposes.
    pub settle: Option<u64>,
}

/// What has become of a log that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// What was asked for.
    Done,
    /// A closed log, for the reason that the program says, and no ordinary HDF5 file.
    NotSettled(Fault),
}

/// Closes the log at an absolute path, whose journal no process may have locked. Fails with what the program says.
pub fn close(program: &Path, log: &Path, how: Close) -> Result<Closed> {
    if let Some(closer) = Kept::take(program)
        && let Some(closed) = closer.answer(log, how)
    {
        Kept::put(closer);
        return closed;
    }
    let closer = Closer::start(program).map_err(|e| {
        let program = program.display();
        let reason = format!(
            "a log is closed by the program h5logfs, and {program} cannot be started: {e}; {PROGRAM_VARIABLE} can name \
             another one"
        );
        Error::of(log, reason)
    })?;
    let Some(closed) = closer.answer(log, how) else {
        return Err(Error::of(log, closer.end()));
    };
    Kept::put(closer);
    closed
}

/// A process that closes logs.
struct Closer {
    child: HiddenChild,
    channel: Channel<OwnedFd, Forever>,
    program: PathBuf,
    /// The process that has started it.
    host: u32,
}

impl Closer {
    fn start(program: &Path) -> io::Result<Self> {
        let arguments = [SUBCOMMAND.to_owned(), hidden_program::release()];
        let arguments = arguments.map(OsString::from);
        let (child, socket) = hidden_program::start(program, arguments.into())?;
        Ok(Closer {
            child,
            channel: Channel::new(socket, Forever),
            program: program.to_owned(),
            host: process::id(),
        })
    }

    /// `None` where the process has ended. Then the log may be closed or not, and can be closed again.
    fn answer(&self, log: &Path, how: Close) -> Option<Result<Closed>> {
        let task = CloseTask {
            log: log.into(),
            sync: how.sync,
            settle: how.settle,
        };
        self.channel.send(&task, None).ok()?;
        if let Err(reason) = self.outcome()? {
            return Some(Err(reason));
        }
        let settled = how.settle.map(|_| self.outcome());
        Some(Ok(match settled {
            None | Some(Some(Ok(()))) => Closed::Done,
            Some(Some(Err(reason))) => Closed::NotSettled(reason.into()),
            Some(None) => {
                Closed::NotSettled("the program that settles it ended without a word".into())
            }
        }))
    }

    fn outcome(&self) -> Option<Result<()>> {
        let received = self
            .channel
            .receive(LARGEST_ANSWER, &mut Task::unlimited().reservation());
        match received {
            Ok((Request::Done(outcome), _)) => Some(outcome.into_result().map(drop)),
            _ => None,
        }
    }

    /// Lets it end. Returns how it did, in words, where it had to say something.
    fn end(self) -> String {
        let Closer {
            child,
            channel,
            host,
            ..
        } = self;
        drop(channel);
        if host != process::id() {
            // It is the child of another process, from which this one was forked.
            mem::forget(child);
            return String::new();
        }
        match child.end(EXIT_TIMEOUT) {
            Some(signal) => format!("the program that closes it was killed by signal {signal}"),
            None => "the program that closes it ended without a word".into(),
        }
    }
}

/// What a host remembers between two closes.
struct Kept {
    closer: Option<Closer>,
    /// When a log was closed.
    last: Option<Instant>,
}

impl Kept {
    /// The process that was kept, if it runs this program.
    fn take(program: &Path) -> Option<Closer> {
        let closer = KEPT.try_lock()?.closer.take()?;
        if closer.program == program && closer.host == process::id() {
            return Some(closer);
        }
        closer.end();
        None
    }

    /// Keeps a process where another close may follow soon; else lets it end.
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
