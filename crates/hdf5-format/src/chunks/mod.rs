//! The chunks of a dataset and their indexes (VII): version-1 and version-2 B-trees, fixed and extensible arrays, and
//! implicit rules.

mod array;
mod extensible_array;
mod fixed_array;

use std::ops::ControlFlow;

use crate::btree2::{CHUNKS, FILTERED_CHUNKS, Tree};
use crate::dataset::{DatasetInfo, Layout};
use crate::{Dataspace, Fields, HeaderBytes, Objects, Result, btree};

/// The chunk index of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkIndex {
    /// A version-1 B-tree at this address; `None` if there is no chunk.
    BTree(Option<u64>),
    /// A single chunk.
    Single {
        /// The address of the chunk; `None` if it was not written.
        address: Option<u64>,
        /// The stored size and the filter mask, if the dataset has filters.
        filtered: Option<(u64, u32)>,
    },
    /// All chunks in order from this address on; `None` if there is no chunk.
    Implicit(Option<u64>),
    /// A fixed array.
    FixedArray(Option<u64>),
    /// An extensible array.
    ExtensibleArray(Option<u64>),
    /// A version-2 B-tree.
    BTree2(Option<u64>),
    /// An index of an unknown type, by its number (IV.A.2.i).
    Other(u8),
}

/// A chunk of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The coordinates of the first element.
    pub offset: Vec<u64>,
    /// The address of the stored bytes.
    pub address: u64,
    /// The number of stored bytes.
    pub size: u64,
    /// Bit `i` is set if filter `i` was not applied.
    pub filter_mask: u32,
}

/// The place of a chunk's bytes, as stored in an index.
#[derive(Debug, Clone, Copy)]
struct Stored {
    address: u64,
    size: u64,
    filter_mask: u32,
}

impl<B: HeaderBytes> Objects<B> {
    /// Lists the chunks of a dataset, in the order of their index. All chunks are read. Do not call this for a logged
    /// dataset in a view: its index is computed on demand and may be huge.
    pub fn chunk_addresses(&self, dataset: &DatasetInfo) -> Result<Vec<Chunk>> {
        let mut chunks = Vec::new();
        self.each_chunk(dataset, |chunk| {
            chunks.push(chunk);
            Ok(())
        })?;
        Ok(chunks)
    }

    /// Calls `see` with each chunk of a dataset, in the order of the index. Stops if `see` fails.
    pub fn each_chunk(
        &self,
        dataset: &DatasetInfo,
        mut see: impl FnMut(Chunk) -> Result<()>,
    ) -> Result<()> {
        let Layout::Chunked {
            index,
            chunk,
            has_plain_edges,
        } = &dataset.layout
        else {
            return Err("a dataset without chunks".into());
        };
        let grid = Grid::of(dataset, chunk)?;
        let mut shown = |offset: Vec<u64>, stored: Stored| {
            let is_plain = *has_plain_edges && grid.is_cut(&offset);
            see(Chunk {
                filter_mask: if is_plain {
                    u32::MAX
                } else {
                    stored.filter_mask
                },
                address: stored.address,
                size: stored.size,
                offset,
            })
        };
        self.listed(*index, &grid, !dataset.filters.is_empty(), &mut shown)
    }

    fn listed(
        &self,
        index: ChunkIndex,
        grid: &Grid<'_>,
        is_filtered: bool,
        see: &mut dyn FnMut(Vec<u64>, Stored) -> Result<()>,
    ) -> Result<()> {
        let bytes = &self.bytes;
        match index {
            ChunkIndex::BTree(None)
            | ChunkIndex::Single { address: None, .. }
            | ChunkIndex::Implicit(None)
            | ChunkIndex::FixedArray(None)
            | ChunkIndex::ExtensibleArray(None)
            | ChunkIndex::BTree2(None) => Ok(()),
            ChunkIndex::BTree(Some(root)) => of_tree(bytes, root, grid.chunk.len(), see),
            ChunkIndex::BTree2(Some(root)) => of_tree2(bytes, root, grid, is_filtered, see),
            ChunkIndex::Single {
                address: Some(address),
                filtered,
            } => {
                let (size, filter_mask) = filtered.unwrap_or((grid.raw, 0));
                let only = Stored {
                    address,
                    size,
                    filter_mask,
                };
                see(vec![0; grid.chunk.len()], only)
            }
            ChunkIndex::Implicit(Some(address)) => implicit(bytes, address, grid, see),
            ChunkIndex::FixedArray(Some(address)) => {
                let order = Order::new(grid, None)?;
                fixed_array::read(bytes, address, grid.raw, &mut |number, stored| {
                    see(order.offset(number)?, stored)
                })
            }
            ChunkIndex::ExtensibleArray(Some(address)) => {
                let unlimited = grid.most.iter().position(|most| *most == u64::MAX);
                let order = Order::new(grid, unlimited)?;
                extensible_array::read(bytes, address, grid.raw, &mut |number, stored| {
                    see(order.offset(number)?, stored)
                })
            }
            ChunkIndex::Other(kind) => {
                Err(format!("a chunk index of type {kind}: h5logfs does not read these").into())
            }
        }
    }
}

