//! A file driver of libhdf5 that reads a descriptor which somebody else has opened.
//!
//! libhdf5's own drivers open a path: a process that may open nothing could not use them, and a path
//! may lead to another file than the one that was looked at. See "HDF5 Virtual File Layer".

use std::cell::Cell;
use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use hdf5_metno_sys::h5::{haddr_t, herr_t, hsize_t};
use hdf5_metno_sys::h5fd::*;
use rustix::io::Errno;

use super::*;

/// The part of an open file that is libhdf5's own (`H5FD_t`): it fills it, and it grows from version
/// to version; none needs more than 88 bytes.
#[repr(C, align(16))]
struct Library([u8; 256]);

/// An open file. libhdf5 knows its first part only.
#[repr(C)]
struct Opened {
    library: Library,
    descriptor: OwnedFd,
    /// End of the file, and of what libhdf5 thinks is allocated in it.
    eof: u64,
    eoa: u64,
}

/// The functions of a driver, from `sb_size` to `get_handle` in the order of `H5FD_class_t`, which is the
/// same in all versions since 1.10. Those that are not there libhdf5 does not call.
#[repr(C)]
struct Functions {
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
    open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut H5FD_t,
    close: unsafe extern "C" fn(*mut H5FD_t) -> herr_t,
    cmp: usize,
    query: unsafe extern "C" fn(*const H5FD_t, *mut c_ulong) -> herr_t,
    get_type_map: usize,
    alloc: usize,
    free: usize,
    get_eoa: unsafe extern "C" fn(*const H5FD_t, c_int) -> haddr_t,
    set_eoa: unsafe extern "C" fn(*mut H5FD_t, c_int, haddr_t) -> herr_t,
    get_eof: unsafe extern "C" fn(*const H5FD_t, c_int) -> haddr_t,
    get_handle: usize,
    read: unsafe extern "C" fn(*mut H5FD_t, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    write: unsafe extern "C" fn(*mut H5FD_t, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
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

/// That of 1.14 and later.
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
/// `H5FD_CLASS_VERSION`, and a number from those that are free to use.
const CLASS_VERSION: c_uint = 1;
const CLASS_VALUE: c_int = 511;
/// All kinds of allocation in one file (`H5FD_FLMAP_SINGLE`).
const ONE_KIND: [c_int; 7] = [1; 7];

const FUNCTIONS: Functions = Functions {
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

/// The driver's number, registered once.
fn registered() -> Result<hid_t> {
    static DRIVER: OnceLock<Result<hid_t>> = OnceLock::new();
    DRIVER.get_or_init(register).clone()
}

fn register() -> Result<hid_t> {
    let class = Class {
        name: NAME.as_ptr(),
        maxaddr: MAX_ADDRESS,
        fc_degree: 0,
        terminate: 0,
        functions: FUNCTIONS,
        rest: [0; 4],
        fl_map: ONE_KIND,
    };
    let with_version = ClassWithVersion {
        version: CLASS_VERSION,
        value: CLASS_VALUE,
        name: NAME.as_ptr(),
        maxaddr: MAX_ADDRESS,
        fc_degree: 0,
        terminate: 0,
        functions: FUNCTIONS,
        rest: [0; 10],
        fl_map: ONE_KIND,
    };
    // libhdf5 copies what it is given.
    let class = match hdf5::library_version() {
        (1, ..=12, _) => (&raw const class).cast(),
        _ => (&raw const with_version).cast(),
    };
    h5!(H5FDregister(class))
}

/// Makes files opened with `access` be read through this driver; the name is then that of [`name_of`].
pub(super) fn use_descriptor(access: &Id) -> Result<()> {
    h5!(H5Pset_driver(access.0, registered()?, ptr::null())).map(drop)
}

/// The name by which the driver knows a descriptor of this process. The descriptor is copied when the
/// file is opened.
pub(super) fn name_of(descriptor: BorrowedFd<'_>) -> Result<CString> {
    c_name(descriptor.as_raw_fd().to_string().as_bytes())
}

thread_local! {
    /// What the system last refused to a driver of this thread; libhdf5 does not tell.
    static REFUSED: Cell<Option<Errno>> = const { Cell::new(None) };
}

/// What the system has refused since this was last asked, by this thread: then a failure of libhdf5 says
/// nothing of the file.
pub fn refused() -> Option<Errno> {
    REFUSED.take()
}

fn granted<T>(outcome: io::Result<T>) -> Option<T> {
    outcome
        .inspect_err(|e| REFUSED.set(Errno::from_io_error(e)))
        .ok()
}

fn duplicate(name: &CStr) -> Option<OwnedFd> {
    let number: RawFd = name.to_str().ok()?.parse().ok()?;
    if number < 0 {
        return None;
    }
    // SAFETY: the name was made of a descriptor that is borrowed until the file is open.
    let lent = unsafe { BorrowedFd::borrow_raw(number) };
    granted(lent.try_clone_to_owned())
}

// SAFETY of all of these: libhdf5 calls them with the files that `open` gave it, until `close`; it holds
// its lock, so no two calls are at the same time.

unsafe extern "C" fn open(name: *const c_char, flags: c_uint, _: hid_t, _: haddr_t) -> *mut H5FD_t {
    // SAFETY: libhdf5 passes the name that `H5Fopen` was given.
    let descriptor = duplicate(unsafe { CStr::from_ptr(name) });
    let opened = descriptor.filter(|_| flags & H5F_ACC_RDWR == 0);
    let opened = opened.and_then(|descriptor| {
        let stat = rustix::fs::fstat(&descriptor).map_err(io::Error::from);
        let eof = granted(stat)?.st_size;
        Some(Opened {
            library: Library([0; 256]),
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
    // SAFETY: made by `open`, and not used any more.
    drop(unsafe { Box::from_raw(file.cast::<Opened>()) });
    0
}

unsafe extern "C" fn query(_: *const H5FD_t, flags: *mut c_ulong) -> herr_t {
    let features = H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE;
    if !flags.is_null() {
        // SAFETY: libhdf5's own variable.
        unsafe { *flags = c_ulong::from(features) };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: made by `open`.
    unsafe { (*file.cast::<Opened>()).eoa }
}

unsafe extern "C" fn set_eoa(file: *mut H5FD_t, _: c_int, eoa: haddr_t) -> herr_t {
    // SAFETY: made by `open`.
    unsafe { (*file.cast::<Opened>()).eoa = eoa };
    0
}

unsafe extern "C" fn get_eof(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: made by `open`.
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
    // SAFETY: made by `open`; libhdf5's buffer has `size` bytes, which are written before they are read.
    let (file, buffer) = unsafe {
        let file = &*file.cast::<Opened>();
        ptr::write_bytes(buffer.cast::<u8>(), 0, size);
        (
            file,
            std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size),
        )
    };
    let filled = fill(file, buffer, address);
    granted(filled.map_err(io::Error::from)).map_or(-1, |()| 0)
}

/// No driver may be without; files are opened for reading only.
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

/// Reads as far as the file goes; what libhdf5 asks for behind the end is zeros, as in its own drivers. But not
/// where bytes are gone that were there when it was opened.
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

// The order of the functions is the same only where these have the size of a pointer.
const _: () = assert!(size_of::<hsize_t>() == size_of::<usize>());
