//! The file drivers of file access property lists.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::ptr;

use h5logfs_catalog::options::ReadOptions;
use h5logfs_file_driver::SESSION_DRIVER;
use h5logfs_host::library::text;
use h5logfs_host::types::{FAILURE, Id, Status, access};

use super::info::Info;
use super::list::{PropertyList, default_list};
use super::request::Request;
use crate::arguments::{DescriptorAsked, Optional};
use crate::library::Functions;
use h5logfs_common::fault::Fault;

/// The name under which the file driver is registered.
const DRIVER: &CStr = c"h5logfs";

/// Whether the list holds the bytes of the file (`H5Pset_file_image`). The path then means nothing.
pub fn has_image(info: &Info, fapl: Id) -> bool {
    let mut length = 0_usize;
    // SAFETY: `fapl` is a list of this library. With a null place for the bytes, the library returns only their number.
    let status = info
        .library
        .nested(|f| unsafe { (f.H5Pget_file_image)(fapl, ptr::null_mut(), &mut length) });
    status >= 0 && length > 0
}

/// Runs `call` with a copy of a file access property list for the native connector. The copy names the file driver, and keeps the
/// driver's options if the list named it already.
pub fn with_driver<R>(info: &Info, fapl: Id, call: impl FnOnce(Id) -> R) -> Result<R, Fault> {
    let set = |list| set_driver(info, list, DRIVER, h5logfs_file_driver::class());
    info.with_under_list(fapl, |list| {
        if has_driver(info, list, |_, other| set(other)) {
            return Ok(call(list));
        }
        match set(list) {
            0.. => Ok(call(list)),
            _ => Err("the file driver cannot be registered".into()),
        }
    })
}

/// Sets the file driver that follows the links of a log. A log that is being written needs the session driver.
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

/// Whether a list names a file driver of h5logfs.
pub fn has_driver_of_ours(info: &Info, list: Id) -> bool {
    let is_same = |is_written| {
        PropertyList::copy(&info.library, list).is_some_and(|other| {
            set_driver_for_links(info, other.id, is_written) >= 0
                && has_same_driver(info, other.id, list)
        })
    };
    is_same(true) || is_same(false)
}

/// The options of reading in a file access property list: those of the file driver, if the list names it, else the defaults.
///
/// # Errors
///
/// Fails if the configuration of the driver is not valid.
pub fn read_options(info: &Info, fapl: Id) -> Result<ReadOptions, Fault> {
    let configuration = info.library.nested(|f| {
        // SAFETY: `fapl` is a list of this library, and the buffer has as many bytes as the call is told.
        text(|buffer, len| unsafe { (f.H5Pget_driver_config_str)(fapl, buffer, len) })
    });
    // To ask for the driver costs more, and most programs have no configuration.
    if configuration.is_empty() || !has_driver_of_ours(info, fapl) {
        return Ok(ReadOptions::default());
    }
    h5logfs_file_driver::parse_options(&configuration)
}

/// Sets a file driver of h5logfs in a list.
pub fn set_driver(info: &Info, list: Id, name: &CStr, class: *const c_void) -> Status {
    // SAFETY: the library is initialized, and `list` is a list of this crate. The class lives as long as the process.
    info.library.nested(|f| unsafe {
        // Registered once and never removed: libhdf5 compares two files only if they have the same driver.
        if (f.H5FDis_driver_registered_by_name)(name.as_ptr()) <= 0 && (f.H5FDregister)(class) < 0 {
            return FAILURE;
        }
        (f.H5Pset_driver_by_name)(list, name.as_ptr(), ptr::null())
    })
}

/// Reports a plain file that the connector below has opened for writing to the file driver, by its descriptor. Only the default
/// driver has one.
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
    // SAFETY: the file is open, and the arguments belong to the operation. The default driver returns the address of its
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
    // SAFETY: the list belongs to this library.
    has_driver(info, fapl, |f, list| unsafe { (f.H5Pset_fapl_sec2)(list) })
}

/// Whether a list names the core driver without backing store: it keeps the file in memory and discards changes.
pub fn forgets_changes(info: &Info, fapl: Id) -> bool {
    // SAFETY (both calls): the list belongs to this library, and the places for the answers are valid.
    let set_core = |f: &Functions, list| unsafe { (f.H5Pset_fapl_core)(list, 1, false) };
    if !has_driver(info, fapl, set_core) {
        return false;
    }
    let (mut increment, mut is_kept) = (0, true);
    let status = info
        .library
        .nested(|f| unsafe { (f.H5Pget_fapl_core)(fapl, &mut increment, &mut is_kept) });
    status >= 0 && !is_kept
}

/// Whether a list names the driver that `set` sets. `set` acts on a new list rather than on a copy: copying a list with a
/// communicator is a collective call.
fn has_driver(info: &Info, fapl: Id, set: impl FnOnce(&Functions, Id) -> Status) -> bool {
    let library = &info.library;
    let other = default_list(library, c"H5P_LST_FILE_ACCESS_ID_g").ok();
    let other = other.and_then(|usual| PropertyList::copy(library, usual));
    other.is_some_and(|other| {
        library.nested(|f| set(f, other.id)) != FAILURE && has_same_driver(info, fapl, other.id)
    })
}

/// Whether two lists name one driver.
pub fn has_same_driver(info: &Info, fapl: Id, other: Id) -> bool {
    // SAFETY: the lists belong to this library.
    let driver = |list| info.library.nested(|f| unsafe { (f.H5Pget_driver)(list) });
    driver(fapl) == driver(other)
}

/// Whether the driver of a list uses MPI.
pub fn is_parallel_driver(info: &Info, fapl: Id) -> bool {
    /// `H5FD_FEAT_HAS_MPI`.
    const HAS_MPI: c_ulong = 0x100;
    let mut features = 0;
    // SAFETY: the list belongs to this library, and the place for the answer is valid.
    let status = info
        .library
        .nested(|f| unsafe { (f.H5FDdriver_query)((f.H5Pget_driver)(fapl), &mut features) });
    status >= 0 && features & HAS_MPI != 0
}
