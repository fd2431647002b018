//! The arguments of `H5Fcreate` and `H5Fopen`.

use std::ffi::{CStr, c_uint};
use std::path::Path;

use h5logfs_host::types::Id;

/// The arguments with which a program creates or opens a file.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The path.
    pub name: &'a CStr,
    /// Access flags `H5F_ACC_*`.
    pub flags: c_uint,
    /// The file creation property list; `H5P_DEFAULT` for `H5Fopen`.
    pub fcpl: Id,
    /// The file access property list. It names this connector.
    pub fapl: Id,
    /// The data transfer property list.
    pub dxpl: Id,
}

impl<'a> Request<'a> {
    /// The name as a path.
    pub fn path(&self) -> &'a Path {
        h5logfs_file_driver::path_of(self.name)
    }

    /// Whether one of these access flags is set.
    pub fn has(&self, flags: c_uint) -> bool {
        self.flags & flags != 0
    }
}
