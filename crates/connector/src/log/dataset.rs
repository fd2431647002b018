//! A logged dataset: properties of its elements, and whether they can be logged.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use h5logfs_hdf5_format::filters::Filter;
use h5logfs_host::types::Id;
use h5logfs_output::entries::DatasetInfo;
use h5logfs_output::stored::Form;
use parking_lot::Mutex;

use super::selection::Space;
use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;

/// A logged dataset. All handles of it share this structure.
#[derive(Debug)]
pub struct Dataset {
    /// The number of the dataset in the log.
    pub id: u32,
    /// The address of the object header in the metadata image.
    pub header: u64,
    /// The datatype in the file.
    pub file_type: Arc<OwnedType>,
    /// The size of one element in the file, in bytes.
    pub element: usize,
    /// Whether the datatype is a compound type. A program may write some of the members.
    pub has_members: bool,
    /// The maximum dimensions; `None` is unlimited.
    pub max_dims: Vec<Option<u64>>,
    /// The chunk shape, if the dataset is chunked.
    pub chunk: Option<Vec<u64>>,
    /// The chunk shape in which readers see the dataset. Filters apply to each such chunk.
    filtered: Option<Vec<u64>>,
    /// The filters with which chunks are stored.
    pub filters: Vec<Filter>,
    /// Whether the program set filters that h5logfs cannot apply. The elements are then logged unfiltered.
    pub has_foreign_filters: bool,
    /// The fill value of one element; empty for zeros.
    pub fill: Vec<u8>,
    /// Creation properties that the program asked for and the metadata image lacks.
    pub wanted: Wanted,
    /// The present extent. The lock is never held during a call.
    extent: Mutex<Extent>,
    /// The number of the present extent. No two extents of any datasets share a number.
    version: AtomicU64,
    /// Whether an element was written.
    is_written: AtomicBool,
    /// A predefined type in memory that equals the file type. Predefined types never change.
    pub same_type: AtomicI64,
}

/// Creation properties in which the program's list differs from that of the metadata image. They concern the storage of elements,
/// and the image has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The allocation time (`H5D_alloc_time_t`), if that of the metadata image differs.
    pub allocation: Option<c_int>,
    /// The flags of `H5Pset_chunk_opts`. The metadata image always has none set: with `H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS`,
    /// libhdf5 looks for chunks when a dataset grows, even if it has no storage.
    pub chunk_options: c_uint,
}

/// The extent of a dataset, now and earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The present dimensions. A call shares them, so that they stay valid while the program changes the extent.
    pub dims: Arc<[u64]>,
    /// The largest size in each dimension that the dataset ever had.
    pub reached: Vec<u64>,
    /// Whether `reached` includes earlier jobs.
    pub is_known: bool,
}

impl Extent {
    pub fn new(dims: Vec<u64>) -> Self {
        Extent {
            dims: dims.as_slice().into(),
            reached: dims,
            is_known: true,
        }
    }

    fn set_earlier(&mut self, reached: Option<&Vec<u64>>) {
        self.is_known = reached.is_some();
        for (own, earlier) in self.reached.iter_mut().zip(reached.into_iter().flatten()) {
            *own = (*own).max(*earlier);
        }
    }
}

/// An extent as a call has found it, kept for the next call.
#[derive(Debug, Default)]
pub struct FoundExtent {
    /// The number of the extent. Zero belongs to no extent.
    version: u64,
    dims: Arc<[u64]>,
}

/// A number that no extent has had.
fn next_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A datatype of the host's library that is not committed. A committed one is an open object of a file, and would keep the
/// session open that keeps it.
#[derive(Debug)]
pub struct OwnedType {
    pub id: Id,
    /// Whether the library predefines the type. Any other is a copy, which libhdf5 counts among the program's open objects.
    is_predefined: bool,
    /// The size of one element, in bytes.
    element: usize,
    has_members: bool,
    library: Library,
}

