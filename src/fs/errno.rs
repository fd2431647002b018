//! The one place where an error becomes an errno for the reader and a line in the log.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fuser::Errno;
use parking_lot::Mutex;
use rustix::io::Errno as Os;

use h5logfs_catalog::without_waiting;
use h5logfs_core::error::{Error, Result};

/// Runs the work of one request. A failure, and a panic too, becomes the errno of the answer: one
/// bad file must not end a thread that serves everybody.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T, Errno> {
    answered(caught(work))
}

/// The same, without waiting for a scan: `None` where that would be needed.
pub fn guarded_now<T>(work: impl FnOnce() -> Result<T>) -> Option<Result<T, Errno>> {
    match caught(|| without_waiting(work)) {
        Err(Some(Error::Unscanned { .. })) => None,
        outcome => Some(answered(outcome)),
    }
}

fn answered<T>(outcome: Result<T, Option<Error>>) -> Result<T, Errno> {
    outcome.map_err(|failure| failure.map_or(Errno::EIO, |error| answer(&error)))
}

/// The error of what failed; of a panic, which is logged, there is none.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T, Option<Error>> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(Some),
        Err(panic) => {
            log::error!("internal error: {}", panic_text(panic.as_ref()));
            Err(None)
        }
    }
}

/// Logs `error` and gives the errno that a reader sees: its own for an error of the operating
/// system, `EIO` for everything else.
fn answer(error: &Error) -> Errno {
    let source = match error {
        Error::Io { cause: source, .. } => source,
        Error::Remembered(error) => return answer(error),
        // The log has it from when it happened.
        Error::ScanDied { .. } => {
            log::debug!("{error}");
            return Errno::EIO;
        }
        _ => {
            complain(error);
            return Errno::EIO;
        }
    };
    if is_ordinary(source) {
        log::debug!("{error}");
    } else {
        complain(error);
    }
    source.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

/// A failure that is met again this soon is told at the level of debugging only: a kernel that asks
/// for each page of a damaged chunk must not fill the log.
const QUIET: Duration = Duration::from_secs(10);
/// Failures that are remembered for that.
const REMEMBERED: usize = 64;

fn complain(error: &Error) {
    static RECENT: Mutex<VecDeque<(Instant, String)>> = Mutex::new(VecDeque::new());
    let text = error.to_string();
    let mut recent = RECENT.lock();
    recent.retain(|(when, _)| when.elapsed() < QUIET);
    if recent.iter().any(|(_, known)| *known == text) {
        log::debug!("{text}");
        return;
    }
    log::error!("{text}");
    recent.truncate(REMEMBERED - 1);
    recent.push_front((Instant::now(), text));
}

/// Answers that belong to everyday work, such as looking for a file that is not there.
fn is_ordinary(error: &io::Error) -> bool {
    matches!(
        Os::from_io_error(error),
        Some(
            Os::NOENT
                | Os::STALE
                | Os::ACCESS
                | Os::PERM
                | Os::NOTDIR
                | Os::LOOP
                | Os::NAMETOOLONG
                | Os::OPNOTSUPP
        )
    )
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "panic without a message"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno_of(error: Error) -> i32 {
        guarded::<()>(|| Err(error)).unwrap_err().code()
    }

    #[test]
    fn an_error_of_the_operating_system_keeps_its_errno() {
        let error = Error::io("f", Os::ACCESS.into());
        assert_eq!(errno_of(error), Os::ACCESS.raw_os_error());
    }

    #[test]
    fn everything_else_is_an_input_output_error() {
        let eio = Os::IO.raw_os_error();
        assert_eq!(errno_of(Error::bad_file("f", "torn")), eio);
        assert_eq!(errno_of(Error::Changed { path: "f".into() }), eio);
        let short = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(errno_of(Error::io("f", short)), eio);
    }

    #[test]
    fn a_panic_is_an_input_output_error() {
        let outcome: Result<(), Errno> = guarded(|| panic!("a bug"));
        assert_eq!(outcome.unwrap_err().code(), Os::IO.raw_os_error());
    }
}
