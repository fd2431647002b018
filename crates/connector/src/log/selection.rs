//! Selections by dataspaces of the program: as blocks of a dataset, and as places in memory.

use std::ffi::c_int;
use std::slice;

use h5logfs_hdf5_format::MAX_RANK;
use h5logfs_host::lists::BlockList;
use h5logfs_host::types::Id;
use h5logfs_output::lists::Lists;
use h5logfs_output::{Blocks, Selection};

use super::walks::Walks;
use crate::library::Functions;
use h5logfs_common::fault::Fault;

/// `H5S_ALL`.
pub const ALL: Id = 0;
/// `H5S_BLOCK`: the elements lie in one piece in memory.
const BLOCK: Id = 1;
/// `H5S_PLIST`: the data transfer property list holds the selection.
const PROPERTY_LIST: Id = 2;

/// `H5S_sel_type`.
mod kind {
    pub const POINTS: super::c_int = 1;
    pub const ALL: super::c_int = 3;
}

type Numbers = [u64; MAX_RANK];

/// The bounding box of a selection. libhdf5 writes the first and the last index of each dimension to these arrays. They have a
/// place more than any dataspace has dimensions, so that the number of indices written is known.
#[derive(Debug)]
pub struct SelectionBounds {
    first: [u64; MAX_RANK + 1],
    last: [u64; MAX_RANK + 1],
    rank: usize,
}

impl Default for SelectionBounds {
    fn default() -> Self {
        SelectionBounds {
            first: [0; MAX_RANK + 1],
            last: [0; MAX_RANK + 1],
            rank: 0,
        }
    }
}

impl SelectionBounds {
    /// A value that is no index. It marks places that libhdf5 has not written.
    const UNSET: u64 = u64::MAX;

    /// Reads the bounds of the selection in a dataspace of `rank` dimensions. The selection is not empty.
    #[inline]
    fn set(&mut self, space: Space<'_>, rank: usize) -> Result<(), Fault> {
        self.rank = rank;
        self.first[rank] = Self::UNSET;
        if let Some(last) = rank.checked_sub(1) {
            self.first[last] = Self::UNSET;
        }
        // SAFETY: both arrays have room for the most dimensions.
        let status = unsafe {
            (space.f.H5Sget_select_bounds)(
                space.id,
                self.first.as_mut_ptr(),
                self.last.as_mut_ptr(),
            )
        };
        if status < 0 {
            return Err(OUTSIDE.into());
        }
        let is_less = rank > 0 && self.first[rank - 1] == Self::UNSET;
        if is_less || self.first[rank] != Self::UNSET {
            space.check_rank(rank)?;
            return Err(OUTSIDE.into());
        }
        for (last, first) in self.last.iter_mut().zip(&self.first).take(rank) {
            *last = last.wrapping_sub(*first).wrapping_add(1);
        }
        Ok(())
    }

    fn start(&self) -> &[u64] {
        &self.first[..self.rank]
    }

    /// The sides of the box.
    fn count(&self) -> &[u64] {
        &self.last[..self.rank]
    }

    /// Fails if the box exceeds an extent with as many dimensions.
    fn check_within(&self, extent: &[u64]) -> Result<(), Fault> {
        let mut sides = self.start().iter().zip(self.count()).zip(extent);
        let is_within = |((start, count), side): ((&u64, &u64), &u64)| {
            start.checked_add(*count).is_some_and(|end| end <= *side)
        };
        if sides.all(is_within) {
            return Ok(());
        }
        Err(OUTSIDE.into())
    }

    /// Whether the box contains exactly `elements` elements.
    fn has(&self, elements: u64) -> bool {
        let sides = self.count().iter();
        sides.fold(1, |n: u64, side| n.saturating_mul(*side)) == elements
    }
}

/// Memory for the selections of a call. It is reused, since programs make very many small writes. It also remembers selections
/// that recur.
#[derive(Debug, Default)]
pub struct Room {
    pub selections: Selections,
    pub bounds: SelectionBounds,
}

/// The blocks of selections.
#[derive(Debug, Default)]
pub struct Selections {
    pub lists: Lists,
    walks: Walks,
}

const WITHOUT_EXTENT: &str = "a dataspace without an extent";
const OUTSIDE: &str = "a selection that reaches out of its dataspace";

/// A dataspace of the program.
#[derive(Clone, Copy)]
pub struct Space<'a> {
    f: &'a Functions,
    pub id: Id,
}

impl<'a> Space<'a> {
    /// Wraps a dataspace. `id` is none of the special numbers.
    pub fn new(f: &'a Functions, id: Id) -> Self {
        Space { f, id }
    }

