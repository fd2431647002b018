//! Links of old groups (III.A.1, III.B to III.D): more of them in an image than libhdf5 has made.
//!
//! The tables of a group that gets links are written anew behind the image, as full as they can be. Those that it had stay there,
//! and nothing leads to them any more.

use std::collections::{BTreeMap, HashMap};

use super::object_header::kind;
use super::{Fields, Image, SUPERBLOCK, read_vec};
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// Where the superblock of version 0 has the numbers of children of nodes, and the entry of the root group (II.A).
const NODE_SIZES: u64 = 16;
const ROOT: u64 = 56;

/// Bytes of an entry of a table, and where it has the address of the object, the kind of what is cached of it, and that.
const ENTRY: usize = 40;
const ADDRESS: u64 = 8;
const CACHE: u64 = 16;
const CACHED: u64 = 24;
/// What is cached are the places of the table of a group.
const IS_GROUP: u32 = 1;

/// Bytes before the entries of a leaf, and before the keys of a node.
const LEAF: usize = 8;
const NODE: usize = 24;

const NO_ADDRESS: u64 = u64::MAX;
/// Stands in the header of a heap for a list of free places without any.
const NOTHING_FREE: u64 = 1;

/// New links: for each group, by the address of its header, the names and the addresses of headers. Tables are written in this order,
/// so that each scan makes the same image.
pub type NewLinks = BTreeMap<u64, Vec<(Vec<u8>, u64)>>;

/// Where the table of a group is: its tree, and the heap with its names.
#[derive(Debug, Clone, Copy)]
struct Table {
    tree: u64,
    heap: u64,
}

/// How many children nodes have.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    leaf: usize,
    node: usize,
}

impl Image {
    /// Adds links to groups. `parents`: the group in which each of them is that is not the root group. Fails where a group is
    /// not of the old kind, or has the name of a new link already.
    pub fn add_links(&mut self, links: NewLinks, parents: &HashMap<u64, u64>) -> Result<()> {
        let [0, ..] = self.get::<1>(8)? else {
            return Err("links are added to files with a superblock of version 0 only".into());
        };
        let [leaf, node] = [0, 2].map(|at| self.get(NODE_SIZES + at).map(u16::from_le_bytes));
        let sizes = Sizes {
            leaf: 2 * usize::from(leaf?),
            node: 2 * usize::from(node?),
        };
        if sizes.leaf == 0 || sizes.node < 2 {
            return Err("a superblock with nodes without children".into());
        }
        let mut moved = HashMap::new();
        for (group, new) in links {
            let table = self.extend(group, new, sizes)?;
            moved.insert(group, table);
        }
        let root = self.get(ROOT + ADDRESS).map(u64::from_le_bytes)?;
        if let Some(table) = moved.get(&root) {
            self.cache(ROOT, table)?;
        }
        let mut around: Vec<u64> = moved
            .keys()
            .filter_map(|group| parents.get(group).copied())
            .collect();
        around.sort_unstable();
        around.dedup();
        for parent in around {
            for (at, entry) in self.entries(self.table(parent)?)? {
                if let Some(table) = Fields(&entry[ADDRESS as usize..])
                    .u64()
                    .and_then(|group| moved.get(&group))
                {
                    self.cache(at, table)?;
                }
            }
        }
        Ok(())
    }

    /// The message of a group that tells where its table is (IV.A.2.r).
    fn table(&self, group: u64) -> Result<Table> {
        let message = self.message(group, kind::SYMBOL_TABLE)?;
        let message = message.ok_or("a group without a symbol table")?;
        let body = message.body(&self.bytes)?;
        let mut fields = Fields(&body);
        let (tree, heap) = fields
            .u64()
            .zip(fields.u64())
            .ok_or("a short symbol table message")?;
        Ok(Table { tree, heap })
    }

    /// Keeps the place of the table of a group in the entry that leads to the group.
    fn cache(&mut self, entry: u64, table: &Table) -> Result<()> {
        self.put(entry + CACHE, &IS_GROUP.to_le_bytes())?;
        self.put(entry + CACHED, &table.tree.to_le_bytes())?;
        self.put(entry + CACHED + 8, &table.heap.to_le_bytes())
    }

    /// All entries of a table, and where they are.
    fn entries(&self, table: Table) -> Result<Vec<(u64, [u8; ENTRY])>> {
        let mut found = Vec::new();
        let mut nodes = vec![table.tree];
        // No image has as many nodes as this.
        let mut left = self.bytes.len();
        while let Some(at) = nodes.pop() {
            left = left
                .checked_sub(LEAF)
                .ok_or("nodes of a group that lead round in a circle")?;
            match self.get::<8>(at)? {
                [b'T', b'R', b'E', b'E', 0, _, low, high] => {
                    let count = u64::from(u16::from_le_bytes([low, high]));
                    let body = read_vec(&self.bytes, at + NODE as u64, 8 + 16 * count)?;
                    let words = body
                        .as_chunks()
                        .0
                        .iter()
                        .map(|word| u64::from_le_bytes(*word));
                    nodes.extend(words.skip(1).step_by(2));
                }
                [b'S', b'N', b'O', b'D', 1, _, low, high] => {
                    for number in 0..u64::from(u16::from_le_bytes([low, high])) {
                        let at = at + LEAF as u64 + number * ENTRY as u64;
                        found.push((at, self.get(at)?));
                    }
                }
                _ => return Err(format!("no node of a group at {at}").into()),
            }
        }
        Ok(found)
    }

