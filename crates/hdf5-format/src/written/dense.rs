//! Dense attributes (IV.A.2.v): attributes that are too large for the header of their object. The header is of version
//! 2, because version 1 has no other place for attributes.
//!
//! Each attribute is a huge object of a fractal heap without blocks (III.G). Two version-2 B-trees (III.A.2) index the
//! attributes: by the hashes of their names, and by heap number. The size of a node is chosen freely, so each tree is a
//! single leaf.

use std::ops::Range;

use crate::btree2::{ATTRIBUTES_BY_NAME, ATTRIBUTES_BY_ORDER, FRAME, HUGE_OBJECTS};
use crate::checksum::{lookup3, with_checksum};
use crate::object_header::kind;
use crate::space::Space;

use super::header::Messages;

/// An object with dense attributes.
#[derive(Debug)]
pub struct Dense {
    /// The messages of the header.
    header: Messages,
    /// The names of the attributes, and their places among the bytes of all attributes.
    attributes: Vec<(Vec<u8>, Range<usize>)>,
}

impl Dense {
    /// An object with these header messages and no attributes yet.
    pub fn of(header: Messages) -> Self {
        Dense {
            header,
            attributes: Vec::new(),
        }
    }

    /// Appends an attribute message to `all`, and returns its position there.
    pub fn push(&mut self, all: &mut Messages, name: &[u8], data: &[u8]) -> usize {
        let at = all.push_bytes(data);
        self.attributes.push((name.to_vec(), at..at + data.len()));
        at
    }

    /// The names of the attributes, with the ranges of their messages among the bytes of all attributes.
    pub fn attributes(&self) -> &[(Vec<u8>, Range<usize>)] {
        &self.attributes
    }

    /// Writes the object, with a link count of 1. `all` are the messages of its attributes. Returns the addresses of the header
    /// and of the attributes; `None` if there is no room.
    pub fn put(&self, space: &mut Space, all: &Messages) -> Option<(u64, u64)> {
        let at = space.put(all.bytes());
        let attributes = (0u32..).zip(&self.attributes);
        let attributes: Vec<Outside> = attributes
            .map(|(order, (name, range))| Outside {
                name: name.clone(),
                order,
                at: at + range.start as u64,
                len: range.len() as u64,
            })
            .collect();
        let places = put_index(space, &attributes, false)?;
        let info = info(None, false, Some(places));
        Some((put_header(space, &self.header, &info)?, at))
    }
}

/// An attribute message that lies outside the header of its object.
#[derive(Debug)]
pub struct Outside {
    /// The name of the attribute.
    pub name: Vec<u8>,
    /// The number of the attribute in creation order.
    pub order: u32,
    /// Address of the message.
    pub at: u64,
    /// Bytes of the message.
    pub len: u64,
}

/// The addresses of the heap of attributes and of its indexes.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    heap: u64,
    by_name: u64,
    /// The index by creation order, if there is one.
    by_order: u64,
}

/// Writes the heap of attributes and its indexes. `None` if there is no room.
pub fn put_index(space: &mut Space, all: &[Outside], has_orders: bool) -> Option<Places> {
    let (mut huge, mut names, mut orders) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    for (number, attribute) in (1u64..).zip(all) {
        let Outside {
            name,
            order,
            at,
            len,
        } = attribute;
        bytes += len;
        let place = [*at, *len, number];
        huge.push(place.map(u64::to_le_bytes).as_flattened().to_vec());
        names.push((lookup3(name), &name[..], number, *order));
        orders.push((*order, number));
    }
    // Records with equal hashes are ordered by name.
    names.sort_unstable();
    orders.sort_unstable();
    let names: Vec<Vec<u8>> = names
        .into_iter()
        .map(|(hash, _, number, order)| [&record(number, order)[..], &hash.to_le_bytes()].concat())
        .collect();
    let orders: Vec<Vec<u8>> = orders
        .into_iter()
        .map(|(order, number)| record(number, order))
        .collect();
    let huge = put_tree(space, HUGE_OBJECTS, &huge)?;
    Some(Places {
        heap: space.put(&heap_header(huge, all.len() as u64, bytes)),
        by_name: put_tree(space, ATTRIBUTES_BY_NAME, &names)?,
        by_order: if has_orders {
            put_tree(space, ATTRIBUTES_BY_ORDER, &orders)?
        } else {
            u64::MAX
        },
    })
}

