//! The structures of `H5VLconnector.h` and `H5VLnative.h` in which libhdf5 passes arguments.
//!
//! All are the same in HDF5 1.14.0 to 2.2, but for those of the native connector's `H5Dread_chunk` and `H5Dwrite_chunk`, which
//! are others from 2.0 on ([`ChunkWrite`], [`ChunkWrite2`]).
//!
//! What no hook looks at is passed on by its address: [`Opaque`].

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

use h5logfs_host::types::{Address, DEFAULT, Id};

/// `hsize_t`.
pub type Size = u64;
/// Where a callback tells an asynchronous request. Null where the program did not ask for one.
pub type Requests = *mut *mut c_void;
/// Any object of this connector, as libhdf5 knows it: an `Object`.
pub type Handle = *mut c_void;

/// Arguments that are passed on as they are.
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

/// `H5O_token_t`: what an object of a file is known by. In a native file it begins with the address of the object header.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

/// `H5VL_loc_params_t`: which object is meant, as seen from another.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    /// The kind of the object that it is seen from.
    pub from: c_int,
    /// One of [`Location::SELF`] and so on: which part of `data` counts.
    pub by: c_int,
    /// The rest.
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

    /// The path of the object that it names, if it does so by a path.
    ///
    /// # Safety
    ///
    /// It is one of the library, during the call that it is an argument of.
    pub unsafe fn path<'a>(&self) -> Option<&'a CStr> {
        // SAFETY: the parts that these have; the caller says that the paths are C strings.
        unsafe {
            match self.by {
                Location::NAME => Some(CStr::from_ptr(self.data.name.name)),
                Location::INDEX => Some(CStr::from_ptr(self.data.index.name)),
                _ => None,
            }
        }
    }

    /// The link access property list with which a path is followed; [`DEFAULT`] where there is no path.
    pub fn links(&self) -> Id {
        // SAFETY: the parts that these have.
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
    /// By a token.
    pub token: *mut Token,
    /// By a path.
    pub name: LocationName,
    /// By its number in a group.
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
    /// The group.
    pub name: *const c_char,
    /// `H5_index_t`.
    pub index: c_int,
    /// `H5_iter_order_t`.
    pub order: c_int,
    /// The number.
    pub n: Size,
    /// A link access property list.
    pub lapl: Id,
}

/// `H5VL_optional_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Optional {
    /// One of the numbers of `H5VLnative.h`, or of a connector.
    pub operation: c_int,
    /// What it takes.
    pub arguments: *mut c_void,
}

/// `H5VL_native_file_get_vfd_handle_t`, of an [`Optional`] operation on a file.
#[derive(Debug)]
#[repr(C)]
pub struct DescriptorAsked {
    /// A file access property list, which the default driver does not look at.
    pub fapl: Id,
    /// Where the address of the descriptor goes.
    pub place: *mut *const c_void,
}

impl DescriptorAsked {
    /// `H5VL_NATIVE_FILE_GET_VFD_HANDLE`.
    pub const OPERATION: c_int = 9;
}

/// Declares the arguments of a kind of operations: the number of one, and a union with a part for each.
macro_rules! operations {
    ($(#[$doc:meta])* $name:ident, $union:ident { $($(#[$part_doc:meta])* $number:literal $constant:ident $part:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            /// Which part of `arguments` counts.
            pub operation: c_int,
            /// What the operation takes, and where it puts its results.
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
        /// A deletion.
        0 DELETE delete: *const c_char,
        /// A deletion by number.
        1 DELETE_BY_INDEX delete_by_index: AttributeIndex,
        /// Whether there is such an attribute.
        2 EXISTS exists: AttributeExists,
        /// Callbacks of the program, one for each attribute.
        3 ITERATE iterate: AttributeIterate,
        /// Another name: the old one and the new one.
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
    /// The number.
    pub n: Size,
}

/// The arguments of `H5VL_ATTR_EXISTS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AttributeExists {
    /// The name.
    pub name: *const c_char,
    /// A place for the answer.
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
    /// Where it begins and ends.
    pub at: *mut Size,
    /// The callback.
    pub operation: *const c_void,
    /// Its last argument.
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
        /// Whether space is allocated: `H5D_space_status_t`.
        3 STATUS status: *mut c_int,
        /// The size of what is stored.
        4 STORED stored: *mut Size,
        /// The datatype.
        5 TYPE datatype: Id,
    }
}

