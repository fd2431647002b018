//! Closes a log in a process of its own, which the host does not see.

use std::ffi::OsString;
use std::path::Path;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::scan::protocol::{Channel, Forever, Request};

use super::limits::PROGRAM_VARIABLE;
use super::{EXIT_TIMEOUT, hidden_program};

/// The hidden subcommand of the program `h5logfs` that closes one log.
const SUBCOMMAND: &str = "close-log";

/// The most bytes of an answer, which is a message for a person.
const LARGEST_ANSWER: usize = 1 << 20;

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

impl Close {
    fn arguments(self) -> Vec<String> {
        let fsync = if self.sync {
            "--fsync=close"
        } else {
            "--fsync=none"
        };
        let settle = self.settle.map(|memory| format!("--settle={memory}"));
        [fsync.to_owned()].into_iter().chain(settle).collect()
    }
}

/// Closes the log at an absolute path, whose journal no process may have locked. Fails with what the program says.
pub fn close(program: &Path, log: &Path, how: Close) -> Result<Closed> {
    let bad = |reason: String| Error::of(log, reason);
    let mut arguments = vec![SUBCOMMAND.into()];
    arguments.extend(how.arguments().into_iter().map(OsString::from));
    arguments.extend([hidden_program::release().into(), "--".into(), log.into()]);
    let (child, socket) = hidden_program::start(program, arguments).map_err(|e| {
        let program = program.display();
        bad(format!(
            "a log is closed by the program h5logfs, and {program} cannot be started: {e}; {PROGRAM_VARIABLE} can name \
             another one"
        ))
    })?;
    let channel = Channel::new(socket, Forever);
    let answer = || match channel.receive(LARGEST_ANSWER, &mut Task::unlimited().reservation()) {
        Ok((Request::Done(outcome), _)) => Some(outcome.into_result().map(drop)),
        _ => None,
    };
    let closed = answer();
    let is_to_settle = how.settle.is_some() && matches!(closed, Some(Ok(())));
    let settled = is_to_settle.then(answer);
    let signal = child.end(EXIT_TIMEOUT);
    let or_died = |answer: Option<Result<()>>| {
        answer.unwrap_or_else(|| match signal {
            Some(signal) => Err(bad(format!(
                "the program that closes it was killed by signal {signal}"
            ))),
            None => Err(bad("the program that closes it ended without a word".into())),
        })
    };
    or_died(closed)?;
    Ok(match settled.map(or_died) {
        Some(Err(reason)) => Closed::NotSettled(reason.into()),
        _ => Closed::Done,
    })
}
