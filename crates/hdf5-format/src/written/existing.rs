//! Existing objects of a file that get links or attributes. Their headers keep their addresses, because references, links and the
//! journal contain these addresses.
//!
//! * The messages of a header move into one block at the end of the file. The first block keeps only the message that leads
//!   there. Old messages in further blocks stay in the file, but nothing leads to them any more.
//! * Attributes stay messages. Attributes in a fractal heap become messages. Only if one is too long for a message do all
//!   attributes of the object go to a heap. A header of version 1 has no attribute heap, so it becomes a header of version 2.
//! * Links in a fractal heap become messages. A symbol table is rewritten, except for the root of its B-tree and the front of
//!   its heap: entries of other groups may name these.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use super::dense::{self, Outside};
use super::{NewObject, Target};
use crate::attribute::{AttributeParts, outside_header};
use crate::bounds::Allowance;
use crate::bytes::read_array;
use crate::group::{dense_links, order_of_links};
use crate::link;
use crate::messages::Header;
use crate::object_header::{self, Mode, Prefix, kind};
use crate::superblock::{LEAF_K, NODE_K};
use crate::symbol_table::{Named, Sizes, Table, To};
use crate::{Fields, LinkTarget, Objects, Result, Space, lookup3};

/// An existing object of a file.
#[derive(Debug)]
pub struct Existing {
    /// The address of its header.
    pub address: u64,
    /// The names of attributes that new attributes replace.
    pub replaced: HashSet<Vec<u8>>,
}

/// Changes to a file, and the blocks whose checksums follow once all addresses are set.
#[derive(Debug)]
pub struct Changes {
    bytes: Vec<(u64, Vec<u8>)>,
    sums: Vec<Range<u64>>,
    /// The number of bytes that may still be copied. No two objects of a sound file share bytes, so a sound file stays below it.
    left: Allowance,
}

impl Changes {
    /// An empty list of changes to `file`.
    pub fn of(file: &Vec<u8>) -> Self {
        Changes {
            bytes: Vec::new(),
            sums: Vec::new(),
            left: Allowance::of(file),
        }
    }

    /// Makes the changes. `file` is the whole file with its additions.
    pub fn apply(self, file: &mut [u8]) -> Result<()> {
        for (at, bytes) in self.bytes {
            put_at(file, at, &bytes)?;
        }
        for block in self.sums {
            set_checksum(file, block)?;
        }
        Ok(())
    }
}

/// Replaces bytes of a file.
pub fn put_at(file: &mut [u8], at: u64, bytes: &[u8]) -> Result<()> {
    let place = usize::try_from(at)?;
    let place = file
        .get_mut(place..)
        .and_then(|rest| rest.get_mut(..bytes.len()));
    place.ok_or("a place past the file")?.copy_from_slice(bytes);
    Ok(())
}

/// Sets the checksum at the end of a block.
pub fn set_checksum(file: &mut [u8], block: Range<u64>) -> Result<()> {
    let (from, to) = (usize::try_from(block.start)?, usize::try_from(block.end)?);
    let block = file.get_mut(from..to).ok_or("a block past the file")?;
    let (bytes, sum) = block.split_last_chunk_mut::<4>().ok_or("a short block")?;
    *sum = lookup3(bytes).to_le_bytes();
    Ok(())
}

