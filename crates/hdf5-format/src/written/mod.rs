//! Writes objects of HDF5 files without libhdf5: groups and datasets with object headers of version 1, and their symbol
//! tables and heaps.
//!
//! Objects refer to each other by number. They get addresses when [`put`] writes them.
//!
//! | module | contents |
//! |---|---|
//! | [`header`] | object headers of version 1, and messages |
//! | [`datatype`] | datatype messages |
//! | `attributes` | attributes, with those of dimension scales |
//! | [`dense`] | attributes of an object outside its header |
//! | `heap` | global heaps: values of variable length |

mod attributes;
pub mod datatype;
pub mod dense;
pub mod existing;
pub mod header;
mod heap;

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;

use crate::link;
use crate::object_header::{PREFIX, kind};
use crate::space::Space;
use crate::superblock::SIZES;
use crate::symbol_table::{Named, Table, To};

use dense::Dense;
use existing::{Changes, Existing};
use header::Messages;

use crate::Result;

/// A complete object, except for addresses.
#[derive(Debug)]
pub struct NewObject {
    /// The messages of the header, or the messages of the attributes of an object with `dense` attributes. Objects that are alike
    /// share them.
    pub messages: Rc<Messages>,
    /// The bytes in which this object differs from others with the same messages.
    pub patches: Patches,
    /// The number of links to the object.
    pub links: u32,
    /// The links of a group with a symbol table.
    pub table: Option<GroupLinks>,
    /// Attribute elements that lie in a heap.
    pub heap_values: Vec<HeapValue>,
    /// References to objects: positions in the messages, and object numbers.
    pub references: Vec<(usize, usize)>,
    /// The header of an object with dense attributes.
    pub dense: Option<Dense>,
    /// The object in the file to which this one adds, if there is one. In that case `table` holds the new links, wherever the
    /// group keeps its links.
    pub existing: Option<Box<Existing>>,
}

/// Bytes that replace bytes of the messages, with their positions. They hold the ID of a dataset, and a time.
pub type Patches = [Option<(usize, [u8; 4])>; 2];

/// The links of a group.
#[derive(Debug)]
pub struct GroupLinks {
    /// The position in the messages of the address of the symbol table.
    pub at: usize,
    /// Names and targets.
    pub links: Vec<(Vec<u8>, Target)>,
}

/// The target of a link.
#[derive(Debug)]
pub enum Target {
    /// The object with this number.
    Object(usize),
    /// A path.
    Path(Vec<u8>),
}

/// A value of variable length.
#[derive(Debug)]
pub struct HeapValue {
    /// The position in the messages of the value's place.
    pub at: usize,
    /// The value.
    pub stored: Stored,
}

/// The contents of a heap object.
#[derive(Debug)]
pub enum Stored {
    /// Plain bytes.
    Bytes(Vec<u8>),
    /// The addresses of objects, given by number.
    Objects(Vec<usize>),
}

impl Stored {
    /// The bytes, once the addresses of objects are known.
    fn bytes(&self, addresses: &[u64]) -> Option<Cow<'_, [u8]>> {
        match self {
            Stored::Bytes(bytes) => Some(bytes.into()),
            Stored::Objects(numbers) => {
                let addresses = numbers.iter().map(|number| addresses.get(*number).copied());
                let addresses: Vec<u64> = addresses.collect::<Option<_>>()?;
                Some(addresses.into_iter().flat_map(u64::to_le_bytes).collect())
            }
        }
    }
}

/// An object under construction.
#[derive(Debug, Default)]
pub struct Made {
    /// See [`NewObject::messages`].
    pub messages: Rc<Messages>,
    /// See [`NewObject::heap_values`].
    pub heap_values: Vec<HeapValue>,
    /// See [`NewObject::references`].
    pub references: Vec<(usize, usize)>,
    /// See [`NewObject::table`].
    pub table: Option<GroupLinks>,
    /// See [`NewObject::dense`].
    pub dense: Option<Dense>,
    /// See [`NewObject::existing`].
    pub existing: Option<Box<Existing>>,
}

