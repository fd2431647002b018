//! Datatypes, and the shapes of their values.

use super::*;

/// The shape of a value, as far as a copy needs it: the places of references and variable-length parts, with offsets
/// and sizes in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Bytes that are copied unchanged.
    Plain,
    /// A variable-length string: a pointer in memory.
    VariableString,
    ObjectReference,
    RegionReference,
    /// Offsets and shapes of the members that are not plain.
    Compound(Vec<(usize, Shape)>),
    Array {
        count: usize,
        size: usize,
        base: Box<Shape>,
    },
    /// A variable-length sequence: in memory a length and a pointer.
    Sequence {
        size: usize,
        base: Box<Shape>,
    },
}

/// The deepest nesting that is followed. No real type comes close.
const DEEPEST: usize = 64;

impl Shape {
    pub fn of(datatype: &Id) -> Result<Self> {
        Self::nested(datatype, 0)
    }

    fn nested(datatype: &Id, depth: usize) -> Result<Self> {
        if depth > DEEPEST {
            return Err("a datatype nested too deeply".into());
        }
        let base = || {
            let base = Id::new(h5!(H5Tget_super(datatype.0)))?;
            Ok::<_, String>((type_size(&base)?, Self::nested(&base, depth + 1)?))
        };
        Ok(match type_class(datatype) {
            H5T_class_t::H5T_STRING if h5!(H5Tis_variable_str(datatype.0))? > 0 => {
                Shape::VariableString
            }
            H5T_class_t::H5T_REFERENCE => match type_size(datatype)? {
                8 => Shape::ObjectReference,
                12 => Shape::RegionReference,
                other => return Err(format!("a reference of {other} bytes").into()),
            },
            H5T_class_t::H5T_COMPOUND => {
                let mut members = Vec::new();
                for number in 0..h5!(H5Tget_nmembers(datatype.0))? as c_uint {
                    let member = Id::new(h5!(H5Tget_member_type(datatype.0, number)))?;
                    let shape = Self::nested(&member, depth + 1)?;
                    if shape != Shape::Plain {
                        let offset = raw!(H5Tget_member_offset(datatype.0, number));
                        members.push((offset, shape));
                    }
                }
                if members.is_empty() {
                    Shape::Plain
                } else {
                    Shape::Compound(members)
                }
            }
            H5T_class_t::H5T_ARRAY => match base()? {
                (_, Shape::Plain) => Shape::Plain,
                (size, base) => Shape::Array {
                    count: type_size(datatype)? / size.max(1),
                    size,
                    base: Box::new(base),
                },
            },
            H5T_class_t::H5T_VLEN => {
                let (size, base) = base()?;
                Shape::Sequence {
                    size,
                    base: Box::new(base),
                }
            }
            _ => Shape::Plain,
        })
    }

    /// Whether values hold pointers to memory that libhdf5 allocated.
    pub fn has_pointers(&self) -> bool {
        match self {
            Shape::VariableString | Shape::Sequence { .. } => true,
            Shape::Compound(members) => members.iter().any(|(_, m)| m.has_pointers()),
            Shape::Array { base, .. } => base.has_pointers(),
            _ => false,
        }
    }

    /// The bytes that an element takes in a file beyond its size in memory. A text is a pointer in memory. In a file it
    /// is a length and a place in a heap.
    pub fn more_in_file(&self) -> usize {
        const IN_FILE: usize = 16;
        match self {
            Shape::VariableString => IN_FILE - size_of::<*const c_char>(),
            Shape::Sequence { .. } => IN_FILE - size_of::<hvl_t>(),
            Shape::Compound(members) => members.iter().map(|(_, m)| m.more_in_file()).sum(),
            Shape::Array { count, base, .. } => count.saturating_mul(base.more_in_file()),
            Shape::Plain | Shape::ObjectReference | Shape::RegionReference => 0,
        }
    }

    pub fn has_references(&self) -> bool {
        match self {
            Shape::ObjectReference | Shape::RegionReference => true,
            Shape::Compound(members) => members.iter().any(|(_, m)| m.has_references()),
            Shape::Array { base, .. } | Shape::Sequence { base, .. } => base.has_references(),
            _ => false,
        }
    }

