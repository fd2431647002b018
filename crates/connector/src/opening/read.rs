//! Logs that are read: native files, which the file driver shows to the libhdf5 of the host.

use std::ffi::c_void;
use std::fs;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};

use h5logfs_catalog::direct::{self, OpenLog, Options};
use h5logfs_file_driver::is_written;
use h5logfs_host::types::{Id, SUCCESS, Status, access};
use h5logfs_log::log_dir;
use h5logfs_output::Ranks;

use super::OpenedLog;
use crate::arguments::{FileAccessible, FileSpecific, FileSpecificArguments};
use crate::below::Below;
use crate::below::drivers::{has_image, with_driver};
use crate::below::info::Info;
use crate::below::questions::number_of;
use crate::below::request::Request;
use crate::log::closed;
use crate::ranks;
use crate::session::{Kind, Session, registry};
use h5logfs_common::fault::Fault;

/// Opens a log for reading. `None` for a plain file.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<OpenedLog>, Fault> {
    let Some(log) = log_to_read(info, request)? else {
        return Ok(None);
    };
    let number = OnceLock::new();
    let session = Arc::new(Session::new(info, request, Kind::Read { number })?);
    registry::add(&session)?;
    let info = info.native()?;
    let under = shown(&info, request, log)?;
    if let Kind::Read { number } = &session.kind
        && !under.is_null()
    {
        let found = number_of(&info, under);
        let found = found.inspect_err(|_| {
            // SAFETY: the file is ours, and closed once.
            info.library.nested(|f| unsafe {
                (f.H5VLfile_close)(under, info.under_vol, request.dxpl, ptr::null_mut())
            });
        })?;
        // It was made above, and is set once.
        let _ = number.set(found);
    }
    Ok(Some(OpenedLog {
        below: Below { under, info },
        session,
    }))
}

/// Opens a log for reading, as a file of the native connector that nothing of ours knows of. `None` for a plain file; null if it
/// cannot be opened: then the reason is on the error stack.
pub fn open_shown(native: &Info, request: &Request<'_>) -> Result<Option<*mut c_void>, Fault> {
    let Some(log) = log_to_read(native, request)? else {
        return Ok(None);
    };
    shown(native, request, log).map(Some)
}

/// Opens a log by the file driver, which takes `log`.
fn shown(native: &Info, request: &Request<'_>, log: OpenLog) -> Result<*mut c_void, Fault> {
    with_log(native, request, log, |fapl| {
        // SAFETY: `fapl` is a list of this library, and the other arguments are those that it gave us.
        native.library.quietly(|f| unsafe {
            (f.H5VLfile_open)(
                request.name.as_ptr(),
                request.flags,
                fapl,
                request.dxpl,
                ptr::null_mut(),
            )
        })
    })
}

/// Calls libhdf5 with the file driver in the list, which takes `log` where it opens the file of the request.
fn with_log<R>(
    native: &Info,
    request: &Request<'_>,
    log: OpenLog,
    call: impl FnOnce(Id) -> R,
) -> Result<R, Fault> {
    let path = log_dir::file_of(request.path());
    direct::hand_over(&path, log, || with_driver(native, request.fapl, call))
}

/// Whether a log can be opened.
pub fn is_accessible(
    info: &Arc<Info>,
    request: &Request<'_>,
    accessible: *mut bool,
) -> Result<Option<Status>, Fault> {
    let Some(log) = log_at(info, request)? else {
        return Ok(None);
    };
    let info = info.native()?;
    let status = with_log(&info, request, log, |fapl| {
        let mut args = FileSpecific {
            operation: FileSpecific::ACCESSIBLE,
            arguments: FileSpecificArguments {
                accessible: FileAccessible {
                    name: request.name.as_ptr(),
                    fapl,
                    accessible,
                },
            },
        };
        // SAFETY: there is no object; the arguments are those of this operation.
        info.library.quietly(|f| unsafe {
            (f.H5VLfile_specific)(
                ptr::null_mut(),
                info.under_vol,
                &mut args,
                request.dxpl,
                ptr::null_mut(),
            )
        })
    })?;
    Ok(Some(status))
}

/// Fails for a creation that would destroy what a log needs.
pub fn check_create(info: &Info, request: &Request<'_>) -> Result<(), Fault> {
    let path = request.path();
    // What is there makes an exclusive creation fail.
    if !request.has(access::TRUNCATE) || request.has(access::EXCLUSIVE) || !path.exists() {
        return Ok(());
    }
    if !registry::open_at(info, path)?.is_empty() {
        // libhdf5 has it open by another driver, and does not see it.
        return Err("unable to truncate a file which is already open".into());
    }
    h5logfs_file_driver::check_replaceable(path)
}

/// Deletes a log of several files. `None` for what the connector below deletes. Collective: the first rank deletes, and all
/// have its outcome.
pub fn delete(info: &Info, request: &Request<'_>) -> Result<Option<Status>, Fault> {
    closed::forget(request.path());
    let ranks = ranks::find(&info.library, request.fapl)?.unwrap_or_else(Ranks::one);
    let deleted = if ranks.is_root() {
        h5logfs_file_driver::delete_log(request.path(), &Options::default())
    } else {
        Ok(false)
    };
    let mut is_deleted = [u8::from(ranks.led(deleted)?)];
    ranks.broadcast(&mut is_deleted);
    Ok((is_deleted != [0]).then_some(SUCCESS))
}

/// The log that a request opens. It may only be read.
fn log_to_read(info: &Info, request: &Request<'_>) -> Result<Option<OpenLog>, Fault> {
    let log = log_at(info, request)?;
    if log.is_some() && request.has(access::WRITE) {
        return Err(h5logfs_file_driver::read_only(request.path()).into());
    }
    Ok(log)
}

/// The log at the path of a request. `None` for a plain file, and for what only libhdf5 knows how to open.
fn log_at(info: &Info, request: &Request<'_>) -> Result<Option<OpenLog>, Fault> {
    let path = &log_dir::file_of(request.path());
    let Some(found) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        return Ok(None);
    };
    if has_image(info, request.fapl) || is_written(path, &found) {
        return Ok(None);
    }
    match direct::open(path, &Options::default()) {
        Ok(direct::Opened::Plain) => Ok(None),
        Ok(direct::Opened::Log(log)) => Ok(Some(log)),
        // libhdf5 says in its own words that a file may not be read.
        Err(_) if !can_be_read(path) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn can_be_read(path: &Path) -> bool {
    fs::File::open(path).is_ok()
}
