//! Datatype messages (IV.A.2.d), versions 1 to 5.

use std::fmt;

use crate::{Fields, MAX_RANK, Result};

/// How deep types may be nested. The values of one element are nested as deep.
const MOST_DEPTH: usize = 24;
/// Bytes of an element of variable length: a count, and a place in a global heap.
const VARIABLE: u32 = 16;
const SHORT: &str = "a datatype message that ends early";

/// The type of elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datatype {
    /// Bytes of an element; never 0.
    pub size: u32,
    /// The class of the type.
    pub class: Class,
}

/// The class of a datatype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// An integer.
    Integer {
        /// Whether the integer is signed, in two's complement.
        signed: bool,
        /// Whether the bytes are in big-endian order.
        big_endian: bool,
        /// The bits of the integer.
        bits: Bits,
    },
    /// A floating-point number.
    Float {
        /// Whether the bytes are in big-endian order.
        big_endian: bool,
        /// The meaning of the bits.
        format: FloatFormat,
    },
    /// A time. HDF5 does not define its unit.
    Time {
        /// Whether the bytes are in big-endian order.
        big_endian: bool,
    },
    /// Text of a fixed length.
    Text {
        /// The padding of the text.
        padding: Padding,
        /// Whether the text is UTF-8. Otherwise it should be ASCII.
        utf8: bool,
    },
    /// A bit field.
    Bitfield {
        /// Whether the bytes are in big-endian order.
        big_endian: bool,
        /// The significant bits.
        bits: Bits,
    },
    /// Bytes without meaning to HDF5.
    Opaque {
        /// The description of the bytes.
        tag: Vec<u8>,
    },
    /// A compound.
    Compound {
        /// The members, in the order of the file. In a valid file no two share bytes.
        members: Vec<Member>,
    },
    /// A reference to an object, or to a part of a dataset.
    Reference(ReferenceKind),
    /// An enumeration.
    Enumeration {
        /// The type of the numbers.
        base: Box<Datatype>,
        /// The names, and the numbers in the form of elements.
        members: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// A sequence of variable length, in a global heap.
    VariableList {
        /// The type of the sequence's elements.
        base: Box<Datatype>,
    },
    /// A text of variable length, in a global heap.
    VariableText {
        /// The padding of the text.
        padding: Padding,
        /// Whether the text is UTF-8. Otherwise it should be ASCII.
        utf8: bool,
    },
    /// An array of fixed extent.
    Array {
        /// The type of the array's elements.
        base: Box<Datatype>,
        /// The extent. No dimension is 0.
        dims: Vec<u32>,
    },
    /// A complex number: the real part, followed by the imaginary part.
    Complex {
        /// The type of each part.
        base: Box<Datatype>,
    },
    /// A type that this crate cannot decode, with the reason.
    Other(String),
}

/// A range of bits. Bit 0 is the lowest one in either byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// The lowest bit.
    pub offset: u16,
    /// The number of bits. In a valid file, the element has at least as many.
    pub precision: u16,
}

/// The meaning of the bits of a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloatFormat {
    /// The bits of the number.
    pub bits: Bits,
    /// The sign bit.
    pub sign: u8,
    /// The lowest bit of the exponent.
    pub exponent_at: u8,
    /// The number of bits of the exponent.
    pub exponent_bits: u8,
    /// The lowest bit of the mantissa.
    pub mantissa_at: u8,
    /// The number of bits of the mantissa.
    pub mantissa_bits: u8,
    /// The bias of the exponent.
    pub bias: u32,
    /// The state of the mantissa's highest bit.
    pub normalization: Normalization,
}

/// The highest bit of a mantissa.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
    /// Not normalized: the bit may have any value.
    None,
    /// Always 1, and stored.
    Stored,
    /// Always 1, and not stored.
    Implied,
}

/// The padding of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// The text ends at a zero byte. The bytes behind it have no meaning.
    NullTerminated,
    /// Padded with zeros.
    NullPadded,
    /// Padded with spaces.
    SpacePadded,
}

/// The kind of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    /// An object, by its address.
    Object,
    /// A part of a dataset, by its place in a global heap.
    Region,
    /// A reference of HDF5 1.12, by the number of its form.
    Other(u8),
}

