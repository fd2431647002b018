//! A file driver for libhdf5 that reads from an open descriptor.
//!
//! The drivers of libhdf5 open a path. A confined process may open nothing, and a path may lead to another file than
//! the one that was checked. "HDF5 Virtual File Layer" describes drivers.

use std::cell::Cell;
use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use hdf5_metno_sys::h5::{haddr_t, herr_t, hsize_t};
use hdf5_metno_sys::h5fd::*;
use rustix::io::Errno;

use super::*;

/// The part of an open file that libhdf5 fills (`H5FD_t`). Its size differs between versions; none needs more than
/// 88 bytes.
#[repr(C, align(16))]
pub(super) struct Library([u8; 256]);

impl Library {
    pub(super) const ZEROS: Self = Library([0; 256]);
}

/// An open file. libhdf5 uses only its first part.
#[repr(C)]
struct Opened {
    library: Library,
    descriptor: OwnedFd,
    /// The end of the file when it was opened.
    eof: u64,
    /// The end of the addresses that libhdf5 has allocated.
    eoa: u64,
}

/// The functions of a driver, from `sb_size` on in the order of `H5FD_class_t`. This order is the same in all versions
/// since 1.10. A zero stands for a missing function.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Functions {
    sb_size: usize,
    sb_encode: usize,
    sb_decode: usize,
    fapl_size: usize,
    fapl_get: usize,
    fapl_copy: usize,
    fapl_free: usize,
    dxpl_size: usize,
    dxpl_copy: usize,
    dxpl_free: usize,
    pub(super) open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut H5FD_t,
    pub(super) close: unsafe extern "C" fn(*mut H5FD_t) -> herr_t,
    cmp: usize,
    pub(super) query: unsafe extern "C" fn(*const H5FD_t, *mut c_ulong) -> herr_t,
    get_type_map: usize,
    pub(super) alloc: usize,
    free: usize,
    pub(super) get_eoa: unsafe extern "C" fn(*const H5FD_t, c_int) -> haddr_t,
    pub(super) set_eoa: unsafe extern "C" fn(*mut H5FD_t, c_int, haddr_t) -> herr_t,
    pub(super) get_eof: unsafe extern "C" fn(*const H5FD_t, c_int) -> haddr_t,
    get_handle: usize,
    pub(super) read:
        unsafe extern "C" fn(*mut H5FD_t, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    pub(super) write:
        unsafe extern "C" fn(*mut H5FD_t, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
}

/// `H5FD_class_t` of libhdf5 1.10 and 1.12.
#[repr(C)]
struct Class {
    name: *const c_char,
    maxaddr: haddr_t,
    fc_degree: c_int,
    terminate: usize,
    functions: Functions,
    /// flush, truncate, lock, unlock.
    rest: [usize; 4],
    fl_map: [c_int; 7],
}

/// `H5FD_class_t` of libhdf5 1.14 and later.
#[repr(C)]
struct ClassWithVersion {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    maxaddr: haddr_t,
    fc_degree: c_int,
    terminate: usize,
    functions: Functions,
    /// Reading and writing of vectors and selections; flush, truncate, lock, unlock, del, ctl.
    rest: [usize; 10],
    fl_map: [c_int; 7],
}

const NAME: &CStr = c"h5logfs_descriptor";
/// Offsets are signed.
const MAX_ADDRESS: haddr_t = i64::MAX as haddr_t;
/// `H5FD_CLASS_VERSION`, and a number from the range for private drivers.
const CLASS_VERSION: c_uint = 1;
const CLASS_VALUE: c_int = 511;
/// A file closes when it and all of its objects are closed, as with libhdf5's drivers. With the default value 0,
/// libhdf5 would keep each file open, which takes half a MiB of memory and a descriptor.
const CLOSE_DEGREE: c_int = H5F_close_degree_t::H5F_CLOSE_WEAK as c_int;
/// One free list for all kinds of memory (`H5FD_FLMAP_SINGLE`).
const ONE_KIND: [c_int; 7] = [1; 7];

pub(super) const FUNCTIONS: Functions = Functions {
    sb_size: 0,
    sb_encode: 0,
    sb_decode: 0,
    fapl_size: 0,
    fapl_get: 0,
    fapl_copy: 0,
    fapl_free: 0,
    dxpl_size: 0,
    dxpl_copy: 0,
    dxpl_free: 0,
    open,
    close,
    cmp: 0,
    query,
    get_type_map: 0,
    alloc: 0,
    free: 0,
    get_eoa,
    set_eoa,
    get_eof,
    get_handle: 0,
    read,
    write,
};

/// The identifier of the driver. It is registered once.
fn driver() -> Result<hid_t> {
    static DRIVER: OnceLock<Result<hid_t>> = OnceLock::new();
    DRIVER
        .get_or_init(|| register(NAME, CLASS_VALUE, FUNCTIONS, ONE_KIND))
        .clone()
}

pub(super) fn register(
    name: &'static CStr,
    value: c_int,
    functions: Functions,
    fl_map: [c_int; 7],
) -> Result<hid_t> {
    let class = Class {
        name: name.as_ptr(),
        maxaddr: MAX_ADDRESS,
        fc_degree: CLOSE_DEGREE,
        terminate: 0,
        functions,
        rest: [0; 4],
        fl_map,
    };
    let with_version = ClassWithVersion {
        version: CLASS_VERSION,
        value,
        name: name.as_ptr(),
        maxaddr: MAX_ADDRESS,
        fc_degree: CLOSE_DEGREE,
        terminate: 0,
        functions,
        rest: [0; 10],
        fl_map,
    };
    // libhdf5 copies the class.
    let class = match hdf5::library_version() {
        (1, ..=12, _) => (&raw const class).cast(),
        _ => (&raw const with_version).cast(),
    };
    h5!(H5FDregister(class))
}

/// Makes libhdf5 open files with this driver. Their names must come from [`name_of`].
pub(super) fn use_descriptor(access: &Id) -> Result<()> {
    h5!(H5Pset_driver(access.0, driver()?, ptr::null())).map(drop)
}

/// The name of a descriptor for this driver, which copies the descriptor when it opens the file.
pub(super) fn name_of(descriptor: BorrowedFd<'_>) -> Result<CString> {
    c_name(descriptor.as_raw_fd().to_string().as_bytes())
}

thread_local! {
    /// The last system error in a driver function of this thread. libhdf5 does not report it.
    static REFUSAL: Cell<Option<Errno>> = const { Cell::new(None) };
}

/// Takes the last system error of this thread's driver functions. If there is one, a failure of libhdf5 says nothing
/// about the file.
pub fn take_refusal() -> Option<Errno> {
    REFUSAL.take()
}

fn note_refusal<T>(outcome: io::Result<T>) -> Option<T> {
    outcome
        .inspect_err(|e| REFUSAL.set(Errno::from_io_error(e)))
        .ok()
}

fn duplicate(name: &CStr) -> Option<OwnedFd> {
    let number: RawFd = name.to_str().ok()?.parse().ok()?;
    if number < 0 {
        return None;
    }
    // SAFETY: `open_descriptor` borrows the descriptor of this name until the file is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    note_refusal(borrowed.try_clone_to_owned())
}

// SAFETY of all driver functions: libhdf5 calls them with the pointers that `open` returned, and not after `close`. It
// holds its lock, so no two calls run at the same time.

unsafe extern "C" fn open(name: *const c_char, flags: c_uint, _: hid_t, _: haddr_t) -> *mut H5FD_t {
    // SAFETY: libhdf5 passes the C string that `H5Fopen` was given.
    let descriptor = duplicate(unsafe { CStr::from_ptr(name) });
    let opened = descriptor.filter(|_| flags & H5F_ACC_RDWR == 0);
    let opened = opened.and_then(|descriptor| {
        let stat = rustix::fs::fstat(&descriptor).map_err(io::Error::from);
        let eof = note_refusal(stat)?.st_size;
        Some(Opened {
            library: Library::ZEROS,
            descriptor,
            eof: u64::try_from(eof).ok()?,
            eoa: 0,
        })
    });
    opened.map_or(ptr::null_mut(), |opened| {
        Box::into_raw(Box::new(opened)).cast()
    })
}

unsafe extern "C" fn close(file: *mut H5FD_t) -> herr_t {
    // SAFETY: `open` made the box, and libhdf5 does not use it any more.
    drop(unsafe { Box::from_raw(file.cast::<Opened>()) });
    0
}

unsafe extern "C" fn query(_: *const H5FD_t, flags: *mut c_ulong) -> herr_t {
    let features = H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE;
    if !flags.is_null() {
        // SAFETY: libhdf5 passes a pointer to its variable.
        unsafe { *flags = c_ulong::from(features) };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: `open` made the file.
    unsafe { (*file.cast::<Opened>()).eoa }
}

unsafe extern "C" fn set_eoa(file: *mut H5FD_t, _: c_int, eoa: haddr_t) -> herr_t {
    // SAFETY: `open` made the file.
    unsafe { (*file.cast::<Opened>()).eoa = eoa };
    0
}

unsafe extern "C" fn get_eof(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: `open` made the file.
    unsafe { (*file.cast::<Opened>()).eof }
}

unsafe extern "C" fn read(
    file: *mut H5FD_t,
    _: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buffer: *mut c_void,
) -> herr_t {
    // SAFETY: `open` made the file; the buffer has `size` bytes, and it is initialized before a reference to it exists.
    let (file, buffer) = unsafe {
        let file = &*file.cast::<Opened>();
        ptr::write_bytes(buffer.cast::<u8>(), 0, size);
        (
            file,
            std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size),
        )
    };
    let filled = fill(file, buffer, address);
    note_refusal(filled.map_err(io::Error::from)).map_or(-1, |()| 0)
}

/// Always fails, because files are opened for reading only. libhdf5 requires the function.
unsafe extern "C" fn write(
    _: *mut H5FD_t,
    _: c_int,
    _: hid_t,
    _: haddr_t,
    _: usize,
    _: *const c_void,
) -> herr_t {
    -1
}

/// Fills a buffer of zeros from the file. Bytes past the end of the file stay zero, as with libhdf5's drivers. Fails if
/// the file has become shorter since it was opened.
fn fill(file: &Opened, mut buffer: &mut [u8], mut at: u64) -> std::result::Result<(), Errno> {
    while !buffer.is_empty() {
        match rustix::io::pread(&file.descriptor, &mut *buffer, at) {
            Ok(0) if at < file.eof => return Err(Errno::IO),
            Ok(0) => return Ok(()),
            Ok(n) => {
                buffer = buffer.get_mut(n..).unwrap_or_default();
                at = at.checked_add(n as u64).ok_or(Errno::OVERFLOW)?;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

// `Functions` has zeros of the size of a pointer where some members are sizes of the type `hsize_t`.
const _: () = assert!(size_of::<hsize_t>() == size_of::<usize>());
