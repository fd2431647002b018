//! Files that libhdf5 opens through this connector without a request of the program, because it found the connector in
//! `HDF5_PLUGIN_PATH`.
//!
//! If the native connector cannot open a file, libhdf5 asks each connector in that path whether the file is accessible. The first
//! one that says so opens the file, with the access property list of the question. In 1.14 the file then belongs to this
//! connector. HDF5 2.0.0 to 2.2.0 hand the result to the native connector all the same, which takes it for a file of its own. So
//! it must be one: a log as the file driver shows it, or any other file as the native connector opens it. No session knows of it.

use std::cell::Cell;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use h5logfs_common::fault::Fault;
use h5logfs_host::types::{DEFAULT, Id, access};

use super::read;
use crate::arguments::{FileGet, FileGetArguments};
use crate::below::info::Info;
use crate::below::list::{PropertyList, default_list};
use crate::below::request::Request;
use crate::library::{Library, version};

/// The last version with this behaviour. Later versions may be corrected.
const LAST: (c_uint, c_uint, c_uint) = (2, 2, 0);

thread_local! {
    /// The library that last asked this thread whether a file is accessible, and the list of the question.
    static ASKED: Cell<Option<(usize, Id)>> = const { Cell::new(None) };
}

/// Remembers that a library has asked whether a file is accessible.
pub fn note_asked(library: &Library, fapl: Id) {
    ASKED.set(Some((library.number(), fapl)));
}

/// Opens a file for the native connector, whether it is a log or not. `None` if the file will belong to this connector. Null if
/// the file cannot be opened; the reason is then on the error stack.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<*mut c_void>, Fault> {
    let library = &info.library;
    // A program may ask the same question itself, and then open the file with the same list.
    if ASKED.take() != Some((library.number(), request.fapl)) {
        return Ok(None);
    }
    let version = version(library);
    if version < (2, 0, 0) {
        return Ok(None);
    }
    let native = &info.native()?;
    if !is_for_native(native)? {
        return Ok(None);
    }
    if version > LAST {
        let (path, (major, minor, release)) = (request.path().display(), version);
        return Err(format!(
            "{path}: HDF5 {major}.{minor}.{release} is newer than this version of h5logfs, and has found the connector by \
             itself: set HDF5_VOL_CONNECTOR=h5logfs, or HDF5_DRIVER=h5logfs"
        )
        .into());
    }
    if let Some(file) = read::open_shown(native, request)? {
        return Ok(Some(file));
    }
    native.with_under_list(request.fapl, |fapl| {
        // SAFETY: `fapl` is a list of this library, and the other arguments come from it.
        Ok(Some(library.quietly(|f| unsafe {
            (f.H5VLfile_open)(
                request.name.as_ptr(),
                request.flags,
                fapl,
                request.dxpl,
                ptr::null_mut(),
            )
        })))
    })
}

/// Whether the present call of libhdf5 opens the file for the native connector. Every file that is made within the call gets the
/// call's connector in its access property list. So a file in memory is made and asked.
fn is_for_native(native: &Info) -> Result<bool, Fault> {
    let library = &native.library;
    let usual = default_list(library, c"H5P_LST_FILE_ACCESS_ID_g")?;
    let told = native.with_under_list(usual, |list| in_memory(native, list))?;
    let mut order: c_int = 0;
    // SAFETY: the list belongs to this function, and so do the values that it returns.
    let status = library.nested(|f| unsafe {
        let mut connector = -1;
        let status = (f.H5Pget_vol_id)(told.id, &mut connector);
        if status < 0 {
            return status;
        }
        let status = (f.H5VLcmp_connector_cls)(&mut order, connector, native.under_vol);
        (f.H5VLclose)(connector);
        status
    });
    match status {
        0.. => Ok(order == 0),
        _ => Err(UNKNOWN.into()),
    }
}

const UNKNOWN: &str = "libhdf5 does not name the connector with which it opens the file";

/// The access property list of a file in memory, which is made with a list of this crate and closed again.
fn in_memory(native: &Info, list: Id) -> Result<PropertyList, Fault> {
    let library = &native.library;
    // SAFETY: the list belongs to the caller.
    if library.nested(|f| unsafe { (f.H5Pset_fapl_core)(list, 1, false) }) < 0 {
        return Err(UNKNOWN.into());
    }
    // libhdf5 takes two files in memory with one name for the same file. No file on disk can have this name.
    let name = CString::new(format!("/dev/null/h5logfs-{list}")).unwrap_or_default();
    let creation = default_list(library, c"H5P_LST_FILE_CREATE_ID_g")?;
    let mut args = FileGet {
        operation: FileGet::ACCESS,
        arguments: FileGetArguments { access: -1 },
    };
    // SAFETY: the name is a C string, the lists belong to this library, the arguments belong to the operation, and the file is
    // closed once.
    let told = library.quietly(|f| unsafe {
        let (vol, none) = (native.under_vol, ptr::null_mut());
        let file = (f.H5VLfile_create)(
            name.as_ptr(),
            access::TRUNCATE,
            creation,
            list,
            DEFAULT,
            none,
        );
        if file.is_null() {
            return None;
        }
        let status = (f.H5VLfile_get)(file, vol, &mut args, DEFAULT, none);
        (f.H5VLfile_close)(file, vol, DEFAULT, none);
        (status >= 0).then(|| PropertyList::own(library, args.arguments.access))
    });
    told.ok_or_else(|| UNKNOWN.into())
}
