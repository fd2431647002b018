//! `H5Dwrite_n` and `H5Dread_n`: transfers of lists of blocks.

use std::ffi::{CStr, c_int, c_uint, c_void};

use h5logfs_common::fault::Fault;
use h5logfs_host::Kind;
use h5logfs_host::lists::{self, BlockList, IS_SUPPORTED, OF_DATASETS};
use h5logfs_host::types::{Id, Status};

use crate::library::{Library, Optional, name_of, serve};
use crate::{blocks, native};

/// One of the two functions.
struct Transfer {
    kind: Kind,
    /// Name of the function.
    function: &'static CStr,
    /// Name of the connector's operation.
    operation: &'static CStr,
    natively: unsafe fn(&'static Library, Id, &BlockList, Id) -> Result<Status, Fault>,
}

const WRITE: Transfer = Transfer {
    kind: Kind::Write,
    function: c"H5Dwrite_n",
    operation: lists::WRITE,
    natively: native::write,
};

const READ: Transfer = Transfer {
    kind: Kind::Read,
    function: c"H5Dread_n",
    operation: lists::READ,
    natively: native::read,
};

impl Transfer {
    /// Lets the connector transfer the elements if the dataset belongs to a log that it writes, otherwise HDF5.
    ///
    /// # Safety
    ///
    /// See [`H5Dwrite_n`] and [`H5Dread_n`].
    #[expect(clippy::too_many_arguments, reason = "those of the C function")]
    unsafe fn run(
        &self,
        dataset: Id,
        memory_type: Id,
        number: c_int,
        starts: *const *const u64,
        counts: *const *const u64,
        dxpl: Id,
        buf: *mut c_void,
    ) -> Status {
        serve(self.kind, |library| {
            let list = BlockList {
                size: size_of::<BlockList>(),
                memory_type,
                number: blocks::number(number)?,
                starts,
                counts,
                buf,
            };
            match operation(library, dataset, self.operation) {
                Some(operation) => Ok(operate(library, dataset, self, operation, &list, dxpl)),
                // SAFETY: promised by the caller.
                None => unsafe { (self.natively)(library, dataset, &list, dxpl) }
                    .map_err(|e| e.at(name_of(library, dataset))),
            }
        })
    }
}

/// Writes `number` blocks of a dataset, like as many calls of `H5Dwrite` in order. Block `i` begins at `starts[i]` and has
/// the sides `counts[i]`; blocks follow each other in `buf`. Local, unless `dxpl` requests a collective transfer.
///
/// # Safety
///
/// `starts` and `counts` have `number` members, each with a number for each dimension. `buf` has all elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn H5Dwrite_n(
    dataset: Id,
    memory_type: Id,
    number: c_int,
    starts: *const *const u64,
    counts: *const *const u64,
    dxpl: Id,
    buf: *const c_void,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        WRITE.run(
            dataset,
            memory_type,
            number,
            starts,
            counts,
            dxpl,
            buf.cast_mut(),
        )
    }
}

/// Reads `number` blocks of a dataset, like as many calls of `H5Dread`: see [`H5Dwrite_n`].
///
/// # Safety
///
/// As [`H5Dwrite_n`], and `buf` has room for all elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn H5Dread_n(
    dataset: Id,
    memory_type: Id,
    number: c_int,
    starts: *const *const u64,
    counts: *const *const u64,
    dxpl: Id,
    buf: *mut c_void,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe { READ.run(dataset, memory_type, number, starts, counts, dxpl, buf) }
}

/// The number of an operation, if the dataset supports it: if it belongs to a log that the connector writes.
fn operation(library: &Library, dataset: Id, name: &CStr) -> Option<c_int> {
    let (mut number, mut flags) = (0, 0);
    // SAFETY: the name is a C string, and both results have a place. A failure prints nothing.
    let status = library.quietly(|f| unsafe {
        let found = (f.H5VLfind_opt_operation)(OF_DATASETS, name.as_ptr(), &mut number);
        if found < 0 {
            return found;
        }
        (f.H5VLquery_optional)(dataset, OF_DATASETS, number, &mut flags)
    });
    (status >= 0 && flags & IS_SUPPORTED != 0).then_some(number)
}

/// Lets the connector transfer a list.
fn operate(
    library: &Library,
    dataset: Id,
    transfer: &Transfer,
    operation: c_int,
    list: &BlockList,
    dxpl: Id,
) -> Status {
    const LINE: c_uint = 0;
    let mut arguments = Optional {
        operation,
        arguments: std::ptr::from_ref(list).cast_mut().cast(),
    };
    // SAFETY: the operation takes a list, and does not change it. There is no event set.
    unsafe {
        (library.functions().H5VLdataset_optional_op)(
            c"h5logfs".as_ptr(),
            transfer.function.as_ptr(),
            LINE,
            dataset,
            &mut arguments,
            dxpl,
            0,
        )
    }
}
