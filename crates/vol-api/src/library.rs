//! The libhdf5 of the program.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic;
use std::sync::OnceLock;

use h5logfs_common::fault::Fault;
use h5logfs_host::types::{FAILURE, Id, Status};
use h5logfs_host::{Kind, foreign, keep_panics_quiet};

/// `H5VL_optional_args_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Optional {
    /// Number of the operation.
    pub operation: c_int,
    /// Arguments.
    pub arguments: *mut c_void,
}

type Copy = Option<unsafe extern "C-unwind" fn()>;

h5logfs_host::functions! {
    /// Functions of libhdf5 since 1.14, under the names of its headers.
    pub struct Functions for "h5logfs_vol_api" {
        H5open: fn() -> Status,
        H5Iget_name: fn(Id, *mut c_char, usize) -> isize,
        H5Fget_name: fn(Id, *mut c_char, usize) -> isize,
        H5Dget_space: fn(Id) -> Id,
        H5Dwrite: fn(Id, Id, Id, Id, Id, *const c_void) -> Status,
        H5Dread: fn(Id, Id, Id, Id, Id, *mut c_void) -> Status,
        H5Screate_simple: fn(c_int, *const u64, *const u64) -> Id,
        H5Sget_simple_extent_dims: fn(Id, *mut u64, *mut u64) -> c_int,
        H5Sselect_hyperslab: fn(Id, c_int, *const u64, *const u64, *const u64, *const u64) -> Status,
        H5Sselect_none: fn(Id) -> Status,
        H5Sclose: fn(Id) -> Status,
        H5Tget_size: fn(Id) -> usize,
        H5Pexist: fn(Id, *const c_char) -> c_int,
        H5Pinsert2: fn(Id, *const c_char, usize, *const c_void, Copy, Copy, Copy, Copy, Copy, Copy) -> Status,
        H5Pset: fn(Id, *const c_char, *const c_void) -> Status,
        H5Pget: fn(Id, *const c_char, *mut c_void) -> Status,
        H5Pisa_class: fn(Id, Id) -> c_int,
        H5PLappend: fn(*const c_char) -> Status,
        H5VLregister_connector_by_name: fn(*const c_char, Id) -> Id,
        H5VLis_connector_registered_by_name: fn(*const c_char) -> c_int,
        H5VLfind_opt_operation: fn(c_int, *const c_char, *mut c_int) -> Status,
        H5VLquery_optional: fn(Id, c_int, c_int, *mut u64) -> Status,
        H5VLdataset_optional_op: fn(*const c_char, *const c_char, c_uint, Id, *mut Optional, Id, Id) -> Status,
    }
}

pub type Library = h5logfs_host::Library<Functions>;

/// The libhdf5 loaded with this library. `None` if there is none, or one older than 1.14.
fn find() -> Option<&'static Library> {
    static FOUND: OnceLock<Library> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(found);
    }
    // SAFETY: the name is a C string. The search covers the libraries of the program.
    let place = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"H5open".as_ptr()) };
    let library = Library::of_code(place.addr())?;
    Some(FOUND.get_or_init(|| library))
}

/// Serves a call of a program. Fails as a function of its libhdf5 does, with the error on the error stack.
pub fn serve(kind: Kind, act: impl FnOnce(&'static Library) -> Result<Status, Fault>) -> Status {
    answer(kind, act).unwrap_or(FAILURE)
}

/// As [`serve`], with any result; `None` after a failure.
pub fn answer<R>(kind: Kind, act: impl FnOnce(&'static Library) -> Result<R, Fault>) -> Option<R> {
    keep_panics_quiet();
    let library = panic::catch_unwind(find).ok().flatten()?;
    // SAFETY: it may be called at any time. It clears the error stack, like any public function at its start.
    unsafe { (library.functions().H5open)() };
    let done = foreign::caught(|| act(library));
    let done = done.unwrap_or_else(|_| Err("an error in h5logfs itself".into()));
    done.map_err(|fault| library.refuse(kind, &fault.to_string()))
        .ok()
}

/// A dataspace, closed on drop.
#[derive(Debug)]
pub struct Space {
    pub id: Id,
    library: &'static Library,
}

impl Space {
    /// Fails for an invalid identifier. libhdf5 has reported why.
    pub fn new(library: &'static Library, id: Id) -> Result<Self, Fault> {
        match id {
            1.. => Ok(Space { id, library }),
            _ => Err("there is no dataspace for it".into()),
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // An earlier error stays on the error stack.
        // SAFETY: the identifier belongs to this library, and is closed once.
        self.library.nested(|f| unsafe { (f.H5Sclose)(self.id) });
    }
}

/// The name of a dataset in messages: its file and path.
pub fn name_of(library: &Library, dataset: Id) -> String {
    let name =
        |of: fn(&Functions) -> unsafe extern "C-unwind" fn(Id, *mut c_char, usize) -> isize| {
            let mut text = [0u8; 1024];
            // SAFETY: there is room for the text and a zero byte.
            library.nested(|f| unsafe { of(f)(dataset, text.as_mut_ptr().cast(), text.len()) });
            let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
            text.to_string_lossy().into_owned()
        };
    format!(
        "{}: dataset {}",
        name(|f| f.H5Fget_name),
        name(|f| f.H5Iget_name)
    )
}

/// The identifier in a variable of the library, which sets it when it starts.
pub fn identifier(library: &Library, variable: &CStr) -> Result<Id, Fault> {
    let missing = || format!("libhdf5 has no {}", variable.to_string_lossy());
    Ok(library.identifier(variable).ok_or_else(missing)?)
}
