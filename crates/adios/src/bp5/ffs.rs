//! FFS format representations: how records are laid out in memory (section 3.4).

use std::cell::Cell;
use std::ffi::CStr;

use crate::Result;
use crate::numbers::Numbers;

/// Bytes of the header of a representation.
const HEADER: u64 = 8;

/// Bytes of a description before its fields.
const DESCRIPTION: u64 = 28;

/// Bytes of a field.
const FIELD: u64 = 16;

/// The version of representations and records from writers of BP5.
const VERSION: u64 = 2;

/// The id by which records name their format.
pub(super) type Id = [u8; 12];

/// The structs of a representation: first the struct of records, then the structs that it contains.
#[derive(Debug)]
pub(super) struct Format<'a> {
    structs: Vec<Struct<'a>>,
}

/// A struct of a representation.
#[derive(Debug)]
pub(super) struct Struct<'a> {
    pub name: &'a str,
    pub fields: Vec<Field<'a>>,
    /// Bytes of the struct in memory.
    pub len: u32,
    /// Bytes of a pointer: 4 or 8.
    pub pointer: u8,
}

/// A field of a struct.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub name: &'a str,
    /// The type: `integer`, `float[3]`, `integer[Count]`, `string`, or the name of a struct.
    pub ty: &'a str,
    /// Bytes of one element.
    pub size: u32,
    /// Offset in the struct.
    pub offset: u32,
}

/// The place of an unsigned number or pointer in a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub offset: u32,
    pub size: u8,
}

impl<'a> Format<'a> {
    /// Decodes a representation. Its numbers must have the byte order of the directory.
    pub fn decode(body: &'a [u8], is_big_endian: bool) -> Result<Self> {
        let all = Numbers {
            bytes: body,
            is_big_endian,
        };
        let [order, version, subs] = [2, 3, 4].map(|at| all.unsigned(at, 1));
        let version = version?;
        if version != VERSION {
            return Err(format!("format of version {version}: only {VERSION} can be read").into());
        }
        if (order? == 1) != is_big_endian {
            return Err("format in another byte order than the directory".into());
        }
        let all = all.part(0, split_length(&all, 0, 6)?)?;
        let strings = Cell::new(4 * body.len());
        let mut at = HEADER;
        let mut structs = Vec::new();
        for _ in 0..=subs? {
            let len = split_length(&all, at, at + 24)?;
            structs.push(Struct::decode(all.part(at, len)?, &strings)?);
            at += len;
        }
        Ok(Format { structs })
    }

    /// The struct of records.
    pub fn top(&self) -> &Struct<'a> {
        &self.structs[0]
    }

    /// The contained struct of this name, and its index.
    pub fn sub(&self, name: &str) -> Option<(usize, &Struct<'a>)> {
        let mut subs = self.structs.iter().enumerate().skip(1);
        subs.find(|(_, sub)| sub.name == name)
    }
}

impl<'a> Struct<'a> {
    /// Decodes a description. `strings` is the number of bytes that names may still take: names could overlap.
    fn decode(all: Numbers<'a>, strings: &Cell<usize>) -> Result<Self> {
        let number = |at, size| all.unsigned(at, size);
        let pointer = u8::try_from(number(16, 1)?)?;
        if !matches!(pointer, 4 | 8) {
            return Err(format!("pointers of {pointer} bytes").into());
        }
        let text = |at| text(&all, all.u32(at)?, strings);
        let (fields, begin) = (u64::from(all.u32(8)?), number(17, 1)?.max(DESCRIPTION));
        let table = all.part(begin, FIELD * fields)?;
        let mut decoded = Struct {
            name: text(4)?,
            fields: Vec::with_capacity(table.bytes.len() / FIELD as usize),
            len: all.u32(12)?,
            pointer,
        };
        for field in 0..fields {
            let at = begin + FIELD * field;
            decoded.fields.push(Field {
                name: text(at)?,
                ty: text(at + 4)?,
                size: all.u32(at + 8)?,
                offset: all.u32(at + 12)?,
            });
        }
        Ok(decoded)
    }

    /// A field by name. Fails if there is none.
    pub fn field(&self, name: &str) -> Result<&Field<'a>> {
        let field = self.fields.iter().find(|field| field.name == name);
        field.ok_or_else(|| format!("struct {:?} has no field {name:?}", self.name).into())
    }

    /// An integer field.
    pub fn number(&self, name: &str) -> Result<Slot> {
        let field = self.field(name)?;
        let is_number = matches!(field.ty, "integer" | "unsigned integer");
        if !is_number || !matches!(field.size, 1 | 2 | 4 | 8) {
            return Err(format!("field {name:?} is not an integer").into());
        }
        self.slot(field.offset, u8::try_from(field.size)?)
    }

    /// A field that points to a string, or to elements of `size` bytes.
    pub fn pointer(&self, name: &str, size: u32) -> Result<Slot> {
        let field = self.field(name)?;
        let is_pointer = field.ty == "string" || field.ty.ends_with(']');
        if !is_pointer || field.size != size {
            return Err(
                format!("field {name:?} does not point to elements of {size} bytes").into(),
            );
        }
        self.pointer_at(field.offset)
    }

    /// The pointer of a field at `offset`.
    pub fn pointer_at(&self, offset: u32) -> Result<Slot> {
        self.slot(offset, self.pointer)
    }

    /// A slot of `size` bytes at `offset`. Fails outside of the struct.
    pub fn slot(&self, offset: u32, size: u8) -> Result<Slot> {
        let end = offset.checked_add(u32::from(size));
        if end.is_none_or(|end| end > self.len) {
            return Err(format!("struct {:?} has a field outside", self.name).into());
        }
        Ok(Slot { offset, size })
    }
}

/// A length stored in two halves, the low one at `low`, the high one at `high`. Both are big-endian in either byte
/// order.
fn split_length(all: &Numbers<'_>, low: u64, high: u64) -> Result<u64> {
    let big = Numbers {
        is_big_endian: true,
        ..*all
    };
    Ok(big.unsigned(high, 2)? << 16 | big.unsigned(low, 2)?)
}

fn text<'a>(all: &Numbers<'a>, at: u32, strings: &Cell<usize>) -> Result<&'a str> {
    let bytes = all.bytes.get(at as usize..).unwrap_or_default();
    let bytes = &bytes[..bytes.len().min(strings.get())];
    let text = CStr::from_bytes_until_nul(bytes);
    let text = text.map_err(|_| "format with a name that does not end")?;
    strings.set(strings.get() - text.count_bytes());
    Ok(text
        .to_str()
        .map_err(|_| "format with a name that is not UTF-8")?)
}