/// A member of a compound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name of the member.
    pub name: Vec<u8>,
    /// The offset in the element.
    pub offset: u32,
    /// The type of the member.
    pub datatype: Datatype,
}

impl FloatFormat {
    /// Whether this is the extended format of an x87 (C's `long double` there): 80 bits, including the first bit of the
    /// mantissa.
    pub fn is_x87(&self) -> bool {
        let normalization = Normalization::Stored;
        let format = FloatFormat {
            normalization,
            ..*self
        };
        let x87 = FloatFormat {
            bits: Bits {
                offset: 0,
                precision: 80,
            },
            sign: 79,
            exponent_at: 64,
            exponent_bits: 15,
            mantissa_at: 0,
            mantissa_bits: 64,
            bias: 16_383,
            normalization,
        };
        self.normalization != Normalization::Implied && format == x87
    }

    /// The IEEE 754 format of a number of 2, 4 or 8 bytes.
    pub fn ieee(size: u32) -> Option<Self> {
        let (exponent_bits, mantissa_bits) = match size {
            2 => (5, 10),
            4 => (8, 23),
            8 => (11, 52),
            _ => return None,
        };
        let precision = 8 * size as u16;
        Some(FloatFormat {
            bits: Bits {
                offset: 0,
                precision,
            },
            sign: precision as u8 - 1,
            exponent_at: mantissa_bits,
            exponent_bits,
            mantissa_at: 0,
            mantissa_bits,
            bias: (1 << (exponent_bits - 1)) - 1,
            normalization: Normalization::Implied,
        })
    }
}

/// A short description for messages: `i32`, `compound of 24`.
impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, bits) = (self.size, u64::from(self.size) * 8);
        match &self.class {
            Class::Integer { signed, .. } => {
                let letter = if *signed { 'i' } else { 'u' };
                write!(f, "{letter}{bits}")
            }
            Class::Float { .. } => write!(f, "f{bits}"),
            Class::Bitfield { .. } => write!(f, "bits {bits}"),
            Class::Enumeration { .. } => write!(f, "enum {bits}"),
            Class::Text { .. } => write!(f, "string of {size}"),
            Class::VariableText { .. } => write!(f, "string"),
            Class::VariableList { .. } => write!(f, "sequence"),
            Class::Opaque { .. } => write!(f, "opaque of {size}"),
            Class::Compound { .. } => write!(f, "compound of {size}"),
            Class::Array { .. } => write!(f, "array of {size}"),
            Class::Reference(ReferenceKind::Object) => write!(f, "object reference"),
            Class::Reference(ReferenceKind::Region) => write!(f, "region reference"),
            Class::Complex { base } => write!(f, "complex of {base}"),
            Class::Time { .. } | Class::Reference(_) | Class::Other(_) => write!(f, "{size} bytes"),
        }?;
        if self.is_big_endian() {
            write!(f, ", big-endian")?;
        }
        Ok(())
    }
}

impl Datatype {
    /// Reads a datatype message.
    pub fn of_message(message: &[u8]) -> Result<Self> {
        read(&mut Fields(message), MOST_DEPTH)
    }

    /// Whether the type is an integer, or an IEEE 754 number of 2, 4 or 8 bytes, and all its bits count.
    pub fn is_plain_number(&self) -> bool {
        match &self.class {
            Class::Integer { bits, .. } => {
                bits.offset == 0 && u32::from(bits.precision) == self.size.saturating_mul(8)
            }
            Class::Float { format, .. } => FloatFormat::ieee(self.size) == Some(*format),
            _ => false,
        }
    }

    /// Whether the numbers are big-endian.
    fn is_big_endian(&self) -> bool {
        match &self.class {
            Class::Integer { big_endian, .. }
            | Class::Float { big_endian, .. }
            | Class::Bitfield { big_endian, .. } => *big_endian,
            Class::Enumeration { base, .. } => base.is_big_endian(),
            _ => false,
        }
    }

    /// Whether elements refer to global heaps: values of variable length, and regions.
    pub fn has_heap_values(&self) -> bool {
        match &self.class {
            Class::VariableList { .. }
            | Class::VariableText { .. }
            | Class::Reference(ReferenceKind::Region) => true,
            Class::Array { base, .. } => base.has_heap_values(),
            Class::Compound { members } => members.iter().any(|m| m.datatype.has_heap_values()),
            _ => false,
        }
    }
}

