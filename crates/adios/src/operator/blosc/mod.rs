//! Blosc, as ADIOS2 stores it: chunks of blosc 1 or 2, back to back.
//!
//! * `chunk`: one chunk, which has blocks of one or several streams each.
//! * `codec`: decodes a stream.
//! * `blosclz`: the codec of blosc's own.
//! * `shuffle`: undoes the filters.

mod blosclz;
mod chunk;
mod codec;
mod shuffle;

use crate::Result;

/// Decodes what ADIOS2 stores of a block.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let mut fields = super::behind_size(stored, out.len(), 1)?;
    let _version_of_blosc = fields.take(3)?;
    let whole = fields.clone();
    if fields.u32()? != 0 {
        // Writers before chunks: the one that there is begins here.
        return chunk::decode(whole.rest(), out);
    }
    let chunks = fields.u32()?;
    if chunks == 0 {
        out.copy_from_slice(fields.take(out.len())?);
        return Ok(());
    }
    let mut decoded = 0;
    let mut left = fields.rest();
    for _ in 0..chunks {
        let (plain, packed) = chunk::sizes(left)?;
        let (chunk, rest) = left.split_at_checked(packed).ok_or("ends inside a chunk")?;
        let part = &mut out[decoded..];
        let part = part
            .get_mut(..plain)
            .ok_or("more bytes than the block has")?;
        chunk::decode(chunk, part)?;
        decoded += plain;
        left = rest;
    }
    if decoded < out.len() {
        return Err(format!("only {decoded} of {} bytes", out.len()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
