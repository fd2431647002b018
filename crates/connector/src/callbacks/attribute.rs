//! Attributes. Their elements are in the native file.

use std::ffi::{c_char, c_void};

use h5logfs_host::Kind;
use h5logfs_host::types::{Id, Status};

use crate::class::{Handle, Location, Opaque, Optional, Requests, kind};
use crate::object::Object;

passed_child! {
    /// `H5Acreate`.
    changes create = H5VLattr_create(name: *const c_char, datatype: Id, space: Id, acpl: Id, aapl: Id), kind::ATTRIBUTE, Attribute;
    /// `H5Aopen`.
    reads open = H5VLattr_open(name: *const c_char, aapl: Id), kind::ATTRIBUTE, Attribute;
}

passed! {
    /// `H5Aread`.
    reads read = H5VLattr_read(memory_type: Id, buf: *mut c_void), Attribute;
    /// `H5Awrite`.
    changes write = H5VLattr_write(memory_type: Id, buf: *const c_void), Attribute;
    /// `H5Aget_*`.
    reads get = H5VLattr_get(args: *mut Opaque), Attribute;
    /// Operations of the native connector.
    changes optional = H5VLattr_optional(args: *mut Optional), Attribute;
}

passed_at! {
    /// `H5Adelete`, `H5Aexists`, `H5Aiterate`, `H5Arename`.
    changes specific = H5VLattr_specific(args: *mut Opaque), Attribute;
}

/// `H5Aclose`.
pub unsafe extern "C" fn close(handle: Handle, dxpl: Id, requests: Requests) -> Status {
    // SAFETY: see the head of the module.
    unsafe {
        super::close(handle, requests, |f, under, vol| {
            (f.H5VLattr_close)(under, vol, dxpl, requests)
        })
    }
}
