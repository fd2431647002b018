//! Writes: what is selected, and whether the data are copied or lent.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::file::batch;
use super::input::{self, MOST_DIMS};
use super::registry::{self, Dataset, Held, h5logfs_id};
use super::status::h5logfs_status::H5LOGFS_ERR_WRITE;
use super::status::{Fault, Result, answer};
use crate::Selection;

/// Writes the whole extent of a dataset. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write(
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { put(Way::Copy, dataset, (data, size), Given::All) }
}

/// Writes a block: `count` elements from `start` in each dimension. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_block(
    dataset: h5logfs_id,
    start: *const u64,
    count: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let given = Given::Block { start, count };
    // SAFETY: as the caller says.
    unsafe { put(Way::Copy, dataset, (data, size), given) }
}

/// Writes a hyperslab, as H5Sselect_hyperslab selects it: in each dimension `count` blocks of `block`
/// elements, `stride` apart from start to start. `stride` and `block` may be NULL, for ones. Copies the
/// data. Local.
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
    let given = Given::Hyperslab([start, stride, count, block]);
    // SAFETY: as the caller says.
    unsafe { put(Way::Copy, dataset, (data, size), given) }
}

/// Writes `number` blocks: their starts one after the other, and their counts alike. The data are
/// those of one block after the other; where blocks overlap, later ones win. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_blocks(
    dataset: h5logfs_id,
    number: usize,
    starts: *const u64,
    counts: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let given = Given::Blocks(number, starts, counts);
    // SAFETY: as the caller says.
    unsafe { put(Way::Copy, dataset, (data, size), given) }
}

/// Writes `number` points: their coordinates one after the other. Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_write_points(
    dataset: h5logfs_id,
    number: usize,
    points: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        put(
            Way::Copy,
            dataset,
            (data, size),
            Given::Points(number, points),
        )
    }
}

/// As `h5logfs_write`, without a copy: lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend(
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { put(Way::Lend, dataset, (data, size), Given::All) }
}

/// As `h5logfs_write_block`, without a copy: lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_block(
    dataset: h5logfs_id,
    start: *const u64,
    count: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let given = Given::Block { start, count };
    // SAFETY: as the caller says.
    unsafe { put(Way::Lend, dataset, (data, size), given) }
}

/// As `h5logfs_write_hyperslab`, without a copy: lends the data until the next flush. Local.
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
    let given = Given::Hyperslab([start, stride, count, block]);
    // SAFETY: as the caller says.
    unsafe { put(Way::Lend, dataset, (data, size), given) }
}

/// As `h5logfs_write_blocks`, without a copy: lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_blocks(
    dataset: h5logfs_id,
    number: usize,
    starts: *const u64,
    counts: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    let given = Given::Blocks(number, starts, counts);
    // SAFETY: as the caller says.
    unsafe { put(Way::Lend, dataset, (data, size), given) }
}

/// As `h5logfs_write_points`, without a copy: lends the data until the next flush. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_points(
    dataset: h5logfs_id,
    number: usize,
    points: *const u64,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        put(
            Way::Lend,
            dataset,
            (data, size),
            Given::Points(number, points),
        )
    }
}

#[derive(Clone, Copy)]
enum Way {
    Copy,
    Lend,
}

/// A selection as C has it.
#[derive(Clone, Copy)]
enum Given {
    All,
    Block {
        start: *const u64,
        count: *const u64,
    },
    /// Start, stride, count, block.
    Hyperslab([*const u64; 4]),
    Blocks(usize, *const u64, *const u64),
    Points(usize, *const u64),
}

impl Given {
    /// # Safety
    /// Each pointer is NULL or leads to as many numbers as the selection has in a dataset of this
    /// rank.
    unsafe fn read<'a>(self, rank: usize) -> Result<Selection<'a>> {
        static ONES: [u64; MOST_DIMS] = [1; MOST_DIMS];
        // SAFETY: as the caller says.
        let array = |items, number, what| unsafe { input::array::<u64>(items, number, what) };
        let ones = |items: *const u64, what| {
            if items.is_null() {
                Ok(&ONES[..rank])
            } else {
                array(items, rank, what)
            }
        };
        let all = |number: usize| {
            let all = number.checked_mul(rank);
            all.ok_or_else(|| Fault::invalid(format!("{number} blocks or points")))
        };
        Ok(match self {
            Given::All => Selection::All,
            Given::Block { start, count } => Selection::Block {
                start: array(start, rank, "start")?,
                count: array(count, rank, "count")?,
            },
            Given::Hyperslab([start, stride, count, block]) => Selection::Hyperslab {
                start: array(start, rank, "start")?,
                stride: ones(stride, "stride")?,
                count: array(count, rank, "count")?,
                block: ones(block, "block")?,
            },
            Given::Blocks(number, starts, counts) => Selection::Blocks {
                starts: array(starts, all(number)?, "starts")?,
                counts: array(counts, all(number)?, "counts")?,
            },
            Given::Points(number, points) => {
                Selection::Points(array(points, all(number)?, "points")?)
            }
        })
    }
}

/// # Safety
/// The pointers are what they are documented to be.
unsafe fn put(
    way: Way,
    dataset: h5logfs_id,
    (data, size): (*const c_void, usize),
    given: Given,
) -> c_int {
    answer(|| {
        let dataset = registry::dataset(dataset)?;
        let mut held = dataset.file.lock()?;
        // SAFETY: as the caller says.
        let selection = unsafe { given.read(dataset.rank) };
        let elements = elements(&dataset, data.cast(), size);
        match selection.and_then(|selection| Ok((selection, elements?))) {
            // SAFETY: there are so many elements, as the caller says; and they stay as they are until
            // the next flush, where they are lent.
            Ok((selection, elements)) => unsafe {
                take(way, &mut held, &dataset, selection, elements)
            },
            Err(fault) => {
                held.writer
                    .refuse(format!("dataset {}: {}", dataset.path, fault.message));
                Err(fault)
            }
        }
    })
}

/// # Safety
/// `data` points to `count` elements, which live and stay as they are until the next flush where they
/// are lent.
unsafe fn take(
    way: Way,
    held: &mut Held,
    dataset: &Dataset,
    selection: Selection<'_>,
    (data, count): (*const u8, usize),
) -> Result<()> {
    let id = dataset.dataset;
    // SAFETY: as the caller says.
    let taken = unsafe {
        match way {
            Way::Copy => held.writer.write_raw(id, selection, data, count),
            Way::Lend => {
                let mut batch = batch(held);
                let taken = batch.write_raw(id, selection, data, count);
                held.lent = batch.suspend();
                taken
            }
        }
    };
    Ok(taken?)
}

/// Where the elements are, and how many.
fn elements(dataset: &Dataset, data: *const u8, size: usize) -> Result<(*const u8, usize)> {
    if size == 0 {
        return Ok((NonNull::dangling().as_ptr(), 0));
    }
    if data.is_null() || size > isize::MAX as usize {
        return Err(Fault::invalid("the data are NULL, or larger than memory"));
    }
    match size % dataset.element {
        0 => Ok((data, size / dataset.element)),
        _ => Err(Fault::new(
            H5LOGFS_ERR_WRITE,
            format!("{size} bytes for elements of {} each", dataset.element),
        )),
    }
}