    /// The extent and its maximum. Scalar and null dataspaces have no dimensions.
    pub fn extent(self) -> Result<(Vec<u64>, Vec<u64>), Fault> {
        let (mut dims, mut max_dims): (Numbers, Numbers) = ([0; MAX_RANK], [0; MAX_RANK]);
        // SAFETY: both arrays have room for the most dimensions.
        let rank = unsafe {
            (self.f.H5Sget_simple_extent_dims)(self.id, dims.as_mut_ptr(), max_dims.as_mut_ptr())
        };
        let rank = checked_rank(rank)?;
        Ok((dims[..rank].to_vec(), max_dims[..rank].to_vec()))
    }

    /// Fails if the dataspace does not have as many dimensions as a dataset.
    fn check_rank(self, wanted: usize) -> Result<(), Fault> {
        let rank = self.rank()?;
        if rank == wanted {
            return Ok(());
        }
        Err(format!("a selection of {rank} dimensions in a dataset of {wanted}").into())
    }

    fn rank(self) -> Result<usize, Fault> {
        // SAFETY: the library checks any identifier.
        checked_rank(unsafe { (self.f.H5Sget_simple_extent_ndims)(self.id) })
    }

    /// Fails if the dataspace never received an extent, not even an empty one.
    fn check_extent(self) -> Result<(), Fault> {
        const SIMPLE: c_int = 1;
        // SAFETY: the library checks any identifier.
        match unsafe { (self.f.H5Sget_simple_extent_type)(self.id) } {
            SIMPLE if self.rank()? == 0 => Err(WITHOUT_EXTENT.into()),
            0.. => Ok(()),
            _ => Err(WITHOUT_EXTENT.into()),
        }
    }

    fn kind(self) -> c_int {
        // SAFETY: the library checks any identifier.
        unsafe { (self.f.H5Sget_select_type)(self.id) }
    }

    /// The number of selected elements.
    pub fn elements(self) -> Result<u64, Fault> {
        // SAFETY: the library checks any identifier.
        let number = unsafe { (self.f.H5Sget_select_npoints)(self.id) };
        u64::try_from(number).map_err(|_| "a dataspace without a valid selection".into())
    }

    /// Lists the selection as blocks of a dataset of extent `dims`, in the order of the elements.
    #[inline]
    fn blocks<'r>(
        self,
        dims: &[u64],
        selections: &'r mut Selections,
        bounds: &mut SelectionBounds,
    ) -> Result<&'r Blocks, Fault> {
        let Selections { lists, walks } = selections;
        const NOTHING: Selection<'_> = Selection::Blocks {
            starts: &[],
            counts: &[],
        };
        let rank = dims.len();
        let elements = self.elements()?;
        if elements == 0 {
            self.check_extent()?;
            return lists.set(&NOTHING, &[1]);
        }
        if rank == 0 {
            self.check_rank(rank)?;
            return lists.set(&Selection::All, dims);
        }
        bounds.set(self, rank)?;
        // The dataspace's extent may differ from that of the dataset.
        // SAFETY: the library checks any identifier.
        if unsafe { (self.f.H5Sselect_valid)(self.id) } <= 0 {
            return Err(OUTSIDE.into());
        }
        let is_box = bounds.has(elements);
        // Several points may come in any order, even if they fill a box.
        if is_box && (elements == 1 || self.kind() != kind::POINTS) {
            return lists.set(&Selection::block(bounds.start(), bounds.count()), dims);
        }
        match self.kind() {
            kind::POINTS => self.points(elements, dims, lists),
            _ => self.hyperslab(elements, bounds, dims, walks, lists),
        }
    }

    fn points<'r>(
        self,
        number: u64,
        dims: &[u64],
        lists: &'r mut Lists,
    ) -> Result<&'r Blocks, Fault> {
        let mut points = vec![0u64; number as usize * dims.len()];
        // SAFETY: the array has room for the coordinates of all points.
        let status = unsafe {
            (self.f.H5Sget_select_elem_pointlist)(self.id, 0, number, points.as_mut_ptr())
        };
        if status < 0 {
            return Err("the selected points cannot be listed".into());
        }
        lists.set(&Selection::Points(&points), dims)
    }

    fn hyperslab<'r>(
        self,
        elements: u64,
        bounds: &SelectionBounds,
        dims: &[u64],
        walks: &'r mut Walks,
        lists: &'r mut Lists,
    ) -> Result<&'r Blocks, Fault> {
        let rank = bounds.rank;
        let mut terms = [[0u64; MAX_RANK]; 4];
        let [start, stride, count, block] = &mut terms;
        // SAFETY: all four arrays have room for the most dimensions.
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
        // These terms lack the offset of the selection (`H5Soffset_simple`), which the bounds include.
        if !is_regular || bounds.start() != &terms[0][..rank] {
            return self.walked(elements, bounds, dims, walks);
        }
        let [start, stride, count, block] = &terms;
        let selection = Selection::Hyperslab {
            start: &start[..rank],
            stride: &stride[..rank],
            count: &count[..rank],
            block: &block[..rank],
        };
        lists.set(&selection, dims)
    }

    /// Lists any selection that lies within the dataspace's own extent.
    fn walked<'r>(
        self,
        elements: u64,
        bounds: &SelectionBounds,
        dims: &[u64],
        walks: &'r mut Walks,
    ) -> Result<&'r Blocks, Fault> {
        let (extent, _) = self.extent()?;
        let blocks = walks.blocks(self.f, self.id, &extent, elements)?;
        if bounds.check_within(dims).is_ok() {
            return Ok(blocks);
        }
        // This call fails with a message that names the block.
        let (starts, counts) = (&blocks.starts[..], &blocks.counts[..]);
        Blocks::default().set(&Selection::Blocks { starts, counts }, dims)?;
        Err(OUTSIDE.into())
    }
}

