//! Functions that write a selected part of a larger array in memory.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::input;
use super::registry::h5logfs_id;
use super::status::{Result, to_status};
use super::write::{CSelection, DataMode, write_from};
use crate::MemorySpace;

/// A selected part of an array in memory, for example the inner cells of a grid with ghost cells: a
/// hyperslab as in H5Sselect_hyperslab. The first selected element of the array goes to the first
/// selected element of the dataset, and so on, both in row-major order. Both selections must have the
/// same number of elements. `h5logfs_memory_space_init` fills in a single element, strides and blocks of
/// 1.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct h5logfs_memory_space {
    /// Size of this struct in the caller's header. Set by `h5logfs_memory_space_init`.
    pub size: usize,
    /// Number of dimensions of the array, 0 to 32. Each array below has this many values.
    pub rank: c_int,
    /// Extent of the array, in elements.
    pub dims: *const u64,
    /// Start of the selected part.
    pub start: *const u64,
    /// Distance from block to block. NULL (default): 1 in each dimension.
    pub stride: *const u64,
    /// Number of blocks. If `block` is NULL, the number of elements.
    pub count: *const u64,
    /// Elements of a block. NULL (default): 1 in each dimension.
    pub block: *const u64,
}

// SAFETY: numbers and pointers, the size in front.
unsafe impl input::VersionedStruct for h5logfs_memory_space {
    const FIRST_SIZE: usize = size_of::<Self>();
}

impl h5logfs_memory_space {
    /// # Safety
    /// The pointers are valid as documented.
    pub(super) unsafe fn read<'a>(&self) -> Result<MemorySpace<'a>> {
        let rank = input::rank(self.rank)?;
        let terms = [self.start, self.stride, self.count, self.block];
        // SAFETY: promised by the caller.
        let (dims, selection) = unsafe {
            (
                input::array(self.dims, rank, "dims")?,
                CSelection::Hyperslab(terms).read(rank)?,
            )
        };
        Ok(MemorySpace { dims, selection })
    }
}

/// Fills in the defaults. `size` is sizeof(h5logfs_memory_space). Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_memory_space_init(
    space: *mut h5logfs_memory_space,
    size: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe { input::write_defaults(space, size, defaults) })
}

fn defaults(size: usize) -> h5logfs_memory_space {
    h5logfs_memory_space {
        size,
        rank: 0,
        dims: ptr::null(),
        start: ptr::null(),
        stride: ptr::null(),
        count: ptr::null(),
        block: ptr::null(),
    }
}

/// Writes a block as `h5logfs_write_block` does, from a selected part of an array in memory. `data` and
/// `size` are those of the whole array. Copies the selected elements. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_block_from(
    dataset: h5logfs_id,
    start: *const u64,
    count: *const u64,
    space: *const h5logfs_memory_space,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Block { start, count };
    // SAFETY: promised by the caller.
    unsafe { write_from(DataMode::Copy, dataset, space, data, size, selection) }
}

/// Writes a hyperslab as `h5logfs_write_hyperslab` does, from a selected part of an array in memory. `data`
/// and `size` are those of the whole array. Copies the selected elements. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_hyperslab_from(
    dataset: h5logfs_id,
    start: *const u64,
    stride: *const u64,
    count: *const u64,
    block: *const u64,
    space: *const h5logfs_memory_space,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Hyperslab([start, stride, count, block]);
    // SAFETY: promised by the caller.
    unsafe { write_from(DataMode::Copy, dataset, space, data, size, selection) }
}

/// Writes as `h5logfs_write_block_from`, but lends the data until the next flush. Elements that are not
/// contiguous are copied all the same. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_block_from(
    dataset: h5logfs_id,
    start: *const u64,
    count: *const u64,
    space: *const h5logfs_memory_space,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Block { start, count };
    // SAFETY: promised by the caller.
    unsafe { write_from(DataMode::Lend, dataset, space, data, size, selection) }
}

/// Writes as `h5logfs_write_hyperslab_from`, but lends the data until the next flush. Elements that are
/// not contiguous are copied all the same. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_hyperslab_from(
    dataset: h5logfs_id,
    start: *const u64,
    stride: *const u64,
    count: *const u64,
    block: *const u64,
    space: *const h5logfs_memory_space,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Hyperslab([start, stride, count, block]);
    // SAFETY: promised by the caller.
    unsafe { write_from(DataMode::Lend, dataset, space, data, size, selection) }
}
