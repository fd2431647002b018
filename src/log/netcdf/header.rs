//! The header of a netCDF classic file (section 7).

use crate::log::numbers::Kind;

/// What the header says. Names are as they lie in the file: UTF-8, as a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// 1, 2 or 5.
    pub version: u8,
    /// Number of records; `None` where the file was written as a stream, and its length says it.
    pub records: Option<u64>,
    pub dimensions: Vec<Dimension>,
    pub attributes: Vec<Attribute>,
    pub variables: Vec<Variable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    pub name: Vec<u8>,
    /// 0 is the record dimension.
    pub len: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    pub name: Vec<u8>,
    pub kind: Type,
    /// Number of values.
    pub len: u64,
    /// In big endian, without padding.
    pub values: Vec<u8>,
}

/// An external type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Char,
    Number(Kind),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub name: Vec<u8>,
    /// Numbers of its dimensions.
    pub dimensions: Vec<usize>,
    pub attributes: Vec<Attribute>,
    pub kind: Type,
    /// Where its data begin in the file.
    pub begin: u64,
}
