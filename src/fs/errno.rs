//! Turns an error into an errno for the reader and a line in the log.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fuser::Errno;
use parking_lot::Mutex;
use rustix::io::Errno as Os;

use h5logfs_catalog::{Lookup, Wait};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::{Fault, Stop};
use h5logfs_common::messages::{self, Subject};
use h5logfs_common::task::StopFlag;

/// Runs the work of one request. A failure becomes the errno of the answer. So does a panic, because one bad file must not
/// end a thread that serves all users.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T, Errno> {
    let _scope = messages::scope();
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|error| answer(&error)),
        Err(panic) => {
            log::error!("internal error: {}", panic_text(panic.as_ref()));
            Err(Errno::EIO)
        }
    }
}

/// Like [`guarded`], for work that `stop` may stop. A failure does not count if nobody waits for the answer.
pub fn guarded_until<T>(stop: &StopFlag, work: impl FnOnce() -> Result<T>) -> Result<T, Errno> {
    guarded(|| match work() {
        Err(error) if stop.stopped().is_some_and(is_called_off) => {
            log::debug!("{error}");
            Ok(Err(stop.stopped().map_or(Errno::EIO, errno_of)))
        }
        outcome => outcome.map(Ok),
    })?
}

/// Whether work stops for a reason that is not the file's fault, so that its failure is no error.
pub fn is_called_off(why: Stop) -> bool {
    !matches!(why, Stop::Deadline | Stop::DeadlineBefore)
}

/// The errno for stopped work.
pub fn errno_of(stop: Stop) -> Errno {
    match stop {
        Stop::CallerGone => Errno::EINTR,
        // The kernel reports the same after the end of the mount.
        Stop::Ending => Errno::ENOTCONN,
        Stop::Deadline | Stop::DeadlineBefore => Errno::EIO,
    }
}

/// Like [`guarded`], for a request that may wait for scans.
pub fn guarded_waiting<T>(work: impl FnOnce(Wait) -> Result<Lookup<T>>) -> Result<T, Errno> {
    guarded(|| work(Wait::Yes)).and_then(known)
}

/// The answer after a scan.
pub fn known<T>(found: Lookup<T>) -> Result<T, Errno> {
    match found {
        Lookup::Known(outcome) => Ok(outcome),
        Lookup::NeedsScan => {
            log::error!("internal error: no answer after the scan");
            Err(Errno::EIO)
        }
    }
}

/// Logs `error` and returns the errno for the reader: that of a system error, or `EIO`.
fn answer(error: &Error) -> Errno {
    match error {
        Error::Remembered(error) => return answer(error),
        Error::Io { cause, .. } if is_ordinary(cause) => log::debug!("{error}"),
        // The catalog logged it at the time of the scan.
        Error::ScanDied { .. } => log::debug!("{error}"),
        Error::Stopped { why, .. } if is_called_off(*why) => log::debug!("{error}"),
        _ => log_once(error),
    }
    match error {
        Error::Io { cause, .. } => cause.raw_os_error().map_or(Errno::EIO, Errno::from_i32),
        Error::NoMemory { .. } => Errno::ENOMEM,
        Error::Stopped { why, .. } => errno_of(*why),
        Error::BadData { fault, .. } => match fault {
            // A stale file is not available under its name again, so reopening the view is useless.
            Fault::Io { errno, .. } if *errno != Os::STALE => Errno::from_i32(errno.raw_os_error()),
            Fault::Stopped(why) => errno_of(*why),
            _ => Errno::EIO,
        },
        _ => Errno::EIO,
    }
}

/// Time in which a repeated error is only logged at level debug: the kernel may ask for each page of a damaged chunk.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Number of errors remembered to detect repetitions, in all and about one subject.
const MAX_REMEMBERED: usize = 1024;
const MAX_REMEMBERED_OF_SUBJECT: usize = 64;

static LOGGED: Mutex<Recent> = Mutex::new(Recent(VecDeque::new()));