/// The division of a dataset into chunks.
struct Grid<'a> {
    chunk: &'a [u64],
    dims: &'a [u64],
    /// The maximum extent; `u64::MAX` for an unlimited dimension.
    most: &'a [u64],
    /// Bytes of a chunk without filters.
    raw: u64,
}

impl<'a> Grid<'a> {
    fn of(dataset: &'a DatasetInfo, chunk: &'a [u64]) -> Result<Self> {
        let Dataspace::Simple { dims, max_dims } = &dataset.space else {
            return Err("chunks of a dataset without a dataspace".into());
        };
        if dims.len() != chunk.len() || max_dims.len() != chunk.len() {
            return Err("chunks of another rank than their dataset".into());
        }
        let element = u64::from(dataset.datatype.size);
        let raw = chunk
            .iter()
            .try_fold(element, |n, side| n.checked_mul(*side));
        Ok(Grid {
            chunk,
            dims,
            most: max_dims,
            raw: raw.ok_or("a chunk of many bytes")?,
        })
    }

    /// Whether the chunk with its first element at `offset` extends past the edge of the dataset.
    fn is_cut(&self, offset: &[u64]) -> bool {
        let along = offset.iter().zip(self.chunk).zip(self.dims);
        along
            .into_iter()
            .any(|((at, side), all)| at.saturating_add(*side) > *all)
    }
}

/// The numbering of chunks in arrays: row-major order of the maximum extent, with the unlimited dimension first.
struct Order<'a> {
    chunk: &'a [u64],
    /// The unlimited dimension.
    unlimited: usize,
    /// Chunks along each dimension.
    sides: Vec<u64>,
}

impl<'a> Order<'a> {
    fn new(grid: &Grid<'a>, unlimited: Option<usize>) -> Result<Self> {
        let unlimited = unlimited.unwrap_or(0);
        let sides = grid.most.iter().zip(grid.chunk);
        let sides: Vec<u64> = sides.map(|(most, side)| most.div_ceil(*side)).collect();
        // The first dimension in the order may be unlimited.
        let mut others = (0..sides.len()).filter(|d| *d != unlimited);
        if others.any(|d| sides[d] == 0 || grid.most[d] == u64::MAX) {
            return Err("a chunk index that does not fit the extent of its dataset".into());
        }
        Ok(Order {
            chunk: grid.chunk,
            unlimited,
            sides,
        })
    }

    /// The coordinates of the first element of a chunk.
    fn offset(&self, mut number: u64) -> Result<Vec<u64>> {
        let mut offset = vec![0; self.sides.len()];
        for d in (0..self.sides.len()).rev().filter(|d| *d != self.unlimited) {
            offset[d] = number % self.sides[d];
            number /= self.sides[d];
        }
        if let Some(first) = offset.get_mut(self.unlimited) {
            *first = number;
        }
        scaled(&offset, self.chunk)
    }
}

/// The coordinates of the first element of the chunk at `position` of the grid.
fn scaled(position: &[u64], chunk: &[u64]) -> Result<Vec<u64>> {
    let along = position.iter().zip(chunk);
    let offset: Option<Vec<u64>> = along.map(|(at, side)| at.checked_mul(*side)).collect();
    Ok(offset.ok_or("a chunk outside its dataset")?)
}

