//! Object headers (IV.A.1), versions 1 and 2.

use super::kind;
use super::metadata::{Fields, Metadata};

/// More bytes than the header of a usual group has, and more blocks. They also end chains that loop.
const MOST_BYTES: u64 = 256 << 10;
const MOST_BLOCKS: usize = 1024;

/// Message flag: the message lies elsewhere.
const SHARED: u8 = 2;

/// A message of an object header.
pub struct Message {
    pub kind: u16,
    pub body: Vec<u8>,
}

/// All messages of the object header at `address`. `None` where it is not sound, or one of them is shared.
pub fn messages(metadata: &Metadata<'_>, address: u64) -> Option<Vec<Message>> {
    let start = metadata.read(address, 6)?;
    let mut fields = Fields(&start);
    match start.first()? {
        1 => {
            fields.skip(2)?;
            read_v1(metadata, address, fields.u16()?)
        }
        _ => {
            fields.expect(b"OHDR\x02")?;
            read_v2(metadata, address, fields.u8()?)
        }
    }
}

/// The messages that were read, and the blocks that were not yet.
#[derive(Default)]
struct Header {
    messages: Vec<Message>,
    /// Address and length of each continuation block.
    blocks: Vec<(u64, u64)>,
    /// Bytes of all blocks that are known.
    bytes: u64,
}

impl Header {
    fn add_block(&mut self, address: u64, len: u64) -> Option<()> {
        self.bytes = self.bytes.checked_add(len)?;
        self.blocks.push((address, len));
        let fits = self.bytes <= MOST_BYTES && self.blocks.len() <= MOST_BLOCKS;
        fits.then_some(())
    }

    fn add(&mut self, kind: u16, flags: u8, body: &[u8]) -> Option<()> {
        if flags & SHARED != 0 {
            return None;
        }
        if kind == kind::CONTINUATION {
            let mut fields = Fields(body);
            self.add_block(fields.u64()?, fields.u64()?)?;
        }
        self.messages.push(Message {
            kind,
            body: body.to_vec(),
        });
        Some(())
    }
}

/// IV.A.1.a. `count` is the number of messages.
fn read_v1(metadata: &Metadata<'_>, address: u64, count: u16) -> Option<Vec<Message>> {
    let prefix = metadata.read(address, 16)?;
    let size = Fields(prefix.get(8..)?).u32()?;
    let mut header = Header::default();
    header.add_block(address.checked_add(16)?, u64::from(size))?;
    let mut next = 0;
    while let Some(&(address, len)) = header.blocks.get(next) {
        let block = metadata.read(address, len)?;
        let mut fields = Fields(&block);
        while !fields.0.is_empty() {
            let (kind, len) = (fields.u16()?, fields.u16()?);
            let flags = fields.u8()?;
            fields.skip(3)?;
            if len % 8 != 0 {
                return None;
            }
            header.add(kind, flags, fields.take(usize::from(len))?)?;
        }
        next += 1;
    }
    (header.messages.len() == usize::from(count)).then_some(header.messages)
}

/// IV.A.1.b
fn read_v2(metadata: &Metadata<'_>, address: u64, flags: u8) -> Option<Vec<Message>> {
    let times = if flags & 0x20 != 0 { 16 } else { 0 };
    let limits = if flags & 0x10 != 0 { 4 } else { 0 };
    let size_bytes = 1 << (flags & 3);
    let size_at = 6 + times + limits;
    let size = metadata.read(address.checked_add(size_at)?, size_bytes)?;
    let size = Fields(&size).number(size.len())?;
    let before = size_at + size_bytes;
    let has_order = flags & 4 != 0;

    let mut header = Header::default();
    header.add_block(address, size.checked_add(before + 4)?)?;
    let mut next = 0;
    while let Some(&(address, len)) = header.blocks.get(next) {
        let block = metadata.read_checked(address, len)?;
        let mut fields = Fields(&block);
        match next {
            0 => fields.skip(usize::try_from(before).ok()?)?,
            _ => fields.expect(b"OCHK")?,
        }
        // What is shorter than the head of a message is a gap.
        let head = if has_order { 6 } else { 4 };
        while fields.0.len() >= head {
            let (kind, len) = (fields.u8()?, fields.u16()?);
            let flags = fields.u8()?;
            fields.skip(head - 4)?;
            header.add(u16::from(kind), flags, fields.take(usize::from(len))?)?;
        }
        next += 1;
    }
    Some(header.messages)
}
