//! Links and attributes outside their object's header: the places of their heap and index, and the index by which one is found by
//! its name. The index is a B-tree of version 2 (III.A.2) of the hashes of names.

use std::ops::ControlFlow;

use crate::btree2::{ATTRIBUTES_BY_NAME, LINKS_BY_NAME, Tree};
use crate::{Fields, HeaderBytes, Result, lookup3};

/// Where the links or the attributes of an object lie outside its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dense {
    /// Address of the fractal heap that holds them.
    pub heap: u64,
    /// Address of the index of their names.
    pub index: u64,
}

impl Dense {
    /// Reads a link info message (IV.A.2.c). `Some(None)`: all links are messages. `None`: the message is of an unknown form.
    pub fn of_links(message: &[u8]) -> Option<Option<Self>> {
        Dense::of_message(message, 8)
    }

    /// Reads an attribute info message (IV.A.2.v). `Some(None)`: all attributes are messages. `None`: the message is of an
    /// unknown form.
    pub fn of_attributes(message: &[u8]) -> Option<Option<Self>> {
        Dense::of_message(message, 2)
    }

    /// `order`: bytes of the largest creation index, which a message has where the object keeps the order of creation.
    fn of_message(message: &[u8], order: usize) -> Option<Option<Self>> {
        const TRACKS_ORDER: u8 = 1;
        const INDEXES_ORDER: u8 = 2;
        let mut fields = Fields(message);
        fields.expect(&[0])?;
        let flags = fields.u8()?;
        if flags & !(TRACKS_ORDER | INDEXES_ORDER) != 0 {
            return None;
        }
        if flags & TRACKS_ORDER != 0 {
            fields.skip(order)?;
        }
        match (fields.address()?, fields.address()?) {
            (Some(heap), Some(index)) => Some(Some(Dense { heap, index })),
            (None, None) => Some(None),
            _ => None,
        }
    }
}

/// An index of names.
pub struct NameIndex<'a, B: ?Sized> {
    tree: Tree<'a, B>,
    /// Where in a record the hash is.
    hash_at: usize,
}

impl<'a, B: HeaderBytes + ?Sized> NameIndex<'a, B> {
    /// The index of the links of a group, whose header is at `address`. A record has a hash, and the number of a heap object with
    /// seven bytes.
    pub fn of_links(bytes: &'a B, address: u64) -> Result<Self> {
        NameIndex::open(bytes, address, (LINKS_BY_NAME, 11), 0)
    }

    /// The index of the attributes of an object, whose header is at `address`. A record has the number of a heap object with
    /// eight bytes, flags, the place in the order of creation, and a hash.
    pub fn of_attributes(bytes: &'a B, address: u64) -> Result<Self> {
        NameIndex::open(bytes, address, (ATTRIBUTES_BY_NAME, 17), 13)
    }

    /// `kind` and `len` of the records.
    fn open(bytes: &'a B, address: u64, (kind, len): (u8, usize), hash_at: usize) -> Result<Self> {
        let tree = Tree::open(bytes, address, kind)?;
        if tree.record_len() != len {
            return Err("an index of names with other records".into());
        }
        Ok(NameIndex { tree, hash_at })
    }

    /// Shows records until one is enough: those of names with the hash of `name`, or all.
    pub fn each(
        &self,
        name: Option<&[u8]>,
        see: impl FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Some(name) = name else {
            return self.tree.all(see);
        };
        let wanted = lookup3(name);
        let hash = |record: &[u8]| Fields(record.get(self.hash_at..)?).u32();
        self.tree.each(
            |record| Ok(hash(record).ok_or("a short record")?.cmp(&wanted)),
            see,
        )
    }

    /// Whether the index may have a name. Another name may have the same hash.
    pub fn may_have(&self, name: &[u8]) -> Result<bool> {
        let mut found = false;
        self.each(Some(name), |_| {
            found = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_may_keep_an_order() {
        let (heap, index) = (7u64.to_le_bytes(), 9u64.to_le_bytes());
        let nowhere = [0xff; 8];
        for (order, read) in [
            (8, Dense::of_links as fn(&[u8]) -> _),
            (2, Dense::of_attributes),
        ] {
            let plain = [&[0, 0], &heap[..], &index].concat();
            let ordered = [&[0, 3], &vec![0; order][..], &heap, &index, &[0; 8]].concat();
            for message in [plain, ordered] {
                assert_eq!(read(&message), Some(Some(Dense { heap: 7, index: 9 })));
            }
            assert_eq!(
                read(&[&[0, 0], &nowhere[..], &nowhere].concat()),
                Some(None)
            );
            for wrong in [
                vec![0, 0, 1],
                [&[1, 0], &nowhere[..], &nowhere].concat(),
                [&[0, 4], &nowhere[..], &nowhere].concat(),
                [&[0, 0], &heap[..], &nowhere].concat(),
            ] {
                assert_eq!(read(&wrong), None);
            }
        }
    }
}