/// The sizes of the nodes of symbol tables, from the superblock (II.A) or its extension (IV.A.2.s).
pub fn sizes(file: &Vec<u8>) -> Result<Sizes> {
    let (leaf, node) = match read_array::<9, _>(file, 0)?[8] {
        0 | 1 => {
            let [a, b, c, d] = read_array(file, 16)?;
            (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
        }
        _ => of_extension(file)?.unwrap_or((LEAF_K, NODE_K)),
    };
    if leaf == 0 || node == 0 {
        return Err("a superblock with nodes without children".into());
    }
    Ok(Sizes::of(leaf, node))
}

fn of_extension(file: &Vec<u8>) -> Result<Option<(u16, u16)>> {
    let address = u64::from_le_bytes(read_array(file, 20)?);
    if address == u64::MAX {
        return Ok(None);
    }
    let header = Header::read(file, address, &[kind::BTREE_K])?;
    let Some(message) = header.first(kind::BTREE_K) else {
        return Ok(None);
    };
    let mut fields = Fields(message.own_data()?);
    let mut read = || {
        fields.expect(&[0])?;
        fields.skip(2)?;
        let (node, leaf) = (fields.u16()?, fields.u16()?);
        Some((leaf, node))
    };
    Ok(Some(read().ok_or("an unknown message of B-trees")?))
}

/// Updates the end of the file in the superblock.
pub fn set_end(file: &mut Vec<u8>) -> Result<()> {
    let end = (file.len() as u64).to_le_bytes();
    match read_array::<9, _>(file, 0)?[8] {
        0 => put_at(file, 40, &end),
        1 => put_at(file, 44, &end),
        _ => {
            put_at(file, 28, &end)?;
            set_checksum(file, 0..48)
        }
    }
}

/// A message that the rewritten header keeps.
struct Message {
    kind: u16,
    flags: u8,
    order: u16,
    data: Vec<u8>,
}

/// An old or new attribute of the rewritten header.
struct Attribute {
    name: Vec<u8>,
    flags: u8,
    order: u16,
    data: Vec<u8>,
    /// For a new attribute, its position among the bytes of all new attributes.
    is_new_at: Option<usize>,
}

/// An object header, read in order to be written again.
struct Rewriting {
    prefix: Prefix,
    links_to_it: u32,
    messages: Vec<Message>,
    attributes: Vec<Attribute>,
    /// The symbol table of the group, if it has one.
    table: Option<Table>,
}

/// The largest length of a message's data, in bytes.
const LONGEST: usize = u16::MAX as usize - 8;
/// Flags of headers of version 2: creation order of attributes is tracked, and indexed.
const TRACKED: u8 = 4;
const INDEXED: u8 = 8;
/// The length of the data of a continuation message.
const CONTINUATION: usize = 16;

/// Writes the additions to an existing object. Afterwards the positions in `object` count from the start of the file. `addresses`
/// are the addresses of all objects. `file` is the file without additions.
pub fn put(
    space: &mut Space,
    file: &Vec<u8>,
    object: &mut NewObject,
    addresses: &[u64],
    changes: &mut Changes,
) -> Result<()> {
    let Some(existing) = object.existing.take() else {
        return Ok(());
    };
    let mut header = Rewriting::read(file, &existing, &mut changes.left)?;
    let links = object.table.take().map_or(Vec::new(), |table| table.links);
    let mut is_changed = false;
    if !links.is_empty() {
        match header.table {
            Some(table) => {
                let group = existing.address;
                put_table(space, file, (group, table), links, addresses, changes)?;
            }
            None => {
                let group = (existing.address, &mut changes.left);
                header.add_links(file, group, links, addresses)?;
                is_changed = true;
            }
        }
    }
    is_changed |= header.add_attributes(object)? || !existing.replaced.is_empty();
    if !is_changed {
        return Ok(());
    }
    let placed = header.put(space, existing.address, changes)?;
    let absolute = |at: usize| placed.absolute(at).ok_or(NOWHERE);
    for (at, _) in &mut object.references {
        *at = absolute(*at)?;
    }
    for value in &mut object.heap_values {
        value.at = absolute(value.at)?;
    }
    Ok(())
}

const NOWHERE: &str = "a reference that is in no attribute";

/// The places of new attributes: for each its position among the bytes of all new attributes, and its offset in the file.
struct Placed(Vec<(usize, u64)>);

impl Placed {
    fn absolute(&self, at: usize) -> Option<usize> {
        let number = self.0.partition_point(|(begin, _)| *begin <= at);
        let (begin, place) = self.0.get(number.checked_sub(1)?)?;
        usize::try_from(*place).ok()?.checked_add(at - begin)
    }
}

impl Rewriting {
    fn read(file: &Vec<u8>, existing: &Existing, left: &mut Allowance) -> Result<Self> {
        let prefix = Prefix::read(file, existing.address)?;
        let links_to_it = match prefix.flags() {
            None => u32::from_le_bytes(read_array(file, existing.address + 4)?),
            Some(_) => 1,
        };
        let mut found = Rewriting {
            prefix,
            links_to_it,
            messages: Vec::new(),
            attributes: Vec::new(),
            table: None,
        };
        object_header::messages(file, existing.address, Mode::Checked, |message| {
            let data = message.body(file)?;
            left.take(data.len() as u64)?;
            let (flags, order) = (message.flags, message.order.unwrap_or(0));
            match message.kind {
                kind::NIL | kind::CONTINUATION => {}
                kind::ATTRIBUTE => {
                    if message.is_shared() {
                        return Err("an attribute in the heap of shared messages".into());
                    }
                    found.keep_attribute(existing, flags, order, data)?;
                }
                kind => {
                    if kind == kind::SYMBOL_TABLE {
                        let mut fields = Fields(&data);
                        let places = fields.u64().zip(fields.u64());
                        let (tree, heap) = places.ok_or("a short symbol table message")?;
                        found.table = Some(Table { tree, heap });
                    }
                    found.messages.push(Message {
                        kind,
                        flags,
                        order,
                        data,
                    });
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (order, data) in outside_header(file, existing.address)? {
            left.take(data.len() as u64)?;
            found.keep_attribute(existing, 0, order as u16, data)?;
        }
        Ok(found)
    }

    fn keep_attribute(
        &mut self,
        existing: &Existing,
        flags: u8,
        order: u16,
        data: Vec<u8>,
    ) -> Result<()> {
        let name = AttributeParts::of_message(&data)?.name.to_vec();
        if !existing.replaced.contains(&name) {
            self.attributes.push(Attribute {
                name,
                flags,
                order,
                data,
                is_new_at: None,
            });
        }
        Ok(())
    }

    /// Adds links as messages. Links in a heap become messages first.
    fn add_links(
        &mut self,
        file: &Vec<u8>,
        (group, left): (u64, &mut Allowance),
        links: Vec<(Vec<u8>, Target)>,
        addresses: &[u64],
    ) -> Result<()> {
        let message = |data| Message {
            kind: kind::LINK,
            flags: 0,
            order: 0,
            data,
        };
        let of_heap = dense_links(file, group)?;
        left.take(of_heap.iter().map(|link| link.len() as u64).sum())?;
        self.messages.extend(of_heap.into_iter().map(message));
        let info = self.messages.iter_mut().find(|m| m.kind == kind::LINK_INFO);
        let info = info.ok_or("a group without a link info message")?;
        let mut order = order_of_links(&info.data);
        let mut new = Vec::with_capacity(links.len());
        for (name, target) in links {
            let utf8 = !name.is_ascii();
            let data = match target {
                Target::Object(number) => {
                    let address = addresses.get(number).ok_or("a link to no object")?;
                    link::hard(&name, utf8, order, *address)
                }
                Target::Path(path) => link::soft(&name, utf8, order, &path),
            };
            new.push(message(data.ok_or("a name that is too long")?));
            order = order.map(|order| order + 1);
        }
        info.data =
            link::info_of_messages(&info.data, order).ok_or("an unknown link info message")?;
        self.messages.extend(new);
        Ok(())
    }

    /// Adds the new attributes of an object. Returns whether there are any.
    fn add_attributes(&mut self, object: &NewObject) -> Result<bool> {
        let Some(new) = &object.dense else {
            return Ok(false);
        };
        let mut order = self.next_order();
        let bytes = object.messages.bytes();
        for (name, range) in new.attributes() {
            let data = bytes.get(range.clone()).ok_or(NOWHERE)?;
            self.attributes.push(Attribute {
                name: name.clone(),
                flags: 0,
                order,
                data: data.to_vec(),
                is_new_at: Some(range.start),
            });
            order = order.saturating_add(1);
        }
        Ok(!new.attributes().is_empty())
    }

    /// The number of the next attribute in creation order.
    fn next_order(&self) -> u16 {
        let mut info = self.messages.iter();
        let info = info.find(|message| message.kind == kind::ATTRIBUTE_INFO);
        let told = info.and_then(|info| {
            let mut fields = Fields(&info.data);
            fields.expect(&[0])?;
            (fields.u8()? & 1 != 0).then(|| fields.u16())?
        });
        let highest = self.attributes.iter().map(|attribute| attribute.order);
        let next = highest.max().map_or(0, |order| order.saturating_add(1));
        told.unwrap_or(0).max(next)
    }

    /// Writes the header at its address, and its messages at the end of the file.
    fn put(self, space: &mut Space, address: u64, changes: &mut Changes) -> Result<Placed> {
        /// The number of messages in the first block.
        const IN_FRONT: usize = 2;
        let messages = self.messages.len() + self.attributes.len() + IN_FRONT;
        let fits = self.attributes.iter().all(|a| a.data.len() <= LONGEST);
        match self.prefix.flags() {
            None if fits && messages <= usize::from(u16::MAX) => {
                self.put_old(space, address, changes)
            }
            flags => self.put_new(space, address, flags, fits, changes),
        }
    }

    /// Writes a header of version 1 (IV.A.1.a).
    fn put_old(self, space: &mut Space, address: u64, changes: &mut Changes) -> Result<Placed> {
        const HEAD: usize = 8;
        let mut bytes = Vec::new();
        let mut begins = Vec::new();
        let mut count = 0u16;
        let mut push = |kind: u16, flags: u8, data: &[u8]| {
            let len = data.len().next_multiple_of(8);
            bytes.extend(kind.to_le_bytes());
            bytes.extend((len as u16).to_le_bytes());
            bytes.extend([flags, 0, 0, 0]);
            let at = bytes.len();
            bytes.extend(data);
            bytes.resize(at + len, 0);
            count += 1;
            at as u64
        };
        for Message {
            kind, flags, data, ..
        } in &self.messages
        {
            push(*kind, *flags, data);
        }
        for attribute in &self.attributes {
            let at = push(kind::ATTRIBUTE, attribute.flags, &attribute.data);
            begins.extend(attribute.is_new_at.map(|begin| (begin, at)));
        }
        let start = space.put(&bytes);
        let place = [start, bytes.len() as u64].map(u64::to_le_bytes);
        let first = self.prefix.first_messages();
        let room = usize::try_from(first.end - first.start)?;
        let left = room.checked_sub(HEAD + CONTINUATION).ok_or(SMALL)?;
        let mut front = [kind::CONTINUATION, CONTINUATION as u16]
            .map(u16::to_le_bytes)
            .concat();
        front.extend([0; 4]);
        front.extend(place.as_flattened());
        count += 1;
        if left > 0 {
            let len = u16::try_from(left.checked_sub(HEAD).ok_or(SMALL)?)?;
            front.extend([kind::NIL, len].map(u16::to_le_bytes).as_flattened());
            front.resize(room, 0);
            count += 1;
        }
        changes
            .bytes
            .push((address + 2, count.to_le_bytes().to_vec()));
        changes.bytes.push((first.start, front));
        let placed = begins.into_iter().map(|(begin, at)| (begin, start + at));
        Ok(Placed(placed.collect()))
    }

    /// Writes a header of version 2 (IV.A.1.b). `flags` are the flags of the old header if it has this version, too.
    fn put_new(
        mut self,
        space: &mut Space,
        address: u64,
        flags: Option<u8>,
        fits: bool,
        changes: &mut Changes,
    ) -> Result<Placed> {
        let is_tracked = flags.is_some_and(|flags| flags & TRACKED != 0);
        let is_indexed = flags.is_some_and(|flags| flags & INDEXED != 0);
        let mut placed = Vec::new();
        let mut outside = None;
        let next = self.next_order();
        if !fits {
            let mut all = Vec::new();
            for attribute in std::mem::take(&mut self.attributes) {
                let at = space.put(&attribute.data);
                placed.extend(attribute.is_new_at.map(|begin| (begin, at)));
                all.push(Outside {
                    name: attribute.name,
                    order: attribute.order.into(),
                    at,
                    len: attribute.data.len() as u64,
                });
            }
            outside = Some(dense::put_index(space, &all, is_indexed).ok_or(TOO_MANY)?);
        }
        self.messages.retain(|m| m.kind != kind::ATTRIBUTE_INFO);
        let info = dense::info(is_tracked.then_some(next), is_indexed, outside);
        let mut add = |kind, data| {
            self.messages.push(Message {
                kind,
                flags: 0,
                order: 0,
                data,
            });
        };
        add(kind::ATTRIBUTE_INFO, info);
        if flags.is_none() && self.links_to_it > 1 {
            let count = self.links_to_it.to_le_bytes();
            add(kind::REFERENCE_COUNT, [&[0], &count[..]].concat());
        }
        let mut block = b"OCHK".to_vec();
        let mut push = |kind: u16, flags: u8, order: u16, data: &[u8]| {
            block.push(u8::try_from(kind)?);
            block.extend(u16::try_from(data.len())?.to_le_bytes());
            block.push(flags);
            if is_tracked {
                block.extend(order.to_le_bytes());
            }
            let at = block.len() as u64;
            block.extend(data);
            Ok::<u64, h5logfs_common::fault::Fault>(at)
        };
        for message in &self.messages {
            push(message.kind, message.flags, message.order, &message.data)?;
        }
        let start = space.end();
        for attribute in &self.attributes {
            let Attribute {
                flags, order, data, ..
            } = attribute;
            let at = push(kind::ATTRIBUTE, *flags, *order, data)?;
            placed.extend(attribute.is_new_at.map(|begin| (begin, start + at)));
        }
        block.extend([0; 4]);
        space.put(&block);
        let end = space.end();
        changes.sums.push(start..end);
        // The next write begins at a multiple of 8, like everything that libhdf5 writes.
        space.put(&vec![0; (end.next_multiple_of(8) - end) as usize]);
        let place = [start, end - start].map(u64::to_le_bytes);
        self.put_front(address, flags, is_tracked, place.as_flattened(), changes)?;
        Ok(Placed(placed))
    }

    /// Writes the first block of a header of version 2. `place` is the place of the second block.
    fn put_front(
        &self,
        address: u64,
        flags: Option<u8>,
        is_tracked: bool,
        place: &[u8],
        changes: &mut Changes,
    ) -> Result<()> {
        /// The length of the messages takes four bytes.
        const PLAIN: u8 = 2;
        let head = if is_tracked { 6 } else { 4 };
        let mut front = vec![kind::CONTINUATION as u8];
        front.extend((CONTINUATION as u16).to_le_bytes());
        front.resize(head, 0);
        front.extend(place);
        let first = self.prefix.first_messages();
        let room = usize::try_from(first.end - first.start)?;
        if flags.is_some() {
            let left = room.checked_sub(front.len()).ok_or(SMALL)?;
            if left >= head {
                front.push(kind::NIL as u8);
                front.extend(u16::try_from(left - head)?.to_le_bytes());
            }
            front.resize(room, 0);
            changes.bytes.push((first.start, front));
            changes.sums.push(self.prefix.first_block());
            return Ok(());
        }
        // A header of version 1 has 16 bytes before its messages.
        let mut header = b"OHDR\x02".to_vec();
        header.push(PLAIN);
        header.extend((front.len() as u32).to_le_bytes());
        header.extend(front);
        if header.len() + 4 > 16 + room {
            return Err(SMALL.into());
        }
        header.extend(lookup3(&header).to_le_bytes());
        changes.bytes.push((address, header));
        Ok(())
    }
}

const SMALL: &str = "an object header without room for more";
const TOO_MANY: &str = "more attributes than an object has room for";

/// Rewrites the symbol table of a group with more links. The root of its B-tree and the front of its heap keep their
/// addresses.
fn put_table(
    space: &mut Space,
    file: &Vec<u8>,
    (group, old): (u64, Table),
    links: Vec<(Vec<u8>, Target)>,
    addresses: &[u64],
    changes: &mut Changes,
) -> Result<()> {
    const HEAP: usize = 32;
    let mut named = Vec::new();
    for link in Objects::open(file)?.links(group)? {
        changes.left.take(link.name.len() as u64)?;
        let target = match link.target {
            LinkTarget::Hard(address) => To::Object(address),
            LinkTarget::Soft(path) => To::Path(path),
            LinkTarget::External { .. } | LinkTarget::Other(_) => {
                return Err("a symbol table with a link of a new kind".into());
            }
        };
        named.push(Named {
            name: link.name.into(),
            target,
        });
    }
    for (name, target) in links {
        let target = match target {
            Target::Object(number) => {
                To::Object(*addresses.get(number).ok_or("a link to no object")?)
            }
            Target::Path(path) => To::Path(path),
        };
        named.push(Named {
            name: name.into(),
            target,
        });
    }
    let sizes = sizes(file)?;
    let table = Table::put(space, named, sizes);
    let root = space.get(table.tree, sizes.node_bytes());
    let root = root.ok_or("a tree without a root")?.to_vec();
    let heap = space
        .get(table.heap, HEAP)
        .ok_or("a heap without a front")?;
    changes.bytes.push((old.heap, heap.to_vec()));
    changes.bytes.push((old.tree, root));
    Ok(())
}
