//! Datasets and their creation properties.

use h5logfs_hdf5_format::filters::{Filter, OPTIONAL};
use h5logfs_log::snapshot::Storage;

use super::*;

pub fn open_dataset(group: &Id, name: &CStr) -> Result<Id> {
    Id::new(h5!(H5Dopen2(group.0, name.as_ptr(), DEFAULT)))
}

pub fn dataset_space(dataset: &Id) -> Result<Space> {
    Space::of(&Id::new(h5!(H5Dget_space(dataset.0)))?)
}

pub fn dataset_type(dataset: &Id) -> Result<Id> {
    Id::new(h5!(H5Dget_type(dataset.0)))
}

pub fn dataset_creation(dataset: &Id) -> Result<Id> {
    Id::new(h5!(H5Dget_create_plist(dataset.0)))
}

/// An independent copy of creation properties, for use in another file. As with types ([`unshared`]), fill value and
/// filters may lie in the file's table of shared messages.
// The function that replaced this one came with HDF5 1.12.
#[allow(deprecated)]
pub fn unshared_creation(creation: &Id) -> Result<Id> {
    let mut len = 0;
    h5!(H5Pencode1(creation.0, ptr::null_mut(), &mut len))?;
    let mut bytes = vec![0u8; len];
    h5!(H5Pencode1(creation.0, bytes.as_mut_ptr().cast(), &mut len))?;
    let anew = Id::new(h5!(H5Pdecode(bytes.as_ptr().cast())))?;
    if storage_class(creation)? == StorageClass::Chunked {
        copy_layout(creation, &anew)?;
    }
    Ok(anew)
}

/// Copies the complete storage layout of chunked datasets. An encoded property list holds only the chunk shape. It
/// omits the kind of the chunk index, and whether chunks at the edge are filtered. The layout of chunks owns no memory.
fn copy_layout(from: &Id, to: &Id) -> Result<()> {
    /// `H5D_CRT_LAYOUT_NAME` of libhdf5.
    const LAYOUT: &CStr = c"layout";
    let mut len = 0;
    h5!(H5Pget_size(from.0, LAYOUT.as_ptr(), &mut len))?;
    // The memory is aligned like a structure of C.
    let mut layout = vec![0u64; len.div_ceil(size_of::<u64>())];
    let layout = layout.as_mut_ptr().cast();
    h5!(H5Pget(from.0, LAYOUT.as_ptr(), layout))?;
    h5!(H5Pset(to.0, LAYOUT.as_ptr(), layout)).map(drop)
}

/// Where the bytes of a contiguous dataset start, from byte 0 of the file; `None` if it has no storage.
pub fn dataset_offset(dataset: &Id) -> Result<Option<u64>> {
    let offset = unless_failed!(H5Dget_offset(dataset.0), UNDEFINED)?;
    Ok((offset != UNDEFINED).then_some(offset))
}

