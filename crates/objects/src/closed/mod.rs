//! The metadata of a closed log (`docs/formats/logvol.md`), made without libhdf5 of the objects of its shadow, or of definitions:
//! superblock, root group, the log's own objects, and those of the user with anchors in place of logged datasets.
//!
//! libhdf5 makes each object by several searches through its caches, so that thousands take a second. Nearly all programs make
//! objects of few kinds, whose bytes are known: old groups, logged datasets, and attributes of numbers and texts. So a shadow
//! with nothing else is walked through once, and its closed form is written in one piece. For any other one
//! [`ClosedObjects::of`] has nothing, and libhdf5 copies it. Definitions say nothing else, so libhdf5 makes of them only what has no
//! room in an object header.
//!
//! | module | contents |
//! |---|---|
//! | `plain` | which shadows these are; their objects as headers without addresses |
//! | `defined` | the objects of definitions in the same form |
//! | `datatype` | messages of the datatypes of definitions |
//! | `header` | object headers and messages |
//! | `heap` | values of variable length |

mod datatype;
mod defined;
mod header;
mod heap;
mod plain;

use std::collections::HashMap;

use h5logfs_log::front::FRONT;
use h5logfs_log::image::links::{Named, Sizes, Table, To};
use h5logfs_log::image::object_header::kind;
use h5logfs_log::image::{Added, Space};
use h5logfs_log::journal::closed::{Closed, ClosedLog, SEAL_AT, set_seal};
use h5logfs_log::journal::definition::{Defined, Definition};
use h5logfs_log::logvol::{MARK, names};
use h5logfs_log::window::Piece;

use crate::Result;
use header::{Messages, PREFIX};
use plain::{Plain, Target};

/// Bytes of the superblock (II.A), of version 0.
const SUPERBLOCK: usize = h5logfs_log::image::SUPERBLOCK;

/// Half as many links as a leaf of a symbol table has, and children as a node of its B-tree: the defaults of libhdf5, which the
/// superblock names.
const LEAF_K: u16 = 4;
const NODE_K: u16 = 16;
const SIZES: Sizes = Sizes::of(LEAF_K, NODE_K);

/// The objects of a log, but for addresses.
#[derive(Debug)]
pub struct ClosedObjects(Vec<Plain>);

impl ClosedObjects {
    /// The objects of a shadow with this image, of which those at the addresses of `logged` are logged datasets with these IDs.
    /// `None` where only libhdf5 can copy them, or tell what is wrong with them.
    pub fn of(image: &Vec<u8>, logged: impl IntoIterator<Item = (u64, u32)>) -> Option<Self> {
        let mut ids = HashMap::new();
        for (header, id) in logged {
            if ids.insert(header, id).is_some() {
                return None;
            }
        }
        plain::objects(image, &ids)
            .ok()
            .flatten()
            .map(ClosedObjects)
    }

    /// The objects that definitions make. `datasets` are in the order of their IDs, with their present extents. `None` where only libhdf5
    /// can make them.
    pub fn of_definitions(definitions: &[Definition], datasets: &[Defined]) -> Option<Self> {
        defined::objects(definitions, datasets).map(ClosedObjects)
    }

    /// The metadata of the closed log, with its seal. `datasets` is the number of dataset IDs in use.
    pub fn metadata(&self, log: ClosedLog<'_>, datasets: usize) -> Result<Added> {
        let start = log.table.offset + log.table.len;
        let mut front = vec![0; FRONT as usize];
        let mut own = Space::new(SUPERBLOCK as u64);
        let mut rest = Space::with_room(start, self.size());
        let group = own_objects(&mut own, log).ok_or(TOO_MUCH)?;
        let (root, table) = self
            .objects(&mut own, &mut rest, (log, datasets), group)
            .ok_or(TOO_MUCH)?;
        let (own, rest) = (own.into_bytes(), rest.into_bytes());
        if SUPERBLOCK + own.len() > SEAL_AT {
            return Err(TOO_MUCH.into());
        }
        front[SUPERBLOCK..][..own.len()].copy_from_slice(&own);
        front[..SUPERBLOCK].copy_from_slice(&superblock(root, table, start + rest.len() as u64));
        log.id.mark(&mut front);
        let closed = Closed {
            flush: log.flush,
            end: log.end(),
            has_seals: log.has_seals,
        };
        set_seal(&mut front, closed, start, &rest);
        Ok(Added::of(front, start, rest))
    }

    /// About how many bytes they take.
    fn size(&self) -> usize {
        /// Of a link, in the tables of its group.
        const LINK: usize = 64;
        let of = |object: &Plain| {
            let links = object.table.as_ref().map_or(0, |table| table.links.len());
            PREFIX + object.messages.bytes().len() + LINK * links
        };
        self.0.iter().map(of).sum()
    }

