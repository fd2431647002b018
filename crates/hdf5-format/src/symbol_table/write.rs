//! Writes symbol tables: the links of old groups (III.A.1, III.B), and the local heap of their names (III.D).

use std::borrow::Cow;

use super::{ENTRY, LEAF, Sizes, Table, cached};
use crate::UNDEFINED;
use crate::space::Space;

/// A link and its target.
pub struct Named<'a> {
    /// The name, without a zero byte.
    pub name: Cow<'a, [u8]>,
    /// The target.
    pub target: To,
}

/// The target of a link.
pub enum To {
    /// The object at an address.
    Object(u64),
    /// A path.
    Path(Vec<u8>),
    /// The target of another entry, which must not be a path: the bytes of that entry. The name in them is ignored.
    Entry([u8; ENTRY]),
}

impl Table {
    /// Writes the links of a group. They may be in any order.
    pub fn put(space: &mut Space, mut links: Vec<Named<'_>>, sizes: Sizes) -> Self {
        // Nearly all links are already in order, so a stable sort is faster.
        links.sort_by(|a, b| a.name.cmp(&b.name));
        let mut names = Names::new();
        let mut leaves = Vec::new();
        for links in links.chunks(sizes.leaf) {
            let mut leaf = Vec::with_capacity(LEAF + sizes.leaf * ENTRY);
            leaf.extend(b"SNOD\x01\0");
            leaf.extend((links.len() as u16).to_le_bytes());
            let mut last = 0;
            for link in links {
                last = names.add(&link.name);
                put_entry(&mut leaf, last, &link.target, &mut names);
            }
            leaf.resize(LEAF + sizes.leaf * ENTRY, 0);
            let address = space.put(&leaf);
            leaves.push(Child { address, last });
        }
        Table {
            tree: put_tree(space, leaves, sizes),
            heap: names.put(space),
        }
    }
}

/// Adds a symbol table entry to a leaf.
fn put_entry(leaf: &mut Vec<u8>, name: u64, target: &To, names: &mut Names) {
    let (address, cached, path) = match target {
        To::Object(address) => (*address, cached::NOTHING, 0),
        // The heap is far smaller than 4 GiB, because its names come from an image that is smaller.
        To::Path(path) => (UNDEFINED, cached::PATH, names.add(path) as u32),
        To::Entry(entry) => {
            leaf.extend(name.to_le_bytes());
            leaf.extend(&entry[8..]);
            return;
        }
    };
    let end = leaf.len() + ENTRY;
    leaf.extend(name.to_le_bytes());
    leaf.extend(address.to_le_bytes());
    leaf.extend(cached.to_le_bytes());
    leaf.extend([0; 4]);
    leaf.extend(path.to_le_bytes());
    leaf.resize(end, 0);
}

/// A tree node or leaf, and the heap offset of its last name.
struct Child {
    address: u64,
    last: u64,
}

/// Writes the nodes above these leaves, and returns the address of the root.
fn put_tree(space: &mut Space, mut below: Vec<Child>, sizes: Sizes) -> u64 {
    let len = sizes.node_bytes();
    let mut level = 0;
    loop {
        let count = below.len().div_ceil(sizes.node).max(1);
        let first = space.end();
        let address = |number: usize| first + (number * len) as u64;
        let mut nodes = Vec::with_capacity(count);
        // The key in front of the first child is the last name of the preceding node.
        let mut key = 0;
        for number in 0..count {
            let from = number * sizes.node;
            let children = &below[from..below.len().min(from + sizes.node)];
            let left = number.checked_sub(1).map_or(UNDEFINED, address);
            let right = if number + 1 < count {
                address(number + 1)
            } else {
                UNDEFINED
            };
            let mut node = vec![b'T', b'R', b'E', b'E', 0, level];
            node.extend((children.len() as u16).to_le_bytes());
            node.extend([left, right, key].map(u64::to_le_bytes).as_flattened());
            for child in children {
                node.extend(
                    [child.address, child.last]
                        .map(u64::to_le_bytes)
                        .as_flattened(),
                );
                key = child.last;
            }
            node.resize(len, 0);
            nodes.push(Child {
                address: space.put(&node),
                last: key,
            });
        }
        match &nodes[..] {
            [root] => return root.address,
            _ => below = nodes,
        }
        level += 1;
    }
}

/// The names of a group in a local heap. Each name ends with a zero byte, and begins at a multiple of 8.
struct Names(Vec<u8>);

impl Names {
    /// The first name is empty, because B-trees begin with it.
    fn new() -> Self {
        Names(vec![0; 8])
    }

    fn add(&mut self, name: &[u8]) -> u64 {
        let at = self.0.len();
        self.0.extend(name);
        self.0.resize((at + name.len() + 1).next_multiple_of(8), 0);
        at as u64
    }

    fn put(self, space: &mut Space) -> u64 {
        /// The end mark of the list of free blocks.
        const NO_FREE_BLOCK: u64 = 1;
        const HEADER: u64 = 32;
        let data = space.end() + HEADER;
        let numbers = [self.0.len() as u64, NO_FREE_BLOCK, data].map(u64::to_le_bytes);
        let heap = space.put(&[b"HEAP\0\0\0\0", numbers.as_flattened()].concat());
        space.put(&self.0);
        heap
    }
}
