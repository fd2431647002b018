//! The chunk index of a dataset: a version-1 B-tree (HDF5 File Format Specification, III.A.1) over chunks that are
//! numbered from 0 without gaps. All nodes except the last one of each level are full, so the place and the bytes of
//! each node can be computed.
//!
//! In the canonical file, the chunks are those of the whole grid, with their numbers there. A [sparse](Chunks) tree
//! lies at the same place, with the same nodes, but lists only some of the chunks, because a file may claim more chunks
//! than can be counted. A node without a listed chunk is all zeros, and no other node leads to it.
//!
//! [`read`] visits the chunks of any such tree.

mod reader;
mod stored;

pub use reader::{Leaf, read};
pub use stored::{StoredChunk, StoredIndex, read_stored};

use std::ops::Range;

use crate::UNDEFINED;

/// "Indexed Storage Internal Node K" of the superblock: half the children of a full node.
const K: u64 = 32;
/// Children of a full node.
const FAN_OUT: u64 = 2 * K;
/// Signature, type, level, entries used, left and right sibling.
const HEADER: u64 = 24;

/// The key of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Stored bytes of the chunk.
    pub size: u32,
    /// Bit `i` is set if filter `i` of the pipeline was not applied.
    pub filter_mask: u32,
    /// Coordinates of the chunk's first element, and a zero: the bytes of an element count as a dimension.
    pub origin: Vec<u64>,
}

/// The chunks that a tree lists.
pub trait Chunks {
    /// The first listed chunk from number `from` on.
    fn next(&self, from: u64) -> Option<u64>;
    /// The last listed chunk before number `end`.
    fn last_before(&self, end: u64) -> Option<u64>;
}

/// All chunks of a tree; the field is their number.
#[derive(Debug, Clone, Copy)]
pub struct All(pub u64);

impl Chunks for All {
    fn next(&self, from: u64) -> Option<u64> {
        (from < self.0).then_some(from)
    }

    fn last_before(&self, end: u64) -> Option<u64> {
        end.min(self.0).checked_sub(1)
    }
}

/// The children of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    level: usize,
    place: u64,
    /// The first chunk of each child.
    children: Vec<u64>,
    /// The first chunk behind the node.
    next: Option<u64>,
    /// The last chunk before the node.
    before: Option<u64>,
}

/// The shape of the tree over a number of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    chunks: u64,
    node_size: u64,
    /// Number of nodes of each level, leaves first.
    levels: Vec<u64>,
}

impl Tree {
    /// The tree over `chunks` chunks (at least one) of a dataset of rank `rank`. `None` if the tree would be longer
    /// than 2^64 bytes.
    pub fn new(chunks: u64, rank: usize) -> Option<Self> {
        let mut levels = vec![chunks.div_ceil(FAN_OUT)];
        while let Some(&top) = levels.last()
            && top > 1
        {
            levels.push(top.div_ceil(FAN_OUT));
        }
        let node_size = HEADER + (FAN_OUT + 1) * key_size(rank) + FAN_OUT * 8;
        levels.iter().sum::<u64>().checked_mul(node_size)?;
        Some(Tree {
            chunks,
            node_size,
            levels,
        })
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.levels.iter().sum()
    }

    /// Bytes of all nodes. They are stored level by level, leaves first, so the root is the last node.
    pub fn bytes(&self) -> u64 {
        self.nodes() * self.node_size
    }

    /// Offset of the root from the start of the tree, in bytes.
    pub fn root(&self) -> u64 {
        (self.nodes() - 1) * self.node_size
    }

    /// The level of node `number`, and its number in that level.
    fn locate(&self, mut number: u64) -> (usize, u64) {
        for (level, nodes) in self.levels.iter().enumerate() {
            if number < *nodes {
                return (level, number);
            }
            number -= nodes;
        }
        (self.levels.len() - 1, 0)
    }

    /// Chunks below one child of a node of this level.
    fn stride(level: usize) -> u64 {
        FAN_OUT.saturating_pow(level as u32)
    }

    /// The chunks below a node, listed or not.
    fn chunks_of(&self, level: usize, place: u64) -> Range<u64> {
        let stride = Self::stride(level).saturating_mul(FAN_OUT);
        let first = place.saturating_mul(stride);
        first..first.saturating_add(stride).min(self.chunks)
    }

