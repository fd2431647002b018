//! Batches of bzip2 streams.

use bzip2::{Decompress, Status};

use crate::Result;

/// Decodes consecutive batches. They are contiguous in the stored bytes and in `out`.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let mut table = super::behind_size(stored, out.len() as u64)?;
    let batches = table.u64()?;
    let mut streams = table.clone();
    streams.take(usize::try_from(batches.saturating_mul(16))?)?;
    let mut decoded = 0;
    for batch in 0..batches {
        let (begin, len) = (table.u32()?, table.u32()? as usize);
        let (from, packed) = (table.u32()?, table.u32()?);
        // Offsets past 4 GiB have lost their high bits.
        if (begin, from) != (decoded as u32, streams.at() as u32) {
            return Err(format!("batch {batch} does not follow the one before it").into());
        }
        let rest = &mut out[decoded..];
        let part = rest.get_mut(..len).ok_or("more bytes than the block has")?;
        stream(streams.take(packed as usize)?, part)?;
        decoded += len;
    }
    if decoded < out.len() {
        return Err(format!("only {decoded} of {} bytes", out.len()).into());
    }
    Ok(())
}

/// Decodes a stream that fills `out`.
fn stream(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let mut decoder = Decompress::new(false);
    loop {
        let (taken, made) = (decoder.total_in() as usize, decoder.total_out() as usize);
        let status = decoder
            .decompress(&stored[taken..], &mut out[made..])
            .map_err(|error| format!("a damaged stream: {error}"))?;
        let now = (decoder.total_in() as usize, decoder.total_out() as usize);
        if status == Status::StreamEnd && now.1 == out.len() {
            return Ok(());
        }
        if status != Status::Ok || now == (taken, made) {
            return Err(format!("a stream of another length than {} bytes", out.len()).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use bzip2::Compression;
    use bzip2::read::BzEncoder;
    use std::io::Read;

    use super::*;

    /// The bytes that ADIOS2 stores for `parts`, one batch each.
    fn stored(parts: &[&[u8]]) -> Vec<u8> {
        let mut streams = Vec::new();
        let mut out = vec![1, 1, 0, 0];
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        out.extend((len as u64).to_le_bytes());
        out.extend((parts.len() as u64).to_le_bytes());
        let (mut begin, mut from) = (0, 20 + 16 * parts.len());
        for part in parts {
            let mut stream = Vec::new();
            let mut encoder = BzEncoder::new(*part, Compression::best());
            encoder.read_to_end(&mut stream).unwrap();
            for number in [begin, part.len(), from, stream.len()] {
                out.extend((number as u32).to_le_bytes());
            }
            begin += part.len();
            from += stream.len();
            streams.extend(stream);
        }
        out.extend(streams);
        out
    }

    #[test]
    fn batches_are_put_one_after_the_other() {
        let long = (0..100_000_u32)
            .flat_map(|n| n.wrapping_mul(n).to_le_bytes())
            .collect::<Vec<_>>();
        let mut out = vec![0; long.len() + 3];
        super::super::decode(&stored(&[&long, b"abc"]), &mut out).unwrap();
        assert!(out.starts_with(&long) && out.ends_with(b"abc"));
        assert_eq!(decode(&stored(&[]), &mut []), Ok(()));
    }

    #[test]
    fn damaged_bytes_are_answered() {
        let whole = stored(&[b"abcabcabc", b"defg"]);
        let mut out = [0; 13];
        for len in 0..whole.len() {
            assert!(decode(&whole[..len], &mut out).is_err());
        }
        for at in 0..whole.len() {
            for flip in [1, 0xff] {
                let mut bad = whole.clone();
                bad[at] ^= flip;
                // The checksum lets only the right result pass.
                if at > 3 && decode(&bad, &mut out).is_ok() {
                    assert_eq!(&out, b"abcabcabcdefg");
                }
            }
        }
    }
}
