//! The libhdf5 calls that tests need. A failing call fails the test.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use hdf5_metno_sys::h5a::*;
use hdf5_metno_sys::h5d::*;
use hdf5_metno_sys::h5f::*;
use hdf5_metno_sys::h5g::*;
use hdf5_metno_sys::h5i::{H5Idec_ref, hid_t};
use hdf5_metno_sys::h5l::*;
use hdf5_metno_sys::h5o::*;
use hdf5_metno_sys::h5p::*;
use hdf5_metno_sys::h5s::*;
use hdf5_metno_sys::h5t::*;

pub const DEFAULT: hid_t = H5P_DEFAULT;

/// Calls libhdf5 under its process-wide lock. A negative result fails the test.
macro_rules! call {
    ($call:expr) => {{
        // SAFETY: identifiers are alive, and pointers lead to memory of the size passed to the call.
        let result = hdf5::sync::sync(|| unsafe { $call });
        #[allow(clippy::cast_lossless)]
        let failed = (result as i64) < 0;
        if failed {
            let why = hdf5::Error::query().map_or_else(|_| "?".to_owned(), |e| e.to_string());
            panic!("{}: {why}", stringify!($call));
        }
        result
    }};
}
pub(crate) use call;

/// An identifier, released when dropped.
#[derive(Debug)]
pub struct Id(hid_t);

impl Id {
    /// Takes over an identifier just returned by a call.
    pub fn own(id: hid_t) -> Self {
        assert!(id >= 0);
        Id(id)
    }

    pub fn get(&self) -> hid_t {
        self.0
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive and ours.
        hdf5::sync::sync(|| unsafe { H5Idec_ref(self.0) });
    }
}

pub fn text(name: &str) -> CString {
    CString::new(name).unwrap()
}

fn path_text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

// --- files, groups, links ------------------------------------------------------------------------

pub fn property_list(class: hid_t) -> Id {
    Id(call!(H5Pcreate(class)))
}

/// Creation properties of a dataset.
pub fn dataset_properties() -> Id {
    property_list(class_of(H5P_CLS_DATASET_CREATE))
}

pub fn group_properties() -> Id {
    property_list(class_of(H5P_CLS_GROUP_CREATE))
}

pub fn type_properties() -> Id {
    property_list(class_of(H5P_CLS_DATATYPE_CREATE))
}

/// The classes of property lists exist only after libhdf5 is initialized.
fn class_of(class: &'static hid_t) -> hid_t {
    hdf5::sync::sync(|| *class)
}

/// Creates a file. `latest` uses the newest format that libhdf5 knows.
pub fn create_file(path: &Path, user_block: u64, latest: bool) -> Id {
    let creation = property_list(class_of(H5P_CLS_FILE_CREATE));
    call!(H5Pset_userblock(creation.0, user_block));
    create_file_with(path, &creation, latest)
}

pub fn file_properties() -> Id {
    property_list(class_of(H5P_CLS_FILE_CREATE))
}

pub fn create_file_with(path: &Path, creation: &Id, latest: bool) -> Id {
    let access = property_list(class_of(H5P_CLS_FILE_ACCESS));
    let low = if latest {
        H5F_LIBVER_LATEST
    } else {
        H5F_libver_t::H5F_LIBVER_EARLIEST
    };
    call!(H5Pset_libver_bounds(access.0, low, H5F_LIBVER_LATEST));
    let path = path_text(path);
    Id(call!(H5Fcreate(
        path.as_ptr(),
        H5F_ACC_TRUNC,
        creation.0,
        access.0
    )))
}

pub fn open_file(path: &Path) -> Id {
    let path = path_text(path);
    Id(call!(H5Fopen(path.as_ptr(), H5F_ACC_RDONLY, DEFAULT)))
}

pub fn open_file_to_change(path: &Path) -> Id {
    let path = path_text(path);
    Id(call!(H5Fopen(path.as_ptr(), H5F_ACC_RDWR, DEFAULT)))
}

pub fn create_group(parent: &Id, name: &str) -> Id {
    create_group_with(parent, name, DEFAULT)
}

pub fn create_group_with(parent: &Id, name: &str, creation: hid_t) -> Id {
    let name = text(name);
    Id(call!(H5Gcreate2(
        parent.0,
        name.as_ptr(),
        DEFAULT,
        creation,
        DEFAULT
    )))
}

