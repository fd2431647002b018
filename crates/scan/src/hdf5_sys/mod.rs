//! Safe wrappers for the libhdf5 calls that the crate `hdf5` lacks.
//!
//! libhdf5 is not reentrant: every call takes the process-wide lock. Error texts come from libhdf5. Names from a file
//! are bytes, not necessarily UTF-8.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hdf5_metno_sys::h5::{H5_index_t, H5_iter_order_t};
use hdf5_metno_sys::h5a::*;
use hdf5_metno_sys::h5d::*;
use hdf5_metno_sys::h5e::{H5E_DEFAULT, H5Eget_num};
use hdf5_metno_sys::h5f::*;
use hdf5_metno_sys::h5g::*;
use hdf5_metno_sys::h5i::{H5Idec_ref, H5Iinc_ref, hid_t};
use hdf5_metno_sys::h5l::*;
use hdf5_metno_sys::h5o::*;
use hdf5_metno_sys::h5p::*;
use hdf5_metno_sys::h5pl::{H5PLget_loading_state, H5PLset_loading_state};
use hdf5_metno_sys::h5r::*;
use hdf5_metno_sys::h5s::*;
use hdf5_metno_sys::h5t::*;
use hdf5_metno_sys::h5z::H5Zfilter_avail;

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::Image;

pub use hdf5_metno_sys::h5s::H5S_UNLIMITED as UNLIMITED;

pub type Result<T> = std::result::Result<T, Fault>;

/// An address that libhdf5 has not assigned.
const UNDEFINED: u64 = u64::MAX;

const DEFAULT: hid_t = H5P_DEFAULT;

/// Calls libhdf5 under its lock; a negative result is an error.
///
/// SAFETY of the calls: an [`Id`] keeps its identifier alive, and pointers lead to memory that outlives the call and has
/// the size that the call is told or documents.
macro_rules! h5 {
    ($call:expr) => {
        // SAFETY: see the macro's documentation.
        hdf5::sync::sync(|| check(unsafe { $call }))
    };
}

/// Calls libhdf5 under its lock. The caller checks the result. SAFETY: as for `h5!`.
macro_rules! raw {
    ($call:expr) => {
        // SAFETY: see the documentation of `h5!`.
        hdf5::sync::sync(|| unsafe { $call })
    };
}

fn check<T: PartialOrd + From<i8>>(result: T) -> Result<T> {
    if result >= T::from(0) {
        return Ok(result);
    }
    // libhdf5 does not report the system error of its driver. A lack of descriptors or a bad disk says nothing about
    // the file.
    if let Some(errno) = take_refusal() {
        return Err(errno.into());
    }
    Err(hdf5::Error::query()
        .map_or_else(
            |_| "libhdf5 failed and does not say why".to_owned(),
            |e| e.to_string(),
        )
        .into())
}

/// Calls libhdf5 under its lock, for functions whose result `ambiguous` means failure or is a valid answer. Fails if
/// libhdf5 has put something on its error stack, which each such call clears first. SAFETY: as for `h5!`.
macro_rules! unless_failed {
    ($call:expr, $ambiguous:expr) => {
        // SAFETY: see the documentation of `h5!`.
        hdf5::sync::sync(|| {
            let result = unsafe { $call };
            let has_failed = result == $ambiguous && unsafe { H5Eget_num(H5E_DEFAULT) } != 0;
            if has_failed {
                check(-1).map(|_| result)
            } else {
                Ok(result)
            }
        })
    };
}

mod added;
mod attribute;
mod dataset;
mod dataspace;
mod datatype;
mod driver;
mod format;
mod group;
mod object;
#[cfg(test)]
mod plain_type;
mod values;

pub use added::{add, create_behind};
pub use attribute::*;
pub use dataset::*;
pub use dataspace::*;
pub use datatype::*;
pub use driver::take_refusal;
pub use format::{Format, set_format};
pub use group::*;
pub use object::*;
#[cfg(test)]
pub use plain_type::*;
pub use values::*;

/// A counted reference to an identifier of libhdf5.
#[derive(Debug)]
pub struct Id(hid_t);

impl Id {
    fn new(id: Result<hid_t>) -> Result<Self> {
        id.map(Id)
    }
}

impl Clone for Id {
    fn clone(&self) -> Self {
        // The call fails only for invalid identifiers, and an Id never holds one.
        let _ = h5!(H5Iinc_ref(self.0));
        Id(self.0)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        let _ = h5!(H5Idec_ref(self.0));
    }
}

pub fn c_name(name: &[u8]) -> Result<CString> {
    Ok(CString::new(name).map_err(|_| "a name with a zero byte")?)
}

/// Forbids libhdf5 to load filter plug-ins, because a user's file or environment names their code.
pub fn forbid_plugins() -> Result<()> {
    allow_plugins(0)
}

/// Sets the kinds of plug-ins that libhdf5 may load.
fn allow_plugins(kinds: c_int) -> Result<()> {
    // libhdf5 takes a number here, but the binding declares a pointer.
    let kinds = ptr::without_provenance_mut(kinds as usize);
    h5!(H5PLset_loading_state(kinds)).map(drop)
}

