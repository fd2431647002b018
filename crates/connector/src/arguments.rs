//! Argument structures of the callbacks, as `H5VLconnector.h` and `H5VLnative.h` declare them.
//!
//! They are identical in HDF5 1.14.0 to 2.2, except for `H5Dread_chunk` and `H5Dwrite_chunk` of the native connector. HDF5 2.0
//! changed these two ([`ChunkRead`], [`ChunkWrite`], [`ChunkWrite2`]).
//!
//! Arguments that no hook reads are passed on by address: [`Opaque`].

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

use h5logfs_host::types::{Address, DEFAULT, Id};

/// `hsize_t`.
pub type Size = u64;
/// The place where a callback returns an asynchronous request. Null if the program did not ask for one.
pub type Requests = *mut *mut c_void;
/// Any object of this connector, as libhdf5 holds it: a pointer to an `Object`.
pub type Handle = *mut c_void;

/// Arguments that are passed on unread.
#[repr(C)]
pub struct Opaque {
    _opaque: [u8; 0],
}

/// `H5I_type_t`: kinds of identifiers.
pub mod kind {
    use std::ffi::c_int;

    /// `H5I_FILE`.
    pub const FILE: c_int = 1;
    /// `H5I_GROUP`.
    pub const GROUP: c_int = 2;
    /// `H5I_DATATYPE`.
    pub const DATATYPE: c_int = 3;
    /// `H5I_DATASET`.
    pub const DATASET: c_int = 5;
    /// `H5I_ATTR`.
    pub const ATTRIBUTE: c_int = 7;
}

/// `H5O_token_t`: identifies an object within its file. In a native file it begins with the address of the object header.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

/// `H5VL_loc_params_t`: names an object, starting from another object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    /// The kind of the starting object.
    pub from: c_int,
    /// The valid part of `data`: [`Location::SELF`], [`Location::NAME`] and so on.
    pub by: c_int,
    /// The parameters of this way to name an object.
    pub data: LocationData,
}

impl Location {
    /// `H5VL_OBJECT_BY_SELF`.
    pub const SELF: c_int = 0;
    /// `H5VL_OBJECT_BY_NAME`.
    pub const NAME: c_int = 1;
    /// `H5VL_OBJECT_BY_IDX`.
    pub const INDEX: c_int = 2;
    /// `H5VL_OBJECT_BY_TOKEN`.
    pub const TOKEN: c_int = 3;

    /// The path to the object, if it is named by a path.
    ///
    /// # Safety
    ///
    /// The location comes from libhdf5, and the call that it is an argument of has not returned.
    pub unsafe fn path<'a>(&self) -> Option<&'a CStr> {
        // SAFETY: `by` selects the valid part of the union; the caller guarantees that the paths are C strings.
        unsafe {
            match self.by {
                Location::NAME => Some(CStr::from_ptr(self.data.name.name)),
                Location::INDEX => Some(CStr::from_ptr(self.data.index.name)),
                _ => None,
            }
        }
    }

    /// The link access property list for the path; [`DEFAULT`] if there is no path.
    pub fn links(&self) -> Id {
        // SAFETY: `by` selects the valid part of the union.
        unsafe {
            match self.by {
                Location::NAME => self.data.name.lapl,
                Location::INDEX => self.data.index.lapl,
                _ => DEFAULT,
            }
        }
    }
}

/// The union in [`Location`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union LocationData {
    /// For [`Location::TOKEN`].
    pub token: *mut Token,
    /// For [`Location::NAME`].
    pub name: LocationName,
    /// For [`Location::INDEX`].
    pub index: LocationIndex,
}

/// `H5VL_loc_by_name_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LocationName {
    /// The path.
    pub name: *const c_char,
    /// A link access property list.
    pub lapl: Id,
}

/// `H5VL_loc_by_idx_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LocationIndex {
    /// The path of the group.
    pub name: *const c_char,
    /// `H5_index_t`.
    pub index: c_int,
    /// `H5_iter_order_t`.
    pub order: c_int,
    /// The position of the link in this order.
    pub n: Size,
    /// A link access property list.
    pub lapl: Id,
}

