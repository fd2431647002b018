//! The header of a netCDF classic file (section 7).

mod parse;
#[cfg(test)]
mod tests;

use crate::numbers::NumberType;
use crate::source_file::SourceFile;
use h5logfs_common::error::Result;

/// The content of the header. Names are the bytes of the file, usually UTF-8.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// 1, 2 or 5.
    pub version: u8,
    /// Number of records; `None` for a file written as a stream, whose length determines it.
    pub records: Option<u64>,
    /// Dimensions in the order of their numbers.
    pub dimensions: Vec<Dimension>,
    /// Global attributes.
    pub attributes: Vec<Attribute>,
    /// Variables in the order of their numbers.
    pub variables: Vec<Variable>,
}

/// A dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    /// Name of the dimension.
    pub name: Vec<u8>,
    /// Length; 0 for the record dimension.
    pub len: u64,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Name of the attribute.
    pub name: Vec<u8>,
    /// Type of its values.
    pub kind: Type,
    /// Number of values.
    pub len: u64,
    /// Big-endian values without padding.
    pub values: Vec<u8>,
}

/// An external type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Text.
    Char,
    /// Big-endian numbers.
    Number(NumberType),
}

/// A variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Name of the variable.
    pub name: Vec<u8>,
    /// Numbers of its dimensions.
    pub dimensions: Vec<usize>,
    /// Attributes of the variable.
    pub attributes: Vec<Attribute>,
    /// Type of its values.
    pub kind: Type,
    /// Offset of the data in the file.
    pub begin: u64,
}

impl Type {
    /// The type as a number; text becomes unsigned bytes.
    pub fn number(self) -> NumberType {
        match self {
            Type::Char => NumberType::U8,
            Type::Number(kind) => kind,
        }
    }

    /// Bytes of one value.
    pub fn size(self) -> usize {
        self.number().size()
    }

    /// The default fill value, little-endian, in the first bytes.
    fn default_fill(self) -> [u8; 8] {
        match self {
            Type::Char => [0; 8],
            Type::Number(kind) => kind.default_fill(),
        }
    }
}

impl Attribute {
    /// The values in little-endian.
    pub fn little_endian(&self) -> Vec<u8> {
        let mut values = self.values.clone();
        for value in values.chunks_exact_mut(self.kind.size()) {
            value.reverse();
        }
        values
    }
}

impl Header {
    /// Reads the header of a file. Fails if the file cannot be read, or if the header is truncated or invalid; the
    /// error names the byte. A header that was read has at most 32 dimensions for each variable, and fewer than 2^63
    /// bytes for each variable and for one record of all variables.
    pub fn read(file: &SourceFile) -> Result<Self> {
        parse::header(file)
    }

    /// Whether the first dimension of a variable is the record dimension.
    pub fn is_record(&self, variable: &Variable) -> bool {
        let first = variable.dimensions.first();
        first.is_some_and(|d| self.len_of(*d) == 0)
    }

    /// Extent of a variable; 0 along the record dimension.
    pub fn dims(&self, variable: &Variable) -> Vec<u64> {
        let dims = variable.dimensions.iter();
        dims.map(|d| self.len_of(*d)).collect()
    }

    fn len_of(&self, dimension: usize) -> u64 {
        self.dimensions.get(dimension).map_or(0, |d| d.len)
    }

    /// Bytes of one record of a variable without padding, or of the whole variable if it has no records.
    pub fn bytes(&self, variable: &Variable) -> u64 {
        let fixed = &variable.dimensions[usize::from(self.is_record(variable))..];
        let element = variable.kind.size() as u64;
        let lens = fixed.iter().map(|d| self.len_of(*d));
        lens.fold(element, u64::saturating_mul)
    }

    fn record_variables(&self) -> impl Iterator<Item = &Variable> {
        self.variables.iter().filter(|v| self.is_record(v))
    }

    /// Bytes from one record of all record variables to the next. Each variable is padded to a multiple of 4, unless
    /// there is only one.
    pub fn record_size(&self) -> u64 {
        let mut all = self.record_variables();
        let (first, second) = (all.next(), all.next());
        if let (Some(alone), None) = (first, second) {
            return self.bytes(alone);
        }
        let padded = |v| self.bytes(v).div_ceil(4).saturating_mul(4);
        let sizes = self.record_variables().map(padded);
        sizes.fold(0, u64::saturating_add)
    }

    /// The number of records in a file of `len` bytes. The number in the header may be stale.
    pub fn records_in(&self, len: u64) -> u64 {
        let begin = self.record_variables().map(|v| v.begin).min();
        let behind = begin.map_or(0, |begin| len.saturating_sub(begin));
        let streamed = || behind.checked_div(self.record_size()).unwrap_or(0);
        self.records.unwrap_or_else(streamed)
    }

    /// The fill value of a variable, little-endian, in the first bytes: its attribute `_FillValue` if that is a
    /// single value of the variable's type, else the default of the type.
    pub fn fill_of(&self, variable: &Variable) -> [u8; 8] {
        let own = variable.attributes.iter();
        let mut own = own.filter(|a| a.name == b"_FillValue" && a.kind == variable.kind);
        match own.next() {
            Some(own) if own.len == 1 && own.values.len() <= 8 => {
                let mut fill = [0; 8];
                let value = own.little_endian();
                fill[..value.len()].copy_from_slice(&value);
                fill
            }
            _ => variable.kind.default_fill(),
        }
    }

    /// The variables as [`super::Tables`] describes them.
    pub fn described(&self) -> Vec<super::Variable> {
        let describe = |variable: &Variable| super::Variable {
            kind: variable.kind.number(),
            is_text: variable.kind == Type::Char,
            is_record: self.is_record(variable),
            dims: self.dims(variable),
            begin: variable.begin,
            fill: self.fill_of(variable),
        };
        self.variables.iter().map(describe).collect()
    }
}
