//! Object headers of versions 1 and 2 (HDF5 File Format Specification, IV.A.1), and the walk over their messages.

use std::ops::{ControlFlow, Range};

use crate::Result;
use crate::bytes::{HeaderBytes, PAST_IMAGE, read_array, read_vec};
use crate::checksum::lookup3;

/// Bytes of a header of version 1 in front of its first message.
pub const PREFIX: usize = 16;
/// Bytes of a message of a header of version 1 in front of its data.
pub const HEAD: usize = 8;

/// The most continuation blocks. No real header has as many.
const MOST_BLOCKS: usize = 4096;

/// Types of messages (IV.A.2).
#[allow(missing_docs)]
pub mod kind {
    pub const NIL: u16 = 0x00;
    pub const DATASPACE: u16 = 0x01;
    pub const LINK_INFO: u16 = 0x02;
    pub const DATATYPE: u16 = 0x03;
    pub const OLD_FILL_VALUE: u16 = 0x04;
    pub const FILL_VALUE: u16 = 0x05;
    pub const LINK: u16 = 0x06;
    pub const EXTERNAL_FILES: u16 = 0x07;
    pub const LAYOUT: u16 = 0x08;
    pub const GROUP_INFO: u16 = 0x0a;
    pub const PIPELINE: u16 = 0x0b;
    pub const ATTRIBUTE: u16 = 0x0c;
    pub const COMMENT: u16 = 0x0d;
    pub const OLD_MODIFICATION_TIME: u16 = 0x0e;
    pub const CONTINUATION: u16 = 0x10;
    pub const SYMBOL_TABLE: u16 = 0x11;
    pub const MODIFICATION_TIME: u16 = 0x12;
    pub const BTREE_K: u16 = 0x13;
    pub const DRIVER_INFO: u16 = 0x14;
    pub const ATTRIBUTE_INFO: u16 = 0x15;
    pub const REFERENCE_COUNT: u16 = 0x16;
    pub const FILE_SPACE_INFO: u16 = 0x17;
}

/// The strictness of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The messages can be found.
    Lenient,
    /// libhdf5 can read the header: checksums, signatures and lengths of messages are valid, too, and there are at most
    /// as many messages as the header states.
    Checked,
    /// The number of messages is exact, too, and the header has a usual size.
    Strict,
}

impl Mode {
    /// The most bytes of all blocks together. Usual headers have a few hundred bytes.
    fn most_bytes(self) -> u64 {
        match self {
            Mode::Lenient | Mode::Checked => 64 << 20,
            Mode::Strict => 256 << 10,
        }
    }
}

/// A message of an object header, and the place of its data.
#[derive(Debug)]
pub struct Message {
    /// The message type: see [`kind`].
    pub kind: u16,
    /// The flags (IV.A.1).
    pub flags: u8,
    /// The address of its first byte.
    pub start: u64,
    /// The address of its data.
    pub data: u64,
    /// Bytes of the data.
    pub len: u16,
    /// The creation order among messages of this type, if the header tracks it.
    pub order: Option<u16>,
    /// The block that contains the message, up to the end of its checksum; `None` if blocks have no checksums.
    pub block: Option<Range<u64>>,
}

impl Message {
    /// Whether the data lie elsewhere.
    pub fn is_shared(&self) -> bool {
        self.flags & 2 != 0
    }

    /// The address behind the data.
    pub fn end(&self) -> u64 {
        self.data.saturating_add(self.len.into())
    }

    /// Reads the data.
    pub fn body<B: HeaderBytes + ?Sized>(&self, bytes: &B) -> Result<Vec<u8>> {
        read_vec(bytes, self.data, self.len.into())
    }
}

/// The version of a header, with the facts that only its prefix states.
#[derive(Debug, Clone, Copy)]
enum Version {
    One {
        /// The number of messages in all blocks.
        messages: u16,
    },
    Two {
        flags: u8,
    },
}

impl Version {
    /// Bytes of the header of a message.
    fn head_len(self) -> usize {
        match self {
            Version::One { .. } => HEAD,
            Version::Two { .. } if self.has_order() => 6,
            Version::Two { .. } => 4,
        }
    }

    /// Whether messages have a creation order.
    fn has_order(self) -> bool {
        const HAS_ORDER: u8 = 4;
        matches!(self, Version::Two { flags } if flags & HAS_ORDER != 0)
    }
}

/// The prefix of an object header.
pub struct Prefix {
    version: Version,
    start: u64,
    first: Block,
}

