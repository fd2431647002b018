//! Inflating what writers deflated, bounded by what the caller expects.

use flate2::{Decompress, FlushDecompress, Status};

/// The most that deflate can shrink data (1032:1, RFC 1951), with room for tiny streams.
pub fn largest_inflated(stored: u64) -> u64 {
    stored.saturating_mul(1032).saturating_add(1024)
}

/// Inflates zlib streams that lie back to back (RFC 1950) to exactly `size` bytes.
///
/// Fails where a stream is broken, where the bytes are too few or too many, and where stored bytes
/// are left over.
pub fn inflate(stored: &[u8], size: u64) -> Result<Vec<u8>, String> {
    if size > largest_inflated(stored.len() as u64) {
        return Err(format!(
            "{} stored bytes cannot hold {size} bytes",
            stored.len()
        ));
    }
    let size = usize::try_from(size).map_err(|e| e.to_string())?;
    let mut out = vec![0; size];
    let (mut read, mut written) = (0, 0);
    while read < stored.len() {
        let (i, o) = one_stream(&stored[read..], &mut out[written..])?;
        read += i;
        written += o;
    }
    if written != size {
        return Err(format!("inflates to {written} bytes instead of {size}"));
    }
    Ok(out)
}

/// Inflates one stream; returns bytes read and bytes written.
fn one_stream(stored: &[u8], out: &mut [u8]) -> Result<(usize, usize), String> {
    let mut stream = Decompress::new(true);
    loop {
        let (i, o) = (stream.total_in() as usize, stream.total_out() as usize);
        let status = stream
            .decompress(&stored[i..], &mut out[o..], FlushDecompress::Finish)
            .map_err(|e| format!("broken zlib stream: {e}"))?;
        let (i2, o2) = (stream.total_in() as usize, stream.total_out() as usize);
        match status {
            Status::StreamEnd => return Ok((i2, o2)),
            _ if (i2, o2) != (i, o) => continue,
            _ if o2 == out.len() => return Err("inflates to more bytes than expected".into()),
            _ => return Err("zlib stream ends early".into()),
        }
    }
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