/// `H5VL_optional_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Optional {
    /// An operation number, from `H5VLnative.h` or registered by a connector.
    pub operation: c_int,
    /// The operation's own structure of arguments.
    pub arguments: *mut c_void,
}

/// `H5VL_native_file_get_vfd_handle_t`: the arguments of an [`Optional`] operation on a file.
#[derive(Debug)]
#[repr(C)]
pub struct DescriptorAsked {
    /// A file access property list. The default driver ignores it.
    pub fapl: Id,
    /// A place for the address of the descriptor.
    pub place: *mut *const c_void,
}

impl DescriptorAsked {
    /// `H5VL_NATIVE_FILE_GET_VFD_HANDLE`.
    pub const OPERATION: c_int = 9;
}

/// Declares a tagged union of arguments: the number of an operation, and a union with one part for each operation.
macro_rules! operations {
    ($(#[$doc:meta])* $name:ident, $union:ident { $($(#[$part_doc:meta])* $number:literal $constant:ident $part:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            /// The operation, which selects the valid part of `arguments`.
            pub operation: c_int,
            /// Inputs of the operation, and places for its results.
            pub arguments: $union,
        }

        #[doc = concat!("The union in [`", stringify!($name), "`].")]
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub union $union {
            $($(#[$part_doc])* pub $part: $type,)*
        }

        impl $name {
            $($(#[$part_doc])* pub const $constant: c_int = $number;)*
        }
    };
}

operations! {
    /// `H5VL_attr_specific_args_t`.
    AttributeSpecific, AttributeSpecificArguments {
        /// Deletes an attribute by name.
        0 DELETE delete: *const c_char,
        /// Deletes an attribute by its position.
        1 DELETE_BY_INDEX delete_by_index: AttributeIndex,
        /// Asks whether an attribute exists.
        2 EXISTS exists: AttributeExists,
        /// Calls a function of the program for each attribute.
        3 ITERATE iterate: AttributeIterate,
        /// Renames an attribute: the old name, then the new one.
        4 RENAME rename: [*const c_char; 2],
    }
}

/// `H5VL_attr_delete_by_idx_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AttributeIndex {
    /// `H5_index_t`.
    pub index: c_int,
    /// `H5_iter_order_t`.
    pub order: c_int,
    /// The position of the attribute in this order.
    pub n: Size,
}

/// The arguments of `H5VL_ATTR_EXISTS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AttributeExists {
    /// The name.
    pub name: *const c_char,
    /// Receives the answer.
    pub exists: *mut bool,
}

/// `H5VL_attr_iterate_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AttributeIterate {
    /// `H5_index_t`.
    pub index: c_int,
    /// `H5_iter_order_t`.
    pub order: c_int,
    /// The position to start at; receives the position of the end.
    pub at: *mut Size,
    /// The program's function.
    pub operation: *const c_void,
    /// The last argument of `operation`.
    pub data: *mut c_void,
}

operations! {
    /// `H5VL_dataset_get_args_t`.
    DatasetGet, DatasetGetArguments {
        /// The access property list.
        0 ACCESS access: Id,
        /// The creation property list.
        1 CREATION creation: Id,
        /// The dataspace.
        2 SPACE space: Id,
        /// The allocation status: `H5D_space_status_t`.
        3 STATUS status: *mut c_int,
        /// The stored size, in bytes.
        4 STORED stored: *mut Size,
        /// The datatype.
        5 TYPE datatype: Id,
    }
}

operations! {
    /// `H5VL_dataset_specific_args_t`.
    DatasetSpecific, DatasetSpecificArguments {
        /// Sets the extent.
        0 SET_EXTENT extent: *const Size,
        /// Flushes the dataset.
        1 FLUSH flush: Id,
        /// Refreshes the dataset.
        2 REFRESH refresh: Id,
    }
}

operations! {
    /// `H5VL_datatype_specific_args_t`.
    DatatypeSpecific, DatatypeSpecificArguments {
        /// Flushes the committed datatype.
        0 FLUSH flush: Id,
        /// Refreshes the committed datatype.
        1 REFRESH refresh: Id,
    }
}

operations! {
    /// `H5VL_file_get_args_t`.
    FileGet, FileGetArguments {
        /// `H5VL_file_cont_info_t`.
        0 CONTAINER container: *mut c_void,
        /// The access property list.
        1 ACCESS access: Id,
        /// The creation property list.
        2 CREATION creation: Id,
        /// The file number.
        3 NUMBER number: *mut c_ulong,
        /// The access flags of the opening.
        4 INTENT intent: *mut c_uint,
        /// The name of the file.
        5 NAME name: FileName,
        /// The number of open objects.
        6 OBJECT_COUNT object_count: ObjectCount,
        /// The identifiers of open objects.
        7 OBJECTS objects: ObjectArguments,
    }
}

/// `H5VL_file_get_name_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileName {
    /// The kind of the object through which the file is asked.
    pub kind: c_int,
    /// The size of `name`, in bytes.
    pub size: usize,
    /// Receives the name; may be null.
    pub name: *mut c_char,
    /// Receives the length of the name.
    pub length: *mut usize,
}

