//! `H5Dwrite_n` and `H5Dread_n`: blocks of a dataset, given as a list.

use std::ffi::{CStr, c_int, c_uint, c_void};

use h5logfs_host::Kind;
use h5logfs_host::lists::{self, BlockList, IS_SUPPORTED, OF_DATASETS};
use h5logfs_host::types::{Id, Status};

use crate::library::{Library, Optional, name_of, serve};
use crate::{blocks, native};

/// Writes `number` blocks of a dataset, as so many calls of `H5Dwrite` in their order. Block `i` begins at `starts[i]` and has the
/// sides `counts[i]`; the elements of one block follow those of the one before. Local, unless `dxpl` asks for a collective
/// transfer.
///
/// # Safety
///
/// `starts` and `counts` have `number` members, each of which has a number for each dimension. `buf` has all elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn H5Dwrite_n(
    dataset: Id,
    memory_type: Id,
    number: c_int,
    starts: *const *const u64,
    counts: *const *const u64,
    dxpl: Id,
    buf: *const c_void,
) -> Status {
    let list = |number| BlockList {
        size: size_of::<BlockList>(),
        memory_type,
        number,
        starts,
        counts,
        buf: buf.cast_mut(),
    };
    serve(Kind::Write, |library| {
        let list = list(blocks::number(number)?);
        match operation(library, dataset, lists::WRITE) {
            Some(operation) => Ok(operate(library, dataset, operation, list, dxpl)),
            // SAFETY: the caller says so.
            None => unsafe { native::write(library, dataset, &list, dxpl) }
                .map_err(|e| e.at(name_of(library, dataset))),
        }
    })
}

/// Reads `number` blocks of a dataset, as so many calls of `H5Dread`: see [`H5Dwrite_n`].
///
/// # Safety
///
/// As [`H5Dwrite_n`], and `buf` has room for all elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn H5Dread_n(
    dataset: Id,
    memory_type: Id,
    number: c_int,
    starts: *const *const u64,
    counts: *const *const u64,
    dxpl: Id,
    buf: *mut c_void,
) -> Status {
    let list = |number| BlockList {
        size: size_of::<BlockList>(),
        memory_type,
        number,
        starts,
        counts,
        buf,
    };
    serve(Kind::Read, |library| {
        let list = list(blocks::number(number)?);
        match operation(library, dataset, lists::READ) {
            Some(operation) => Ok(operate(library, dataset, operation, list, dxpl)),
            // SAFETY: the caller says so.
            None => unsafe { native::read(library, dataset, &list, dxpl) }
                .map_err(|e| e.at(name_of(library, dataset))),
        }
    })
}

/// The number of an operation, where this dataset has it: where it is one of a log that the connector writes.
fn operation(library: &Library, dataset: Id, name: &CStr) -> Option<c_int> {
    let (mut number, mut flags) = (0, 0);
    // SAFETY: the name is a C string, and both results have a place. What fails says nothing.
    let status = library.quietly(|f| unsafe {
        let found = (f.H5VLfind_opt_operation)(OF_DATASETS, name.as_ptr(), &mut number);
        if found < 0 {
            return found;
        }
        (f.H5VLquery_optional)(dataset, OF_DATASETS, number, &mut flags)
    });
    (status >= 0 && flags & IS_SUPPORTED != 0).then_some(number)
}

/// Lets the connector do it.
fn operate(
    library: &Library,
    dataset: Id,
    operation: c_int,
    mut list: BlockList,
    dxpl: Id,
) -> Status {
    const LINE: c_uint = 0;
    let mut arguments = Optional {
        operation,
        arguments: (&raw mut list).cast(),
    };
    // SAFETY: the operation takes a list. No event set waits for it.
    unsafe {
        (library.functions().H5VLdataset_optional_op)(
            c"h5logfs".as_ptr(),
            c"H5Dwrite_n".as_ptr(),
            LINE,
            dataset,
            &mut arguments,
            dxpl,
            0,
        )
    }
}
