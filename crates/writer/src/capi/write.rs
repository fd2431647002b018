//! Functions that write: they copy the data, or borrow them until the next flush.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::file::lent_batch;
use super::input::{self, MAX_DIMS};
use super::memory::h5logfs_memory_space;
use super::registry::{self, Dataset, FileState, h5logfs_id};
use super::status::h5logfs_status::{H5LOGFS_ERR_WRITE, H5LOGFS_OK};
use super::status::{ApiError, Result, to_status};
use crate::memory::Source;
use crate::{Fault, Selection, Writer};

/// Writes the whole extent of a dataset. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write(
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Copy, dataset, data, size, CSelection::All) }
}

/// Writes a block: in each dimension `count` elements from `start` on. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_block(
    dataset: h5logfs_id,
    start: *const u64,
    count: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Block { start, count };
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Copy, dataset, data, size, selection) }
}

/// Writes a hyperslab as H5Sselect_hyperslab selects it: in each dimension `count` blocks of `block`
/// elements, whose starts are `stride` apart. `stride` and `block` may be NULL, which means 1 in each
/// dimension. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_hyperslab(
    dataset: h5logfs_id,
    start: *const u64,
    stride: *const u64,
    count: *const u64,
    block: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Hyperslab([start, stride, count, block]);
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Copy, dataset, data, size, selection) }
}

/// Writes `number` blocks. `starts` has the start of each block, one after the other, and `counts` has
/// their counts. The data hold one block after the other. Where blocks overlap, the last one wins.
/// Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_blocks(
    dataset: h5logfs_id,
    number: usize,
    starts: *const u64,
    counts: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Blocks {
        number,
        starts,
        counts,
    };
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Copy, dataset, data, size, selection) }
}

/// Writes `number` blocks as `h5logfs_write_blocks`, given as lists like those of `H5Dwrite_n`: block `i`
/// begins at `starts[i]` and has the extent `counts[i]`. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_n(
    dataset: h5logfs_id,
    number: usize,
    starts: *const *const u64,
    counts: *const *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let lists = Lists {
        number,
        starts,
        counts,
    };
    // SAFETY: promised by the caller.
    unsafe { write_lists(DataMode::Copy, dataset, data, size, lists) }
}

/// Writes `number` single elements. `points` has the coordinates of each, one after the other. Copies
/// the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_points(
    dataset: h5logfs_id,
    number: usize,
    points: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Points { number, points };
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Copy, dataset, data, size, selection) }
}

/// Writes as `h5logfs_write`, but lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend(
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Lend, dataset, data, size, CSelection::All) }
}

/// Writes as `h5logfs_write_block`, but lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_block(
    dataset: h5logfs_id,
    start: *const u64,
    count: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Block { start, count };
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Lend, dataset, data, size, selection) }
}

/// Writes as `h5logfs_write_hyperslab`, but lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_hyperslab(
    dataset: h5logfs_id,
    start: *const u64,
    stride: *const u64,
    count: *const u64,
    block: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Hyperslab([start, stride, count, block]);
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Lend, dataset, data, size, selection) }
}

/// Writes as `h5logfs_write_blocks`, but lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_blocks(
    dataset: h5logfs_id,
    number: usize,
    starts: *const u64,
    counts: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Blocks {
        number,
        starts,
        counts,
    };
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Lend, dataset, data, size, selection) }
}

/// Writes as `h5logfs_write_n`, but lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_n(
    dataset: h5logfs_id,
    number: usize,
    starts: *const *const u64,
    counts: *const *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let lists = Lists {
        number,
        starts,
        counts,
    };
    // SAFETY: promised by the caller.
    unsafe { write_lists(DataMode::Lend, dataset, data, size, lists) }
}

/// Writes as `h5logfs_write_points`, but lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_points(
    dataset: h5logfs_id,
    number: usize,
    points: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let selection = CSelection::Points { number, points };
    // SAFETY: promised by the caller.
    unsafe { write(DataMode::Lend, dataset, data, size, selection) }
}