pub fn storage_size(dataset: &Id) -> Result<u64> {
    unless_failed!(H5Dget_storage_size(dataset.0), 0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageClass {
    Compact,
    Contiguous,
    Chunked,
    /// The elements lie in other files.
    Elsewhere,
}

pub fn storage_class(creation: &Id) -> Result<StorageClass> {
    if h5!(H5Pget_external_count(creation.0))? > 0 {
        return Ok(StorageClass::Elsewhere);
    }
    Ok(match h5!(H5Pget_layout(creation.0) as c_int)? {
        0 => StorageClass::Compact,
        1 => StorageClass::Contiguous,
        2 => StorageClass::Chunked,
        _ => StorageClass::Elsewhere,
    })
}

pub fn new_dataset_creation() -> Result<Id> {
    Id::new(h5!(H5Pcreate(*H5P_CLS_DATASET_CREATE)))
}

/// Sets the fill value. `value` is one element of the type.
pub fn set_fill_value(creation: &Id, datatype: &Id, value: &[u8]) -> Result<()> {
    if value.len() != type_size(datatype)? {
        return Err(format!("a fill value of {} bytes", value.len()).into());
    }
    h5!(H5Pset_fill_value(
        creation.0,
        datatype.0,
        value.as_ptr().cast()
    ))
    .map(drop)
}

pub fn set_storage(creation: &Id, storage: &Storage) -> Result<()> {
    match storage {
        Storage::Contiguous => set_contiguous(creation),
        Storage::Chunked(chunk) => set_chunked(creation, chunk),
    }
}

pub fn set_contiguous(creation: &Id) -> Result<()> {
    h5!(H5Pset_layout(creation.0, H5D_layout_t::H5D_CONTIGUOUS))?;
    h5!(H5Pset_alloc_time(
        creation.0,
        H5D_alloc_time_t::H5D_ALLOC_TIME_LATE
    ))
    .map(drop)
}

fn set_chunked(creation: &Id, chunk: &[u64]) -> Result<()> {
    h5!(H5Pset_chunk(
        creation.0,
        chunk.len() as c_int,
        chunk.as_ptr()
    ))?;
    h5!(H5Pset_alloc_time(
        creation.0,
        H5D_alloc_time_t::H5D_ALLOC_TIME_INCR
    ))
    .map(drop)
}

/// The chunk shape of chunked datasets.
pub fn chunk_shape(creation: &Id) -> Result<Vec<u64>> {
    let rank = h5!(H5Pget_chunk(creation.0, 0, ptr::null_mut()))?;
    let mut shape = vec![0; rank as usize];
    h5!(H5Pget_chunk(creation.0, rank, shape.as_mut_ptr()))?;
    Ok(shape)
}

/// Sets whether an object stores the times of its changes.
pub fn track_times(creation: &Id, track: bool) -> Result<()> {
    h5!(H5Pset_obj_track_times(creation.0, track.into())).map(drop)
}

pub fn has_filters(creation: &Id) -> Result<bool> {
    h5!(H5Pget_nfilters(creation.0)).map(|n| n > 0)
}

pub fn remove_filters(creation: &Id) -> Result<()> {
    const ALL: c_int = 0;
    if has_filters(creation)? {
        h5!(H5Premove_filter(creation.0, ALL)).map(drop)
    } else {
        Ok(())
    }
}

pub fn add_filter(creation: &Id, filter: &Filter) -> Result<()> {
    h5!(H5Pset_filter(
        creation.0,
        filter.id,
        filter.flags,
        filter.values.len(),
        filter.values.as_ptr()
    ))
    .map(drop)
}

/// Makes filters optional that this libhdf5 lacks, because it makes no dataset with such mandatory filters. Chunks that
/// are copied as stored need no filter.
pub fn allow_missing_filters(creation: &Id) -> Result<()> {
    for filter in filters(creation)? {
        if filter.flags & OPTIONAL == 0 && h5!(H5Zfilter_avail(filter.id))? == 0 {
            h5!(H5Pmodify_filter(
                creation.0,
                filter.id,
                filter.flags | OPTIONAL,
                filter.values.len(),
                filter.values.as_ptr()
            ))?;
        }
    }
    Ok(())
}

/// The most client data values of one filter.
pub const MOST_FILTER_VALUES: usize = 256;

/// The filters of a pipeline.
pub fn filters(creation: &Id) -> Result<Vec<Filter>> {
    let mut filters = Vec::new();
    for number in 0..h5!(H5Pget_nfilters(creation.0))? as c_uint {
        let (mut flags, mut config) = (0, 0);
        let mut count = MOST_FILTER_VALUES;
        let mut values = vec![0; MOST_FILTER_VALUES];
        let id = h5!(H5Pget_filter2(
            creation.0,
            number,
            &mut flags,
            &mut count,
            values.as_mut_ptr(),
            0,
            ptr::null_mut(),
            &mut config
        ))?;
        if count > MOST_FILTER_VALUES {
            return Err(format!("filter {id} has {count} values").into());
        }
        values.truncate(count);
        filters.push(Filter { id, flags, values });
    }
    Ok(filters)
}

/// The value of elements that were never written, as one element of the given type; empty for zeros. As in files of
/// libhdf5, a dataset whose fill value must never be written has zeros.
pub fn unwritten_value(creation: &Id, datatype: &Id) -> Result<Vec<u8>> {
    let mut time = H5D_fill_time_t::H5D_FILL_TIME_IFSET;
    h5!(H5Pget_fill_time(creation.0, &mut time))?;
    if time == H5D_fill_time_t::H5D_FILL_TIME_NEVER {
        return Ok(Vec::new());
    }
    fill_value(creation, datatype)
}

/// The fill value as one element of the given type; empty if the user defined none.
pub fn fill_value(creation: &Id, datatype: &Id) -> Result<Vec<u8>> {
    let mut state = H5D_fill_value_t::H5D_FILL_VALUE_DEFAULT;
    h5!(H5Pfill_value_defined(creation.0, &mut state))?;
    if state != H5D_fill_value_t::H5D_FILL_VALUE_USER_DEFINED {
        return Ok(Vec::new());
    }
    // The fill value lies in a message of an object header, and the length of a message has 16 bits.
    const LARGEST: usize = 1 << 16;
    let size = type_size(datatype)?;
    if size > LARGEST {
        return Err(format!("a fill value of {size} bytes").into());
    }
    let mut value = vec![0u8; size];
    h5!(H5Pget_fill_value(
        creation.0,
        datatype.0,
        value.as_mut_ptr().cast()
    ))?;
    Ok(value)
}

/// Whether unwritten elements are what a new property list makes them: the fill value, which is zero if none is set.
#[cfg(test)]
pub fn has_usual_fill(creation: &Id) -> Result<bool> {
    let mut state = H5D_fill_value_t::H5D_FILL_VALUE_DEFAULT;
    h5!(H5Pfill_value_defined(creation.0, &mut state))?;
    let mut time = H5D_fill_time_t::H5D_FILL_TIME_IFSET;
    h5!(H5Pget_fill_time(creation.0, &mut time))?;
    let is_defined = state != H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED;
    Ok(is_defined && time == H5D_fill_time_t::H5D_FILL_TIME_IFSET)
}

pub fn create_dataset(
    parent: &Id,
    link: &Link,
    datatype: &Id,
    space: &Id,
    creation: &Id,
) -> Result<Id> {
    let (name, lcpl) = link.name_and_properties()?;
    Id::new(h5!(H5Dcreate2(
        parent.0,
        name.as_ptr(),
        datatype.0,
        space.0,
        lcpl,
        creation.0,
        DEFAULT
    )))
}

/// Calls a function with each chunk of a dataset that exists: the coordinates of its first element, its filter mask,
/// its address, and its stored size in bytes.
pub fn each_chunk(
    dataset: &Id,
    rank: usize,
    mut see: impl FnMut(Vec<u64>, u32, u64, u64) -> Result<()>,
) -> Result<()> {
    let space = Id::new(h5!(H5Dget_space(dataset.0)))?;
    let mut count = 0;
    h5!(H5Dget_num_chunks(dataset.0, space.0, &mut count))?;
    for number in 0..count {
        let mut offset = vec![0; rank];
        let (mut mask, mut address, mut size) = (0, UNDEFINED, 0);
        h5!(H5Dget_chunk_info(
            dataset.0,
            space.0,
            number,
            offset.as_mut_ptr(),
            &mut mask,
            &mut address,
            &mut size
        ))?;
        if address != UNDEFINED {
            see(offset, mask, address, size)?;
        }
    }
    Ok(())
}

/// Writes a chunk in stored form, as its filters leave it. `mask` has a bit for each filter that was skipped.
pub fn write_chunk(dataset: &Id, offset: &[u64], mask: u32, stored: &[u8]) -> Result<()> {
    h5!(H5Dwrite_chunk(
        dataset.0,
        DEFAULT,
        mask,
        offset.as_ptr(),
        stored.len(),
        stored.as_ptr().cast()
    ))
    .map(drop)
}

/// Makes a dataset with these properties a virtual dataset. It shows the rows of another dataset of the file, however
/// many rows that dataset has.
#[cfg(test)]
pub fn set_rows_of(creation: &Id, source: &CStr, row: u64) -> Result<()> {
    let space = Space::with_limits(&[1, row], &[None, Some(row)]).create()?;
    let (start, unit) = ([0, 0], [1, 1]);
    let (count, block) = ([UNLIMITED, 1], [1, row]);
    select_regular(&space, [&start, &unit, &count, &block])?;
    h5!(H5Pset_virtual(
        creation.0,
        space.0,
        c".".as_ptr(),
        source.as_ptr(),
        space.0
    ))
    .map(drop)
}

/// Reads the elements of the selection `file` into the selection `memory` of `values`.
pub fn read_elements(dataset: &Id, values: &mut Values, memory: &Id, file: &Id) -> Result<()> {
    h5!(H5Dread(
        dataset.0,
        values.datatype.0,
        memory.0,
        file.0,
        DEFAULT,
        values.bytes.as_mut_ptr().cast()
    ))
    .map(drop)
}

pub fn write_elements(dataset: &Id, values: &Values, memory: &Id, file: &Id) -> Result<()> {
    h5!(H5Dwrite(
        dataset.0,
        values.datatype.0,
        memory.0,
        file.0,
        DEFAULT,
        values.bytes.as_ptr().cast()
    ))
    .map(drop)
}

/// Writes all elements of a dataset of variable-length texts. The dataspace must have as many elements as `texts`.
pub fn write_text_elements(dataset: &Id, texts: &[CString]) -> Result<()> {
    if dataset_space(dataset)?.elements() != Some(texts.len() as u64) {
        return Err("fewer or more texts than elements".into());
    }
    if texts.is_empty() {
        return Ok(());
    }
    let pointers: Vec<*const c_char> = texts.iter().map(|t| t.as_ptr()).collect();
    let datatype = dataset_type(dataset)?;
    const ALL: hid_t = 0;
    h5!(H5Dwrite(
        dataset.0,
        datatype.0,
        ALL,
        ALL,
        DEFAULT,
        pointers.as_ptr().cast()
    ))
    .map(drop)
}
