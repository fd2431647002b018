//! Checks and reads a program's list of blocks.

use std::ffi::c_int;
use std::slice;

use h5logfs_common::fault::Fault;
use h5logfs_host::lists::BlockList;

/// Fails for a list with missing arrays or entries. `is_scalar`: the dataset has no dimensions, so its blocks have no
/// coordinates.
pub fn check(list: &BlockList, is_scalar: bool) -> Result<(), Fault> {
    if list.number == 0 || is_scalar {
        return Ok(());
    }
    for (array, name) in [(list.starts, "starts"), (list.counts, "counts")] {
        if array.is_null() {
            return Err(format!("{name} is NULL, and there are {} blocks", list.number).into());
        }
        // SAFETY: the program passes one pointer for each block.
        let rows = unsafe { slice::from_raw_parts(array, list.number) };
        if let Some(block) = rows.iter().position(|row| row.is_null()) {
            return Err(format!("{name}[{block}] is NULL").into());
        }
    }
    Ok(())
}

/// Checks the number of blocks that a program passes.
pub fn number(number: c_int) -> Result<usize, Fault> {
    usize::try_from(number).map_err(|_| format!("{number} blocks: expected 0 or more").into())
}

/// Start and count of one block of a dataset of `rank` dimensions.
///
/// # Safety
///
/// The list was checked, and each of its arrays has a number for each dimension.
pub unsafe fn block<'a>(list: &BlockList, number: usize, rank: usize) -> (&'a [u64], &'a [u64]) {
    // SAFETY: promised by the caller.
    unsafe {
        (
            slice::from_raw_parts(*list.starts.add(number), rank),
            slice::from_raw_parts(*list.counts.add(number), rank),
        )
    }
}
