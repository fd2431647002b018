//! Elements in the program's memory: contiguous, or a selected part of a larger array.

use std::borrow::Cow;

use super::spec::MemoryType;
use h5logfs_common::fault::Fault;
use h5logfs_log::journal::words::dimensions;
use h5logfs_output::{Blocks, Selection};

/// A selected part of an array in memory, for example the inner cells of a grid with ghost cells. As in HDF5, the first
/// selected element of the array goes to the first element of the dataset's selection, and so on: both in row-major order, or
/// in the order of their blocks or points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySpace<'a> {
    /// Extent of the array, which is row-major.
    pub dims: &'a [u64],
    /// The selected elements: as many as the write selects in the dataset.
    pub selection: Selection<'a>,
}

/// Elements that a program passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub data: *const u8,
    /// Number of elements at `data`.
    pub count: usize,
    /// The selected part. `None`: all elements.
    pub space: Option<MemorySpace<'a>>,
}

impl<'a> Source<'a> {
    pub fn new(data: *const u8, count: usize) -> Self {
        Source {
            data,
            count,
            space: None,
        }
    }

    pub fn of<T>(data: &[T]) -> Self {
        Self::new(data.as_ptr().cast(), data.len())
    }

    /// Selects a part of the elements.
    pub fn within(self, space: MemorySpace<'a>) -> Self {
        Source {
            space: Some(space),
            ..self
        }
    }

    /// Fails if the elements exceed any address space.
    pub fn check_size(&self, memory: &MemoryType) -> Result<(), Fault> {
        match self.count.checked_mul(memory.size) {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
            _ => Err(Fault::Refused(format!(
                "{} elements are more than an address space holds",
                self.count
            ))),
        }
    }

    /// Lists the selected blocks in `blocks`. Fails if the array has not `count` elements, or if not `wanted` elements are
    /// selected.
    pub fn select(&self, wanted: u64, blocks: &mut Blocks) -> Result<(), Fault> {
        let MemorySpace { dims, selection } = match self.space {
            Some(space) => space,
            None if self.count as u64 == wanted => return Ok(()),
            None => return Err(Fault::Refused(format!("{} elements", self.count))),
        };
        if dims.len() > MAX_DIMS {
            return Err(Fault::Refused(format!(
                "an array of {} in memory",
                dimensions(dims.len())
            )));
        }
        let elements = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        if elements != Some(self.count as u64) {
            return Err(Fault::Refused(format!(
                "{} elements in memory, where an array of the extent {dims:?} is meant,",
                self.count
            )));
        }
        let listed = blocks.set(&selection, dims);
        listed.map_err(|reason| reason.told(format!("in memory {reason};")))?;
        if blocks.elements == wanted {
            return Ok(());
        }
        Err(Fault::Refused(format!(
            "{} elements in memory ({selection}, of the extent {dims:?})",
            blocks.elements
        )))
    }

    /// The bytes of the selected elements without padding. Borrows contiguous elements without padding.
    ///
    /// # Safety
    /// `data` points to `count` elements of this datatype, which live and do not change as long as the result. `blocks` come
    /// from [`Source::select`].
    pub unsafe fn packed<'d>(&self, memory: &MemoryType, blocks: &Blocks) -> Cow<'d, [u8]> {
        let Some(space) = self.space else {
            // SAFETY: promised by the caller.
            return unsafe { memory.packed(self.data, self.count) };
        };
        let place = |run: &Run| self.data.wrapping_add(run.start * memory.size);
        let mut runs = Runs::new(space.dims, blocks).peekable();
        if let Some(run) = runs.peek()
            && run.len as u64 == blocks.elements
        {
            // SAFETY: runs lie within the array.
            return unsafe { memory.packed(place(run), run.len) };
        }
        let mut bytes = Vec::with_capacity(memory.packed_size() * blocks.elements as usize);
        for run in runs {
            // SAFETY: runs lie within the array.
            unsafe { memory.append_packed(place(&run), run.len, &mut bytes) };
        }
        Cow::Owned(bytes)
    }
}

