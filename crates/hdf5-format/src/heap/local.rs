//! Local heaps (III.D). They hold the names of an old group.

use crate::{Fields, HeaderBytes, Result, read_vec};

/// Bytes of a name in the first read.
const PIECE: u64 = 32;

/// A local heap with its header.
pub struct LocalHeap<'a, B: ?Sized> {
    bytes: &'a B,
    /// The address of the data.
    data: u64,
    len: u64,
}

impl<'a, B: HeaderBytes + ?Sized> LocalHeap<'a, B> {
    /// Opens the heap at `address`.
    pub fn open(bytes: &'a B, address: u64) -> Result<Self> {
        let header = read_vec(bytes, address, 32)?;
        LocalHeap::of_header(bytes, &header)
            .ok_or_else(|| format!("no local heap at {address}").into())
    }

    fn of_header(bytes: &'a B, header: &[u8]) -> Option<Self> {
        let mut fields = Fields(header);
        fields.expect(b"HEAP\0")?;
        fields.skip(3)?;
        let len = fields.u64()?;
        fields.skip(8)?;
        let data = fields.u64()?;
        (data.checked_add(len)? <= bytes.size()).then_some(LocalHeap { bytes, data, len })
    }

    /// All bytes of the heap. Fails where they are more than `most`.
    pub fn all(&self, most: u64) -> Result<Vec<u8>> {
        if self.len > most {
            return Err(format!("a local heap of {} bytes", self.len).into());
        }
        read_vec(self.bytes, self.data, self.len)
    }

    /// The bytes from `offset` to the next zero.
    pub fn text(&self, offset: u64) -> Result<Vec<u8>> {
        let (mut at, mut piece) = (offset, PIECE);
        let mut text = Vec::new();
        while at < self.len {
            let len = piece.min(self.len - at);
            let more = read_vec(self.bytes, self.data + at, len)?;
            if let Some(end) = more.iter().position(|byte| *byte == 0) {
                text.extend(&more[..end]);
                return Ok(text);
            }
            text.extend(more);
            at += len;
            piece *= 2;
        }
        Err(format!("a name at {offset} of a local heap, which ends before it").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_a_zero() {
        let long = "n".repeat(500);
        let data = format!("\0a\0{long}\0open");
        let len = data.len() as u64;
        let header = [
            b"HEAP\0\0\0\0",
            &len.to_le_bytes()[..],
            &[0; 8],
            &32u64.to_le_bytes(),
        ];
        let bytes = [header.concat(), data.into_bytes()].concat();
        let heap = LocalHeap::open(&bytes, 0).unwrap();
        assert_eq!(heap.all(len).unwrap().len() as u64, len);
        assert!(heap.all(len - 1).is_err());
        assert_eq!(heap.text(0), Ok(vec![]));
        assert_eq!(heap.text(1), Ok(b"a".to_vec()));
        assert_eq!(heap.text(3), Ok(long.into_bytes()));
        for wrong in [len - 2, len, len + 1, u64::MAX] {
            assert!(heap.text(wrong).is_err());
        }
        assert!(LocalHeap::open(&bytes[..90], 0).is_err());
        assert!(LocalHeap::open(&bytes, 1).is_err());
    }
}
