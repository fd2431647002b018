//! The callbacks that libhdf5 calls.
//!
//! libhdf5 guards its calls of a file driver with its own lock, or leaves that to the program.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr::NonNull;
use std::slice;

use h5logfs_host::types::{Address, DEFAULT, FAILURE, Id, SUCCESS, Status};
use h5logfs_host::{Kind, with_return_address};

use crate::declared::{FEATURES, IN_MEMORY, PublicPart, SUPERBLOCK, UNDEFINED, Usage};
use crate::file::{CanonicalFile, Content, File};
use crate::library::{self, Functions, Library};
use crate::memory::Memory;
use crate::open::{self, Request};
use h5logfs_common::fault::Fault;

with_return_address! {
    /// Opens a file.
    open(_name: *const c_char, _flags: c_uint, _fapl: Id, _last: Address) -> *mut File = open_for,
    register "r8", "x4"
}

with_return_address! {
    /// Deletes a file.
    delete(_name: *const c_char, _fapl: Id) -> Status = delete_for,
    register "rdx", "x2"
}

with_return_address! {
    /// Opens a file for a session: a file in memory, or the target of its links.
    open_in_session(_name: *const c_char, _flags: c_uint, _fapl: Id, _last: Address) -> *mut File = open_in_session_for,
    register "r8", "x4"
}

unsafe extern "C-unwind" fn open_for(
    name: *const c_char,
    flags: c_uint,
    fapl: Id,
    last_address: Address,
    caller: usize,
) -> *mut File {
    // SAFETY: the arguments are those of this call.
    unsafe { open_as(open::open, name, flags, fapl, last_address, caller) }
}

unsafe extern "C-unwind" fn open_in_session_for(
    name: *const c_char,
    flags: c_uint,
    fapl: Id,
    last_address: Address,
    caller: usize,
) -> *mut File {
    // SAFETY: the arguments are those of this call.
    unsafe {
        open_as(
            open::open_in_session,
            name,
            flags,
            fapl,
            last_address,
            caller,
        )
    }
}

/// Opens a file with one of the open functions.
///
/// # Safety
///
/// The arguments are those of a call of libhdf5.
unsafe fn open_as(
    open: impl FnOnce(&Library, &Request<'_>) -> Result<Option<Content>, Fault>,
    name: *const c_char,
    flags: c_uint,
    fapl: Id,
    last_address: Address,
    caller: usize,
) -> *mut File {
    let opened = Library::serve(caller, Kind::Open, |library| {
        if name.is_null() {
            return Err("no name of a file".into());
        }
        // SAFETY: libhdf5 passes a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let request = Request {
            name,
            flags,
            fapl,
            last_address,
        };
        let content = open(library, &request)?;
        Ok(content.map(|content| Box::new(File::new(*library, content))))
    });
    opened.flatten().map_or(std::ptr::null_mut(), Box::into_raw)
}

unsafe extern "C-unwind" fn delete_for(name: *const c_char, fapl: Id, caller: usize) -> Status {
    let deleted = Library::serve(caller, Kind::Delete, |library| {
        if name.is_null() {
            return Err("no name of a file".into());
        }
        // SAFETY: libhdf5 passes a C string.
        let path = open::path_of(unsafe { CStr::from_ptr(name) });
        if open::delete_log(path, &open::options_of(library, fapl)?)? {
            return Ok(SUCCESS);
        }
        Ok(library::with_default_driver(
            library,
            fapl,
            FAILURE,
            |f, fapl| unsafe {
                // SAFETY: `fapl` is a list of this library, and `name` is from libhdf5.
                (f.H5FDdelete)(name, fapl)
            },
        ))
    });
    deleted.unwrap_or(FAILURE)
}

/// Acts on a file. An error goes onto the error stack of its library.
///
/// # Safety
///
/// `file` is an open file from [`open`].
unsafe fn with<R>(
    file: *const File,
    kind: Kind,
    failed: R,
    act: impl FnOnce(&File) -> Result<R, Fault>,
) -> R {
    // SAFETY: promised by the caller. libhdf5 changes only the public part, which is never read here.
    let file = unsafe { &*file };
    file.library.caught(kind, || act(file)).unwrap_or(failed)
}

impl File {
    /// Calls the default driver for a plain file, and our own code for a log and for a file in memory.
    fn pass<R>(
        &self,
        plain: impl FnOnce(&Functions, *mut PublicPart) -> R,
        log: impl FnOnce(&CanonicalFile) -> Result<R, Fault>,
        memory: impl FnOnce(&Memory) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        match &self.content {
            Content::Plain(inner) => Ok(self.library.nested(|f| plain(f, inner.as_ptr()))),
            Content::Log(own) => log(own),
            Content::Memory(own) => memory(own),
        }
    }
}

