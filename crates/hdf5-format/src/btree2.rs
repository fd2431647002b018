//! Reads version-2 B-trees (HDF5 File Format Specification, III.A.2): all records, or the records of one key.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::Result;
use crate::bytes::{HeaderBytes, read_checked};
use crate::fields::Fields;

/// Tree of huge objects of a fractal heap, without filters, by number.
pub const HUGE_OBJECTS: u8 = 1;
/// Tree of the links of a group, by the hashes of their names.
pub const LINKS_BY_NAME: u8 = 5;
/// Tree of the attributes of an object, by the hashes of their names.
pub const ATTRIBUTES_BY_NAME: u8 = 8;
/// Records: the attributes of an object, in the order of their creation.
pub const ATTRIBUTES_BY_ORDER: u8 = 9;
/// Records: chunks without filters, by their places in the grid.
pub const CHUNKS: u8 = 10;
/// Tree of chunks with filters, by their places in the grid.
pub const FILTERED_CHUNKS: u8 = 11;

/// The largest depth. Deeper trees would have more nodes than a file has bytes.
const MOST_DEPTH: u16 = 16;
/// Bytes of a header.
const HEADER: u64 = 38;
/// Bytes of a node besides records and pointers: signature, version, type, checksum.
pub(crate) const FRAME: u64 = 10;
/// The largest node that is read, in bytes. Usual nodes have some hundred bytes.
const MOST_NODE: u64 = 1 << 20;
/// The message for a truncated node.
const SHORT: &str = "a node of a B-tree that ends early";

/// A tree with its header.
#[derive(Debug)]
pub struct Tree<'a, B: ?Sized> {
    bytes: &'a B,
    kind: u8,
    /// Bytes of a record.
    record: u64,
    depth: u16,
    /// The levels, starting at the leaves.
    levels: Vec<Level>,
    root: Option<Node>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    address: u64,
    /// The number of records in the node.
    records: u64,
}

/// The nodes of one level.
#[derive(Debug)]
struct Level {
    /// The most records of a node.
    most_records: u64,
    /// The most records of a node and everything below it.
    most_below: u64,
    /// Bytes of the record count of a child.
    count_bytes: usize,
    /// Bytes of the record count of a child and everything below it.
    total_bytes: usize,
}

impl Level {
    /// Bytes of a pointer to a child.
    fn pointer(&self) -> u64 {
        8 + self.count_bytes as u64 + self.total_bytes as u64
    }
}

impl<'a, B: HeaderBytes + ?Sized> Tree<'a, B> {
    /// Opens the tree whose header is at `address`. Fails if its records are not of the type `kind`.
    pub fn open(bytes: &'a B, address: u64, kind: u8) -> Result<Self> {
        let header = read_checked(bytes, address, HEADER)?;
        Tree::of_header(bytes, &header, kind)
            .ok_or_else(|| format!("no B-tree of type {kind} at {address}").into())
    }

    fn of_header(bytes: &'a B, header: &[u8], kind: u8) -> Option<Self> {
        let mut fields = Fields(header);
        fields.expect(b"BTHD\0")?;
        fields.expect(&[kind])?;
        let node_size = u64::from(fields.u32()?);
        let record = u64::from(fields.u16()?);
        let depth = fields.u16()?;
        fields.skip(2)?;
        let root = fields.address()?;
        let records = u64::from(fields.u16()?);
        let total = fields.u64()?;
        if depth > MOST_DEPTH || node_size > MOST_NODE || (root.is_none() && total > 0) {
            return None;
        }
        Some(Tree {
            bytes,
            kind,
            record,
            depth,
            levels: levels(node_size, record, depth)?,
            root: root.map(|address| Node { address, records }),
        })
    }

    /// Bytes of a record; never 0.
    pub fn record_len(&self) -> usize {
        self.record as usize
    }