impl OwnedType {
    /// Finds a type equal to `datatype` among the `predefined` types, or copies it.
    fn like(
        library: &Library,
        f: &Functions,
        datatype: Id,
        predefined: &[Id],
    ) -> Result<Self, Fault> {
        // SAFETY (all calls here): the library checks any identifier.
        let is_equal = |of: &&Id| unsafe { (f.H5Tequal)(**of, datatype) } > 0;
        let same = predefined.iter().find(is_equal);
        let id = same.map_or_else(|| unsafe { (f.H5Tcopy)(datatype) }, |same| *same);
        let (element, class) = unsafe { ((f.H5Tget_size)(datatype), (f.H5Tget_class)(datatype)) };
        if id < 0 {
            return Err("a datatype cannot be copied".into());
        }
        Ok(OwnedType {
            id,
            is_predefined: same.is_some(),
            element,
            has_members: matches!(class, class::COMPOUND | class::ARRAY),
            library: *library,
        })
    }
}

/// The types of the datasets made last. Programs make many datasets of one type.
#[derive(Debug, Default)]
pub struct RecentTypes(Mutex<Vec<Arc<OwnedType>>>);

impl RecentTypes {
    const MOST: usize = 8;

    fn add(&self, new: &Arc<OwnedType>) {
        let mut recent = self.0.lock();
        recent.insert(0, Arc::clone(new));
        let oldest = if recent.len() > Self::MOST {
            recent.pop()
        } else {
            None
        };
        drop(recent);
        // Dropping calls libhdf5, so the lock is released first.
        drop(oldest);
    }

    /// Finds a type equal to `datatype` among the recent and the `predefined` types, or copies it.
    pub fn like(
        &self,
        library: &Library,
        f: &Functions,
        datatype: Id,
        predefined: &[Id],
    ) -> Result<Arc<OwnedType>, Fault> {
        // The lock is never held during a call of libhdf5.
        let recent = self.0.lock().clone();
        // SAFETY: the library checks any identifier.
        let is_equal = |of: &&Arc<OwnedType>| unsafe { (f.H5Tequal)(of.id, datatype) } > 0;
        if let Some(known) = recent.iter().find(is_equal) {
            return Ok(Arc::clone(known));
        }
        let new = Arc::new(OwnedType::like(library, f, datatype, predefined)?);
        self.add(&new);
        Ok(new)
    }
}

impl Drop for OwnedType {
    fn drop(&mut self) {
        if self.is_predefined {
            return;
        }
        // SAFETY: the identifier belongs to this structure, and is closed once.
        self.library.nested(|f| unsafe { (f.H5Tclose)(self.id) });
    }
}

/// The properties of a dataset in the metadata image.
#[derive(Debug)]
pub struct Parts {
    pub file_type: Arc<OwnedType>,
    pub dims: Vec<u64>,
    pub max_dims: Vec<u64>,
    pub storage: Storage,
}

/// The properties from a dataset creation property list.
#[derive(Debug)]
pub struct Storage {
    pub chunk: Option<Vec<u64>>,
    pub filters: Vec<Filter>,
    pub has_foreign_filters: bool,
    pub fill: Vec<u8>,
}

/// `H5D_layout_t`.
mod layout {
    pub const COMPACT: super::c_int = 0;
    pub const CHUNKED: super::c_int = 2;
    pub const VIRTUAL: super::c_int = 3;
}

/// `H5T_class_t`.
mod class {
    pub const COMPOUND: super::c_int = 6;
    pub const STRING: super::c_int = 3;
    pub const REFERENCE: super::c_int = 7;
    pub const VLEN: super::c_int = 9;
    pub const ARRAY: super::c_int = 10;
    pub const LAST: super::c_int = 11;
}

/// Filters that only libhdf5 applies: szip, n-bit, scale-offset. If one process writes, the elements of such a dataset stay in
/// the metadata image.
const ONLY_NATIVE: std::ops::RangeInclusive<u16> = 4..=6;
/// Filters that HDF5 defines itself: `H5Z_FILTER_DEFLATE` to `H5Z_FILTER_SCALEOFFSET`.
const OF_THE_LIBRARY: std::ops::RangeInclusive<c_int> = 1..=6;
/// `H5S_UNLIMITED`.
const UNLIMITED: u64 = u64::MAX;