    /// Writes the root group, and all that is in it, with the log's own `group`. Returns its address, and where its links are.
    fn objects(
        &self,
        own: &mut Space,
        rest: &mut Space,
        log: (ClosedLog<'_>, usize),
        group: u64,
    ) -> Option<(u64, Table)> {
        let (root, others) = self.0.split_first()?;
        let (address, mut messages_at) = put_root(own, rest, log, root)?;
        let mut addresses = vec![address];
        for object in others {
            let address = object.messages.put(rest, object.links, 0)?;
            let messages = address + PREFIX as u64;
            for (at, bytes) in object.patches.iter().flatten() {
                rest.set(messages + *at as u64, bytes);
            }
            addresses.push(address);
            messages_at.push(messages);
        }
        let mut of_root = None;
        for (number, object) in self.0.iter().enumerate() {
            let Some(group_links) = &object.table else {
                continue;
            };
            let named = group_links.links.iter().map(|(name, target)| Named {
                name: name.into(),
                target: match target {
                    Target::Object(number) => To::Object(addresses[*number]),
                    Target::Path(path) => To::Path(path.clone()),
                },
            });
            let mut named: Vec<Named<'_>> = named.collect();
            if number == 0 {
                named.push(Named {
                    name: names::LOG_GROUP.as_bytes().into(),
                    target: To::Object(group),
                });
            }
            let table = Table::put(rest, named, SIZES);
            if number == 0 {
                own.set(address + (PREFIX + header::HEAD) as u64, &table.to_bytes());
                of_root = Some(table);
            } else {
                rest.set(
                    messages_at[number] + group_links.at as u64,
                    &table.to_bytes(),
                );
            }
        }
        for (object, messages) in self.0.iter().zip(&messages_at) {
            for (at, number) in &object.references {
                let address = addresses.get(*number)?;
                rest.set(messages.wrapping_add(*at as u64), &address.to_le_bytes());
            }
        }
        let mut values = Vec::new();
        for (object, messages) in self.0.iter().zip(&messages_at) {
            for value in &object.heap_values {
                let at = messages.wrapping_add(value.at as u64);
                values.push((at, value.stored.bytes(&addresses)?));
            }
        }
        let bytes = values.iter().map(|(_, bytes)| &bytes[..]);
        heap::put(rest, bytes, |rest, value, address, number| {
            let at = values[value].0;
            rest.set(at, &address.to_le_bytes());
            rest.set(at + 8, &number.to_le_bytes());
        });
        Some((address, of_root?))
    }
}

const TOO_MUCH: &str = "the metadata of the closed log take too much room";

/// Writes the header of the root group. What it has of the user lies behind the table, since the room in the front is little.
/// Returns its address, and the one from which the messages of the user count.
fn put_root(
    own: &mut Space,
    rest: &mut Space,
    log: (ClosedLog<'_>, usize),
    root: &Plain,
) -> Option<(u64, Vec<u64>)> {
    let mut messages = Messages::default();
    messages.push(kind::SYMBOL_TABLE, 0, &[0; 16])?;
    push_mark(&mut messages, log)?;
    // Its first message is the symbol table, which is in the front.
    let (taken, more) = (header::HEAD + 16, root.messages.count() - 1);
    let theirs = &root.messages.bytes()[taken..];
    let at = rest.put(theirs);
    if more > 0 {
        let place = [at, theirs.len() as u64].map(u64::to_le_bytes);
        messages.push(kind::CONTINUATION, 0, place.as_flattened())?;
    }
    let address = messages.put(own, root.links, more)?;
    Some((address, vec![at.wrapping_sub(taken as u64)]))
}

/// The root attributes that make the file a log (section 1.1).
fn push_mark(messages: &mut Messages, (log, datasets): (ClosedLog<'_>, usize)) -> Option<()> {
    let logs = i32::from(log.table.len > 0);
    let datasets = i32::try_from(datasets).ok()?;
    let numbers = [datasets, logs, logs, log.header.config, 1];
    messages.push_list(MARK, header::integer(4, true), &numbers, i32::to_le_bytes)?;
    let writer = log.header.writer.as_bytes();
    let text = header::text(u32::try_from(writer.len()).ok()?);
    let data = header::attribute(names::WRITER, &text, &header::SCALAR, writer)?;
    messages.push(kind::ATTRIBUTE, 0, &data).map(|_| ())
}

/// Writes the group of the log (section 1.2). Returns its address.
fn own_objects(own: &mut Space, log: ClosedLog<'_>) -> Option<u64> {
    let mut links = Vec::new();
    if log.table.len > 0 {
        for (name, piece) in [("_ld_0", log.data), ("_md_0", log.table)] {
            let address = bytes_of_log(piece)?.put(own, 1, 0)?;
            links.push(Named {
                name: name.as_bytes().into(),
                target: To::Object(address),
            });
        }
    }
    let table = Table::put(own, links, SIZES);
    let mut messages = Messages::default();
    messages.push(kind::SYMBOL_TABLE, 0, &table.to_bytes())?;
    messages.put(own, 1, 0)
}

/// A dataset of bytes of the file.
fn bytes_of_log(piece: Piece) -> Option<Messages> {
    /// Bit fields of one byte.
    const BITS: [u8; 12] = [0x14, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
    const CONSTANT: u8 = 1;
    let mut messages = Messages::default();
    messages.push(kind::DATASPACE, 0, &header::list(piece.len))?;
    messages.push(kind::DATATYPE, CONSTANT, &BITS)?;
    // The place is there from the begin.
    let fill = header::fill_value(header::allocation::EARLY, &[])?;
    messages.push(kind::FILL_VALUE, CONSTANT, &fill)?;
    let place = header::contiguous(piece.offset, piece.len);
    messages.push(kind::LAYOUT, 0, &place)?;
    Some(messages)
}

/// A superblock of version 0 (II.A).
fn superblock(root: u64, table: Table, end: u64) -> Vec<u8> {
    const HAS_TABLE: u32 = 1;
    let mut bytes = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0".to_vec();
    bytes.extend([LEAF_K, NODE_K].map(u16::to_le_bytes).as_flattened());
    bytes.extend([0; 4]);
    // From byte 0 on; no free space, no driver.
    let addresses = [0, u64::MAX, end, u64::MAX];
    bytes.extend(addresses.map(u64::to_le_bytes).as_flattened());
    // The root group has no name.
    bytes.extend([0, root].map(u64::to_le_bytes).as_flattened());
    bytes.extend(HAS_TABLE.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(table.to_bytes());
    bytes
}