    /// Calls `see` with the records of one key, in the order of the tree, until `see` stops. `place` compares a record
    /// with the key. Fails if the part of the tree that is read is damaged.
    ///
    /// All nodes together may have at most as many bytes as the file. Otherwise a tree that leads to one node again and
    /// again would never end.
    pub fn each(
        &self,
        place: impl Fn(&[u8]) -> Result<Ordering>,
        mut see: impl FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Some(root) = self.root else {
            return Ok(());
        };
        let mut walk = Walk {
            tree: self,
            left: self.bytes.size(),
            place: &place,
            see: &mut see,
        };
        walk.node(root, self.depth).map(|_| ())
    }

    /// Calls `see` with all records.
    pub fn all(&self, see: impl FnMut(&[u8]) -> Result<ControlFlow<()>>) -> Result<()> {
        self.each(|_| Ok(Ordering::Equal), see)
    }

    /// Reads a node: its records, followed by its pointers.
    fn read(&self, node: Node, depth: u16, left: &mut u64) -> Result<(Vec<u8>, usize)> {
        let level = self.level(depth)?;
        if node.records > level.most_records {
            return Err("a node of a B-tree with too many records".into());
        }
        let records = node.records * self.record;
        let pointers = match depth {
            0 => 0,
            _ => (node.records + 1) * level.pointer(),
        };
        let len = FRAME + records + pointers;
        *left = left.checked_sub(len).ok_or("a B-tree of many nodes")?;
        let mut bytes = read_checked(self.bytes, node.address, len)?;
        let signature = if depth == 0 { b"BTLF" } else { b"BTIN" };
        let mut fields = Fields(&bytes);
        fields
            .expect(signature)
            .and_then(|()| fields.expect(&[0, self.kind]))
            .ok_or_else(|| format!("no node of a B-tree at {}", node.address))?;
        bytes.drain(..signature.len() + 2);
        Ok((bytes, records as usize))
    }

    fn level(&self, depth: u16) -> Result<&Level> {
        Ok(self.levels.get(usize::from(depth)).ok_or(SHORT)?)
    }
}

/// A walk over the records of one key.
struct Walk<'a, B: ?Sized> {
    tree: &'a Tree<'a, B>,
    /// The bytes that further nodes may have.
    left: u64,
    place: &'a dyn Fn(&[u8]) -> Result<Ordering>,
    see: &'a mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>>,
}

