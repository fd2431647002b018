//! The storage of a dataset in an HDF5 file: its place, and the index of its chunks.

use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_hdf5_format::{Chunk, DatasetInfo, HeaderBytes, Layout, Objects};

type Result<T> = std::result::Result<T, Fault>;

/// The storage of a dataset.
#[derive(Debug)]
pub enum Stored {
    /// No storage: nothing was written.
    Nowhere,
    /// All elements, copied to memory.
    Here(Vec<u8>),
    /// One contiguous piece.
    Piece {
        /// Address of the first byte.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Chunks.
    Chunks(Chunks),
}

/// The written chunks of a dataset.
#[derive(Debug)]
pub struct Chunks {
    /// Sides of a chunk.
    pub sides: Vec<u64>,
    /// Bytes of a chunk without filters.
    pub raw: u64,
    /// The chunks by ascending number.
    pub found: Vec<FoundChunk>,
    reservation: Reservation,
}

/// A written chunk.
#[derive(Debug, Clone, Copy)]
pub struct FoundChunk {
    /// Number in the grid, in row-major order.
    pub number: u64,
    /// Address of the stored bytes.
    pub address: u64,
    /// Number of stored bytes.
    pub size: u64,
    /// Bit `i` is set where filter `i` was not applied.
    pub filter_mask: u32,
}

impl Stored {
    /// The storage of a dataset with these dimensions. Its chunk index is read whole, in memory of `task`.
    pub fn of(
        objects: &Objects<impl HeaderBytes>,
        dataset: &DatasetInfo,
        dims: &[u64],
        task: &Task,
    ) -> Result<Self> {
        let bytes = bytes_of(dims, dataset.datatype.size.into());
        let are_there = |len: u64| match bytes.filter(|bytes| *bytes <= len) {
            Some(_) => Ok(()),
            None => Err(Fault::from("its elements are more than its storage has")),
        };
        match &dataset.layout {
            _ if bytes == Some(0) => Ok(Stored::Nowhere),
            Layout::Compact(found) => {
                are_there(found.len() as u64)?;
                Ok(Stored::Here(found.clone()))
            }
            Layout::Contiguous { address: None, .. } => Ok(Stored::Nowhere),
            Layout::Contiguous {
                address: Some(address),
                len,
            } => {
                are_there(*len)?;
                Ok(Stored::Piece {
                    address: *address,
                    len: bytes.unwrap_or(0),
                })
            }
            Layout::Chunked { chunk, .. } => {
                Chunks::of(objects, dataset, dims, chunk, task).map(Stored::Chunks)
            }
            Layout::Virtual(_) => Err("its elements are in other datasets".into()),
            Layout::Other(reason) => Err(reason.as_str().into()),
        }
    }
}

impl Chunks {
    /// No chunk of a scalar.
    #[cfg(test)]
    pub(crate) fn none(task: &Task) -> Self {
        Chunks {
            sides: Vec::new(),
            raw: 0,
            found: Vec::new(),
            reservation: task.reservation(),
        }
    }

    fn of(
        objects: &Objects<impl HeaderBytes>,
        dataset: &DatasetInfo,
        dims: &[u64],
        sides: &[u64],
        task: &Task,
    ) -> Result<Self> {
        let raw = bytes_of(sides, dataset.datatype.size.into());
        let raw = raw.filter(|_| sides.len() == dims.len());
        let mut chunks = Chunks {
            sides: sides.to_vec(),
            raw: raw.ok_or("chunks of many bytes")?,
            found: Vec::new(),
            reservation: task.reservation(),
        };
        if chunks.count(dims).is_none() {
            return Err("more chunks than can be counted".into());
        }
        objects.each_chunk(dataset, |chunk| chunks.add(&chunk, dims))?;
        chunks.found.sort_unstable_by_key(|chunk| chunk.number);
        chunks.reservation.release_share();
        Ok(chunks)
    }

    /// Number of chunks in the grid.
    pub fn count(&self, dims: &[u64]) -> Option<u64> {
        let along = dims.iter().zip(&self.sides);
        along
            .map(|(all, side)| all.div_ceil(*side))
            .try_fold(1u64, u64::checked_mul)
    }

    fn add(&mut self, chunk: &Chunk, dims: &[u64]) -> Result<()> {
        if chunk.offset.len() != dims.len()
            || chunk.offset.iter().zip(dims).any(|(at, all)| at >= all)
        {
            return Err("a chunk outside its dataset".into());
        }
        let position = chunk.offset.iter().zip(&self.sides);
        let position: Vec<u64> = position.map(|(at, side)| at / side).collect();
        let found = FoundChunk {
            number: self.number(&position, dims),
            address: chunk.address,
            size: chunk.size,
            filter_mask: chunk.filter_mask,
        };
        self.reservation.push(&mut self.found, found)?;
        Ok(())
    }

    /// The number of the chunk at a position. The number of chunks in the grid does not overflow.
    pub fn number(&self, position: &[u64], dims: &[u64]) -> u64 {
        let along = position.iter().zip(dims).zip(&self.sides);
        along.fold(0, |n, ((at, all), side)| n * all.div_ceil(*side) + at)
    }

    /// The coordinates of the first element of a chunk in the grid.
    pub fn origin(&self, number: u64, dims: &[u64]) -> Vec<u64> {
        let (mut left, mut origin) = (number, vec![0; dims.len()]);
        for d in (0..dims.len()).rev() {
            let along = dims[d].div_ceil(self.sides[d]).max(1);
            origin[d] = left % along * self.sides[d];
            left /= along;
        }
        origin
    }

    /// The chunk with a number; `None` if it was not written.
    pub fn find(&self, number: u64) -> Option<&FoundChunk> {
        let found = self
            .found
            .binary_search_by_key(&number, |chunk| chunk.number);
        found.ok().and_then(|at| self.found.get(at))
    }
}

impl FoundChunk {
    /// The filters of the dataset that were applied to the chunk.
    pub fn filters<'a>(&self, all: &'a [Filter]) -> impl Iterator<Item = &'a Filter> {
        let mask = self.filter_mask;
        let is_applied = move |bit| mask.checked_shr(bit).unwrap_or(0) & 1 == 0;
        let filters = (0u32..).zip(all);
        let applied = filters.filter(move |(bit, _)| is_applied(*bit));
        applied.map(|(_, filter)| filter)
    }

    /// Fails where an unfiltered chunk has fewer bytes than its elements.
    pub fn check_len(&self, raw: u64) -> Result<()> {
        if self.size >= raw {
            return Ok(());
        }
        Err(format!("{} bytes instead of {raw}", self.size).into())
    }
}

/// Bytes of an array with these sides and elements of `element` bytes; `None` on overflow.
pub fn bytes_of(sides: &[u64], element: u64) -> Option<u64> {
    let mut sides = sides.iter();
    sides.try_fold(element, |n, side| n.checked_mul(*side))
}
