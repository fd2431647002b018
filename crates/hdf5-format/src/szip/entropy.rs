//! Decodes adaptive entropy coding (CCSDS 121.0-B-3): a bit stream of numbers.
//!
//! Numbers are coded in blocks. A fixed number of blocks makes an interval. If differences are coded, an interval
//! begins with its reference, an uncoded number. Each block states its coding.

use h5logfs_common::buffers::{make_room, with_room};

use crate::Result;

/// The parameters of the coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entropy {
    /// Bits of a number, from 1 to 32.
    pub bits: u32,
    /// Numbers of a block: even, and not 0.
    pub block: usize,
    /// Blocks of an interval; never 0.
    pub interval: usize,
    /// Each number except the reference is coded as the difference from the previous one.
    pub has_differences: bool,
}

impl Entropy {
    /// Decodes `count` numbers of the stream. Calls `see` with one interval at a time.
    pub fn decode(
        self,
        stream: &[u8],
        mut count: usize,
        mut see: impl FnMut(&[u32]),
    ) -> Result<()> {
        let mut bits = Bits::new(stream);
        let mut numbers = with_room(self.block * self.interval)?;
        while count > 0 {
            let here = count.min(self.block * self.interval);
            numbers.clear();
            while numbers.len() < here {
                self.block(&mut bits, &mut numbers)?;
            }
            numbers.truncate(here);
            if self.has_differences {
                self.sum_up(&mut numbers);
            }
            see(&numbers);
            count -= here;
        }
        Ok(())
    }

    /// Decodes the next block of an interval, or several blocks of zeros.
    fn block(self, bits: &mut Bits<'_>, numbers: &mut Vec<u32>) -> Result<()> {
        // The number of bits that state the coding of a block.
        let width = match self.bits {
            ..=8 => 3,
            9..=16 => 4,
            _ => 5,
        };
        let as_it_is = (1 << width) - 1;
        let has_reference = self.has_differences && numbers.is_empty();
        let way = bits.take(width)?;
        let has_pairs = way == 0 && bits.take(1)? == 1;
        if has_reference && way != as_it_is {
            numbers.push(bits.take(self.bits)?);
        }
        let more = self.block - usize::from(has_reference);
        match way {
            0 if has_pairs => self.pairs(bits, numbers, has_reference),
            0 => self.zeros(bits, numbers),
            way if way == as_it_is => {
                for _ in 0..self.block {
                    numbers.push(bits.take(self.bits)?);
                }
                Ok(())
            }
            way => {
                let low = way - 1;
                let start = numbers.len();
                for _ in 0..more {
                    numbers.push(bits.zeros()?.wrapping_shl(low));
                }
                for number in &mut numbers[start..] {
                    *number |= bits.take(low)?;
                }
                Ok(())
            }
        }
    }

    /// Decodes a block of pairs of small numbers. A reference replaces the first number of the first pair, which is
    /// coded as zero.
    fn pairs(self, bits: &mut Bits<'_>, numbers: &mut Vec<u32>, has_reference: bool) -> Result<()> {
        /// The largest sum of a pair.
        const MOST: u32 = 12;
        for pair in 0..self.block / 2 {
            let code = bits.zeros()?;
            // Pairs are numbered in the order of their sums. In front of the pairs with sum `sum` there are 0 + 1 + … +
            // `sum` others.
            let sum = (0..=MOST).rfind(|sum| sum * (sum + 1) / 2 <= code);
            let sum = sum.filter(|sum| code - sum * (sum + 1) / 2 <= *sum);
            let sum = sum.ok_or("a stream of szip with a pair that is too large")?;
            let second = code - sum * (sum + 1) / 2;
            if pair > 0 || !has_reference {
                numbers.push(sum - second);
            }
            numbers.push(second);
        }
        Ok(())
    }

    /// Decodes blocks of zeros.
    fn zeros(self, bits: &mut Bits<'_>, numbers: &mut Vec<u32>) -> Result<()> {
        /// The code for all blocks up to the end of the segment. Codes above it stand for one block less than their
        /// value.
        const REST: usize = 5;
        /// Blocks of a segment.
        const SEGMENT: usize = 64;
        let before = numbers.len() / self.block;
        let left = self.interval - before;
        let count = match bits.zeros()? as usize + 1 {
            REST => left.min(SEGMENT - before % SEGMENT),
            count if count > REST => count - 1,
            count => count,
        };
        if count > left {
            return Err("a stream of szip with too many blocks".into());
        }
        let end = (before + count) * self.block;
        make_room(numbers, end - numbers.len())?;
        numbers.resize(end, 0);
        Ok(())
    }

    /// Turns coded differences into numbers. The first number is not coded. Even codes are differences that are not
    /// negative. Where one direction has no more numbers, all further codes count in the other direction.
    fn sum_up(self, numbers: &mut [u32]) {
        let largest = u32::MAX >> (32 - self.bits);
        let middle = largest / 2 + 1;
        let mut last = 0;
        for (at, number) in numbers.iter_mut().enumerate() {
            let code = *number;
            let ahead = if last & middle == 0 { 0 } else { largest };
            let size = (code >> 1) + (code & 1);
            last = match () {
                () if at == 0 => code,
                () if size > ahead ^ last => ahead ^ code,
                () if code & 1 == 0 => last.wrapping_add(size),
                () => last.wrapping_sub(size),
            } & largest;
            *number = last;
        }
    }
}

/// A bit stream. The highest bit of each byte comes first.
struct Bits<'a> {
    rest: &'a [u8],
    /// The next bits, starting at the highest bit. All other bits are 0.
    word: u64,
    /// The number of bits in `word`.
    left: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Bits {
            rest: bytes,
            word: 0,
            left: 0,
        }
    }

    fn fill(&mut self) {
        while self.left <= u64::BITS - u8::BITS
            && let [byte, rest @ ..] = self.rest
        {
            self.word |= u64::from(*byte) << (u64::BITS - u8::BITS - self.left);
            self.left += u8::BITS;
            self.rest = rest;
        }
    }

    /// The next `count` bits as a number; at most 32 bits.
    fn take(&mut self, count: u32) -> Result<u32> {
        if count == 0 {
            return Ok(0);
        }
        if self.left < count {
            self.fill();
        }
        let left = self.left.checked_sub(count).ok_or(ENDS)?;
        let number = self.word >> (u64::BITS - count);
        self.word <<= count;
        self.left = left;
        Ok(number as u32)
    }

    /// Counts the zeros before the next one, and skips that one.
    fn zeros(&mut self) -> Result<u32> {
        let mut count = 0u32;
        loop {
            if self.left == 0 {
                self.fill();
            }
            let zeros = self.word.leading_zeros();
            if zeros < self.left {
                self.word = self.word << zeros << 1;
                self.left -= zeros + 1;
                return Ok(count.saturating_add(zeros));
            }
            if self.left == 0 {
                return Err(ENDS.into());
            }
            count = count.saturating_add(self.left);
            (self.word, self.left) = (0, 0);
        }
    }
}

const ENDS: &str = "a stream of szip that ends early";