/// The front of a datatype message.
struct Front {
    version: u8,
    /// The class bit field.
    bits: u32,
    size: u32,
}

fn read(fields: &mut Fields<'_>, depth: usize) -> Result<Datatype> {
    let below = depth
        .checked_sub(1)
        .ok_or("datatypes nested too deeply for h5logfs")?;
    let first = fields.u8().ok_or(SHORT)?;
    let front = Front {
        version: first >> 4,
        bits: fields.number(3).ok_or(SHORT)? as u32,
        size: fields.u32().ok_or(SHORT)?,
    };
    if !(1..=5).contains(&front.version) {
        return Err(format!("a datatype message of version {}", front.version).into());
    }
    if front.size == 0 {
        return Err("a datatype of no bytes".into());
    }
    let class = match first & 0xf {
        0 => integer(&front, fields).ok_or(SHORT)?,
        1 => float(&front, fields)?,
        2 => {
            fields.skip(2).ok_or(SHORT)?;
            Class::Time {
                big_endian: front.has(BIG_ENDIAN),
            }
        }
        3 => Class::Text {
            padding: padding(front.bits & 0xf)?,
            utf8: is_utf8(front.bits >> 4 & 0xf)?,
        },
        4 => Class::Bitfield {
            big_endian: front.has(BIG_ENDIAN),
            bits: bits(fields).ok_or(SHORT)?,
        },
        5 => opaque(&front, fields).ok_or(SHORT)?,
        6 => compound(&front, fields, below)?,
        7 => Class::Reference(reference(&front)?),
        8 => enumeration(&front, fields, below)?,
        9 => variable(&front, fields, below)?,
        10 => array(&front, fields, below)?,
        11 => complex(&front, fields, below)?,
        class => return Err(format!("a datatype of class {class}").into()),
    };
    Ok(Datatype {
        size: front.size,
        class,
    })
}

const BIG_ENDIAN: u32 = 1;

impl Front {
    fn has(&self, bit: u32) -> bool {
        self.bits & bit != 0
    }

    /// Number of members of a compound or an enumeration.
    fn members(&self) -> usize {
        (self.bits & 0xffff) as usize
    }

    /// The name of a member.
    fn name<'a>(&self, fields: &mut Fields<'a>) -> Option<&'a [u8]> {
        let len = fields.0.iter().position(|byte| *byte == 0)?;
        let name = fields.take(len)?;
        // Old versions pad the name and its zero byte with further zeros.
        let whole = match self.version {
            1 | 2 => (len + 1).next_multiple_of(8),
            _ => len + 1,
        };
        fields.skip(whole - len)?;
        Some(name)
    }
}

fn bits(fields: &mut Fields<'_>) -> Option<Bits> {
    Some(Bits {
        offset: fields.u16()?,
        precision: fields.u16()?,
    })
}

fn integer(front: &Front, fields: &mut Fields<'_>) -> Option<Class> {
    const SIGNED: u32 = 8;
    Some(Class::Integer {
        signed: front.has(SIGNED),
        big_endian: front.has(BIG_ENDIAN),
        bits: bits(fields)?,
    })
}

fn float(front: &Front, fields: &mut Fields<'_>) -> Result<Class> {
    const VAX: u32 = 1 << 6;
    let mut parts = || {
        Some(FloatFormat {
            bits: bits(fields)?,
            sign: (front.bits >> 8) as u8,
            exponent_at: fields.u8()?,
            exponent_bits: fields.u8()?,
            mantissa_at: fields.u8()?,
            mantissa_bits: fields.u8()?,
            bias: fields.u32()?,
            normalization: Normalization::None,
        })
    };
    let mut format = parts().ok_or(SHORT)?;
    format.normalization = match front.bits >> 4 & 3 {
        0 => Normalization::None,
        1 => Normalization::Stored,
        2 => Normalization::Implied,
        other => return Err(format!("a normalization of {other}").into()),
    };
    if front.has(VAX) {
        return Ok(Class::Other("the byte order of a VAX".to_owned()));
    }
    Ok(Class::Float {
        big_endian: front.has(BIG_ENDIAN),
        format,
    })
}

