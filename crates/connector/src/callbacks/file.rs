//! Files.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use h5logfs_host::types::{DEFAULT, FAILURE, Id, Status};
use h5logfs_host::{Kind, with_return_address};

use crate::arguments::{
    FileAccessible, FileDelete, FileGet, FileSpecific, FileSpecificArguments, Handle, Optional,
    Requests,
};
use crate::below::Below;
use crate::below::drivers::note_written;
use crate::below::ending;
use crate::below::info::Info;
use crate::below::request::Request;
use crate::library::Library;
use crate::log::metadata_image::{release, release_all};
use crate::object::{Effect, Object, pass, wrap_request};
use crate::opening::{self, OpenedLog};
use h5logfs_common::fault::Fault;

/// `H5VL_NATIVE_FILE_POST_OPEN`, the last step of an opening.
const POST_OPEN: c_int = 28;

with_return_address! {
    /// `H5Fcreate`.
    create(_name: *const c_char, _flags: c_uint, _fcpl: Id, _fapl: Id, _dxpl: Id, _requests: Requests) -> Handle = create_for, stack, "x6"
}

with_return_address! {
    /// `H5Fopen`.
    open(_name: *const c_char, _flags: c_uint, _fapl: Id, _dxpl: Id, _requests: Requests) -> Handle = open_for, register "r9", "x5"
}

unsafe extern "C-unwind" fn create_for(
    name: *const c_char,
    flags: c_uint,
    fcpl: Id,
    fapl: Id,
    dxpl: Id,
    requests: Requests,
    caller: usize,
) -> Handle {
    // SAFETY: libhdf5 passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let request = Request {
        name,
        flags,
        fcpl,
        fapl,
        dxpl,
    };
    let created = Library::serve(caller, Kind::Open, |library| {
        release(library);
        ending::watch(library, release_all);
        let info = Info::of_access_list(library, fapl)?;
        if let Some(opened) = opening::create(&info, &request)? {
            return Ok(handle_of(opened));
        }
        info.with_under_list(fapl, |fapl| {
            // SAFETY: see the head of `callbacks`.
            let under = library.quietly(|f| unsafe {
                (f.H5VLfile_create)(name.as_ptr(), flags, fcpl, fapl, dxpl, requests)
            });
            Ok(plain_handle(under, &info, &request, requests))
        })
    });
    created.unwrap_or(ptr::null_mut())
}

unsafe extern "C-unwind" fn open_for(
    name: *const c_char,
    flags: c_uint,
    fapl: Id,
    dxpl: Id,
    requests: Requests,
    caller: usize,
) -> Handle {
    // SAFETY: libhdf5 passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let request = Request {
        name,
        flags,
        fcpl: DEFAULT,
        fapl,
        dxpl,
    };
    let opened = Library::serve(caller, Kind::Open, |library| {
        release(library);
        ending::watch(library, release_all);
        let info = Info::of_access_list(library, fapl)?;
        if let Some(file) = opening::found::open(&info, &request)? {
            return Ok(file.cast());
        }
        if let Some(opened) = opening::open(&info, &request)? {
            return Ok(handle_of(opened));
        }
        info.with_under_list(fapl, |fapl| {
            // SAFETY: see the head of `callbacks`.
            let under = library.quietly(|f| unsafe {
                (f.H5VLfile_open)(name.as_ptr(), flags, fapl, dxpl, requests)
            });
            Ok(plain_handle(under, &info, &request, requests))
        })
    });
    opened.unwrap_or(ptr::null_mut())
}

/// The first object of a log, or null on failure.
fn handle_of(opened: OpenedLog) -> Handle {
    let Below { under, info } = opened.below;
    if under.is_null() {
        return ptr::null_mut();
    }
    Object::file(under, &info, Some(&opened.session)).into_handle()
}

/// The first object of a plain file, or null on failure.
fn plain_handle(
    under: *mut c_void,
    info: &Arc<Info>,
    request: &Request<'_>,
    requests: Requests,
) -> Handle {
    wrap_request(info, requests);
    if under.is_null() {
        return ptr::null_mut();
    }
    note_written(info, request, under);
    Object::new(under, info, None).into_handle()
}

/// `H5Fget_*`.
pub unsafe extern "C-unwind" fn get(
    handle: Handle,
    args: *mut FileGet,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::File, || {
        if let Some(session) = &object.session
            // SAFETY: the library gives the arguments of an operation.
            && let Some(status) = session.file_get(&object.below, unsafe { &mut *args })?
        {
            return Ok(status);
        }
        // SAFETY: see the head of `callbacks`.
        let status = object.pass(Effect::Reads, requests, |f, under, vol| unsafe {
            (f.H5VLfile_get)(under, vol, args, dxpl, requests)
        })?;
        // SAFETY: as above. The native connector returns a list that names itself.
        unsafe {
            if status >= 0 && (*args).operation == FileGet::ACCESS {
                object.below.info.restore_list((*args).arguments.access)?;
            }
        }
        Ok(status)
    })
}

with_return_address! {
    /// `H5Fflush`, `H5Freopen`, `H5Fis_accessible`, `H5Fdelete`, and whether two files are the same.
    specific(_handle: Handle, _args: *mut FileSpecific, _dxpl: Id, _requests: Requests) -> Status = specific_for, register "r8", "x4"
}

