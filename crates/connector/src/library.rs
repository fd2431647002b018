//! The functions of libhdf5 that the connector calls.

use std::ffi::{c_char, c_int, c_uint, c_void};

use h5logfs_host::types::{Id, Status};

use crate::class::{
    AttributeSpecific, DatasetGet, DatasetSpecific, DatatypeSpecific, FileGet, FileSpecific,
    GroupSpecific, LinkCreate, LinkSpecific, Location, ObjectGet, ObjectSpecific, Opaque, Optional,
    Requests, Token,
};

/// An object of the connector below.
type Under = *mut c_void;
type Place = *const Location;
type Notify = Option<unsafe extern "C" fn()>;

h5logfs_host::functions! {
    /// Functions of libhdf5, by the names that its headers have.
    ///
    /// Those of `H5VLconnector_passthru.h` leave the error stack as it is when they begin: [`Library::quietly`]. The
    /// others clear it: [`Library::nested`].
    pub struct Functions for "h5logfs_connector" {
        H5allocate_memory: fn(usize, bool) -> *mut c_void,
        H5free_memory: fn(*mut c_void) -> Status,
        H5Idec_ref: fn(Id) -> c_int,
        H5Pcopy: fn(Id) -> Id,
        H5Pclose: fn(Id) -> Status,
        H5Pset_vol: fn(Id, Id, *const c_void) -> Status,
        H5Pget_vol_info: fn(Id, *mut *mut c_void) -> Status,
        H5Pset_driver_by_name: fn(Id, *const c_char, *const c_char) -> Status,
        H5Pget_file_image: fn(Id, *mut *mut c_void, *mut usize) -> Status,
        H5FDregister: fn(*const c_void) -> Id,
        H5FDis_driver_registered_by_name: fn(*const c_char) -> c_int,
        H5VLregister_connector_by_value: fn(c_int, Id) -> Id,
        H5VLget_connector_id_by_name: fn(*const c_char) -> Id,
        H5VLclose: fn(Id) -> Status,

        H5VLcmp_connector_cls: fn(*mut c_int, Id, Id) -> Status,
        H5VLcopy_connector_info: fn(Id, *mut *mut c_void, *mut c_void) -> Status,
        H5VLcmp_connector_info: fn(*mut c_int, Id, *const c_void, *const c_void) -> Status,
        H5VLfree_connector_info: fn(Id, *mut c_void) -> Status,
        H5VLconnector_info_to_str: fn(*const c_void, Id, *mut *mut c_char) -> Status,
        H5VLconnector_str_to_info: fn(*const c_char, Id, *mut *mut c_void) -> Status,

        H5VLget_object: fn(Under, Id) -> *mut c_void,
        H5VLget_wrap_ctx: fn(Under, Id, *mut *mut c_void) -> Status,
        H5VLwrap_object: fn(*mut c_void, c_int, Id, *mut c_void) -> Under,
        H5VLunwrap_object: fn(Under, Id) -> *mut c_void,
        H5VLfree_wrap_ctx: fn(*mut c_void, Id) -> Status,

        H5VLattr_create: fn(Under, Place, Id, *const c_char, Id, Id, Id, Id, Id, Requests) -> Under,
        H5VLattr_open: fn(Under, Place, Id, *const c_char, Id, Id, Requests) -> Under,
        H5VLattr_read: fn(Under, Id, Id, *mut c_void, Id, Requests) -> Status,
        H5VLattr_write: fn(Under, Id, Id, *const c_void, Id, Requests) -> Status,
        H5VLattr_get: fn(Under, Id, *mut Opaque, Id, Requests) -> Status,
        H5VLattr_specific: fn(Under, Place, Id, *mut AttributeSpecific, Id, Requests) -> Status,
        H5VLattr_optional: fn(Under, Id, *mut Optional, Id, Requests) -> Status,
        H5VLattr_close: fn(Under, Id, Id, Requests) -> Status,

        H5VLdataset_create: fn(Under, Place, Id, *const c_char, Id, Id, Id, Id, Id, Id, Requests) -> Under,
        H5VLdataset_open: fn(Under, Place, Id, *const c_char, Id, Id, Requests) -> Under,
        H5VLdataset_read: fn(usize, *mut Under, Id, *mut Id, *mut Id, *mut Id, Id, *mut *mut c_void, Requests) -> Status,
        H5VLdataset_write: fn(usize, *mut Under, Id, *mut Id, *mut Id, *mut Id, Id, *mut *const c_void, Requests) -> Status,
        H5VLdataset_get: fn(Under, Id, *mut DatasetGet, Id, Requests) -> Status,
        H5VLdataset_specific: fn(Under, Id, *mut DatasetSpecific, Id, Requests) -> Status,
        H5VLdataset_optional: fn(Under, Id, *mut Optional, Id, Requests) -> Status,
        H5VLdataset_close: fn(Under, Id, Id, Requests) -> Status,

        H5VLdatatype_commit: fn(Under, Place, Id, *const c_char, Id, Id, Id, Id, Id, Requests) -> Under,
        H5VLdatatype_open: fn(Under, Place, Id, *const c_char, Id, Id, Requests) -> Under,
        H5VLdatatype_get: fn(Under, Id, *mut Opaque, Id, Requests) -> Status,
        H5VLdatatype_specific: fn(Under, Id, *mut DatatypeSpecific, Id, Requests) -> Status,
        H5VLdatatype_optional: fn(Under, Id, *mut Optional, Id, Requests) -> Status,
        H5VLdatatype_close: fn(Under, Id, Id, Requests) -> Status,

        H5VLfile_create: fn(*const c_char, c_uint, Id, Id, Id, Requests) -> Under,
        H5VLfile_open: fn(*const c_char, c_uint, Id, Id, Requests) -> Under,
        H5VLfile_get: fn(Under, Id, *mut FileGet, Id, Requests) -> Status,
        H5VLfile_specific: fn(Under, Id, *mut FileSpecific, Id, Requests) -> Status,
        H5VLfile_optional: fn(Under, Id, *mut Optional, Id, Requests) -> Status,
        H5VLfile_close: fn(Under, Id, Id, Requests) -> Status,

        H5VLgroup_create: fn(Under, Place, Id, *const c_char, Id, Id, Id, Id, Requests) -> Under,
        H5VLgroup_open: fn(Under, Place, Id, *const c_char, Id, Id, Requests) -> Under,
        H5VLgroup_get: fn(Under, Id, *mut Opaque, Id, Requests) -> Status,
        H5VLgroup_specific: fn(Under, Id, *mut GroupSpecific, Id, Requests) -> Status,
        H5VLgroup_optional: fn(Under, Id, *mut Optional, Id, Requests) -> Status,
        H5VLgroup_close: fn(Under, Id, Id, Requests) -> Status,

        H5VLlink_create: fn(*mut LinkCreate, Under, Place, Id, Id, Id, Id, Requests) -> Status,
        H5VLlink_copy: fn(Under, Place, Under, Place, Id, Id, Id, Id, Requests) -> Status,
        H5VLlink_move: fn(Under, Place, Under, Place, Id, Id, Id, Id, Requests) -> Status,
        H5VLlink_get: fn(Under, Place, Id, *mut Opaque, Id, Requests) -> Status,
        H5VLlink_specific: fn(Under, Place, Id, *mut LinkSpecific, Id, Requests) -> Status,
        H5VLlink_optional: fn(Under, Place, Id, *mut Optional, Id, Requests) -> Status,

        H5VLobject_open: fn(Under, Place, Id, *mut c_int, Id, Requests) -> Under,
        H5VLobject_copy: fn(Under, Place, *const c_char, Under, Place, *const c_char, Id, Id, Id, Id, Requests) -> Status,
        H5VLobject_get: fn(Under, Place, Id, *mut ObjectGet, Id, Requests) -> Status,
        H5VLobject_specific: fn(Under, Place, Id, *mut ObjectSpecific, Id, Requests) -> Status,
        H5VLobject_optional: fn(Under, Place, Id, *mut Optional, Id, Requests) -> Status,

        H5VLintrospect_get_conn_cls: fn(Under, Id, c_int, *mut *const c_void) -> Status,
        H5VLintrospect_get_cap_flags: fn(*const c_void, Id, *mut u64) -> Status,
        H5VLintrospect_opt_query: fn(Under, Id, c_int, c_int, *mut u64) -> Status,

        H5VLrequest_wait: fn(Under, Id, u64, *mut c_int) -> Status,
        H5VLrequest_notify: fn(Under, Id, Notify, *mut c_void) -> Status,
        H5VLrequest_cancel: fn(Under, Id, *mut c_int) -> Status,
        H5VLrequest_specific: fn(Under, Id, *mut Opaque) -> Status,
        H5VLrequest_optional: fn(Under, Id, *mut Optional) -> Status,
        H5VLrequest_free: fn(Under, Id) -> Status,

        H5VLblob_put: fn(Under, Id, *const c_void, usize, *mut c_void, *mut c_void) -> Status,
        H5VLblob_get: fn(Under, Id, *const c_void, *mut c_void, usize, *mut c_void) -> Status,
        H5VLblob_specific: fn(Under, Id, *mut c_void, *mut Opaque) -> Status,
        H5VLblob_optional: fn(Under, Id, *mut c_void, *mut Optional) -> Status,

        H5VLtoken_cmp: fn(Under, Id, *const Token, *const Token, *mut c_int) -> Status,
        H5VLtoken_to_str: fn(Under, c_int, Id, *const Token, *mut *mut c_char) -> Status,
        H5VLtoken_from_str: fn(Under, c_int, Id, *const c_char, *mut Token) -> Status,

        H5VLoptional: fn(Under, Id, *mut Optional, Id, Requests) -> Status,
    }
}

h5logfs_host::functions! {
    /// Those that only parallel HDF5 has.
    pub struct Parallel for "h5logfs_connector" {
        H5Pget_dxpl_mpio: fn(Id, *mut c_int) -> Status,
        H5Pset_dxpl_mpio: fn(Id, c_int) -> Status,
    }
}

/// The libhdf5 that uses the connector.
pub type Library = h5logfs_host::Library<Functions>;
