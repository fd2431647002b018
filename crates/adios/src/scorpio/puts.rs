//! What one process has written (section 5): start, count and elements.

use super::values::{Values, numbers_of};
use crate::Result;
use crate::model::{Block, Type};

/// A side of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// Length of the dimension; for an unlimited one that of today.
    pub len: u64,
    /// The dimension is unlimited.
    pub is_unlimited: bool,
}

/// A put of at least one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// First index along each dimension.
    pub start: Vec<u64>,
    /// Number of elements along each dimension.
    pub count: Vec<u64>,
    /// The program wrote this many records, and the file has the first one only.
    pub lost_records: u64,
}

/// The reason why the elements of a put cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutError {
    /// The reason.
    pub reason: String,
    /// Start and count of the elements that cannot be had, as far as they are known.
    pub place: Option<(Vec<u64>, Vec<u64>)>,
}

impl PutError {
    fn somewhere(reason: impl Into<String>) -> Self {
        PutError {
            reason: reason.into(),
            place: None,
        }
    }
}

impl Put {
    /// Number of records, including those that the file has not.
    pub fn records(&self) -> u64 {
        let own = self.count.first().copied().unwrap_or(0);
        own.max(self.lost_records)
    }

    /// Bytes before the elements, for a variable of `rank` dimensions.
    pub fn head(rank: usize) -> u64 {
        16 * rank as u64
    }

    /// Reads a put from its head. `stored` is the number of bytes of its elements, each of `size` bytes. `None`: the put
    /// wrote nothing.
    pub fn read(
        head: &[u8],
        is_big_endian: bool,
        sides: &[Side],
        stored: u64,
        size: u64,
    ) -> std::result::Result<Option<Self>, PutError> {
        let numbers = head_numbers(head, is_big_endian, sides.len());
        let numbers = numbers.map_err(|fault| PutError::somewhere(fault.to_string()))?;
        let (starts, counts) = numbers.split_at(sides.len());
        let is_whole = counts.first() == Some(&-1);
        let has_no_start = starts.first() == Some(&-1);
        let mut put = Put {
            start: Vec::new(),
            count: Vec::new(),
            lost_records: 0,
        };
        for (d, side) in sides.iter().enumerate() {
            let start = if has_no_start { 0 } else { starts[d] };
            let count = match (is_whole, side.is_unlimited) {
                (true, true) => 1,
                (true, false) => side.len as i64,
                (false, _) => counts[d],
            };
            let (Ok(start), Ok(count)) = (u64::try_from(start), u64::try_from(count)) else {
                return Err(PutError::somewhere(
                    "is damaged: a start or a count is negative",
                ));
            };
            put.start.push(start);
            put.count.push(count);
        }
        if put.count.contains(&0) {
            return put.check_empty(sides, stored).map(|()| None);
        }
        put.check_sides(sides)?;
        put.check_elements(sides, stored, size)?;
        Ok(Some(put))
    }

    /// Fails where a put of no elements has some all the same. Of a variable with records a program may write none, and the
    /// elements of one follow.
    fn check_empty(&self, sides: &[Side], stored: u64) -> std::result::Result<(), PutError> {
        let has_records = sides.first().is_some_and(|side| side.is_unlimited);
        let is_no_record = has_records && !self.count[1..].contains(&0);
        if stored == 0 || is_no_record {
            return Ok(());
        }
        let reason = format!(
            "is damaged: {stored} bytes of elements for a count of {:?}",
            self.count
        );
        Err(PutError::somewhere(reason))
    }

    /// Fails where the put reaches beyond a dimension that is not unlimited.
    fn check_sides(&self, sides: &[Side]) -> std::result::Result<(), PutError> {
        for (d, side) in sides.iter().enumerate() {
            let end = self.start[d].checked_add(self.count[d]);
            let end = end.filter(|end| *end <= i64::MAX as u64);
            if end.is_none_or(|end| !side.is_unlimited && end > side.len) {
                return Err(PutError {
                    reason: format!("reaches beyond dimension {d}"),
                    place: self.inside(sides),
                });
            }
        }
        Ok(())
    }

    /// The part of the put that lies in the variable.
    fn inside(&self, sides: &[Side]) -> Option<(Vec<u64>, Vec<u64>)> {
        let mut count = Vec::new();
        for (d, side) in sides.iter().enumerate() {
            let own = side.len.checked_sub(self.start[d])?.min(self.count[d]);
            count.push(own);
        }
        (!count.contains(&0)).then(|| (self.start.clone(), count))
    }

    /// Compares the number of elements with that of the bytes. Of several records the first one is in the file.
    fn check_elements(
        &mut self,
        sides: &[Side],
        stored: u64,
        size: u64,
    ) -> std::result::Result<(), PutError> {
        let has_records = sides.first().is_some_and(|side| side.is_unlimited);
        let bytes_of = |count: &[u64]| {
            let mut sides = count.iter();
            sides.try_fold(size, |all: u64, side| all.checked_mul(*side))
        };
        if bytes_of(&self.count) == Some(stored) {
            return Ok(());
        }
        if has_records && bytes_of(&self.count[1..]) == Some(stored) {
            self.lost_records = self.count[0];
            self.count[0] = 1;
            return Ok(());
        }
        let mut of_one = self.count[usize::from(has_records)..].iter();
        let elements = of_one.try_fold(1u64, |all: u64, side| all.checked_mul(*side));
        let own = elements.and_then(|elements| {
            stored
                .checked_div(elements)
                .filter(|own| own * elements == stored)
        });
        let reason = match own {
            Some(own @ (1 | 2 | 4 | 8)) => format!("has elements of {own} bytes, not of {size}"),
            _ => format!("is damaged: {stored} bytes do not hold its elements of {size} bytes"),
        };
        Err(PutError {
            reason,
            place: Some((self.start.clone(), self.count.clone())),
        })
    }
}

fn head_numbers(head: &[u8], is_big_endian: bool, rank: usize) -> Result<Vec<i64>> {
    if head.len() as u64 != Put::head(rank) {
        return Err("is damaged: it ends in its head".into());
    }
    numbers_of(&Type::I64, head, is_big_endian)
}

impl Values<'_> {
    /// The put in a block of `len` bytes, for elements of `size` bytes. The outer error says that the bytes cannot be read.
    #[allow(clippy::type_complexity)]
    pub fn put(
        &self,
        block: &Block,
        len: u64,
        sides: &[Side],
        size: u64,
    ) -> Result<std::result::Result<Option<Put>, PutError>> {
        let head = Put::head(sides.len());
        let Some(elements) = len.checked_sub(head) else {
            let reason = format!("is damaged: {len} bytes, and {head} before its elements");
            return Ok(Err(PutError::somewhere(reason)));
        };
        let bytes = match self.bytes_of(block, head, len) {
            Ok(bytes) => bytes,
            Err(fault) => return Ok(Err(PutError::somewhere(fault.into_damage()?))),
        };
        Ok(Put::read(&bytes, self.is_big_endian, sides, elements, size))
    }
}