unsafe extern "C-unwind" fn specific_for(
    handle: Handle,
    args: *mut FileSpecific,
    dxpl: Id,
    requests: Requests,
    caller: usize,
) -> Status {
    // SAFETY: the library gives the arguments of an operation. Two operations name a path; all others name an object.
    unsafe {
        match (*args).operation {
            FileSpecific::ACCESSIBLE => {
                accessible((*args).arguments.accessible, dxpl, requests, caller)
            }
            FileSpecific::DELETE => delete((*args).arguments.delete, dxpl, requests, caller),
            _ => specific_of(Object::of_handle(handle), &mut *args, dxpl, requests),
        }
    }
}

/// Passes on an operation on a path.
///
/// # Safety
///
/// As for all callbacks: see the head of `callbacks`.
unsafe fn at_path(
    name: *const c_char,
    fapl: Id,
    (dxpl, requests, caller): (Id, Requests, usize),
    kind: Kind,
    log: impl FnOnce(&Arc<Info>, &Request<'_>) -> Result<Option<Status>, Fault>,
    arguments_below: impl FnOnce(Id) -> FileSpecific,
) -> Status {
    // SAFETY: libhdf5 passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let request = Request {
        name,
        flags: 0,
        fcpl: DEFAULT,
        fapl,
        dxpl,
    };
    let done = Library::serve(caller, kind, |library| {
        let info = Info::of_access_list(library, fapl)?;
        if let Some(status) = log(&info, &request)? {
            return Ok(status);
        }
        info.with_under_list(fapl, |fapl| {
            let mut args = arguments_below(fapl);
            Ok(pass(&info, requests, |f, vol| {
                // SAFETY: operations on a path take no object.
                unsafe { (f.H5VLfile_specific)(ptr::null_mut(), vol, &mut args, dxpl, requests) }
            }))
        })
    });
    done.unwrap_or(FAILURE)
}

unsafe fn accessible(asked: FileAccessible, dxpl: Id, requests: Requests, caller: usize) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        at_path(
            asked.name,
            asked.fapl,
            (dxpl, requests, caller),
            Kind::Open,
            |info, request| {
                opening::found::note_asked(&info.library, request.fapl);
                opening::read::is_accessible(info, request, asked.accessible)
            },
            |fapl| FileSpecific {
                operation: FileSpecific::ACCESSIBLE,
                arguments: FileSpecificArguments {
                    accessible: FileAccessible { fapl, ..asked },
                },
            },
        )
    }
}

unsafe fn delete(asked: FileDelete, dxpl: Id, requests: Requests, caller: usize) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        at_path(
            asked.name,
            asked.fapl,
            (dxpl, requests, caller),
            Kind::Delete,
            |info, request| opening::read::delete(info, request),
            |fapl| FileSpecific {
                operation: FileSpecific::DELETE,
                arguments: FileSpecificArguments {
                    delete: FileDelete { fapl, ..asked },
                },
            },
        )
    }
}

/// Answers for an open file.
///
/// # Safety
///
/// As for all callbacks: see the head of `callbacks`.
unsafe fn specific_of(
    object: &Object,
    args: &mut FileSpecific,
    dxpl: Id,
    requests: Requests,
) -> Status {
    object.answer(Kind::File, || {
        // SAFETY: see the head of `callbacks`.
        let status = object.pass(Effect::Reads, requests, |f, under, vol| unsafe {
            (f.H5VLfile_specific)(under, vol, args, dxpl, requests)
        })?;
        if status < 0 {
            return Ok(status);
        }
        match args.operation {
            FileSpecific::REOPEN => {
                // SAFETY: the operation selects this part of the union: a place that holds a file of the connector below.
                let place = unsafe { &mut *args.arguments.reopen };
                if !place.is_null() {
                    let again = Object::file(*place, &object.below.info, object.session.as_ref());
                    *place = again.into_handle();
                }
            }
            FileSpecific::FLUSH => {
                if let Some(session) = &object.session {
                    session.flush()?;
                }
            }
            _ => {}
        }
        Ok(status)
    })
}

/// Operations of the native connector.
pub unsafe extern "C-unwind" fn optional(
    handle: Handle,
    args: *mut Optional,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::File, || {
        if let Some(session) = &object.session
            // SAFETY: the library gives the arguments of an operation.
            && let Some(status) = unsafe { session.file_optional(&*args) }?
        {
            return Ok(status);
        }
        let pass = || {
            // SAFETY: see the head of `callbacks`.
            object.pass(Effect::Reads, requests, |f, under, vol| unsafe {
                (f.H5VLfile_optional)(under, vol, args, dxpl, requests)
            })
        };
        // SAFETY: the library gives the arguments of an operation.
        let is_opening = unsafe { (*args).operation } == POST_OPEN;
        match &object.session {
            Some(session) if is_opening => session.finish_opening(pass),
            Some(session) => {
                session.set_special();
                pass()
            }
            None => pass(),
        }
    })
}

/// `H5Fclose`. Objects of the file may stay open.
pub unsafe extern "C-unwind" fn close(handle: Handle, dxpl: Id, requests: Requests) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    if let Some(session) = &object.session
        && object
            .library()
            .caught(Kind::Close, || session.flush_to_close())
            .is_none()
    {
        return FAILURE;
    }
    // SAFETY: see the head of `callbacks`.
    unsafe {
        super::close(handle, requests, |f, under, vol| {
            (f.H5VLfile_close)(under, vol, dxpl, requests)
        })
    }
}
