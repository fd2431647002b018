//! What a program selects by dataspaces of its libhdf5: as blocks of a dataset, and as places in memory.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI64, Ordering};

use h5logfs_host::types::Id;
use h5logfs_output::{Blocks, Selection};

use crate::library::Functions;

/// `H5S_ALL`.
pub const ALL: Id = 0;
/// `H5S_BLOCK`: the elements follow each other in memory.
const BLOCK: Id = 1;
/// `H5S_PLIST`: the selection is in the data transfer property list.
const PROPERTY_LIST: Id = 2;

/// `H5S_MAX_RANK`.
const MOST_DIMS: usize = 32;

/// `H5S_sel_type`.
mod kind {
    pub const NONE: super::c_int = 0;
    pub const POINTS: super::c_int = 1;
    pub const ALL: super::c_int = 3;
}

type Numbers = [u64; MOST_DIMS];

/// A box of elements.
struct Box {
    start: Numbers,
    count: Numbers,
}

/// A dataspace of the program.
#[derive(Clone, Copy)]
pub struct Space<'a> {
    f: &'a Functions,
    pub id: Id,
}

impl<'a> Space<'a> {
    /// A dataspace that is none of the special numbers.
    pub fn new(f: &'a Functions, id: Id) -> Self {
        Space { f, id }
    }

    /// The extent and its limits. A scalar and a null dataspace have no dimensions.
    pub fn extent(self) -> Result<(Vec<u64>, Vec<u64>), String> {
        let (mut dims, mut max_dims): (Numbers, Numbers) = ([0; MOST_DIMS], [0; MOST_DIMS]);
        // SAFETY: both have room for the most dimensions.
        let rank = unsafe {
            (self.f.H5Sget_simple_extent_dims)(self.id, dims.as_mut_ptr(), max_dims.as_mut_ptr())
        };
        let rank = checked_rank(rank)?;
        Ok((dims[..rank].to_vec(), max_dims[..rank].to_vec()))
    }

    fn rank(self) -> Result<usize, String> {
        // SAFETY: the library answers for any identifier.
        checked_rank(unsafe { (self.f.H5Sget_simple_extent_ndims)(self.id) })
    }

    fn kind(self) -> c_int {
        // SAFETY: the library answers for any identifier.
        unsafe { (self.f.H5Sget_select_type)(self.id) }
    }

    /// The number of elements that are selected.
    pub fn elements(self) -> Result<u64, String> {
        // SAFETY: the library answers for any identifier.
        let number = unsafe { (self.f.H5Sget_select_npoints)(self.id) };
        u64::try_from(number).map_err(|_| "a dataspace without a selection".into())
    }

    /// The box that is selected, where the selection is one, in row-major order.
    fn one_box(self, rank: usize) -> Result<Option<Box>, String> {
        let elements = self.elements()?;
        let mut found = Box {
            start: [0; MOST_DIMS],
            count: [0; MOST_DIMS],
        };
        // SAFETY: both have room for the most dimensions.
        let status = unsafe {
            (self.f.H5Sget_select_bounds)(
                self.id,
                found.start.as_mut_ptr(),
                found.count.as_mut_ptr(),
            )
        };
        if status < 0 {
            return Err("a selection that reaches out of its dataspace".into());
        }
        let mut in_bounds = 1u64;
        for (count, start) in found.count.iter_mut().zip(&found.start).take(rank) {
            // The bounds are the first and the last element.
            *count = (*count).wrapping_sub(*start).wrapping_add(1);
            in_bounds = in_bounds.saturating_mul(*count);
        }
        Ok((in_bounds == elements).then_some(found))
    }

    /// Lists what is selected as blocks of a dataset of extent `dims`, in the order of the elements. `is_known`: it has as
    /// many dimensions.
    fn blocks(self, dims: &[u64], is_known: bool, blocks: &mut Blocks) -> Result<(), String> {
        let rank = if is_known { dims.len() } else { self.rank()? };
        if rank != dims.len() {
            return Err(format!(
                "a selection of {rank} dimensions in a dataset of {}",
                dims.len()
            ));
        }
        match self.kind() {
            kind::NONE => blocks.set(
                &Selection::Blocks {
                    starts: &[],
                    counts: &[],
                },
                &[1],
            ),
            _ if rank == 0 => blocks.set(&Selection::All, dims),
            kind::POINTS => self.points(rank, dims, blocks),
            _ => match self.one_box(rank)? {
                Some(Box { start, count }) => {
                    let selection = Selection::block(&start[..rank], &count[..rank]);
                    blocks.set(&selection, dims)
                }
                None => self.hyperslab(rank, dims, blocks),
            },
        }
    }

