//! The interface between the library for programs ported to the Log VOL (`crates/vol-api`) and the VOL connector: operations
//! on datasets that HDF5 does not have, and properties of property lists.
//!
//! libhdf5 assigns numbers to the operations by these names. With another connector, the operation is unknown, or not
//! supported by the dataset.

use std::ffi::{CStr, c_int, c_void};

use crate::types::Id;

/// `H5VL_SUBCLS_DATASET`: operations on datasets.
pub const OF_DATASETS: c_int = 4;
/// `H5VL_OPT_QUERY_SUPPORTED`.
pub const IS_SUPPORTED: u64 = 0x1;
/// `H5VL_OPT_QUERY_READ_DATA`.
pub const READS_DATA: u64 = 0x2;
/// `H5VL_OPT_QUERY_WRITE_DATA`.
pub const WRITES_DATA: u64 = 0x4;

/// Writes a list of blocks, given as a [`BlockList`].
pub const WRITE: &CStr = c"h5logfs.H5Dwrite_n";
/// Reads a list of blocks, given as a [`BlockList`].
pub const READ: &CStr = c"h5logfs.H5Dread_n";

/// Blocks of one dataset, with their elements in memory: one block after the other, each in row-major order. Where blocks
/// overlap, the last one wins.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BlockList {
    /// `size_of::<BlockList>()` of the caller. A smaller list is of another version.
    pub size: usize,
    /// Datatype of the elements in memory.
    pub memory_type: Id,
    /// Number of blocks.
    pub number: usize,
    /// For each block, the index of its first element in each dimension. Null without blocks or dimensions.
    pub starts: *const *const u64,
    /// For each block, its extent in each dimension. Null without blocks or dimensions.
    pub counts: *const *const u64,
    /// The elements. [`WRITE`] only reads them.
    pub buf: *mut c_void,
}

/// A property that a program sets in a property list of its libhdf5.
#[derive(Debug, Clone, Copy)]
pub struct Property<T> {
    /// Name of the property in the list.
    pub name: &'static CStr,
    /// Variable with the class of lists that have it.
    pub class: &'static CStr,
    /// Value if nobody has set it.
    pub default: T,
}

/// Subfiles of a new log (`int`): -1 for one a node, 0 for none, otherwise their number.
pub const SUBFILES: Property<c_int> = Property {
    name: c"h5logfs_subfiling",
    class: FILE_CREATION,
    default: 0,
};
/// Whether equal selections are stored once (`bool`).
pub const SHARES_SELECTIONS: Property<bool> = Property {
    name: c"h5logfs_meta_share",
    class: FILE_ACCESS,
    default: true,
};
/// Encoding of selections of many blocks (`H5VL_log_sel_encoding_t`): 0 as offsets, 1 as coordinates.
pub const ENCODING: Property<c_int> = Property {
    name: c"h5logfs_sel_encoding",
    class: FILE_ACCESS,
    default: 0,
};

/// The variable of the class of file creation property lists.
pub const FILE_CREATION: &CStr = c"H5P_CLS_FILE_CREATE_ID_g";
/// The variable of the class of file access property lists.
pub const FILE_ACCESS: &CStr = c"H5P_CLS_FILE_ACCESS_ID_g";
/// The variable of the class of data transfer property lists.
pub const DATASET_TRANSFER: &CStr = c"H5P_CLS_DATASET_XFER_ID_g";
