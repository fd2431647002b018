//! Fractal heaps (III.G): the links and attributes of large objects.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::bounds::Allowance;
use crate::btree2::{HUGE_OBJECTS, Tree};
use crate::{Fields, HeaderBytes, Result, lookup3, read_checked, read_vec};

/// Bytes of the header of a heap without filters.
const HEADER: u64 = 146;
/// The message for a truncated block.
const SHORT: &str = "a block of a fractal heap that ends early";

/// A fractal heap with its header. Blocks are kept once they have been read.
pub struct FractalHeap<'a, B: ?Sized> {
    bytes: &'a B,
    address: u64,
    header: Header,
    blocks: HashMap<u64, Vec<u8>>,
    to_keep: Allowance,
    /// The limit for objects.
    to_read: Allowance,
}

/// The contents of a heap header.
struct Header {
    /// Bytes of a heap ID.
    id_len: usize,
    has_checksums: bool,
    /// Size of the largest managed object.
    most_managed: u32,
    /// The address of the index of huge objects.
    huge: Option<u64>,
    table: Table,
    root: Option<u64>,
    /// Rows of the root block; 0 if it is a direct block.
    rows: u64,
}

/// The doubling table, which defines the sizes of blocks.
struct Table {
    /// Blocks per row.
    width: u64,
    /// Bytes of a block in the first row. This and the largest size are powers of two.
    start: u64,
    most_direct: u64,
    /// Bits of an offset in the heap.
    offset_bits: u16,
}

/// A child of an indirect block.
struct Child {
    /// The number of the child.
    number: u64,
    /// The bytes of the heap in front of the child, within its parent.
    before: u64,
    /// Bytes of the child and everything below it.
    size: u64,
    is_direct: bool,
}

impl Table {
    /// Bytes of an offset in the heap.
    fn offset_len(&self) -> usize {
        usize::from(self.offset_bits.div_ceil(8))
    }

    /// The number of rows with direct blocks.
    fn direct_rows(&self) -> u64 {
        u64::from(self.most_direct.ilog2() - self.start.ilog2()) + 2
    }

    /// The base-2 logarithm of the size of the first row.
    fn first_row_bits(&self) -> u32 {
        self.start.ilog2() + self.width.ilog2()
    }

    /// The child that contains the byte at `offset` of a block with `rows` rows.
    fn child(&self, offset: u64, rows: u64) -> Option<Child> {
        let first_bits = self.first_row_bits();
        let (row, before_row, size) = match offset.checked_ilog2() {
            Some(bits) if bits >= first_bits => {
                let row = u64::from(bits - first_bits) + 1;
                (
                    row,
                    1u64.checked_shl(bits)?,
                    self.start.checked_shl(row as u32 - 1)?,
                )
            }
            _ => (0, 0, self.start),
        };
        let column = (offset - before_row).checked_div(size)?;
        (row < rows).then_some(Child {
            number: row * self.width + column,
            before: before_row + column * size,
            size,
            is_direct: row < self.direct_rows(),
        })
    }

    /// The number of rows of a child that is an indirect block.
    fn rows(&self, child: &Child) -> Option<u64> {
        let bits = child
            .size
            .checked_ilog2()?
            .checked_sub(self.first_row_bits())?;
        Some(u64::from(bits) + 1)
    }
}

impl Header {
    /// Bytes of the length field of a managed object.
    fn length_len(&self) -> usize {
        let in_block = self.table.most_direct.ilog2().div_ceil(8);
        let of_object = self
            .most_managed
            .checked_ilog2()
            .map_or(1, |bits| bits / 8 + 1);
        in_block.min(of_object) as usize
    }

    fn read<B: HeaderBytes + ?Sized>(bytes: &B, address: u64) -> Result<Self> {
        const HAS_CHECKSUMS: u8 = 2;
        let none = || format!("no fractal heap at {address}");
        // A heap with filters has a longer header and its checksum at another place.
        let front = read_vec(bytes, address, 10)?;
        if let [b'F', b'R', b'H', b'P', 0, _, _, low, high, _] = *front
            && [low, high] != [0, 0]
        {
            return Err(format!(
                "the fractal heap at {address} has filters: h5logfs does not read these"
            )
            .into());
        }
        let header = read_checked(bytes, address, HEADER)?;
        let mut fields = Fields(&header);
        let mut read = || {
            fields.expect(b"FRHP\0")?;
            let id_len = fields.u16()?.into();
            fields.skip(2)?;
            let flags = fields.u8()?;
            let most_managed = fields.u32()?;
            fields.skip(8)?;
            let huge = fields.address()?;
            // Statistics and free space are skipped.
            fields.skip(10 * 8)?;
            let width = fields.u16()?.into();
            let (start, most_direct) = (fields.u64()?, fields.u64()?);
            let offset_bits = fields.u16()?;
            fields.skip(2)?;
            let root = fields.address()?;
            Some(Header {
                id_len,
                has_checksums: flags & HAS_CHECKSUMS != 0,
                most_managed,
                huge,
                table: Table {
                    width,
                    start,
                    most_direct,
                    offset_bits,
                },
                root,
                rows: fields.u16()?.into(),
            })
        };
        let header = read().ok_or_else(none)?;
        let table = &header.table;
        let are_powers = [table.width, table.start, table.most_direct]
            .iter()
            .all(|number| number.is_power_of_two());
        let is_sound = are_powers
            && table.start <= table.most_direct
            && table.first_row_bits() < 64
            && (1..=64).contains(&table.offset_bits);
        Ok(is_sound.then_some(header).ok_or_else(none)?)
    }
}

