//! Symbol tables: the links of an old group. A B-tree of version 1 (III.A.1) of their names leads to leaves (III.B) with one
//! entry (III.C) for each link. The names lie in a local heap (III.D).

mod read;
mod write;

pub use read::SymbolTable;
pub use write::{Named, To};

use crate::Fields;

/// Bytes of an entry of a leaf.
pub(crate) const ENTRY: usize = 40;
/// Bytes in front of the entries of a leaf.
const LEAF: usize = 8;
/// Bytes in front of the keys of a node.
const NODE: usize = 24;

/// What an entry caches of its object.
pub(crate) mod cached {
    /// Nothing.
    pub const NOTHING: u32 = 0;
    /// The places of the table of a group.
    pub const TABLE: u32 = 1;
    /// Where in the heap the path of a soft link is.
    pub const PATH: u32 = 2;
}

/// How many children nodes have, and leaves links. The superblock of a file says it. Neither is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Links of a leaf.
    pub leaf: usize,
    /// Children of a node.
    pub node: usize,
}

impl Sizes {
    /// The sizes of which a superblock names the halves.
    pub const fn of(leaf_k: u16, node_k: u16) -> Self {
        Sizes {
            leaf: 2 * leaf_k as usize,
            node: 2 * node_k as usize,
        }
    }

    /// Bytes of a node: each has room for all children.
    pub fn node_bytes(self) -> usize {
        NODE + 8 + 16 * self.node
    }
}

/// Where the links of a group lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// The root of its B-tree.
    pub tree: u64,
    /// The heap with its names.
    pub heap: u64,
}

impl Table {
    /// Reads a symbol table message (IV.A.2.r). `None` where it ends early.
    pub fn of_message(message: &[u8]) -> Option<Self> {
        let mut fields = Fields(message);
        Some(Table {
            tree: fields.u64()?,
            heap: fields.u64()?,
        })
    }

    /// The bytes of the message. An entry caches the same.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.tree.to_le_bytes());
        bytes[8..].copy_from_slice(&self.heap.to_le_bytes());
        bytes
    }
}
