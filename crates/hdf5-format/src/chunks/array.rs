//! Code that fixed and extensible arrays share: elements that describe chunks, in blocks with a checksum.

use super::Stored;
use crate::bounds::Allowance;
use crate::{Fields, HeaderBytes, Result, read_checked};

/// Bytes at the start of each block: signature, version, client and the address of the header.
pub const PREFIX: u64 = 14;
/// The most bytes of a block. libhdf5 divides larger ones into pages.
const MOST_BLOCK: u64 = 64 << 20;
/// Bytes of a checksum.
pub const CHECKSUM: u64 = 4;

/// The elements of an array.
#[derive(Debug, Clone, Copy)]
pub struct Elements {
    client: u8,
    /// Bytes of an element.
    pub len: u64,
    /// Bytes of a chunk without filters.
    raw: u64,
}

impl Elements {
    /// The elements of an array of client 0, chunks without filters, or 1, chunks with filters.
    pub fn of(client: u8, len: u8, raw: u64) -> Option<Self> {
        let is_known = match client {
            0 => len == 8,
            1 => (13..=20).contains(&len),
            _ => false,
        };
        is_known.then_some(Elements {
            client,
            len: len.into(),
            raw,
        })
    }

    /// Decodes a chunk; `Some(None)` if the chunk was not written.
    fn chunk(&self, element: &[u8]) -> Option<Option<Stored>> {
        let mut fields = Fields(element);
        let Some(address) = fields.address()? else {
            return Some(None);
        };
        Some(Some(match self.client {
            0 => Stored {
                address,
                size: self.raw,
                filter_mask: 0,
            },
            _ => Stored {
                address,
                size: fields.number(self.len as usize - 12)?,
                filter_mask: fields.u32()?,
            },
        }))
    }
}

/// A walk through an array.
pub struct Walk<'a, B: ?Sized> {
    bytes: &'a B,
    left: Allowance,
    pub elements: Elements,
    see: &'a mut dyn FnMut(u64, Stored) -> Result<()>,
}

impl<'a, B: HeaderBytes + ?Sized> Walk<'a, B> {
    pub fn new(
        bytes: &'a B,
        elements: Elements,
        see: &'a mut dyn FnMut(u64, Stored) -> Result<()>,
    ) -> Self {
        Walk {
            bytes,
            left: Allowance::of(bytes),
            elements,
            see,
        }
    }

    /// Reads the bytes of a block, without its checksum.
    fn read(&mut self, address: u64, len: u64) -> Result<Vec<u8>> {
        let len = len.saturating_add(CHECKSUM);
        if len > MOST_BLOCK {
            return Err(format!("a block of a chunk index of {len} bytes").into());
        }
        self.left.take(len)?;
        read_checked(self.bytes, address, len)
    }

    /// Reads the bytes of a block behind its prefix.
    pub fn block(&mut self, signature: &[u8; 4], address: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = self.read(address, len)?;
        let mut fields = Fields(&bytes);
        fields
            .expect(signature)
            .and_then(|()| fields.expect(&[0, self.elements.client]))
            .ok_or_else(|| format!("no block of a chunk index at {address}"))?;
        bytes.drain(..(PREFIX as usize).min(bytes.len()));
        Ok(bytes)
    }

    /// Reports the chunks of a page: `count` elements from number `first` on.
    pub fn page(&mut self, address: u64, first: u64, count: u64) -> Result<()> {
        let bytes = self.read(address, count.saturating_mul(self.elements.len))?;
        self.show(&bytes, first)
    }

    /// Reports the chunks of the elements in `bytes`, from number `first` on.
    pub fn show(&mut self, bytes: &[u8], first: u64) -> Result<()> {
        let each = bytes.chunks_exact(self.elements.len as usize);
        for (number, element) in (first..).zip(each) {
            let chunk = self.elements.chunk(element);
            if let Some(chunk) = chunk.ok_or("a chunk index that ends early")? {
                (self.see)(number, chunk)?;
            }
        }
        Ok(())
    }

    /// Reports the chunks of the pages of a block: `count` elements from number `first` on, `page` of them in each
    /// page. The pages begin at `address`. `is_there` tells whether a page was written.
    pub fn pages(
        &mut self,
        mut address: u64,
        (first, count): (u64, u64),
        page: u64,
        is_there: impl Fn(u64) -> bool,
    ) -> Result<()> {
        for number in 0..count.div_ceil(page) {
            let before = number * page;
            let here = page.min(count - before);
            if is_there(number) {
                self.page(address, first.saturating_add(before), here)?;
            }
            let len = here.saturating_mul(self.elements.len);
            address = address.saturating_add(len).saturating_add(CHECKSUM);
        }
        Ok(())
    }
}

/// Bit `number` of a bit list. The highest bit of a byte comes first.
pub fn bit(bits: &[u8], number: u64) -> bool {
    let byte = usize::try_from(number / 8).ok();
    let byte = byte.and_then(|at| bits.get(at));
    byte.is_some_and(|byte| byte & (0x80 >> (number % 8)) != 0)
}
