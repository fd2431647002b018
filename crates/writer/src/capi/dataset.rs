//! Functions of datasets: create, open, extend.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::environment::MpiGuard;
use super::input;
use super::registry::{self, Dataset, h5logfs_id};
use super::status::{ApiError, Result, to_status};
use crate::{DatasetSpec, Datatype, Writer};
use h5logfs_log::journal::words::dimensions;

/// A value of `max_dims`: the dimension may grow without limit.
pub const H5LOGFS_UNLIMITED: u64 = u64::MAX;

/// The properties of a new dataset. `h5logfs_dataset_spec_init` fills in a scalar without datatype,
/// chunk shape, filters and fill value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct h5logfs_dataset_spec {
    /// Size of this struct in the caller's header. Set by `h5logfs_dataset_spec_init`.
    pub size: usize,
    /// Datatype of the elements in memory: one of the constants, or a handle. It is copied.
    pub datatype: h5logfs_id,
    /// Number of dimensions, 0 to 32. Each array below has this many values.
    pub rank: c_int,
    /// Level of the deflate filter, 0 to 9. -1 (default): no deflate.
    pub deflate: c_int,
    /// 1: the shuffle filter, which makes deflate more effective. 0 (default): no shuffle.
    pub shuffle: c_int,
    /// 1: the fletcher32 filter, which adds a checksum to stored data. 0 (default): no checksum.
    pub fletcher32: c_int,
    /// Extent, in elements. May be NULL if the rank is 0.
    pub dims: *const u64,
    /// Largest extent, in elements, or H5LOGFS_UNLIMITED. NULL (default): no dimension can grow.
    pub max_dims: *const u64,
    /// The chunk shape that readers see, in elements. NULL (default): chosen automatically.
    pub chunk: *const u64,
    /// The value of elements that are never written: one element as in memory. NULL (default): zero.
    pub fill: *const c_void,
}

// SAFETY: numbers and pointers, the size in front.
unsafe impl input::VersionedStruct for h5logfs_dataset_spec {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Fills in the defaults. `size` is sizeof(h5logfs_dataset_spec). Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_dataset_spec_init(
    spec: *mut h5logfs_dataset_spec,
    size: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe { input::write_defaults(spec, size, defaults) })
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

/// Creates a dataset, and missing parent groups. `dataset` receives its handle, or 0 on error. The handle
/// is valid until the file is closed. The call copies `spec` and the arrays in it. Collective, without
/// communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_dataset(
    file: h5logfs_id,
    path: *const c_char,
    spec: *const h5logfs_dataset_spec,
    dataset: *mut h5logfs_id,
) -> c_int {
    to_status(|| {
        let result = input::result_pointer(dataset, "dataset")?;
        // SAFETY: there is room for a handle.
        unsafe { result.write(0) };
        // SAFETY: promised by the caller.
        let path = unsafe { input::text(path, "the path of the dataset") }?;
        let file = registry::file(file)?;
        let _mpi = MpiGuard::acquire()?;
        let mut state = file.lock()?;
        // SAFETY: promised by the caller.
        let given = unsafe { GivenSpec::read(spec) };
        let wrong = |e: ApiError| e.about(format!("{}: dataset {path}", state.writer.place()));
        let GivenSpec {
            spec,
            rank,
            element_size,
        } = given.map_err(wrong)?;
        let dataset = state.writer.dataset(path, spec)?;
        // The file is still locked, so that a close in another thread removes this dataset, too.
        let id = registry::add_dataset(Dataset {
            file: file.clone(),
            dataset,
            path: path.to_owned(),
            rank,
            element_size,
        });
        // SAFETY: there is room for a handle.
        unsafe { result.write(id) };
        Ok(())
    })
}

/// Finds a dataset of a file that `h5logfs_open` has opened, or one that this program has created.
/// `datatype` is the type of its elements in memory, which must match that of the dataset. For a struct,
/// the first call fixes the offsets of its members in memory. `dataset` receives a handle, or 0 on error.
/// Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_open_dataset(
    file: h5logfs_id,
    path: *const c_char,
    datatype: h5logfs_id,
    dataset: *mut h5logfs_id,
) -> c_int {
    to_status(|| {
        let result = input::result_pointer(dataset, "dataset")?;
        // SAFETY: there is room for a handle.
        unsafe { result.write(0) };
        // SAFETY: promised by the caller.
        let path = unsafe { input::text(path, "the path of the dataset") }?;
        let file = registry::file(file)?;
        let mut state = file.lock()?;
        let wrong = |e: ApiError| e.about(format!("{}: dataset {path}", state.writer.place()));
        let datatype = registry::datatype(datatype).map_err(wrong)?;
        let element_size = datatype.size() as usize;
        let dataset = state.writer.open_dataset_as(path, datatype)?;
        let rank = state.writer.dims(dataset)?.len();
        let id = registry::add_dataset(Dataset {
            file: file.clone(),
            dataset,
            path: path.to_owned(),
            rank,
            element_size,
        });
        // SAFETY: there is room for a handle.
        unsafe { result.write(id) };
        Ok(())
    })
}

/// A dataset as the caller describes it.
struct GivenSpec {
    spec: DatasetSpec,
    rank: usize,
    element_size: usize,
}

impl GivenSpec {
    /// # Safety
    /// The pointer, and those in the struct, are valid as documented.
    unsafe fn read(spec: *const h5logfs_dataset_spec) -> Result<Self> {
        // SAFETY: promised by the caller.
        let given = unsafe { input::read_struct(spec) }?;
        let datatype = registry::datatype(given.datatype)?;
        datatype.check().map_err(ApiError::definition)?;
        let rank = input::rank(given.rank)?;
        let element_size = datatype.size() as usize;
        // SAFETY: promised by the caller.
        let spec = unsafe { read(&given, rank, datatype) }?;
        Ok(GivenSpec {
            spec,
            rank,
            element_size,
        })
    }
}

