//! Files that libhdf5 opens by us although no program has asked for that: it has found us in `HDF5_PLUGIN_PATH`.
//!
//! Where the native connector cannot open a file, libhdf5 asks each connector there whether the file is accessible, and has
//! the first one that says so open it, with the list with which it has asked. In 1.14 the file is then ours. HDF5 2.0.0 to
//! 2.2.0 hand what we return to the native connector all the same, which takes it for a file of its own. So they get one: a log
//! as the file driver shows it, and what is no log as the native connector opens it. No session knows of it.

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

/// The last version of which this is known. A later one may have it mended.
const LAST: (c_uint, c_uint, c_uint) = (2, 2, 0);

thread_local! {
    /// The number of the library that has last asked this thread whether a file is accessible, and its list.
    static ASKED: Cell<Option<(usize, Id)>> = const { Cell::new(None) };
}

/// Remembers that a library has asked whether a file is accessible, by a list.
pub fn note_asked(library: &Library, fapl: Id) {
    ASKED.set(Some((library.number(), fapl)));
}

/// Opens a file that the native connector will have, whether it is a log or none. `None` where it will be ours. Null if it cannot
/// be opened: then the reason is on the error stack.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<*mut c_void>, Fault> {
    let library = &info.library;
    // A program may ask, too, and then open the file by the same list.
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
            "{path}: HDF5 {major}.{minor}.{release} is later than this version of h5logfs, and has found the connector by \
             itself: set HDF5_VOL_CONNECTOR=h5logfs, or HDF5_DRIVER=h5logfs"
        )
        .into());
    }
    if let Some(file) = read::open_shown(native, request)? {
        return Ok(Some(file));
    }
    native.with_under_list(request.fapl, |fapl| {
        // SAFETY: `fapl` is a list of this library, and the other arguments are those that it gave us.
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

/// Whether the call that we are in is one of the native connector: libhdf5 tells each file that is made in it, so one in memory
/// is asked.
fn is_for_native(native: &Info) -> Result<bool, Fault> {
    let library = &native.library;
    let usual = default_list(library, c"H5P_LST_FILE_ACCESS_ID_g")?;
    let told = native.with_under_list(usual, |list| in_memory(native, list))?;
    let mut order: c_int = 0;
    // SAFETY: the list is ours, and what it names is given up.
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

const UNKNOWN: &str = "libhdf5 does not tell by which connector it opens the file";

/// The access property list that a file in memory has, which is made with a list of ours and closed again.
fn in_memory(native: &Info, list: Id) -> Result<PropertyList, Fault> {
    let library = &native.library;
    // SAFETY: the list is ours.
    if library.nested(|f| unsafe { (f.H5Pset_fapl_core)(list, 1, false) }) < 0 {
        return Err(UNKNOWN.into());
    }
    // Two files in memory are the same if they have the same name. No file on the disk has such a one.
    let name = CString::new(format!("/dev/null/h5logfs-{list}")).unwrap_or_default();
    let creation = default_list(library, c"H5P_LST_FILE_CREATE_ID_g")?;
    let mut args = FileGet {
        operation: FileGet::ACCESS,
        arguments: FileGetArguments { access: -1 },
    };
    // SAFETY: the name is a C string, and the lists are of this library; the file is closed once, and the arguments are those
    // of the operation.
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
