//! Numbers of the operations that the connector adds to HDF5. `h5logfs_host::lists` describes them.

use std::ffi::{CStr, c_int};

use h5logfs_host::lists::{OF_DATASETS, READ, WRITE};
use h5logfs_host::types::FAILURE;

use crate::library::Library;

/// The operation numbers in one library, valid until it terminates. None is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// Writes a list of blocks.
    pub write: c_int,
    /// Reads a list of blocks.
    pub read: c_int,
}

impl Operations {
    /// Registers the operations with a library, unless they are known there. If the library refuses one, programs cannot find it.
    pub fn of(library: &Library) -> Self {
        let number = |name| number(library, name).unwrap_or(FAILURE);
        Operations {
            write: number(WRITE),
            read: number(READ),
        }
    }

    /// Whether `operation` is one of these.
    pub fn has(self, operation: c_int) -> bool {
        operation >= 0 && [self.write, self.read].contains(&operation)
    }
}

fn number(library: &Library, name: &CStr) -> Option<c_int> {
    let mut number = 0;
    library
        .nested(|f| {
            // SAFETY (both calls): the name is a C string, and the place for the number is valid.
            let mut find =
                || unsafe { (f.H5VLfind_opt_operation)(OF_DATASETS, name.as_ptr(), &mut number) };
            if find() >= 0 {
                return true;
            }
            let mut new = 0;
            // Another thread may have registered it in between; the look-up below decides.
            unsafe { (f.H5VLregister_opt_operation)(OF_DATASETS, name.as_ptr(), &mut new) };
            find() >= 0
        })
        .then_some(number)
}