/// # Safety
/// The pointers are valid as documented.
unsafe fn read(
    given: &h5logfs_dataset_spec,
    rank: usize,
    datatype: Datatype,
) -> Result<DatasetSpec> {
    // SAFETY: promised by the caller.
    let (dims, max_dims, chunk, fill) = unsafe {
        (
            input::array(given.dims, rank, "dims")?,
            input::optional(given.max_dims, rank, "max_dims")?,
            input::optional(given.chunk, rank, "chunk")?,
            input::optional(given.fill.cast::<u8>(), datatype.size() as usize, "fill")?,
        )
    };
    let mut spec = DatasetSpec::of(datatype, dims);
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
        other => {
            return Err(ApiError::invalid(format!(
                "deflate has no level {other}: 0 to 9 are possible, and -1 for no deflate"
            )));
        }
    }
    if input::flag(given.shuffle, "shuffle")? {
        spec = spec.shuffle();
    }
    if input::flag(given.fletcher32, "fletcher32")? {
        spec = spec.fletcher32();
    }
    Ok(spec)
}

/// Sets the extent of a dataset. `dims` has one number for each dimension. Dimensions can only grow.
/// Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_set_extent(dataset: h5logfs_id, dims: *const u64) -> c_int {
    to_status(|| {
        let dataset = registry::dataset(dataset)?;
        // SAFETY: promised by the caller.
        let dims = unsafe { input::array(dims, dataset.rank, "dims") };
        define(&dataset, dims, |writer, dataset, dims| {
            writer.extend(dataset, dims)
        })
    })
}

/// Makes a dataset of one dimension a dimension scale. `name` may be NULL or empty for none. netCDF uses
/// the name of the dataset as that of the dimension; a scale whose name begins with
/// H5LOGFS_NETCDF_DIMENSION is a dimension without a variable. Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_make_scale(dataset: h5logfs_id, name: *const c_char) -> c_int {
    to_status(|| {
        let dataset = registry::dataset(dataset)?;
        let name = if name.is_null() {
            Ok("")
        } else {
            // SAFETY: promised by the caller.
            unsafe { input::text(name, "the name of the scale") }
        };
        define(&dataset, name, |writer, dataset, name| {
            writer.make_scale(dataset, name)
        })
    })
}

/// Attaches a dimension scale to a dimension of a dataset of the same file. The first dimension is 0. A
/// dimension may have several scales. Collective, without communication.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_attach_scale(
    dataset: h5logfs_id,
    dimension: c_int,
    scale: h5logfs_id,
) -> c_int {
    to_status(|| {
        let (dataset, scale) = (registry::dataset(dataset)?, registry::dataset(scale)?);
        let same_file = if Arc::ptr_eq(&scale.file, &dataset.file) {
            Ok(())
        } else {
            let path = &scale.path;
            Err(ApiError::invalid(format!(
                "the scale {path} is of another file"
            )))
        };
        let dimension = same_file.and_then(|()| input::dimension(dimension));
        define(&dataset, dimension, |writer, dataset, dimension| {
            writer.attach_scale(dataset, dimension, scale.dataset)
        })
    })
}

/// Labels a dimension of a dataset, once. The first dimension is 0. Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_set_label(
    dataset: h5logfs_id,
    dimension: c_int,
    label: *const c_char,
) -> c_int {
    to_status(|| {
        let dataset = registry::dataset(dataset)?;
        // SAFETY: promised by the caller.
        let label = unsafe { input::text(label, "the label") };
        let label = label.and_then(|label| Ok((input::dimension(dimension)?, label)));
        define(&dataset, label, |writer, dataset, (dimension, label)| {
            writer.set_label(dataset, dimension, label)
        })
    })
}

/// Makes a definition about a dataset from an argument that was checked.
fn define<A>(
    dataset: &Dataset,
    argument: Result<A>,
    define: impl FnOnce(&mut Writer, crate::Dataset, A) -> crate::Result<()>,
) -> Result<()> {
    let _mpi = MpiGuard::acquire()?;
    let mut file = dataset.file.lock()?;
    let object = || format!("{}: dataset {}", file.writer.place(), dataset.path);
    let argument = argument.map_err(|e| e.about(object()))?;
    Ok(define(&mut file.writer, dataset.dataset, argument)?)
}

/// Returns the number of dimensions in `rank` and the extent in `dims`, which has room for `capacity`
/// numbers. If `capacity` is 0, `dims` may be NULL, and only the rank is returned. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_get_extent(
    dataset: h5logfs_id,
    capacity: c_int,
    dims: *mut u64,
    rank: *mut c_int,
) -> c_int {
    to_status(|| {
        let dataset = registry::dataset(dataset)?;
        let rank = input::result_pointer(rank, "rank")?;
        // SAFETY: there is room for a number.
        unsafe { rank.write(dataset.rank as c_int) };
        if capacity == 0 || dataset.rank == 0 {
            return Ok(());
        }
        let room = usize::try_from(capacity).unwrap_or(0);
        if room < dataset.rank {
            return Err(ApiError::invalid(format!(
                "dataset {}: there is room for {capacity} numbers, and the extent has {}",
                dataset.path,
                dimensions(dataset.rank)
            )));
        }
        let dims = input::result_pointer(dims, "dims")?;
        let file = dataset.file.lock()?;
        let extent = file.writer.dims(dataset.dataset)?;
        // SAFETY: there is room for `capacity` numbers, and the extent has no more.
        unsafe { std::ptr::copy_nonoverlapping(extent.as_ptr(), dims.as_ptr(), extent.len()) };
        Ok(())
    })
}