fn padding(number: u32) -> Result<Padding> {
    match number {
        0 => Ok(Padding::NullTerminated),
        1 => Ok(Padding::NullPadded),
        2 => Ok(Padding::SpacePadded),
        other => Err(format!("a padding of {other}").into()),
    }
}

fn is_utf8(character_set: u32) -> Result<bool> {
    match character_set {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("a character set of {other}").into()),
    }
}

fn opaque(front: &Front, fields: &mut Fields<'_>) -> Option<Class> {
    let tag = fields.take((front.bits & 0xff) as usize)?;
    let end = tag.iter().position(|byte| *byte == 0);
    Some(Class::Opaque {
        tag: tag[..end.unwrap_or(tag.len())].to_vec(),
    })
}

fn reference(front: &Front) -> Result<ReferenceKind> {
    let kind = match front.bits & 0xf {
        0 => ReferenceKind::Object,
        1 => ReferenceKind::Region,
        other => ReferenceKind::Other(other as u8),
    };
    let has_size = match kind {
        ReferenceKind::Object => front.size == 8,
        ReferenceKind::Region => front.size == 12,
        ReferenceKind::Other(_) => true,
    };
    Ok(has_size
        .then_some(kind)
        .ok_or_else(|| format!("a reference of {} bytes", front.size))?)
}

fn compound(front: &Front, fields: &mut Fields<'_>, depth: usize) -> Result<Class> {
    let mut members = Vec::new();
    // No two members share bytes, so their sizes add up to at most the size of the compound.
    let mut left = front.size;
    for _ in 0..front.members() {
        let member = member(front, fields, depth)?;
        let end = member.offset.checked_add(member.datatype.size);
        left = end
            .filter(|end| *end <= front.size)
            .and_then(|_| left.checked_sub(member.datatype.size))
            .ok_or("a compound smaller than its members")?;
        members.push(member);
    }
    Ok(Class::Compound { members })
}

fn member(front: &Front, fields: &mut Fields<'_>, depth: usize) -> Result<Member> {
    let name = front.name(fields).ok_or(SHORT)?.to_vec();
    let offset = match front.version {
        1 | 2 => fields.u32(),
        // Newer versions use as many bytes as the size of the compound needs.
        _ => fields
            .number(front.size.ilog2() as usize / 8 + 1)
            .map(|offset| offset as u32),
    };
    let offset = offset.ok_or(SHORT)?;
    let dims = match front.version {
        1 => old_dims(fields).ok_or(SHORT)?,
        _ => Vec::new(),
    };
    let mut datatype = read(fields, depth)?;
    if !dims.is_empty() {
        let size = array_size(&datatype, &dims).ok_or("a member of many bytes")?;
        let base = Box::new(datatype);
        datatype = Datatype {
            size,
            class: Class::Array { base, dims },
        };
    }
    Ok(Member {
        name,
        offset,
        datatype,
    })
}

/// The dimensions of a version-1 member. Version 1 has no array types.
fn old_dims(fields: &mut Fields<'_>) -> Option<Vec<u32>> {
    let rank = fields.u8()?;
    // Reserved bytes, and the permutation of dimensions.
    fields.skip(3 + 4 + 4)?;
    let dims = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
    dims.get(..rank.into()).map(<[u32]>::to_vec)
}

/// Bytes of an array; `None` if there are too many, or none.
fn array_size(base: &Datatype, dims: &[u32]) -> Option<u32> {
    let size = dims
        .iter()
        .try_fold(base.size, |n, dim| n.checked_mul(*dim))?;
    (size > 0).then_some(size)
}

fn enumeration(front: &Front, fields: &mut Fields<'_>, depth: usize) -> Result<Class> {
    let base = read(fields, depth)?;
    if base.size != front.size || !matches!(base.class, Class::Integer { .. }) {
        return Err("an enumeration without integers of its size".into());
    }
    let mut names = Vec::new();
    for _ in 0..front.members() {
        names.push(front.name(fields).ok_or(SHORT)?.to_vec());
    }
    let mut members = Vec::new();
    for name in names {
        let value = fields.take(base.size as usize).ok_or(SHORT)?;
        members.push((name, value.to_vec()));
    }
    Ok(Class::Enumeration {
        base: Box::new(base),
        members,
    })
}

