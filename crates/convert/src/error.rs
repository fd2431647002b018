//! Errors while a file is made from a log.

use std::io;

use h5logfs_common::fault::Fault;

/// The reason why the file was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] h5logfs_common::error::Error),

    /// The new file cannot be written or read back.
    #[error(transparent)]
    File(#[from] io::Error),

    /// The objects of the new file are invalid, or memory is short.
    #[error(transparent)]
    Fault(#[from] Fault),

    /// The reason why the file cannot be made from this log.
    #[error("{0}")]
    Other(String),
}

/// Keeps the kind and the text.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let fault = match error {
            Error::Log(error) => error.into(),
            Error::File(error) => error.into(),
            Error::Fault(fault) => fault,
            Error::Other(reason) => Fault::Refused(reason),
        };
        fault.told(text)
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<String> for Error {
    fn from(reason: String) -> Self {
        Error::Other(reason)
    }
}
