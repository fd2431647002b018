//! Objects that a program leaves open: files when libhdf5 terminates, and objects of a file with `H5F_CLOSE_STRONG`.
//!
//! A terminating libhdf5 closes objects one by one, but removes their identifiers only after the last one. When it closes one of
//! several handles of a file, it looks at all identifiers, including those of handles that are already freed. So this module
//! closes the objects first, through the calls that a program would make.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use h5logfs_common::fault::Fault;
use h5logfs_host::Kind;
use h5logfs_host::types::{Id, Status};
use parking_lot::Mutex;

use super::Below;
use super::questions::open_objects;
use crate::arguments::{FileGet, FileGetArguments, ObjectArguments};
use crate::library::{Functions, Library};

/// The name of the connector.
const CONNECTOR: &CStr = c"h5logfs";
/// `H5F_OBJ_ALL`. In the place of a file identifier it means all files.
const ALL_FILES: Id = 0x1f;
/// `H5F_OBJ_FILE`.
const FILES: c_uint = 1;

/// Libraries that report their termination. The lock is never held during a call of libhdf5.
static WATCHED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The work to do when a library terminates.
struct End {
    library: Library,
    /// Called after the files of the library are closed.
    then: fn(&Library),
}

/// Asks a library to report its termination, once.
pub fn watch(library: &Library, then: fn(&Library)) {
    type AtClose = unsafe extern "C-unwind" fn(
        unsafe extern "C-unwind" fn(*mut c_void),
        *mut c_void,
    ) -> Status;
    if is_told(library) {
        return;
    }
    let Some(register) = library.function(c"H5atclose") else {
        return;
    };
    {
        let mut watched = WATCHED.lock();
        if watched.contains(&library.number()) {
            return;
        }
        watched.push(library.number());
    }
    let library_end = End {
        library: *library,
        then,
    };
    let context = Box::into_raw(Box::new(library_end));
    // SAFETY: a library that exports this function gives it this type, and calls `end` once. The plug-in stays loaded until then.
    let status = library.nested(|_| unsafe {
        let register = std::mem::transmute::<*const c_void, AtClose>(register);
        register(end, context.cast())
    });
    if status < 0 {
        forget(library);
        // SAFETY: the context was made above, and the library has not taken it.
        drop(unsafe { Box::from_raw(context) });
    }
}

/// Whether a library reports its termination.
pub fn is_told(library: &Library) -> bool {
    WATCHED.lock().contains(&library.number())
}

fn forget(library: &Library) {
    WATCHED.lock().retain(|number| *number != library.number());
}

/// Called by a library that terminates. The library may be initialized again afterwards.
unsafe extern "C-unwind" fn end(context: *mut c_void) {
    // SAFETY: `context` comes from `watch`, and the library calls once.
    let End { library, then } = *unsafe { Box::from_raw(context.cast::<End>()) };
    forget(&library);
    library.caught(Kind::Close, || {
        library.nested(close_files);
        then(&library);
        Ok(())
    });
}

/// Closes the files of the connector. Files that cannot be closed are left to the library, for example those with
/// `H5F_CLOSE_SEMI` and open objects.
fn close_files(f: &Functions) {
    // SAFETY (all calls here): the library is initialized and checks any identifier. The array has room for all files.
    let number = unsafe { (f.H5Fget_obj_count)(ALL_FILES, FILES) };
    let mut files: Vec<Id> = vec![0; usize::try_from(number).unwrap_or(0)];
    let found = unsafe { (f.H5Fget_obj_ids)(ALL_FILES, FILES, files.len(), files.as_mut_ptr()) };
    files.truncate(usize::try_from(found).unwrap_or(0));
    for file in files.into_iter().filter(|file| is_ours(f, *file)) {
        let references = unsafe { (f.H5Iget_ref)(file) };
        for _ in 0..references {
            if unsafe { (f.H5Fclose)(file) } < 0 {
                break;
            }
        }
    }
}

fn is_ours(f: &Functions, file: Id) -> bool {
    let mut name = [0_u8; 64];
    // SAFETY: the library writes at most `name.len()` bytes, with a zero byte at the end.
    let length = unsafe { (f.H5VLget_connector_name)(file, name.as_mut_ptr().cast(), name.len()) };
    length > 0 && CStr::from_bytes_until_nul(&name) == Ok(CONNECTOR)
}

/// Closes all objects of a file except its own handles, as libhdf5 does for `H5F_CLOSE_STRONG`.
pub fn close_objects(file: &Below) -> Result<(), Fault> {
    /// `H5F_OBJ_DATASET`, `_GROUP`, `_DATATYPE` and `_ATTR`.
    const OBJECTS: c_uint = 0x1e;
    // An identifier may have several references. Each round releases one of each.
    loop {
        let objects = identifiers(file, OBJECTS)?;
        if objects.is_empty() {
            return Ok(());
        }
        // SAFETY: the library checks any identifier.
        let close = |object: &Id| {
            file.library()
                .nested(|f| unsafe { (f.H5Idec_ref)(*object) })
                >= 0
        };
        if objects.iter().filter(|object| close(object)).count() == 0 {
            return Err("the open objects of a file cannot be closed".into());
        }
    }
}

/// Identifiers of a file's open objects. `kinds`: flags `H5F_OBJ_*`.
fn identifiers(file: &Below, kinds: c_uint) -> Result<Vec<Id>, Fault> {
    let mut count = open_objects(file, kinds)?;
    let mut ids: Vec<Id> = vec![0; count];
    let mut args = FileGet {
        operation: FileGet::OBJECTS,
        arguments: FileGetArguments {
            objects: ObjectArguments {
                kinds,
                room: ids.len(),
                ids: ids.as_mut_ptr(),
                count: &mut count,
            },
        },
    };
    // SAFETY: the file is open, and `ids` has room for `count` identifiers.
    let status = file.quietly(|f, under, vol| unsafe {
        (f.H5VLfile_get)(under, vol, &mut args, 0, ptr::null_mut())
    });
    if status < 0 {
        return Err("the open objects of a file cannot be listed".into());
    }
    ids.truncate(count);
    Ok(ids)
}
