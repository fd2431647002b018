//! Links of old groups (III.A.1, III.B to III.D): more of them in an image than libhdf5 has made.
//!
//! The tables of a group that gets links are written anew behind the image, as full as they can be. Those that it had stay there,
//! and nothing leads to them any more.

use std::collections::{BTreeMap, HashMap};

use super::Image;
use crate::Result;
use crate::bytes::read_vec;
use crate::fields::Fields;
use crate::object_header::{Message, PREFIX, kind};
use crate::space::Space;
use crate::superblock::{ROOT_ENTRY, SUPERBLOCK, Superblock};
use crate::symbol_table::{Named, Sizes, SymbolTable, Table, To, cached};

/// Where an entry of a table has the kind of what is cached of the object.
const CACHE: u64 = 16;

/// New links: for each group, by the address of its header, the names and the addresses of headers. Tables are written in this
/// order, so that each scan makes the same image.
pub type NewLinks<'a> = BTreeMap<u64, Vec<(&'a [u8], u64)>>;

impl Image {
    /// Adds links to groups. `parents`: the group in which each of them is that is not the root group. Fails where a group is
    /// not of the old kind, or has the name of a new link already.
    pub fn add_links(&mut self, links: NewLinks<'_>, parents: &HashMap<u64, u64>) -> Result<()> {
        let superblock = Superblock::read(&self.bytes)?;
        let Some(sizes) = superblock.sizes.filter(|_| superblock.version == 0) else {
            return Err("links are added to files with a superblock of version 0 only".into());
        };
        let mut moved = HashMap::new();
        for (group, new) in links {
            let table = self.extend(group, new, sizes)?;
            moved.insert(group, table);
        }
        if let Some(table) = moved.get(&superblock.root) {
            self.cache(ROOT_ENTRY, table)?;
        }
        let mut around: Vec<u64> = moved
            .keys()
            .filter_map(|group| parents.get(group).copied())
            .collect();
        around.sort_unstable();
        around.dedup();
        for parent in around {
            for (at, table) in self.cached_places(parent, &moved)? {
                self.cache(at, &table)?;
            }
        }
        Ok(())
    }

    /// The message of a group that says where its table is.
    fn table_message(&self, group: u64) -> Result<Message> {
        let message = self.message(group, kind::SYMBOL_TABLE)?;
        Ok(message.ok_or("a group without a symbol table")?)
    }

    fn table(&self, group: u64) -> Result<SymbolTable<'_, Vec<u8>>> {
        let message = self.table_message(group)?.body(&self.bytes)?;
        SymbolTable::open(&self.bytes, &message)
    }

    /// The entries of a group that lead to groups whose tables were moved, by their addresses.
    fn cached_places(&self, group: u64, moved: &HashMap<u64, Table>) -> Result<Vec<(u64, Table)>> {
        let mut places = Vec::new();
        self.table(group)?.each_entry(|at, entry| {
            let target = Fields(&entry[8..]).u64();
            let table = target.and_then(|target| moved.get(&target));
            places.extend(table.map(|table| (at, *table)));
            Ok(())
        })?;
        Ok(places)
    }

    /// Keeps the place of the table of a group in the entry that leads to the group.
    fn cache(&mut self, entry: u64, table: &Table) -> Result<()> {
        self.put(entry + CACHE, &cached::TABLE.to_le_bytes())?;
        self.put(entry + CACHE + 8, &table.to_bytes())
    }

    /// Writes the table of a group anew, with more links.
    fn extend(&mut self, group: u64, new: Vec<(&[u8], u64)>, sizes: Sizes) -> Result<Table> {
        let old = self.table(group)?;
        let mut links = Vec::with_capacity(new.len());
        old.each_entry(|_, entry| {
            links.push(Named {
                name: old.name(entry)?.into(),
                target: To::Entry(*entry),
            });
            Ok(())
        })?;
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
        let message = self.table_message(group)?;
        self.put(message.data, &table.to_bytes())?;
        message.block.map_or(Ok(()), |block| self.checksum(block))?;
        Ok(table)
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

    /// The header of an object, which is of version 1 and in one piece: a copy of it that is [appended](Image::append) is an
    /// object like this one, to which only new links lead.
    pub fn object(&self, header: u64) -> Result<Vec<u8>> {
        let [1, _, _, _, _, _, _, _, a, b, c, d] = self.get(header)? else {
            return Err("an object header that is not of version 1".into());
        };
        if self.message(header, kind::CONTINUATION)?.is_some() {
            return Err("an object header in several pieces".into());
        }
        let len = PREFIX as u64 + u64::from(u32::from_le_bytes([a, b, c, d]));
        read_vec(&self.bytes, header, len)
    }

    /// Ends the file behind its last byte.
    pub fn set_end(&mut self) -> Result<()> {
        debug_assert!(self.bytes.len() >= SUPERBLOCK);
        let end = self.bytes.len() as u64;
        self.set_superblock(0, end)
    }
}