fn checked_rank(rank: c_int) -> Result<usize, Fault> {
    let rank = usize::try_from(rank).ok().filter(|rank| *rank <= MAX_RANK);
    rank.ok_or_else(|| WITHOUT_EXTENT.into())
}

/// Lists a selection in a dataset of extent `dims`; `space` may be [`ALL`].
#[inline]
pub fn dataset_blocks<'r>(
    f: &Functions,
    space: Id,
    dims: &[u64],
    selections: &'r mut Selections,
    bounds: &mut SelectionBounds,
) -> Result<&'r Blocks, Fault> {
    match space {
        ALL => selections.lists.set(&Selection::All, dims),
        PROPERTY_LIST => Err("H5S_PLIST is not supported for logged datasets".into()),
        _ => Space::new(f, space).blocks(dims, selections, bounds),
    }
}

/// Lists the blocks of a program's list.
///
/// # Safety
///
/// Each array of the list has a number for each dimension of the dataset, or is null.
pub unsafe fn listed_blocks<'r>(
    list: &BlockList,
    dims: &[u64],
    lists: &'r mut Lists,
) -> Result<&'r Blocks, Fault> {
    if list.number > 0 && (list.starts.is_null() || list.counts.is_null()) {
        return Err("starts or counts is NULL".into());
    }
    // SAFETY: guaranteed by the caller.
    let arrays = |block: usize| unsafe { (*list.starts.add(block), *list.counts.add(block)) };
    let is_null = |block: &usize| {
        let (start, count) = arrays(*block);
        start.is_null() || count.is_null()
    };
    if let Some(block) = (0..list.number).find(is_null) {
        return Err(format!("starts[{block}] or counts[{block}] is NULL").into());
    }
    let rank = dims.len();
    let block = |block: usize| {
        let (start, count) = arrays(block);
        // SAFETY: neither array is null, and the caller guarantees their lengths.
        unsafe {
            (
                slice::from_raw_parts(start, rank),
                slice::from_raw_parts(count, rank),
            )
        }
    };
    lists.set_rows(list.number, block, dims)
}

/// The place of selected elements in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In one piece, from the element with this number on.
    From(u64),
    /// At the places that a dataspace selects.
    Selected(Id),
}

/// The place in memory of `elements` selected elements of a dataset. Dataspaces have the meaning that `H5Dread` and `H5Dwrite`
/// give them: if the memory space is [`ALL`], the file space selects in memory, too.
#[inline]
pub fn memory_place(
    f: &Functions,
    (memory, file): (Id, Id),
    elements: u64,
    bounds: &mut SelectionBounds,
) -> Result<Place, Fault> {
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
        )
        .into());
    }
    if elements == 0 {
        space.check_extent()?;
        return Ok(Place::From(0));
    }
    let selection = space.kind();
    if selection == kind::ALL {
        return Ok(Place::From(0));
    }
    let (extent, _) = space.extent()?;
    let rank = extent.len();
    bounds.set(space, rank)?;
    bounds.check_within(&extent)?;
    if selection == kind::POINTS || !bounds.has(elements) {
        return Ok(Place::Selected(id));
    }
    let (start, count) = (bounds.start(), bounds.count());
    // The box lies in one piece if it covers the extent in all dimensions after the first one with more than one index.
    let first = count[..rank].iter().position(|count| *count > 1);
    let is_whole = first.is_none_or(|d| count[d + 1..rank] == extent[d + 1..]);
    if !is_whole {
        return Ok(Place::Selected(id));
    }
    let index = extent.iter().zip(start);
    Ok(Place::From(
        index.fold(0, |index, (side, start)| index * side + start),
    ))
}