/// The use of the caller's data.
#[derive(Clone, Copy)]
pub(super) enum DataMode {
    Copy,
    Lend,
}

/// A selection as the C functions receive it.
#[derive(Clone, Copy)]
pub(super) enum CSelection {
    All,
    Block {
        start: *const u64,
        count: *const u64,
    },
    /// Start, stride, count and block.
    Hyperslab([*const u64; 4]),
    Blocks {
        number: usize,
        starts: *const u64,
        counts: *const u64,
    },
    Points {
        number: usize,
        points: *const u64,
    },
}

/// Blocks given by lists of pointers to their starts and counts.
#[derive(Clone, Copy)]
struct Lists {
    number: usize,
    starts: *const *const u64,
    counts: *const *const u64,
}

impl Lists {
    /// All starts one after the other, and all counts.
    ///
    /// # Safety
    /// Each pointer is NULL, or points to one pointer for each block; each of these is NULL, or points to one number for each
    /// dimension.
    unsafe fn read(self, rank: usize) -> Result<[Vec<u64>; 2]> {
        let join = |lists, what: &str| -> Result<Vec<u64>> {
            // SAFETY: promised by the caller.
            let lists = unsafe { input::array::<*const u64>(lists, self.number, what) }?;
            let mut joined = Vec::with_capacity(lists.len() * rank);
            for (block, numbers) in lists.iter().enumerate() {
                // SAFETY: promised by the caller.
                let numbers = unsafe { input::array(*numbers, rank, what) };
                joined.extend_from_slice(numbers.map_err(|e| e.about(format!("block {block}")))?);
            }
            Ok(joined)
        };
        Ok([join(self.starts, "starts")?, join(self.counts, "counts")?])
    }
}

/// # Safety
/// The pointers are valid as documented.
unsafe fn write_lists(
    mode: DataMode,
    id: h5logfs_id,
    data: *const c_void,
    size: usize,
    lists: Lists,
) -> c_int {
    let mut joined = [Vec::new(), Vec::new()];
    let read = to_status(|| {
        let dataset = registry::dataset(id)?;
        // SAFETY: promised by the caller.
        match unsafe { lists.read(dataset.rank) } {
            Ok(read) => joined = read,
            Err(error) => return Err(refuse(&mut dataset.file.lock()?.writer, &dataset, error)),
        }
        Ok(())
    });
    if read != H5LOGFS_OK as c_int {
        return read;
    }
    let [starts, counts] = &joined;
    let selection = CSelection::Blocks {
        number: lists.number,
        starts: starts.as_ptr(),
        counts: counts.as_ptr(),
    };
    // SAFETY: promised by the caller; the coordinates outlive the call.
    unsafe { write(mode, id, data, size, selection) }
}

impl CSelection {
    /// # Safety
    /// Each pointer is NULL, or points to as many numbers as the selection has in a dataset of this rank.
    pub unsafe fn read<'a>(self, rank: usize) -> Result<Selection<'a>> {
        static ONES: [u64; MAX_DIMS] = [1; MAX_DIMS];
        // SAFETY: promised by the caller.
        let array = |items, number, what| unsafe { input::array::<u64>(items, number, what) };
        let array_or_ones = |items: *const u64, what| {
            if items.is_null() {
                Ok(&ONES[..rank])
            } else {
                array(items, rank, what)
            }
        };
        let coordinates = |number: usize| {
            let coordinates = number.checked_mul(rank);
            coordinates
                .ok_or_else(|| ApiError::invalid(format!("{number} blocks or points are too many")))
        };
        Ok(match self {
            CSelection::All => Selection::All,
            CSelection::Block { start, count } => Selection::Block {
                start: array(start, rank, "start")?,
                count: array(count, rank, "count")?,
            },
            CSelection::Hyperslab([start, stride, count, block]) => Selection::Hyperslab {
                start: array(start, rank, "start")?,
                stride: array_or_ones(stride, "stride")?,
                count: array(count, rank, "count")?,
                block: array_or_ones(block, "block")?,
            },
            CSelection::Blocks {
                number,
                starts,
                counts,
            } => Selection::Blocks {
                starts: array(starts, coordinates(number)?, "starts")?,
                counts: array(counts, coordinates(number)?, "counts")?,
            },
            CSelection::Points { number, points } => {
                Selection::Points(array(points, coordinates(number)?, "points")?)
            }
        })
    }
}

