//! Transfers with an expression (`H5Pset_data_transform`). Only libhdf5 can evaluate it, and only on the way to or from a
//! dataset. So the elements pass through a dataset in memory.

use std::ffi::{CString, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use h5logfs_host::types::{DEFAULT, Id};

use super::elements::Conversion;
use crate::below::info::Info;
use crate::below::list::default_list;
use crate::library::Functions;
use h5logfs_common::fault::Fault;

/// `H5S_ALL`.
const ALL: Id = 0;

/// Applies the expression of a write, and converts elements from the program's type to the file's.
pub fn written(
    info: &Arc<Info>,
    conversion: &Conversion,
    elements: &[u8],
    count: usize,
) -> Result<Vec<u8>, Fault> {
    let passage = Passage::new(info, conversion.to, count)?;
    passage.write(conversion.from, conversion.dxpl, elements)?;
    passage.read(conversion.to, DEFAULT, count * conversion.to_size)
}

/// Applies the expression of a read, and converts elements from the file's type to the program's.
pub fn read(
    info: &Arc<Info>,
    conversion: &Conversion,
    elements: &[u8],
    count: usize,
) -> Result<Vec<u8>, Fault> {
    let passage = Passage::new(info, conversion.from, count)?;
    passage.write(conversion.from, DEFAULT, elements)?;
    passage.read(conversion.to, conversion.dxpl, count * conversion.to_size)
}

/// A dataset in memory, in a file of its own.
struct Passage {
    /// Information with the native connector below.
    info: Arc<Info>,
    file: Id,
    dataset: Id,
}

impl Passage {
    fn new(info: &Arc<Info>, datatype: Id, count: usize) -> Result<Self, Fault> {
        let info = info.native()?;
        let usual = default_list(&info.library, c"H5P_LST_FILE_ACCESS_ID_g")?;
        let file = info.with_under_list(usual, |list| {
            // SAFETY: the list belongs to this library.
            Ok(info.library.nested(|f| unsafe { create_file(f, list) }))
        })?;
        // SAFETY: the file is new, and is closed if no dataset can be made.
        let dataset = info.library.nested(|f| unsafe {
            let dataset = create_dataset(f, file, datatype, count as u64);
            if dataset < 0 {
                (f.H5Fclose)(file);
            }
            dataset
        });
        if dataset < 0 {
            return Err(
                "the dataset in memory for the expression of H5Pset_data_transform cannot be made"
                    .into(),
            );
        }
        Ok(Passage {
            info,
            file,
            dataset,
        })
    }

    fn write(&self, datatype: Id, dxpl: Id, elements: &[u8]) -> Result<(), Fault> {
        let buf = elements.as_ptr().cast();
        // SAFETY: the buffer holds all elements of the dataset.
        self.transfer(dxpl, |f| unsafe {
            (f.H5Dwrite)(self.dataset, datatype, ALL, ALL, dxpl, buf)
        })
    }

    fn read(&self, datatype: Id, dxpl: Id, bytes: usize) -> Result<Vec<u8>, Fault> {
        let mut elements = vec![0; bytes];
        let buf: *mut c_void = elements.as_mut_ptr().cast();
        // SAFETY: the buffer has room for all elements of the dataset.
        self.transfer(dxpl, |f| unsafe {
            (f.H5Dread)(self.dataset, datatype, ALL, ALL, dxpl, buf)
        })?;
        Ok(elements)
    }

    fn transfer(&self, dxpl: Id, call: impl FnOnce(&Functions) -> i32) -> Result<(), Fault> {
        // Each rank has its own file, so the transfer must not be collective.
        let status = self
            .info
            .independently(dxpl, || self.info.library.nested(call))?;
        match status {
            0.. => Ok(()),
            _ => Err(
                "the expression of H5Pset_data_transform cannot be applied to the elements".into(),
            ),
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        // SAFETY: this structure created both, and closes them once.
        self.info.library.nested(|f| unsafe {
            (f.H5Dclose)(self.dataset);
            (f.H5Fclose)(self.file);
        });
    }
}

/// # Safety
///
/// The list belongs to the library, and to this crate.
unsafe fn create_file(f: &Functions, list: Id) -> Id {
    const TRUNCATE: c_uint = 2;
    const INCREMENT: usize = 64 << 10;
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // libhdf5 identifies files in memory by name, so each name is used once.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let Ok(name) = CString::new(format!(".h5logfs-expression-{number}")) else {
        return -1;
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (f.H5Pset_fapl_core)(list, INCREMENT, false) {
            0.. => (f.H5Fcreate)(name.as_ptr(), TRUNCATE, DEFAULT, list),
            _ => -1,
        }
    }
}

/// # Safety
///
/// The file and the datatype belong to the library, or are not identifiers at all.
unsafe fn create_dataset(f: &Functions, file: Id, datatype: Id, count: u64) -> Id {
    // SAFETY: guaranteed by the caller; the name is a C string.
    unsafe {
        let space = (f.H5Screate_simple)(1, &count, ptr::null());
        let name = c"elements".as_ptr();
        let dataset = (f.H5Dcreate2)(file, name, datatype, space, DEFAULT, DEFAULT, DEFAULT);
        (f.H5Sclose)(space);
        dataset
    }
}