/// Any object, by path.
pub fn open(parent: &Id, path: &str) -> Id {
    let path = text(path);
    Id(call!(H5Oopen(parent.0, path.as_ptr(), DEFAULT)))
}

pub fn link_exists(parent: &Id, name: &str) -> bool {
    let name = text(name);
    call!(H5Lexists(parent.0, name.as_ptr(), DEFAULT)) > 0
}

pub fn hard_link(from: &Id, target: &str, parent: &Id, name: &str) {
    let (target, name) = (text(target), text(name));
    call!(H5Lcreate_hard(
        from.0,
        target.as_ptr(),
        parent.0,
        name.as_ptr(),
        DEFAULT,
        DEFAULT
    ));
}

pub fn soft_link(target: &str, parent: &Id, name: &str) {
    let (target, name) = (text(target), text(name));
    call!(H5Lcreate_soft(
        target.as_ptr(),
        parent.0,
        name.as_ptr(),
        DEFAULT,
        DEFAULT
    ));
}

pub fn external_link(file: &str, target: &str, parent: &Id, name: &str) {
    let (file, target, name) = (text(file), text(target), text(name));
    call!(H5Lcreate_external(
        file.as_ptr(),
        target.as_ptr(),
        parent.0,
        name.as_ptr(),
        DEFAULT,
        DEFAULT
    ));
}

pub fn delete_link(parent: &Id, name: &str) {
    let name = text(name);
    call!(H5Ldelete(parent.0, name.as_ptr(), DEFAULT));
}

/// Address of an object's header, relative to the end of the user block.
pub fn address(object: &Id) -> u64 {
    info(object).addr
}

pub fn info(object: &Id) -> H5O_info1_t {
    let mut info = H5O_info1_t::default();
    let fields = H5O_INFO_BASIC | H5O_INFO_TIME | H5O_INFO_NUM_ATTRS | H5O_INFO_HDR;
    call!(H5Oget_info2(object.0, &mut info, fields));
    info
}

// --- datatypes -----------------------------------------------------------------------------------

/// A copy of one of libhdf5's own types.
pub fn standard(datatype: &'static hid_t) -> Id {
    let datatype = hdf5::sync::sync(|| *datatype);
    Id(call!(H5Tcopy(datatype)))
}

pub fn string_type(size: usize) -> Id {
    let datatype = standard(H5T_C_S1);
    call!(H5Tset_size(datatype.0, size));
    datatype
}

pub fn compound_type(size: usize, members: &[(&str, usize, &Id)]) -> Id {
    let datatype = Id(call!(H5Tcreate(H5T_class_t::H5T_COMPOUND, size)));
    for (name, offset, member) in members {
        let name = text(name);
        call!(H5Tinsert(datatype.0, name.as_ptr(), *offset, member.0));
    }
    datatype
}

pub fn array_type(base: &Id, dims: &[u64]) -> Id {
    Id(call!(H5Tarray_create2(
        base.0,
        dims.len() as u32,
        dims.as_ptr()
    )))
}

pub fn sequence_type(base: &Id) -> Id {
    Id(call!(H5Tvlen_create(base.0)))
}

pub fn opaque_type(size: usize, tag: &str) -> Id {
    let datatype = Id(call!(H5Tcreate(H5T_class_t::H5T_OPAQUE, size)));
    let tag = text(tag);
    call!(H5Tset_tag(datatype.0, tag.as_ptr()));
    datatype
}

/// An enumeration on 16-bit integers.
pub fn enum_type() -> Id {
    let base = standard(H5T_STD_I16LE);
    let datatype = Id(call!(H5Tenum_create(base.0)));
    for (name, value) in [("red", 1i16), ("green", -2)] {
        let name = text(name);
        call!(H5Tenum_insert(
            datatype.0,
            name.as_ptr(),
            (&raw const value).cast()
        ));
    }
    datatype
}

pub fn commit(parent: &Id, name: &str, datatype: &Id) {
    let name = text(name);
    call!(H5Tcommit2(
        parent.0,
        name.as_ptr(),
        datatype.0,
        DEFAULT,
        DEFAULT,
        DEFAULT
    ));
}

pub fn type_size(datatype: &Id) -> usize {
    call!(H5Tget_size(datatype.0))
}

pub fn same_type(a: &Id, b: &Id) -> bool {
    call!(H5Tequal(a.0, b.0)) > 0
}

