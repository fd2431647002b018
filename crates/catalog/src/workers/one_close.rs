//! Closes a log in a process of its own, which the host does not see.

use std::ffi::OsString;
use std::path::Path;

use h5logfs_core::error::{Error, Result};
use h5logfs_core::scan::protocol::{Channel, Forever, Request};
use h5logfs_core::task::Task;

use super::limits::PROGRAM_VARIABLE;
use super::{EXIT_TIMEOUT, hidden_program};

/// The hidden subcommand of the program `h5logfs` that closes one log.
const SUBCOMMAND: &str = "close-log";

/// The most bytes of an answer, which is a message for a person.
const LARGEST_ANSWER: usize = 1 << 20;

/// Closes the log at an absolute path, whose journal no process may have locked. With `sync`, waits until it is on the
/// disk. Fails with what the program says.
pub fn close(program: &Path, log: &Path, sync: bool) -> Result<()> {
    let bad = |reason: String| Error::bad_file(log, reason);
    let fsync = if sync {
        "--fsync=close"
    } else {
        "--fsync=none"
    };
    let mut arguments = [SUBCOMMAND, fsync, &hidden_program::release(), "--"]
        .map(OsString::from)
        .to_vec();
    arguments.push(log.into());
    let (child, socket) = hidden_program::start(program, arguments).map_err(|e| {
        let program = program.display();
        bad(format!(
            "a log is closed by the program h5logfs, and {program} cannot be started: {e}; {PROGRAM_VARIABLE} can name \
             another one"
        ))
    })?;
    let channel = Channel::new(socket, Forever);
    let answer = channel.receive(LARGEST_ANSWER, &mut Task::unlimited().reservation());
    let signal = child.end(EXIT_TIMEOUT);
    match (answer, signal) {
        (Ok((Request::Done(outcome), _)), _) => outcome.into_result().map(drop),
        (_, Some(signal)) => Err(bad(format!(
            "the program that closes it was killed by signal {signal}"
        ))),
        _ => Err(bad("the program that closes it ended without a word".into())),
    }
}