impl<'a, B: HeaderBytes + ?Sized> FractalHeap<'a, B> {
    /// Opens the heap at `address`.
    pub fn open(bytes: &'a B, address: u64) -> Result<Self> {
        Ok(FractalHeap {
            bytes,
            address,
            header: Header::read(bytes, address)?,
            blocks: HashMap::new(),
            to_keep: Allowance::of(bytes),
            to_read: Allowance::of(bytes),
        })
    }

    /// Reads the object with this heap ID (III.G).
    pub fn object(&mut self, id: &[u8]) -> Result<Vec<u8>> {
        const MANAGED: u8 = 0;
        const HUGE: u8 = 1;
        const TINY: u8 = 2;
        let (first, rest) = id.split_first().ok_or(SHORT)?;
        if id.len() != self.header.id_len || first >> 6 != 0 {
            return Err(format!(
                "{id:?} is no object of the fractal heap at {}",
                self.address
            )
            .into());
        }
        match (first >> 4) & 3 {
            MANAGED => self.managed(rest),
            HUGE => self.huge(rest),
            TINY => tiny(*first, rest),
            kind => Err(format!("an object of type {kind} in a fractal heap").into()),
        }
    }

    /// Reads a managed object.
    fn managed(&mut self, id: &[u8]) -> Result<Vec<u8>> {
        let table = &self.header.table;
        let mut fields = Fields(id);
        let offset = fields.number(table.offset_len()).ok_or(SHORT)?;
        let len = fields.number(self.header.length_len()).ok_or(SHORT)?;
        let (address, size, from) = self.direct(offset)?;
        let end = from.checked_add(len).filter(|end| *end <= size);
        let end = end.ok_or("an object of a fractal heap that is in two blocks")?;
        self.to_read.take(len)?;
        let block = self.direct_block(address, size)?;
        let found = block.get(usize::try_from(from)?..usize::try_from(end)?);
        Ok(found.ok_or(SHORT)?.to_vec())
    }

    /// The direct block that contains the byte at `offset`: its address and size, and the position of the byte in it.
    fn direct(&mut self, mut offset: u64) -> Result<(u64, u64, u64)> {
        let none = "an object of a fractal heap in no block";
        let mut address = self.header.root.ok_or(none)?;
        let mut rows = self.header.rows;
        if rows == 0 {
            return Ok((address, self.header.table.start, offset));
        }
        // A child is smaller than its parent, so the loop ends.
        loop {
            let child = self.header.table.child(offset, rows).ok_or(none)?;
            let below = self.child_address(address, rows, child.number)?;
            address = below.ok_or(none)?;
            offset -= child.before;
            if child.is_direct {
                return Ok((address, child.size, offset));
            }
            rows = self.header.table.rows(&child).ok_or(none)?;
        }
    }

    /// The address of a child of the indirect block at `address` (III.G.3).
    fn child_address(&mut self, address: u64, rows: u64, number: u64) -> Result<Option<u64>> {
        let table = &self.header.table;
        let front = 13 + table.offset_len() as u64;
        let children = rows.checked_mul(table.width * 8);
        let len = children
            .and_then(|len| len.checked_add(front + 4))
            .ok_or(SHORT)?;
        if !self.blocks.contains_key(&address) {
            self.to_keep.take(len)?;
            let block = read_checked(self.bytes, address, len)?;
            self.expect(&block, b"FHIB\0", address)?;
            self.blocks.insert(address, block);
        }
        let block = self.blocks.get(&address).ok_or(SHORT)?;
        let at = usize::try_from(front + number * 8)?;
        let child = block.get(at..).and_then(|rest| Fields(rest).address());
        Ok(child.ok_or(SHORT)?)
    }

    /// Reads a direct block (III.G.2), including its header.
    fn direct_block(&mut self, address: u64, size: u64) -> Result<&[u8]> {
        if !self.blocks.contains_key(&address) {
            self.to_keep.take(size)?;
            let block = read_vec(self.bytes, address, size)?;
            self.expect(&block, b"FHDB\0", address)?;
            if self.header.has_checksums {
                self.check(&block, address)?;
            }
            self.blocks.insert(address, block);
        }
        let block = self.blocks.get(&address).ok_or(SHORT)?;
        Ok(block)
    }