/// Most dimensions, as in HDF5.
const MAX_DIMS: usize = 32;

/// Contiguous elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Index of the first element.
    start: usize,
    len: usize,
}

/// The runs of blocks in a row-major array, in the order of the blocks. Each run is as long as possible.
struct Runs<'a> {
    dims: &'a [u64],
    blocks: &'a Blocks,
    /// Index of the current block.
    block: usize,
    /// Index of the current run in the block, for the dimensions that it does not fill.
    at: [u64; MAX_DIMS],
    /// The previous run, which the current one may continue.
    before: Option<Run>,
}

impl<'a> Runs<'a> {
    fn new(dims: &'a [u64], blocks: &'a Blocks) -> Self {
        Runs {
            dims,
            blocks,
            block: 0,
            at: [0; MAX_DIMS],
            before: None,
        }
    }

    /// The next run in the current block.
    fn next_in_block(&mut self) -> Option<Run> {
        if self.block == self.blocks.number {
            return None;
        }
        let (start, count) = (self.blocks.start(self.block), self.blocks.count(self.block));
        let rank = self.dims.len();
        // A run spans the last dimension, and each dimension before one that the block fills.
        let filled = (1..rank).rev().take_while(|d| count[*d] == self.dims[*d]);
        let outer = rank.saturating_sub(1 + filled.count());
        let index = (0..rank).fold(0, |index, d| index * self.dims[d] + start[d] + self.at[d]);
        let run = Run {
            start: index as usize,
            len: count[outer..].iter().product::<u64>() as usize,
        };
        match (0..outer).rev().find(|d| self.at[*d] + 1 < count[*d]) {
            Some(d) => {
                self.at[d] += 1;
                self.at[d + 1..outer].fill(0);
            }
            None => {
                self.at[..outer].fill(0);
                self.block += 1;
            }
        }
        Some(run)
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        while let Some(run) = self.next_in_block() {
            match &mut self.before {
                Some(before) if before.start + before.len == run.start => before.len += run.len,
                before => {
                    if let Some(complete) = before.replace(run) {
                        return Some(complete);
                    }
                }
            }
        }
        self.before.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::datatype_of;
    use hdf5::H5Type;
    use proptest::prelude::*;

    #[derive(H5Type, Clone, Copy)]
    #[repr(C)]
    struct Padded {
        id: u64,
        kind: u8,
    }

    fn select(count: usize, space: MemorySpace<'_>, wanted: u64) -> Result<Blocks, String> {
        let source = Source::new(std::ptr::null(), count).within(space);
        let mut blocks = Blocks::default();
        let selected = source.select(wanted, &mut blocks);
        selected.map(|()| blocks).map_err(|e| e.to_string())
    }

    fn packed<'d, T: H5Type>(data: &'d [T], space: MemorySpace<'_>) -> Cow<'d, [u8]> {
        let source = Source::of(data).within(space);
        let mut blocks = Blocks::default();
        let listed = blocks.set(&space.selection, space.dims);
        listed.unwrap();
        let memory = MemoryType::new(datatype_of::<T>().unwrap()).unwrap();
        // SAFETY: the data are those of the slice, and the blocks those of the space.
        unsafe { source.packed(&memory, &blocks) }
    }

    #[test]
    fn runs_are_as_long_as_possible() {
        let runs = |dims: &[u64], selection: Selection<'_>| {
            let mut blocks = Blocks::default();
            blocks.set(&selection, dims).unwrap();
            let runs = Runs::new(dims, &blocks);
            runs.map(|r| (r.start, r.len)).collect::<Vec<_>>()
        };
        let inner = Selection::block(&[1, 1], &[2, 3]);
        assert_eq!(runs(&[4, 5], inner), [(6, 3), (11, 3)]);
        assert_eq!(runs(&[4, 5], Selection::block(&[1, 0], &[2, 5])), [(5, 10)]);
        let planes = Selection::block(&[1, 2, 0], &[2, 1, 4]);
        assert_eq!(runs(&[3, 3, 4], planes), [(20, 4), (32, 4)]);
        assert_eq!(runs(&[3, 4], Selection::All), [(0, 12)]);
        assert_eq!(runs(&[], Selection::All), [(0, 1)]);
        assert_eq!(runs(&[3], Selection::block(&[1], &[0])), []);
        // Several blocks work, too.
        let blocks = Selection::Blocks {
            starts: &[0, 3, 1, 0, 0, 0],
            counts: &[1, 2, 1, 2, 1, 1],
        };
        assert_eq!(runs(&[2, 5], blocks), [(3, 4), (0, 1)]);
    }