/// A block of messages.
#[derive(Clone)]
struct Block {
    /// The complete block, including signature or prefix, and checksum.
    whole: Range<u64>,
    messages: Range<u64>,
}

impl Prefix {
    /// Reads the prefix of the header at `start`.
    pub fn read<B: HeaderBytes + ?Sized>(bytes: &B, start: u64) -> Result<Self> {
        match read_array(bytes, start)? {
            [b'O', b'H', b'D', b'R', 2, flags] => Prefix::read_v2(bytes, start, flags),
            [1, _, low, high, ..] => {
                let messages = u16::from_le_bytes([low, high]);
                Prefix::read_v1(bytes, start, messages)
            }
            _ => Err("no object header".into()),
        }
    }

    /// Reads a prefix of version 1 (IV.A.1.a).
    fn read_v1<B: HeaderBytes + ?Sized>(bytes: &B, start: u64, messages: u16) -> Result<Self> {
        let size = u32::from_le_bytes(read_array(bytes, start.saturating_add(8))?);
        let version = Version::One { messages };
        Ok(Prefix {
            version,
            start,
            first: Block::at(version, start.saturating_add(PREFIX as u64), size.into())?,
        })
    }

    /// Reads a prefix of version 2 (IV.A.1.b).
    fn read_v2<B: HeaderBytes + ?Sized>(bytes: &B, start: u64, flags: u8) -> Result<Self> {
        let version = Version::Two { flags };
        let mut prefix = Prefix {
            version,
            start,
            first: Block {
                whole: start..start,
                messages: start..start,
            },
        };
        let width = 1 << (flags & 3);
        let at = prefix.after_times() + if prefix.has_limits() { 4 } else { 0 };
        let mut size = [0; 8];
        bytes.read(at, &mut size[..width])?;
        let from = at.saturating_add(width as u64);
        let to = from.checked_add(u64::from_le_bytes(size));
        let to = to.ok_or(PAST_IMAGE)?;
        prefix.first = Block {
            whole: start..to.checked_add(4).ok_or(PAST_IMAGE)?,
            messages: from..to,
        };
        Ok(prefix)
    }

    /// The flags of a version-2 header.
    pub fn flags(&self) -> Option<u8> {
        match self.version {
            Version::One { .. } => None,
            Version::Two { flags } => Some(flags),
        }
    }

    /// Whether the object tracks the creation order of its attributes.
    pub fn tracks_attributes(&self) -> bool {
        self.version.has_order()
    }

    /// The address of the times in a version-2 header: last access, modification, change, and birth.
    pub fn times_at(&self) -> Option<u64> {
        const HAS_TIMES: u8 = 0x20;
        let has_times = self.flags()? & HAS_TIMES != 0;
        has_times.then(|| self.start.saturating_add(6))
    }

    /// The address of the attribute phase change values in a version-2 header.
    pub fn limits_at(&self) -> Option<u64> {
        self.has_limits().then(|| self.after_times())
    }

    fn has_limits(&self) -> bool {
        const HAS_LIMITS: u8 = 0x10;
        self.flags().is_some_and(|flags| flags & HAS_LIMITS != 0)
    }

    fn after_times(&self) -> u64 {
        let times = self.times_at().map_or(0, |_| 16);
        self.start.saturating_add(6 + times)
    }

    /// The first messages.
    pub fn first_messages(&self) -> Range<u64> {
        self.first.messages.clone()
    }

    /// Prefix, first messages and checksum.
    pub fn first_block(&self) -> Range<u64> {
        self.first.whole.clone()
    }
}

impl Block {
    /// A continuation block of `len` bytes.
    fn at(version: Version, start: u64, len: u64) -> Result<Self> {
        let end = start.checked_add(len).ok_or(PAST_IMAGE)?;
        // Bytes of signature and checksum.
        let frame = match version {
            Version::One { .. } => 0,
            Version::Two { .. } => 4,
        };
        if len < 2 * frame {
            return Err("a continuation block without a checksum".into());
        }
        Ok(Block {
            whole: start..end,
            messages: start + frame..end - frame,
        })
    }
}

