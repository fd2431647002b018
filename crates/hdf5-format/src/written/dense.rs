//! Dense attributes (IV.A.2.v): attributes that are too large for the header of their object. The header is of version
//! 2, because version 1 has no other place for attributes.
//!
//! Each attribute is a huge object of a fractal heap without blocks (III.G). Two version-2 B-trees (III.A.2) index the
//! attributes: by the hashes of their names, and by heap number. The size of a node is chosen freely, so each tree is a
//! single leaf.

use std::ops::Range;

use crate::btree2::{ATTRIBUTES_BY_NAME, FRAME, HUGE_OBJECTS};
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

    /// Writes the object. One link leads to it. `all` holds its attributes. Returns the address of the header, and the
    /// address of the attributes; `None` if there is no room.
    pub fn put(&self, space: &mut Space, all: &Messages) -> Option<(u64, u64)> {
        let at = space.put(all.bytes());
        let (mut huge, mut names) = (Vec::new(), Vec::new());
        for (number, (name, range)) in (1u64..).zip(&self.attributes) {
            let place = [at + range.start as u64, range.len() as u64, number];
            huge.push(place.map(u64::to_le_bytes).as_flattened().to_vec());
            names.push((lookup3(name), &name[..], number));
        }
        // Names with equal hashes are sorted by name.
        names.sort_unstable();
        let names: Vec<Vec<u8>> = names.into_iter().map(name_record).collect();
        let huge = put_tree(space, HUGE_OBJECTS, &huge)?;
        let heap = space.put(&heap_header(huge, self.attributes.len() as u64, all));
        let names = put_tree(space, ATTRIBUTES_BY_NAME, &names)?;
        let info = [&[0, 0][..], &heap.to_le_bytes(), &names.to_le_bytes()].concat();
        Some((put_header(space, &self.header, &info)?, at))
    }
}

/// A record of the name index: heap ID, flags, creation order, and the hash of the name.
fn name_record((hash, _, number): (u32, &[u8], u64)) -> Vec<u8> {
    /// The type bits of the heap ID of a huge object. A heap ID has eight bytes, and its first byte holds the type.
    const HUGE: u8 = 0x10;
    let mut record = vec![HUGE];
    record.extend(&number.to_le_bytes()[..7]);
    record.push(0);
    record.extend((number as u32 - 1).to_le_bytes());
    record.extend(hash.to_le_bytes());
    record
}

/// The header of a fractal heap (III.G.1) with nothing but `count` huge objects. Their index is at `huge`. The other
/// parameters are libhdf5's for attributes.
fn heap_header(huge: u64, count: u64, all: &Messages) -> Vec<u8> {
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
        [all.bytes().len() as u64, count],
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
    /// The size of most nodes of libhdf5.
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
    /// The length of the messages takes four bytes. There are no times.
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
