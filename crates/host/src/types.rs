//! Types and numbers common to all headers of HDF5 1.14.0 to 2.2.

use std::ffi::c_int;

/// `hid_t`: an identifier of one libhdf5.
pub type Id = i64;
/// `haddr_t`: an address in a file.
pub type Address = u64;
/// `herr_t`: negative for a failure.
pub type Status = c_int;

/// `SUCCEED`.
pub const SUCCESS: Status = 0;
/// `FAIL`.
pub const FAILURE: Status = -1;
/// `H5P_DEFAULT` and `H5E_DEFAULT`.
pub const DEFAULT: Id = 0;

/// Bits of the flags for opening a file.
pub mod access {
    use std::ffi::c_uint;

    /// `H5F_ACC_RDWR`.
    pub const WRITE: c_uint = 0x01;
    /// `H5F_ACC_TRUNC`.
    pub const TRUNCATE: c_uint = 0x02;
    /// `H5F_ACC_EXCL`.
    pub const EXCLUSIVE: c_uint = 0x04;
    /// `H5F_ACC_SWMR_WRITE`.
    pub const SWMR_WRITE: c_uint = 0x20;
    /// `H5F_ACC_SWMR_READ`.
    pub const SWMR_READ: c_uint = 0x40;
}
