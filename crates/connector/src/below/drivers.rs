//! The file drivers of file access property lists.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use h5logfs_file_driver::SESSION_DRIVER;
use h5logfs_host::types::{FAILURE, Id, Status, access};

use super::info::Info;
use super::list::PropertyList;
use super::request::Request;
use crate::arguments::{DescriptorAsked, Optional};
use h5logfs_common::fault::Fault;

/// The name of the file driver.
const DRIVER: &CStr = c"h5logfs";

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
pub fn with_driver<R>(info: &Info, fapl: Id, call: impl FnOnce(Id) -> R) -> Result<R, Fault> {
    info.with_under_list(fapl, |list| {
        match set_driver(info, list, DRIVER, h5logfs_file_driver::class()) {
            0.. => Ok(call(list)),
            _ => Err("the file driver cannot be registered".into()),
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

/// Tells the file driver of a plain file that the connector below has opened with a list, if it is written by a descriptor.
pub fn note_written(info: &Info, request: &Request<'_>, file: *mut c_void) {
    if !request.has(access::WRITE | access::TRUNCATE | access::EXCLUSIVE)
        || !has_usual_driver(info, request.fapl)
    {
        return;
    }
    let mut place = ptr::null::<c_void>();
    let mut asked = DescriptorAsked {
        fapl: request.fapl,
        place: &mut place,
    };
    let mut args = Optional {
        operation: DescriptorAsked::OPERATION,
        arguments: (&raw mut asked).cast(),
    };
    // SAFETY: the file is open, and the arguments are those of the operation. The default driver gives the place of its
    // descriptor.
    let descriptor = info.library.quietly(|f| unsafe {
        let status = (f.H5VLfile_optional)(
            file,
            info.under_vol,
            &mut args,
            request.dxpl,
            ptr::null_mut(),
        );
        place
            .cast::<c_int>()
            .as_ref()
            .filter(|_| status >= 0)
            .copied()
    });
    descriptor.into_iter().for_each(h5logfs_file_driver::note);
}

/// Whether a list names the default driver.
pub fn has_usual_driver(info: &Info, fapl: Id) -> bool {
    let Some(usual) = PropertyList::copy(&info.library, fapl) else {
        return false;
    };
    // SAFETY: the lists are of this library.
    info.library.nested(|f| unsafe {
        let set = (f.H5Pset_fapl_sec2)(usual.id);
        set != FAILURE && (f.H5Pget_driver)(fapl) == (f.H5Pget_driver)(usual.id)
    })
}
