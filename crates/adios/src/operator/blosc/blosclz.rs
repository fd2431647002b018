//! BloscLZ, an LZ77 of bytes: the second level of FastLZ.
//!
//! A stream is a sequence of instructions. The high three bits of the first byte tell the kind:
//!
//! * 0: literals follow. Their number is the low five bits plus one.
//! * Others: earlier output is repeated. The length is the three bits plus 2; where they are 7, every following byte
//!   is added, up to and including the first one below 255. The distance is the low five bits times 256, plus the
//!   next byte, plus one. Where all of these bits are set, it is 8192 plus the next two bytes, high byte first.
//!
//! The first instruction is always one of literals.

use crate::Result;

/// From this distance on, two more bytes hold the distance.
const FAR: usize = 0x1fff;

/// Decodes a stream. Returns the number of bytes written to `out`.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<usize> {
    decoded(stored, out).ok_or_else(|| "a damaged stream of blosclz".into())
}

fn decoded(stored: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut from = stored.iter();
    let mut at = 0;
    let mut is_first = true;
    while let Some(&first) = from.next() {
        let (kind, low) = (usize::from(first >> 5), usize::from(first & 31));
        if kind == 0 || is_first {
            let (literals, rest) = from.as_slice().split_at_checked(low + 1)?;
            out.get_mut(at..at + literals.len())?
                .copy_from_slice(literals);
            at += literals.len();
            from = rest.iter();
        } else {
            let mut len = kind + 2;
            if kind == 7 {
                loop {
                    let more = usize::from(*from.next()?);
                    len += more;
                    if more < 255 {
                        break;
                    }
                }
            }
            let mut back = low << 8 | usize::from(*from.next()?);
            if back == FAR {
                back += usize::from(*from.next()?) << 8;
                back += usize::from(*from.next()?);
            }
            repeat(out, at, back + 1, len)?;
            at += len;
        }
        is_first = false;
    }
    Some(at)
}

/// Copies `len` bytes from `back` bytes before `at` to `at`. The ranges may overlap.
fn repeat(out: &mut [u8], at: usize, back: usize, len: usize) -> Option<()> {
    let from = at.checked_sub(back)?;
    let part = out.get_mut(from..at.checked_add(len)?)?;
    if back == 1 {
        let byte = *part.first()?;
        part[1..].fill(byte);
        return Some(());
    }
    // Each round doubles the copied part.
    let mut have = back;
    while have < part.len() {
        let more = have.min(part.len() - have);
        part.copy_within(..more, have);
        have += more;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(stored: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; 20_000];
        let len = decode(stored, &mut out).ok()?;
        out.truncate(len);
        Some(out)
    }

    #[test]
    fn instructions() {
        // Four literals, then three bytes from a distance of two.
        let short = [3, b'A', b'B', b'C', b'D', 0x20, 2];
        assert_eq!(decode_all(&short).unwrap(), b"ABCDBCD");
        // The bits of the first instruction are ignored. Then nine bytes from a distance of two.
        let long = [0x21, b'D', b'E', 0xe0, 1, 1];
        assert_eq!(decode_all(&long).unwrap(), b"DEDEDEDEDEDE");
        let longer = [0, b'x', 0xe0, 255, 255, 4, 0];
        assert_eq!(decode_all(&longer).unwrap(), [b'x'; 1 + 9 + 514]);
    }

    #[test]
    fn far_back() {
        let mut stored = vec![0, b'a', 0, b'b'];
        // 8200 more bytes put `a` 8202 bytes before the end.
        stored.extend([0xe0, 255].into_iter().chain([255; 31]));
        stored.extend([8200_usize.wrapping_sub(9 + 32 * 255) as u8, 0]);
        stored.extend([0x3f, 255, 0, 10]);
        let out = decode_all(&stored).unwrap();
        assert_eq!(out.len(), 2 + 8200 + 3);
        assert_eq!(out[8202..], *b"abb");
    }

    #[test]
    fn what_lies_outside_is_damage() {
        for bad in [
            &[1, b'a'][..],
            &[0, b'a', 0x20],
            &[0, b'a', 0x20, 1],
            &[0, b'a', 0xe0, 255],
            &[0, b'a', 0x3f, 255, 0],
        ] {
            assert_eq!(decode_all(bad), None);
        }
        assert!(decode(&[0, b'a', 0xe0, 0, 0], &mut [0; 9]).is_err());
        assert!(decode(&[1, b'a', b'b'], &mut [0; 1]).is_err());
    }
}
