//! What the connector can do.

use std::ffi::{c_int, c_void};

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, SUCCESS, Status};

use crate::arguments::Handle;
use crate::class;
use crate::info::Info;
use crate::object::Object;

/// `H5VL_GET_CONN_LVL_CURR`: the connector itself, not the one at the bottom.
const CURRENT: c_int = 0;

/// The class of a connector.
pub unsafe extern "C" fn class(handle: Handle, level: c_int, class: *mut *const c_void) -> Status {
    if level == CURRENT {
        // SAFETY: the library gives a place for the class.
        unsafe { class.write((&raw const class::CONNECTOR).cast()) };
        return SUCCESS;
    }
    // SAFETY: see the head of the module.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || {
        // SAFETY: see the head of the module.
        Ok(object.info.library.quietly(|f| unsafe {
            (f.H5VLintrospect_get_conn_cls)(object.under, object.info.under_vol, level, class)
        }))
    })
}

/// What the connector below can do is what we can. A list without information means the native one.
pub unsafe extern "C" fn capabilities(info: *const c_void, flags: *mut u64) -> Status {
    if info.is_null() {
        // SAFETY: the library gives a place for the flags.
        unsafe { flags.write(class::CAPABILITIES) };
        return SUCCESS;
    }
    // SAFETY: information of ours.
    let info = unsafe { Info::share(info) };
    let told = info
        .library
        .caught(Kind::Other, || info.capabilities(flags));
    told.unwrap_or(FAILURE)
}

/// Whether an operation of the native connector is there.
pub unsafe extern "C" fn query(
    handle: Handle,
    part: c_int,
    operation: c_int,
    flags: *mut u64,
) -> Status {
    // SAFETY: see the head of the module.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || {
        // SAFETY: see the head of the module.
        Ok(object.info.library.quietly(|f| unsafe {
            (f.H5VLintrospect_opt_query)(
                object.under,
                object.info.under_vol,
                part,
                operation,
                flags,
            )
        }))
    })
}