    /// The children of node `number`. `None` if none of its chunks is listed: such a node is all zeros. If no chunk is
    /// listed at all, the root is an empty leaf.
    pub fn node(&self, number: u64, listed: &impl Chunks) -> Option<Node> {
        let (level, place) = self.locate(number);
        let Range { start, end } = self.chunks_of(level, place);
        let stride = Self::stride(level);
        let mut children = Vec::new();
        let mut next = listed.next(start);
        while let Some(chunk) = next.filter(|chunk| *chunk < end) {
            children.push(chunk);
            next = listed.next((chunk / stride + 1).saturating_mul(stride));
        }
        if children.is_empty() && number + 1 < self.nodes() {
            return None;
        }
        Some(Node {
            level: if children.is_empty() { 0 } else { level },
            place,
            children,
            next,
            before: listed.last_before(start),
        })
    }

    /// The first node from `number` on that is not zeros.
    pub fn next_node(&self, number: u64, listed: &impl Chunks) -> u64 {
        let (level, place) = self.locate(number);
        let stride = Self::stride(level).saturating_mul(FAN_OUT);
        let chunk = listed.next(place.saturating_mul(stride));
        let before: u64 = self.levels[..level].iter().sum();
        match chunk {
            Some(chunk) => before + chunk / stride,
            None if level + 1 < self.levels.len() => {
                self.next_node(before + self.levels[level], listed)
            }
            None => self.nodes() - 1,
        }
    }