/// Calls a function with the messages of the object header at `header`, until it stops.
pub fn messages<B: HeaderBytes + ?Sized>(
    bytes: &B,
    header: u64,
    mode: Mode,
    mut see: impl FnMut(Message) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let prefix = Prefix::read(bytes, header)?;
    let mut walk = Walk {
        bytes,
        version: prefix.version,
        mode,
        blocks: Vec::new(),
        left: mode.most_bytes().min(bytes.size()),
    };
    walk.add(prefix.first)?;
    let (mut number, mut seen) = (0, 0u64);
    while let Some(block) = walk.blocks.get(number).cloned() {
        walk.check(&block, number)?;
        let mut at = block.messages.start;
        while let Some(message) = walk.message(&block, at)? {
            at = message.end();
            if message.kind == kind::CONTINUATION {
                walk.follow(&message)?;
            }
            if see(message)?.is_break() {
                return Ok(());
            }
            seen += 1;
        }
        number += 1;
    }
    let is_right = match (prefix.version, mode) {
        (Version::Two { .. }, _) | (_, Mode::Lenient) => true,
        // libhdf5 reads headers with fewer messages than they state.
        (Version::One { messages }, Mode::Checked) => seen <= messages.into(),
        (Version::One { messages }, Mode::Strict) => seen == u64::from(messages),
    };
    if is_right {
        return Ok(());
    }
    Err("an object header with another number of messages".into())
}

struct Walk<'a, B: ?Sized> {
    bytes: &'a B,
    version: Version,
    mode: Mode,
    /// The first block, and its known continuation blocks.
    blocks: Vec<Block>,
    /// The bytes that further blocks may have. A valid header is read once, so all blocks together are no longer than
    /// the file. The limit ends loops of blocks.
    left: u64,
}

