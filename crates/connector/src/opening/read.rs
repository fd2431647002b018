//! Logs that are read: native files, which the file driver shows to the libhdf5 of the host.

use std::ffi::{CStr, CString, c_uint, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use h5logfs_catalog::direct::{self, OpenLog, Options};
use h5logfs_file_driver::{FRESH_DRIVER, SESSION_DRIVER};
use h5logfs_host::types::{FAILURE, Id, SUCCESS, Status, access};

use crate::arguments::{FileAccessible, FileGet, FileSpecific, FileSpecificArguments};
use crate::info::{Info, PropertyList};
use crate::session::{Opened, Request, Session, writing};

/// The name of the file driver.
const DRIVER: &CStr = c"h5logfs";

/// Opens a log for reading. `None` for a plain file.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<Opened>, String> {
    let Some(_log) = log_at(info, request)? else {
        return Ok(None);
    };
    if request.has(access::WRITE) {
        return Err(h5logfs_file_driver::read_only(request.path()));
    }
    let session = Session::new(info, request, None)?;
    let info = info.native()?;
    let under = with_driver(&info, request.fapl, |fapl| {
        // SAFETY: `fapl` is a list of this library, and the other arguments are those that it gave us.
        info.library.quietly(|f| unsafe {
            (f.H5VLfile_open)(
                request.name.as_ptr(),
                request.flags,
                fapl,
                request.dxpl,
                ptr::null_mut(),
            )
        })
    })?;
    if !under.is_null() {
        let _ = session.number.set(writing::number_of(&info, under));
    }
    Ok(Some(Opened {
        under,
        info,
        session,
    }))
}

/// Whether a log can be opened.
pub fn is_accessible(
    info: &Arc<Info>,
    request: &Request<'_>,
    accessible: *mut bool,
) -> Result<Option<Status>, String> {
    let Some(_log) = log_at(info, request)? else {
        return Ok(None);
    };
    let info = info.native()?;
    let status = with_driver(&info, request.fapl, |fapl| {
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
pub fn check_create(info: &Info, request: &Request<'_>) -> Result<(), String> {
    let path = request.path();
    // What is there makes an exclusive creation fail.
    if !request.has(access::TRUNCATE) || request.has(access::EXCLUSIVE) || !path.is_file() {
        return Ok(());
    }
    if !Session::open_at(info, path)?.is_empty() {
        // libhdf5 has it open by another driver, and does not see it.
        return Err("unable to truncate a file which is already open".into());
    }
    h5logfs_file_driver::check_replaceable(path)
}

/// Fails for a deletion of what a log needs.
pub fn check_delete(request: &Request<'_>) -> Result<(), String> {
    let path = request.path();
    if path.is_file() {
        h5logfs_file_driver::check_replaceable(path)
            .map_err(|e| format!("it is not deleted: {e}"))?;
    }
    Ok(())
}

/// Gives the access property list of the program, not the one with the file driver in it.
pub fn access_list(session: &Session, args: &mut FileGet) -> Result<Status, String> {
    let copy = session.access.duplicate();
    let copy = copy.ok_or("the file access property list cannot be copied")?;
    copy.forget_page_buffer();
    args.arguments.access = copy.into_id();
    Ok(SUCCESS)
}

/// The log at the path of a request. `None` for a plain file, and for what only libhdf5 knows how to open.
fn log_at(info: &Info, request: &Request<'_>) -> Result<Option<OpenLog>, String> {
    let path = request.path();
    if !path.is_file() || has_image(info, request.fapl) {
        return Ok(None);
    }
    match direct::open(path, &Options::default()) {
        Ok(direct::Opened::Plain) => Ok(None),
        Ok(direct::Opened::Log(log)) => Ok(Some(log)),
        // libhdf5 says in its own words that a file may not be read.
        Err(_) if !can_be_read(path) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn can_be_read(path: &Path) -> bool {
    fs::File::open(path).is_ok()
}

/// Whether the bytes of the file are in the list, and the path means nothing.
pub fn has_image(info: &Info, fapl: Id) -> bool {
    let mut length = 0_usize;
    // SAFETY: `fapl` is a list of this library. Without a place for the bytes only their number is told.
    let status = info
        .library
        .nested(|f| unsafe { (f.H5Pget_file_image)(fapl, ptr::null_mut(), &mut length) });
    status >= 0 && length > 0
}

/// Calls with a copy of a file access property list for the native connector, in which the file driver is set.
fn with_driver<R>(info: &Arc<Info>, fapl: Id, call: impl FnOnce(Id) -> R) -> Result<R, String> {
    info.with_under_list(fapl, |list| {
        match set_driver(info, list, DRIVER, h5logfs_file_driver::class()) {
            0.. => Ok(call(list)),
            _ => Err("the file driver cannot be registered".into()),
        }
    })
}

/// Opens the file of a session once more, for reading. Its objects are none of ours.
pub fn open_again(info: &Arc<Info>, session: &Session) -> Result<Id, String> {
    /// `H5F_ACC_RDONLY`.
    const READ_ONLY: c_uint = 0;
    let name = CString::new(session.path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    info.with_under_list(session.access.id, |list| {
        if set_driver(info, list, FRESH_DRIVER, h5logfs_file_driver::fresh_class()) < 0 {
            return Err("the file driver cannot be registered".into());
        }
        // SAFETY: the list is of this library, and the name is a C string. A function for connectors opens no files
        // within a call for an object.
        let file = info
            .library
            .nested(|f| unsafe { (f.H5Fopen)(name.as_ptr(), READ_ONLY, list) });
        match file {
            1.. => Ok(file),
            _ => Err("its file cannot be opened as it was flushed".into()),
        }
    })
}

/// Sets the file driver by which the links of a log are followed that is written, or read.
pub fn set_driver_for_links(info: &Info, list: Id, is_written: bool) -> Status {
    if is_written {
        set_driver(
            info,
            list,
            SESSION_DRIVER,
            h5logfs_file_driver::session_class(),
        )
    } else {
        set_driver(info, list, DRIVER, h5logfs_file_driver::class())
    }
}

/// Whether a list has a file driver of ours.
pub fn has_driver_of_ours(info: &Info, list: Id) -> bool {
    // SAFETY: the list is of this library.
    let driver = |list| info.library.nested(|f| unsafe { (f.H5Pget_driver)(list) });
    let is_same = |is_written| {
        PropertyList::copy(&info.library, list).is_some_and(|other| {
            set_driver_for_links(info, other.id, is_written) >= 0
                && driver(other.id) == driver(list)
        })
    };
    is_same(true) || is_same(false)
}

/// Sets a file driver of ours in a list.
pub fn set_driver(info: &Info, list: Id, name: &CStr, class: *const c_void) -> Status {
    // SAFETY: the library is ready to be called, and `list` is a list of ours. The class lives as long as the process.
    info.library.nested(|f| unsafe {
        // Once, and for good: files with the same driver are compared with each other.
        if (f.H5FDis_driver_registered_by_name)(name.as_ptr()) <= 0 && (f.H5FDregister)(class) < 0 {
            return FAILURE;
        }
        (f.H5Pset_driver_by_name)(list, name.as_ptr(), ptr::null())
    })
}
