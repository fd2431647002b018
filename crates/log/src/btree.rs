//! The chunk index of a dataset: a version 1 B-tree (HDF5 File Format Specification, III.A.1) over chunks that are numbered
//! from 0 without gaps. All nodes but the last ones of each level are full, so place and bytes of each node can be
//! computed.
//!
//! In the canonical file the chunks are those of the whole grid, and have their numbers there.
//!
//! [`read`] shows the chunks of any such tree.

mod reader;

pub use reader::{Leaf, read};

use std::ops::Range;

/// "Indexed Storage Internal Node K" of the superblock: half the children of a full node.
const K: u64 = 32;
/// Children of a full node.
const FAN_OUT: u64 = 2 * K;
/// Signature, type, level, entries used, left and right sibling.
const HEADER: u64 = 24;
const UNDEFINED: u64 = u64::MAX;

/// The key of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Stored bytes of the chunk.
    pub size: u32,
    /// Bit `i` is set where filter `i` of the pipeline was not applied.
    pub filter_mask: u32,
    /// Coordinates of the chunk's first element, and a zero: the bytes of an element count as a dimension.
    pub origin: Vec<u64>,
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
    /// The tree over `chunks` chunks, at least one, of a dataset of rank `rank`. `None` where the tree would be
    /// longer than 2^64 bytes.
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

    /// Bytes that all nodes take. They are stored level by level, leaves first: the root is the last.
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

    /// The first chunk of each child of a node, and the first chunk after the node.
    fn children(&self, level: usize, place: u64) -> (Vec<u64>, u64) {
        let stride = Self::stride(level);
        let first = place * stride * FAN_OUT;
        let end = first
            .saturating_add(stride.saturating_mul(FAN_OUT))
            .min(self.chunks);
        ((first..end).step_by(stride as usize).collect(), end)
    }

    /// The chunks whose keys a node needs: the first of each child, and the first of the next node. The last node
    /// of a level needs the last chunk instead: it ends with a key past that.
    pub fn keys_of(&self, number: u64) -> Vec<u64> {
        let (level, place) = self.locate(number);
        let (mut chunks, end) = self.children(level, place);
        chunks.push(end.min(self.chunks - 1));
        chunks
    }

    /// The bytes of node `number`.
    ///
    /// * `base`: address of the tree's first byte,
    /// * `chunk_address`: of a chunk's stored bytes,
    /// * `keys`: of the chunks that [`Tree::keys_of`] names, in that order,
    /// * `chunk`: the chunk shape,
    /// * `element`: bytes of one element.
    pub fn node(
        &self,
        number: u64,
        base: u64,
        chunk_address: impl Fn(u64) -> u64,
        keys: &[Key],
        chunk: &[u64],
        element: u64,
    ) -> Vec<u8> {
        let (level, place) = self.locate(number);
        let (children, end) = self.children(level, place);
        let address = |level: usize, place: u64| {
            let before: u64 = self.levels[..level].iter().sum();
            base + (before + place) * self.node_size
        };
        let sibling = |place: Option<u64>| match place {
            Some(p) if p < self.levels[level] => address(level, p),
            _ => UNDEFINED,
        };

        let mut node = Vec::with_capacity(self.node_size as usize);
        node.extend_from_slice(b"TREE");
        node.extend_from_slice(&[1, level as u8]);
        node.extend_from_slice(&(children.len() as u16).to_le_bytes());
        node.extend_from_slice(&sibling(place.checked_sub(1)).to_le_bytes());
        node.extend_from_slice(&sibling(place.checked_add(1)).to_le_bytes());
        for (i, child) in children.iter().enumerate() {
            put_key(&mut node, &keys[i]);
            let child_address = match level {
                0 => chunk_address(*child),
                _ => address(level - 1, child / Self::stride(level)),
            };
            node.extend_from_slice(&child_address.to_le_bytes());
        }
        match keys.last() {
            Some(next) if end < self.chunks => put_key(&mut node, next),
            Some(last) => put_key(&mut node, &after(last, chunk, element)),
            None => {}
        }
        node.resize(self.node_size as usize, 0);
        node
    }

    /// The node at a byte offset from the start of the tree, and its range of bytes.
    pub fn node_at(&self, offset: u64) -> (u64, Range<u64>) {
        let number = offset / self.node_size;
        (
            number,
            number * self.node_size..(number + 1) * self.node_size,
        )
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
            for level in 0..tree.levels.len() {
                let mut next = 0;
                for place in 0..tree.levels[level] {
                    let (children, end) = tree.children(level, place);
                    assert_eq!(children[0], next);
                    assert!(children.len() as u64 <= FAN_OUT);
                    next = end;
                    seen += if level == 0 { children.len() as u64 } else { 0 };
                }
                assert_eq!(next, chunks, "level {level} of {chunks}");
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
        let keys: Vec<Key> = tree.keys_of(0).into_iter().map(key).collect();
        assert_eq!(keys.len(), 65);
        let node = tree.node(0, 4096, |c| 100_000 + c * 80, &keys, &[10], 8);
        assert_eq!(node.len() as u64, tree.node_size);
        assert_eq!(&node[..8], b"TREE\x01\x00\x40\x00");
        assert_eq!(
            u64::from_le_bytes(node[8..16].try_into().unwrap()),
            UNDEFINED
        );
        let right = u64::from_le_bytes(node[16..24].try_into().unwrap());
        assert_eq!(right, 4096 + tree.node_size);
    }
}
