//! Logs to read. The file driver shows them to the host's libhdf5 as native files.

use std::ffi::c_void;
use std::fs;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};

use h5logfs_catalog::direct::{self, OpenLog};
use h5logfs_file_driver::is_written;
use h5logfs_host::types::{Id, SUCCESS, Status, access};
use h5logfs_log::log_dir;
use h5logfs_output::Ranks;

use super::OpenedLog;
use crate::arguments::{FileAccessible, FileSpecific, FileSpecificArguments};
use crate::below::Below;
use crate::below::drivers::{has_image, read_options, with_driver};
use crate::below::info::Info;
use crate::below::questions::number_of;
use crate::below::request::Request;
use crate::log::closed;
use crate::ranks;
use crate::session::{Kind, Session, registry};
use h5logfs_common::fault::Fault;

/// Opens a log for reading. `None` if the file is a plain one.
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
            // SAFETY: this function opened the file, and closes it once.
            info.library.nested(|f| unsafe {
                (f.H5VLfile_close)(under, info.under_vol, request.dxpl, ptr::null_mut())
            });
        })?;
        // The session is new, so the number is set only here.
        let _ = number.set(found);
    }
    Ok(Some(OpenedLog {
        below: Below { under, info },
        session,
    }))
}

/// Opens a log for reading as a file of the native connector, without a session. `None` if the file is a plain one. Null if it
/// cannot be opened; the reason is then on the error stack.
pub fn open_shown(native: &Info, request: &Request<'_>) -> Result<Option<*mut c_void>, Fault> {
    let Some(log) = log_to_read(native, request)? else {
        return Ok(None);
    };
    shown(native, request, log).map(Some)
}

/// Opens a log through the file driver, which receives `log`.
fn shown(native: &Info, request: &Request<'_>, log: OpenLog) -> Result<*mut c_void, Fault> {
    with_log(native, request, log, |fapl| {
        // SAFETY: `fapl` is a list of this library, and the other arguments come from it.
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

/// Runs a call of libhdf5 with a list that names the file driver. The driver uses `log` when it opens the file of the request.
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
        // SAFETY: the operation takes no object, and the arguments belong to it.
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

/// Fails if a creation would destroy data that a log needs.
pub fn check_create(info: &Info, request: &Request<'_>) -> Result<(), Fault> {
    let path = request.path();
    // An exclusive creation fails by itself if there is a file.
    if !request.has(access::TRUNCATE) || request.has(access::EXCLUSIVE) || !path.exists() {
        return Ok(());
    }
    if !registry::open_at(info, path)?.is_empty() {
        // libhdf5 has the file open through another driver, and so does not notice.
        return Err("unable to truncate a file which is already open".into());
    }
    h5logfs_file_driver::check_replaceable(path)
}

/// Deletes a log of several files. `None` if the connector below can delete the file. Collective: the first rank deletes, and all
/// ranks get its outcome.
pub fn delete(info: &Info, request: &Request<'_>) -> Result<Option<Status>, Fault> {
    closed::forget(request.path());
    let ranks = ranks::find(&info.library, request.fapl)?.unwrap_or_else(Ranks::one);
    let deleted = if ranks.is_root() {
        read_options(info, request.fapl)
            .and_then(|options| h5logfs_file_driver::delete_log(request.path(), &options))
    } else {
        Ok(false)
    };
    let mut is_deleted = [u8::from(ranks.led(deleted)?)];
    ranks.broadcast(&mut is_deleted);
    Ok((is_deleted != [0]).then_some(SUCCESS))
}

/// The log of a request, if it is only read.
fn log_to_read(info: &Info, request: &Request<'_>) -> Result<Option<OpenLog>, Fault> {
    let log = log_at(info, request)?;
    let is_written = request.has(access::WRITE);
    // A model writes its member of a set.
    let log = log.filter(|log| !is_written || !h5logfs_file_driver::is_member(log, request.path()));
    if log.is_some() && is_written {
        return Err(h5logfs_file_driver::read_only(request.path()).into());
    }
    Ok(log)
}

/// The log at the path of a request. `None` for a plain file, and for paths that only libhdf5 can open.
fn log_at(info: &Info, request: &Request<'_>) -> Result<Option<OpenLog>, Fault> {
    let path = &log_dir::file_of(request.path());
    let Some(found) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        return Ok(None);
    };
    if has_image(info, request.fapl) || is_written(path, &found) {
        return Ok(None);
    }
    match direct::open(path, &read_options(info, request.fapl)?) {
        Ok(direct::Opened::Plain) => Ok(None),
        Ok(direct::Opened::Log(log)) => Ok(Some(log)),
        // If the file is not readable, libhdf5 reports it in its own words.
        Err(_) if !can_be_read(path) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn can_be_read(path: &Path) -> bool {
    fs::File::open(path).is_ok()
}