/// The attribute info message (IV.A.2.v). `next` is the number of the next attribute, if the object tracks creation order.
/// `is_indexed` tells whether the object indexes this order. `None` for `places` means that all attributes are messages.
pub fn info(next: Option<u16>, is_indexed: bool, places: Option<Places>) -> Vec<u8> {
    let mut info = vec![0, u8::from(next.is_some()) | u8::from(is_indexed) << 1];
    info.extend(next.iter().flat_map(|next| next.to_le_bytes()));
    let none = Places {
        heap: u64::MAX,
        by_name: u64::MAX,
        by_order: u64::MAX,
    };
    let Places {
        heap,
        by_name,
        by_order,
    } = places.unwrap_or(none);
    info.extend([heap, by_name].map(u64::to_le_bytes).as_flattened());
    if is_indexed {
        info.extend(by_order.to_le_bytes());
    }
    info
}

/// The common start of the records of both indexes: heap ID, flags, and number in creation order.
fn record(number: u64, order: u32) -> Vec<u8> {
    /// A heap ID has eight bytes. The first byte holds the kind of the heap object.
    const HUGE: u8 = 0x10;
    let mut record = vec![HUGE];
    record.extend(&number.to_le_bytes()[..7]);
    record.push(0);
    record.extend(order.to_le_bytes());
    record
}

/// The header of a fractal heap (III.G.1) that contains only `count` huge objects, with their index at `huge`. All other
/// parameters are the ones that libhdf5 uses for attributes.
fn heap_header(huge: u64, count: u64, bytes_of_all: u64) -> Vec<u8> {
    const ID_LEN: u16 = 8;
    const HAS_CHECKSUMS: u8 = 2;
    const MOST_MANAGED: u32 = 4096;
    const WIDTH: u16 = 4;
    const START_AND_MOST_DIRECT: [u64; 2] = [1024, 65536];
    const OFFSET_BITS_AND_FIRST_ROWS: [u16; 2] = [40, 1];
    let mut bytes = b"FRHP\0".to_vec();
    bytes.extend([ID_LEN, 0].map(u16::to_le_bytes).as_flattened());
    bytes.push(HAS_CHECKSUMS);
    bytes.extend(MOST_MANAGED.to_le_bytes());
    let numbers = [
        // The last ID of a huge object, and the index of huge objects.
        [count, huge],
        // Free space in blocks, and the address of the free-space manager.
        [0, u64::MAX],
        // Managed space: total and allocated.
        [0, 0],
        // The end of the allocated space, and the number of managed objects.
        [0, 0],
        // Bytes and number of huge objects.
        [bytes_of_all, count],
        // Bytes and number of tiny objects.
        [0, 0],
    ];
    for number in numbers.as_flattened() {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(WIDTH.to_le_bytes());
    bytes.extend(START_AND_MOST_DIRECT.map(u64::to_le_bytes).as_flattened());
    bytes.extend(
        OFFSET_BITS_AND_FIRST_ROWS
            .map(u16::to_le_bytes)
            .as_flattened(),
    );
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend([0; 2]);
    with_checksum(bytes)
}

/// Writes a B-tree of one leaf with these records, in the given order. Returns its address.
fn put_tree(space: &mut Space, kind: u8, records: &[Vec<u8>]) -> Option<u64> {
    /// The size of most nodes of libhdf5, in bytes.
    const USUAL: usize = 512;
    const SPLIT_AND_MERGE: [u8; 2] = [100, 40];
    let record = records.first()?.len();
    let count = u16::try_from(records.len()).ok()?;
    let size = (FRAME as usize + record * records.len()).max(USUAL);
    let mut leaf = b"BTLF\0".to_vec();
    leaf.push(kind);
    leaf.extend(records.concat());
    let mut leaf = with_checksum(leaf);
    leaf.resize(size, 0);
    let leaf = space.put(&leaf);
    let mut header = b"BTHD\0".to_vec();
    header.push(kind);
    header.extend(u32::try_from(size).ok()?.to_le_bytes());
    header.extend([record as u16, 0].map(u16::to_le_bytes).as_flattened());
    header.extend(SPLIT_AND_MERGE);
    header.extend(leaf.to_le_bytes());
    header.extend(count.to_le_bytes());
    header.extend(u64::from(count).to_le_bytes());
    Some(space.put(&with_checksum(header)))
}

/// Writes an object header of version 2 (IV.A.1.b) with these messages and the attribute info message. Returns its
/// address.
fn put_header(space: &mut Space, messages: &Messages, info: &[u8]) -> Option<u64> {
    /// The length of the messages takes four bytes, and there are no times.
    const FLAGS: u8 = 2;
    let mut all = Vec::new();
    let own = messages.each();
    for (kind, flags, data) in own.chain([(kind::ATTRIBUTE_INFO, 0, info)]) {
        all.push(u8::try_from(kind).ok()?);
        all.extend(u16::try_from(data.len()).ok()?.to_le_bytes());
        all.push(flags);
        all.extend(data);
    }
    let mut header = b"OHDR\x02".to_vec();
    header.push(FLAGS);
    header.extend(u32::try_from(all.len()).ok()?.to_le_bytes());
    header.extend(all);
    Some(space.put(&with_checksum(header)))
}