operations! {
    /// `H5VL_dataset_specific_args_t`.
    DatasetSpecific, DatasetSpecificArguments {
        /// A new extent.
        0 SET_EXTENT extent: *const Size,
        /// A flush of one dataset.
        1 FLUSH flush: Id,
        /// A refresh of one dataset.
        2 REFRESH refresh: Id,
    }
}

operations! {
    /// `H5VL_datatype_specific_args_t`.
    DatatypeSpecific, DatatypeSpecificArguments {
        /// A flush of one committed type.
        0 FLUSH flush: Id,
        /// A refresh of one committed type.
        1 REFRESH refresh: Id,
    }
}

operations! {
    /// `H5VL_file_get_args_t`.
    FileGet, FileGetArguments {
        /// Facts on the container.
        0 CONTAINER container: *mut c_void,
        /// The access property list.
        1 ACCESS access: Id,
        /// The creation property list.
        2 CREATION creation: Id,
        /// The number of the file.
        3 NUMBER number: *mut c_ulong,
        /// How it is open.
        4 INTENT intent: *mut c_uint,
        /// Its name.
        5 NAME name: FileName,
        /// How many objects are open.
        6 OBJECT_COUNT object_count: ObjectCount,
        /// Which objects are open.
        7 OBJECTS objects: Objects,
    }
}

/// `H5VL_file_get_name_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileName {
    /// The kind of the object that is asked.
    pub kind: c_int,
    /// The size of `name`.
    pub size: usize,
    /// A place for the name; may be null.
    pub name: *mut c_char,
    /// A place for its length.
    pub length: *mut usize,
}

/// The arguments of `H5VL_FILE_GET_OBJ_COUNT`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectCount {
    /// Kinds of objects.
    pub kinds: c_uint,
    /// A place for their number.
    pub count: *mut usize,
}

/// `H5VL_file_get_obj_ids_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Objects {
    /// Kinds of objects.
    pub kinds: c_uint,
    /// Room in `ids`.
    pub room: usize,
    /// A place for the identifiers.
    pub ids: *mut Id,
    /// A place for their number.
    pub count: *mut usize,
}

operations! {
    /// `H5VL_file_specific_args_t`.
    FileSpecific, FileSpecificArguments {
        /// A flush of the file, asked for through any of its objects.
        0 FLUSH flush: FileFlush,
        /// Another handle of the same file.
        1 REOPEN reopen: *mut Handle,
        /// Whether a path can be opened.
        2 ACCESSIBLE accessible: FileAccessible,
        /// The deletion of a path.
        3 DELETE delete: FileDelete,
        /// Whether two files are the same.
        4 EQUAL equal: FileEqual,
    }
}

/// The arguments of `H5VL_FILE_FLUSH`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileFlush {
    /// The kind of the object.
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
    /// A place for the answer.
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
    /// The other file, as the connector at the bottom knows it.
    pub other: *mut c_void,
    /// A place for the answer.
    pub equal: *mut bool,
}

operations! {
    /// `H5VL_group_specific_args_t`.
    GroupSpecific, GroupSpecificArguments {
        /// A file is mounted on a group.
        0 MOUNT mount: GroupMount,
        /// The contrary.
        1 UNMOUNT unmount: *const c_char,
        /// A flush of one group.
        2 FLUSH flush: Id,
        /// A refresh of one group.
        3 REFRESH refresh: Id,
    }
}

/// `H5VL_group_spec_mount_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GroupMount {
    /// The place.
    pub name: *const c_char,
    /// The file.
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
    /// What the object is seen from; null for the same object as that of the link.
    pub object: Handle,
    /// The object.
    pub location: Location,
}

/// The arguments of `H5VL_LINK_CREATE_UD`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LinkUser {
    /// `H5L_type_t`.
    pub kind: c_int,
    /// What the link says.
    pub value: *const c_void,
    /// Its size.
    pub size: usize,
}

operations! {
    /// `H5VL_link_specific_args_t`.
    LinkSpecific, LinkSpecificArguments {
        /// A deletion.
        0 DELETE delete: (),
        /// Whether there is such a link.
        1 EXISTS exists: *mut bool,
        /// Callbacks of the program, one for each link.
        2 ITERATE iterate: LinkIterate,
    }
}

/// `H5VL_link_iterate_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LinkIterate {
    /// Also what lies below.
    pub is_recursive: bool,
    /// `H5_index_t`.
    pub index: c_int,
    /// `H5_iter_order_t`.
    pub order: c_int,
    /// Where it begins and ends.
    pub at: *mut Size,
    /// The callback.
    pub operation: *const c_void,
    /// Its last argument.
    pub data: *mut c_void,
}

