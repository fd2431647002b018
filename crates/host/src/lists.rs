//! What the library for programs that were ported to the Log VOL (`crates/vol-api`) and the VOL connector say to each
//! other: operations on datasets that HDF5 does not have, and properties of lists.
//!
//! libhdf5 gives the operations their numbers, by these names. Whoever uses a file through another connector finds the
//! operation unknown, or not supported by the dataset.

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

/// Writes a list of blocks: takes [`BlockList`].
pub const WRITE: &CStr = c"h5logfs.H5Dwrite_n";
/// Reads a list of blocks: takes [`BlockList`].
pub const READ: &CStr = c"h5logfs.H5Dread_n";

/// Blocks of one dataset, and where their elements are in memory: one block behind the other, each in row-major order.
/// Where blocks overlap, the last one wins.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BlockList {
    /// `size_of::<BlockList>()` of the caller. What is not as large is of another version.
    pub size: usize,
    /// The type of the elements in memory.
    pub memory_type: Id,
    /// Blocks.
    pub number: usize,
    /// For each block the indices of its first element. Null where there are no blocks, or no dimensions.
    pub starts: *const *const u64,
    /// For each block its sides. Null as `starts`.
    pub counts: *const *const u64,
    /// The elements. They are only read by [`WRITE`].
    pub buf: *mut c_void,
}

/// A property that a program sets in a list of its libhdf5.
#[derive(Debug, Clone, Copy)]
pub struct Property<T> {
    /// Its name in the list.
    pub name: &'static CStr,
    /// The variable with the class of lists that have it.
    pub class: &'static CStr,
    /// Its value where nobody has set it.
    pub default: T,
}

/// Subfiles of a new log (`int`): -1 one for each node, 0 none, else so many.
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
/// How selections of many blocks are stored (`H5VL_log_sel_encoding_t`): 0 as offsets, 1 as coordinates.
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
