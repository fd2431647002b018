//! A chunk of blosc 1 or 2. All numbers are little-endian.

use super::codec::Codec;
use super::shuffle;
use crate::Result;
use crate::fields::Fields;

/// The newest chunk format that is read: that of blosc 2.
const LAST_VERSION: u8 = 5;

/// The last format, of blosc 1, that does not shuffle the bits of a block unless eight divides its number of
/// elements.
const LAST_WHOLE_BITS: u8 = 2;

/// Bits of the flags.
const SHUFFLED: u8 = 1;
const COPIED: u8 = 2;
const SHUFFLED_BITS: u8 = 4;
const NOT_SPLIT: u8 = 16;

/// Both bits together: the header has 32 bytes.
const LONG_HEADER: u8 = SHUFFLED | SHUFFLED_BITS;

/// Bits of the flags of blosc 2.
const DICTIONARY: u8 = 1;
const LAZY: u8 = 8;

/// Codec number that refers to another byte.
const OTHER_CODEC: u8 = 6;

/// Content of the header.
#[derive(Debug)]
struct Header {
    version: u8,
    flags: u8,
    /// Bytes of an element.
    size: usize,
    /// Bytes of a block.
    block: usize,
    /// Bytes of the header itself.
    len: usize,
    codec: u8,
    /// Filters in the order of application.
    filters: Vec<Filter>,
    special: Special,
}

/// A filter: changes bytes but not their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// Shuffled bytes, in elements of this size.
    Shuffle(usize),
    ShuffleBits,
}

/// The content of a chunk without blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    None,
    Zeros,
    NaNs,
    /// The value after the header, repeated.
    Repeated,
}

/// Sizes in bytes.
pub(super) struct Sizes {
    /// The decoded chunk.
    pub plain: usize,
    /// A block.
    pub block: usize,
    /// The stored chunk.
    pub packed: usize,
}

/// The sizes of the chunk at the start of `stored`.
pub(super) fn sizes(stored: &[u8]) -> Result<Sizes> {
    let mut fields = Fields::new(stored, false);
    fields.take(4)?;
    Ok(Sizes {
        plain: fields.u32()? as usize,
        block: fields.u32()? as usize,
        packed: fields.u32()? as usize,
    })
}

/// Decodes a chunk that fills `out`.
pub(super) fn decode(chunk: &[u8], out: &mut [u8]) -> Result<()> {
    let Sizes {
        plain,
        block,
        packed,
    } = sizes(chunk)?;
    if plain != out.len() {
        return Err(format!("a chunk of {plain} bytes in place of {}", out.len()).into());
    }
    if plain == 0 {
        return Ok(());
    }
    if !(1..=plain).contains(&block) {
        return Err(format!("blocks of {block} bytes in a chunk of {plain}").into());
    }
    let chunk = chunk.get(..packed).ok_or("ends inside a chunk")?;
    let header = Header::read(Fields::new(chunk, false), block)?;
    let behind = chunk.get(header.len..).ok_or("ends inside a header")?;
    match header.special {
        Special::Zeros => out.fill(0),
        Special::NaNs => nans(header.size, out)?,
        Special::Repeated => {
            let value = behind.get(..header.size).ok_or("ends inside a value")?;
            repeat(value, out);
        }
        Special::None if header.flags & COPIED != 0 => {
            out.copy_from_slice(behind.get(..plain).ok_or("ends inside its bytes")?);
        }
        Special::None => blocks(chunk, &header, out)?,
    }
    Ok(())
}

impl Header {
    fn read(mut fields: Fields<'_>, block: usize) -> Result<Self> {
        let [version, _of_codec, flags, size] =
            [fields.u8()?, fields.u8()?, fields.u8()?, fields.u8()?];
        if version > LAST_VERSION {
            return Err(
                format!("chunks of version {version}: at most {LAST_VERSION} is read").into(),
            );
        }
        let _sizes = fields.take(12)?;
        let size = usize::from(size).max(1);
        let mut header = Header {
            version,
            flags,
            size,
            block,
            len: fields.at(),
            codec: flags >> 5,
            filters: Vec::new(),
            special: Special::None,
        };
        if flags & LONG_HEADER == LONG_HEADER {
            header.extend(&mut fields)?;
        } else if flags & SHUFFLED != 0 && size > 1 {
            header.filters.push(Filter::Shuffle(size));
        } else if flags & SHUFFLED_BITS != 0 && block >= size {
            header.filters.push(Filter::ShuffleBits);
        }
        Ok(header)
    }