operations! {
    /// `H5VL_object_get_args_t`.
    ObjectGet, ObjectGetArguments {
        /// Its file.
        0 FILE file: *mut Handle,
        /// Its name.
        1 NAME name: ObjectName,
        /// Its kind.
        2 TYPE object_type: *mut c_int,
        /// Facts on it.
        3 INFO info: ObjectInfo,
    }
}

/// The arguments of `H5VL_OBJECT_GET_NAME`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectName {
    /// The size of `name`.
    pub size: usize,
    /// A place for the name; may be null.
    pub name: *mut c_char,
    /// A place for its length.
    pub length: *mut usize,
}

/// The arguments of `H5VL_OBJECT_GET_INFO`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ObjectInfo {
    /// Which facts.
    pub fields: c_uint,
    /// `H5O_info2_t`.
    pub info: *mut c_void,
}

operations! {
    /// `H5VL_object_specific_args_t`.
    ObjectSpecific, ObjectSpecificArguments {
        /// Another number of links.
        0 CHANGE_COUNT delta: c_int,
        /// Whether there is such an object.
        1 EXISTS exists: *mut bool,
        /// Its token.
        2 LOOKUP token: *mut Token,
        /// Callbacks of the program, one for each object.
        3 VISIT visit: ObjectVisit,
        /// A flush of one object.
        4 FLUSH flush: Id,
        /// A refresh of one object.
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
    /// Which facts the callback is told.
    pub fields: c_uint,
    /// The callback.
    pub operation: *const c_void,
    /// Its last argument.
    pub data: *mut c_void,
}

/// Operations on datasets that only the native connector has: `H5VL_NATIVE_DATASET_*`, in [`Optional::operation`].
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

/// `H5VL_native_dataset_chunk_read_t`. From HDF5 2.0 on a pointer to the size of the buffer (`size_t`, or null) follows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkRead {
    /// The chunk's first element.
    pub offset: *const Size,
    /// A place for the filter mask.
    pub filters: u32,
    /// A place for the stored bytes.
    pub buf: *mut c_void,
}

/// `H5VL_native_dataset_chunk_write_t` of HDF5 1.14.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkWrite {
    /// The chunk's first element.
    pub offset: *const Size,
    /// The filter mask.
    pub filters: u32,
    /// The length of the stored bytes.
    pub size: u32,
    /// The stored bytes.
    pub buf: *const c_void,
}

/// The same from HDF5 2.0 on.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkWrite2 {
    /// The chunk's first element.
    pub offset: *const Size,
    /// The filter mask.
    pub filters: u32,
    /// The length of the stored bytes.
    pub size: usize,
    /// The stored bytes.
    pub buf: *const c_void,
}

/// `H5VL_native_dataset_get_chunk_storage_size_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkStorageSize {
    /// The chunk's first element.
    pub offset: *const Size,
    /// A place for its stored size.
    pub size: *mut Size,
}

/// `H5VL_native_dataset_get_num_chunks_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NumChunks {
    /// A dataspace; only its selection's chunks count.
    pub space: Id,
    /// A place for their number.
    pub count: *mut Size,
}

/// `H5VL_native_dataset_get_chunk_info_by_idx_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkInfo {
    /// A dataspace; only its selection's chunks count.
    pub space: Id,
    /// The number of the chunk among them.
    pub index: Size,
    /// A place for the chunk's first element.
    pub offset: *mut Size,
    /// A place for its filter mask.
    pub filters: *mut c_uint,
    /// A place for its address in the file.
    pub address: *mut Address,
    /// A place for its stored size.
    pub size: *mut Size,
}

/// `H5VL_native_dataset_get_chunk_info_by_coord_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkInfoByCoord {
    /// The chunk's first element.
    pub offset: *const Size,
    /// A place for its filter mask.
    pub filters: *mut c_uint,
    /// A place for its address in the file.
    pub address: *mut Address,
    /// A place for its stored size.
    pub size: *mut Size,
}

/// `H5D_chunk_iter_op_t`: first element, filter mask, address and stored size of a chunk, and the program's own argument.
pub type ChunkOperation =
    unsafe extern "C-unwind" fn(*const Size, c_uint, Address, Size, *mut c_void) -> c_int;

/// The arguments of `H5VL_NATIVE_DATASET_CHUNK_ITER`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ChunkIter {
    /// The callback.
    pub operation: ChunkOperation,
    /// Its last argument.
    pub data: *mut c_void,
}
