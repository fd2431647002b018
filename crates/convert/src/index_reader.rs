//! Reads the chunk index of a dataset: a version 1 B-tree (HDF5 File Format Specification, III.A.1).

use h5logfs_log::image::HeaderBytes;
use h5logfs_view::Grid;

use crate::chunk_index::StoredChunk;
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// Signature, type, level, entries used, left and right sibling.
const HEADER: usize = 24;
/// Children of a full node.
const FAN_OUT: usize = 64;
/// More levels than a tree over 2^64 chunks has.
const MOST_LEVELS: u8 = 11;

/// The chunks of the tree whose root is at `root`, by ascending number. Fails with the reason where it is no tree, or has
/// chunks that are not in the grid, or out of order.
pub fn read_index(bytes: &dyn HeaderBytes, root: u64, grid: &Grid) -> Result<Vec<StoredChunk>> {
    let mut reader = Reader {
        bytes,
        grid,
        key: 8 + 8 * (grid.dims.len() + 1),
        chunks: Vec::new(),
    };
    reader.node(root, None)?;
    Ok(reader.chunks)
}

struct Reader<'a> {
    bytes: &'a dyn HeaderBytes,
    grid: &'a Grid,
    /// Bytes of a key.
    key: usize,
    chunks: Vec<StoredChunk>,
}

impl Reader<'_> {
    /// Reads what lies below the node at `address`. `above`: the level of its parent.
    fn node(&mut self, address: u64, above: Option<u8>) -> Result<()> {
        let bad =
            |what: &str| Fault::from(format!("the node of the chunk index at {address} {what}"));
        let mut head = [0; HEADER];
        self.bytes.read(address, &mut head)?;
        let [level, low, high] = [head[5], head[6], head[7]];
        let used = usize::from(u16::from_le_bytes([low, high]));
        let is_below = above.map_or(level < MOST_LEVELS, |above| level + 1 == above);
        if head[..5] != *b"TREE\x01" || !is_below || used == 0 || used > FAN_OUT {
            return Err(bad("is none"));
        }
        let step = self.key + 8;
        let mut children = vec![0; used * step];
        self.bytes.read(address + HEADER as u64, &mut children)?;
        for child in children.chunks_exact(step) {
            let (key, place) = child.split_at(self.key);
            let place = number(place);
            if level > 0 {
                self.node(place, Some(level))?;
                continue;
            }
            let chunk = self.chunk(key, place);
            let chunk = chunk.ok_or_else(|| bad("names a chunk that is not in the grid"))?;
            if self
                .chunks
                .last()
                .is_some_and(|last| last.number >= chunk.number)
            {
                return Err(bad("has chunks out of order"));
            }
            self.chunks.push(chunk);
        }
        Ok(())
    }

    /// The chunk of a key; `None` where the grid has none there.
    fn chunk(&self, key: &[u8], address: u64) -> Option<StoredChunk> {
        let sizes = number(key);
        let (origin, _) = key.get(8..)?.as_chunks::<8>();
        let origin: Vec<u64> = origin
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();
        let (within, origin) = origin.split_last()?;
        let number = self.grid.number_at(origin).filter(|_| *within == 0)?;
        Some(StoredChunk {
            number,
            address,
            size: sizes as u32,
            filter_mask: (sizes >> 32) as u32,
        })
    }
}

/// The number in the first eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_index::ChunkIndex;

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
