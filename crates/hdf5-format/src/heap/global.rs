//! Global heap collections (III.E): values of variable length, and regions of references.

use std::collections::HashMap;

use crate::bounds::Allowance;
use crate::{Fields, HeaderBytes, Result, read_vec};

/// Bytes of the header of a collection, and of the header of an object.
const HEADER: u64 = 16;

/// The collections of a file that have been read.
pub struct GlobalHeaps<'a, B: ?Sized> {
    bytes: &'a B,
    collections: HashMap<u64, Collection>,
    /// The limit for collections.
    to_index: Allowance,
    /// The limit for objects.
    to_read: Allowance,
}

/// Address and length of each object of a collection.
type Collection = HashMap<u32, (u64, u64)>;

impl<'a, B: HeaderBytes + ?Sized> GlobalHeaps<'a, B> {
    /// Starts without collections.
    pub fn new(bytes: &'a B) -> Self {
        GlobalHeaps {
            bytes,
            collections: HashMap::new(),
            to_index: Allowance::of(bytes),
            to_read: Allowance::of(bytes),
        }
    }

    /// The object with the number `index` in the collection at `address`.
    pub fn object(&mut self, address: u64, index: u32) -> Result<Vec<u8>> {
        if !self.collections.contains_key(&address) {
            let collection = self.collection(address)?;
            self.collections.insert(address, collection);
        }
        let found = self
            .collections
            .get(&address)
            .and_then(|all| all.get(&index));
        let (at, len) = *found.ok_or_else(|| {
            format!("no object {index} in the global heap collection at {address}")
        })?;
        self.to_read.take(len)?;
        read_vec(self.bytes, at, len)
    }

    fn collection(&mut self, address: u64) -> Result<Collection> {
        let header = read_vec(self.bytes, address, HEADER)?;
        let size = size(&header).filter(|size| *size >= HEADER);
        let end = size.and_then(|size| address.checked_add(size));
        let end = end.filter(|end| *end <= self.bytes.size());
        let end = end.ok_or_else(|| format!("no global heap collection at {address}"))?;
        self.to_index.take(end - address)?;
        let mut found = Collection::new();
        let mut at = address + HEADER;
        // A rest shorter than a header is free.
        while end - at >= HEADER {
            let header = read_vec(self.bytes, at, HEADER)?;
            let (index, len) = object(&header).ok_or("a short object")?;
            // The size of free space includes its header.
            let taken = match index {
                0 => Some(len.max(HEADER)),
                _ => len
                    .checked_next_multiple_of(8)
                    .and_then(|len| len.checked_add(HEADER)),
            };
            let next = taken.and_then(|taken| at.checked_add(taken));
            let next = next.filter(|next| *next <= end).ok_or_else(|| {
                format!(
                    "an object of {len} bytes at {at} that its global heap collection does not hold"
                )
            })?;
            if index != 0 {
                found.insert(index.into(), (at + HEADER, len));
            }
            at = next;
        }
        Ok(found)
    }
}

/// The size of a collection, from its header.
fn size(header: &[u8]) -> Option<u64> {
    let mut fields = Fields(header);
    fields.expect(b"GCOL\x01")?;
    fields.skip(3)?;
    fields.u64()
}

/// Number and length of an object, from its header.
fn object(header: &[u8]) -> Option<(u16, u64)> {
    let mut fields = Fields(header);
    let index = fields.u16()?;
    fields.skip(6)?;
    Some((index, fields.u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(index: u16, len: u64, data: &[u8]) -> Vec<u8> {
        [
            &index.to_le_bytes(),
            &[1, 0, 0, 0, 0, 0][..],
            &len.to_le_bytes(),
            data,
        ]
        .concat()
    }

    fn collection(objects: &[Vec<u8>]) -> Vec<u8> {
        let objects = objects.concat();
        let size = HEADER + objects.len() as u64;
        [b"GCOL\x01\0\0\0", &size.to_le_bytes()[..], &objects].concat()
    }

    #[test]
    fn objects_are_found_by_their_numbers() {
        let free = object(0, 24, &[0; 8]);
        let objects = [
            object(2, 3, b"abc\0\0\0\0\0"),
            free,
            object(1, 8, b"12345678"),
            vec![0; 8],
        ];
        let bytes = collection(&objects);
        let mut heaps = GlobalHeaps::new(&bytes);
        assert_eq!(heaps.object(0, 2), Ok(b"abc".to_vec()));
        assert_eq!(heaps.object(0, 1), Ok(b"12345678".to_vec()));
        assert!(heaps.object(0, 0).is_err());
        assert!(heaps.object(0, 3).is_err());
        assert!(heaps.object(8, 1).is_err());
        let again = (0..1000).map(|_| heaps.object(0, 1)).filter(Result::is_err);
        assert!(
            again.count() > 900,
            "the same bytes may not be read again and again"
        );
    }

    #[test]
    fn objects_lie_in_their_collection() {
        for objects in [
            object(1, 9, b"12345678"),
            object(1, u64::MAX, b""),
            object(0, 33, &[0; 8]),
        ] {
            let bytes = collection(&[objects]);
            assert!(GlobalHeaps::new(&bytes).object(0, 1).is_err());
        }
        let bytes = collection(&[object(1, 8, b"12345678")]);
        assert!(
            GlobalHeaps::new(&bytes[..bytes.len() - 1])
                .object(0, 1)
                .is_err()
        );
    }
}
