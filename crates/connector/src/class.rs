//! The table of callbacks: the structure `H5VL_class_t` of `H5VLconnector.h`, which has version 3 in HDF5 1.14.0 to 2.2.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use h5logfs_host::types::{Id, SUCCESS, Status};

use crate::arguments::{
    AttributeSpecific, DatasetGet, DatasetSpecific, DatatypeSpecific, FileGet, FileSpecific,
    GroupSpecific, Handle, LinkCreate, LinkSpecific, Location, ObjectGet, ObjectSpecific, Opaque,
    Optional, Requests, Token,
};
use crate::below::info::{CAPABILITIES, NAME};
use crate::callbacks as c;

/// A callback that this connector omits. It has the size of a pointer.
type Absent = Option<unsafe extern "C-unwind" fn()>;

/// `H5VL_info_class_t`.
#[repr(C)]
struct InfoClass {
    size: usize,
    copy: unsafe extern "C-unwind" fn(*const c_void) -> *mut c_void,
    compare: unsafe extern "C-unwind" fn(*mut c_int, *const c_void, *const c_void) -> Status,
    free: unsafe extern "C-unwind" fn(*mut c_void) -> Status,
    to_string: unsafe extern "C-unwind" fn(*const c_void, *mut *mut c_char) -> Status,
    from_string: unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void) -> Status,
}

/// `H5VL_wrap_class_t`.
#[repr(C)]
struct WrapClass {
    object: unsafe extern "C-unwind" fn(*const c_void) -> *mut c_void,
    context: unsafe extern "C-unwind" fn(*const c_void, *mut *mut c_void) -> Status,
    wrap: unsafe extern "C-unwind" fn(*mut c_void, c_int, *mut c_void) -> Handle,
    unwrap: unsafe extern "C-unwind" fn(Handle) -> *mut c_void,
    free_context: unsafe extern "C-unwind" fn(*mut c_void) -> Status,
}

type Get = unsafe extern "C-unwind" fn(Handle, *mut Opaque, Id, Requests) -> Status;
type OptionalOf = unsafe extern "C-unwind" fn(Handle, *mut Optional, Id, Requests) -> Status;
type OptionalAt =
    unsafe extern "C-unwind" fn(Handle, *const Location, *mut Optional, Id, Requests) -> Status;
type Close = unsafe extern "C-unwind" fn(Handle, Id, Requests) -> Status;
type Open =
    unsafe extern "C-unwind" fn(Handle, *const Location, *const c_char, Id, Id, Requests) -> Handle;

/// `H5VL_attr_class_t`.
#[repr(C)]
struct AttributeClass {
    create: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *const c_char,
        Id,
        Id,
        Id,
        Id,
        Id,
        Requests,
    ) -> Handle,
    open: Open,
    read: unsafe extern "C-unwind" fn(Handle, Id, *mut c_void, Id, Requests) -> Status,
    write: unsafe extern "C-unwind" fn(Handle, Id, *const c_void, Id, Requests) -> Status,
    get: Get,
    specific: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *mut AttributeSpecific,
        Id,
        Requests,
    ) -> Status,
    optional: OptionalOf,
    close: Close,
}

/// `H5VL_dataset_class_t`.
#[repr(C)]
struct DatasetClass {
    create: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *const c_char,
        Id,
        Id,
        Id,
        Id,
        Id,
        Id,
        Requests,
    ) -> Handle,
    open: Open,
    read: unsafe extern "C-unwind" fn(
        usize,
        *mut Handle,
        *mut Id,
        *mut Id,
        *mut Id,
        Id,
        *mut *mut c_void,
        Requests,
    ) -> Status,
    write: unsafe extern "C-unwind" fn(
        usize,
        *mut Handle,
        *mut Id,
        *mut Id,
        *mut Id,
        Id,
        *mut *const c_void,
        Requests,
    ) -> Status,
    get: unsafe extern "C-unwind" fn(Handle, *mut DatasetGet, Id, Requests) -> Status,
    specific: unsafe extern "C-unwind" fn(Handle, *mut DatasetSpecific, Id, Requests) -> Status,
    optional: OptionalOf,
    close: Close,
}

/// `H5VL_datatype_class_t`.
#[repr(C)]
struct DatatypeClass {
    commit: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *const c_char,
        Id,
        Id,
        Id,
        Id,
        Id,
        Requests,
    ) -> Handle,
    open: Open,
    get: Get,
    specific: unsafe extern "C-unwind" fn(Handle, *mut DatatypeSpecific, Id, Requests) -> Status,
    optional: OptionalOf,
    close: Close,
}

