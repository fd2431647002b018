//! Error codes, and the message of each thread's last error.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;

#[cfg(not(panic = "unwind"))]
compile_error!("the C interface turns a panic into an error code: it needs panic = \"unwind\"");

/// The codes that the functions return.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum h5logfs_status {
    /// Success.
    H5LOGFS_OK = 0,
    /// An argument is invalid: an unknown handle or one of the wrong kind, a NULL pointer, a negative
    /// rank, a string that is not UTF-8, an unknown value of an option. The call had no effect. If it
    /// was a write to a valid dataset, the write counts as refused, as with H5LOGFS_ERR_WRITE.
    H5LOGFS_ERR_INVALID_ARGUMENT = 1,
    /// A definition (group, dataset, attribute, extent, datatype) is not possible. The call had no
    /// effect. All ranks make the same definitions, so all get this error.
    H5LOGFS_ERR_DEFINITION = 2,
    /// A write does not match its dataset: wrong shape, extent or element size. None of its elements is
    /// written, and the next flush returns H5LOGFS_ERR_REFUSED on all ranks.
    H5LOGFS_ERR_WRITE = 3,
    /// The buffer has no room for a write, and its data cannot go to the file now. Earlier writes are
    /// kept. The call had no effect, but a part of a write larger than the whole buffer may be stored.
    /// The write can be repeated after a flush. The program must tell the other ranks to flush.
    H5LOGFS_ERR_BUFFER_FULL = 4,
    /// A collective call failed on some rank. All ranks get this error. Flushed data are unchanged,
    /// other data are still buffered, and the call can be repeated.
    H5LOGFS_ERR_FAILED = 5,
    /// A flush or close is complete except for a write that was refused on some rank, or for attributes
    /// that differ between ranks. The message names them. Reported once.
    H5LOGFS_ERR_REFUSED = 6,
    /// The file or datatype of this handle was closed.
    H5LOGFS_ERR_CLOSED = 7,
    /// MPI is not initialised, is already finalised, or must not be called by this thread; or the program runs
    /// another MPI than the one that the library was built for.
    H5LOGFS_ERR_MPI = 8,
    /// An internal error of the library. The file of this call can only be abandoned. Flushed data are
    /// safe.
    H5LOGFS_ERR_PANIC = 9,
    /// A close is complete, but the option `settle` failed. The file is a complete log, nothing is lost,
    /// and `h5logfs settle` can be run later. The message says why.
    H5LOGFS_ERR_NOT_SETTLED = 10,
    /// The process was forked from the one that opened the file, which alone writes it. The call had no
    /// effect.
    H5LOGFS_ERR_FORKED = 11,
}

use h5logfs_status::*;

/// An error code for C, and its message.
#[derive(Debug)]
pub(super) struct ApiError {
    pub code: h5logfs_status,
    pub message: String,
}

pub(super) type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    pub fn new(code: h5logfs_status, message: impl Into<String>) -> Self {
        let message = message.into();
        ApiError { code, message }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        ApiError::new(H5LOGFS_ERR_INVALID_ARGUMENT, message)
    }

    pub fn definition(message: impl Into<String>) -> Self {
        ApiError::new(H5LOGFS_ERR_DEFINITION, message)
    }

    /// This error with the object concerned in front.
    pub fn about(mut self, object: impl Display) -> Self {
        self.message = format!("{object}: {}", self.message);
        self
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Definition { .. } => H5LOGFS_ERR_DEFINITION,
            Error::Write { .. } => H5LOGFS_ERR_WRITE,
            Error::BufferFull { .. } => H5LOGFS_ERR_BUFFER_FULL,
            Error::Failed { .. } => H5LOGFS_ERR_FAILED,
            Error::Refused { .. } => H5LOGFS_ERR_REFUSED,
            Error::NotSettled { .. } => H5LOGFS_ERR_NOT_SETTLED,
            Error::Closed { .. } => H5LOGFS_ERR_CLOSED,
            Error::Forked { .. } => H5LOGFS_ERR_FORKED,
        };
        ApiError::new(code, error.to_string())
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Returns the message of this thread's last error, or an empty string if there was none. Never NULL.
/// The string belongs to the library. It is valid until the next error of this thread. Local.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    // The thread-local data of an ending thread may be gone.
    let message = MESSAGE.try_with(|message| match message.try_borrow() {
        Ok(text) => text.as_ptr(),
        Err(_) => NOTHING.as_ptr(),
    });
    message.unwrap_or(NOTHING.as_ptr())
}

/// Runs the body of a C function. Turns an error or a panic into its code, and keeps the message.
pub(super) fn to_status(body: impl FnOnce() -> Result<()>) -> c_int {
    // Unwind safe: a panic poisons the lock of the file that it may have left inconsistent.
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return H5LOGFS_OK as c_int,
        Ok(Err(error)) => error,
        Err(panic) => ApiError::new(H5LOGFS_ERR_PANIC, panic_message(&*panic)),
    };
    set_last_error(error.message);
    error.code as c_int
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "of unknown cause",
    };
    format!(
        "a fault of the h5logfs library, please report it: {text}. The file of this call can only be abandoned; what \
         was flushed is safe"
    )
}

fn set_last_error(message: String) {
    // A zero byte would end the C string.
    let mut bytes = message.into_bytes();
    bytes
        .iter_mut()
        .filter(|b| **b == 0)
        .for_each(|b| *b = b'?');
    let text = CString::new(bytes).unwrap_or_default();
    let _ = MESSAGE.try_with(|message| {
        if let Ok(mut message) = message.try_borrow_mut() {
            *message = text;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: the string is valid until the next error of this thread.
        let text = unsafe { CStr::from_ptr(h5logfs_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn panics_are_answered() {
        let code = to_status(|| panic!("number {}", 7));
        assert_eq!(code, H5LOGFS_ERR_PANIC as c_int);
        let said = last_error();
        assert!(said.contains(": number 7. The file of this call can only be abandoned"));
        assert_eq!(to_status(|| Ok(())), 0);
        assert_eq!(last_error(), said);
    }

    #[test]
    fn messages_are_texts_of_c_and_belong_to_a_thread() {
        let code = to_status(|| Err(ApiError::invalid("a\0b")));
        assert_eq!(code, H5LOGFS_ERR_INVALID_ARGUMENT as c_int);
        assert_eq!(last_error(), "a?b");
        let elsewhere = std::thread::spawn(last_error).join().unwrap();
        assert_eq!(elsewhere, "");
    }
}