fn variable(front: &Front, fields: &mut Fields<'_>, depth: usize) -> Result<Class> {
    const LIST: u32 = 0;
    const TEXT: u32 = 1;
    if front.size != VARIABLE {
        return Err(format!("a type of variable length with {} bytes", front.size).into());
    }
    let base = Box::new(read(fields, depth)?);
    match front.bits & 0xf {
        LIST => Ok(Class::VariableList { base }),
        TEXT => Ok(Class::VariableText {
            padding: padding(front.bits >> 4 & 0xf)?,
            utf8: is_utf8(front.bits >> 8 & 0xf)?,
        }),
        other => Err(format!("a type of variable length of kind {other}").into()),
    }
}

fn array(front: &Front, fields: &mut Fields<'_>, depth: usize) -> Result<Class> {
    let rank = usize::from(fields.u8().ok_or(SHORT)?);
    let is_old = front.version < 3;
    if is_old {
        fields.skip(3).ok_or(SHORT)?;
    }
    if !(1..=MAX_RANK).contains(&rank) {
        return Err(format!("an array type of {rank} dimensions").into());
    }
    let mut dims = Vec::new();
    for _ in 0..rank {
        dims.push(fields.u32().ok_or(SHORT)?);
    }
    if is_old {
        // The permutation of dimensions is skipped.
        fields.skip(rank * 4).ok_or(SHORT)?;
    }
    let base = read(fields, depth)?;
    if array_size(&base, &dims) != Some(front.size) {
        return Err("an array type whose size is not that of all its elements".into());
    }
    Ok(Class::Array {
        base: Box::new(base),
        dims,
    })
}

