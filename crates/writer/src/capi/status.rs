//! Error codes, and the message of the last error of each thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;

#[cfg(not(panic = "unwind"))]
compile_error!("the C face answers a panic with an error code: it needs panic = \"unwind\"");

/// What the functions return: 0, or why not.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum h5logfs_status {
    /// All is well.
    H5LOGFS_OK = 0,
    /// A handle that is none or of the wrong kind, a NULL pointer, a negative rank, a text that is
    /// not UTF-8, an unknown value of an option. The call had no effect; but a write to a dataset that
    /// is known counts as refused, as with H5LOGFS_ERR_WRITE.
    H5LOGFS_ERR_INVALID_ARGUMENT = 1,
    /// A definition (group, dataset, attribute, extent, datatype) that cannot be. The call had no
    /// effect. All ranks make the same definitions, and get the same answer.
    H5LOGFS_ERR_DEFINITION = 2,
    /// A write that does not fit its dataset: shape, extent or size of the elements. Nothing of it
    /// was taken. All ranks get H5LOGFS_ERR_REFUSED at the next flush.
    H5LOGFS_ERR_WRITE = 3,
    /// The buffer has no room for a write. Nothing of it was taken, nothing before it is lost: it
    /// fits after a flush, of which the program must tell the other ranks.
    H5LOGFS_ERR_BUFFER_FULL = 4,
    /// A collective call failed, on this rank or another one, on all ranks alike. What was flushed
    /// before is as it was, what was not flushed is still held, and the call can be made again.
    H5LOGFS_ERR_FAILED = 5,
    /// A flush or close is complete, but without a write that some rank had refused before.
    H5LOGFS_ERR_REFUSED = 6,
    /// The file or datatype of this handle was closed.
    H5LOGFS_ERR_CLOSED = 7,
    /// MPI is not initialised, or is finalised already, or must not be called by this thread.
    H5LOGFS_ERR_MPI = 8,
    /// A fault of the library itself. The file of the call can only be abandoned; what was flushed
    /// is safe.
    H5LOGFS_ERR_PANIC = 9,
}

use h5logfs_status::*;

/// An error on its way to C.
#[derive(Debug)]
pub(super) struct Fault {
    pub code: h5logfs_status,
    pub message: String,
}

pub(super) type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    pub fn new(code: h5logfs_status, message: impl Into<String>) -> Self {
        let message = message.into();
        Fault { code, message }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Fault::new(H5LOGFS_ERR_INVALID_ARGUMENT, message)
    }

    pub fn definition(message: impl Into<String>) -> Self {
        Fault::new(H5LOGFS_ERR_DEFINITION, message)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Definition(_) => H5LOGFS_ERR_DEFINITION,
            Error::Write { .. } => H5LOGFS_ERR_WRITE,
            Error::BufferFull { .. } => H5LOGFS_ERR_BUFFER_FULL,
            Error::Failed { .. } => H5LOGFS_ERR_FAILED,
            Error::Refused { .. } => H5LOGFS_ERR_REFUSED,
            Error::Closed => H5LOGFS_ERR_CLOSED,
        };
        Fault::new(code, error.to_string())
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// The message of the last call of this thread that returned an error; an empty text if there was
/// none. Never NULL. The text belongs to the library, and lasts until the next error of this thread.
/// Local.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    // A thread that is about to end has no messages any more.
    let message = MESSAGE.try_with(|message| match message.try_borrow() {
        Ok(text) => text.as_ptr(),
        Err(_) => NOTHING.as_ptr(),
    });
    message.unwrap_or(NOTHING.as_ptr())
}

/// Runs the body of a C function: errors and panics leave it as a code, and a message.
///
/// What a panic may leave half done lies behind the lock of a file, which is poisoned by it.
pub(super) fn answer(body: impl FnOnce() -> Result<()>) -> c_int {
    let fault = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return H5LOGFS_OK as c_int,
        Ok(Err(fault)) => fault,
        Err(panic) => Fault::new(H5LOGFS_ERR_PANIC, what_panicked(&*panic)),
    };
    remember(fault.message);
    fault.code as c_int
}

fn what_panicked(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "of unknown cause",
    };
    format!("a fault of the library: {text}")
}

fn remember(message: String) {
    // A text for C ends at the first zero byte.
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
        // SAFETY: the text lasts until the next error of this thread.
        let text = unsafe { CStr::from_ptr(h5logfs_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn panics_are_answered() {
        let code = answer(|| panic!("number {}", 7));
        assert_eq!(code, H5LOGFS_ERR_PANIC as c_int);
        assert_eq!(last_error(), "a fault of the library: number 7");
        assert_eq!(answer(|| Ok(())), 0);
        assert_eq!(last_error(), "a fault of the library: number 7");
    }

    #[test]
    fn messages_are_texts_of_c_and_belong_to_a_thread() {
        let code = answer(|| Err(Fault::invalid("a\0b")));
        assert_eq!(code, H5LOGFS_ERR_INVALID_ARGUMENT as c_int);
        assert_eq!(last_error(), "a?b");
        let elsewhere = std::thread::spawn(last_error).join().unwrap();
        assert_eq!(elsewhere, "");
    }
}
