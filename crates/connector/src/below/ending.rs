//! What a program leaves open: files when libhdf5 ends, and objects of a file with `H5F_CLOSE_STRONG`.
//!
//! When it ends, libhdf5 closes one after the other, and forgets their identifiers after the last one. Where it closes one of several
//! handles of a file, it looks at all these identifiers, also at those of handles that are given up. So they are closed
//! before, as a program does it.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use h5logfs_common::fault::Fault;
use h5logfs_host::Kind;
use h5logfs_host::types::{Id, Status};
use parking_lot::Mutex;

use super::Below;
use super::questions::open_objects;
use crate::arguments::{FileGet, FileGetArguments, Objects};
use crate::library::{Functions, Library};

/// The name of our connector.
const CONNECTOR: &CStr = c"h5logfs";
/// `H5F_OBJ_ALL`, which stands for all files where a file is asked for.
const ALL_FILES: Id = 0x1f;
/// `H5F_OBJ_FILE`.
const FILES: c_uint = 1;

/// The libraries that tell of their end. libhdf5 is not called with the lock held.
static WATCHED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// What is done when a library ends.
struct End {
    library: Library,
    /// After its files are closed.
    then: fn(&Library),
}

/// Lets a library tell of its end, once.
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
    // SAFETY: the function has this type where a library has it, and calls once. The plug-in stays loaded until then.
    let status = library.nested(|_| unsafe {
        let register = std::mem::transmute::<*const c_void, AtClose>(register);
        register(end, context.cast())
    });
    if status < 0 {
        forget(library);
        // SAFETY: it was made above, and nothing else has it.
        drop(unsafe { Box::from_raw(context) });
    }
}

/// Whether a library tells of its end.
pub fn is_told(library: &Library) -> bool {
    WATCHED.lock().contains(&library.number())
}

fn forget(library: &Library) {
    WATCHED.lock().retain(|number| *number != library.number());
}

/// A library ends. It may begin again.
unsafe extern "C-unwind" fn end(context: *mut c_void) {
    // SAFETY: it is what was given to the library, which calls once.
    let End { library, then } = *unsafe { Box::from_raw(context.cast::<End>()) };
    forget(&library);
    library.caught(Kind::Close, || {
        library.nested(close_files);
        then(&library);
        Ok(())
    });
}

/// What cannot be closed, as a file with `H5F_CLOSE_SEMI` and open objects, is left to the library.
fn close_files(f: &Functions) {
    // SAFETY (all calls here): the library is ready to be called, and answers for any identifier. There is room for all.
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
    // SAFETY: there is room for the name and a zero byte, or for a part of it.
    let length = unsafe { (f.H5VLget_connector_name)(file, name.as_mut_ptr().cast(), name.len()) };
    length > 0 && CStr::from_bytes_until_nul(&name) == Ok(CONNECTOR)
}

/// Closes all objects of a file but the handles of the file, as libhdf5 does it in a close with `H5F_CLOSE_STRONG`.
pub fn close_objects(file: &Below) -> Result<(), Fault> {
    /// `H5F_OBJ_DATASET`, `_GROUP`, `_DATATYPE` and `_ATTR`.
    const OBJECTS: c_uint = 0x1e;
    // A program may have several references to one.
    loop {
        let objects = identifiers(file, OBJECTS)?;
        if objects.is_empty() {
            return Ok(());
        }
        // SAFETY: the library answers for any identifier.
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

/// Those of the open objects of a file, of these kinds.
fn identifiers(file: &Below, kinds: c_uint) -> Result<Vec<Id>, Fault> {
    let mut count = open_objects(file, kinds)?;
    let mut ids: Vec<Id> = vec![0; count];
    let mut args = FileGet {
        operation: FileGet::OBJECTS,
        arguments: FileGetArguments {
            objects: Objects {
                kinds,
                room: ids.len(),
                ids: ids.as_mut_ptr(),
                count: &mut count,
            },
        },
    };
    // SAFETY: the file is open, and there is room for so many.
    let status = file.quietly(|f, under, vol| unsafe {
        (f.H5VLfile_get)(under, vol, &mut args, 0, ptr::null_mut())
    });
    if status < 0 {
        return Err("the open objects of a file cannot be found".into());
    }
    ids.truncate(count);
    Ok(ids)
}