/// Whether some bytes of an element point to the rest of it.
pub fn has_pointers(datatype: &Id) -> bool {
    let has = |class| call!(H5Tdetect_class(datatype.0, class)) > 0;
    has(H5T_VLEN) || has(H5T_REFERENCE) || has_variable_strings(datatype)
}

/// Whether libhdf5 regards the type as strings of variable length.
fn has_variable_strings(datatype: &Id) -> bool {
    match call!(H5Tget_class(datatype.0)) {
        H5T_STRING => call!(H5Tis_variable_str(datatype.0)) > 0,
        H5T_COMPOUND => (0..call!(H5Tget_nmembers(datatype.0)) as u32)
            .any(|member| has_variable_strings(&Id(call!(H5Tget_member_type(datatype.0, member))))),
        H5T_ARRAY => has_variable_strings(&Id(call!(H5Tget_super(datatype.0)))),
        _ => false,
    }
}

pub fn is_committed(datatype: &Id) -> bool {
    call!(H5Tcommitted(datatype.0)) > 0
}

// --- dataspaces ----------------------------------------------------------------------------------

pub fn null_space() -> Id {
    Id(call!(H5Screate(H5S_class_t::H5S_NULL)))
}

pub fn scalar_space() -> Id {
    Id(call!(H5Screate(H5S_class_t::H5S_SCALAR)))
}

/// A simple dataspace, or a scalar if there are no dimensions.
pub fn space(dims: &[u64]) -> Id {
    if dims.is_empty() {
        scalar_space()
    } else {
        Id(call!(H5Screate_simple(
            dims.len() as i32,
            dims.as_ptr(),
            ptr::null()
        )))
    }
}

pub fn select_block(space: &Id, start: &[u64], count: &[u64], add: bool) {
    let how = if add {
        H5S_seloper_t::H5S_SELECT_OR
    } else {
        H5S_seloper_t::H5S_SELECT_SET
    };
    call!(H5Sselect_hyperslab(
        space.0,
        how,
        start.as_ptr(),
        ptr::null(),
        count.as_ptr(),
        ptr::null()
    ));
}

pub fn select_points(space: &Id, points: usize, coordinates: &[u64]) {
    call!(H5Sselect_elements(
        space.0,
        H5S_seloper_t::H5S_SELECT_SET,
        points,
        coordinates.as_ptr()
    ));
}

/// Current and maximum extent.
pub fn extent(space: &Id) -> (Vec<u64>, Vec<u64>) {
    let rank = call!(H5Sget_simple_extent_ndims(space.0)) as usize;
    let (mut dims, mut max) = (vec![0; rank], vec![0; rank]);
    call!(H5Sget_simple_extent_dims(
        space.0,
        dims.as_mut_ptr(),
        max.as_mut_ptr()
    ));
    (dims, max)
}

// --- datasets ------------------------------------------------------------------------------------

pub fn create_dataset(parent: &Id, name: &str, datatype: &Id, space: &Id, creation: &Id) -> Id {
    let name = text(name);
    Id(call!(H5Dcreate2(
        parent.0,
        name.as_ptr(),
        datatype.0,
        space.0,
        DEFAULT,
        creation.0,
        DEFAULT
    )))
}

pub fn allocate_early(creation: &Id) {
    call!(H5Pset_layout(creation.0, H5D_layout_t::H5D_CONTIGUOUS));
    call!(H5Pset_alloc_time(
        creation.0,
        H5D_alloc_time_t::H5D_ALLOC_TIME_EARLY
    ));
}

/// Writes all elements in the dataset's type.
pub fn write(dataset: &Id, bytes: &[u8]) {
    let datatype = dataset_type(dataset);
    call!(H5Dwrite(
        dataset.0,
        datatype.0,
        H5S_ALL,
        H5S_ALL,
        DEFAULT,
        bytes.as_ptr().cast()
    ));
}

/// Reads all elements in the dataset's type.
pub fn read(dataset: &Id) -> Vec<u8> {
    let (dims, _) = extent(&dataset_space(dataset));
    let elements: u64 = dims.iter().product();
    let datatype = dataset_type(dataset);
    let mut bytes = vec![0u8; elements as usize * type_size(&datatype)];
    if elements > 0 {
        call!(H5Dread(
            dataset.0,
            datatype.0,
            H5S_ALL,
            H5S_ALL,
            DEFAULT,
            bytes.as_mut_ptr().cast()
        ));
    }
    bytes
}

