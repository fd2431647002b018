//! Lists of blocks of datasets outside of our logs: one read or write of their union with HDF5's own functions. So a
//! collective transfer remains one call, whatever each rank selects.

use std::borrow::Cow;
use std::ffi::c_void;
use std::slice;

use h5logfs_common::fault::Fault;
use h5logfs_host::lists::BlockList;
use h5logfs_host::types::{FAILURE, Id, Status};

use crate::blocks;
use crate::library::{Library, Space};
use crate::rows::{Row, add_rows, is_in_order, places, union};

/// `H5S_ALL`.
const ALL: Id = 0;
/// `H5S_SELECT_SET`, `H5S_SELECT_OR`.
const SET: i32 = 0;
const OR: i32 = 1;

/// The selection of a list in a dataset.
struct Selected {
    file: Space,
    rows: Vec<Row>,
    /// Number of elements in all blocks.
    elements: u64,
}

/// The extent of a dataset.
fn dims_of(library: &Library, space: &Space) -> Result<Vec<u64>, Fault> {
    let mut dims = [0; 32];
    // SAFETY: there is room for the most dimensions.
    let rank = library.quietly(|f| unsafe {
        (f.H5Sget_simple_extent_dims)(space.id, dims.as_mut_ptr(), std::ptr::null_mut())
    });
    let rank = usize::try_from(rank).map_err(|_| "a dataset without an extent")?;
    Ok(dims[..rank].to_vec())
}

fn too_many() -> Fault {
    "more elements than memory can hold".into()
}

/// Selects the union of all blocks.
fn select(
    library: &'static Library,
    file: Space,
    dims: &[u64],
    list: &BlockList,
) -> Result<Selected, Fault> {
    let (mut rows, mut elements, mut how) = (Vec::new(), 0u64, SET);
    for number in 0..list.number {
        // SAFETY: the list was checked, and its blocks have the rank of the dataset.
        let (start, count) = unsafe { blocks::block(list, number, dims.len()) };
        let sides = start.iter().zip(count).zip(dims);
        let is_within = |((start, count), side): ((&u64, &u64), &u64)| {
            start.checked_add(*count).is_some_and(|end| end <= *side)
        };
        if !sides.clone().all(is_within) {
            return Err(format!(
                "block {number} with start {start:?} and count {count:?} reaches out of the extent {dims:?}"
            )
            .into());
        }
        if count.contains(&0) {
            continue;
        }
        add_rows(dims, start, count, elements, &mut rows);
        let more = count.iter().try_fold(1u64, |n, side| n.checked_mul(*side));
        elements = more
            .and_then(|more| elements.checked_add(more))
            .ok_or_else(too_many)?;
        let none = std::ptr::null();
        // SAFETY: all arrays have a number for each dimension.
        let status = library.quietly(|f| unsafe {
            (f.H5Sselect_hyperslab)(file.id, how, start.as_ptr(), none, count.as_ptr(), none)
        });
        if status < 0 {
            return Err(format!("block {number} cannot be selected").into());
        }
        how = OR;
    }
    if how == SET {
        // SAFETY: this code has made the dataspace.
        library.quietly(|f| unsafe { (f.H5Sselect_none)(file.id) });
    }
    Ok(Selected {
        file,
        rows,
        elements,
    })
}

/// A dataspace of `elements` elements in memory.
fn memory_space(library: &'static Library, elements: u64) -> Result<Space, Fault> {
    // SAFETY: it has one dimension without a limit.
    let id =
        library.quietly(|f| unsafe { (f.H5Screate_simple)(1, &elements.max(1), std::ptr::null()) });
    let space = Space::new(library, id)?;
    if elements == 0 {
        // SAFETY: this code has made the dataspace.
        library.quietly(|f| unsafe { (f.H5Sselect_none)(space.id) });
    }
    Ok(space)
}

/// Size of an element in memory, in bytes.
fn size_of(library: &Library, list: &BlockList) -> Result<usize, Fault> {
    // SAFETY: the library accepts any identifier.
    match library.quietly(|f| unsafe { (f.H5Tget_size)(list.memory_type) }) {
        0 => Err("the type of the elements in memory is not a datatype".into()),
        size => Ok(size),
    }
}

/// Size of `elements` elements, in bytes.
fn bytes_of(elements: u64, size: usize) -> Result<usize, Fault> {
    let bytes = usize::try_from(elements)
        .ok()
        .and_then(|n| n.checked_mul(size));
    bytes
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(too_many)
}

/// The byte range of `len` elements from element `first` on.
fn range(first: u64, len: u64, size: usize) -> std::ops::Range<usize> {
    let begin = first as usize * size;
    begin..begin + len as usize * size
}

fn space_of(library: &'static Library, dataset: Id) -> Result<(Space, Vec<u64>), Fault> {
    // SAFETY: the library accepts any identifier.
    let id = library.quietly(|f| unsafe { (f.H5Dget_space)(dataset) });
    let space = Space::new(library, id)?;
    let dims = dims_of(library, &space)?;
    check_extent(&dims)?;
    Ok((space, dims))
}

