//! The chunk index of a dataset that lists only existing chunks: a version 1 B-tree.
//!
//! The view has a tree over all chunks of a grid ([`Tree`]). An ordinary file has only written chunks. Its tree counts
//! these chunks, in ascending order of their numbers in the grid.

use h5logfs_log::btree::{All, Key, Tree};
use h5logfs_view::Grid;

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

/// The chunk index of one dataset.
#[derive(Debug)]
pub struct ChunkIndex<'a> {
    grid: &'a Grid,
    element_size: u64,
    chunks: &'a [StoredChunk],
    /// `None` where there are no chunks.
    tree: Option<Tree>,
}

impl<'a> ChunkIndex<'a> {
    /// The index of `chunks`, whose numbers in `grid` ascend, for elements of `element_size` bytes. `None` where it
    /// would exceed 2^64 bytes.
    pub fn new(grid: &'a Grid, element_size: u64, chunks: &'a [StoredChunk]) -> Option<Self> {
        let tree = match chunks.len() as u64 {
            0 => None,
            some => Some(Tree::new(some, grid.dims.len())?),
        };
        Some(ChunkIndex {
            grid,
            element_size,
            chunks,
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
            let mut origin = self.grid.origin(chunk.number);
            origin.push(0);
            Key {
                size: chunk.size,
                filter_mask: chunk.filter_mask,
                origin,
            }
        };
        let node = tree.node(number, &All(self.chunks.len() as u64))?;
        let chunk_address = |rank: u64| self.chunks[rank as usize].address;
        let (shape, element) = (&self.grid.chunk, self.element_size);
        Some(tree.node_bytes(&node, address, chunk_address, key, shape, element))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNDEFINED: u64 = u64::MAX;

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
        let index = ChunkIndex::new(grid, 8, chunks).unwrap();
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
        walk(&file, root, grid.dims.len(), &mut leaves, &mut met);
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
        let grid = Grid::new(&[10, 10], &[3, 3]).unwrap();
        check(&grid, &[], 4096);
    }

    #[test]
    fn trees_of_one_to_three_levels_have_all_chunks() {
        let grid = Grid::new(&[70, 301], &[1, 2]).unwrap();
        for count in [1, 2, 64, 65, 4096, 4097, grid.len()] {
            check(&grid, &numbered(0..count), 8);
            check(&grid, &numbered(grid.len() - count..grid.len()), 1 << 40);
        }
        check(&grid, &numbered((0..grid.len()).step_by(2)), 2048);
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
            let grid = Grid::new(&dims, &chunk).unwrap();
            let picked = |number: &u64| picked[(*number % picked.len() as u64) as usize];
            check(&grid, &numbered((0..grid.len()).filter(picked)), address);
        }
    }
}