    pub fn has_regions(&self) -> bool {
        match self {
            Shape::RegionReference => true,
            Shape::Compound(members) => members.iter().any(|(_, m)| m.has_regions()),
            Shape::Array { base, .. } | Shape::Sequence { base, .. } => base.has_regions(),
            _ => false,
        }
    }

    /// Offsets of the object references in an element without pointers.
    pub fn object_references(&self, at: usize, found: &mut Vec<u64>) {
        match self {
            Shape::ObjectReference => found.push(at as u64),
            Shape::Compound(members) => {
                for (offset, member) in members {
                    member.object_references(at + offset, found);
                }
            }
            Shape::Array { count, size, base } => {
                for i in 0..*count {
                    base.object_references(at + i * size, found);
                }
            }
            _ => {}
        }
    }
}

pub(super) fn type_class(datatype: &Id) -> H5T_class_t {
    raw!(H5Tget_class(datatype.0))
}

pub(super) fn is_unsigned(datatype: &Id) -> bool {
    let sign = raw!(H5Tget_sign(datatype.0));
    sign == H5T_sign_t::H5T_SGN_NONE
}

pub fn type_size(datatype: &Id) -> Result<usize> {
    match raw!(H5Tget_size(datatype.0)) {
        0 => Err("a datatype without a size".into()),
        size => Ok(size),
    }
}

/// The address of a committed type; `None` for a type that is not committed.
pub fn committed(datatype: &Id) -> Result<Option<u64>> {
    if h5!(H5Tcommitted(datatype.0))? > 0 {
        address(datatype).map(Some)
    } else {
        Ok(None)
    }
}

/// Commits a type to a file, without a link.
#[cfg(test)]
pub fn commit(file: &Id, datatype: &Id) -> Result<()> {
    h5!(H5Tcommit_anon(file.0, datatype.0, DEFAULT, DEFAULT)).map(drop)
}

/// The creation properties of a committed type.
pub fn type_creation(datatype: &Id) -> Result<Id> {
    Id::new(h5!(H5Tget_create_plist(datatype.0)))
}

/// Commits a copy of a type to a file, without a link.
pub fn commit_copy(file: &Id, datatype: &Id, creation: &Id) -> Result<Id> {
    let copy = Id::new(h5!(H5Tcopy(datatype.0)))?;
    h5!(H5Tcommit_anon(file.0, copy.0, creation.0, DEFAULT))?;
    Ok(copy)
}

/// A copy of a type, for use in another file. If the file keeps the type in its table of shared messages, the type
/// refers to that table. libhdf5 1.10 follows the reference even in another file, which has no such table.
pub fn unshared(datatype: &Id) -> Result<Id> {
    let mut len = 0;
    h5!(H5Tencode(datatype.0, ptr::null_mut(), &mut len))?;
    let mut bytes = vec![0u8; len];
    h5!(H5Tencode(datatype.0, bytes.as_mut_ptr().cast(), &mut len))?;
    Id::new(h5!(H5Tdecode1(bytes.as_ptr().cast())))
}

/// Whether elements are unsigned integers of one byte.
pub fn is_unsigned_byte(datatype: &Id) -> Result<bool> {
    let is_integer = type_class(datatype) == H5T_class_t::H5T_INTEGER;
    Ok(is_integer && is_unsigned(datatype) && type_size(datatype)? == 1)
}

