//! Symbol tables: the links of old groups (III.A.1, III.B), and the local heap of their names (III.D).

use super::space::Space;

/// A B-tree node has twice so many children, and a leaf twice so many links: the defaults of libhdf5, which the superblock names.
pub const NODE_K: u16 = 16;
/// See above.
pub const LEAF_K: u16 = 4;

const CHILDREN: usize = 2 * NODE_K as usize;
const LINKS: usize = 2 * LEAF_K as usize;
/// Bytes of a node: all have room for all children.
const NODE: usize = 24 + 8 * CHILDREN + 8 * (CHILDREN + 1);
/// Bytes of an entry of a leaf, and of a leaf.
pub const ENTRY: usize = 40;
const LEAF: usize = 8 + ENTRY * LINKS;
const NONE: u64 = u64::MAX;

/// A link, and what it leads to.
pub struct Named {
    pub name: Vec<u8>,
    pub target: To,
}

/// What a link leads to.
pub enum To {
    /// The object at an address.
    Object(u64),
    /// What is at a path.
    Path(Vec<u8>),
}

/// Where the links of a group lie: what a symbol table message (IV.A.2.r) says.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub tree: u64,
    pub heap: u64,
}

impl Table {
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.tree.to_le_bytes());
        bytes[8..].copy_from_slice(&self.heap.to_le_bytes());
        bytes
    }

    /// Writes the links of a group. They may be in any order.
    pub fn put(space: &mut Space, mut links: Vec<Named>) -> Self {
        links.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut names = Names::new();
        let mut leaves = Vec::new();
        for links in links.chunks(LINKS) {
            let mut leaf = b"SNOD\x01\0".to_vec();
            leaf.extend((links.len() as u16).to_le_bytes());
            let mut last = 0;
            for link in links {
                last = names.add(&link.name);
                leaf.extend(entry(last, &link.target, &mut names));
            }
            leaf.resize(LEAF, 0);
            let address = space.put(&leaf);
            leaves.push(Child { address, last });
        }
        Table {
            tree: put_tree(space, leaves),
            heap: names.put(space),
        }
    }
}

/// A symbol table entry (III.C).
fn entry(name: u64, target: &To, names: &mut Names) -> Vec<u8> {
    const SOFT: u32 = 2;
    let (address, cached, path) = match target {
        To::Object(address) => (*address, 0, 0),
        // The heap is far smaller than 4 GiB: its names come from an image that is.
        To::Path(path) => (NONE, SOFT, names.add(path) as u32),
    };
    let mut bytes = Vec::with_capacity(ENTRY);
    bytes.extend(name.to_le_bytes());
    bytes.extend(address.to_le_bytes());
    bytes.extend(cached.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(path.to_le_bytes());
    bytes.resize(ENTRY, 0);
    bytes
}

/// A node of the tree or a leaf, and where in the heap its last name is.
struct Child {
    address: u64,
    last: u64,
}

/// Writes the nodes above these leaves. Returns the address of the root.
fn put_tree(space: &mut Space, mut below: Vec<Child>) -> u64 {
    let mut level = 0;
    loop {
        let count = below.len().div_ceil(CHILDREN).max(1);
        let first = space.end();
        let address = |number: usize| first + (number * NODE) as u64;
        let mut nodes = Vec::with_capacity(count);
        // The key in front of the first child is the last name of the node before.
        let mut key = 0;
        for number in 0..count {
            let from = number * CHILDREN;
            let children = &below[from..below.len().min(from + CHILDREN)];
            let left = number.checked_sub(1).map_or(NONE, address);
            let right = if number + 1 < count {
                address(number + 1)
            } else {
                NONE
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
            node.resize(NODE, 0);
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

/// The names of a group, as a local heap has them: each ends with a zero, and begins at a multiple of 8.
struct Names(Vec<u8>);

impl Names {
    /// The first name is empty: B-trees begin with it.
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
        /// Stands for the end of the list of free blocks.
        const NO_FREE_BLOCK: u64 = 1;
        const HEADER: u64 = 32;
        let data = space.end() + HEADER;
        let numbers = [self.0.len() as u64, NO_FREE_BLOCK, data].map(u64::to_le_bytes);
        let heap = space.put(&[b"HEAP\0\0\0\0", numbers.as_flattened()].concat());
        space.put(&self.0);
        heap
    }
}
