//! Consecutive fields of a byte sequence.

use crate::Result;
use crate::numbers::Numbers;

/// Numbers and texts in sequence. A sequence that ends early is damage.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    all: Numbers<'a>,
    /// Number of bytes taken.
    at: usize,
}

impl<'a> Fields<'a> {
    /// All of `bytes`.
    pub fn new(bytes: &'a [u8], is_big_endian: bool) -> Self {
        let all = Numbers {
            bytes,
            is_big_endian,
        };
        Fields { all, at: 0 }
    }

    /// Number of bytes taken.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes not taken yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.all.bytes[self.at..]
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.all.bytes(self.at as u64, len as u64)?;
        self.at += len;
        Ok(taken)
    }

    /// The next `len` bytes as separate fields. They keep their place in the whole.
    pub fn part(&mut self, len: u64) -> Result<Fields<'a>> {
        let from = self.at;
        self.take(usize::try_from(len)?)?;
        let all = self.all.part(0, self.at as u64)?;
        Ok(Fields { all, at: from })
    }

    /// A number of one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.number(1)? as u8)
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Result<u64> {
        self.number(8)
    }

    /// A text after its length, a number of two bytes.
    pub fn text(&mut self) -> Result<&'a str> {
        let len = self.u16()?;
        let bytes = self.take(usize::from(len))?;
        std::str::from_utf8(bytes).map_err(|_| "a text that is not UTF-8".into())
    }

    fn number(&mut self, size: u8) -> Result<u64> {
        let number = self.all.unsigned(self.at as u64, size)?;
        self.at += usize::from(size);
        Ok(number)
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
