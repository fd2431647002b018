//! Functions that append rows: the library finds their places at the flush.

use std::ffi::{c_int, c_void};

use super::file::lent_batch;
use super::input;
use super::registry::{self, h5logfs_id};
use super::status::{Result, to_status};
use super::write::{DataMode, elements, refuse};

/// Appends rows to a dataset whose first dimension is unlimited. The next flush counts the rows of all
/// ranks, extends the dataset, and puts the rows after its previous extent: those of a lower rank first,
/// those of a rank in the order of the calls. `data` holds any number of whole rows, one after the other.
/// Copies the data. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_append(
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe { append(DataMode::Copy, dataset, data, size) })
}

/// Appends as `h5logfs_append`, but lends the data until the next flush. These rows follow the copied
/// ones. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_lend_append(
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe { append(DataMode::Lend, dataset, data, size) })
}

/// # Safety
/// `data` points to `size` bytes. Lent ones live and do not change until the next flush.
unsafe fn append(
    mode: DataMode,
    dataset: h5logfs_id,
    data: *const c_void,
    size: usize,
) -> Result<()> {
    let dataset = registry::dataset(dataset)?;
    let mut file = dataset.file.lock()?;
    let source = elements(&dataset, data.cast(), size);
    let source = source.map_err(|error| refuse(&mut file.writer, &dataset, error))?;
    let (id, data, count) = (dataset.dataset, source.data, source.count);
    // SAFETY: promised by the caller.
    let appended = unsafe {
        match mode {
            DataMode::Copy => file.writer.append_raw(id, data, count),
            DataMode::Lend => {
                let mut batch = lent_batch(&mut file);
                let appended = batch.append_raw(id, data, count);
                file.lent = batch.into_contents();
                appended
            }
        }
    };
    Ok(appended?)
}

/// Returns the place that the last complete flush gave to this rank's appended rows: the index of the
/// first row in `start`, and the number of rows in `count`. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_appended(
    dataset: h5logfs_id,
    start: *mut u64,
    count: *mut u64,
) -> c_int {
    to_status(|| {
        let dataset = registry::dataset(dataset)?;
        let start = input::result_pointer(start, "start")?;
        let count = input::result_pointer(count, "count")?;
        let rows = dataset.file.lock()?.writer.appended(dataset.dataset)?;
        // SAFETY: there is room for the results.
        unsafe {
            start.write(rows.start);
            count.write(rows.end - rows.start);
        }
        Ok(())
    })
}