impl<B: HeaderBytes + ?Sized> Walk<'_, B> {
    fn add(&mut self, block: Block) -> Result<()> {
        let len = block.whole.end - block.whole.start;
        let left = self.left.checked_sub(len);
        self.left = left.ok_or("an object header of many bytes")?;
        if block.whole.end > self.bytes.size() {
            return Err(PAST_IMAGE.into());
        }
        if self.blocks.len() >= MOST_BLOCKS {
            return Err("an object header of many blocks".into());
        }
        self.blocks.push(block);
        Ok(())
    }

    /// Adds the block of a continuation message (IV.A.2.q).
    fn follow(&mut self, message: &Message) -> Result<()> {
        let place: [u8; 16] = read_array(self.bytes, message.data)?;
        let &[start, len] = place.as_chunks().0 else {
            return Ok(());
        };
        let (start, len) = (u64::from_le_bytes(start), u64::from_le_bytes(len));
        self.add(Block::at(self.version, start, len)?)
    }

    /// Checks a complete block, if the mode requires it and the version has checksums.
    fn check(&self, block: &Block, number: usize) -> Result<()> {
        if self.mode == Mode::Lenient || matches!(self.version, Version::One { .. }) {
            return Ok(());
        }
        let len = block.whole.end - block.whole.start;
        let bytes = read_vec(self.bytes, block.whole.start, len)?;
        let is_sound = match bytes.split_last_chunk() {
            Some((bytes, sum)) => *sum == lookup3(bytes).to_le_bytes(),
            None => false,
        };
        // The prefix has already shown the signature of the first block.
        if is_sound && (number == 0 || bytes.starts_with(b"OCHK")) {
            return Ok(());
        }
        Err("a block of an object header with a wrong checksum".into())
    }

    /// Reads the message at `at` of a block. A rest shorter than the header of a message is a gap. Version 1 has no
    /// gaps.
    fn message(&self, block: &Block, at: u64) -> Result<Option<Message>> {
        let head_len = self.version.head_len();
        let room = block.messages.end.saturating_sub(at);
        let is_strict = self.mode != Mode::Lenient;
        let is_old = matches!(self.version, Version::One { .. });
        if room < head_len as u64 {
            if is_strict && is_old && room > 0 {
                return Err("a block of messages with a gap".into());
            }
            return Ok(None);
        }
        let mut head = [0; 8];
        self.bytes.read(at, &mut head[..head_len])?;
        let [a, b, c, d, e, f, ..] = head;
        let (kind, len, flags) = match self.version {
            Version::One { .. } => (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]), e),
            Version::Two { .. } => (a.into(), u16::from_le_bytes([b, c]), d),
        };
        let message = Message {
            kind,
            flags,
            start: at,
            data: at + head_len as u64,
            len,
            order: self.version.has_order().then(|| u16::from_le_bytes([e, f])),
            block: (!is_old).then(|| block.whole.clone()),
        };
        let is_whole = message.end() <= block.messages.end && !(is_old && len % 8 != 0);
        if is_strict && !is_whole {
            return Err("a message that exceeds its block".into());
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version-1 message.
    fn old(kind: u16, data: &[u8]) -> Vec<u8> {
        let [kind, len] = [kind, data.len() as u16].map(u16::to_le_bytes);
        [&kind, &len, &[0; 4][..], data].concat()
    }

    /// A version-1 header at address 0 with one block. It states `count` messages.
    fn old_header(count: u16, block: &[u8]) -> Vec<u8> {
        let (count, len) = (count.to_le_bytes(), (block.len() as u32).to_le_bytes());
        [&[1, 0], &count[..], &[0; 4], &len, &[0; 4], block].concat()
    }

    fn with_checksum(bytes: &[&[u8]]) -> Vec<u8> {
        let mut bytes = bytes.concat();
        bytes.extend(lookup3(&bytes).to_le_bytes());
        bytes
    }

    fn place(start: u64, len: u64) -> Vec<u8> {
        [start, len].map(u64::to_le_bytes).concat()
    }

    /// Type and length of each message.
    fn found(bytes: &Vec<u8>, mode: Mode) -> Result<Vec<(u16, u16)>> {
        let mut found = Vec::new();
        messages(bytes, 0, mode, |message| {
            found.push((message.kind, message.len));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    #[test]
    fn old_headers_have_as_many_messages_as_they_say() {
        let block = [old(kind::NIL, &[0; 8]), old(kind::LAYOUT, &[0; 16])].concat();
        let right = old_header(2, &block);
        let messages = Ok(vec![(kind::NIL, 8), (kind::LAYOUT, 16)]);
        for mode in [Mode::Lenient, Mode::Checked, Mode::Strict] {
            assert_eq!(found(&right, mode), messages);
        }
        let odd = old_header(1, &[old(kind::NIL, &[0; 7]), vec![0]].concat());
        let long = old_header(1, &old(kind::NIL, &[0; 16])[..20]);
        let gap = old_header(2, &[&block[..], &[0; 4]].concat());
        let (few, many) = (old_header(1, &block), old_header(3, &block));
        assert!(found(&many, Mode::Checked).is_ok());
        assert!(found(&few, Mode::Checked).is_err());
        for wrong in [&odd, &long, &gap] {
            assert!(found(wrong, Mode::Checked).is_err());
        }
        for wrong in [few, many, odd, long, gap] {
            assert!(found(&wrong, Mode::Lenient).is_ok());
            assert!(found(&wrong, Mode::Strict).is_err());
        }
        assert!(found(&right[..30].to_vec(), Mode::Lenient).is_err());
    }

    #[test]
    fn blocks_have_their_checksums() {
        let mut chunk = with_checksum(&[b"OCHK", &[kind::LAYOUT as u8, 2, 0, 0, 7, 7]]);
        let head = [kind::CONTINUATION as u8, 16, 0, 0];
        // The prefix, the size of the first block, its only message, and the checksum.
        let start = 7 + 20 + 4;
        let place = place(start, chunk.len() as u64);
        let mut bytes = with_checksum(&[b"OHDR\x02\0", &[20], &head, &place]);
        bytes.append(&mut chunk);
        let messages = Ok(vec![(kind::CONTINUATION, 16), (kind::LAYOUT, 2)]);
        for mode in [Mode::Lenient, Mode::Checked, Mode::Strict] {
            assert_eq!(found(&bytes, mode), messages);
        }
        // A creation flag of the message, and a letter of the signature.
        for at in [10, start as usize + 7, start as usize] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(found(&wrong, Mode::Lenient), messages);
            assert!(found(&wrong, Mode::Checked).is_err());
            assert!(found(&wrong, Mode::Strict).is_err());
        }
    }

    #[test]
    fn blocks_that_go_on_in_themselves_end() {
        for len in [24, 1 << 16] {
            let mut block = old(kind::CONTINUATION, &place(16, len));
            block.resize(len as usize, 0);
            let bytes = old_header(1, &block);
            for mode in [Mode::Lenient, Mode::Checked, Mode::Strict] {
                assert!(found(&bytes, mode).is_err());
            }
        }
        let empty = old_header(1, &old(kind::CONTINUATION, &place(0, 0)));
        assert_eq!(
            found(&empty, Mode::Strict),
            Ok(vec![(kind::CONTINUATION, 16)])
        );
        let past = old_header(1, &old(kind::CONTINUATION, &place(u64::MAX, 8)));
        assert!(found(&past, Mode::Lenient).is_err());
    }
}
