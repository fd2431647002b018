//! A logged dataset: what its elements are, and whether they can be logged.

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

/// A logged dataset, which all handles of it share.
#[derive(Debug)]
pub struct Dataset {
    /// Its number in the log.
    pub id: u32,
    /// Address of its object header in the metadata image.
    pub header: u64,
    /// The type of the elements in the file.
    pub file_type: Arc<OwnedType>,
    /// Bytes of one element in the file.
    pub element: usize,
    /// Elements have members, and a program may write some of them.
    pub has_members: bool,
    /// The limits of the extent; `None` is unlimited.
    pub max_dims: Vec<Option<u64>>,
    /// Chunk shape, where it has chunks.
    pub chunk: Option<Vec<u64>>,
    /// The shape of what goes through filters as one, in its place.
    filtered: Option<Vec<u64>>,
    /// The filters with which chunks are stored.
    pub filters: Vec<Filter>,
    /// The program gave it filters that only it knows. Its elements are logged as they are.
    pub has_foreign_filters: bool,
    /// What an element is that was not written; empty for zeros.
    pub fill: Vec<u8>,
    /// What the program asked for, and the metadata image has not.
    pub wanted: Wanted,
    /// Its present extent. Nothing is called with the lock held.
    extent: Mutex<Extent>,
    /// The number of the present extent: another one, of any dataset, has another number.
    version: AtomicU64,
    /// Whether an element was written.
    is_written: AtomicBool,
    /// A predefined type that is that of the file: it never changes.
    pub same_type: AtomicI64,
}

/// What the creation property list of a program has otherwise than that of the metadata image, which has no elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `H5D_alloc_time_t`, where the metadata image has another one.
    pub allocation: Option<c_int>,
    /// `H5Pset_chunk_opts`. The metadata image has none: with `H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS` libhdf5 looks for chunks where a
    /// dataset grows, also if it has none.
    pub chunk_options: c_uint,
}

/// The extent of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Shared, so that a call can keep them while the program gives the dataset another extent.
    pub dims: Arc<[u64]>,
    /// The largest that it ever was in each dimension.
    pub reached: Vec<u64>,
    /// Whether this is true also of earlier jobs.
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

/// The extent of a dataset as a call has found it.
#[derive(Debug, Default)]
pub struct FoundExtent {
    /// Its number. No extent has 0.
    version: u64,
    dims: Arc<[u64]>,
}

/// A number that no extent has had.
fn next_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A datatype of the host's library that is no object of a file. A committed one would keep the session open in which it is
/// kept.
#[derive(Debug)]
pub struct OwnedType {
    pub id: Id,
    /// It is one of the library itself. libhdf5 counts all others among the open objects of the program.
    is_predefined: bool,
    /// Bytes of one element.
    element: usize,
    has_members: bool,
    library: Library,
}

impl OwnedType {
    /// The same as a datatype: one of the `predefined` types of the library, or a copy.
    fn like(
        library: &Library,
        f: &Functions,
        datatype: Id,
        predefined: &[Id],
    ) -> Result<Self, Fault> {
        // SAFETY (all calls here): the library answers for any identifier.
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

/// The types of the datasets that were made last. Programs make many datasets of one type.
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
        // Its end is a call of libhdf5.
        drop(oldest);
    }

    /// The same as a datatype: one that is equal, or a copy. `predefined`: types of the library.
    pub fn like(
        &self,
        library: &Library,
        f: &Functions,
        datatype: Id,
        predefined: &[Id],
    ) -> Result<Arc<OwnedType>, Fault> {
        // libhdf5 is not called with the lock held.
        let recent = self.0.lock().clone();
        // SAFETY: the library answers for any identifier.
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
        // SAFETY: the identifier is ours, and closed once.
        self.library.nested(|f| unsafe { (f.H5Tclose)(self.id) });
    }
}

/// What a dataset of the metadata image is made of.
#[derive(Debug)]
pub struct Parts {
    pub file_type: Arc<OwnedType>,
    pub dims: Vec<u64>,
    pub max_dims: Vec<u64>,
    pub storage: Storage,
}

/// What its creation property list says.
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

/// Filters that only libhdf5 applies: szip, n-bit, scale-offset. The elements of such a dataset are not logged
/// where one process writes.
const ONLY_NATIVE: std::ops::RangeInclusive<u16> = 4..=6;
/// Filters that every libhdf5 has: from `H5Z_FILTER_DEFLATE` to `H5Z_FILTER_SCALEOFFSET`.
const OF_THE_LIBRARY: std::ops::RangeInclusive<c_int> = 1..=6;
/// `H5S_UNLIMITED`.
const UNLIMITED: u64 = u64::MAX;

/// Whether elements of a type can be logged: they have a fixed size, and mean the same in another file.
pub fn is_loggable_type(f: &Functions, datatype: Id) -> bool {
    // SAFETY (all calls here): the library answers for any identifier; those that it gives are closed.
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
        // Later versions have more classes, which our readers may not know.
        0..=class::LAST => class != class::LAST,
        _ => false,
    }
}

/// A creation property list, and what is looked for in it several times: libhdf5 takes a while for each question.
pub struct Creation {
    list: Id,
    /// `H5D_layout_t`.
    pub layout: c_int,
    filters: Vec<Filter>,
}

impl Creation {
    /// What a list says.
    pub fn of(f: &Functions, list: Id) -> Self {
        Creation {
            list,
            // SAFETY: the library answers for any identifier.
            layout: unsafe { (f.H5Pget_layout)(list) },
            filters: filters(f, list),
        }
    }