/// A short description for messages: `i32`, `compound of 24`.
pub fn describe_type(datatype: &Id) -> String {
    let size = type_size(datatype).unwrap_or(0);
    let big = raw!(H5Tget_order(datatype.0)) == H5T_order_t::H5T_ORDER_BE;
    let order = if big { ", big-endian" } else { "" };
    match type_class(datatype) {
        H5T_class_t::H5T_INTEGER => {
            let letter = if is_unsigned(datatype) { 'u' } else { 'i' };
            format!("{letter}{}{order}", size * 8)
        }
        H5T_class_t::H5T_FLOAT => format!("f{}{order}", size * 8),
        H5T_class_t::H5T_STRING => match h5!(H5Tis_variable_str(datatype.0)) {
            Ok(found) if found > 0 => "string".into(),
            _ => format!("string of {size}"),
        },
        H5T_class_t::H5T_BITFIELD => format!("bits {}{order}", size * 8),
        H5T_class_t::H5T_OPAQUE => format!("opaque of {size}"),
        H5T_class_t::H5T_COMPOUND => format!("compound of {size}"),
        H5T_class_t::H5T_REFERENCE if size == 8 => "object reference".into(),
        H5T_class_t::H5T_REFERENCE => "region reference".into(),
        H5T_class_t::H5T_ENUM => format!("enum {}{order}", size * 8),
        H5T_class_t::H5T_VLEN => "sequence".into(),
        H5T_class_t::H5T_ARRAY => format!("array of {size}"),
        _ => format!("{size} bytes"),
    }
}

/// An integer type of 1, 2, 4 or 8 bytes.
pub fn integer_type(size: u32, signed: bool, big_endian: bool) -> Result<Id> {
    let standard = match (size, signed, big_endian) {
        (1, true, false) => *H5T_STD_I8LE,
        (2, true, false) => *H5T_STD_I16LE,
        (4, true, false) => *H5T_STD_I32LE,
        (8, true, false) => *H5T_STD_I64LE,
        // One byte has no byte order, but libhdf5 distinguishes these types.
        (1, true, true) => *H5T_STD_I8BE,
        (2, true, true) => *H5T_STD_I16BE,
        (4, true, true) => *H5T_STD_I32BE,
        (8, true, true) => *H5T_STD_I64BE,
        (1, false, false) => *H5T_STD_U8LE,
        (2, false, false) => *H5T_STD_U16LE,
        (4, false, false) => *H5T_STD_U32LE,
        (8, false, false) => *H5T_STD_U64LE,
        (1, false, true) => *H5T_STD_U8BE,
        (2, false, true) => *H5T_STD_U16BE,
        (4, false, true) => *H5T_STD_U32BE,
        (8, false, true) => *H5T_STD_U64BE,
        _ => return Err(format!("an integer of {size} bytes").into()),
    };
    Id::new(h5!(H5Tcopy(standard)))
}

/// An IEEE 754 type of 4 or 8 bytes.
pub fn float_type(size: u32, big_endian: bool) -> Result<Id> {
    let standard = match (size, big_endian) {
        (4, false) => *H5T_IEEE_F32LE,
        (8, false) => *H5T_IEEE_F64LE,
        (4, true) => *H5T_IEEE_F32BE,
        (8, true) => *H5T_IEEE_F64BE,
        _ => return Err(format!("a floating-point number of {size} bytes").into()),
    };
    Id::new(h5!(H5Tcopy(standard)))
}

/// The extended numbers of an x87: 80 bits in 16 bytes, little-endian.
pub fn x87_type() -> Result<Id> {
    let new = Id::new(h5!(H5Tcopy(*H5T_IEEE_F64LE)))?;
    h5!(H5Tset_size(new.0, 16))?;
    h5!(H5Tset_precision(new.0, 80))?;
    // A sign, 15 bits of exponent, and a mantissa with an explicit first bit.
    h5!(H5Tset_fields(new.0, 79, 64, 15, 0, 64))?;
    h5!(H5Tset_ebias(new.0, 16_383))?;
    h5!(H5Tset_norm(new.0, H5T_norm_t::H5T_NORM_NONE))?;
    Ok(new)
}

/// `long double` of this processor.
#[cfg(test)]
pub fn native_long_double() -> Result<Id> {
    Id::new(h5!(H5Tcopy(*H5T_NATIVE_LDOUBLE)))
}