    /// Fails if a block does not begin with its signature and the address of the heap.
    fn expect(&self, block: &[u8], signature: &[u8], address: u64) -> Result<()> {
        let mut fields = Fields(block);
        fields
            .expect(signature)
            .and_then(|()| fields.expect(&self.address.to_le_bytes()))
            .ok_or_else(|| format!("no block of the fractal heap at {address}").into())
    }

    /// Checks a direct block. Its header holds the checksum, which is computed with zeros in that field.
    fn check(&self, block: &[u8], address: u64) -> Result<()> {
        let at = 13 + self.header.table.offset_len();
        let mut zeroed = block.to_vec();
        let sum = zeroed.get_mut(at..at + 4).ok_or(SHORT)?;
        let stored = sum.to_vec();
        sum.fill(0);
        if stored != lookup3(&zeroed).to_le_bytes() {
            return Err(format!("a block at {address} with a wrong checksum").into());
        }
        Ok(())
    }

    /// Reads a huge object. The heap ID holds its place, or its number in an index.
    fn huge(&mut self, id: &[u8]) -> Result<Vec<u8>> {
        let mut fields = Fields(id);
        let (at, len) = if id.len() >= 16 {
            fields.u64().zip(fields.u64()).ok_or(SHORT)?
        } else {
            let number = fields.number(id.len().min(8)).ok_or(SHORT)?;
            self.indexed(number)?
        };
        self.to_read.take(len)?;
        read_vec(self.bytes, at, len)
    }

    /// Looks up the address and length of a huge object in the index.
    fn indexed(&self, number: u64) -> Result<(u64, u64)> {
        let none = || {
            format!(
                "no huge object {number} in the fractal heap at {}",
                self.address
            )
        };
        let tree = Tree::open(self.bytes, self.header.huge.ok_or_else(none)?, HUGE_OBJECTS)?;
        let mut found = None;
        tree.each(
            |record| {
                let own = record.get(16..).and_then(|rest| Fields(rest).u64());
                Ok(own.ok_or(SHORT)?.cmp(&number))
            },
            |record| {
                let mut fields = Fields(record);
                found = fields.u64().zip(fields.u64());
                Ok(ControlFlow::Break(()))
            },
        )?;
        Ok(found.ok_or_else(none)?)
    }
}

/// Reads a tiny object from its heap ID.
fn tiny(first: u8, rest: &[u8]) -> Result<Vec<u8>> {
    // Longer IDs have longer length fields.
    const SHORT_ID: usize = 17;
    let high = usize::from(first & 0xf);
    let (len, data) = match rest.split_first() {
        Some((low, data)) if rest.len() > SHORT_ID => (high << 8 | usize::from(*low), data),
        _ => (high, rest),
    };
    Ok(data.get(..=len).ok_or(SHORT)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table that libhdf5 makes for links and attributes.
    fn table() -> Table {
        Table {
            width: 4,
            start: 512,
            most_direct: 65536,
            offset_bits: 32,
        }
    }

    #[test]
    fn blocks_double_from_row_to_row() {
        let table = table();
        assert_eq!(table.direct_rows(), 9);
        let place = |offset| {
            let child = table.child(offset, 20).unwrap();
            (child.number, child.before, child.size, child.is_direct)
        };
        assert_eq!(place(0), (0, 0, 512, true));
        assert_eq!(place(2047), (3, 1536, 512, true));
        assert_eq!(place(2048), (4, 2048, 512, true));
        assert_eq!(place(4096), (8, 4096, 1024, true));
        assert_eq!(place(0x40000), (32, 0x40000, 65536, true));
        assert_eq!(place(0x80000), (36, 0x80000, 131072, false));
        assert!(table.child(0x80000, 9).is_none());
        assert!(table.child(u64::MAX, 20).is_none());
        // The rows of an indirect block end at the end of the block.
        let child = table.child(0x80000, 20).unwrap();
        let rows = table.rows(&child).unwrap();
        assert!(table.child(child.size - 1, rows).is_some());
        assert!(table.child(child.size, rows).is_none());
    }

    #[test]
    fn heaps_with_filters_are_refused_as_such() {
        let mut bytes = b"FRHP\0\x08\0\x0c\0\x02".to_vec();
        bytes.resize(200, 0);
        let refused = FractalHeap::open(&bytes, 0).err().unwrap().to_string();
        assert!(refused.contains("has filters"), "{refused}");
        bytes[7] = 0;
        let refused = FractalHeap::open(&bytes, 0).err().unwrap().to_string();
        assert!(refused.contains("checksum"), "{refused}");
    }

    #[test]
    fn tiny_objects_are_in_their_numbers() {
        assert_eq!(tiny(0x22, b"abcdef"), Ok(b"abc".to_vec()));
        assert!(tiny(0x26, b"abcdef").is_err());
        let long = [&[4][..], &[7; 30]].concat();
        assert_eq!(tiny(0x20, &long), Ok(vec![7; 5]));
    }
}
