//! Functions of libhdf5 that the connector calls.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use h5logfs_host::types::{Id, Status};

use crate::arguments::{
    AttributeSpecific, DatasetGet, DatasetSpecific, DatatypeSpecific, FileGet, FileSpecific,
    GroupSpecific, LinkCreate, LinkSpecific, Location, ObjectGet, ObjectSpecific, Opaque, Optional,
    Requests, Size, Token,
};

/// An object of the connector below.
type Under = *mut c_void;
type Place = *const Location;
/// `H5D_gather_func_t`; the connector always passes null.
type Gather = Option<unsafe extern "C-unwind" fn()>;
/// `H5D_scatter_func_t`.
type Scatter = unsafe extern "C-unwind" fn(*mut *const c_void, *mut usize, *mut c_void) -> Status;
type Notify = Option<unsafe extern "C-unwind" fn()>;

h5logfs_host::functions! {
    /// Functions of libhdf5, under the names in its headers.
    ///
    /// Functions of `H5VLconnector_passthru.h` do not clear the error stack when they begin: call them within
    /// [`Library::quietly`]. All others clear it: call them within [`Library::nested`].
    pub struct Functions for "h5logfs_connector" {
        H5get_libversion: fn(*mut c_uint, *mut c_uint, *mut c_uint) -> Status,
        H5allocate_memory: fn(usize, bool) -> *mut c_void,
        H5free_memory: fn(*mut c_void) -> Status,
        H5Idec_ref: fn(Id) -> c_int,
        H5Iget_ref: fn(Id) -> c_int,
        H5Fopen: fn(*const c_char, c_uint, Id) -> Id,
        H5Fcreate: fn(*const c_char, c_uint, Id, Id) -> Id,
        H5Fclose: fn(Id) -> Status,
        H5Fget_obj_count: fn(Id, c_uint) -> isize,
        H5Fget_obj_ids: fn(Id, c_uint, usize, *mut Id) -> isize,
        H5Dcreate2: fn(Id, *const c_char, Id, Id, Id, Id, Id) -> Id,
        H5Dwrite: fn(Id, Id, Id, Id, Id, *const c_void) -> Status,
        H5Dopen2: fn(Id, *const c_char, Id) -> Id,
        H5Dread: fn(Id, Id, Id, Id, Id, *mut c_void) -> Status,
        H5Dget_space: fn(Id) -> Id,
        H5Dclose: fn(Id) -> Status,
        H5Pcopy: fn(Id) -> Id,
        H5Pequal: fn(Id, Id) -> c_int,
        H5Pexist: fn(Id, *const c_char) -> c_int,
        H5Pget: fn(Id, *const c_char, *mut c_void) -> Status,
        H5Pclose: fn(Id) -> Status,
        H5Pset_vol: fn(Id, Id, *const c_void) -> Status,
        H5Pget_vol_id: fn(Id, *mut Id) -> Status,
        H5Pget_vol_info: fn(Id, *mut *mut c_void) -> Status,
        H5Pset_driver_by_name: fn(Id, *const c_char, *const c_char) -> Status,
        H5Pget_file_image: fn(Id, *mut *mut c_void, *mut usize) -> Status,
        H5FDregister: fn(*const c_void) -> Id,
        H5FDis_driver_registered_by_name: fn(*const c_char) -> c_int,
        H5FDdriver_query: fn(Id, *mut c_ulong) -> Status,
        H5VLregister_connector_by_value: fn(c_int, Id) -> Id,
        H5VLget_connector_id_by_name: fn(*const c_char) -> Id,
        H5VLget_connector_name: fn(Id, *mut c_char, usize) -> isize,
        H5VLclose: fn(Id) -> Status,
        H5VLregister_opt_operation: fn(c_int, *const c_char, *mut c_int) -> Status,
        H5VLfind_opt_operation: fn(c_int, *const c_char, *mut c_int) -> Status,

        H5Pget_driver: fn(Id) -> Id,
        H5Pget_driver_info: fn(Id) -> *const c_void,
        H5Pget_driver_config_str: fn(Id, *mut c_char, usize) -> isize,
        H5Pset_driver: fn(Id, Id, *const c_void) -> Status,
        H5Pset_elink_file_cache_size: fn(Id, c_uint) -> Status,
        H5Pget_elink_fapl: fn(Id) -> Id,
        H5Pset_elink_fapl: fn(Id, Id) -> Status,
        H5Pget_fapl_core: fn(Id, *mut usize, *mut bool) -> Status,
        H5Pset_fapl_core: fn(Id, usize, bool) -> Status,
        H5Pset_fapl_sec2: fn(Id) -> Status,
        H5Pget_fclose_degree: fn(Id, *mut c_int) -> Status,
        H5Pset_fclose_degree: fn(Id, c_int) -> Status,
        H5Pget_libver_bounds: fn(Id, *mut c_int, *mut c_int) -> Status,
        H5Pset_libver_bounds: fn(Id, c_int, c_int) -> Status,
        H5Pset_alignment: fn(Id, Size, Size) -> Status,
        H5Pget_userblock: fn(Id, *mut Size) -> Status,
        H5Pget_file_space_strategy: fn(Id, *mut c_int, *mut bool, *mut Size) -> Status,
        H5Pget_page_buffer_size: fn(Id, *mut usize, *mut c_uint, *mut c_uint) -> Status,
        H5Pset_page_buffer_size: fn(Id, usize, c_uint, c_uint) -> Status,
        H5Pget_file_locking: fn(Id, *mut bool, *mut bool) -> Status,
        H5Pget_layout: fn(Id) -> c_int,
        H5Pget_virtual_count: fn(Id, *mut usize) -> Status,
        H5Pget_virtual_filename: fn(Id, usize, *mut c_char, usize) -> isize,
        H5Pget_chunk: fn(Id, c_int, *mut Size) -> c_int,
        H5Pget_chunk_opts: fn(Id, *mut c_uint) -> Status,
        H5Pset_chunk_opts: fn(Id, c_uint) -> Status,
        H5Pget_external_count: fn(Id) -> c_int,
        H5Pget_nfilters: fn(Id) -> c_int,
        H5Pget_filter2: fn(Id, c_uint, *mut c_uint, *mut usize, *mut c_uint, usize, *mut c_char, *mut c_uint) -> c_int,
        H5Premove_filter: fn(Id, c_int) -> Status,
        H5Pget_copy_object: fn(Id, *mut c_uint) -> Status,
        H5Pget_alloc_time: fn(Id, *mut c_int) -> Status,
        H5Pset_alloc_time: fn(Id, c_int) -> Status,
        H5Pget_fill_time: fn(Id, *mut c_int) -> Status,
        H5Pget_data_transform: fn(Id, *mut c_char, usize) -> isize,
        H5Pfill_value_defined: fn(Id, *mut c_int) -> Status,
        H5Pget_fill_value: fn(Id, Id, *mut c_void) -> Status,

        H5Screate_simple: fn(c_int, *const Size, *const Size) -> Id,
        H5Sselect_hyperslab: fn(Id, c_int, *const Size, *const Size, *const Size, *const Size) -> Status,
        H5Sclose: fn(Id) -> Status,
        H5Sget_simple_extent_type: fn(Id) -> c_int,
        H5Sget_simple_extent_ndims: fn(Id) -> c_int,
        H5Sget_simple_extent_dims: fn(Id, *mut Size, *mut Size) -> c_int,
        H5Sget_select_type: fn(Id) -> c_int,
        H5Sselect_valid: fn(Id) -> c_int,
        H5Sget_select_npoints: fn(Id) -> i64,
        H5Sget_select_bounds: fn(Id, *mut Size, *mut Size) -> Status,
        H5Sis_regular_hyperslab: fn(Id) -> c_int,
        H5Sget_regular_hyperslab: fn(Id, *mut Size, *mut Size, *mut Size, *mut Size) -> Status,
        H5Sget_select_elem_pointlist: fn(Id, Size, Size, *mut Size) -> Status,
        H5Ssel_iter_create: fn(Id, usize, c_uint) -> Id,
        H5Ssel_iter_get_seq_list: fn(Id, usize, usize, *mut usize, *mut usize, *mut Size, *mut usize) -> Status,
        H5Ssel_iter_close: fn(Id) -> Status,

        H5Tclose: fn(Id) -> Status,
        H5Tcopy: fn(Id) -> Id,
        H5Tequal: fn(Id, Id) -> c_int,
        H5Tget_size: fn(Id) -> usize,
        H5Tget_class: fn(Id) -> c_int,
        H5Tget_super: fn(Id) -> Id,
        H5Tis_variable_str: fn(Id) -> c_int,
        H5Tget_nmembers: fn(Id) -> c_int,
        H5Tget_member_type: fn(Id, c_uint) -> Id,
        H5Tget_member_class: fn(Id, c_uint) -> c_int,
        H5Tget_member_name: fn(Id, c_uint) -> *mut c_char,
        H5Tget_member_index: fn(Id, *const c_char) -> c_int,
        H5Tconvert: fn(Id, Id, usize, *mut c_void, *mut c_void, Id) -> Status,
        H5Dgather: fn(Id, *const c_void, Id, usize, *mut c_void, Gather, *mut c_void) -> Status,
        H5Dscatter: fn(Scatter, *mut c_void, Id, Id, *mut c_void) -> Status,

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
    /// Functions that only parallel HDF5 has.
    pub struct Parallel for "h5logfs_connector" {
        H5Pget_dxpl_mpio: fn(Id, *mut c_int) -> Status,
        H5Pset_dxpl_mpio: fn(Id, c_int) -> Status,
    }
}

/// A libhdf5 that uses the connector.
pub type Library = h5logfs_host::Library<Functions>;

/// The version of a library: major, minor, release.
pub fn version(library: &Library) -> (c_uint, c_uint, c_uint) {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: all three are valid places for a number.
    library.nested(|f| unsafe { (f.H5get_libversion)(&mut major, &mut minor, &mut release) });
    (major, minor, release)
}

/// Whether a library is HDF5 2.0 or later, which changed some argument structures.
pub fn is_version_2(library: &Library) -> bool {
    version(library).0 >= 2
}
