//! Blosc, as ADIOS2 stores it: chunks of blosc 1 or 2, back to back.
//!
//! * `chunk`: one chunk; each of its blocks has one or more streams.
//! * `codec`: decodes a stream.
//! * `blosclz`: blosc's own codec.
//! * `shuffle`: undoes the filters.

mod blosclz;
mod chunk;
mod codec;
mod shuffle;

use crate::Result;
use crate::fields::Fields;

/// Bytes of memory for the state of any codec, without its window.
const STATE: u64 = 1 << 20;

/// The largest memory use of decoding in bytes: two blocks for the filters, and the window of a codec.
pub(super) fn memory(stored: &[u8], len: u64) -> u64 {
    let Ok(Body::Chunks(chunks)) = Body::read(stored, len) else {
        return 0;
    };
    let blocks = chunks.map_while(|chunk| chunk::sizes(chunk.ok()?).ok());
    let largest = blocks.map(|sizes| sizes.block as u64).max().unwrap_or(0);
    2 * largest + codec::window(largest) + STATE
}

/// Decodes the stored bytes of a block.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let chunks = match Body::read(stored, out.len() as u64)? {
        Body::Plain(mut bytes) => {
            out.copy_from_slice(bytes.take(out.len())?);
            return Ok(());
        }
        Body::Chunks(chunks) => chunks,
    };
    let mut decoded = 0;
    for chunk in chunks {
        let chunk = chunk?;
        let plain = chunk::sizes(chunk)?.plain;
        let part = &mut out[decoded..];
        let part = part
            .get_mut(..plain)
            .ok_or("more bytes than the block has")?;
        chunk::decode(chunk, part)?;
        decoded += plain;
    }
    if decoded < out.len() {
        return Err(format!("only {decoded} of {} bytes", out.len()).into());
    }
    Ok(())
}

/// The bytes after the header of ADIOS2.
enum Body<'a> {
    /// The elements without compression.
    Plain(Fields<'a>),
    Chunks(Chunks<'a>),
}

/// Consecutive chunks.
struct Chunks<'a> {
    count: u32,
    left: &'a [u8],
}

impl<'a> Body<'a> {
    fn read(stored: &'a [u8], len: u64) -> Result<Self> {
        let mut fields = super::behind_size(stored, len)?;
        let _version_of_blosc = fields.take(3)?;
        let left = fields.rest();
        if fields.u32()? != 0 {
            // The writer has no chunk table, and its only chunk begins here.
            return Ok(Body::Chunks(Chunks { count: 1, left }));
        }
        match fields.u32()? {
            0 => Ok(Body::Plain(fields)),
            count => Ok(Body::Chunks(Chunks {
                count,
                left: fields.rest(),
            })),
        }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let packed = match chunk::sizes(self.left) {
            Ok(sizes) => sizes.packed,
            Err(fault) => return Some(Err(fault)),
        };
        let split = self.left.split_at_checked(packed);
        Some(
            split
                .ok_or_else(|| "ends inside a chunk".into())
                .map(|(chunk, rest)| {
                    self.left = rest;
                    chunk
                }),
        )
    }
}

#[cfg(test)]
mod tests;
