//! Objects that libhdf5 has from the connector at the bottom, for callbacks of the program and the like.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, SUCCESS, Status};

use crate::arguments::Handle;
use crate::info::Info;
use crate::object::Object;
use crate::session::Session;

/// What an object needs to become one of ours.
#[derive(Debug)]
pub struct Context {
    info: Arc<Info>,
    session: Option<Arc<Session>>,
    /// That of the connector below, or null. It never changes; threads may share it.
    under: AtomicPtr<c_void>,
}

impl Context {
    fn under(&self) -> *mut c_void {
        self.under.load(Ordering::Relaxed)
    }

    fn new(object: &Object, under: *mut c_void) -> Arc<Self> {
        Arc::new(Context {
            info: Arc::clone(&object.info),
            session: object.session.clone(),
            under: AtomicPtr::new(under),
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Info {
            library, under_vol, ..
        } = &*self.info;
        let under = self.under();
        if !under.is_null() {
            // SAFETY: the context of the connector below, freed once.
            library.quietly(|f| unsafe { (f.H5VLfree_wrap_ctx)(under, *under_vol) });
        }
    }
}

/// The object at the bottom.
pub unsafe extern "C" fn object(handle: *const c_void) -> *mut c_void {
    // SAFETY: see the head of the module.
    let object = unsafe { Object::of_handle(handle.cast_mut()) };
    let library = &object.info.library;
    let found = library.caught(Kind::Other, || {
        // SAFETY: see the head of the module.
        Ok(library.quietly(|f| unsafe { (f.H5VLget_object)(object.under, object.info.under_vol) }))
    });
    found.unwrap_or(ptr::null_mut())
}

/// What objects of the same file are wrapped with.
pub unsafe extern "C" fn context(handle: *const c_void, context: *mut *mut c_void) -> Status {
    // SAFETY: see the head of the module.
    let object = unsafe { Object::of_handle(handle.cast_mut()) };
    object.answer(Kind::Other, || {
        let own = if object.info.is_native() {
            // The native connector has none, and each call of the program asks.
            let own = || Context::new(object, ptr::null_mut());
            Arc::clone(object.context.get_or_init(own))
        } else {
            let mut under = ptr::null_mut();
            // SAFETY: see the head of the module.
            let status = object.info.library.quietly(|f| unsafe {
                (f.H5VLget_wrap_ctx)(object.under, object.info.under_vol, &mut under)
            });
            if status < 0 {
                return Ok(status);
            }
            Context::new(object, under)
        };
        // SAFETY: the library gives a place for the context.
        unsafe { context.write(Arc::into_raw(own).cast_mut().cast()) };
        Ok(SUCCESS)
    })
}

/// Wraps an object.
pub unsafe extern "C" fn wrap(
    bottom: *mut c_void,
    object_type: c_int,
    context: *mut c_void,
) -> Handle {
    // SAFETY: a context of ours.
    let context = unsafe { &*context.cast::<Context>() };
    let info = &context.info;
    let wrapped = info.library.caught(Kind::Other, || {
        // SAFETY: the object is one of the connector at the bottom, and the context that of the connector below.
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

/// Gives up what [`wrap`] has made, and keeps the object.
pub unsafe extern "C" fn unwrap(handle: Handle) -> *mut c_void {
    // SAFETY: see the head of the module.
    let object = unsafe { Object::of_handle(handle) };
    let info = Arc::clone(&object.info);
    let unwrapped = info.library.caught(Kind::Other, || {
        // SAFETY: see the head of the module.
        let bottom = info
            .library
            .quietly(|f| unsafe { (f.H5VLunwrap_object)(object.under, info.under_vol) });
        if !bottom.is_null() {
            // SAFETY: the library gives up the handle, which nothing uses after this.
            unsafe { Object::free(handle) };
        }
        Ok(bottom)
    });
    unwrapped.unwrap_or(ptr::null_mut())
}

/// Gives a context up.
pub unsafe extern "C" fn free_context(context: *mut c_void) -> Status {
    // SAFETY: a context of ours, which the library gives up.
    let context = unsafe { Arc::from_raw(context.cast::<Context>()) };
    // Others have it, too, in most cases.
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
