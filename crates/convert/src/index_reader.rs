//! Reads the chunk index of a dataset: a version 1 B-tree (HDF5 File Format Specification, III.A.1).

use h5logfs_log::btree::{self, Leaf};
use h5logfs_log::image::HeaderBytes;
use h5logfs_view::Grid;

use crate::chunk_index::StoredChunk;
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// The chunks of the tree with the root at `root`, by ascending number. Fails with the reason where this is no tree,
/// or has chunks outside of the grid or out of order.
pub fn read_index(bytes: &dyn HeaderBytes, root: u64, grid: &Grid) -> Result<Vec<StoredChunk>> {
    let mut chunks: Vec<StoredChunk> = Vec::new();
    btree::read(bytes, root, grid.dims.len(), &mut |leaf| {
        let chunk = stored_chunk(&leaf, grid);
        let chunk = chunk.ok_or("its chunk index names a chunk that is not in the grid")?;
        let last = chunks.last();
        if last.is_some_and(|last| last.number >= chunk.number) {
            return Err("its chunk index has chunks out of order".into());
        }
        chunks.push(chunk);
        Ok(())
    })?;
    Ok(chunks)
}

/// A stored chunk; `None` where the grid has no such chunk.
fn stored_chunk(leaf: &Leaf<'_>, grid: &Grid) -> Option<StoredChunk> {
    let (within, origin) = leaf.origin.split_last()?;
    let number = grid.number_at(origin).filter(|_| *within == 0)?;
    Some(StoredChunk {
        number,
        address: leaf.address,
        size: leaf.size,
        filter_mask: leaf.filter_mask,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_index::ChunkIndex;

    /// Bytes of a node before its first key.
    const HEADER: usize = 24;

    fn tree(grid: &Grid, chunks: &[StoredChunk]) -> (Vec<u8>, u64) {
        let index = ChunkIndex::new(grid, 8, chunks).unwrap();
        let bytes = index.nodes(0).flatten().collect();
        (bytes, index.root(0).unwrap())
    }

    fn chunks(numbers: impl Iterator<Item = u64>) -> Vec<StoredChunk> {
        let chunk = |number| StoredChunk {
            number,
            address: 7 * number,
            size: 100 + number as u32,
            filter_mask: number as u32 % 2,
        };
        numbers.map(chunk).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let grid = Grid::new(&[100, 90], &[1, 2]).unwrap();
        for step in [1, 2, 70, 4000] {
            let chunks = chunks((0..grid.len()).step_by(step));
            let (bytes, root) = tree(&grid, &chunks);
            assert_eq!(read_index(&bytes, root, &grid).unwrap(), chunks);
        }
    }

    #[test]
    fn damage_is_told() {
        let grid = Grid::new(&[100, 90], &[1, 2]).unwrap();
        let (bytes, root) = tree(&grid, &chunks(0..200));
        let damaged = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            read_index(&bytes, root, &grid)
        };
        let root_at = root as usize;
        assert!(damaged(0, b'X').is_err());
        // A level that does not fit its parent, and a root below itself.
        assert!(damaged(5, 1).is_err());
        let own_address = root_at + HEADER + 32;
        assert!(damaged(own_address, bytes[own_address] ^ 0xff).is_err());
        // A coordinate in the middle of a chunk, and one past the grid.
        assert!(damaged(HEADER + 16, 1).is_err());
        assert!(damaged(HEADER + 8, 200).is_err());
        assert!(read_index(&bytes, root + 8, &grid).is_err());
        assert!(read_index(&bytes, u64::MAX - 1, &grid).is_err());
    }
}