    fn points(self, rank: usize, dims: &[u64], blocks: &mut Blocks) -> Result<(), String> {
        let number = self.elements()?;
        let mut points = vec![0u64; number as usize * rank];
        // SAFETY: there is room for the coordinates of all points.
        let status = unsafe {
            (self.f.H5Sget_select_elem_pointlist)(self.id, 0, number, points.as_mut_ptr())
        };
        if status < 0 {
            return Err("the selected points cannot be listed".into());
        }
        blocks.set(&Selection::Points(&points), dims)
    }

    fn hyperslab(self, rank: usize, dims: &[u64], blocks: &mut Blocks) -> Result<(), String> {
        let mut terms = [[0u64; MOST_DIMS]; 4];
        let [start, stride, count, block] = &mut terms;
        // SAFETY: all four have room for the most dimensions.
        let is_regular = unsafe {
            (self.f.H5Sis_regular_hyperslab)(self.id) > 0
                && (self.f.H5Sget_regular_hyperslab)(
                    self.id,
                    start.as_mut_ptr(),
                    stride.as_mut_ptr(),
                    count.as_mut_ptr(),
                    block.as_mut_ptr(),
                ) >= 0
        };
        // The terms lack the offset of the selection, which its bounds have.
        if !is_regular || self.first()?[..rank] != terms[0][..rank] {
            return self.sequences(rank, dims, blocks);
        }
        let [start, stride, count, block] = &terms;
        let selection = Selection::Hyperslab {
            start: &start[..rank],
            stride: &stride[..rank],
            count: &count[..rank],
            block: &block[..rank],
        };
        blocks.set(&selection, dims)
    }

    /// The least coordinates of what is selected.
    fn first(self) -> Result<Numbers, String> {
        let (mut start, mut end): (Numbers, Numbers) = ([0; MOST_DIMS], [0; MOST_DIMS]);
        // SAFETY: both have room for the most dimensions.
        let status =
            unsafe { (self.f.H5Sget_select_bounds)(self.id, start.as_mut_ptr(), end.as_mut_ptr()) };
        match status {
            0.. => Ok(start),
            _ => Err("a selection that reaches out of its dataspace".into()),
        }
    }

    /// Any selection: libhdf5 lists pieces of elements that follow each other.
    fn sequences(self, rank: usize, dims: &[u64], blocks: &mut Blocks) -> Result<(), String> {
        const AT_ONCE: usize = 1024;
        let (extent, _) = self.extent()?;
        let (mut starts, mut counts) = (Vec::new(), Vec::new());
        let mut left = self.elements()?;
        // SAFETY: elements of one byte make their numbers of the offsets. The iterator is closed below.
        let iterator = unsafe { (self.f.H5Ssel_iter_create)(self.id, 1, 0) };
        if iterator < 0 {
            return Err("the selection cannot be walked through".into());
        }
        let (mut offsets, mut lengths) = ([0u64; AT_ONCE], [0usize; AT_ONCE]);
        let mut listed = Ok(());
        while left > 0 {
            let (mut sequences, mut elements) = (0usize, 0usize);
            // SAFETY: there is room for that many sequences.
            let status = unsafe {
                (self.f.H5Ssel_iter_get_seq_list)(
                    iterator,
                    AT_ONCE,
                    left as usize,
                    &mut sequences,
                    &mut elements,
                    offsets.as_mut_ptr(),
                    lengths.as_mut_ptr(),
                )
            };
            if status < 0 || elements == 0 {
                listed = Err("the selection cannot be walked through".to_owned());
                break;
            }
            for (offset, length) in offsets.iter().zip(&lengths).take(sequences) {
                rows(&extent, *offset, *length as u64, &mut starts, &mut counts);
            }
            left -= elements as u64;
        }
        // SAFETY: it was created above.
        unsafe { (self.f.H5Ssel_iter_close)(iterator) };
        listed?;
        debug_assert_eq!(starts.len() % rank, 0);
        let selection = Selection::Blocks {
            starts: &starts,
            counts: &counts,
        };
        blocks.set(&selection, dims)
    }
}

