//! Inflates zlib streams, with bounds that the caller sets.

use flate2::{Decompress, FlushDecompress, Status};

use h5logfs_common::buffers::zeroed;

use crate::{HeaderBytes, Result};

/// The most bytes that a deflated stream of `stored` bytes can hold: 1032:1 (RFC 1951), and some for tiny streams.
pub fn largest_inflated(stored: u64) -> u64 {
    stored.saturating_mul(1032).saturating_add(1024)
}

/// Inflates zlib streams that lie back to back (RFC 1950) to exactly `size` bytes.
///
/// Fails where a stream is damaged, where it holds fewer or more bytes, and where stored bytes are left over.
pub fn inflate(stored: &[u8], size: u64) -> Result<Vec<u8>> {
    if size > largest_inflated(stored.len() as u64) {
        return Err(format!("{} stored bytes cannot hold {size} bytes", stored.len()).into());
    }
    let mut out = zeroed(usize::try_from(size)?)?;
    inflate_in(stored, &mut out)?;
    Ok(out)
}

/// As [`inflate`], in memory of the caller, which has the length of what was deflated.
pub fn inflate_in(stored: &[u8], out: &mut [u8]) -> Result<()> {
    let size = out.len();
    let (mut read, mut written) = (0, 0);
    while read < stored.len() {
        let (i, o) = one_stream(&stored[read..], &mut out[written..])?;
        read += i;
        written += o;
    }
    if written != size {
        return Err(format!("inflates to {written} bytes instead of {size}").into());
    }
    Ok(())
}

/// Inflates one stream; returns bytes read and bytes written.
fn one_stream(stored: &[u8], out: &mut [u8]) -> Result<(usize, usize)> {
    let mut stream = Decompress::new(true);
    let (mut read, mut written) = (0, 0);
    loop {
        let (status, i, o) = step(
            &mut stream,
            &stored[read..],
            &mut out[written..],
            FlushDecompress::Finish,
        )?;
        read += i;
        written += o;
        match status {
            Status::StreamEnd => return Ok((read, written)),
            _ if (i, o) != (0, 0) => continue,
            _ if written == out.len() => return Err("inflates to more bytes than expected".into()),
            _ => return Err(ENDS_EARLY.into()),
        }
    }
}

const ENDS_EARLY: &str = "zlib stream ends early";

/// Inflates as far as possible; returns the status, bytes read, and bytes written.
fn step(
    stream: &mut Decompress,
    stored: &[u8],
    out: &mut [u8],
    flush: FlushDecompress,
) -> Result<(Status, usize, usize)> {
    let (i, o) = (stream.total_in(), stream.total_out());
    let status = stream
        .decompress(stored, out, flush)
        .map_err(|e| format!("broken zlib stream: {e}"))?;
    let (read, written) = (stream.total_in() - i, stream.total_out() - o);
    Ok((status, read as usize, written as usize))
}

/// Bytes of a stream of unknown length that are read at once: of the first piece at most, and of each further
/// one.
const FIRST_PIECE: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;

/// Bytes of memory for the pieces, of which the largest is `FIRST_PIECE`, and for what the inflater keeps.
pub const DEFLATE_PIECES: u64 = FIRST_PIECE + (64 << 10);

/// Inflates one zlib stream of unknown length at `offset` of `source` to exactly `size` bytes. `hint`: the bytes that it
/// probably has. `contiguous` tells how many bytes from an offset on are there for certain: bytes behind the stream may be
/// missing.
///
/// Fails where the stream is damaged, does not end in the source, or holds fewer or more bytes.
pub fn inflate_stream<B: HeaderBytes + ?Sized>(
    source: &B,
    contiguous: impl Fn(u64) -> u64,
    offset: u64,
    hint: u64,
    size: u64,
) -> Result<Vec<u8>> {
    let left = source.size().saturating_sub(offset);
    if size > largest_inflated(left) {
        return Err(format!("{left} stored bytes cannot hold {size} bytes").into());
    }
    // One byte more reveals a stream that holds more.
    let room = usize::try_from(size).ok().and_then(|n| n.checked_add(1));
    let mut inflated = zeroed(room.ok_or("more bytes than can be counted")?)?;
    let mut stream = Decompress::new(true);
    let (mut at, end, mut written) = (offset, offset.saturating_add(left), 0);
    let mut piece = Vec::new();
    let mut next = hint.clamp(1, FIRST_PIECE);
    while at < end {
        piece.resize(next.min(end - at).min(contiguous(at).max(1)) as usize, 0);
        next = PIECE;
        source.read(at, &mut piece)?;
        at += piece.len() as u64;
        let mut read = 0;
        while read < piece.len() {
            let (stored, out) = (&piece[read..], &mut inflated[written..]);
            let (status, i, o) = step(&mut stream, stored, out, FlushDecompress::None)?;
            read += i;
            written += o;
            match status {
                _ if written as u64 > size => {
                    return Err("inflates to more bytes than expected".into());
                }
                Status::StreamEnd if (written as u64) < size => {
                    return Err(format!("inflates to {written} bytes instead of {size}").into());
                }
                Status::StreamEnd => {
                    inflated.truncate(written);
                    return Ok(inflated);
                }
                _ if (i, o) == (0, 0) => return Err("broken zlib stream".into()),
                _ => {}
            }
        }
    }
    Err(ENDS_EARLY.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn deflated(bytes: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    #[test]
    fn a_stream_of_unknown_length_ends_by_itself() {
        // Larger than a piece, and hardly compressible.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..300_000).map(|_| next()).collect();
        let stored = deflated(&bytes);
        let file =
            |tail: &[u8], less: usize| [b"front", &stored[..stored.len() - less], tail].concat();
        let inflated = |bytes: &Vec<u8>, offset, hint, size| {
            // Each read takes a third of the bytes that are left, at most.
            let contiguous = |at: u64| (bytes.len() as u64 - at) / 3;
            inflate_stream(bytes, contiguous, offset, hint, size)
        };
        let size = bytes.len() as u64;
        for hint in [0, 1, 1000, u64::MAX] {
            assert_eq!(inflated(&file(b"", 0), 5, hint, size).unwrap(), bytes);
            let tail = file(b"something else", 0);
            assert_eq!(inflated(&tail, 5, hint, size).unwrap(), bytes);
            for wrong in [0, size - 1, size + 1, u64::MAX] {
                assert!(inflated(&tail, 5, hint, wrong).is_err());
            }
            assert!(inflated(&file(b"", 1), 5, hint, size).is_err());
            assert!(inflated(&tail, 4, hint, size).is_err());
            assert!(inflated(&tail, u64::MAX, hint, size).is_err());
        }
        assert_eq!(inflated(&deflated(b""), 0, 1, 0).unwrap(), b"");
    }

    #[test]
    fn streams_back_to_back_and_every_kind_of_damage() {
        let one = deflated(b"hello hello hello");
        let two = [one.clone(), deflated(b"world")].concat();
        assert_eq!(inflate(&one, 17).unwrap(), b"hello hello hello");
        assert_eq!(inflate(&two, 22).unwrap(), b"hello hello helloworld");
        assert!(inflate(&two, 21).is_err());
        assert!(inflate(&two, 23).is_err());
        assert!(inflate(&one[..one.len() - 1], 17).is_err());
        assert!(inflate(&[one, vec![0]].concat(), 17).is_err());
        assert!(inflate(b"\x78\x9c", 1 << 40).is_err());
    }
}