    /// Whether a new dataset can be logged. `is_parallel`: of several ranks.
    pub fn is_loggable(&self, f: &Functions, is_parallel: bool) -> bool {
        let stays = match self.layout {
            // All ranks write a compact dataset together, each with its own values.
            layout::COMPACT => !is_parallel,
            layout::VIRTUAL => true,
            // libhdf5 refuses chunks in external files.
            layout::CHUNKED => false,
            // SAFETY: the library answers for any identifier.
            _ => unsafe { (f.H5Pget_external_count)(self.list) > 0 },
        };
        let is_native =
            |filter: &Filter| u16::try_from(filter.id).is_ok_and(|id| ONLY_NATIVE.contains(&id));
        // Elements that stay in the metadata image are not written by several ranks: these are logged as they are.
        let has_native_filter = !is_parallel && self.filters.iter().any(is_native);
        !stays && !has_native_filter
    }
}

/// Takes the filters that only this program may know out of a creation property list. The program that shows and closes
/// the log could not read what went through them.
pub fn remove_foreign_filters(f: &Functions, dcpl: Id) {
    for filter in filters(f, dcpl) {
        if !OF_THE_LIBRARY.contains(&filter.id) {
            // SAFETY: the list is ours.
            unsafe { (f.H5Premove_filter)(dcpl, filter.id) };
        }
    }
}

fn filters(f: &Functions, dcpl: Id) -> Vec<Filter> {
    // SAFETY: the library answers for any identifier.
    let number = unsafe { (f.H5Pget_nfilters)(dcpl) }.max(0);
    let filter = |n| {
        let (mut flags, mut count, mut config) = (0 as c_uint, 0usize, 0 as c_uint);
        let get =
            |flags: &mut c_uint, count: &mut usize, values: *mut c_uint, config: &mut c_uint| {
                // SAFETY: there is room for `count` values, and none for a name.
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
    /// Of a dataset that was made with this list, of elements of this type.
    pub fn of(f: &Functions, creation: Creation, datatype: &OwnedType) -> Self {
        const USER_DEFINED: c_int = 2;
        /// `H5D_FILL_TIME_NEVER`: what was not written is zeros.
        const NEVER: c_int = 1;
        let Creation {
            list: dcpl,
            layout,
            filters,
        } = creation;
        let mut chunk = [0u64; 32];
        // SAFETY (all calls here): there is room for the most dimensions, and for one element.
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
        // With another one the elements are logged as they are, and shown without filters.
        let can_apply = filters.iter().all(Filter::can_apply);
        Storage {
            chunk,
            filters: if can_apply { filters } else { Vec::new() },
            has_foreign_filters: !can_apply,
            fill,
        }
    }

    /// Whether chunks are filtered, also by filters that are not applied here.
    pub fn has_filters(&self) -> bool {
        self.has_foreign_filters || !self.filters.is_empty()
    }
}

impl Dataset {
    /// A dataset whose elements can be logged. `None` where they cannot.
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

    /// Its present extent.
    pub fn dims(&self) -> Arc<[u64]> {
        Arc::clone(&self.extent.lock().dims)
    }

    /// The same for a call that keeps what it has found for the next one, which mostly finds it again: then there is nothing to
    /// lock and to count.
    pub fn found_dims<'a>(&self, found: &'a mut FoundExtent) -> &'a [u64] {
        if found.version != self.version.load(Ordering::Acquire) {
            let extent = self.extent.lock();
            found.dims = Arc::clone(&extent.dims);
            found.version = self.version.load(Ordering::Relaxed);
        }
        &found.dims
    }

    /// Whether it can have this extent, as far as libhdf5 looks at that.
    pub fn can_have(&self, dims: &[u64]) -> bool {
        let mut sides = dims.iter().zip(&self.max_dims);
        self.chunk.is_some() && sides.all(|(side, max)| max.is_none_or(|max| *side <= max))
    }

    /// What is known of its present extent.
    pub fn extent(&self) -> Extent {
        self.extent.lock().clone()
    }

    /// Takes note of a new extent.
    pub fn set_extent(&self, extent: Extent) {
        let mut present = self.extent.lock();
        *present = extent;
        self.version.store(next_version(), Ordering::Release);
    }

    /// Takes note that earlier jobs have written to it. `reached`: how far, if that is known.
    pub fn set_earlier(&self, reached: Option<&Vec<u64>>) {
        self.extent.lock().set_earlier(reached);
    }

    /// How its elements are stored.
    pub fn form(&self) -> Form<'_> {
        Form {
            element: self.element as u64,
            chunk: self.filtered.as_deref(),
            filters: &self.filters,
        }
    }

    /// What its entries depend on, with this extent.
    pub fn info<'a>(&self, dims: &'a [u64]) -> DatasetInfo<'a> {
        DatasetInfo::new(self.id, dims, &self.max_dims).with_filters(&self.filters)
    }

    /// Takes note that elements were written.
    pub fn set_written(&self) {
        self.is_written.store(true, Ordering::Relaxed);
    }

    /// Whether an element was written.
    pub fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Bytes of all elements of an extent.
    pub fn bytes(&self, dims: &[u64]) -> u64 {
        let elements = dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
        elements.saturating_mul(self.element as u64)
    }
}

/// The shape of chunks in which readers see a dataset that was made with this one: HDF5 2.0 has chunks of 4 GiB and more, which no
/// reader is shown.
fn shown_shape(chunk: &[u64], element: u64) -> Vec<u64> {
    /// About as large as the chunks that readers are shown.
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

/// The extent of a dataspace, and whether it has elements at all.
pub fn extent_of(f: &Functions, space: Id) -> Option<(Vec<u64>, Vec<u64>)> {
    const NULL: c_int = 2;
    // SAFETY: the library answers for any identifier.
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
