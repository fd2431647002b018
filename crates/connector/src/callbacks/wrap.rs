//! Wrapping: objects that libhdf5 got from the connector at the bottom, for example for callbacks of the program.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, SUCCESS, Status};

use crate::arguments::Handle;
use crate::context::Context;
use crate::object::Object;

/// The object of the connector at the bottom.
pub unsafe extern "C-unwind" fn object(handle: *const c_void) -> *mut c_void {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle.cast_mut()) };
    let found = object.library().caught(Kind::Other, || {
        // SAFETY: see the head of `callbacks`.
        Ok(object
            .below
            .quietly(|f, under, vol| unsafe { (f.H5VLget_object)(under, vol) }))
    });
    found.unwrap_or(ptr::null_mut())
}

/// The context for wrapping objects of the same file.
pub unsafe extern "C-unwind" fn context(
    handle: *const c_void,
    context: *mut *mut c_void,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle.cast_mut()) };
    object.answer(Kind::Other, || {
        let info = &object.below.info;
        let made = |under| Arc::new(Context::new(info, object.session.as_ref(), under));
        let own = if info.is_native() {
            // The native connector has no context of its own, and each call of the program asks for ours. So it is made once.
            let kept = object.context.get_or_init(|| made(ptr::null_mut()));
            Arc::clone(kept)
        } else {
            let mut found = ptr::null_mut();
            // SAFETY: see the head of `callbacks`.
            let status = object
                .below
                .quietly(|f, under, vol| unsafe { (f.H5VLget_wrap_ctx)(under, vol, &mut found) });
            if status < 0 {
                return Ok(status);
            }
            made(found)
        };
        // SAFETY: the library gives a place for the context.
        unsafe { context.write(Arc::into_raw(own).cast_mut().cast()) };
        Ok(SUCCESS)
    })
}

/// Wraps an object of the connector at the bottom.
pub unsafe extern "C-unwind" fn wrap(
    bottom: *mut c_void,
    object_type: c_int,
    context: *mut c_void,
) -> Handle {
    // SAFETY: the context comes from [`context`].
    let context = unsafe { &*context.cast::<Context>() };
    let info = &context.info;
    let wrapped = info.library.caught(Kind::Other, || {
        // SAFETY: the object belongs to the connector at the bottom, and the context to the connector below.
        let under = info.library.quietly(|f| unsafe {
            (f.H5VLwrap_object)(bottom, object_type, info.under_vol, context.under())
        });
        if under.is_null() {
            return Ok(ptr::null_mut());
        }
        Ok(Object::of_type(under, object_type, info, context.session.as_ref())?.into_handle())
    });
    wrapped.unwrap_or(ptr::null_mut())
}

/// Undoes [`wrap`]: frees the wrapper and returns the object.
pub unsafe extern "C-unwind" fn unwrap(handle: Handle) -> *mut c_void {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    let info = Arc::clone(&object.below.info);
    let unwrapped = info.library.caught(Kind::Other, || {
        // SAFETY: see the head of `callbacks`.
        let bottom = object
            .below
            .quietly(|f, under, vol| unsafe { (f.H5VLunwrap_object)(under, vol) });
        if !bottom.is_null() {
            // SAFETY: the library gives up the handle, and nothing uses it afterwards.
            unsafe { Object::free(handle) };
        }
        Ok(bottom)
    });
    unwrapped.unwrap_or(ptr::null_mut())
}

/// Frees a context.
pub unsafe extern "C-unwind" fn free_context(context: *mut c_void) -> Status {
    // SAFETY: the context comes from [`context`], and the library gives its reference up.
    let context = unsafe { Arc::from_raw(context.cast::<Context>()) };
    // Most contexts have other references.
    let Some(context) = Arc::into_inner(context) else {
        return SUCCESS;
    };
    let info = Arc::clone(&context.info);
    let freed = info.library.caught(Kind::Other, || {
        drop(context);
        Ok(SUCCESS)
    });
    freed.unwrap_or(FAILURE)
}
