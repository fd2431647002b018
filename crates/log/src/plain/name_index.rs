//! The index by which libhdf5 finds a link or an attribute of a large group by its name: a version-2 B-tree (III.A.2) of
//! the hashes of names.

use std::ops::ControlFlow;

use super::metadata::Metadata;
use h5logfs_hdf5_format::btree2::{ATTRIBUTES_BY_NAME, LINKS_BY_NAME};
use h5logfs_hdf5_format::{Fields, lookup3};

/// An index of names.
pub struct Indexed {
    /// Address of its header.
    address: u64,
    /// The type of the records of the tree.
    kind: u8,
    /// Bytes of a record.
    record: usize,
    /// Where in a record the hash is.
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

    /// Whether the index may have `name`; another name may have the same hash. `None` where the index is not sound.
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