/// Reads a complex type. HDF5 2.0 has one form: two parts of one type.
fn complex(front: &Front, fields: &mut Fields<'_>, depth: usize) -> Result<Class> {
    const FORM: u32 = 7;
    const RECTANGULAR: u32 = 1;
    let base = read(fields, depth)?;
    if front.bits & FORM != RECTANGULAR {
        return Ok(Class::Other(
            "a complex number of an unknown form".to_owned(),
        ));
    }
    if base.size.checked_mul(2) != Some(front.size) {
        return Err("a complex type whose size is not that of its parts".into());
    }
    Ok(Class::Complex {
        base: Box::new(base),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(version: u8, class: u8, bits: u32, size: u32, rest: &[&[u8]]) -> Vec<u8> {
        let [a, b, c, _] = bits.to_le_bytes();
        let mut bytes = vec![version << 4 | class, a, b, c];
        bytes.extend(size.to_le_bytes());
        bytes.extend(rest.concat());
        bytes
    }

    /// A signed integer of four bytes.
    fn int(version: u8) -> Vec<u8> {
        message(version, 0, 8, 4, &[&[0, 0, 32, 0]])
    }

    fn read_all(message: &[u8]) -> Class {
        for len in 0..message.len() {
            assert!(Datatype::of_message(&message[..len]).is_err(), "{len}");
        }
        Datatype::of_message(message).unwrap().class
    }

    #[test]
    fn types_have_short_names() {
        let name = |message: &[u8]| Datatype::of_message(message).unwrap().to_string();
        assert_eq!(name(&[0x10, 8, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0]), "i16");
        assert_eq!(
            name(&[0x10, 1, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0]),
            "u32, big-endian"
        );
        assert_eq!(name(&[0x13, 0, 0, 0, 7, 0, 0, 0]), "string of 7");
        assert_eq!(name(&[0x17, 0, 0, 0, 8, 0, 0, 0]), "object reference");
    }

    #[test]
    fn numbers_have_bits() {
        let datatype = Datatype::of_message(&int(1)).unwrap();
        assert!(datatype.is_plain_number());
        let narrow = message(1, 0, 1, 4, &[&[3, 0, 7, 0]]);
        let bits = Bits {
            offset: 3,
            precision: 7,
        };
        let expected = Class::Integer {
            signed: false,
            big_endian: true,
            bits,
        };
        assert_eq!(read_all(&narrow), expected);
        assert!(!Datatype::of_message(&narrow).unwrap().is_plain_number());
        let double = [&[0, 0, 64, 0, 52, 11, 0, 52], &1023u32.to_le_bytes()[..]].concat();
        let double = Datatype::of_message(&message(1, 1, 0x3f20, 8, &[&double])).unwrap();
        assert!(double.is_plain_number());
    }

    #[test]
    fn compounds_of_all_versions_have_members() {
        let place = |offset: u32, rank: u8| {
            let dims = [[rank, 0, 0, 0], [0; 4], [0; 4]].concat();
            let sizes = [2u32, 1, 1, 1].map(u32::to_le_bytes);
            [&offset.to_le_bytes(), &dims[..], sizes.as_flattened()].concat()
        };
        let first = message(
            1,
            6,
            2,
            12,
            &[
                b"a\0\0\0\0\0\0\0",
                &place(0, 0),
                &int(1),
                b"longname\0\0\0\0\0\0\0\0",
                &place(4, 1),
                &int(1),
            ],
        );
        let second = message(
            2,
            6,
            1,
            8,
            &[b"a\0\0\0\0\0\0\0", &4u32.to_le_bytes(), &int(1)],
        );
        let third = message(3, 6, 1, 300, &[b"a\0", &[4, 1], &int(1)]);
        let members = |message: &[u8]| match read_all(message) {
            Class::Compound { members } => members
                .into_iter()
                .map(|m| {
                    (
                        String::from_utf8(m.name).unwrap(),
                        m.offset,
                        m.datatype.size,
                    )
                })
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let expected = [("a".to_owned(), 0, 4), ("longname".to_owned(), 4, 8)];
        assert_eq!(members(&first), expected);
        assert_eq!(members(&second), [("a".to_owned(), 4, 4)]);
        assert_eq!(members(&third), [("a".to_owned(), 260, 4)]);
        let past = message(3, 6, 1, 8, &[b"a\0", &[5], &int(1)]);
        let twice = message(3, 6, 2, 4, &[b"a\0", &[0], &int(1), b"b\0", &[0], &int(1)]);
        for wrong in [past, twice] {
            assert!(Datatype::of_message(&wrong).is_err());
        }
    }

    #[test]
    fn types_are_made_of_others() {
        let array = message(3, 10, 0, 24, &[&[2], &[2, 0, 0, 0, 3, 0, 0, 0], &int(3)]);
        assert!(matches!(read_all(&array), Class::Array { dims, .. } if dims == [2, 3]));
        let old = message(
            2,
            10,
            0,
            8,
            &[&[1, 0, 0, 0], &[2, 0, 0, 0], &[0; 4], &int(1)],
        );
        assert!(matches!(read_all(&old), Class::Array { dims, .. } if dims == [2]));
        let numbers = [1i32, 2].map(i32::to_le_bytes).concat();
        let choice = message(3, 8, 2, 4, &[&int(3), b"A\0BC\0", &numbers]);
        let Class::Enumeration { members, .. } = read_all(&choice) else {
            panic!();
        };
        assert_eq!(
            members,
            [
                (b"A".to_vec(), vec![1, 0, 0, 0]),
                (b"BC".to_vec(), vec![2, 0, 0, 0])
            ]
        );
        let list = message(1, 9, 0, 16, &[&int(1)]);
        assert!(matches!(read_all(&list), Class::VariableList { .. }));
        let text = message(1, 9, 0x101, 16, &[&message(1, 3, 0, 1, &[])]);
        assert!(matches!(
            read_all(&text),
            Class::VariableText { utf8: true, .. }
        ));
        let complex = message(5, 11, 1, 8, &[&int(5)]);
        assert!(matches!(read_all(&complex), Class::Complex { .. }));
        let opaque = message(1, 5, 8, 3, &[b"tag\0\0\0\0\0"]);
        assert_eq!(
            read_all(&opaque),
            Class::Opaque {
                tag: b"tag".to_vec()
            }
        );
    }

    #[test]
    fn deep_types_end() {
        let mut deep = int(3);
        for _ in 0..MOST_DEPTH {
            deep = message(3, 10, 0, 4, &[&[1], &[1, 0, 0, 0], &deep]);
        }
        assert!(Datatype::of_message(&deep).is_err());
        assert!(
            Datatype::of_message(&message(3, 3, 0, 0, &[])).is_err(),
            "no bytes"
        );
    }
}
