//! Datasets: made, extended.

use std::ffi::{c_char, c_int, c_void};

use super::environment::Turn;
use super::input;
use super::registry::{self, Dataset, h5logfs_id};
use super::status::{Fault, Result, answer};
use crate::{DatasetSpec, Datatype};

/// The dimension may grow without limit: a value of `max_dims`.
pub const H5LOGFS_UNLIMITED: u64 = u64::MAX;

/// A dataset to be made: type and shape, and how it is to look. `h5logfs_dataset_spec_init` fills it
/// in as a scalar without a type, chunks, filters and fill value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct h5logfs_dataset_spec {
    /// Bytes of this struct as the caller knows it. Set by `h5logfs_dataset_spec_init`.
    pub size: usize,
    /// Datatype of the elements, as they lie in memory: one of the constants, or a handle. It is
    /// copied.
    pub datatype: h5logfs_id,
    /// Number of dimensions, 0 to 32. All arrays below have so many values.
    pub rank: c_int,
    /// Level of deflate, 0 to 9; -1 (default) is none.
    pub deflate: c_int,
    /// 1: the bytes of elements are sorted by significance, so that they deflate better.
    pub shuffle: c_int,
    /// 1: what is stored has a checksum.
    pub fletcher32: c_int,
    /// Extent, in elements. May be NULL where the rank is 0.
    pub dims: *const u64,
    /// How far each dimension may grow: a number of elements or H5LOGFS_UNLIMITED. NULL (default):
    /// not at all.
    pub max_dims: *const u64,
    /// The chunk shape that readers see, in elements. NULL (default): it is chosen for them.
    pub chunk: *const u64,
    /// The value of elements that are never written: one element, as it lies in memory. NULL
    /// (default): zero.
    pub fill: *const c_void,
}

// SAFETY: numbers and pointers, the size in front.
unsafe impl input::Growing for h5logfs_dataset_spec {}

/// Fills in the defaults. `size`: sizeof(h5logfs_dataset_spec). Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_dataset_spec_init(
    spec: *mut h5logfs_dataset_spec,
    size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    answer(|| unsafe { input::set_defaults(spec, size, defaults) })
}

fn defaults(size: usize) -> h5logfs_dataset_spec {
    h5logfs_dataset_spec {
        size,
        datatype: 0,
        rank: 0,
        deflate: -1,
        shuffle: 0,
        fletcher32: 0,
        dims: std::ptr::null(),
        max_dims: std::ptr::null(),
        chunk: std::ptr::null(),
        fill: std::ptr::null(),
    }
}

/// Makes a dataset, and the groups around it that are missing, and tells its handle, which is 0 after
/// an error. The handle lasts until the file is closed. The struct and what it points to are copied.
/// Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_dataset(
    file: h5logfs_id,
    path: *const c_char,
    spec: *const h5logfs_dataset_spec,
    dataset: *mut h5logfs_id,
) -> c_int {
    answer(|| {
        let place = input::place(dataset, "dataset")?;
        // SAFETY: there is room for a handle, as the caller says.
        unsafe { place.write(0) };
        // SAFETY: as the caller says.
        let (path, spec) = unsafe { (input::text(path, "the path")?, input::given(spec)?) };
        // SAFETY: as the caller says.
        let (datatype, rank, spec) = unsafe { read(&spec) }?;
        let file = registry::file(file)?;
        let _turn = Turn::take()?;
        let mut held = file.lock()?;
        let dataset = held.writer.dataset(path, spec)?;
        // While the file is locked: who closes it forgets this one, too.
        let id = registry::add_dataset(Dataset {
            file: file.clone(),
            dataset,
            path: path.to_owned(),
            rank,
            element: datatype.size() as usize,
        });
        // SAFETY: there is room for a handle.
        unsafe { place.write(id) };
        Ok(())
    })
}

/// # Safety
/// The pointers are what they are documented to be.
unsafe fn read(given: &h5logfs_dataset_spec) -> Result<(Datatype, usize, DatasetSpec)> {
    let datatype = registry::datatype(given.datatype)?;
    datatype.check().map_err(Fault::definition)?;
    let rank = input::rank(given.rank)?;
    // SAFETY: as the caller says.
    let (dims, max_dims, chunk, fill) = unsafe {
        (
            input::array(given.dims, rank, "dims")?,
            input::optional(given.max_dims, rank, "max_dims")?,
            input::optional(given.chunk, rank, "chunk")?,
            input::optional(given.fill.cast::<u8>(), datatype.size() as usize, "fill")?,
        )
    };
    let mut spec = DatasetSpec::of(datatype.clone(), dims);
    if let Some(max_dims) = max_dims {
        let limits = max_dims.iter().map(|d| match *d {
            H5LOGFS_UNLIMITED => None,
            limit => Some(limit),
        });
        spec = spec.max_dims(&limits.collect::<Vec<_>>());
    }
    if let Some(chunk) = chunk {
        spec = spec.chunk(chunk);
    }
    if let Some(fill) = fill {
        spec = spec.fill_bytes(fill);
    }
    match given.deflate {
        -1 => {}
        level @ 0..=9 => spec = spec.deflate(level as u32),
        other => return Err(input::unknown("deflate", other.into())),
    }
    if input::flag(given.shuffle, "shuffle")? {
        spec = spec.shuffle();
    }
    if input::flag(given.fletcher32, "fletcher32")? {
        spec = spec.fletcher32();
    }
    Ok((datatype, rank, spec))
}

/// Sets the extent of a dataset: as many numbers of elements as it has dimensions, which can only
/// grow. Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_set_extent(dataset: h5logfs_id, dims: *const u64) -> c_int {
    answer(|| {
        let dataset = registry::dataset(dataset)?;
        // SAFETY: as the caller says.
        let dims = unsafe { input::array(dims, dataset.rank, "dims") }?;
        let _turn = Turn::take()?;
        let mut held = dataset.file.lock()?;
        Ok(held.writer.extend(dataset.dataset, dims)?)
    })
}

/// Tells the number of dimensions, and the extent. `dims` has room for `capacity` numbers; where that is
/// 0 it may be NULL, and only the rank is told. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_get_extent(
    dataset: h5logfs_id,
    capacity: c_int,
    dims: *mut u64,
    rank: *mut c_int,
) -> c_int {
    answer(|| {
        let dataset = registry::dataset(dataset)?;
        let place = input::place(rank, "rank")?;
        // SAFETY: there is room for a number, as the caller says. A rank is small.
        unsafe { place.write(dataset.rank as c_int) };
        if capacity == 0 || dataset.rank == 0 {
            return Ok(());
        }
        let room = usize::try_from(capacity).unwrap_or(0);
        if room < dataset.rank {
            return Err(Fault::invalid(format!(
                "room for {capacity} numbers, and {} dimensions",
                dataset.rank
            )));
        }
        let dims = input::place(dims, "dims")?;
        let held = dataset.file.lock()?;
        let extent = held.writer.dims(dataset.dataset)?;
        // SAFETY: there is room for so many numbers, as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(extent.as_ptr(), dims.as_ptr(), extent.len()) };
        Ok(())
    })
}
