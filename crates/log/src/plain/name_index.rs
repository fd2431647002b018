//! The index by which libhdf5 finds a link or an attribute of a large group by its name: a version-2 B-tree (III.A.2) of
//! the hashes of names.

use super::metadata::Metadata;
use crate::image::{Fields, lookup3};

/// Deeper trees would have more nodes than a file has bytes.
const MOST_DEPTH: u16 = 16;
/// The bytes of a node beside records and pointers: signature, version, type, checksum.
const FRAME: u64 = 10;

/// An index of names.
pub struct Indexed {
    /// Address of its header.
    address: u64,
    /// The kind of the tree.
    kind: u8,
    /// Bytes of a record.
    record: u16,
    /// Where in a record the hash is.
    hash_at: usize,
}

impl Indexed {
    /// The index of the links of a group.
    pub fn links(address: u64) -> Self {
        Indexed {
            address,
            kind: 5,
            record: 11,
            hash_at: 0,
        }
    }

    /// The index of the attributes of an object.
    pub fn attributes(address: u64) -> Self {
        Indexed {
            address,
            kind: 8,
            record: 17,
            hash_at: 13,
        }
    }

    /// Whether the index may have `name`; another name may have the same hash. `None` where the index is not sound.
    pub fn may_have(&self, metadata: &Metadata<'_>, name: &str) -> Option<bool> {
        let wanted = lookup3(name.as_bytes());
        let tree = Tree::read(metadata, self)?;
        let Some(mut node) = tree.root else {
            return Some(false);
        };
        for depth in (0..=tree.depth).rev() {
            let level = tree.levels.get(usize::from(depth))?;
            if node.records > level.most_records {
                return None;
            }
            let records = node.records * u64::from(self.record);
            let pointer = level.pointer();
            let pointers = match depth {
                0 => 0,
                _ => (node.records + 1) * pointer,
            };
            let bytes = metadata.read_checked(node.address, FRAME + records + pointers)?;
            let mut fields = Fields(&bytes);
            fields.expect(if depth == 0 { b"BTLF" } else { b"BTIN" })?;
            fields.expect(&[0, self.kind])?;
            let records = fields.take(usize::try_from(records).ok()?)?;
            let hashes = self.hashes(records)?;
            if hashes.contains(&wanted) {
                return Some(true);
            }
            if !hashes.is_sorted() {
                return None;
            }
            if depth == 0 {
                break;
            }
            let before = hashes.partition_point(|hash| *hash < wanted) as u64;
            fields.skip(usize::try_from(before * pointer).ok()?)?;
            node = Node {
                address: fields.u64()?,
                records: fields.number(level.count_bytes)?,
            };
        }
        Some(false)
    }

    fn hashes(&self, records: &[u8]) -> Option<Vec<u32>> {
        let records = records.chunks_exact(usize::from(self.record));
        let hash = |record: &[u8]| Fields(record.get(self.hash_at..)?).u32();
        records.map(hash).collect()
    }
}

struct Node {
    address: u64,
    /// Number of its records.
    records: u64,
}

struct Tree {
    depth: u16,
    /// From the leaves on.
    levels: Vec<Level>,
    root: Option<Node>,
}

/// The nodes of one level.
struct Level {
    /// The most records of a node.
    most_records: u64,
    /// The most records of a node and all below it.
    most_below: u64,
    /// Bytes of the number of records of a child.
    count_bytes: usize,
    /// Bytes of the number of records of a child and all below it.
    total_bytes: usize,
}

impl Level {
    /// Bytes of a pointer to a child.
    fn pointer(&self) -> u64 {
        8 + self.count_bytes as u64 + self.total_bytes as u64
    }
}

impl Tree {
    fn read(metadata: &Metadata<'_>, index: &Indexed) -> Option<Self> {
        let header = metadata.read_checked(index.address, 38)?;
        let mut fields = Fields(&header);
        fields.expect(b"BTHD\0")?;
        fields.expect(&[index.kind])?;
        let node_size = u64::from(fields.u32()?);
        let record = fields.u16()?;
        let depth = fields.u16()?;
        fields.skip(2)?;
        let root = fields.address()?;
        let records = u64::from(fields.u16()?);
        let total = fields.u64()?;
        if record != index.record || depth > MOST_DEPTH || (root.is_none() && total > 0) {
            return None;
        }
        Some(Tree {
            depth,
            levels: levels(node_size, u64::from(record), depth)?,
            root: root.map(|address| Node { address, records }),
        })
    }
}

/// The levels of a tree from the leaves on.
fn levels(node_size: u64, record: u64, depth: u16) -> Option<Vec<Level>> {
    let room = node_size.checked_sub(FRAME)?;
    let in_leaf = room / record;
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
            // Leaves have nothing below them.
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

/// Bytes of a number up to `most`; `None` for 0.
fn bytes_of(most: u64) -> Option<usize> {
    Some(most.checked_ilog2()? as usize / 8 + 1)
}