/// The arguments of `H5VL_FILE_GET_OBJ_COUNT`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectCount {
    /// Flags `H5F_OBJ_*`.
    pub kinds: c_uint,
    /// Receives the number of open objects.
    pub count: *mut usize,
}

/// `H5VL_file_get_obj_ids_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectArguments {
    /// Flags `H5F_OBJ_*`.
    pub kinds: c_uint,
    /// The capacity of `ids`.
    pub room: usize,
    /// Receives the identifiers.
    pub ids: *mut Id,
    /// Receives their number.
    pub count: *mut usize,
}

operations! {
    /// `H5VL_file_specific_args_t`.
    FileSpecific, FileSpecificArguments {
        /// Flushes the file. The call may name any of its objects.
        0 FLUSH flush: FileFlush,
        /// Opens another handle of the file.
        1 REOPEN reopen: *mut Handle,
        /// Asks whether a path can be opened.
        2 ACCESSIBLE accessible: FileAccessible,
        /// Deletes the file at a path.
        3 DELETE delete: FileDelete,
        /// Asks whether two handles belong to one file.
        4 EQUAL equal: FileEqual,
    }
}

/// The arguments of `H5VL_FILE_FLUSH`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileFlush {
    /// The kind of the named object.
    pub kind: c_int,
    /// `H5F_scope_t`.
    pub scope: c_int,
}

/// The arguments of `H5VL_FILE_IS_ACCESSIBLE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileAccessible {
    /// The path.
    pub name: *const c_char,
    /// A file access property list.
    pub fapl: Id,
    /// Receives the answer.
    pub accessible: *mut bool,
}

/// The arguments of `H5VL_FILE_DELETE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileDelete {
    /// The path.
    pub name: *const c_char,
    /// A file access property list.
    pub fapl: Id,
}

/// The arguments of `H5VL_FILE_IS_EQUAL`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileEqual {
    /// The other file, as the connector at the bottom of the stack holds it.
    pub other: *mut c_void,
    /// Receives the answer.
    pub equal: *mut bool,
}

operations! {
    /// `H5VL_group_specific_args_t`.
    GroupSpecific, GroupSpecificArguments {
        /// Mounts a file on a group.
        0 MOUNT mount: GroupMount,
        /// Unmounts the file from a group.
        1 UNMOUNT unmount: *const c_char,
        /// Flushes the group.
        2 FLUSH flush: Id,
        /// Refreshes the group.
        3 REFRESH refresh: Id,
    }
}

/// `H5VL_group_spec_mount_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GroupMount {
    /// The path of the mount point.
    pub name: *const c_char,
    /// The file to mount.
    pub child: Handle,
    /// A file mount property list.
    pub fmpl: Id,
}

