//! The header of a member, whatever its format: dimensions, attributes and variables of netCDF's data model.

use super::FileKind;
use crate::netcdf::header::Type;
use crate::numbers::NumberType;

/// The header of a member. Names are the bytes of the file, usually UTF-8.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberHeader {
    /// The kind of file.
    pub kind: FileKind,
    /// The file has nothing that netCDF's classic model lacks, and says so.
    pub is_classic: bool,
    /// Dimensions in the order of their numbers.
    pub dimensions: Vec<Dimension>,
    /// Global attributes, in their order.
    pub attributes: Vec<Attribute>,
    /// Variables, in their order.
    pub variables: Vec<Variable>,
    /// How far the data of a classic file reach.
    pub reach: Option<Reach>,
}

/// A dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    /// Its name.
    pub name: Vec<u8>,
    /// Its length; of an unlimited dimension that of today.
    pub len: u64,
    /// Its length may grow.
    pub is_unlimited: bool,
}

/// A variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: Vec<u8>,
    /// The type of its elements.
    pub kind: Type,
    /// The byte order of its elements.
    pub is_big_endian: bool,
    /// The numbers of its dimensions, slowest first.
    pub dimensions: Vec<usize>,
    /// Its attributes, in their order.
    pub attributes: Vec<Attribute>,
    /// Its place, as in [`Form`](super::Form).
    pub place: u64,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text of netCDF's type char.
    Text(Vec<u8>),
    /// Numbers, little-endian.
    Numbers(NumberType, Vec<u8>),
    /// Texts of netCDF-4's type string.
    Texts(Vec<Vec<u8>>),
    /// Values of a type that is not shown, with the name of the type.
    Other(String),
}

/// The bytes behind the last elements of a classic file, as its header asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The records of which the file has bytes. Its header may claim any number.
    pub records: u64,
    /// The byte behind all elements.
    pub all: u64,
    /// The byte behind all elements but those of the last record.
    pub before_last_record: u64,
}

impl Attribute {
    /// Its values, if it has integers that fit.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let Value::Numbers(kind, bytes) = &self.value else {
            return None;
        };
        let is_signed = match kind {
            NumberType::I8 | NumberType::I16 | NumberType::I32 | NumberType::I64 => true,
            NumberType::U8 | NumberType::U16 | NumberType::U32 | NumberType::U64 => false,
            NumberType::F32 | NumberType::F64 => return None,
        };
        let number = |bytes: &[u8]| {
            let is_negative = is_signed && bytes.last().is_some_and(|last| last & 0x80 != 0);
            let mut whole = [if is_negative { 0xff } else { 0 }; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            let number = i64::from_le_bytes(whole);
            (is_signed || number >= 0).then_some(number)
        };
        bytes.chunks_exact(kind.size()).map(number).collect()
    }

    /// Its text, if it has one.
    pub fn text(&self) -> Option<&[u8]> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Texts(texts) => match texts.as_slice() {
                [text] => Some(text),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The attribute called `name`.
pub fn attribute<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    attributes.iter().find(|a| a.name == name.as_bytes())
}

impl MemberHeader {
    /// The coordinate variables, with their dimensions. They have one dimension, and its name.
    pub(super) fn coordinates(&self) -> impl Iterator<Item = (&Dimension, &Variable)> {
        self.variables
            .iter()
            .filter_map(|variable| match *variable.dimensions.as_slice() {
                [only] => Some((&self.dimensions[only], variable)),
                _ => None,
            })
            .filter(|(dimension, variable)| dimension.name == variable.name)
    }
}

/// The name of a type in netCDF's words.
pub fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Char => "char",
        Type::Number(number) => match number {
            NumberType::I8 => "byte",
            NumberType::U8 => "ubyte",
            NumberType::I16 => "short",
            NumberType::U16 => "ushort",
            NumberType::I32 => "int",
            NumberType::U32 => "uint",
            NumberType::I64 => "int64",
            NumberType::U64 => "uint64",
            NumberType::F32 => "float",
            NumberType::F64 => "double",
        },
    }
}

/// A name as text for messages.
pub fn lossy(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}