/// A bitfield of 1, 2, 4 or 8 bytes.
pub fn bitfield_type(size: u32, big_endian: bool) -> Result<Id> {
    let standard = match (size, big_endian) {
        (1, false) => *H5T_STD_B8LE,
        (2, false) => *H5T_STD_B16LE,
        (4, false) => *H5T_STD_B32LE,
        (8, false) => *H5T_STD_B64LE,
        (1, true) => *H5T_STD_B8BE,
        (2, true) => *H5T_STD_B16BE,
        (4, true) => *H5T_STD_B32BE,
        (8, true) => *H5T_STD_B64BE,
        _ => return Err(format!("a bitfield of {size} bytes").into()),
    };
    Id::new(h5!(H5Tcopy(standard)))
}

pub fn opaque_type(size: u32, tag: &str) -> Result<Id> {
    let tag = c_name(tag.as_bytes())?;
    let new = Id::new(h5!(H5Tcreate(H5T_class_t::H5T_OPAQUE, size as usize)))?;
    h5!(H5Tset_tag(new.0, tag.as_ptr()))?;
    Ok(new)
}

/// Text of a fixed length in bytes, padded with zeros.
pub fn text_type(size: u32, utf8: bool) -> Result<Id> {
    let new = Id::new(h5!(H5Tcopy(*H5T_C_S1)))?;
    h5!(H5Tset_size(new.0, size as usize))?;
    h5!(H5Tset_strpad(new.0, H5T_str_t::H5T_STR_NULLPAD))?;
    if utf8 {
        h5!(H5Tset_cset(new.0, H5T_cset_t::H5T_CSET_UTF8))?;
    }
    Ok(new)
}

/// Text of a fixed length in bytes that ends at its first zero byte.
pub fn terminated_text_type(size: u32, utf8: bool) -> Result<Id> {
    let new = text_type(size, utf8)?;
    h5!(H5Tset_strpad(new.0, H5T_str_t::H5T_STR_NULLTERM))?;
    Ok(new)
}

/// A reference to an object. In memory it is the address of the object.
pub fn object_reference_type() -> Result<Id> {
    Id::new(h5!(H5Tcopy(*H5T_STD_REF_OBJ)))
}

/// A variable-length sequence of elements of `base`.
pub fn sequence_type(base: &Id) -> Result<Id> {
    Id::new(h5!(H5Tvlen_create(base.0)))
}

/// Variable-length text in UTF-8.
pub fn variable_text_type() -> Result<Id> {
    let new = Id::new(h5!(H5Tcopy(*H5T_C_S1)))?;
    h5!(H5Tset_size(new.0, H5T_VARIABLE))?;
    h5!(H5Tset_cset(new.0, H5T_cset_t::H5T_CSET_UTF8))?;
    Ok(new)
}

/// Names for values of the integer type `base`.
#[cfg(test)]
pub fn enumeration_type(base: &Id, members: &[(String, Vec<u8>)]) -> Result<Id> {
    let new = Id::new(h5!(H5Tenum_create(base.0)))?;
    for (name, value) in members {
        if value.len() != type_size(base)? {
            return Err(format!("{name} has a value of another size").into());
        }
        let name = c_name(name.as_bytes())?;
        h5!(H5Tenum_insert(new.0, name.as_ptr(), value.as_ptr().cast()))?;
    }
    Ok(new)
}

/// A compound type. `members`: name, offset and type.
pub fn compound_type(size: u32, members: &[(&str, u32, Id)]) -> Result<Id> {
    let new = Id::new(h5!(H5Tcreate(H5T_class_t::H5T_COMPOUND, size as usize)))?;
    for (name, offset, datatype) in members {
        let name = c_name(name.as_bytes())?;
        h5!(H5Tinsert(
            new.0,
            name.as_ptr(),
            *offset as usize,
            datatype.0
        ))?;
    }
    Ok(new)
}

pub fn array_type(base: &Id, dims: &[u64]) -> Result<Id> {
    Id::new(h5!(H5Tarray_create2(
        base.0,
        dims.len() as c_uint,
        dims.as_ptr()
    )))
}

/// Whether two types are equal.
pub fn equal_types(one: &Id, other: &Id) -> Result<bool> {
    h5!(H5Tequal(one.0, other.0)).map(|equal| equal > 0)
}
