//! Small arrays of a step: lengths, ranks of groups, numbers of frames.

use crate::Result;
use crate::model::{Block, Place, Type, Variable};
use crate::numbers::Numbers;
use crate::operator;

/// The most bytes of one list. It bounds the memory, whatever the metadata say.
const MOST_BYTES: u64 = 64 << 20;

/// Reads the stored bytes of blocks.
pub struct Values<'a> {
    /// Reads the stored bytes at a place. Fails where they are not there.
    pub read: &'a dyn Fn(&Place, &mut [u8]) -> Result<()>,
    /// Byte order of all numbers.
    pub is_big_endian: bool,
}

impl Values<'_> {
    /// The first `len` bytes of a block, of `whole` bytes of elements. Blocks of an operator are decoded whole.
    pub fn bytes_of(&self, block: &Block, len: u64, whole: u64) -> Result<Vec<u8>> {
        let needed = if block.has_operator {
            whole.saturating_add(block.place.len)
        } else {
            len
        };
        if needed > MOST_BYTES {
            return Err(format!("{needed} bytes are more than the {MOST_BYTES} of a list").into());
        }
        if !block.has_operator {
            if len > block.place.len {
                return Err(format!("a block of {} bytes, not {len}", block.place.len).into());
            }
            let mut bytes = vec![0; usize::try_from(len)?];
            let place = Place { len, ..block.place };
            (self.read)(&place, &mut bytes)?;
            return Ok(bytes);
        }
        let mut bytes = self.decoded(block, whole)?;
        bytes.truncate(usize::try_from(len)?);
        Ok(bytes)
    }

    /// The elements of a block of an operator, of `whole` bytes.
    pub fn decoded(&self, block: &Block, whole: u64) -> Result<Vec<u8>> {
        let len = usize::try_from(block.place.len)?;
        let words = len.next_multiple_of(operator::WORD) + operator::WORD;
        let mut stored = vec![0; words];
        (self.read)(&block.place, &mut stored[..len])?;
        let mut bytes = vec![0; usize::try_from(whole)?];
        operator::decode(&stored, &mut bytes)?;
        Ok(bytes)
    }

    /// The elements of all blocks of a variable, one block after the other.
    pub fn elements(&self, variable: &Variable) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        let mut left = MOST_BYTES;
        for number in 0..variable.blocks.len() {
            let bytes = bytes_of(variable, number).ok_or("a block past 2^64 bytes")?;
            left = left.checked_sub(bytes).ok_or("a list that is too long")?;
            all.push(self.bytes_of(&variable.blocks[number], bytes, bytes)?);
        }
        Ok(all)
    }

    /// The integers of all blocks of a variable, in a list for each block. Fails for other types.
    pub fn numbers(&self, variable: &Variable) -> Result<Vec<Vec<i64>>> {
        let blocks = self.elements(variable)?;
        let numbers = blocks
            .iter()
            .map(|bytes| numbers_of(&variable.ty, bytes, self.is_big_endian));
        numbers.collect()
    }

    /// The only integer of a variable.
    pub fn number(&self, variable: &Variable) -> Result<i64> {
        let numbers = self.numbers(variable)?;
        Ok(*numbers
            .iter()
            .flatten()
            .next_back()
            .ok_or("a value without a number")?)
    }
}

/// Bytes of the elements of a block; `None` where they overflow.
fn bytes_of(variable: &Variable, number: usize) -> Option<u64> {
    let mut sides = variable.count(number).iter();
    let elements = sides.try_fold(1u64, |all: u64, side| all.checked_mul(*side));
    elements?.checked_mul(variable.ty.size())
}

/// Integers of a type. Fails where the type is none, or one does not fit into 63 bits.
pub fn numbers_of(ty: &Type, bytes: &[u8], is_big_endian: bool) -> Result<Vec<i64>> {
    let size = ty.size() as usize;
    let is_signed = matches!(
        ty,
        Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::Char
    );
    let is_unsigned = matches!(ty, Type::U8 | Type::U16 | Type::U32 | Type::U64);
    if !(is_signed || is_unsigned) || !bytes.len().is_multiple_of(size) {
        return Err("a list that is not of integers".into());
    }
    let numbers = Numbers {
        bytes,
        is_big_endian,
    };
    if size == 8 && is_signed {
        return Ok(numbers.u64s().map(|number| number as i64).collect());
    }
    let unused = 64 - 8 * size as u32;
    let number = |at: usize| -> Result<i64> {
        let number = numbers.unsigned(at as u64, size as u8)?;
        if is_signed {
            return Ok((number << unused) as i64 >> unused);
        }
        Ok(i64::try_from(number)?)
    };
    (0..bytes.len()).step_by(size).map(number).collect()
}
