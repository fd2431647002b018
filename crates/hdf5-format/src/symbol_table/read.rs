//! The links of an old group: a version-1 B-tree (III.A.1) of names, with symbol table nodes as leaves (III.B).

use std::cmp::Ordering;

use super::{ENTRY, LEAF, NODE, Table, cached};
use crate::bounds::Allowance;
use crate::heap::LocalHeap;
use crate::{Fields, HeaderBytes, Link, LinkTarget, Result, read_vec};

/// A symbol table with an open heap.
pub struct SymbolTable<'a, B: ?Sized> {
    bytes: &'a B,
    heap: LocalHeap<'a, B>,
    /// The root of the tree.
    root: u64,
}

/// A node of the tree.
struct Node {
    level: u8,
    /// The heap offset of the last name below each child.
    last: Vec<u64>,
    children: Vec<u64>,
}

impl<'a, B: HeaderBytes + ?Sized> SymbolTable<'a, B> {
    /// Opens the table of a symbol table message (IV.A.2.r).
    pub fn open(bytes: &'a B, message: &[u8]) -> Result<Self> {
        let table = Table::of_message(message).ok_or("a short symbol table message")?;
        Ok(SymbolTable {
            bytes,
            heap: LocalHeap::open(bytes, table.heap)?,
            root: table.tree,
        })
    }

    /// All links.
    pub fn all(&self) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        let mut names = Allowance::of(self.bytes);
        self.each_entry(|_, entry| {
            let link = self.link(entry)?;
            let target = match &link.target {
                LinkTarget::Soft(path) => path.len(),
                _ => 0,
            };
            names.take((link.name.len() + target) as u64)?;
            links.push(link);
            Ok(())
        })?;
        Ok(links)
    }

    /// Shows the bytes of all entries and their addresses.
    pub fn each_entry(&self, mut see: impl FnMut(u64, &[u8; ENTRY]) -> Result<()>) -> Result<()> {
        let mut nodes = Allowance::of(self.bytes);
        // Nodes, and their levels where these are known.
        let mut to_read = vec![(self.root, None)];
        while let Some((address, level)) = to_read.pop() {
            let node = self.node(address, level)?;
            nodes.take((NODE + 16 * node.children.len()) as u64)?;
            if let Some(below) = node.level.checked_sub(1) {
                to_read.extend(node.children.iter().map(|child| (*child, Some(below))));
                continue;
            }
            for leaf in node.children {
                let entries = self.leaf(leaf)?;
                nodes.take((LEAF + entries.len()) as u64)?;
                let (entries, _) = entries.as_chunks();
                for (at, entry) in (leaf + LEAF as u64..).step_by(ENTRY).zip(entries) {
                    see(at, entry)?;
                }
            }
        }
        Ok(())
    }

    /// The link called `name`.
    pub fn find(&self, name: &[u8]) -> Result<Option<Link>> {
        let (mut address, mut level) = (self.root, None);
        // Each node lies one level below the one before it.
        loop {
            let node = self.node(address, level)?;
            let child = first_at_least(node.last.len(), |at| {
                Ok(self.heap.text(node.last[at])?.as_slice().cmp(name))
            })?;
            let Some(child) = node.children.get(child) else {
                return Ok(None);
            };
            address = *child;
            match node.level.checked_sub(1) {
                Some(below) => level = Some(below),
                None => return self.find_in_leaf(address, name),
            }
        }
    }

    fn find_in_leaf(&self, address: u64, name: &[u8]) -> Result<Option<Link>> {
        let entries = self.leaf(address)?;
        let entries: Vec<&[u8]> = entries.chunks_exact(ENTRY).collect();
        let at = first_at_least(entries.len(), |at| {
            Ok(self.name(entries[at])?.as_slice().cmp(name))
        })?;
        let found = entries.get(at).map(|entry| self.link(entry)).transpose()?;
        Ok(found.filter(|link| link.name == name))
    }

    /// Reads the node at `address`. The level is known for all nodes except the root.
    fn node(&self, address: u64, level: Option<u8>) -> Result<Node> {
        let none = || format!("no node of a group at {address}");
        let header = read_vec(self.bytes, address, NODE as u64)?;
        let [b'T', b'R', b'E', b'E', 0, own_level, low, high, ..] = *header else {
            return Err(none().into());
        };
        if level.is_some_and(|level| level != own_level) {
            return Err(none().into());
        }
        let count = u16::from_le_bytes([low, high]);
        let body = read_vec(self.bytes, address + NODE as u64, u64::from(count) * 16 + 8)?;
        let numbers = body
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes));
        // Keys stand before, between and behind the children. The first key belongs to no child.
        let (keys, children): (Vec<_>, Vec<_>) =
            numbers.enumerate().partition(|(at, _)| at % 2 == 0);
        Ok(Node {
            level: own_level,
            last: keys.into_iter().skip(1).map(|(_, key)| key).collect(),
            children: children.into_iter().map(|(_, child)| child).collect(),
        })
    }

    /// Reads the entries of a leaf.
    fn leaf(&self, address: u64) -> Result<Vec<u8>> {
        let header = read_vec(self.bytes, address, LEAF as u64)?;
        let [b'S', b'N', b'O', b'D', 1, _, low, high] = *header else {
            return Err(format!("no symbol table node at {address}").into());
        };
        let count = u64::from(u16::from_le_bytes([low, high]));
        read_vec(self.bytes, address + LEAF as u64, count * ENTRY as u64)
    }

    /// The name of an entry (III.C).
    pub fn name(&self, entry: &[u8]) -> Result<Vec<u8>> {
        self.heap.text(Fields(entry).u64().ok_or("a short entry")?)
    }

    fn link(&self, entry: &[u8]) -> Result<Link> {
        let mut fields = Fields(entry);
        let mut read = || {
            fields.skip(8)?;
            let (address, cached) = (fields.u64()?, fields.u32()?);
            fields.skip(4)?;
            Some((address, cached, fields.u32()?))
        };
        let (address, cached, path) = read().ok_or("a short entry")?;
        Ok(Link {
            name: self.name(entry)?,
            utf8: false,
            order: None,
            target: match cached {
                cached::PATH => LinkTarget::Soft(self.heap.text(path.into())?),
                _ => LinkTarget::Hard(address),
            },
        })
    }
}

