//! The numbers of the operations that the connector adds to HDF5: see `h5logfs_host::lists`.

use std::ffi::{CStr, c_int};

use h5logfs_host::lists::{OF_DATASETS, READ, WRITE};
use h5logfs_host::types::FAILURE;

use crate::library::Library;

/// The numbers that a library gives them, until it ends. None is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// Blocks of a list are written.
    pub write: c_int,
    /// Blocks of a list are read.
    pub read: c_int,
}

impl Operations {
    /// Makes them known to a library, unless they are. Where it refuses one, no program finds it.
    pub fn of(library: &Library) -> Self {
        let number = |name| number(library, name).unwrap_or(FAILURE);
        Operations {
            write: number(WRITE),
            read: number(READ),
        }
    }

    /// Whether it is one of them.
    pub fn has(self, operation: c_int) -> bool {
        operation >= 0 && [self.write, self.read].contains(&operation)
    }
}

fn number(library: &Library, name: &CStr) -> Option<c_int> {
    let mut number = 0;
    library
        .nested(|f| {
            // SAFETY (both calls): the name is a C string, and there is a place for the number.
            let mut find =
                || unsafe { (f.H5VLfind_opt_operation)(OF_DATASETS, name.as_ptr(), &mut number) };
            if find() >= 0 {
                return true;
            }
            let mut new = 0;
            // Another thread may be faster.
            unsafe { (f.H5VLregister_opt_operation)(OF_DATASETS, name.as_ptr(), &mut new) };
            find() >= 0
        })
        .then_some(number)
}