impl Made {
    /// A group without links or attributes. New links become messages if `has_link_messages` is set, and else entries of a symbol
    /// table. `None` if there is no room.
    pub fn group(has_link_messages: bool) -> Option<Self> {
        let mut made = Made::default();
        if has_link_messages {
            let messages = made.messages();
            messages.push(kind::LINK_INFO, 0, &link::IN_MESSAGES)?;
            messages.push(kind::GROUP_INFO, 0, &link::GROUP_INFO)?;
        } else {
            let at = made.messages().push(kind::SYMBOL_TABLE, 0, &[0; 16])?;
            let links = Vec::new();
            made.table = Some(GroupLinks { at, links });
        }
        Some(made)
    }

    /// Additions to the object of the file with its header at this address.
    pub fn existing(address: u64) -> Self {
        Made {
            table: Some(GroupLinks {
                at: 0,
                links: Vec::new(),
            }),
            dense: Some(Dense::of(Messages::default())),
            existing: Some(Box::new(Existing {
                address,
                replaced: HashSet::new(),
            })),
            ..Made::default()
        }
    }

    /// The messages, for changes.
    pub fn messages(&mut self) -> &mut Messages {
        Rc::make_mut(&mut self.messages)
    }

    /// Adds an attribute message. Returns the position of its data in the messages; `None` if there is no room.
    pub fn push_attribute(&mut self, name: &[u8], flags: u8, data: &[u8]) -> Option<usize> {
        let messages = Rc::make_mut(&mut self.messages);
        match &mut self.dense {
            Some(dense) => Some(dense.push(messages, name, data)),
            None => messages.push(kind::ATTRIBUTE, flags, data),
        }
    }

    /// Adds a link to a group. Symbol tables do not record whether a name is UTF-8. `None` if there is no room.
    pub fn push_link(&mut self, name: Vec<u8>, utf8: bool, target: Target) -> Option<()> {
        if let Some(table) = &mut self.table {
            table.links.push((name, target));
            return Some(());
        }
        match target {
            Target::Object(number) => {
                let data = link::hard(&name, utf8, None, 0)?;
                let at = self.messages().push(kind::LINK, 0, &data)? + data.len() - 8;
                self.references.push((at, number));
            }
            Target::Path(path) => {
                let data = link::soft(&name, utf8, None, &path)?;
                self.messages().push(kind::LINK, 0, &data)?;
            }
        }
        Some(())
    }

    /// Completes the object, with a link count of `links`.
    pub fn object(self, links: u32) -> NewObject {
        NewObject {
            messages: self.messages,
            patches: [None, None],
            links,
            table: self.table,
            heap_values: self.heap_values,
            references: self.references,
            dense: self.dense,
            existing: self.existing,
        }
    }
}

/// The approximate number of bytes of objects.
pub fn size(objects: &[NewObject]) -> usize {
    /// The bytes of a link in the tables of its group.
    const LINK: usize = 64;
    let of = |object: &NewObject| {
        let links = object.table.as_ref().map_or(0, |table| table.links.len());
        PREFIX + object.messages.bytes().len() + LINK * links
    };
    objects.iter().map(of).sum()
}

/// The root group. Its header has already been written.
pub struct Root<'a> {
    /// The address of the header.
    pub address: u64,
    /// The address from which positions in the messages count.
    pub messages: u64,
    /// An additional link in the symbol table.
    pub more: Option<Named<'a>>,
}

/// The places of objects.
pub struct Placed {
    /// The addresses of the object headers.
    pub addresses: Vec<u64>,
    /// The symbol table of the root group, if it has one. The header does not refer to it yet.
    pub of_root: Option<Table>,
}

/// Writes objects and everything that they refer to. The first object is the root group. `None` if the objects take too much
/// room, or refer to a missing object.
pub fn put(space: &mut Space, objects: &[NewObject], mut root: Root<'_>) -> Option<Placed> {
    let (mut addresses, mut messages_at) = (vec![root.address], vec![root.messages]);
    for object in objects.get(1..)? {
        let (address, messages) = put_header(space, object)?;
        addresses.push(address);
        messages_at.push(messages);
    }
    let mut of_root = None;
    for (number, object) in objects.iter().enumerate() {
        let Some(group) = &object.table else {
            continue;
        };
        let mut named = group.named(&addresses)?;
        if number > 0 {
            let table = Table::put(space, named, SIZES).to_bytes();
            space.set(messages_at[number] + group.at as u64, &table);
        } else {
            named.extend(root.more.take());
            of_root = Some(Table::put(space, named, SIZES));
        }
    }
    connect(space, objects, &messages_at, &addresses)?;
    Some(Placed { addresses, of_root })
}