/// Whether elements of a type can be logged. They must have a fixed size, and mean the same in another file.
pub fn is_loggable_type(f: &Functions, datatype: Id) -> bool {
    // SAFETY (all calls here): the library checks any identifier. Identifiers that it returns are closed.
    let class = unsafe { (f.H5Tget_class)(datatype) };
    match class {
        class::REFERENCE | class::VLEN => false,
        class::STRING => unsafe { (f.H5Tis_variable_str)(datatype) == 0 },
        class::COMPOUND => {
            let members = unsafe { (f.H5Tget_nmembers)(datatype) };
            (0..members.max(0)).all(|n| {
                let member = unsafe { (f.H5Tget_member_type)(datatype, n as c_uint) };
                let fits = is_loggable_type(f, member);
                unsafe { (f.H5Tclose)(member) };
                fits
            })
        }
        class::ARRAY => {
            let base = unsafe { (f.H5Tget_super)(datatype) };
            let fits = is_loggable_type(f, base);
            unsafe { (f.H5Tclose)(base) };
            fits
        }
        // Later versions add classes, which readers of the log may not know.
        0..=class::LAST => class != class::LAST,
        _ => false,
    }
}

/// A creation property list, with properties that are needed several times. Each query of libhdf5 takes a while.
pub struct Creation {
    list: Id,
    /// `H5D_layout_t`.
    pub layout: c_int,
    filters: Vec<Filter>,
}

impl Creation {
    /// Reads a list.
    pub fn of(f: &Functions, list: Id) -> Self {
        Creation {
            list,
            // SAFETY: the library checks any identifier.
            layout: unsafe { (f.H5Pget_layout)(list) },
            filters: filters(f, list),
        }
    }

    /// Whether the elements of a new dataset can be logged. `is_parallel`: several ranks write the log.
    pub fn is_loggable(&self, f: &Functions, is_parallel: bool) -> bool {
        let stays = match self.layout {
            // All ranks write a compact dataset together, each with its own values. So its elements stay in the metadata
            // image only if one process writes.
            layout::COMPACT => !is_parallel,
            layout::VIRTUAL => true,
            // libhdf5 does not allow chunks in external files.
            layout::CHUNKED => false,
            // SAFETY: the library checks any identifier.
            _ => unsafe { (f.H5Pget_external_count)(self.list) > 0 },
        };
        let is_native =
            |filter: &Filter| u16::try_from(filter.id).is_ok_and(|id| ONLY_NATIVE.contains(&id));
        // Several ranks cannot write elements into the metadata image. They log the elements unfiltered instead.
        let has_native_filter = !is_parallel && self.filters.iter().any(is_native);
        !stays && !has_native_filter
    }
}

/// Removes filters from a creation property list that only this program may have. The program that shows and closes the log could
/// not read chunks filtered by them.
pub fn remove_foreign_filters(f: &Functions, dcpl: Id) {
    for filter in filters(f, dcpl) {
        if !OF_THE_LIBRARY.contains(&filter.id) {
            // SAFETY: the list is a copy that this crate owns.
            unsafe { (f.H5Premove_filter)(dcpl, filter.id) };
        }
    }
}