fn checked_rank(rank: c_int) -> Result<usize, String> {
    let rank = usize::try_from(rank).ok().filter(|rank| *rank <= MOST_DIMS);
    rank.ok_or_else(|| "a dataspace without an extent".into())
}

/// Adds the rows of `length` elements from the element `offset` on, in row-major order of an extent.
fn rows(extent: &[u64], offset: u64, length: u64, starts: &mut Vec<u64>, counts: &mut Vec<u64>) {
    let Some(row) = extent.last().copied().filter(|row| *row > 0) else {
        return;
    };
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let within = (row - at % row).min(end - at);
        let first = starts.len();
        starts.resize(first + extent.len(), 0);
        let mut rest = at;
        for (d, side) in extent.iter().enumerate().rev() {
            starts[first + d] = rest % side;
            rest /= side;
        }
        counts.resize(first + extent.len() - 1, 1);
        counts.push(within);
        at += within;
    }
}

/// Lists what is selected of a dataset of extent `dims`; `space` may be [`ALL`]. `known`: the dataspace that was used
/// last, whose number of dimensions is that of the dataset.
pub fn dataset_blocks(
    f: &Functions,
    space: Id,
    known: &AtomicI64,
    dims: &[u64],
    blocks: &mut Blocks,
) -> Result<(), String> {
    match space {
        ALL => blocks.set(&Selection::All, dims),
        PROPERTY_LIST => Err("H5S_PLIST is not supported for logged datasets".into()),
        _ => {
            let is_known = known.load(Ordering::Relaxed) == space;
            Space::new(f, space).blocks(dims, is_known, blocks)?;
            known.store(space, Ordering::Relaxed);
            Ok(())
        }
    }
}

/// Where the selected elements lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// They follow each other, from this one on.
    From(u64),
    /// As a dataspace selects them.
    Selected(Id),
}

/// Where `elements` selected elements of a dataset lie in memory. As `H5Dread` and `H5Dwrite` take their dataspaces: a
/// memory space of [`ALL`] is the file space.
pub fn memory_place(f: &Functions, memory: Id, file: Id, elements: u64) -> Result<Place, String> {
    let id = match (memory, file) {
        (ALL, ALL) | (BLOCK, _) => return Ok(Place::From(0)),
        (ALL, file) => file,
        (PROPERTY_LIST, _) => return Err("H5S_PLIST is not supported for logged datasets".into()),
        (memory, _) => memory,
    };
    let space = Space::new(f, id);
    let selected = space.elements()?;
    if selected != elements {
        return Err(format!(
            "{selected} elements are selected in memory, and {elements} in the dataset"
        ));
    }
    let selection = space.kind();
    if elements == 0 || selection == kind::ALL {
        return Ok(Place::From(0));
    }
    if selection == kind::POINTS {
        return Ok(Place::Selected(id));
    }
    let rank = space.rank()?;
    let Some(Box { start, count }) = space.one_box(rank)? else {
        return Ok(Place::Selected(id));
    };
    let (extent, _) = space.extent()?;
    // In one piece: behind the first dimension with more than one index, all of each.
    let first = count[..rank].iter().position(|count| *count > 1);
    let is_whole = first.is_none_or(|d| count[d + 1..rank] == extent[d + 1..]);
    if !is_whole {
        return Ok(Place::Selected(id));
    }
    let index = extent.iter().zip(&start);
    Ok(Place::From(
        index.fold(0, |index, (side, start)| index * side + start),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_into_rows() {
        let (mut starts, mut counts) = (Vec::new(), Vec::new());
        rows(&[2, 3, 4], 10, 7, &mut starts, &mut counts);
        assert_eq!(starts, [0, 2, 2, 1, 0, 0, 1, 1, 0]);
        assert_eq!(counts, [1, 1, 2, 1, 1, 4, 1, 1, 1]);
    }
}
