//! Files that are created or opened: which become logs, which are logs, and which are plain ones.
//!
//! | module | contents |
//! |---|---|
//! | `written` | logs that this process writes |
//! | `read` | logs that are read |
//! | `found` | what a libhdf5 opens that has found us by itself |

pub mod found;
pub mod read;
mod written;

use std::sync::Arc;

use crate::below::Below;
use crate::below::info::Info;
use crate::below::request::Request;
use crate::session::Session;
use h5logfs_common::fault::Fault;

/// A file that was opened for a log.
#[derive(Debug)]
pub struct OpenedLog {
    /// The file of the connector below, the native one. Null if it could not be opened: then the reason is on the error
    /// stack.
    pub below: Below,
    /// The log.
    pub session: Arc<Session>,
}

/// A file is created. `None` for a plain one.
pub fn create(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<OpenedLog>, Fault> {
    if let Some(opened) = written::create(info, request)? {
        return Ok(Some(opened));
    }
    read::check_create(info, request).map(|()| None)
}

/// A file is opened. `None` for a plain one.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<OpenedLog>, Fault> {
    if let Some(opened) = written::open(info, request)? {
        return Ok(Some(opened));
    }
    read::open(info, request)
}
