//! Reads the chunk index of a dataset, from any writer.

use super::{HEADER, key_size};
use h5logfs_common::fault::Fault;

use crate::Result;
use crate::bytes::HeaderBytes;
use crate::fields::Fields;

/// The most bytes of one node: the largest node over a dataset of the largest rank.
const MOST_NODE: u64 = 64 << 20;

/// A chunk in the index.
#[derive(Debug)]
pub struct Leaf<'a> {
    /// Stored bytes of the chunk.
    pub size: u32,
    /// Bit `i` is set if filter `i` of the pipeline was not applied.
    pub filter_mask: u32,
    /// Coordinates of the chunk's first element, and one more for the bytes of an element.
    pub origin: &'a [u64],
    /// Address of the stored bytes.
    pub address: u64,
}

/// Calls `see` with the chunks of the tree whose root is at `root`, in the order of the tree. The dataset has rank
/// `rank`. Fails if the tree is invalid, and stops if `see` fails.
///
/// All nodes together may have at most as many bytes as the file. Otherwise a tree that leads to one node again and
/// again would never end.
pub fn read(
    bytes: &dyn HeaderBytes,
    root: u64,
    rank: usize,
    see: &mut dyn FnMut(Leaf<'_>) -> Result<()>,
) -> Result<()> {
    let mut reader = Reader {
        bytes,
        left: bytes.size(),
        key: key_size(rank),
        origin: Vec::with_capacity(rank + 1),
        see,
    };
    reader.node(root, None)
}

struct Reader<'a> {
    bytes: &'a dyn HeaderBytes,
    /// The bytes that further nodes may have.
    left: u64,
    /// Bytes of a key.
    key: u64,
    /// The coordinates of the current chunk.
    origin: Vec<u64>,
    see: &'a mut dyn FnMut(Leaf<'_>) -> Result<()>,
}

impl Reader<'_> {
    fn read(&mut self, at: u64, len: u64) -> Result<Vec<u8>> {
        let left = self.left.checked_sub(len).filter(|_| len <= MOST_NODE);
        self.left = left.ok_or_else(|| format!("{len} bytes at {at} of its chunk index"))?;
        let mut bytes = vec![0; len as usize];
        self.bytes.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Visits the node at `address` and everything below it (III.A.1). `level` is known for all nodes except the root.
    fn node(&mut self, address: u64, level: Option<u8>) -> Result<()> {
        let is_none = || Fault::from(format!("no node of its chunk index at {address}"));
        let head = self.read(address, HEADER)?;
        let [b'T', b'R', b'E', b'E', 1, own_level, low, high, ..] = *head else {
            return Err(is_none());
        };
        if level.is_some_and(|level| level != own_level) {
            return Err(is_none());
        }
        let entries = u64::from(u16::from_le_bytes([low, high]));
        let step = self.key + 8;
        let body = self.read(address.saturating_add(HEADER), entries * step)?;
        for entry in body.chunks_exact(step as usize) {
            let mut fields = Fields(entry);
            match own_level.checked_sub(1) {
                Some(below) => {
                    fields.skip(self.key as usize).ok_or_else(is_none)?;
                    let child = fields.u64().ok_or_else(is_none)?;
                    self.node(child, Some(below))?;
                }
                None => self.leaf(fields).ok_or_else(is_none)??,
            }
        }
        Ok(())
    }

    /// Reports an entry of a leaf; `None` if the entry is too short.
    fn leaf(&mut self, mut fields: Fields<'_>) -> Option<Result<()>> {
        let (size, filter_mask) = (fields.u32()?, fields.u32()?);
        let origin = fields.take((self.key - 8) as usize)?;
        let (origin, _) = origin.as_chunks();
        self.origin.clear();
        self.origin
            .extend(origin.iter().map(|n| u64::from_le_bytes(*n)));
        Some((self.see)(Leaf {
            size,
            filter_mask,
            origin: &self.origin,
            address: fields.u64()?,
        }))
    }
}
