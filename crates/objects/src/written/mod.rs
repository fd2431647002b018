//! Objects of HDF5 files that are written without libhdf5: groups and datasets in object headers of version 1, and the symbol tables
//! and heaps behind them.
//!
//! Objects refer to each other by number. They get addresses when [`put`] writes them.
//!
//! | module | contents |
//! |---|---|
//! | `header` | object headers and messages |
//! | `heap` | values of variable length |
//! | `link` | link messages |
//! | `dense` | attributes of an object outside its header |
//! | `existing` | objects that a file has already, and that get more |

pub mod dense;
pub mod existing;
pub mod header;
mod heap;
pub mod link;

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;

use h5logfs_log::image::Space;
use h5logfs_log::image::links::{Named, Sizes, Table, To};
use h5logfs_log::image::object_header::kind;

use dense::Dense;
use existing::{Changes, Existing};
use header::{Messages, PREFIX};

use crate::Result;

/// Bytes of the superblock (II.A), of version 0.
pub const SUPERBLOCK: usize = h5logfs_log::image::SUPERBLOCK;

/// Half as many links as a leaf of a symbol table has, and children as a node of its B-tree: the defaults of libhdf5, which the
/// superblock names.
const LEAF_K: u16 = 4;
const NODE_K: u16 = 16;
/// Sizes of the nodes of symbol tables.
pub const SIZES: Sizes = Sizes::of(LEAF_K, NODE_K);

/// An object that is complete but for addresses.
#[derive(Debug)]
pub struct NewObject {
    /// The messages of its header; of an object with `dense` attributes these. Objects that are alike share them.
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
    /// The header of an object whose attributes lie outside it. Of an existing object: its new attributes.
    pub dense: Option<Dense>,
    /// The object is in the file already. Its `table` has its new links, whatever holds them.
    pub existing: Option<Box<Existing>>,
}

/// Bytes of messages that are replaced, and where they are: the ID of a dataset, and a time.
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
    /// See [`NewObject::existing`].
    pub existing: Option<Box<Existing>>,
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

    /// An object of the file, which has its header at this address.
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
            existing: self.existing,
        }
    }
}

/// About how many bytes objects take.
pub fn size(objects: &[NewObject]) -> usize {
    /// Of a link, in the tables of its group.
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

/// Writes objects, of which the first one is the root group, and all that they lead to. `None`: they take too much room, or refer to
/// an object that is not there.
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

/// Writes the header of an object. Returns its address, and the one from which places in its messages count.
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

/// Sets the references of objects, and writes what lies in heaps.
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

/// Adds objects to a file, of which the first one is its root group. Returns the new file, and the addresses of all objects.
pub fn add(file: &Vec<u8>, mut objects: Vec<NewObject>) -> Result<(Vec<u8>, Vec<u64>)> {
    const NO_ROOM: &str = "the objects take more room than a file has";
    let mut all = file.clone();
    all.resize(file.len().next_multiple_of(8), 0);
    let mut space = Space::new(all.len() as u64);
    let (mut addresses, mut messages_at) = (Vec::new(), Vec::new());
    for object in &objects {
        let (address, messages) = match &object.existing {
            // Its places count from the begin of the file.
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

/// A superblock of version 0 (II.A) of a file that ends at `end`.
pub fn superblock(root: u64, table: Option<Table>, end: u64) -> Vec<u8> {
    const HAS_TABLE: u32 = 1;
    let mut bytes = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0".to_vec();
    bytes.extend([LEAF_K, NODE_K].map(u16::to_le_bytes).as_flattened());
    bytes.extend([0; 4]);
    // From byte 0 on; no free space, no driver.
    let addresses = [0, u64::MAX, end, u64::MAX];
    bytes.extend(addresses.map(u64::to_le_bytes).as_flattened());
    // The root group has no name.
    bytes.extend([0, root].map(u64::to_le_bytes).as_flattened());
    bytes.extend(table.map_or(0, |_| HAS_TABLE).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(table.map_or([0; 16], Table::to_bytes));
    bytes
}
