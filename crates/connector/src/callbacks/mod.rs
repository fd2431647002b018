//! What libhdf5 calls: one module for each part of `H5VL_class_t`.
//!
//! A callback asks the open log of its object, by a hook of [`Session`](crate::session::Session), and passes the call on to
//! the connector below where the log leaves it to that. Panics end here, as errors on the error stack.
//!
//! Each `unsafe` block in these modules that has no reason of its own takes the object from a handle that libhdf5 has got
//! from us and not given back, or calls a function of the library that has called, with the object that the connector
//! below gave us and the arguments that the library gave us. Each `unsafe fn` is for libhdf5 alone, with what
//! `H5VLconnector.h` says.

use std::ffi::c_void;
use std::sync::Arc;

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, Id, SUCCESS, Status};

use crate::arguments::{Handle, Optional, Requests};
use crate::library::Functions;
use crate::log::metadata_image::release;
use crate::object::{Effect, Object};

/// Declares callbacks that the connector below answers for all objects, with their [`Effect`].
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
                // SAFETY: see the head of the module.
                let object = unsafe { Object::of_handle(handle) };
                object.answer(Kind::$kind, || {
                    // SAFETY: see the head of the module.
                    object.pass(Effect::$what, requests, |f, under, vol| unsafe {
                        (f.$function)(under, vol, $($argument,)* dxpl, requests)
                    })
                })
            }
        )*
    };
}

/// The same for callbacks that are told which object is meant, as seen from another.
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
                // SAFETY: see the head of the module.
                let (object, links) = unsafe { (Object::of_handle(handle), (*location).links()) };
                object.answer(Kind::$kind, || {
                    // SAFETY: see the head of the module.
                    object.with_links(links, || object.pass(Effect::$what, requests, |f, under, vol| unsafe {
                        (f.$function)(under, location, vol, $($argument,)* dxpl, requests)
                    }))
                })
            }
        )*
    };
}

/// Declares callbacks that give another object. `at`, `by`: a path, and the list with which
/// it is followed, if they are not in the location.
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
                // SAFETY: see the head of the module.
                let (object, links) = unsafe { (Object::of_handle(handle), (*location).links()) };
                $(let links = links.max($links);)?
                let child = object.library().caught(Kind::$kind, || {
                    if Effect::$what == Effect::Writes {
                        // SAFETY: the location, and the name that there may be, are the library's.
                        let path = unsafe { (*location).path() }.map(crate::object::Changed::Object);
                        $(let path = unsafe { crate::object::Changed::link($path) }.or(path);)?
                        // SAFETY: see above.
                        object.changed_at(path, unsafe { (*location).from }, links)?;
                    }
                    object.with_links(links, || {
                        // SAFETY: see the head of the module.
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
    /// An operation of no part.
    Changes optional = H5VLoptional(args: *mut Optional), Other;
}

/// Closes an object: the connector below its own, then ours.
///
/// # Safety
///
/// As all callbacks; the handle is given up where this succeeds.
unsafe fn close(
    handle: Handle,
    requests: Requests,
    call: impl FnOnce(&Functions, *mut c_void, Id) -> Status,
) -> Status {
    // SAFETY: see the head of the module.
    let object = unsafe { Object::of_handle(handle) };
    let info = Arc::clone(&object.below.info);
    let closed = info.library.caught(Kind::Close, || {
        release(&info.library);
        object.before_leave()?;
        let status = object.pass(Effect::Reads, requests, call)?;
        if status < 0 {
            return Ok(status);
        }
        // SAFETY: libhdf5 gives up the handle, which nothing uses after this.
        unsafe { Object::free(handle) };
        Ok(SUCCESS)
    });
    closed.unwrap_or(FAILURE)
}