    /// Writes the table of a group anew, with more links.
    fn extend(&mut self, group: u64, new: Vec<(Vec<u8>, u64)>, sizes: Sizes) -> Result<Table> {
        let old = self.table(group)?;
        let data = self.get(old.heap + 24).map(u64::from_le_bytes)?;
        let mut entries = BTreeMap::new();
        for (_, entry) in self.entries(old)? {
            let name = Fields(&entry).u64().ok_or("a short entry")?;
            entries.insert(
                self.name(data.checked_add(name).ok_or("a name outside")?)?,
                entry,
            );
        }
        for (name, address) in new {
            let mut entry = [0; ENTRY];
            entry[ADDRESS as usize..CACHE as usize].copy_from_slice(&address.to_le_bytes());
            if entries.insert(name, entry).is_some() {
                return Err("two links of a group have one name".into());
            }
        }
        let table = self.write_table(entries, sizes);
        let message = self.message(group, kind::SYMBOL_TABLE)?;
        let message = message.ok_or("a group without a symbol table")?;
        self.put(message.data, &table.tree.to_le_bytes())?;
        self.put(message.data + 8, &table.heap.to_le_bytes())?;
        message.block.map_or(Ok(()), |block| self.checksum(block))?;
        Ok(table)
    }

    /// A text that ends with a zero.
    fn name(&self, at: u64) -> Result<Vec<u8>> {
        let bytes = self.bytes.get(usize::try_from(at)?..).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0);
        Ok(bytes[..end.ok_or("a name that does not end")?].to_vec())
    }

    fn write_table(&mut self, entries: BTreeMap<Vec<u8>, [u8; ENTRY]>, sizes: Sizes) -> Table {
        // The empty name comes first.
        let mut names = vec![0; 8];
        let entries = entries.into_iter().map(|(name, mut entry)| {
            let at = names.len() as u64;
            entry[..8].copy_from_slice(&at.to_le_bytes());
            names.extend_from_slice(&name);
            // Each begins at a multiple of 8.
            names.resize((names.len() + 1).next_multiple_of(8), 0);
            (at, entry)
        });
        let entries: Vec<(u64, [u8; ENTRY])> = entries.collect();
        // The last name below each child, and where that is.
        let mut below = Vec::new();
        for entries in entries.chunks(sizes.leaf) {
            let mut leaf = b"SNOD\x01\0".to_vec();
            leaf.extend((entries.len() as u16).to_le_bytes());
            entries.iter().for_each(|(_, entry)| leaf.extend(entry));
            leaf.resize(LEAF + sizes.leaf * ENTRY, 0);
            below.push((entries[entries.len() - 1].0, self.append(&leaf)));
        }
        let mut level = 0;
        while level == 0 || below.len() > 1 {
            below = self.write_nodes(&below, level, sizes);
            level += 1;
        }
        let data = self.append(&names);
        let mut heap = b"HEAP\0\0\0\0".to_vec();
        for word in [names.len() as u64, NOTHING_FREE, data] {
            heap.extend(word.to_le_bytes());
        }
        Table {
            tree: below[0].1,
            heap: self.append(&heap),
        }
    }

    /// Writes the nodes of one level of a tree, one behind the other.
    fn write_nodes(&mut self, below: &[(u64, u64)], level: u8, sizes: Sizes) -> Vec<(u64, u64)> {
        let len = NODE + 8 + 16 * sizes.node;
        let first = self.bytes.len().next_multiple_of(8) as u64;
        let count = below.len().div_ceil(sizes.node).max(1);
        let place = |number: Option<usize>| {
            let number = number.filter(|number| *number < count);
            number.map_or(NO_ADDRESS, |number| first + (number * len) as u64)
        };
        let mut written = Vec::new();
        // All names of a node come behind this one.
        let mut last = 0u64;
        for number in 0..count {
            let children = below.chunks(sizes.node).nth(number).unwrap_or_default();
            let mut node = b"TREE\0".to_vec();
            node.push(level);
            node.extend((children.len() as u16).to_le_bytes());
            for neighbour in [number.checked_sub(1), Some(number + 1)] {
                node.extend(place(neighbour).to_le_bytes());
            }
            node.extend(last.to_le_bytes());
            for (name, child) in children {
                node.extend(child.to_le_bytes());
                node.extend(name.to_le_bytes());
                last = *name;
            }
            node.resize(len, 0);
            written.push((last, self.append(&node)));
        }
        written
    }

    /// Appends bytes at a multiple of 8. Returns their address.
    fn append(&mut self, bytes: &[u8]) -> u64 {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(bytes);
        at as u64
    }

    /// Appends a copy of an object whose header is of version 1 and in one piece, for an object that only new links lead to.
    /// Returns its address.
    pub fn copy_object(&mut self, header: u64) -> Result<u64> {
        const PREFIX: u64 = 16;
        let [1, _, _, _, _, _, _, _, a, b, c, d] = self.get(header)? else {
            return Err("an object header that is not of version 1".into());
        };
        if self.message(header, kind::CONTINUATION)?.is_some() {
            return Err("an object header in several pieces".into());
        }
        let len = PREFIX + u64::from(u32::from_le_bytes([a, b, c, d]));
        let copy = read_vec(&self.bytes, header, len)?;
        Ok(self.append(&copy))
    }

    /// Ends the file behind its last byte.
    pub fn set_end(&mut self) -> Result<()> {
        debug_assert!(self.bytes.len() >= SUPERBLOCK);
        let end = self.bytes.len() as u64;
        self.set_superblock(0, end)
    }
}