// Each `unsafe` block below without its own reason calls a function of the library that opened the file, with the file that
// its default driver opened for it, and with the arguments from libhdf5.

/// Closes a file, and frees it.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn close(file: *mut File) -> Status {
    // SAFETY: libhdf5 gives up the file, which `Box::into_raw` has made.
    let file = unsafe { Box::from_raw(file) };
    let library = file.library;
    let closed = library.caught(Kind::Open, || {
        match &file.content {
            // SAFETY: see above. The default driver's file is closed once.
            Content::Plain(inner) => {
                Ok(library.nested(|f| unsafe { (f.H5FDclose)(inner.as_ptr()) }))
            }
            Content::Log(_) | Content::Memory(_) => Ok(SUCCESS),
        }
        .inspect(|_| drop(file))
    });
    closed.unwrap_or(FAILURE)
}

/// Orders two files of one library; equal files are the same.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn compare(one: *const File, other: *const File) -> c_int {
    // SAFETY: this driver has opened both files.
    let (one, other) = unsafe { (&*one, &*other) };
    let compared = one.library.caught(Kind::Open, || {
        Ok(match (&one.content, &other.content) {
            (Content::Plain(a), Content::Plain(b)) => {
                // SAFETY: see above.
                one.library
                    .nested(|f| unsafe { (f.H5FDcmp)(a.as_ptr(), b.as_ptr()) })
            }
            (Content::Log(a), Content::Log(b)) => a.compare(b) as c_int,
            (Content::Memory(a), Content::Memory(b)) => a.identity().cmp(&b.identity()) as c_int,
            (a, b) => a.kind().cmp(&b.kind()) as c_int,
        })
    });
    compared.unwrap_or(-1)
}

/// Orders two files; different files are never equal.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn compare_places(one: *const File, other: *const File) -> c_int {
    one.addr().cmp(&other.addr()) as c_int
}

/// Returns the features of a file, or of the driver.
///
/// # Safety
///
/// As [`open`]; `file` may be null.
pub unsafe extern "C-unwind" fn query(file: *const File, flags: *mut c_ulong) -> Status {
    if flags.is_null() {
        return SUCCESS;
    }
    if file.is_null() {
        // SAFETY: libhdf5 passes a place for the flags.
        unsafe { flags.write(FEATURES) };
        return SUCCESS;
    }
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Open, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDquery)(inner, flags),
                |log| {
                    flags.write(log.features());
                    Ok(SUCCESS)
                },
                |_| {
                    flags.write(IN_MEMORY);
                    Ok(SUCCESS)
                },
            )
        })
    }
}

/// Returns the end of the space that libhdf5 has allocated.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn allocated(file: *const File, usage: Usage) -> Address {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Read, UNDEFINED, |file| {
            file.pass(
                |f, inner| (f.H5FDget_eoa)(inner, usage),
                |log| Ok(log.allocated()),
                |memory| Ok(memory.allocated()),
            )
        })
    }
}

/// Sets the end of the space that libhdf5 has allocated.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn set_allocated(
    file: *mut File,
    usage: Usage,
    address: Address,
) -> Status {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Read, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDset_eoa)(inner, usage, address),
                |log| {
                    log.set_allocated(address);
                    Ok(SUCCESS)
                },
                |memory| {
                    memory.set_allocated(address);
                    Ok(SUCCESS)
                },
            )
        })
    }
}

/// Returns the end of the file.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn end(file: *const File, usage: Usage) -> Address {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Read, UNDEFINED, |file| {
            file.pass(
                |f, inner| (f.H5FDget_eof)(inner, usage),
                |log| Ok(log.open.len()),
                |memory| Ok(memory.len()),
            )
        })
    }
}

/// Returns the descriptor of a plain file.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn handle(
    file: *mut File,
    fapl: Id,
    handle: *mut *mut c_void,
) -> Status {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Unsupported, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDget_vfd_handle)(inner, fapl, handle),
                |log| Err(log.no_descriptor().into()),
                |_| Err("a file in memory has no descriptor".into()),
            )
        })
    }
}

