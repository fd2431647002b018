//! Objects of HDF5 files that are written without libhdf5: groups and datasets in object headers of version 1, and the symbol
//! tables and heaps behind them.
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
pub mod header;
mod heap;

use std::borrow::Cow;
use std::rc::Rc;

use crate::link;
use crate::object_header::{PREFIX, kind};
use crate::space::Space;
use crate::superblock::SIZES;
use crate::symbol_table::{Named, Table, To};

use dense::Dense;
use header::Messages;

/// An object that is complete but for addresses.
#[derive(Debug)]
pub struct NewObject {
    /// The messages of the header; where `dense` is set, the attributes alone. Objects that are alike share them.
    pub messages: Rc<Messages>,
    /// Where this object differs from those that share its messages.
    pub patches: Patches,
    /// How many links lead to it.
    pub links: u32,
    /// The links of a group with a symbol table.
    pub table: Option<GroupLinks>,
    /// Elements of its attributes that lie in a heap.
    pub heap_values: Vec<HeapValue>,
    /// Where in the messages the addresses of objects are, and the numbers of these.
    pub references: Vec<(usize, usize)>,
    /// The header of an object whose attributes lie outside it.
    pub dense: Option<Dense>,
}

/// Pieces of four bytes that replace others in the messages, and where these are.
pub type Patches = [Option<(usize, [u8; 4])>; 2];

/// The links of a group, by name.
#[derive(Debug)]
pub struct GroupLinks {
    /// Where in the messages the symbol table is named.
    pub at: usize,
    /// Names and targets.
    pub links: Vec<(Vec<u8>, Target)>,
}

/// What a link leads to.
#[derive(Debug)]
pub enum Target {
    /// The object of this number.
    Object(usize),
    /// What is at this path.
    Path(Vec<u8>),
}

/// A value of variable length.
#[derive(Debug)]
pub struct HeapValue {
    /// Where in the messages its place is named.
    pub at: usize,
    /// The value.
    pub stored: Stored,
}

/// What lies in a heap.
#[derive(Debug)]
pub enum Stored {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The addresses of the objects of these numbers.
    Objects(Vec<usize>),
}

impl Stored {
    /// The bytes, where objects have these addresses.
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

/// An object that is being made.
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
}

impl Made {
    /// A group without a link or an attribute. Its links will be messages, or else lie in a symbol table. `None`: no room.
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

    /// The messages, to be changed.
    pub fn messages(&mut self) -> &mut Messages {
        Rc::make_mut(&mut self.messages)
    }

    /// Adds an attribute message. Returns where its data begin in the messages. `None`: no room.
    pub fn push_attribute(&mut self, name: &[u8], flags: u8, data: &[u8]) -> Option<usize> {
        let messages = Rc::make_mut(&mut self.messages);
        match &mut self.dense {
            Some(dense) => Some(dense.push(messages, name, data)),
            None => messages.push(kind::ATTRIBUTE, flags, data),
        }
    }

    /// Adds a link to a group. Symbol tables do not say whether a name is UTF-8. `None`: no room.
    pub fn push_link(&mut self, name: Vec<u8>, utf8: bool, target: Target) -> Option<()> {
        if let Some(table) = &mut self.table {
            table.links.push((name, target));
            return Some(());
        }
        match target {
            Target::Object(number) => {
                let data = link::hard(&name, utf8, 0)?;
                let at = self.messages().push(kind::LINK, 0, &data)? + data.len() - 8;
                self.references.push((at, number));
            }
            Target::Path(path) => {
                let data = link::soft(&name, utf8, &path)?;
                self.messages().push(kind::LINK, 0, &data)?;
            }
        }
        Some(())
    }

    /// The object, with so many links to it.
    pub fn object(self, links: u32) -> NewObject {
        NewObject {
            messages: self.messages,
            patches: [None, None],
            links,
            table: self.table,
            heap_values: self.heap_values,
            references: self.references,
            dense: self.dense,
        }
    }
}

/// About how many bytes objects take.
pub fn size(objects: &[NewObject]) -> usize {
    /// Bytes of a link in the tables of its group.
    const LINK: usize = 64;
    let of = |object: &NewObject| {
        let links = object.table.as_ref().map_or(0, |table| table.links.len());
        PREFIX + object.messages.bytes().len() + LINK * links
    };
    objects.iter().map(of).sum()
}

/// The root group, whose header is written.
pub struct Root<'a> {
    /// The address of its header.
    pub address: u64,
    /// The address from which places in its messages count.
    pub messages: u64,
    /// A link that its symbol table has besides its own.
    pub more: Option<Named<'a>>,
}

/// Where objects lie.
pub struct Placed {
    /// The addresses of their headers.
    pub addresses: Vec<u64>,
    /// The symbol table of the root group, if it has one. Its header does not name it yet.
    pub of_root: Option<Table>,
}

/// Writes objects, of which the first one is the root group, and all that they lead to. `None`: they take too much room, or refer
/// to an object that is not there.
pub fn put(space: &mut Space, objects: &[NewObject], mut root: Root<'_>) -> Option<Placed> {
    let (mut addresses, mut messages_at) = (vec![root.address], vec![root.messages]);
    for object in objects.get(1..)? {
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
    for (object, messages) in objects.iter().zip(&messages_at) {
        for (at, number) in &object.references {
            let address = addresses.get(*number)?;
            space.set(messages.wrapping_add(*at as u64), &address.to_le_bytes());
        }
    }
    put_heap_values(space, objects, &messages_at, &addresses)?;
    Some(Placed { addresses, of_root })
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
