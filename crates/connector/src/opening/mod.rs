//! Creation and opening of files: logs to write, logs to read, and plain files.
//!
//! | module | contents |
//! |---|---|
//! | `written` | logs that this process writes |
//! | `read` | logs that this process reads |
//! | `found` | files that libhdf5 opens after finding the connector by itself |

pub mod found;
mod kept_log;
pub mod read;
mod written;

use std::sync::Arc;

use crate::below::Below;
use crate::below::info::Info;
use crate::below::request::Request;
use crate::session::Session;
use h5logfs_common::fault::Fault;

/// An opened log.
#[derive(Debug)]
pub struct OpenedLog {
    /// The native file, opened by the connector below. Null if it could not be opened; the reason is then on the error stack.
    pub below: Below,
    /// The session of the log.
    pub session: Arc<Session>,
}

/// Creates a log. `None` if the file is a plain one.
pub fn create(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<OpenedLog>, Fault> {
    if let Some(opened) = written::create(info, request)? {
        return Ok(Some(opened));
    }
    read::check_create(info, request).map(|()| None)
}

/// Opens a log. `None` if the file is a plain one.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<OpenedLog>, Fault> {
    if let Some(opened) = written::open(info, request)? {
        return Ok(Some(opened));
    }
    read::open(info, request)
}