/// Reads bytes. Bytes past the end of the file are zeros.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn read(
    file: *mut File,
    usage: Usage,
    _transfer: Id,
    at: Address,
    size: usize,
    buf: *mut c_void,
) -> Status {
    // SAFETY: see above. The transfer properties mean nothing to the default driver.
    unsafe {
        with(file, Kind::Read, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDread)(inner, usage, DEFAULT, at, size, buf),
                |log| {
                    let buf = place(buf, size)?;
                    log.read(at, buf).map(|()| SUCCESS)
                },
                |memory| {
                    memory.read(at, place(buf, size)?);
                    Ok(SUCCESS)
                },
            )
        })
    }
}

/// The buffer for the bytes of a read.
///
/// # Safety
///
/// libhdf5 passes `size` bytes at `buf`. They may be uninitialised; nothing reads them before they are written.
unsafe fn place<'a>(buf: *mut c_void, size: usize) -> Result<&'a mut [u8], Fault> {
    let Some(buf) = NonNull::new(buf.cast::<u8>()) else {
        return Err("no buffer for the read".into());
    };
    // SAFETY: promised by the caller.
    Ok(unsafe { slice::from_raw_parts_mut(buf.as_ptr(), size) })
}

/// Writes bytes to a plain file, or to one in memory.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn write(
    file: *mut File,
    usage: Usage,
    _transfer: Id,
    at: Address,
    size: usize,
    buf: *const c_void,
) -> Status {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Write, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDwrite)(inner, usage, DEFAULT, at, size, buf),
                |log| {
                    if log.is_inherited {
                        // libhdf5 marks the superblock of a file that it opens for writing. A log never gets the mark.
                        if usage != SUPERBLOCK
                            && let Some(lost) = log.lost()
                        {
                            file.library.push(Kind::Write, &lost);
                        }
                        return Ok(SUCCESS);
                    }
                    Err(log.read_only().into())
                },
                |memory| {
                    let Some(buf) = NonNull::new(buf.cast_mut().cast::<u8>()) else {
                        return Err("no bytes to write".into());
                    };
                    // libhdf5 passes `size` bytes.
                    let buf = slice::from_raw_parts(buf.as_ptr(), size);
                    memory.write(at, buf).map(|()| SUCCESS)
                },
            )
        })
    }
}

/// Writes data that the driver holds back. The default driver holds back none.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn flush(file: *mut File, _transfer: Id, is_closing: bool) -> Status {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Write, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDflush)(inner, DEFAULT, is_closing),
                |_| Ok(SUCCESS),
                |_| Ok(SUCCESS),
            )
        })
    }
}

/// Gives a plain file, or a file in memory, the length that libhdf5 has allocated.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn truncate(
    file: *mut File,
    _transfer: Id,
    is_closing: bool,
) -> Status {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Write, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDtruncate)(inner, DEFAULT, is_closing),
                |log| {
                    if log.is_inherited {
                        return Ok(SUCCESS);
                    }
                    Err(log.read_only().into())
                },
                |memory| memory.truncate().map(|()| SUCCESS),
            )
        })
    }
}

/// Locks a plain file. A log is not locked: its readers must not stop the job that writes it.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn lock(file: *mut File, is_exclusive: bool) -> Status {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Open, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDlock)(inner, is_exclusive),
                |log| {
                    if log.is_refused {
                        return Err(log.read_only().into());
                    }
                    Ok(SUCCESS)
                },
                |_| Ok(SUCCESS),
            )
        })
    }
}

/// Unlocks a plain file.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn unlock(file: *mut File) -> Status {
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Open, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDunlock)(inner),
                |_| Ok(SUCCESS),
                |_| Ok(SUCCESS),
            )
        })
    }
}

/// Runs an operation that only some drivers know.
///
/// # Safety
///
/// As [`open`].
pub unsafe extern "C-unwind" fn control(
    file: *mut File,
    operation: u64,
    flags: u64,
    input: *const c_void,
    output: *mut *mut c_void,
) -> Status {
    /// `H5FD_CTL_FAIL_IF_UNKNOWN_FLAG`.
    const FAIL_IF_UNKNOWN: u64 = 1;
    // SAFETY: see above.
    unsafe {
        with(file, Kind::Unsupported, FAILURE, |file| {
            file.pass(
                |f, inner| (f.H5FDctl)(inner, operation, flags, input, output),
                |log| match flags & FAIL_IF_UNKNOWN {
                    0 => Ok(SUCCESS),
                    _ => Err(format!("{}: no such operation", log.path.display()).into()),
                },
                |_| match flags & FAIL_IF_UNKNOWN {
                    0 => Ok(SUCCESS),
                    _ => Err("a file in memory: no such operation".into()),
                },
            )
        })
    }
}