/// Reads a block of elements in the dataset's type.
pub fn read_block(dataset: &Id, start: &[u64], count: &[u64]) -> Vec<u8> {
    let datatype = dataset_type(dataset);
    let elements: u64 = count.iter().product();
    let mut bytes = vec![0u8; elements as usize * type_size(&datatype)];
    let (file, memory) = (dataset_space(dataset), space(count));
    select_block(&file, start, count, false);
    call!(H5Dread(
        dataset.0,
        datatype.0,
        memory.0,
        file.0,
        DEFAULT,
        bytes.as_mut_ptr().cast()
    ));
    bytes
}

pub fn dataset_type(dataset: &Id) -> Id {
    Id(call!(H5Dget_type(dataset.0)))
}

pub fn dataset_space(dataset: &Id) -> Id {
    Id(call!(H5Dget_space(dataset.0)))
}

pub fn dataset_creation(dataset: &Id) -> Id {
    Id(call!(H5Dget_create_plist(dataset.0)))
}

/// Offset of a contiguous dataset in the file.
pub fn dataset_offset(dataset: &Id) -> u64 {
    let offset = hdf5::sync::sync(|| unsafe { H5Dget_offset(dataset.0) });
    assert_ne!(offset, u64::MAX, "a dataset without a place");
    offset
}

pub fn chunk_shape(dataset: &Id) -> Vec<u64> {
    let creation = dataset_creation(dataset);
    let mut shape = vec![0; 32];
    let rank = call!(H5Pget_chunk(creation.0, 32, shape.as_mut_ptr()));
    shape.truncate(rank as usize);
    shape
}

/// The numbers of a dataset's filters.
pub fn filter_ids(dataset: &Id) -> Vec<i32> {
    let creation = dataset_creation(dataset);
    let count = call!(H5Pget_nfilters(creation.0)) as u32;
    let (mut flags, mut config) = (0, 0);
    (0..count)
        .map(|number| {
            let mut values = 0;
            call!(H5Pget_filter2(
                creation.0,
                number,
                &mut flags,
                &mut values,
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                &mut config
            ))
        })
        .collect()
}

// --- attributes ----------------------------------------------------------------------------------

/// Creates an attribute from values in memory of type `datatype`.
pub fn attribute(object: &Id, name: &str, datatype: &Id, space: &Id, bytes: &[u8]) {
    let name = text(name);
    let attribute = Id(call!(H5Acreate2(
        object.0,
        name.as_ptr(),
        datatype.0,
        space.0,
        DEFAULT,
        DEFAULT
    )));
    if !bytes.is_empty() {
        call!(H5Awrite(attribute.0, datatype.0, bytes.as_ptr().cast()));
    }
}

pub fn open_attribute(object: &Id, name: &str) -> Id {
    let name = text(name);
    Id(call!(H5Aopen(object.0, name.as_ptr(), DEFAULT)))
}

pub fn has_attribute(object: &Id, name: &str) -> bool {
    let name = text(name);
    call!(H5Aexists(object.0, name.as_ptr())) > 0
}

pub fn attribute_type(attribute: &Id) -> Id {
    Id(call!(H5Aget_type(attribute.0)))
}

/// The values of an attribute in its type.
pub fn read_attribute(object: &Id, name: &str) -> Vec<u8> {
    let attribute = open_attribute(object, name);
    let datatype = attribute_type(&attribute);
    let space = Id(call!(H5Aget_space(attribute.0)));
    let (dims, _) = extent(&space);
    let elements: u64 = dims.iter().product();
    let mut bytes = vec![0u8; elements as usize * type_size(&datatype)];
    if !bytes.is_empty() {
        call!(H5Aread(attribute.0, datatype.0, bytes.as_mut_ptr().cast()));
    }
    bytes
}

/// One-dimensional integer attributes. The name of the function tells the type.
pub fn attribute_i64(object: &Id, name: &str, values: &[i64]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let shape = [values.len() as u64];
    attribute(
        object,
        name,
        &standard(H5T_STD_I64LE),
        &space(&shape),
        &bytes,
    );
}

pub fn attribute_i32(object: &Id, name: &str, values: &[i32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let shape = [values.len() as u64];
    attribute(
        object,
        name,
        &standard(H5T_STD_I32LE),
        &space(&shape),
        &bytes,
    );
}

pub fn attribute_u32(object: &Id, name: &str, values: &[u32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let shape = [values.len() as u64];
    attribute(
        object,
        name,
        &standard(H5T_STD_U32LE),
        &space(&shape),
        &bytes,
    );
}
