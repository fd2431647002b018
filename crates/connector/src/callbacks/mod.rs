//! Callbacks of libhdf5, one module for each part of `H5VL_class_t`.
//!
//! A callback first asks the open log of its object, through a hook of [`Session`](crate::session::Session). If the hook leaves
//! the call to the connector below, the callback passes it on. A panic becomes an error on the error stack.
//!
//! Most `unsafe` blocks in these modules have one reason. They take the object from a handle that libhdf5 got from this connector
//! and has not given back. Or they call a function of the library that called, with the object that the connector below made and
//! the arguments that the library passed. Blocks with another reason state it. Each `unsafe fn` is called by libhdf5 alone, under
//! the rules of `H5VLconnector.h`.

use std::ffi::c_void;
use std::sync::Arc;

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, Id, SUCCESS, Status};

use crate::arguments::{Handle, Optional, Requests};
use crate::library::Functions;
use crate::log::metadata_image::release;
use crate::object::{Effect, Object};

/// Declares callbacks that the connector below answers for every object, with their [`Effect`].
macro_rules! passed {
    ($($(#[$doc:meta])* $what:ident $name:ident = $function:ident($($argument:ident: $type:ty),*), $kind:ident;)*) => {
        $(
            $(#[$doc])*
            pub unsafe extern "C-unwind" fn $name(
                handle: Handle,
                $($argument: $type,)*
                dxpl: Id,
                requests: Requests,
            ) -> Status {
                // SAFETY: see the head of `callbacks`.
                let object = unsafe { Object::of_handle(handle) };
                object.answer(Kind::$kind, || {
                    // SAFETY: see the head of `callbacks`.
                    object.pass(Effect::$what, requests, |f, under, vol| unsafe {
                        (f.$function)(under, vol, $($argument,)* dxpl, requests)
                    })
                })
            }
        )*
    };
}

/// Like `passed`, for callbacks with a [`Location`].
macro_rules! passed_at {
    ($($(#[$doc:meta])* $what:ident $name:ident = $function:ident($($argument:ident: $type:ty),*), $kind:ident;)*) => {
        $(
            $(#[$doc])*
            pub unsafe extern "C-unwind" fn $name(
                handle: Handle,
                location: *const Location,
                $($argument: $type,)*
                dxpl: Id,
                requests: Requests,
            ) -> Status {
                // SAFETY: see the head of `callbacks`.
                let (object, links) = unsafe { (Object::of_handle(handle), (*location).links()) };
                object.answer(Kind::$kind, || {
                    // SAFETY: see the head of `callbacks`.
                    object.with_links(links, || object.pass(Effect::$what, requests, |f, under, vol| unsafe {
                        (f.$function)(under, location, vol, $($argument,)* dxpl, requests)
                    }))
                })
            }
        )*
    };
}

/// Declares callbacks that return an object. `at`, `by`: the path and its access property list, if the location does not hold
/// them.
macro_rules! passed_child {
    ($($(#[$doc:meta])* $what:ident $name:ident = $function:ident($($argument:ident: $type:ty),*) $(at $path:ident by $links:ident)?, $object_type:expr, $kind:ident;)*) => {
        $(
            $(#[$doc])*
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C-unwind" fn $name(
                handle: Handle,
                location: *const Location,
                $($argument: $type,)*
                dxpl: Id,
                requests: Requests,
            ) -> Handle {
                // SAFETY: see the head of `callbacks`.
                let (object, links) = unsafe { (Object::of_handle(handle), (*location).links()) };
                $(let links = links.max($links);)?
                let child = object.library().caught(Kind::$kind, || {
                    if Effect::$what == Effect::Writes {
                        // SAFETY: the location and the name, if any, belong to the library.
                        let path = unsafe { (*location).path() }.map(crate::object::Changed::Object);
                        $(let path = unsafe { crate::object::Changed::link($path) }.or(path);)?
                        // SAFETY: as above.
                        object.changed_at(path, unsafe { (*location).from }, links)?;
                    }
                    object.with_links(links, || {
                        // SAFETY: see the head of `callbacks`.
                        object.pass_child(Effect::$what, $object_type, requests, |f, under, vol| unsafe {
                            (f.$function)(under, location, vol, $($argument,)* dxpl, requests)
                        })
                    })
                });
                child.unwrap_or(std::ptr::null_mut())
            }
        )*
    };
}

pub mod attribute;
pub mod blob;
pub mod dataset;
pub mod datatype;
pub mod file;
pub mod group;
pub mod info;
pub mod introspection;
pub mod link;
pub mod object;
pub mod request;
pub mod token;
pub mod wrap;

passed! {
    /// `H5VLoptional`: an operation on no kind of object.
    Changes optional = H5VLoptional(args: *mut Optional), Other;
}

/// Closes an object: the connector below closes its own, then this connector frees the handle.
///
/// # Safety
///
/// As for all callbacks: see the head of `callbacks`. The handle is invalid after a success.
unsafe fn close(
    handle: Handle,
    requests: Requests,
    call: impl FnOnce(&Functions, *mut c_void, Id) -> Status,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    let info = Arc::clone(&object.below.info);
    let closed = info.library.caught(Kind::Close, || {
        release(&info.library);
        object.before_leave()?;
        let status = object.pass(Effect::Reads, requests, call)?;
        if status < 0 {
            return Ok(status);
        }
        // SAFETY: libhdf5 gives up the handle, and nothing uses it afterwards.
        unsafe { Object::free(handle) };
        Ok(SUCCESS)
    });
    closed.unwrap_or(FAILURE)
}