fn of_tree<B: HeaderBytes>(
    bytes: &B,
    root: u64,
    rank: usize,
    see: &mut dyn FnMut(Vec<u64>, Stored) -> Result<()>,
) -> Result<()> {
    btree::read(bytes, root, rank, &mut |leaf| {
        let stored = Stored {
            address: leaf.address,
            size: leaf.size.into(),
            filter_mask: leaf.filter_mask,
        };
        // The last coordinate is that of the bytes of an element.
        see(leaf.origin.iter().take(rank).copied().collect(), stored)
    })
}

fn of_tree2<B: HeaderBytes>(
    bytes: &B,
    root: u64,
    grid: &Grid<'_>,
    is_filtered: bool,
    see: &mut dyn FnMut(Vec<u64>, Stored) -> Result<()>,
) -> Result<()> {
    let kind = if is_filtered { FILTERED_CHUNKS } else { CHUNKS };
    let tree = Tree::open(bytes, root, kind)?;
    let rank = grid.chunk.len();
    tree.all(|record| {
        let mut fields = Fields(record);
        let mut read = || {
            let address = fields.u64()?;
            let (size, filter_mask) = if is_filtered {
                let width = record.len().checked_sub(8 + 4 + 8 * rank)?;
                (fields.number(width)?, fields.u32()?)
            } else {
                (grid.raw, 0)
            };
            let position: Vec<u64> = (0..rank).map(|_| fields.u64()).collect::<Option<_>>()?;
            let stored = Stored {
                address,
                size,
                filter_mask,
            };
            Some((position, stored))
        };
        let (position, stored) = read().ok_or("a record of a chunk index that ends early")?;
        see(scaled(&position, grid.chunk)?, stored)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Reports the chunks of an implicit index. They are not filtered, and all of them exist.
fn implicit<B: HeaderBytes>(
    bytes: &B,
    address: u64,
    grid: &Grid<'_>,
    see: &mut dyn FnMut(Vec<u64>, Stored) -> Result<()>,
) -> Result<()> {
    let order = Order::new(grid, None)?;
    let count = order
        .sides
        .iter()
        .try_fold(1u64, |n, side| n.checked_mul(*side));
    let end = count
        .and_then(|count| count.checked_mul(grid.raw))
        .and_then(|len| len.checked_add(address));
    let count = count.filter(|_| grid.raw > 0 && end.is_some_and(|end| end <= bytes.size()));
    for number in 0..count.ok_or("chunks past the end of the file")? {
        let stored = Stored {
            address: address + number * grid.raw,
            size: grid.raw,
            filter_mask: 0,
        };
        let offset = order.offset(number)?;
        if offset.iter().zip(grid.dims).all(|(at, side)| at < side) {
            see(offset, stored)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: [u64; 3] = [2, 3, 5];

    fn grid<'a>(dims: &'a [u64; 3], most: &'a [u64; 3]) -> Grid<'a> {
        Grid {
            chunk: &CHUNK,
            dims,
            most,
            raw: 30,
        }
    }

    #[test]
    fn arrays_number_the_chunks_of_the_largest_extent() {
        let dims = [4, 4, 4];
        let fixed = Order::new(&grid(&dims, &[4, 9, 10]), None).unwrap();
        // A grid of 2 x 3 x 2 chunks.
        assert_eq!(fixed.offset(0), Ok(vec![0, 0, 0]));
        assert_eq!(fixed.offset(5), Ok(vec![0, 6, 5]));
        assert_eq!(fixed.offset(6), Ok(vec![2, 0, 0]));
        let grows = Order::new(&grid(&dims, &[4, u64::MAX, 10]), Some(1)).unwrap();
        // Each row of the second dimension has 2 x 2 chunks.
        assert_eq!(grows.offset(3), Ok(vec![2, 0, 5]));
        assert_eq!(grows.offset(9), Ok(vec![0, 6, 5]));
        let one = Grid {
            chunk: &[3],
            dims: &[4],
            most: &[u64::MAX],
            raw: 3,
        };
        assert!(Order::new(&one, Some(0)).unwrap().offset(u64::MAX).is_err());
        let two = Order::new(&grid(&dims, &[u64::MAX, u64::MAX, 10]), Some(0));
        assert!(two.is_err());
    }

    #[test]
    fn chunks_at_the_edge_are_cut() {
        let (dims, most) = ([4, 4, 10], [4, 4, 10]);
        let grid = grid(&dims, &most);
        assert!(!grid.is_cut(&[0, 0, 0]) && !grid.is_cut(&[2, 0, 5]));
        assert!(grid.is_cut(&[0, 3, 0]));
    }
}
