//! Fixed arrays (VII.C): the index of datasets that cannot grow.

use super::Stored;
use super::array::{CHECKSUM, Elements, PREFIX, Walk, bit};
use crate::{Fields, HeaderBytes, Result, read_checked};

/// Bytes of the header.
const HEADER: u64 = 28;

/// Reports the chunks of the array whose header is at `address`, each with its number.
pub fn read<B: HeaderBytes + ?Sized>(
    bytes: &B,
    address: u64,
    raw: u64,
    see: &mut dyn FnMut(u64, Stored) -> Result<()>,
) -> Result<()> {
    let header = read_checked(bytes, address, HEADER)?;
    let header = Header::of(&header, raw);
    let header = header.ok_or_else(|| format!("no fixed array at {address}"))?;
    let Some(block) = header.block else {
        return Ok(());
    };
    let (count, page) = (header.count, header.page);
    let mut walk = Walk::new(bytes, header.elements, see);
    if count <= page {
        let len = count.saturating_mul(walk.elements.len);
        let elements = walk.block(b"FADB", block, PREFIX.saturating_add(len))?;
        return walk.show(&elements, 0);
    }
    let prefix = PREFIX + count.div_ceil(page).div_ceil(8);
    let written = walk.block(b"FADB", block, prefix)?;
    let pages = block.saturating_add(prefix).saturating_add(CHECKSUM);
    walk.pages(pages, (0, count), page, |number| bit(&written, number))
}

struct Header {
    elements: Elements,
    /// Elements of a page.
    page: u64,
    /// Number of elements.
    count: u64,
    /// The address of the data block; `None` if no chunk was written.
    block: Option<u64>,
}

impl Header {
    fn of(header: &[u8], raw: u64) -> Option<Self> {
        let mut fields = Fields(header);
        fields.expect(b"FAHD\0")?;
        Some(Header {
            elements: Elements::of(fields.u8()?, fields.u8()?, raw)?,
            page: 1u64.checked_shl(fields.u8()?.into())?,
            count: fields.u64()?,
            block: fields.address()?,
        })
    }
}