operations! {
    /// `H5VL_link_create_args_t`.
    LinkCreate, LinkCreateArguments {
        /// A hard link.
        0 HARD hard: LinkHard,
        /// A soft link.
        1 SOFT target: *const c_char,
        /// An external or user-defined link.
        2 USER user: LinkUser,
    }
}

/// The arguments of `H5VL_LINK_CREATE_HARD`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LinkHard {
    /// The object where the path to the target starts; null for the object where the path of the link starts.
    pub object: Handle,
    /// The target.
    pub location: Location,
}

/// The arguments of `H5VL_LINK_CREATE_UD`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LinkUser {
    /// `H5L_type_t`.
    pub kind: c_int,
    /// The value of the link.
    pub value: *const c_void,
    /// The size of the value, in bytes.
    pub size: usize,
}

operations! {
    /// `H5VL_link_specific_args_t`.
    LinkSpecific, LinkSpecificArguments {
        /// Deletes a link.
        0 DELETE delete: (),
        /// Asks whether a link exists.
        1 EXISTS exists: *mut bool,
        /// Calls a function of the program for each link.
        2 ITERATE iterate: LinkIterate,
    }
}

/// `H5VL_link_iterate_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LinkIterate {
    /// Whether the iteration descends into groups.
    pub is_recursive: bool,
    /// `H5_index_t`.
    pub index: c_int,
    /// `H5_iter_order_t`.
    pub order: c_int,
    /// The position to start at; receives the position of the end.
    pub at: *mut Size,
    /// The program's function.
    pub operation: *const c_void,
    /// The last argument of `operation`.
    pub data: *mut c_void,
}

operations! {
    /// `H5VL_object_get_args_t`.
    ObjectGet, ObjectGetArguments {
        /// The file of the object.
        0 FILE file: *mut Handle,
        /// The path of the object.
        1 NAME name: ObjectName,
        /// The kind of the object.
        2 TYPE object_type: *mut c_int,
        /// `H5O_info2_t` of the object.
        3 INFO info: ObjectInfo,
    }
}

/// The arguments of `H5VL_OBJECT_GET_NAME`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectName {
    /// The size of `name`, in bytes.
    pub size: usize,
    /// Receives the path; may be null.
    pub name: *mut c_char,
    /// Receives the length of the path.
    pub length: *mut usize,
}

/// The arguments of `H5VL_OBJECT_GET_INFO`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectInfo {
    /// The fields to fill: flags `H5O_INFO_*`.
    pub fields: c_uint,
    /// Receives the `H5O_info2_t`.
    pub info: *mut c_void,
}

operations! {
    /// `H5VL_object_specific_args_t`.
    ObjectSpecific, ObjectSpecificArguments {
        /// Changes the number of links to the object.
        0 CHANGE_COUNT delta: c_int,
        /// Asks whether an object exists.
        1 EXISTS exists: *mut bool,
        /// Looks up the token of an object.
        2 LOOKUP token: *mut Token,
        /// Calls a function of the program for each object.
        3 VISIT visit: ObjectVisit,
        /// Flushes the object.
        4 FLUSH flush: Id,
        /// Refreshes the object.
        5 REFRESH refresh: Id,
    }
}

/// `H5VL_object_visit_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectVisit {
    /// `H5_index_t`.
    pub index: c_int,
    /// `H5_iter_order_t`.
    pub order: c_int,
    /// The fields that the function receives: flags `H5O_INFO_*`.
    pub fields: c_uint,
    /// The program's function.
    pub operation: *const c_void,
    /// The last argument of `operation`.
    pub data: *mut c_void,
}

/// Operations on datasets that only the native connector supports: `H5VL_NATIVE_DATASET_*`, in [`Optional::operation`].
pub mod dataset_optional {
    use std::ffi::c_int;