    /// Reads the rest of a header of 32 bytes.
    fn extend(&mut self, fields: &mut Fields<'_>) -> Result<()> {
        let filters = fields.take(6)?;
        let other_codec = fields.u8()?;
        let _of_codec = fields.u8()?;
        let parameters = fields.take(6)?;
        let _unused = fields.u8()?;
        let flags = fields.u8()?;
        self.len = fields.at();
        if flags & (DICTIONARY | LAZY) != 0 {
            return Err("a chunk with a dictionary, or without its bytes".into());
        }
        if self.codec == OTHER_CODEC {
            self.codec = other_codec;
        }
        self.special = match flags >> 4 & 7 {
            0 => Special::None,
            1 => Special::Zeros,
            2 => Special::NaNs,
            3 => Special::Repeated,
            other => return Err(format!("a chunk of special values {other}").into()),
        };
        for (filter, parameter) in filters.iter().zip(parameters) {
            match filter {
                0 => {}
                1 if *parameter > 0 => self.filters.push(Filter::Shuffle(usize::from(*parameter))),
                1 => self.filters.push(Filter::Shuffle(self.size)),
                2 => self.filters.push(Filter::ShuffleBits),
                // Truncated precision: the lost bits cannot be restored.
                4 => {}
                other => return Err(format!("h5logfs cannot undo filter {other}").into()),
            }
        }
        Ok(())
    }

    /// Undoes a filter.
    fn undo(&self, filter: Filter, from: &[u8], to: &mut [u8]) {
        match filter {
            Filter::Shuffle(size) => shuffle::unshuffle(from, size, to),
            Filter::ShuffleBits => {
                let elements = from.len() / self.size;
                if self.version <= LAST_WHOLE_BITS && !elements.is_multiple_of(8) {
                    to.copy_from_slice(from);
                } else {
                    shuffle::unshuffle_bits(from, self.size, to);
                }
            }
        }
    }
}

/// Fills `out` with NaN.
fn nans(size: usize, out: &mut [u8]) -> Result<()> {
    match size {
        4 => repeat(&f32::NAN.to_le_bytes(), out),
        8 => repeat(&f64::NAN.to_le_bytes(), out),
        _ => return Err(format!("NaNs of {size} bytes").into()),
    }
    Ok(())
}

fn repeat(value: &[u8], out: &mut [u8]) {
    for part in out.chunks_mut(value.len()) {
        part.copy_from_slice(&value[..part.len()]);
    }
}

/// Decodes the blocks. A table of their offsets precedes them.
fn blocks(chunk: &[u8], header: &Header, out: &mut [u8]) -> Result<()> {
    let mut codec = Codec::new(header.codec, header.block)?;
    let mut begins = Fields::new(chunk, false);
    begins.take(header.len)?;
    let (mut packed, mut spare) = (Vec::new(), Vec::new());
    for out in out.chunks_mut(header.block) {
        let begin = begins.u32()? as usize;
        let streams = chunk.get(begin..).ok_or("a block outside of its chunk")?;
        if header.filters.is_empty() {
            block(streams, header, &mut codec, out)?;
            continue;
        }
        packed.resize(out.len(), 0);
        spare.resize(out.len(), 0);
        block(streams, header, &mut codec, &mut packed)?;
        for filter in header.filters.iter().rev() {
            header.undo(*filter, &packed, &mut spare);
            std::mem::swap(&mut packed, &mut spare);
        }
        out.copy_from_slice(&packed);
    }
    Ok(())
}

/// Decodes the streams of a block. A block of full length may have one stream per byte of an element.
fn block(streams: &[u8], header: &Header, codec: &mut Codec, out: &mut [u8]) -> Result<()> {
    let is_split = header.flags & NOT_SPLIT == 0 && out.len() == header.block;
    let streams_of_block = if is_split { header.size } else { 1 };
    if !out.len().is_multiple_of(streams_of_block) {
        return Err("a block with incomplete elements".into());
    }
    let mut streams = Fields::new(streams, false);
    let part = out.len() / streams_of_block;
    for out in out.chunks_mut(part) {
        let len = streams.u32()?.cast_signed();
        if len == 0 {
            out.fill(0);
        } else if len > 0 {
            let stream = streams.take(len.unsigned_abs() as usize)?;
            if stream.len() == out.len() {
                out.copy_from_slice(stream);
            } else {
                codec.decode(stream, out)?;
            }
        } else {
            let byte = u8::try_from(len.unsigned_abs())?;
            if streams.u8()? != 1 {
                return Err("a stream of unknown kind".into());
            }
            out.fill(byte);
        }
    }
    Ok(())
}
