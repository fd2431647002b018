//! Undoes shuffling, which groups the bytes or bits of equal significance.

/// Reassembles elements of `size` bytes. A remainder at the end is copied.
pub(super) fn unshuffle(from: &[u8], size: usize, to: &mut [u8]) {
    let count = from.len() / size.max(1);
    for (byte, row) in from.chunks_exact(count.max(1)).take(size).enumerate() {
        for (element, value) in to.chunks_exact_mut(size).zip(row) {
            element[byte] = *value;
        }
    }
    let whole = count * size;
    to[whole..].copy_from_slice(&from[whole..]);
}

/// Reassembles elements of `size` bytes from bits: in `from`, row `8 * b + k` is bit `k` of byte `b` of all elements.
/// The number of elements is rounded down to a multiple of eight; the remainder is copied.
pub(super) fn unshuffle_bits(from: &[u8], size: usize, to: &mut [u8]) {
    let groups = from.len() / size.max(1) / 8;
    let whole = groups * 8 * size;
    for byte in 0..size {
        let rows = &from[byte * 8 * groups..][..8 * groups];
        for group in 0..groups {
            let bits = std::array::from_fn(|bit| rows[bit * groups + group]);
            let elements = transposed(bits);
            for (element, value) in elements.into_iter().enumerate() {
                to[(group * 8 + element) * size + byte] = value;
            }
        }
    }
    to[whole..].copy_from_slice(&from[whole..]);
}

/// Transposes a matrix of 8 by 8 bits: squares of four, two and one bits are exchanged in turn.
fn transposed(rows: [u8; 8]) -> [u8; 8] {
    let mut bits = u64::from_le_bytes(rows);
    for (distance, mask) in [
        (28, 0x0000_0000_f0f0_f0f0),
        (14, 0x0000_cccc_0000_cccc),
        (7, 0x00aa_00aa_00aa_00aa),
    ] {
        let differ = (bits ^ (bits >> distance)) & mask;
        bits ^= differ ^ (differ << distance);
    }
    bits.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_elements() {
        let mut to = [0; 8];
        unshuffle(b"adbecf.!", 3, &mut to);
        assert_eq!(&to, b"abcdef.!");
        unshuffle(b"shorter!", 9, &mut to);
        assert_eq!(&to, b"shorter!");
    }

    #[test]
    fn bits_of_elements() {
        for size in [1, 3, 8] {
            let plain = (0..size * 17)
                .map(|n| (n * 37 + n / 7) as u8)
                .collect::<Vec<_>>();
            let mut shuffled = plain.clone();
            shuffled[..16 * size].fill(0);
            for (element, bytes) in plain.chunks_exact(size).take(16).enumerate() {
                for bit in 0..8 * size {
                    let value = bytes[bit / 8] >> (bit % 8) & 1;
                    shuffled[bit * 2 + element / 8] |= value << (element % 8);
                }
            }
            let mut to = vec![0; plain.len()];
            unshuffle_bits(&shuffled, size, &mut to);
            assert_eq!(to, plain);
        }
    }
}
