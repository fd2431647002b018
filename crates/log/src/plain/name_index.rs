//! The name index of a large group: a version-2 B-tree (III.A.2) of the hashes of names. libhdf5 finds links and
//! attributes with it.

use std::ops::ControlFlow;

use super::metadata::Metadata;
use crate::image::btree2::{ATTRIBUTES_BY_NAME, LINKS_BY_NAME};
use crate::image::{Fields, lookup3};

/// An index of names.
pub struct Indexed {
    /// The address of the index's header.
    address: u64,
    /// The record type of the tree.
    kind: u8,
    /// Bytes of a record.
    record: usize,
    /// The position of the hash in a record.
    hash_at: usize,
}

impl Indexed {
    /// The index of the links of a group.
    pub fn links(address: u64) -> Self {
        Indexed {
            address,
            kind: LINKS_BY_NAME,
            record: 11,
            hash_at: 0,
        }
    }

    /// The index of the attributes of an object.
    pub fn attributes(address: u64) -> Self {
        Indexed {
            address,
            kind: ATTRIBUTES_BY_NAME,
            record: 17,
            hash_at: 13,
        }
    }

    /// Whether the index may contain `name`. Another name may have the same hash. `None` if the index is damaged.
    pub fn may_have(&self, metadata: &Metadata<'_>, name: &str) -> Option<bool> {
        let wanted = lookup3(name.as_bytes());
        let tree = metadata.tree(self.address, self.kind)?;
        (tree.record_len() == self.record).then_some(())?;
        let hash = |record: &[u8]| Fields(record.get(self.hash_at..)?).u32();
        let mut found = false;
        let walk = tree.each(
            |record| Ok(hash(record).ok_or("a short record")?.cmp(&wanted)),
            |_| {
                found = true;
                Ok(ControlFlow::Break(()))
            },
        );
        walk.ok().map(|()| found)
    }
}
