//! Declarations of `H5FDdevelop.h` about an open file. They are the same in HDF5 1.14.0 to 2.2.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use h5logfs_host::types::{Address, Id};

/// `H5FD_mem_t`: the use of bytes of a file.
pub type Usage = c_int;

/// `HADDR_UNDEF`.
pub const UNDEFINED: Address = Address::MAX;

/// Features of the default driver in these versions: metadata and small data are aggregated, data are sieved, files have a
/// POSIX descriptor, allow one writer with several readers, and are of the default format.
pub const FEATURES: c_ulong = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | POSIX_HANDLE | 0x1000 | 0x8000;
/// `H5FD_FEAT_ACCUMULATE_METADATA` and `H5FD_FEAT_DATA_SIEVE`: libhdf5 holds writes back. It does not say what accumulated
/// metadata are for.
pub const HOLDS_BACK: c_ulong = 0x02 | 0x04 | 0x08;
/// Features of a file in memory: metadata and small data are aggregated, and data are sieved.
pub const IN_MEMORY: c_ulong = 0x01 | 0x02 | 0x04 | 0x08 | 0x10;
/// `H5FD_MEM_SUPER`: the superblock of a file.
pub const SUPERBLOCK: Usage = 1;
/// `H5FD_FEAT_POSIX_COMPAT_HANDLE`.
pub const POSIX_HANDLE: c_ulong = 0x80;

/// `H5FD_t`: the part of an open file that libhdf5 fills in and uses.
#[repr(C)]
#[derive(Debug)]
pub struct PublicPart {
    driver: Id,
    class: *const c_void,
    number: c_ulong,
    access: c_uint,
    features: c_ulong,
    last_address: Address,
    base: Address,
    threshold: u64,
    alignment: u64,
    is_paged: bool,
}

impl PublicPart {
    /// The state that libhdf5 expects in a new file: zeros.
    pub const fn new() -> Self {
        PublicPart {
            driver: 0,
            class: std::ptr::null(),
            number: 0,
            access: 0,
            features: 0,
            last_address: 0,
            base: 0,
            threshold: 0,
            alignment: 0,
            is_paged: false,
        }
    }
}