/// # Safety
/// The pointers are valid as documented.
unsafe fn write(
    mode: DataMode,
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
    selection: CSelection,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { write_from(mode, dataset, std::ptr::null(), data, size, selection) }
}

/// Writes from memory. Without a memory space, the data are the selected elements one after the other.
///
/// # Safety
/// The pointers are valid as documented.
pub(super) unsafe fn write_from(
    mode: DataMode,
    dataset: h5logfs_id,
    space: *const h5logfs_memory_space,
    data: *const c_void,
    size: usize,
    selection: CSelection,
) -> c_int {
    to_status(|| {
        let dataset = registry::dataset(dataset)?;
        let mut file = dataset.file.lock()?;
        // SAFETY: promised by the caller.
        let selection = unsafe { selection.read(dataset.rank) };
        let elements = elements(&dataset, data.cast(), size);
        // SAFETY: promised by the caller.
        let source = elements.and_then(|elements| unsafe { within(elements, space) });
        match selection.and_then(|selection| Ok((selection, source?))) {
            // SAFETY: promised by the caller. Lent elements do not change until the next flush.
            Ok((selection, source)) => unsafe {
                write_elements(mode, &mut file, &dataset, selection, source)
            },
            Err(error) => Err(refuse(&mut file.writer, &dataset, error)),
        }
    })
}

/// Refuses a write with wrong arguments. Returns the complete error.
pub(super) fn refuse(writer: &mut Writer, dataset: &Dataset, error: ApiError) -> ApiError {
    let error = error.about(format!("dataset {}", dataset.path));
    writer.refuse(Fault::Refused(error.message.clone()));
    error.about(writer.place())
}

/// # Safety
/// `space` is NULL, or valid as documented.
unsafe fn within<'a>(
    elements: Source<'a>,
    space: *const h5logfs_memory_space,
) -> Result<Source<'a>> {
    if space.is_null() {
        return Ok(elements);
    }
    let about = |e: ApiError| e.about("the memory space");
    // SAFETY: promised by the caller.
    let space = unsafe { input::read_struct(space).and_then(|space| space.read()) };
    Ok(elements.within(space.map_err(about)?))
}

/// # Safety
/// `source` has elements of the dataset. Lent ones live and do not change until the next flush.
unsafe fn write_elements(
    mode: DataMode,
    file: &mut FileState,
    dataset: &Dataset,
    selection: Selection<'_>,
    source: Source<'_>,
) -> Result<()> {
    let id = dataset.dataset;
    // SAFETY: promised by the caller.
    let written = unsafe {
        match mode {
            DataMode::Copy => file.writer.write_elements(id, selection, source),
            DataMode::Lend => {
                let mut batch = lent_batch(file);
                let written = batch.write_elements(id, selection, source);
                file.lent = batch.into_contents();
                written
            }
        }
    };
    Ok(written?)
}

pub(super) fn elements(dataset: &Dataset, data: *const u8, size: usize) -> Result<Source<'static>> {
    if size == 0 {
        let data = NonNull::dangling().as_ptr();
        return Ok(Source::new(data, 0));
    }
    if data.is_null() {
        return Err(ApiError::invalid("the data are NULL"));
    }
    if size > isize::MAX as usize {
        return Err(ApiError::invalid(format!(
            "{size} bytes are more than an address space holds"
        )));
    }
    if !size.is_multiple_of(dataset.element_size) {
        return Err(ApiError::new(
            H5LOGFS_ERR_WRITE,
            format!(
                "{size} bytes are no whole number of elements of {} bytes: `size` counts bytes",
                dataset.element_size
            ),
        ));
    }
    Ok(Source::new(data, size / dataset.element_size))
}
