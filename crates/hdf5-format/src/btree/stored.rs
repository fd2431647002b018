//! The chunk index of a dataset that lists stored chunks alone: a B-tree of version 1.
//!
//! The view has a tree over all chunks of a grid ([`Tree`]). An ordinary file has only written chunks. Its tree counts
//! these chunks, in ascending order of their numbers in the grid.

use super::{All, Key, Leaf, Tree, read};
use crate::{HeaderBytes, Result};

/// A stored chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredChunk {
    /// Number in the chunk grid of the dataset.
    pub number: u64,
    /// Address of the first byte. Addresses count from the end of the user block.
    pub address: u64,
    /// Bytes after the filters.
    pub size: u32,
    /// Bit `i` is set where filter `i` of the pipeline was not applied.
    pub filter_mask: u32,
}

/// The chunk index of one dataset. `F` tells the coordinates of the first element of a chunk.
#[derive(Debug)]
pub struct StoredIndex<'a, F> {
    /// The shape of a chunk.
    shape: &'a [u64],
    element_size: u64,
    chunks: &'a [StoredChunk],
    origin: F,
    /// `None` where there are no chunks.
    tree: Option<Tree>,
}

impl<'a, F: Fn(u64) -> Vec<u64>> StoredIndex<'a, F> {
    /// The index of `chunks` of this shape, whose numbers ascend, for elements of `element_size` bytes. `None` where it
    /// would exceed 2^64 bytes.
    pub fn new(
        shape: &'a [u64],
        element_size: u64,
        chunks: &'a [StoredChunk],
        origin: F,
    ) -> Option<Self> {
        let tree = match chunks.len() as u64 {
            0 => None,
            some => Some(Tree::new(some, shape.len())?),
        };
        Some(StoredIndex {
            shape,
            element_size,
            chunks,
            origin,
            tree,
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::bytes)
    }

    /// Whether there are no chunks, and so no index.
    pub fn is_empty(&self) -> bool {
        self.tree.is_none()
    }

    /// The address for the dataset's layout message if the index lies at `address`: that of the root. `None` without
    /// an index: the message then has the undefined address.
    pub fn root(&self, address: u64) -> Option<u64> {
        Some(address + self.tree.as_ref()?.root())
    }

    /// The nodes in file order, from `address` on, a multiple of 8. The caller ensures that an index of this length
    /// fits there.
    pub fn nodes(&self, address: u64) -> impl Iterator<Item = Vec<u8>> + '_ {
        let trees = self.tree.iter();
        trees.flat_map(move |tree| {
            let node = move |number| self.node(tree, number, address);
            (0..tree.nodes()).filter_map(node)
        })
    }

    /// Node `number` of the tree at `address`. The tree counts ranks: indices in `chunks`.
    fn node(&self, tree: &Tree, number: u64, address: u64) -> Option<Vec<u8>> {
        let key = |rank: u64| {
            let chunk = &self.chunks[rank as usize];
            let mut origin = (self.origin)(chunk.number);
            origin.push(0);
            Key {
                size: chunk.size,
                filter_mask: chunk.filter_mask,
                origin,
            }
        };
        let node = tree.node(number, &All(self.chunks.len() as u64))?;
        let chunk_address = |rank: u64| self.chunks[rank as usize].address;
        let (shape, element) = (self.shape, self.element_size);
        Some(tree.node_bytes(&node, address, chunk_address, key, shape, element))
    }
}