    #[test]
    fn what_lies_in_one_piece_is_not_copied() {
        let data: Vec<u16> = (0..12).collect();
        let borrows = |selection| {
            let space = MemorySpace {
                dims: &[3, 4],
                selection,
            };
            matches!(packed(&data, space), Cow::Borrowed(_))
        };
        assert!(borrows(Selection::block(&[1, 0], &[2, 4])));
        assert!(borrows(Selection::block(&[1, 1], &[1, 2])));
        assert!(!borrows(Selection::block(&[1, 1], &[2, 2])));
    }

    #[test]
    fn padding_stays_behind() {
        let data = [1, 2, 3, 4].map(|id| Padded { id, kind: id as u8 });
        let space = MemorySpace {
            dims: &[2, 2],
            selection: Selection::block(&[0, 1], &[2, 1]),
        };
        let wanted = [2u64, 4].map(|id| [&id.to_ne_bytes()[..], &[id as u8]].concat());
        assert_eq!(*packed(&data, space), wanted.concat());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |count, dims: &[u64], selection, wanted| {
            select(count, MemorySpace { dims, selection }, wanted).unwrap_err()
        };
        let one = Selection::block(&[0, 0], &[1, 1]);
        assert!(refused(11, &[3, 4], one, 1).contains("11 elements"));
        assert!(refused(12, &[3, 4], one, 2).contains("1 elements"));
        assert!(refused(1, &[u64::MAX, 2], one, 1).contains("1 elements"));
        assert!(refused(1, &[1; 33], one, 1).contains("33 dimensions"));
        let outside = Selection::block(&[3, 0], &[1, 1]);
        assert!(refused(12, &[3, 4], outside, 1).contains("in memory"));
    }

    /// Dimensions, each with a hyperslab: start, gap, count, block.
    fn hyperslabs() -> impl Strategy<Value = Vec<[u64; 5]>> {
        let term = (0u64..3, 0u64..3, 0u64..4, 1u64..4, 0u64..3);
        let term = term.prop_map(|(start, gap, count, block, more)| {
            let end = start + count.saturating_sub(1) * (block + gap) + block;
            [start, block + gap, count, block, end + more]
        });
        prop::collection::vec(term, 1..4)
    }

    proptest! {
        /// Compares with a loop over all elements of the array.
        #[test]
        fn selected_elements_are_packed_in_their_order(terms in hyperslabs()) {
            let of = |term: usize| terms.iter().map(|t| t[term]).collect::<Vec<u64>>();
            let (start, stride, count, block, dims) = (of(0), of(1), of(2), of(3), of(4));
            let data: Vec<u32> = (0..dims.iter().product::<u64>() as u32).collect();
            let is_selected = |index: u32| {
                let mut rest = u64::from(index);
                (0..dims.len()).rev().all(|d| {
                    let at = rest % dims[d];
                    rest /= dims[d];
                    at.checked_sub(start[d]).is_some_and(|at| {
                        at / stride[d] < count[d] && at % stride[d] < block[d]
                    })
                })
            };
            let wanted: Vec<u8> =
                data.iter().filter(|i| is_selected(**i)).flat_map(|i| i.to_ne_bytes()).collect();
            let selection = Selection::Hyperslab {
                start: &start, stride: &stride, count: &count, block: &block,
            };
            prop_assert_eq!(&*packed(&data, MemorySpace { dims: &dims, selection }), &wanted[..]);
        }
    }
}
