//! Queries about the connector: class, capabilities, operations.

use std::ffi::{c_int, c_void};

use h5logfs_host::Kind;
use h5logfs_host::lists::{IS_SUPPORTED, OF_DATASETS, READS_DATA, WRITES_DATA};
use h5logfs_host::types::{FAILURE, SUCCESS, Status};

use crate::arguments::Handle;
use crate::below::info::{CAPABILITIES, Info};
use crate::object::Object;

/// The class of the connector at the bottom.
pub unsafe extern "C-unwind" fn class_below(
    handle: Handle,
    level: c_int,
    class: *mut *const c_void,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || {
        // SAFETY: see the head of `callbacks`.
        Ok(object.below.quietly(|f, under, vol| unsafe {
            (f.H5VLintrospect_get_conn_cls)(under, vol, level, class)
        }))
    })
}

/// Capability flags: those of the connector below. A list without information means the native connector.
pub unsafe extern "C-unwind" fn capabilities(info: *const c_void, flags: *mut u64) -> Status {
    if info.is_null() {
        // SAFETY: the library gives a place for the flags.
        unsafe { flags.write(CAPABILITIES) };
        return SUCCESS;
    }
    // SAFETY: the information comes from this connector.
    let info = unsafe { Info::share(info) };
    let told = info
        .library
        .caught(Kind::Other, || info.capabilities(flags));
    told.unwrap_or(FAILURE)
}

/// Whether an operation is supported: by this connector for this dataset, or by the native connector.
pub unsafe extern "C-unwind" fn query(
    handle: Handle,
    part: c_int,
    operation: c_int,
    flags: *mut u64,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Other, || {
        let operations = object.below.info.operations;
        if part == OF_DATASETS && operations.has(operation) {
            let effect = if operation == operations.write {
                WRITES_DATA
            } else {
                READS_DATA
            };
            let answer = if object.takes_lists() {
                IS_SUPPORTED | effect
            } else {
                0
            };
            // SAFETY: the library gives a place for the flags.
            unsafe { flags.write(answer) };
            return Ok(SUCCESS);
        }
        // SAFETY: see the head of `callbacks`.
        Ok(object.below.quietly(|f, under, vol| unsafe {
            (f.H5VLintrospect_opt_query)(under, vol, part, operation, flags)
        }))
    })
}