    /// `H5Dformat_convert`.
    pub const FORMAT_CONVERT: c_int = 0;
    /// `H5Dget_chunk_index_type`.
    pub const CHUNK_INDEX_TYPE: c_int = 1;
    /// `H5Dget_chunk_storage_size`.
    pub const CHUNK_STORAGE_SIZE: c_int = 2;
    /// `H5Dget_num_chunks`.
    pub const NUM_CHUNKS: c_int = 3;
    /// `H5Dget_chunk_info`.
    pub const CHUNK_INFO: c_int = 4;
    /// `H5Dget_chunk_info_by_coord`.
    pub const CHUNK_INFO_BY_COORD: c_int = 5;
    /// `H5Dread_chunk`.
    pub const CHUNK_READ: c_int = 6;
    /// `H5Dwrite_chunk`.
    pub const CHUNK_WRITE: c_int = 7;
    /// `H5Dvlen_get_buf_size`.
    pub const VLEN_BUF_SIZE: c_int = 8;
    /// `H5Dget_offset`.
    pub const OFFSET: c_int = 9;
    /// `H5Dchunk_iter`.
    pub const CHUNK_ITER: c_int = 10;
}

/// `H5VL_native_dataset_chunk_read_t`. HDF5 2.0 added a member at the end: a pointer to the size of the buffer (`size_t`), or
/// null.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkRead {
    /// The coordinates of the chunk's first element.
    pub offset: *const Size,
    /// Receives the filter mask.
    pub filters: u32,
    /// Receives the stored bytes.
    pub buf: *mut c_void,
}

/// `H5VL_native_dataset_chunk_write_t` of HDF5 1.14.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkWrite {
    /// The coordinates of the chunk's first element.
    pub offset: *const Size,
    /// The filter mask.
    pub filters: u32,
    /// The number of stored bytes.
    pub size: u32,
    /// The stored bytes.
    pub buf: *const c_void,
}

/// `H5VL_native_dataset_chunk_write_t` of HDF5 2.0 and later.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkWrite2 {
    /// The coordinates of the chunk's first element.
    pub offset: *const Size,
    /// The filter mask.
    pub filters: u32,
    /// The number of stored bytes.
    pub size: usize,
    /// The stored bytes.
    pub buf: *const c_void,
}

/// `H5VL_native_dataset_get_chunk_storage_size_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkStorageSize {
    /// The coordinates of the chunk's first element.
    pub offset: *const Size,
    /// Receives the stored size of the chunk.
    pub size: *mut Size,
}

/// `H5VL_native_dataset_get_num_chunks_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NumChunks {
    /// A dataspace. Only chunks in its selection count.
    pub space: Id,
    /// Receives the number of chunks.
    pub count: *mut Size,
}

/// `H5VL_native_dataset_get_chunk_info_by_idx_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkInfo {
    /// A dataspace. Only chunks in its selection count.
    pub space: Id,
    /// The number of the chunk among those in the selection.
    pub index: Size,
    /// Receives the coordinates of the chunk's first element.
    pub offset: *mut Size,
    /// Receives the filter mask.
    pub filters: *mut c_uint,
    /// Receives the address of the chunk in the file.
    pub address: *mut Address,
    /// Receives the stored size of the chunk.
    pub size: *mut Size,
}

/// `H5VL_native_dataset_get_chunk_info_by_coord_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkInfoByCoord {
    /// The coordinates of the chunk's first element.
    pub offset: *const Size,
    /// Receives the filter mask.
    pub filters: *mut c_uint,
    /// Receives the address of the chunk in the file.
    pub address: *mut Address,
    /// Receives the stored size of the chunk.
    pub size: *mut Size,
}

/// `H5D_chunk_iter_op_t`. Arguments: first element, filter mask, address and stored size of a chunk, then the program's own
/// argument.
pub type ChunkOperation =
    unsafe extern "C-unwind" fn(*const Size, c_uint, Address, Size, *mut c_void) -> c_int;

/// The arguments of `H5VL_NATIVE_DATASET_CHUNK_ITER`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkIter {
    /// The program's function.
    pub operation: ChunkOperation,
    /// The last argument of `operation`.
    pub data: *mut c_void,
}