/// Writes the header of an object. Returns its address, and the address from which positions in its messages count.
fn put_header(space: &mut Space, object: &NewObject) -> Option<(u64, u64)> {
    let (address, messages) = match &object.dense {
        Some(dense) => dense.put(space, &object.messages)?,
        None => {
            let address = object.messages.put(space, object.links, 0)?;
            (address, address + PREFIX as u64)
        }
    };
    for (at, bytes) in object.patches.iter().flatten() {
        space.set(messages + *at as u64, bytes);
    }
    Some((address, messages))
}

/// Sets the references of objects, and writes their heap values.
fn connect(
    space: &mut Space,
    objects: &[NewObject],
    messages_at: &[u64],
    addresses: &[u64],
) -> Option<()> {
    for (object, messages) in objects.iter().zip(messages_at) {
        for (at, number) in &object.references {
            let address = addresses.get(*number)?;
            space.set(messages.wrapping_add(*at as u64), &address.to_le_bytes());
        }
    }
    put_heap_values(space, objects, messages_at, addresses)
}

/// Adds objects to a file. The first object is its root group. Returns the new file, and the addresses of all objects.
pub fn add(file: &Vec<u8>, mut objects: Vec<NewObject>) -> Result<(Vec<u8>, Vec<u64>)> {
    const NO_ROOM: &str = "the objects take more room than a file has";
    let mut all = file.clone();
    all.resize(file.len().next_multiple_of(8), 0);
    let mut space = Space::new(all.len() as u64);
    let (mut addresses, mut messages_at) = (Vec::new(), Vec::new());
    for object in &objects {
        let (address, messages) = match &object.existing {
            // Positions in an existing object count from the start of the file.
            Some(existing) => (existing.address, 0),
            None => put_header(&mut space, object).ok_or(NO_ROOM)?,
        };
        addresses.push(address);
        messages_at.push(messages);
    }
    let sizes = existing::sizes(file)?;
    let mut changes = Changes::of(file);
    for (object, messages) in objects.iter_mut().zip(&messages_at) {
        if object.existing.is_some() {
            existing::put(&mut space, file, object, &addresses, &mut changes)?;
        } else if let Some(group) = &object.table {
            let named = group.named(&addresses).ok_or(NO_ROOM)?;
            let table = Table::put(&mut space, named, sizes).to_bytes();
            space.set(messages + group.at as u64, &table);
        }
    }
    connect(&mut space, &objects, &messages_at, &addresses).ok_or(NO_ROOM)?;
    all.extend(space.into_bytes());
    changes.apply(&mut all)?;
    existing::set_end(&mut all)?;
    Ok((all, addresses))
}

impl GroupLinks {
    fn named(&self, addresses: &[u64]) -> Option<Vec<Named<'_>>> {
        let named = self.links.iter().map(|(name, target)| {
            let target = match target {
                Target::Object(number) => To::Object(*addresses.get(*number)?),
                Target::Path(path) => To::Path(path.clone()),
            };
            Some(Named {
                name: name.into(),
                target,
            })
        });
        named.collect()
    }
}

fn put_heap_values(
    space: &mut Space,
    objects: &[NewObject],
    messages_at: &[u64],
    addresses: &[u64],
) -> Option<()> {
    let mut values = Vec::new();
    for (object, messages) in objects.iter().zip(messages_at) {
        for value in &object.heap_values {
            let at = messages.wrapping_add(value.at as u64);
            values.push((at, value.stored.bytes(addresses)?));
        }
    }
    let bytes = values.iter().map(|(_, bytes)| &bytes[..]);
    heap::put(space, bytes, |space, value, address, number| {
        let at = values[value].0;
        space.set(at, &address.to_le_bytes());
        space.set(at + 8, &number.to_le_bytes());
    });
    Some(())
}