/// The position of the first of `len` sorted items that is not less.
fn first_at_least(len: usize, order: impl Fn(usize) -> Result<Ordering>) -> Result<usize> {
    let (mut from, mut to) = (0, len);
    while from < to {
        let middle = from.midpoint(to);
        match order(middle)? {
            Ordering::Less => from = middle + 1,
            _ => to = middle,
        }
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: u64 = 0;
    const LEAVES: [u64; 2] = [64, 64 + 88];
    const ROOT: u64 = 256;

    fn leaf(entries: [(u64, u64, u32); 2]) -> Vec<u8> {
        let entries = entries.map(|(name, address, cached)| {
            let numbers = [name, address].map(u64::to_le_bytes);
            [
                numbers.as_flattened(),
                &cached.to_le_bytes(),
                &[0; 4],
                &[1, 0, 0, 0],
                &[0; 12],
            ]
            .concat()
        });
        [&b"SNOD\x01\0\x02\0"[..], &entries.concat()].concat()
    }

    /// Hard links `a`, `e` and `g` to the objects 10, 50 and 70, and a soft link `c` to `a`, in two leaves.
    fn table() -> Vec<u8> {
        let data = b"\0a\0c\0e\0g\0";
        let head = [data.len() as u64, 0, 32].map(u64::to_le_bytes);
        let mut bytes = [b"HEAP\0\0\0\0", head.as_flattened(), data].concat();
        bytes.resize(64, 0);
        bytes.extend(leaf([(1, 10, 0), (3, 0, 2)]));
        bytes.extend(leaf([(5, 50, 0), (7, 70, 1)]));
        bytes.resize(ROOT as usize, 0);
        bytes.extend([b'T', b'R', b'E', b'E', 0, 0, 2, 0]);
        let numbers = [u64::MAX, u64::MAX, 0, LEAVES[0], 3, LEAVES[1], 7];
        bytes.extend(numbers.map(u64::to_le_bytes).as_flattened());
        bytes
    }

    fn open(bytes: &Vec<u8>) -> SymbolTable<'_, Vec<u8>> {
        let message = [ROOT, HEAP].map(u64::to_le_bytes);
        SymbolTable::open(bytes, message.as_flattened()).unwrap()
    }

    #[test]
    fn links_are_found_by_their_names() {
        let bytes = table();
        let table = open(&bytes);
        let target = |name: &[u8]| table.find(name).unwrap().map(|link| link.target);
        assert_eq!(target(b"a"), Some(LinkTarget::Hard(10)));
        assert_eq!(target(b"c"), Some(LinkTarget::Soft(b"a".to_vec())));
        assert_eq!(target(b"e"), Some(LinkTarget::Hard(50)));
        assert_eq!(target(b"g"), Some(LinkTarget::Hard(70)));
        for absent in [&b""[..], b"A", b"b", b"d", b"f", b"h", b"aa"] {
            assert_eq!(target(absent), None);
        }
        let names = table.all().unwrap().into_iter().map(|link| link.name);
        assert_eq!(names.collect::<Vec<_>>(), [b"a", b"c", b"e", b"g"]);
    }

    #[test]
    fn a_tree_that_leads_to_itself_ends() {
        let mut bytes = table();
        bytes[ROOT as usize + 5] = 1;
        for child in [0, 1] {
            let at = ROOT as usize + 32 + 16 * child;
            bytes[at..at + 8].copy_from_slice(&ROOT.to_le_bytes());
        }
        assert!(open(&bytes).all().is_err());
        assert!(open(&bytes).find(b"a").is_err());
        let mut bytes = table();
        bytes[ROOT as usize + 6] = 255;
        assert!(open(&bytes).all().is_err());
    }
}