impl<B: HeaderBytes + ?Sized> Walk<'_, B> {
    fn node(&mut self, node: Node, depth: u16) -> Result<ControlFlow<()>> {
        let (bytes, records) = self.tree.read(node, depth, &mut self.left)?;
        let (records, pointers) = bytes.split_at_checked(records).ok_or(SHORT)?;
        let records: Vec<&[u8]> = records.chunks_exact(self.tree.record_len()).collect();
        let places = records.iter().map(|record| (self.place)(record));
        let places: Vec<Ordering> = places.collect::<Result<_>>()?;
        if !places.is_sorted() {
            return Err("a node of a B-tree whose records are not in order".into());
        }
        let first = places.partition_point(|place| place.is_lt());
        let end = places.partition_point(|place| place.is_le());
        if self.below(pointers, first, depth)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        for (number, record) in (first + 1..).zip(&records[first..end]) {
            if (self.see)(record)?.is_break() || self.below(pointers, number, depth)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Continues in child `number`. Leaves have no children.
    fn below(&mut self, pointers: &[u8], number: usize, depth: u16) -> Result<ControlFlow<()>> {
        let Some(below) = depth.checked_sub(1) else {
            return Ok(ControlFlow::Continue(()));
        };
        let level = self.tree.level(depth)?;
        let pointer = pointers.get(number * level.pointer() as usize..);
        let child = pointer.and_then(|pointer| child(pointer, level));
        self.node(child.ok_or(SHORT)?, below)
    }
}

/// The node that a pointer leads to.
fn child(pointer: &[u8], level: &Level) -> Option<Node> {
    let mut fields = Fields(pointer);
    Some(Node {
        address: fields.u64()?,
        records: fields.number(level.count_bytes)?,
    })
}

/// The levels of a tree, starting at the leaves.
fn levels(node_size: u64, record: u64, depth: u16) -> Option<Vec<Level>> {
    let room = node_size.checked_sub(FRAME)?;
    let in_leaf = room.checked_div(record)?;
    let mut levels = vec![Level {
        most_records: in_leaf,
        most_below: in_leaf,
        count_bytes: bytes_of(in_leaf)?,
        total_bytes: 0,
    }];
    for above in 1..=depth {
        let below = levels.last()?;
        let mut level = Level {
            most_records: 0,
            most_below: 0,
            count_bytes: below.count_bytes,
            // Leaves have no children.
            total_bytes: if above == 1 {
                0
            } else {
                bytes_of(below.most_below)?
            },
        };
        let pointer = level.pointer();
        level.most_records = room.checked_sub(pointer)? / (record + pointer);
        level.most_below = (level.most_records + 1)
            .checked_mul(below.most_below)?
            .checked_add(level.most_records)?;
        levels.push(level);
    }
    Some(levels)
}

/// Bytes of a number that is at most `most`; `None` for 0.
fn bytes_of(most: u64) -> Option<usize> {
    Some(most.checked_ilog2()? as usize / 8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup3;

    fn with_checksum(parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = parts.concat();
        bytes.extend(lookup3(&bytes).to_le_bytes());
        bytes
    }

    /// The header of a tree of type 1. Its records have one byte, and its nodes 64 bytes.
    fn header(depth: u16, root: u64, records: u16) -> Vec<u8> {
        with_checksum(&[
            b"BTHD\0\x01",
            &64u32.to_le_bytes(),
            &1u16.to_le_bytes(),
            &depth.to_le_bytes(),
            &[100, 40],
            &root.to_le_bytes(),
            &records.to_le_bytes(),
            &5u64.to_le_bytes(),
        ])
    }

    fn leaf(records: &[u8]) -> Vec<u8> {
        with_checksum(&[b"BTLF\0\x01", records])
    }

    fn pointer(address: u64, records: u8) -> Vec<u8> {
        [&address.to_le_bytes()[..], &[records]].concat()
    }

    /// A root with the record 4, and two leaves: 1, 2, 4 and 6, 8.
    fn tree() -> Vec<u8> {
        let (first, second) = (leaf(&[1, 2, 4]), leaf(&[6, 8]));
        let second_at = HEADER + first.len() as u64;
        let root_at = second_at + second.len() as u64;
        let pointers = [pointer(HEADER, 3), pointer(second_at, 2)].concat();
        let root = with_checksum(&[b"BTIN\0\x01", &[4], &pointers]);
        [header(1, root_at, 1), first, second, root].concat()
    }

    fn found(bytes: &Vec<u8>, wanted: Option<u8>) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        let tree = Tree::open(bytes, 0, HUGE_OBJECTS)?;
        tree.each(
            |record| Ok(wanted.map_or(Ordering::Equal, |wanted| record[0].cmp(&wanted))),
            |record| {
                found.push(record[0]);
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(found)
    }

    #[test]
    fn records_are_found_by_their_place() {
        let bytes = tree();
        assert_eq!(found(&bytes, None), Ok(vec![1, 2, 4, 4, 6, 8]));
        // Records of one key may lie in several nodes.
        assert_eq!(found(&bytes, Some(4)), Ok(vec![4, 4]));
        assert_eq!(found(&bytes, Some(8)), Ok(vec![8]));
        for absent in [0, 3, 5, 9] {
            assert_eq!(found(&bytes, Some(absent)), Ok(vec![]));
        }
        let empty = header(0, u64::MAX, 0);
        assert!(found(&empty, None).is_err(), "it has records and no root");
    }

    #[test]
    fn changed_bytes_are_damage() {
        let sound = tree();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert!(found(&bytes, None).is_err(), "{at}");
        }
    }

    #[test]
    fn a_tree_that_leads_to_itself_ends() {
        // A node that is its own child. At the depth of the child, the type of the node is wrong.
        let pointers = [pointer(HEADER, 1), pointer(HEADER, 1)].concat();
        let node = with_checksum(&[b"BTIN\0\x01", &[4], &pointers]);
        let bytes = [header(MOST_DEPTH, HEADER, 1), node].concat();
        assert!(found(&bytes, None).is_err());
    }
}