fn log_once(error: &Error) {
    let text = error.to_string();
    let is_new = LOGGED
        .lock()
        .is_new(messages::subject(), &text, Instant::now());
    if is_new {
        log::error!("{text}");
    } else {
        log::debug!("{text}");
    }
}

/// Recently logged errors, the latest first.
struct Recent(VecDeque<Logged>);

struct Logged {
    when: Instant,
    subject: Subject,
    text: String,
}

impl Recent {
    /// Whether the error is new. A new error is remembered.
    fn is_new(&mut self, subject: Subject, text: &str, now: Instant) -> bool {
        self.0
            .retain(|known| now.duration_since(known.when) < REPEAT_INTERVAL);
        let known = self.0.iter().enumerate();
        let mut of_subject = known.filter(|(_, known)| known.subject == subject);
        if of_subject.clone().any(|(_, known)| known.text == text) {
            return false;
        }
        // The errors of one subject do not displace those of another.
        if let Some((oldest, _)) = of_subject.nth(MAX_REMEMBERED_OF_SUBJECT - 1) {
            self.0.remove(oldest);
        }
        self.0.truncate(MAX_REMEMBERED - 1);
        self.0.push_front(Logged {
            when: now,
            subject,
            text: text.to_owned(),
        });
        true
    }
}

/// Whether the error is an ordinary answer, for example for a missing file.
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
                | Os::NODATA
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
    use h5logfs_common::fault::Shortage;

    use super::*;

    fn errno_of(error: Error) -> i32 {
        guarded::<()>(|| Err(error)).unwrap_err().code()
    }

    #[test]
    fn an_error_of_the_operating_system_keeps_its_errno() {
        let error = Error::io("f", Os::ACCESS.into());
        assert_eq!(errno_of(error), Os::ACCESS.raw_os_error());
        // This includes unreadable elements: their file, dataset and chunk are in the log.
        let elements = |fault: Fault| Error::BadData {
            path: "f".into(),
            dataset: "/d".into(),
            place: "chunk [0]".into(),
            fault,
        };
        let away = elements(Os::TIMEDOUT.into());
        assert_eq!(errno_of(away), Os::TIMEDOUT.raw_os_error());
        let shortage = elements(Shortage::System { bytes: 1 }.into());
        for error in [
            shortage,
            elements(Os::STALE.into()),
            elements("torn".into()),
        ] {
            assert_eq!(errno_of(error), Os::IO.raw_os_error());
        }
    }

    #[test]
    fn everything_else_is_an_input_output_error() {
        let eio = Os::IO.raw_os_error();
        assert_eq!(errno_of(Error::of("f", "torn")), eio);
        assert_eq!(errno_of(Error::Changed { path: "f".into() }), eio);
        let short = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(errno_of(Error::io("f", short)), eio);
    }

    #[test]
    fn errors_of_one_subject_do_not_make_those_of_another_new() {
        let mut recent = Recent(VecDeque::new());
        let start = Instant::now();
        assert!(recent.is_new(Subject::FilesOf(1), "torn", start));
        assert!(recent.is_new(Subject::FilesOf(2), "torn", start));
        for number in 0..1000 {
            assert!(recent.is_new(Subject::FilesOf(2), &number.to_string(), start));
        }
        assert_eq!(recent.0.len(), 1 + MAX_REMEMBERED_OF_SUBJECT);
        assert!(!recent.is_new(Subject::FilesOf(1), "torn", start));
        assert!(recent.is_new(Subject::FilesOf(2), "torn", start));
        assert!(recent.is_new(Subject::FilesOf(1), "torn", start + REPEAT_INTERVAL));
        for owner in 0..2000 {
            assert!(recent.is_new(Subject::FilesOf(owner), "new", start + REPEAT_INTERVAL));
        }
        assert_eq!(recent.0.len(), MAX_REMEMBERED);
    }

    #[test]
    fn a_panic_is_an_input_output_error() {
        let outcome: Result<(), Errno> = guarded(|| panic!("a bug"));
        assert_eq!(outcome.unwrap_err().code(), Os::IO.raw_os_error());
    }
}