/// Reads the chunks of the tree whose root is at `root`, over a dataset of rank `rank`, by ascending number. `number_at` tells
/// the number of the chunk whose first element has these coordinates. Fails where this is no tree, or has chunks out of order or
/// without a number.
pub fn read_stored(
    bytes: &dyn HeaderBytes,
    root: u64,
    rank: usize,
    number_at: impl Fn(&[u64]) -> Option<u64>,
) -> Result<Vec<StoredChunk>> {
    let mut chunks: Vec<StoredChunk> = Vec::new();
    read(bytes, root, rank, &mut |leaf| {
        let chunk = stored_chunk(&leaf, &number_at);
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

/// The chunk of an entry. `None` where no chunk begins at these coordinates.
fn stored_chunk(leaf: &Leaf<'_>, number_at: impl Fn(&[u64]) -> Option<u64>) -> Option<StoredChunk> {
    let (within, origin) = leaf.origin.split_last()?;
    let number = number_at(origin).filter(|_| *within == 0)?;
    Some(StoredChunk {
        number,
        address: leaf.address,
        size: leaf.size,
        filter_mask: leaf.filter_mask,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::HEADER;
    use super::*;
    use crate::UNDEFINED;

    /// Chunks in row-major order.
    struct Grid {
        chunk: Vec<u64>,
        across: Vec<u64>,
    }

    impl Grid {
        fn new(dims: &[u64], chunk: &[u64]) -> Self {
            let across = dims.iter().zip(chunk).map(|(d, c)| d.div_ceil(*c));
            Grid {
                chunk: chunk.to_vec(),
                across: across.collect(),
            }
        }

        fn len(&self) -> u64 {
            self.across.iter().product()
        }

        fn origin(&self, mut number: u64) -> Vec<u64> {
            let mut origin = vec![0; self.chunk.len()];
            for d in (0..origin.len()).rev() {
                origin[d] = number % self.across[d] * self.chunk[d];
                number /= self.across[d];
            }
            origin
        }

        fn number_at(&self, origin: &[u64]) -> Option<u64> {
            let mut number = 0;
            for ((at, side), across) in origin.iter().zip(&self.chunk).zip(&self.across) {
                if at % side != 0 || at / side >= *across {
                    return None;
                }
                number = number * across + at / side;
            }
            Some(number)
        }

        fn index<'a>(
            &'a self,
            chunks: &'a [StoredChunk],
        ) -> StoredIndex<'a, impl Fn(u64) -> Vec<u64>> {
            StoredIndex::new(&self.chunk, 8, chunks, |number| self.origin(number)).unwrap()
        }

        fn read(&self, bytes: &dyn HeaderBytes, root: u64) -> Result<Vec<StoredChunk>> {
            read_stored(bytes, root, self.chunk.len(), |origin| {
                self.number_at(origin)
            })
        }
    }

    /// The bytes of a file from `start` on.
    struct File {
        start: u64,
        bytes: Vec<u8>,
    }

    impl File {
        fn u64_at(&self, address: u64) -> u64 {
            let at = (address - self.start) as usize;
            u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
        }

        fn part(&self, address: u64, len: usize) -> &[u8] {
            let at = (address - self.start) as usize;
            &self.bytes[at..at + len]
        }
    }

    /// A stored key: size, filter mask, and the coordinates, including the one inside an element.
    type FoundKey = (u32, u32, Vec<u64>);

    fn key(file: &File, address: u64, rank: usize) -> FoundKey {
        let size = file.u64_at(address);
        let coordinates = (0..=rank as u64).map(|d| file.u64_at(address + 8 + 8 * d));
        (size as u32, (size >> 32) as u32, coordinates.collect())
    }

    /// Reads the tree below the node at `address`: the leaves' keys and addresses from left to right, and the nodes
    /// on each level, to check siblings. Returns the first key of the node, and the one after its last child.
    fn walk(
        file: &File,
        address: u64,
        rank: usize,
        leaves: &mut Vec<(FoundKey, u64)>,
        met: &mut Vec<Vec<u64>>,
    ) -> (FoundKey, FoundKey) {
        let head = file.part(address, 8);
        assert_eq!(&head[..5], b"TREE\x01");
        let level = usize::from(head[5]);
        let used = u64::from(u16::from_le_bytes([head[6], head[7]]));
        assert!((1..=64).contains(&used));
        if met.len() <= level {
            met.resize(level + 1, Vec::new());
        }
        met[level].push(address);
        let step = 8 + 8 * (rank as u64 + 1) + 8;
        let place = |child: u64| address + 24 + child * step;
        for child in 0..used {
            let own = key(file, place(child), rank);
            let next = key(file, place(child + 1), rank);
            assert!(own.2 < next.2, "{own:?} before {next:?}");
            let target = file.u64_at(place(child + 1) - 8);
            if level == 0 {
                leaves.push((own, target));
                continue;
            }
            let (first, end) = walk(file, target, rank, leaves, met);
            assert_eq!((own.2, next.2), (first.2, end.2), "keys of a child");
        }
        (key(file, address + 24, rank), key(file, place(used), rank))
    }

    fn check(grid: &Grid, chunks: &[StoredChunk], address: u64) {
        let index = grid.index(chunks);
        let file = File {
            start: address,
            bytes: index.nodes(address).flatten().collect(),
        };
        assert_eq!(file.bytes.len() as u64, index.len());
        assert_eq!(index.is_empty(), chunks.is_empty());
        let Some(root) = index.root(address) else {
            assert!(chunks.is_empty() && file.bytes.is_empty());
            return;
        };
        let (mut leaves, mut met) = (Vec::new(), Vec::new());
        walk(&file, root, grid.chunk.len(), &mut leaves, &mut met);
        let expected = chunks.iter().map(|chunk| {
            let mut origin = grid.origin(chunk.number);
            origin.push(0);
            ((chunk.size, chunk.filter_mask, origin), chunk.address)
        });
        assert_eq!(leaves, expected.collect::<Vec<_>>());
        for level in met {
            let around = |i: usize| level.get(i).copied().unwrap_or(UNDEFINED);
            for (i, node) in level.iter().enumerate() {
                assert_eq!(file.u64_at(node + 8), around(i.wrapping_sub(1)));
                assert_eq!(file.u64_at(node + 16), around(i + 1));
            }
        }
    }

    fn numbered(numbers: impl IntoIterator<Item = u64>) -> Vec<StoredChunk> {
        let chunk = |(rank, number): (usize, u64)| StoredChunk {
            number,
            address: 1 << 20 | (rank as u64 * 4096),
            size: rank as u32 + 1,
            filter_mask: (number % 3) as u32,
        };
        numbers.into_iter().enumerate().map(chunk).collect()
    }

    #[test]
    fn without_chunks_there_is_no_tree() {
        let grid = Grid::new(&[10, 10], &[3, 3]);
        check(&grid, &[], 4096);
    }

    #[test]
    fn trees_of_one_to_three_levels_have_all_chunks() {
        let grid = Grid::new(&[70, 301], &[1, 2]);
        for count in [1, 2, 64, 65, 4096, 4097, grid.len()] {
            check(&grid, &numbered(0..count), 8);
            check(&grid, &numbered(grid.len() - count..grid.len()), 1 << 40);
        }
        check(&grid, &numbered((0..grid.len()).step_by(2)), 2048);
    }

    fn tree(grid: &Grid, chunks: &[StoredChunk]) -> (Vec<u8>, u64) {
        let index = grid.index(chunks);
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
        let grid = Grid::new(&[100, 90], &[1, 2]);
        for step in [1, 2, 70, 4000] {
            let chunks = chunks((0..grid.len()).step_by(step));
            let (bytes, root) = tree(&grid, &chunks);
            assert_eq!(grid.read(&bytes, root).unwrap(), chunks);
        }
    }

    #[test]
    fn damage_is_told() {
        let grid = Grid::new(&[100, 90], &[1, 2]);
        let (bytes, root) = tree(&grid, &chunks(0..200));
        let damaged = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            grid.read(&bytes, root)
        };
        let root_at = root as usize;
        assert!(damaged(0, b'X').is_err());
        // A level that does not fit its parent, and a root below itself.
        assert!(damaged(5, 1).is_err());
        let own_address = root_at + HEADER as usize + 32;
        assert!(damaged(own_address, bytes[own_address] ^ 0xff).is_err());
        // A coordinate in the middle of a chunk, and one past the grid.
        assert!(damaged(HEADER as usize + 16, 1).is_err());
        assert!(damaged(HEADER as usize + 8, 200).is_err());
        assert!(grid.read(&bytes, root + 8).is_err());
        assert!(grid.read(&bytes, u64::MAX - 1).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn the_chunks_of_any_grid_are_found_again(
            sides in prop::collection::vec((1u64..12, 1u64..5), 1..5),
            picked in prop::collection::vec(any::<bool>(), 1..6000),
            address in (0u64..1 << 50).prop_map(|at| at & !7),
        ) {
            let (across, chunk): (Vec<u64>, Vec<u64>) = sides.into_iter().unzip();
            let dims: Vec<u64> = across.iter().zip(&chunk).map(|(a, c)| a * c).collect();
            let grid = Grid::new(&dims, &chunk);
            let picked = |number: &u64| picked[(*number % picked.len() as u64) as usize];
            check(&grid, &numbered((0..grid.len()).filter(picked)), address);
        }
    }
}