/// The plug-ins that libhdf5 may load. Dropping it restores the earlier setting.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct PluginState(c_int);

impl PluginState {
    pub fn keep() -> Result<Self> {
        let mut state = 0;
        h5!(H5PLget_loading_state(&mut state))?;
        Ok(PluginState(state))
    }
}

impl Drop for PluginState {
    fn drop(&mut self) {
        // The call fails only if the environment forbids all plug-ins anyway.
        let _ = allow_plugins(self.0);
    }
}

/// Whether any files or objects of files are open.
#[cfg(feature = "worker")]
pub fn has_open_objects() -> bool {
    let every = hid_t::from(H5F_OBJ_ALL);
    h5!(H5Fget_obj_count(every, H5F_OBJ_ALL)).is_ok_and(|open| open > 0)
}

/// Opens the file of a descriptor for reading, without a lock. The descriptor is copied.
pub fn open_descriptor(descriptor: BorrowedFd<'_>) -> Result<Id> {
    let access = Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_ACCESS)))?;
    driver::use_descriptor(&access)?;
    let name = driver::name_of(descriptor)?;
    Id::new(h5!(H5Fopen(name.as_ptr(), H5F_ACC_RDONLY, access.0)))
}

/// Opens a file for writing, without a lock. New metadata follow its end in blocks of `block` bytes.
#[cfg(test)]
pub fn open_to_write(path: &CStr, block: u64) -> Result<Id> {
    let access = Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_ACCESS)))?;
    h5!(H5Pset_file_locking(access.0, 0, 1))?;
    h5!(H5Pset_meta_block_size(access.0, block))?;
    h5!(H5Pset_libver_bounds(
        access.0,
        H5F_libver_t::H5F_LIBVER_EARLIEST,
        H5F_LIBVER_LATEST
    ))?;
    Id::new(h5!(H5Fopen(path.as_ptr(), H5F_ACC_RDWR, access.0)))
}

/// Closes a file. After this, the system has received every write.
pub fn close_file(file: Id) -> Result<()> {
    h5!(H5Fflush(file.0, H5F_scope_t::H5F_SCOPE_LOCAL))?;
    let id = file.0;
    std::mem::forget(file);
    h5!(H5Fclose(id)).map(drop)
}

/// Creates a file in memory, in the oldest format that can hold its objects.
pub fn create_in_memory(creation: &Id) -> Result<Id> {
    let (access, name) = (memory_access()?, memory_name()?);
    Id::new(h5!(H5Fcreate(
        name.as_ptr(),
        H5F_ACC_TRUNC,
        creation.0,
        access.0
    )))
}

/// Opens a copy of these bytes as a file in memory. The file can be changed.
pub fn open_image(image: &[u8]) -> Result<Id> {
    let (access, name) = (memory_access()?, memory_name()?);
    // libhdf5 copies the bytes, and only reads through this mutable pointer.
    let bytes = image.as_ptr().cast_mut().cast();
    h5!(H5Pset_file_image(access.0, bytes, image.len()))?;
    Id::new(h5!(H5Fopen(name.as_ptr(), H5F_ACC_RDWR, access.0)))
}

/// Access properties for a file in memory, without a file of the system behind it.
fn memory_access() -> Result<Id> {
    const INCREMENT: usize = 64 << 10;
    let access = Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_ACCESS)))?;
    h5!(H5Pset_fapl_core(access.0, INCREMENT, 0))?;
    h5!(H5Pset_libver_bounds(
        access.0,
        H5F_libver_t::H5F_LIBVER_EARLIEST,
        H5F_LIBVER_LATEST
    ))?;
    Ok(access)
}

/// A new name for a file in memory. libhdf5 takes two files with one name for the same file.
fn memory_name() -> Result<CString> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    c_name(format!("image {number}").as_bytes())
}

/// The bytes of an in-memory file.
pub fn file_image(file: &Id) -> Result<Vec<u8>> {
    h5!(H5Fflush(file.0, H5F_scope_t::H5F_SCOPE_LOCAL))?;
    let len = h5!(H5Fget_file_image(file.0, ptr::null_mut(), 0))?;
    let mut image = vec![0u8; len as usize];
    h5!(H5Fget_file_image(
        file.0,
        image.as_mut_ptr().cast(),
        image.len()
    ))?;
    let mut image = Image::new(image);
    image.refresh_superblock()?;
    Ok(image.into_bytes())
}

pub fn file_creation(file: &Id) -> Result<Id> {
    Id::new(h5!(H5Fget_create_plist(file.0)))
}

pub fn new_file_creation() -> Result<Id> {
    Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_CREATE)))
}

/// Whether a file with these creation properties has a table of shared messages.
pub fn shares_messages(creation: &Id) -> Result<bool> {
    let mut indexes = 0;
    h5!(H5Pget_shared_mesg_nindexes(creation.0, &mut indexes))?;
    Ok(indexes > 0)
}

/// The size of the user block in front of a file, in bytes.
pub fn user_block(creation: &Id) -> Result<u64> {
    let mut size = 0;
    h5!(H5Pget_userblock(creation.0, &mut size))?;
    Ok(size)
}
