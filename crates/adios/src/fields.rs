//! Takes bytes apart.

use crate::Result;

/// Numbers and texts, one after the other, in one byte order. What ends before them is damage.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    /// How many were taken.
    at: usize,
    is_big_endian: bool,
}

impl<'a> Fields<'a> {
    /// All of `bytes`.
    pub fn new(bytes: &'a [u8], is_big_endian: bool) -> Self {
        Fields {
            bytes,
            at: 0,
            is_big_endian,
        }
    }

    /// How many bytes were taken.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes that were not taken yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.rest().get(..len).ok_or_else(|| {
            let left = self.rest().len();
            format!("{len} bytes are expected where {left} are left")
        })?;
        self.at += len;
        Ok(taken)
    }

    /// The next `len` bytes as fields of their own, whose place in the whole is kept.
    pub fn part(&mut self, len: u64) -> Result<Fields<'a>> {
        let from = self.at;
        self.take(usize::try_from(len)?)?;
        Ok(Fields {
            bytes: &self.bytes[..self.at],
            at: from,
            is_big_endian: self.is_big_endian,
        })
    }

    /// A number of one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A text with its length, a number of two bytes, in front of it.
    pub fn text(&mut self) -> Result<&'a str> {
        let len = self.u16()?;
        let bytes = self.take(usize::from(len))?;
        std::str::from_utf8(bytes).map_err(|_| "a text that is not UTF-8".into())
    }

    /// The next bytes, those of least value first.
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        if self.is_big_endian {
            array.reverse();
        }
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_order_of_the_directory() {
        let bytes = [1, 0, 2, 0, 1, b'x'];
        let mut little = Fields::new(&bytes, false);
        assert_eq!((little.u8(), little.u16()), (Ok(1), Ok(0x200)));
        let mut big = Fields::new(&bytes, true);
        big.u8().unwrap();
        let mut part = big.part(2).unwrap();
        assert_eq!((part.at(), part.u16()), (1, Ok(2)));
        assert!(part.u8().is_err());
        let mut text = Fields::new(&bytes[3..], true);
        assert_eq!(text.text(), Ok("x"));
        assert!(text.is_empty());
    }
}
