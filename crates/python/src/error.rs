//! Errors as Python exceptions.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use h5logfs_common::error::Error;
use pyo3::create_exception;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

create_exception!(
    h5logfs,
    LogError,
    PyOSError,
    "A log that cannot be read, or a part of it: the text names the file, the dataset, the place and the reason.\n\n\
     Errors of the operating system are the usual subclasses of OSError instead, such as FileNotFoundError, with \
     errno, strerror and filename."
);

/// The exception for `error`. An operating system error becomes Python's class for its number.
pub fn exception(error: &Error) -> PyErr {
    match error {
        Error::Remembered(error) => exception(error),
        Error::Io { path, cause } => match cause.raw_os_error() {
            Some(number) => system_error(path, number),
            None => LogError::new_err(error.to_string()),
        },
        _ => LogError::new_err(error.to_string()),
    }
}

/// The exception for an error that does not concern a log.
pub fn of_plain_file(path: &Path, cause: io::Error) -> PyErr {
    exception(&Error::io(path, cause))
}

/// A system error. Python chooses the subclass of `OSError` by the number.
fn system_error(path: &Path, number: i32) -> PyErr {
    let text = io::Error::from_raw_os_error(number).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    PyOSError::new_err((number, text.to_owned(), path.as_os_str().to_owned()))
}

/// Runs `work` without the interpreter's lock. A panic becomes a [`LogError`]: `except Exception` would not catch the
/// exception that pyo3 makes of it.
pub fn unlocked<T: Send>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work)))
        .unwrap_or_else(|panic| Err(LogError::new_err(panic_text(panic.as_ref()))))
}

/// Runs work on a log without the interpreter's lock. A panic becomes a [`LogError`].
pub fn unlocked_log<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    unlocked(py, || work().map_err(|error| exception(&error)))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "internal error: {}",
        text.unwrap_or("panic without a message")
    )
}