/// `H5VL_file_class_t`.
#[repr(C)]
struct FileClass {
    create: unsafe extern "C-unwind" fn(*const c_char, c_uint, Id, Id, Id, Requests) -> Handle,
    open: unsafe extern "C-unwind" fn(*const c_char, c_uint, Id, Id, Requests) -> Handle,
    get: unsafe extern "C-unwind" fn(Handle, *mut FileGet, Id, Requests) -> Status,
    specific: unsafe extern "C-unwind" fn(Handle, *mut FileSpecific, Id, Requests) -> Status,
    optional: OptionalOf,
    close: Close,
}

/// `H5VL_group_class_t`.
#[repr(C)]
struct GroupClass {
    create: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *const c_char,
        Id,
        Id,
        Id,
        Id,
        Requests,
    ) -> Handle,
    open: Open,
    get: Get,
    specific: unsafe extern "C-unwind" fn(Handle, *mut GroupSpecific, Id, Requests) -> Status,
    optional: OptionalOf,
    close: Close,
}

type LinkTwo = unsafe extern "C-unwind" fn(
    Handle,
    *const Location,
    Handle,
    *const Location,
    Id,
    Id,
    Id,
    Requests,
) -> Status;

/// `H5VL_link_class_t`.
#[repr(C)]
struct LinkClass {
    create: unsafe extern "C-unwind" fn(
        *mut LinkCreate,
        Handle,
        *const Location,
        Id,
        Id,
        Id,
        Requests,
    ) -> Status,
    copy: LinkTwo,
    rename: LinkTwo,
    get: unsafe extern "C-unwind" fn(Handle, *const Location, *mut Opaque, Id, Requests) -> Status,
    specific: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *mut LinkSpecific,
        Id,
        Requests,
    ) -> Status,
    optional: OptionalAt,
}

/// `H5VL_object_class_t`.
#[repr(C)]
struct ObjectClass {
    open: unsafe extern "C-unwind" fn(Handle, *const Location, *mut c_int, Id, Requests) -> Handle,
    copy: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *const c_char,
        Handle,
        *const Location,
        *const c_char,
        Id,
        Id,
        Id,
        Requests,
    ) -> Status,
    get: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *mut ObjectGet,
        Id,
        Requests,
    ) -> Status,
    specific: unsafe extern "C-unwind" fn(
        Handle,
        *const Location,
        *mut ObjectSpecific,
        Id,
        Requests,
    ) -> Status,
    optional: OptionalAt,
}

/// `H5VL_introspect_class_t`.
#[repr(C)]
struct IntrospectionClass {
    class: unsafe extern "C-unwind" fn(Handle, c_int, *mut *const c_void) -> Status,
    capabilities: unsafe extern "C-unwind" fn(*const c_void, *mut u64) -> Status,
    query: unsafe extern "C-unwind" fn(Handle, c_int, c_int, *mut u64) -> Status,
}

/// `H5VL_request_class_t`.
#[repr(C)]
struct RequestClass {
    wait: unsafe extern "C-unwind" fn(Handle, u64, *mut c_int) -> Status,
    notify: unsafe extern "C-unwind" fn(Handle, Absent, *mut c_void) -> Status,
    cancel: unsafe extern "C-unwind" fn(Handle, *mut c_int) -> Status,
    specific: unsafe extern "C-unwind" fn(Handle, *mut Opaque) -> Status,
    optional: unsafe extern "C-unwind" fn(Handle, *mut Optional) -> Status,
    free: unsafe extern "C-unwind" fn(Handle) -> Status,
}

/// `H5VL_blob_class_t`.
#[repr(C)]
struct BlobClass {
    put: unsafe extern "C-unwind" fn(
        Handle,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
    ) -> Status,
    get: unsafe extern "C-unwind" fn(
        Handle,
        *const c_void,
        *mut c_void,
        usize,
        *mut c_void,
    ) -> Status,
    specific: unsafe extern "C-unwind" fn(Handle, *mut c_void, *mut Opaque) -> Status,
    optional: unsafe extern "C-unwind" fn(Handle, *mut c_void, *mut Optional) -> Status,
}

/// `H5VL_token_class_t`.
#[repr(C)]
struct TokenClass {
    compare: unsafe extern "C-unwind" fn(Handle, *const Token, *const Token, *mut c_int) -> Status,
    to_string: unsafe extern "C-unwind" fn(Handle, c_int, *const Token, *mut *mut c_char) -> Status,
    from_string: unsafe extern "C-unwind" fn(Handle, c_int, *const c_char, *mut Token) -> Status,
}