    /// The bytes of a node.
    ///
    /// * `base`: the address of the tree's first byte,
    /// * `chunk_address`: returns the address of a chunk's stored bytes,
    /// * `key`: returns the key of a chunk,
    /// * `chunk`: the chunk shape,
    /// * `element`: the size of one element in bytes.
    pub fn node_bytes(
        &self,
        node: &Node,
        base: u64,
        chunk_address: impl Fn(u64) -> u64,
        key: impl Fn(u64) -> Key,
        chunk: &[u64],
        element: u64,
    ) -> Vec<u8> {
        let address = |level: usize, chunk: u64| {
            let before: u64 = self.levels[..level].iter().sum();
            let place = chunk / Self::stride(level).saturating_mul(FAN_OUT);
            base + (before + place) * self.node_size
        };
        let sibling = |chunk: Option<u64>| chunk.map_or(UNDEFINED, |c| address(node.level, c));
        let mut bytes = Vec::with_capacity(self.node_size as usize);
        bytes.extend_from_slice(b"TREE");
        bytes.extend_from_slice(&[1, node.level as u8]);
        bytes.extend_from_slice(&(node.children.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&sibling(node.before).to_le_bytes());
        bytes.extend_from_slice(&sibling(node.next).to_le_bytes());
        for child in &node.children {
            put_key(&mut bytes, &key(*child));
            let child_address = match node.level.checked_sub(1) {
                None => chunk_address(*child),
                Some(below) => address(below, *child),
            };
            bytes.extend_from_slice(&child_address.to_le_bytes());
        }
        match node.next {
            _ if node.children.is_empty() => {}
            Some(next) => put_key(&mut bytes, &key(next)),
            None => put_key(&mut bytes, &after(&key(self.chunks - 1), chunk, element)),
        }
        bytes.resize(self.node_size as usize, 0);
        bytes
    }

    /// The number of the node at a byte offset from the start of the tree, and its byte range.
    pub fn node_at(&self, offset: u64) -> (u64, Range<u64>) {
        let number = offset / self.node_size;
        (number, self.place(number))
    }

    /// The byte range of node `number`, from the start of the tree.
    pub fn place(&self, number: u64) -> Range<u64> {
        number * self.node_size..(number + 1) * self.node_size
    }
}

fn key_size(rank: usize) -> u64 {
    8 + 8 * (rank as u64 + 1)
}

/// The key past the last chunk: greater than every chunk of the dataset.
fn after(last: &Key, chunk: &[u64], element: u64) -> Key {
    let mut origin: Vec<u64> = last.origin.iter().zip(chunk).map(|(o, c)| o + c).collect();
    origin.push(element);
    Key {
        size: 0,
        filter_mask: 0,
        origin,
    }
}

fn put_key(node: &mut Vec<u8>, key: &Key) {
    node.extend_from_slice(&key.size.to_le_bytes());
    node.extend_from_slice(&key.filter_mask.to_le_bytes());
    for coordinate in &key.origin {
        node.extend_from_slice(&coordinate.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes_of_perfect_trees() {
        let levels = |chunks| Tree::new(chunks, 1).unwrap().levels;
        assert_eq!(levels(1), [1]);
        assert_eq!(levels(63), [1]);
        assert_eq!(levels(64), [1]);
        assert_eq!(levels(65), [2, 1]);
        assert_eq!(levels(4096), [64, 1]);
        assert_eq!(levels(4097), [65, 2, 1]);
        assert_eq!(levels(10_000_000), [156_250, 2442, 39, 1]);
        assert_eq!(Tree::new(1 << 59, 1), None);
    }

    #[test]
    fn every_chunk_has_one_leaf_and_every_node_one_parent() {
        for chunks in [1, 63, 64, 65, 4096, 4097, 300_000] {
            let tree = Tree::new(chunks, 2).unwrap();
            let mut seen = 0;
            let mut next = 0;
            for number in 0..tree.nodes() {
                let (level, place) = tree.locate(number);
                next = if place == 0 { 0 } else { next };
                let node = tree.node(number, &All(chunks)).unwrap();
                assert_eq!(node.children[0], next);
                assert!(node.children.len() as u64 <= FAN_OUT);
                next = node.next.unwrap_or(chunks);
                seen += if level == 0 {
                    node.children.len() as u64
                } else {
                    0
                };
                assert_eq!(tree.next_node(number, &All(chunks)), number);
                let is_last = place + 1 == tree.levels[level];
                assert_eq!(next == chunks, is_last, "level {level} of {chunks}");
            }
            assert_eq!(seen, chunks);
        }
    }

    #[test]
    fn a_node_fills_its_size_exactly() {
        let tree = Tree::new(65, 1).unwrap();
        let key = |c: u64| Key {
            size: 80,
            filter_mask: 0,
            origin: vec![c * 10, 0],
        };
        let node = tree.node(0, &All(65)).unwrap();
        assert_eq!(node.children.len(), 64);
        let bytes = tree.node_bytes(&node, 4096, |c| 100_000 + c * 80, key, &[10], 8);
        assert_eq!(bytes.len() as u64, tree.node_size);
        assert_eq!(&bytes[..8], b"TREE\x01\x00\x40\x00");
        assert_eq!(
            u64::from_le_bytes(bytes[8..16].try_into().unwrap()),
            UNDEFINED
        );
        let right = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
        assert_eq!(right, 4096 + tree.node_size);
    }

    struct Picked<'a>(&'a BTreeSet<u64>);

    impl Chunks for Picked<'_> {
        fn next(&self, from: u64) -> Option<u64> {
            self.0.range(from..).next().copied()
        }

        fn last_before(&self, end: u64) -> Option<u64> {
            self.0.range(..end).next_back().copied()
        }
    }

    proptest! {
        /// The reader finds exactly the listed chunks in the bytes of all nodes. Only reachable nodes are not all
        /// zeros.
        #[test]
        fn a_sparse_tree_lists_its_chunks_and_no_others(
            chunks in 1u64..1 << 14,
            picked in prop::collection::vec(any::<u64>(), 0..200),
        ) {
            let listed: BTreeSet<u64> = picked.into_iter().map(|n| n % chunks).collect();
            let listed = Picked(&listed);
            let tree = Tree::new(chunks, 1).unwrap();
            let key = |c: u64| Key { size: 80, filter_mask: 0, origin: vec![c * 10, 0] };
            let mut bytes = Vec::new();
            let mut there = 0;
            let mut expected = 0;
            for number in 0..tree.nodes() {
                if there <= number {
                    there = tree.next_node(number, &listed);
                }
                let node = tree.node(number, &listed);
                prop_assert_eq!(node.is_some(), there == number);
                if node.is_some() {
                    there += 1;
                    expected += 1;
                }
                match node {
                    None => bytes.resize(bytes.len() + tree.node_size as usize, 0),
                    Some(node) => {
                        bytes.extend(tree.node_bytes(&node, 0, |c| c + 7, key, &[10], 8));
                    }
                }
            }
            // The walk starts at the root, as in libhdf5: by children, and on each level from sibling to sibling.
            let mut level = vec![tree.root()];
            let mut seen = level.len();
            let mut found = Vec::new();
            let number = |at: u64| u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap());
            while !level.is_empty() {
                let mut below = Vec::new();
                for (position, node) in level.iter().enumerate() {
                    let head = &bytes[*node as usize..*node as usize + 8];
                    prop_assert_eq!(&head[..5], b"TREE\x01");
                    let around = |at: usize| level.get(at).copied().unwrap_or(UNDEFINED);
                    prop_assert_eq!(number(node + 8), around(position.wrapping_sub(1)));
                    prop_assert_eq!(number(node + 16), around(position + 1));
                    for child in 0..u64::from(head[6]) {
                        let at = node + HEADER + child * (key_size(1) + 8);
                        prop_assert!(number(at + 8) < number(at + key_size(1) + 16));
                        match head[5] {
                            0 => found.push((number(at + 8) / 10, number(at + key_size(1)))),
                            _ => below.push(number(at + key_size(1))),
                        }
                    }
                }
                seen += below.len();
                level = below;
            }
            let wanted: Vec<_> = listed.0.iter().map(|c| (*c, c + 7)).collect();
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(seen, expected);
        }
    }
}