/// Fails for a dataset with too many elements to number.
fn check_extent(dims: &[u64]) -> Result<(), Fault> {
    let elements = dims.iter().try_fold(1u64, |n, side| n.checked_mul(*side));
    elements.map(drop).ok_or_else(too_many)
}

/// Writes a list: `H5Dwrite_n`.
///
/// # Safety
///
/// The list is valid for this dataset, as its type documents.
pub unsafe fn write(
    library: &'static Library,
    dataset: Id,
    list: &BlockList,
    dxpl: Id,
) -> Result<Status, Fault> {
    let f = library.functions();
    let (file, dims) = space_of(library, dataset)?;
    blocks::check(list, dims.is_empty())?;
    let size = size_of(library, list)?;
    if dims.is_empty() && list.number > 0 {
        // A scalar has one element, which each block selects. The last one wins.
        let last = list.buf.wrapping_byte_add((list.number - 1) * size);
        // SAFETY: the program passes an element for each block.
        return Ok(unsafe { (f.H5Dwrite)(dataset, list.memory_type, ALL, ALL, dxpl, last) });
    }
    let selected = select(library, file, &dims, list)?;
    let bytes = bytes_of(selected.elements, size)?;
    check_buffer(list, bytes)?;
    let mut elements: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut number = selected.elements;
    if bytes > 0 {
        // SAFETY: the program's buffer has the elements of all blocks, and does not change during the call.
        let given = unsafe { slice::from_raw_parts(list.buf.cast::<u8>(), bytes) };
        elements = Cow::Borrowed(given);
        if !is_in_order(&selected.rows) {
            let parts = union(&selected.rows);
            number = parts.iter().map(|part| part.len).sum();
            let ordered = parts
                .iter()
                .flat_map(|part| &given[range(part.from, part.len, size)]);
            elements = Cow::Owned(ordered.copied().collect());
        }
    }
    let memory = memory_space(library, number)?;
    let buf = elements.as_ptr().cast::<c_void>();
    // SAFETY: the buffer has as many elements as are selected.
    Ok(unsafe {
        (f.H5Dwrite)(
            dataset,
            list.memory_type,
            memory.id,
            selected.file.id,
            dxpl,
            buf,
        )
    })
}

/// Reads a list: `H5Dread_n`.
///
/// # Safety
///
/// As [`write`], and the buffer is writable.
pub unsafe fn read(
    library: &'static Library,
    dataset: Id,
    list: &BlockList,
    dxpl: Id,
) -> Result<Status, Fault> {
    let f = library.functions();
    let (file, dims) = space_of(library, dataset)?;
    blocks::check(list, dims.is_empty())?;
    let size = size_of(library, list)?;
    if dims.is_empty() && list.number > 0 {
        check_buffer(list, size)?;
        // SAFETY: the program has room for an element of each block.
        unsafe {
            let status = (f.H5Dread)(dataset, list.memory_type, ALL, ALL, dxpl, list.buf);
            for number in 1..list.number {
                let place = list.buf.byte_add(number * size);
                std::ptr::copy_nonoverlapping(list.buf.cast::<u8>(), place.cast(), size);
            }
            return Ok(status);
        }
    }
    let selected = select(library, file, &dims, list)?;
    let bytes = bytes_of(selected.elements, size)?;
    check_buffer(list, bytes)?;
    if bytes == 0 || is_in_order(&selected.rows) {
        let memory = memory_space(library, selected.elements)?;
        // SAFETY: the program has room for all selected elements.
        return Ok(unsafe {
            (f.H5Dread)(
                dataset,
                list.memory_type,
                memory.id,
                selected.file.id,
                dxpl,
                list.buf,
            )
        });
    }
    let parts = union(&selected.rows);
    let number = parts.iter().map(|part| part.len).sum();
    let mut elements = vec![0; bytes_of(number, size)?];
    let memory = memory_space(library, number)?;
    let buf = elements.as_mut_ptr().cast::<c_void>();
    // SAFETY: there is room for all selected elements.
    let status = unsafe {
        (f.H5Dread)(
            dataset,
            list.memory_type,
            memory.id,
            selected.file.id,
            dxpl,
            buf,
        )
    };
    if status < 0 {
        return Ok(FAILURE);
    }
    // SAFETY: the program's buffer has room for the elements of all blocks, and nothing else uses it.
    let out = unsafe { slice::from_raw_parts_mut(list.buf.cast::<u8>(), bytes) };
    for (row, place) in selected.rows.iter().zip(places(&parts, &selected.rows)) {
        let from = &elements[range(place, row.len, size)];
        out[range(row.from, row.len, size)].copy_from_slice(from);
    }
    Ok(status)
}

fn check_buffer(list: &BlockList, bytes: usize) -> Result<(), Fault> {
    if bytes > 0 && list.buf.is_null() {
        return Err("no buffer was given".into());
    }
    Ok(())
}
