//! Links of old groups (III.A.1, III.B to III.D): more of them in an image than libhdf5 has made.
//!
//! The tables of a group that gets links are written anew behind the image, as full as they can be. Those that it had stay there,
//! and nothing leads to them any more.

use std::collections::{BTreeMap, HashMap};

use super::Image;
use crate::Result;
use crate::bytes::read_vec;
use crate::fields::Fields;
use crate::object_header::kind;
use crate::superblock::SUPERBLOCK;
use crate::written::Space;
use crate::written::symbol_table::{ENTRY, LEAF, NODE, Named, Sizes, Table, To};

/// Where the superblock of version 0 has the numbers of children of nodes, and the entry of the root group (II.A).
const NODE_SIZES: u64 = 16;
const ROOT: u64 = 56;

/// Where an entry of a table has the address of the object, the kind of what is cached of it, and that.
const ADDRESS: u64 = 8;
const CACHE: u64 = 16;
const CACHED: u64 = 24;
/// What is cached are the places of the table of a group.
const IS_GROUP: u32 = 1;

/// New links: for each group, by the address of its header, the names and the addresses of headers. Tables are written in this order,
/// so that each scan makes the same image.
pub type NewLinks<'a> = BTreeMap<u64, Vec<(&'a [u8], u64)>>;

impl Image {
    /// Adds links to groups. `parents`: the group in which each of them is that is not the root group. Fails where a group is
    /// not of the old kind, or has the name of a new link already.
    pub fn add_links(&mut self, links: NewLinks<'_>, parents: &HashMap<u64, u64>) -> Result<()> {
        let [0, ..] = self.get::<1>(8)? else {
            return Err("links are added to files with a superblock of version 0 only".into());
        };
        let [leaf, node] = [0, 2].map(|at| self.get(NODE_SIZES + at).map(u16::from_le_bytes));
        let sizes = Sizes::of(leaf?, node?);
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
        self.put(entry + CACHED, &table.to_bytes())
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
    fn extend(&mut self, group: u64, new: Vec<(&[u8], u64)>, sizes: Sizes) -> Result<Table> {
        let old = self.table(group)?;
        let data = self.get(old.heap + 24).map(u64::from_le_bytes)?;
        let mut links = Vec::with_capacity(new.len());
        for (_, entry) in self.entries(old)? {
            let name = Fields(&entry).u64().ok_or("a short entry")?;
            let name = self.name(data.checked_add(name).ok_or("a name outside")?)?;
            links.push(Named {
                name: name.into(),
                target: To::Entry(entry),
            });
        }
        links.extend(new.into_iter().map(|(name, address)| Named {
            name: name.into(),
            target: To::Object(address),
        }));
        links.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if links.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err("two links of a group have one name".into());
        }
        let mut space = Space::new(self.bytes.len().next_multiple_of(8) as u64);
        let table = Table::put(&mut space, links, sizes);
        self.append(&space.into_bytes());
        let message = self.message(group, kind::SYMBOL_TABLE)?;
        let message = message.ok_or("a group without a symbol table")?;
        self.put(message.data, &table.to_bytes())?;
        message.block.map_or(Ok(()), |block| self.checksum(block))?;
        Ok(table)
    }

    /// A text that ends with a zero.
    fn name(&self, at: u64) -> Result<Vec<u8>> {
        let bytes = self.bytes.get(usize::try_from(at)?..).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0);
        Ok(bytes[..end.ok_or("a name that does not end")?].to_vec())
    }

    /// Appends bytes at a multiple of 8. Returns their address.
    pub fn append(&mut self, bytes: &[u8]) -> u64 {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(bytes);
        at as u64
    }

    /// Makes room for so many bytes that are appended.
    pub fn reserve(&mut self, more: usize) {
        self.bytes.reserve(more);
    }

    /// The header of an object, which is of version 1 and in one piece: a copy of it that is [appended](Image::append) is an object
    /// like this one, to which only new links lead.
    pub fn object(&self, header: u64) -> Result<Vec<u8>> {
        const PREFIX: u64 = 16;
        let [1, _, _, _, _, _, _, _, a, b, c, d] = self.get(header)? else {
            return Err("an object header that is not of version 1".into());
        };
        if self.message(header, kind::CONTINUATION)?.is_some() {
            return Err("an object header in several pieces".into());
        }
        let len = PREFIX + u64::from(u32::from_le_bytes([a, b, c, d]));
        read_vec(&self.bytes, header, len)
    }

    /// Ends the file behind its last byte.
    pub fn set_end(&mut self) -> Result<()> {
        debug_assert!(self.bytes.len() >= SUPERBLOCK);
        let end = self.bytes.len() as u64;
        self.set_superblock(0, end)
    }
}