/// `H5VL_class_t`, version 3.
#[repr(C)]
pub struct Class {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    own_version: c_uint,
    capabilities: u64,
    initialize: Absent,
    terminate: Absent,
    info: InfoClass,
    wrap: WrapClass,
    attribute: AttributeClass,
    dataset: DatasetClass,
    datatype: DatatypeClass,
    file: FileClass,
    group: GroupClass,
    link: LinkClass,
    object: ObjectClass,
    introspection: IntrospectionClass,
    request: RequestClass,
    blob: BlobClass,
    token: TokenClass,
    optional: OptionalOf,
}

// SAFETY: the table is never written to, and its only pointer is to a static text.
unsafe impl Sync for Class {}

/// The number of the connector, "H5" in ASCII. Numbers below 512 are reserved by the HDF Group, and 65535 is the largest.
pub const VALUE: c_int = 0x4835;
/// The table for libraries that this plug-in serves.
pub static CONNECTOR: Class = class(3, VALUE, NAME);

/// The table for a libhdf5 that another plug-in serves. Its version does not exist, and no program asks for its name. libhdf5
/// rejects it and goes on to the next plug-in.
pub static DECLINED: Class = class(c_uint::MAX, VALUE + 1, c"h5logfs (another plug-in)");

const fn class(version: c_uint, value: c_int, name: &'static CStr) -> Class {
    Class {
        version,
        value,
        name: name.as_ptr(),
        own_version: 1,
        capabilities: CAPABILITIES,
        initialize: None,
        terminate: None,
        info: InfoClass {
            size: size_of::<*const c_void>(),
            copy: c::info::copy,
            compare: c::info::compare,
            free: c::info::free,
            to_string: c::info::to_string,
            from_string: c::info::from_string,
        },
        wrap: WrapClass {
            object: c::wrap::object,
            context: c::wrap::context,
            wrap: c::wrap::wrap,
            unwrap: c::wrap::unwrap,
            free_context: c::wrap::free_context,
        },
        attribute: AttributeClass {
            create: c::attribute::create,
            open: c::attribute::open,
            read: c::attribute::read,
            write: c::attribute::write,
            get: c::attribute::get,
            specific: c::attribute::specific,
            optional: c::attribute::optional,
            close: c::attribute::close,
        },
        dataset: DatasetClass {
            create: c::dataset::create,
            open: c::dataset::open,
            read: c::dataset::read,
            write: c::dataset::write,
            get: c::dataset::get,
            specific: c::dataset::specific,
            optional: c::dataset::optional,
            close: c::dataset::close,
        },
        datatype: DatatypeClass {
            commit: c::datatype::commit,
            open: c::datatype::open,
            get: c::datatype::get,
            specific: c::datatype::specific,
            optional: c::datatype::optional,
            close: c::datatype::close,
        },
        file: FileClass {
            create: c::file::create,
            open: c::file::open,
            get: c::file::get,
            specific: c::file::specific,
            optional: c::file::optional,
            close: c::file::close,
        },
        group: GroupClass {
            create: c::group::create,
            open: c::group::open,
            get: c::group::get,
            specific: c::group::specific,
            optional: c::group::optional,
            close: c::group::close,
        },
        link: LinkClass {
            create: c::link::create,
            copy: c::link::copy,
            rename: c::link::rename,
            get: c::link::get,
            specific: c::link::specific,
            optional: c::link::optional,
        },
        object: ObjectClass {
            open: c::object::open,
            copy: c::object::copy,
            get: c::object::get,
            specific: c::object::specific,
            optional: c::object::optional,
        },
        introspection: IntrospectionClass {
            class: class_at,
            capabilities: c::introspection::capabilities,
            query: c::introspection::query,
        },
        request: RequestClass {
            wait: c::request::wait,
            notify: c::request::notify,
            cancel: c::request::cancel,
            specific: c::request::specific,
            optional: c::request::optional,
            free: c::request::free,
        },
        blob: BlobClass {
            put: c::blob::put,
            get: c::blob::get,
            specific: c::blob::specific,
            optional: c::blob::optional,
        },
        token: TokenClass {
            compare: c::token::compare,
            to_string: c::token::to_string,
            from_string: c::token::from_string,
        },
        optional: c::optional,
    }
}

/// Returns the class of a connector.
unsafe extern "C-unwind" fn class_at(
    handle: Handle,
    level: c_int,
    class: *mut *const c_void,
) -> Status {
    /// `H5VL_GET_CONN_LVL_CURR`: this connector rather than the one at the bottom.
    const CURRENT: c_int = 0;
    if level != CURRENT {
        // SAFETY: libhdf5 has called with these arguments.
        return unsafe { c::introspection::class_below(handle, level, class) };
    }
    // SAFETY: the library gives a place for the class.
    unsafe { class.write((&raw const CONNECTOR).cast()) };
    SUCCESS
}