fn filters(f: &Functions, dcpl: Id) -> Vec<Filter> {
    // SAFETY: the library checks any identifier.
    let number = unsafe { (f.H5Pget_nfilters)(dcpl) }.max(0);
    let filter = |n| {
        let (mut flags, mut count, mut config) = (0 as c_uint, 0usize, 0 as c_uint);
        let get =
            |flags: &mut c_uint, count: &mut usize, values: *mut c_uint, config: &mut c_uint| {
                // SAFETY: `values` has room for `count` values, and no name is asked for.
                unsafe {
                    (f.H5Pget_filter2)(
                        dcpl,
                        n,
                        flags,
                        count,
                        values,
                        0,
                        ptr::null_mut::<c_char>(),
                        config,
                    )
                }
            };
        let id = get(&mut flags, &mut count, ptr::null_mut(), &mut config);
        if id < 0 {
            return None;
        }
        let mut values = vec![0 as c_uint; count];
        let again = get(&mut flags, &mut count, values.as_mut_ptr(), &mut config);
        (again == id && count == values.len()).then_some(Filter { id, flags, values })
    };
    (0..number as c_uint).filter_map(filter).collect()
}

impl Storage {
    /// Reads the properties of a dataset made with this list, with elements of this type.
    pub fn of(f: &Functions, creation: Creation, datatype: &OwnedType) -> Self {
        const USER_DEFINED: c_int = 2;
        /// `H5D_FILL_TIME_NEVER`. Elements that were not written read as zeros.
        const NEVER: c_int = 1;
        let Creation {
            list: dcpl,
            layout,
            filters,
        } = creation;
        let mut chunk = [0u64; 32];
        // SAFETY (all calls here): the arrays have room for the most dimensions, and `buf` for one element.
        let rank = match layout {
            layout::CHUNKED => unsafe { (f.H5Pget_chunk)(dcpl, 32, chunk.as_mut_ptr()) },
            _ => -1,
        };
        let chunk = usize::try_from(rank)
            .ok()
            .map(|rank| chunk[..rank].to_vec());
        let mut fill = Vec::new();
        let (mut defined, mut time) = (0, 0);
        let is_defined = unsafe {
            (f.H5Pget_fill_time)(dcpl, &mut time) >= 0
                && time != NEVER
                && (f.H5Pfill_value_defined)(dcpl, &mut defined) >= 0
                && defined == USER_DEFINED
        };
        if is_defined {
            fill = vec![0; datatype.element];
            let buf = fill.as_mut_ptr().cast::<c_void>();
            if unsafe { (f.H5Pget_fill_value)(dcpl, datatype.id, buf) } < 0 {
                fill.clear();
            }
        }
        // With a filter that h5logfs cannot apply, elements are logged unfiltered, and shown so.
        let can_apply = filters.iter().all(Filter::can_apply);
        Storage {
            chunk,
            filters: if can_apply { filters } else { Vec::new() },
            has_foreign_filters: !can_apply,
            fill,
        }
    }

    /// Whether the dataset has filters, including those that h5logfs cannot apply.
    pub fn has_filters(&self) -> bool {
        self.has_foreign_filters || !self.filters.is_empty()
    }
}

impl Dataset {
    /// Makes a logged dataset. `None` if its elements have no bytes.
    pub fn new(id: u32, header: u64, parts: Parts, wanted: Wanted) -> Option<Self> {
        let OwnedType {
            element,
            has_members,
            ..
        } = *parts.file_type;
        let limit = |max: &u64| (*max != UNLIMITED).then_some(*max);
        (element > 0).then(|| Dataset {
            id,
            header,
            element,
            has_members,
            file_type: parts.file_type,
            max_dims: parts.max_dims.iter().map(limit).collect(),
            filtered: (parts.storage.chunk.as_deref())
                .map(|chunk| shown_shape(chunk, element as u64)),
            chunk: parts.storage.chunk,
            filters: parts.storage.filters,
            has_foreign_filters: parts.storage.has_foreign_filters,
            fill: parts.storage.fill,
            wanted,
            extent: Mutex::new(Extent::new(parts.dims)),
            version: AtomicU64::new(next_version()),
            is_written: AtomicBool::new(false),
            same_type: AtomicI64::new(-1),
        })
    }

    /// The present extent.
    pub fn dims(&self) -> Arc<[u64]> {
        Arc::clone(&self.extent.lock().dims)
    }

