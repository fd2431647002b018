//! Conversions from the elements of a log to those of a dataset.

use serde::{Deserialize, Serialize};

use super::numbers::NumberConversion;

/// The conversion of each element of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Conversion {
    /// Numbers of one type to numbers of another.
    Numbers(NumberConversion),
    /// Removes the padding that a compiler has put after the value of an element.
    Padding(Padding),
    /// The same value for each element. The record stores none.
    Constant(Constant),
}

/// An element of 1 to 8 bytes, in the byte order of the dataset. Built by [`Constant::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Constant {
    size: u8,
    bytes: [u8; 8],
}

impl Constant {
    /// `None` for an element of no bytes, or of more than 8.
    pub fn new(element: &[u8]) -> Option<Self> {
        let mut bytes = [0; 8];
        bytes.get_mut(..element.len())?.copy_from_slice(element);
        let constant = Constant {
            size: element.len() as u8,
            bytes,
        };
        constant.is_sound().then_some(constant)
    }

    fn is_sound(&self) -> bool {
        (1..=8).contains(&self.size)
    }

    /// The bytes of the element.
    pub fn element(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }

    /// Fills memory with whole elements.
    pub fn fill(&self, to: &mut [u8]) {
        let element = self.element();
        if element.iter().all(|byte| *byte == element[0]) {
            return to.fill(element[0]);
        }
        for to in to.chunks_exact_mut(element.len()) {
            to.copy_from_slice(element);
        }
    }
}

/// Elements with bytes after their values, all sizes in bytes. Built by [`Padding::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Padding {
    stored: u32,
    value: u32,
    shown: u32,
}

impl Padding {
    /// `stored` bytes of an element in the log, of which the first `value` bytes count. An element of the dataset has
    /// `shown` bytes: the value, and zeros. `None` where the value does not fit into both.
    pub fn new(stored: u32, value: u32, shown: u32) -> Option<Self> {
        let padding = Padding {
            stored,
            value,
            shown,
        };
        padding.is_sound().then_some(padding)
    }

    fn is_sound(&self) -> bool {
        0 < self.value && self.value <= self.stored && self.value <= self.shown
    }

    fn convert(&self, from: &[u8], to: &mut [u8]) {
        let value = self.value as usize;
        let from = from.chunks_exact(self.stored as usize);
        for (from, to) in from.zip(to.chunks_exact_mut(self.shown as usize)) {
            to[..value].copy_from_slice(&from[..value]);
            to[value..].fill(0);
        }
    }
}

impl From<NumberConversion> for Conversion {
    fn from(numbers: NumberConversion) -> Self {
        Conversion::Numbers(numbers)
    }
}

impl From<Padding> for Conversion {
    fn from(padding: Padding) -> Self {
        Conversion::Padding(padding)
    }
}

impl From<Constant> for Conversion {
    fn from(constant: Constant) -> Self {
        Conversion::Constant(constant)
    }
}

impl Conversion {
    /// The value of each element, if all have the same.
    pub fn constant(&self) -> Option<&Constant> {
        match self {
            Conversion::Constant(constant) => Some(constant),
            _ => None,
        }
    }

    /// Bytes of an element in the log; 0 for [`Conversion::Constant`].
    pub fn stored_size(&self) -> usize {
        match self {
            Conversion::Numbers(numbers) => numbers.from.kind.size(),
            Conversion::Padding(padding) => padding.stored as usize,
            Conversion::Constant(_) => 0,
        }
    }

    /// Bytes of an element of the dataset.
    pub fn shown_size(&self) -> usize {
        match self {
            Conversion::Numbers(numbers) => numbers.to.kind.size(),
            Conversion::Padding(padding) => padding.shown as usize,
            Conversion::Constant(constant) => usize::from(constant.size),
        }
    }

    /// Whether the sizes are consistent. A conversion may come from a file.
    pub fn is_sound(&self) -> bool {
        match self {
            Conversion::Numbers(_) => true,
            Conversion::Padding(padding) => padding.is_sound(),
            Conversion::Constant(constant) => constant.is_sound(),
        }
    }

    /// Converts all elements of `from`. Both slices hold the same number of them, but `from` is empty for a constant.
    pub fn convert(&self, from: &[u8], to: &mut [u8]) {
        match self {
            Conversion::Numbers(numbers) => numbers.convert(from, to),
            Conversion::Padding(padding) => padding.convert(from, to),
            Conversion::Constant(constant) => constant.fill(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_no_part_of_a_value() {
        let converted = |padding: Option<Padding>, len: usize| {
            let mut out = vec![9; len];
            Conversion::from(padding.unwrap()).convert(b"ab..cd..", &mut out);
            out
        };
        assert_eq!(converted(Padding::new(4, 2, 2), 4), b"abcd");
        assert_eq!(converted(Padding::new(4, 2, 4), 8), b"ab\0\0cd\0\0");
        for (stored, value, shown) in [(4, 0, 4), (4, 5, 5), (4, 3, 2)] {
            assert_eq!(Padding::new(stored, value, shown), None);
        }
    }
    #[test]
    fn a_constant_fills_all_elements() {
        let filled = |element: &[u8], len: usize| {
            let mut out = vec![9; len];
            Conversion::from(Constant::new(element).unwrap()).convert(&[], &mut out);
            out
        };
        assert_eq!(filled(b"ab", 6), b"ababab");
        assert_eq!(filled(&[0; 4], 8), [0; 8]);
        assert_eq!((Constant::new(b""), Constant::new(&[1; 9])), (None, None));
    }
}
