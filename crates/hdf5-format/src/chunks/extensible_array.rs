//! Extensible arrays (VII.D): the index of datasets with one unlimited dimension.
//!
//! The index block holds the first elements. Super blocks follow, and each has data blocks of one length. Super block
//! `u` has `2^(u/2)` data blocks, and each of these has `2^((u+1)/2)` times as many elements as the smallest data
//! block. The index block itself holds the addresses of the data blocks of the first super blocks.

use super::Stored;
use super::array::{CHECKSUM, Elements, PREFIX, Walk, bit};
use crate::{Fields, HeaderBytes, Result, read_checked};

/// Bytes of the header.
const HEADER: u64 = 72;
const SHORT: &str = "an extensible array that ends early";

/// Reports the chunks of the array whose header is at `address`, each with its number.
pub fn read<B: HeaderBytes + ?Sized>(
    bytes: &B,
    address: u64,
    raw: u64,
    see: &mut dyn FnMut(u64, Stored) -> Result<()>,
) -> Result<()> {
    let header = read_checked(bytes, address, HEADER)?;
    let header = Header::of(&header, raw);
    let header = header.ok_or_else(|| format!("no extensible array at {address}"))?;
    let Some(index) = header.index else {
        return Ok(());
    };
    let walk = Walk::new(bytes, header.elements, see);
    Reader { header, walk }.index_block(index)
}

struct Header {
    elements: Elements,
    /// Bytes of the field for the number of a block's first element.
    number_bytes: u64,
    /// Elements in the index block.
    in_index: u64,
    /// Elements of the smallest data block.
    least: u64,
    /// Super blocks whose data blocks are listed in the index block.
    direct: u32,
    /// Super blocks.
    super_blocks: u32,
    /// Elements of a page.
    page: u64,
    /// The address of the index block; `None` if no chunk was written.
    index: Option<u64>,
}

impl Header {
    fn of(header: &[u8], raw: u64) -> Option<Self> {
        let mut fields = Fields(header);
        fields.expect(b"EAHD\0")?;
        let elements = Elements::of(fields.u8()?, fields.u8()?, raw)?;
        let bits = u32::from(fields.u8()?);
        let in_index = fields.u8()?.into();
        let (least, pointers) = (u64::from(fields.u8()?), fields.u8()?);
        let page = 1u64.checked_shl(fields.u8()?.into())?;
        // Statistics are skipped.
        fields.skip(6 * 8)?;
        if bits > 64 || !least.is_power_of_two() || !pointers.is_power_of_two() {
            return None;
        }
        let super_blocks = bits.checked_sub(least.ilog2())? + 1;
        Some(Header {
            elements,
            number_bytes: bits.div_ceil(8).into(),
            in_index,
            least,
            direct: (2 * pointers.ilog2()).min(super_blocks),
            super_blocks,
            page,
            index: fields.address()?,
        })
    }

    /// The number of data blocks in a super block, and the number of elements in each.
    fn data_blocks(&self, number: u32) -> (u64, u64) {
        let elements = self.least.saturating_mul(1 << number.div_ceil(2));
        (1 << (number / 2), elements)
    }
}

struct Reader<'a, B: ?Sized> {
    header: Header,
    walk: Walk<'a, B>,
}

impl<B: HeaderBytes + ?Sized> Reader<'_, B> {
    fn index_block(&mut self, address: u64) -> Result<()> {
        let header = &self.header;
        let (direct, all) = (header.direct, header.super_blocks);
        let in_index = header.in_index;
        let blocks: u64 = (0..direct).map(|number| header.data_blocks(number).0).sum();
        let elements = in_index * header.elements.len;
        let pointers = 8 * (blocks + u64::from(all - direct));
        let bytes = self
            .walk
            .block(b"EAIB", address, PREFIX + elements + pointers)?;
        let (elements, pointers) = bytes.split_at_checked(elements as usize).ok_or(SHORT)?;
        self.walk.show(elements, 0)?;
        let mut pointers = Fields(pointers);
        let mut first = in_index;
        for number in 0..all {
            let (blocks, elements) = self.header.data_blocks(number);
            if number >= direct {
                if let Some(address) = pointers.address().ok_or(SHORT)? {
                    self.super_block(address, number, first)?;
                }
            } else {
                self.data_blocks(&mut pointers, (first, blocks, elements), &[])?;
            }
            first = first.saturating_add(blocks.saturating_mul(elements));
        }
        Ok(())
    }

    /// Reads a super block. Its first element has the number `first`.
    fn super_block(&mut self, address: u64, number: u32, first: u64) -> Result<()> {
        let (blocks, elements) = self.header.data_blocks(number);
        let before = self.header.number_bytes;
        let page = self.header.page;
        let bits = if elements > page {
            blocks.saturating_mul((elements / page).div_ceil(8))
        } else {
            0
        };
        let len = (PREFIX + before).saturating_add(bits);
        let len = len.saturating_add(blocks.saturating_mul(8));
        let bytes = self.walk.block(b"EASB", address, len)?;
        let mut fields = Fields(&bytes);
        fields.skip(before as usize).ok_or(SHORT)?;
        let written = fields.take(bits as usize).ok_or(SHORT)?;
        self.data_blocks(&mut fields, (first, blocks, elements), written)
    }

    /// Reads `blocks` data blocks of `elements` elements each. The first element has the number `first`. `written`
    /// tells which pages were written.
    fn data_blocks(
        &mut self,
        pointers: &mut Fields<'_>,
        (first, blocks, elements): (u64, u64, u64),
        written: &[u8],
    ) -> Result<()> {
        let prefix = PREFIX + self.header.number_bytes;
        let page = self.header.page;
        for number in 0..blocks {
            let Some(address) = pointers.address().ok_or(SHORT)? else {
                continue;
            };
            let first = first.saturating_add(number.saturating_mul(elements));
            if elements <= page {
                let len = elements.saturating_mul(self.header.elements.len);
                let bytes = self
                    .walk
                    .block(b"EADB", address, prefix.saturating_add(len))?;
                let behind = bytes.get(self.header.number_bytes as usize..);
                self.walk.show(behind.ok_or(SHORT)?, first)?;
                continue;
            }
            if written.is_empty() {
                return Err("pages without a bitmap of those that were written".into());
            }
            self.walk.block(b"EADB", address, prefix)?;
            let pages = address.saturating_add(prefix + CHECKSUM);
            let before = number.saturating_mul(elements / page);
            self.walk.pages(pages, (first, elements), page, |number| {
                bit(written, before.saturating_add(number))
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header has the parameters that are the default of libhdf5.
    #[test]
    fn blocks_of_an_array_grow() {
        let parameters = [8, 32, 4, 16, 4, 10];
        let header = [b"EAHD\0\0", &parameters[..], &[0; 60]].concat();
        let header = Header::of(&header, 1).unwrap();
        let blocks = [0, 1, 2, 3, 4].map(|number| header.data_blocks(number));
        assert_eq!(blocks, [(1, 16), (1, 32), (2, 32), (2, 64), (4, 64)]);
        assert_eq!(
            (header.direct, header.super_blocks, header.page),
            (4, 29, 1024)
        );
    }
}