    /// The present extent, for a call that keeps it for the next call. Most calls find the kept one unchanged, and need neither a
    /// lock nor a reference count.
    pub fn found_dims<'a>(&self, found: &'a mut FoundExtent) -> &'a [u64] {
        if found.version != self.version.load(Ordering::Acquire) {
            let extent = self.extent.lock();
            found.dims = Arc::clone(&extent.dims);
            found.version = self.version.load(Ordering::Relaxed);
        }
        &found.dims
    }

    /// Whether `dims` is an extent that libhdf5 would accept.
    pub fn can_have(&self, dims: &[u64]) -> bool {
        let mut sides = dims.iter().zip(&self.max_dims);
        self.chunk.is_some() && sides.all(|(side, max)| max.is_none_or(|max| *side <= max))
    }

    /// The present extent and its history.
    pub fn extent(&self) -> Extent {
        self.extent.lock().clone()
    }

    /// Records a new extent.
    pub fn set_extent(&self, extent: Extent) {
        let mut present = self.extent.lock();
        *present = extent;
        self.version.store(next_version(), Ordering::Release);
    }

    /// Records that earlier jobs have written to the dataset. `reached`: its largest extent, if known.
    pub fn set_earlier(&self, reached: Option<&Vec<u64>>) {
        self.extent.lock().set_earlier(reached);
    }

    /// The storage form of the elements.
    pub fn form(&self) -> Form<'_> {
        Form {
            element: self.element as u64,
            chunk: self.filtered.as_deref(),
            filters: &self.filters,
        }
    }

    /// The properties that entries depend on, with this extent.
    pub fn info<'a>(&self, dims: &'a [u64]) -> DatasetInfo<'a> {
        DatasetInfo::new(self.id, dims, &self.max_dims).with_filters(&self.filters)
    }

    /// Records that elements were written.
    pub fn set_written(&self) {
        self.is_written.store(true, Ordering::Relaxed);
    }

    /// Whether an element was written.
    pub fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// The size of all elements of an extent, in bytes.
    pub fn bytes(&self, dims: &[u64]) -> u64 {
        let elements = dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
        elements.saturating_mul(self.element as u64)
    }
}

/// The chunk shape in which readers see a dataset with this chunk shape. HDF5 2.0 allows chunks of 4 GiB and more;
/// readers are shown smaller chunks in their place.
fn shown_shape(chunk: &[u64], element: u64) -> Vec<u64> {
    /// About the size of these smaller chunks, in bytes.
    const USUAL: u64 = 1 << 20;
    let bytes = |chunk: &[u64]| {
        chunk
            .iter()
            .fold(element, |n, side| n.saturating_mul(*side))
    };
    let mut shape = chunk.to_vec();
    if bytes(chunk) > u32::MAX.into() {
        while bytes(&shape) > USUAL
            && let Some(side) = shape.iter_mut().find(|side| **side > 1)
        {
            *side = side.div_ceil(2);
        }
    }
    shape
}

/// The extent of a dataspace and its maximum. `None` if it is a null dataspace.
pub fn extent_of(f: &Functions, space: Id) -> Option<(Vec<u64>, Vec<u64>)> {
    const NULL: c_int = 2;
    // SAFETY: the library checks any identifier.
    let is_null = unsafe { (f.H5Sget_simple_extent_type)(space) } == NULL;
    (!is_null)
        .then(|| Space::new(f, space).extent().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_4_gib_are_shown_as_smaller_ones() {
        for (chunk, element, shown) in [
            (&[1 << 20, 4][..], 8, &[1 << 20, 4][..]),
            (&[(1 << 32) - 1], 1, &[(1 << 32) - 1]),
            (&[1 << 32], 1, &[1 << 20]),
            (&[3, 1 << 32], 2, &[1, 1 << 19]),
            (&[5, 3 << 30], 1, &[1, 3 << 18]),
            (&[1, u64::MAX], u64::MAX, &[1, 1]),
        ] {
            assert_eq!(shown_shape(chunk, element), shown);
        }
    }
}
