//! The table of callbacks. Its structure is the same in HDF5 1.14.0 to 2.2.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

use h5logfs_host::types::{Address, Id, Status};

use crate::callbacks;
use crate::declared::Usage;
use crate::file::File;

/// `H5FD_MAXADDR`, the last address that fits into an `off_t`.
const LAST_ADDRESS: Address = i64::MAX as Address;

/// A callback left out, as in the default driver. It has the size of a pointer.
type Absent = Option<unsafe extern "C-unwind" fn()>;

/// `H5FD_class_t`, version 1.
#[repr(C)]
pub struct Class {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    last_address: Address,
    close_degree: c_int,
    terminate: Absent,
    superblock_size: Absent,
    superblock_encode: Absent,
    superblock_decode: Absent,
    fapl_size: usize,
    fapl_get: Absent,
    fapl_copy: Absent,
    fapl_free: Absent,
    dxpl_size: usize,
    dxpl_copy: Absent,
    dxpl_free: Absent,
    open: unsafe extern "C-unwind" fn(*const c_char, c_uint, Id, Address) -> *mut File,
    close: unsafe extern "C-unwind" fn(*mut File) -> Status,
    compare: unsafe extern "C-unwind" fn(*const File, *const File) -> c_int,
    query: unsafe extern "C-unwind" fn(*const File, *mut c_ulong) -> Status,
    type_map: Absent,
    allocate: Absent,
    free: Absent,
    allocated: unsafe extern "C-unwind" fn(*const File, Usage) -> Address,
    set_allocated: unsafe extern "C-unwind" fn(*mut File, Usage, Address) -> Status,
    end: unsafe extern "C-unwind" fn(*const File, Usage) -> Address,
    handle: unsafe extern "C-unwind" fn(*mut File, Id, *mut *mut c_void) -> Status,
    read: unsafe extern "C-unwind" fn(*mut File, Usage, Id, Address, usize, *mut c_void) -> Status,
    write:
        unsafe extern "C-unwind" fn(*mut File, Usage, Id, Address, usize, *const c_void) -> Status,
    read_vector: Absent,
    write_vector: Absent,
    read_selection: Absent,
    write_selection: Absent,
    flush: unsafe extern "C-unwind" fn(*mut File, Id, bool) -> Status,
    truncate: unsafe extern "C-unwind" fn(*mut File, Id, bool) -> Status,
    lock: unsafe extern "C-unwind" fn(*mut File, bool) -> Status,
    unlock: unsafe extern "C-unwind" fn(*mut File) -> Status,
    delete: unsafe extern "C-unwind" fn(*const c_char, Id) -> Status,
    control:
        unsafe extern "C-unwind" fn(*mut File, u64, u64, *const c_void, *mut *mut c_void) -> Status,
    free_lists: [Usage; 7],
}

// SAFETY: the table is never written to, and its only pointer is to a text that lives as long as the process.
unsafe impl Sync for Class {}

/// The driver.
///
/// Vector and selection callbacks are left out, as in the default driver. With them libhdf5 would read each piece of a
/// selection separately, without its sieve buffer, and access plain files in another way than without this driver.
pub static DRIVER: Class = DRIVER_TABLE;

const DRIVER_TABLE: Class = Class {
    version: 1,
    // At most 65535, and not reserved by the HDF Group, which uses 256 and more: "H5".
    value: 0x4835,
    name: c"h5logfs".as_ptr(),
    last_address: LAST_ADDRESS,
    // H5F_CLOSE_WEAK
    close_degree: 1,
    terminate: None,
    superblock_size: None,
    superblock_encode: None,
    superblock_decode: None,
    fapl_size: 0,
    fapl_get: None,
    fapl_copy: None,
    fapl_free: None,
    dxpl_size: 0,
    dxpl_copy: None,
    dxpl_free: None,
    open: callbacks::open,
    close: callbacks::close,
    compare: callbacks::compare,
    query: callbacks::query,
    type_map: None,
    allocate: None,
    free: None,
    allocated: callbacks::allocated,
    set_allocated: callbacks::set_allocated,
    end: callbacks::end,
    handle: callbacks::handle,
    read: callbacks::read,
    write: callbacks::write,
    read_vector: None,
    write_vector: None,
    read_selection: None,
    write_selection: None,
    flush: callbacks::flush,
    truncate: callbacks::truncate,
    lock: callbacks::lock,
    unlock: callbacks::unlock,
    delete: callbacks::delete,
    control: callbacks::control,
    // H5FD_FLMAP_DICHOTOMY: one list for data and heaps, one for everything else. New files look like those of the default
    // driver.
    free_lists: [1, 1, 1, 3, 3, 1, 1],
};

/// The driver of sessions, which the connector registers besides the other one. It also knows files in memory.
pub static SESSION_DRIVER: Class = Class {
    value: 0x4836,
    name: SESSION_NAME.as_ptr(),
    open: callbacks::open_in_session,
    ..DRIVER_TABLE
};

/// The driver of files that are opened once more: no two of its files are the same.
pub static FRESH_DRIVER: Class = Class {
    value: 0x4837,
    name: FRESH_NAME.as_ptr(),
    compare: callbacks::compare_places,
    ..DRIVER_TABLE
};

/// Name of [`FRESH_DRIVER`].
pub const FRESH_NAME: &CStr = c"h5logfs-fresh";

/// Name of [`SESSION_DRIVER`].
pub const SESSION_NAME: &CStr = c"h5logfs-session";
