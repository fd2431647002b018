//! What a program asks for when it creates or opens a file.

use std::ffi::{CStr, c_uint};
use std::path::Path;

use h5logfs_host::types::Id;

/// What a program asks for when it creates or opens a file.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The path.
    pub name: &'a CStr,
    /// `H5F_ACC_*`.
    pub flags: c_uint,
    /// The file creation property list; `H5P_DEFAULT` for a file that is opened.
    pub fcpl: Id,
    /// The file access property list, with the connector in it.
    pub fapl: Id,
    /// The data transfer property list.
    pub dxpl: Id,
}

impl<'a> Request<'a> {
    /// The path that the name is.
    pub fn path(&self) -> &'a Path {
        h5logfs_file_driver::path_of(self.name)
    }

    /// Whether it has one of the flags.
    pub fn has(&self, flags: c_uint) -> bool {
        self.flags & flags != 0
    }
}
