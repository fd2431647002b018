//! Datatype messages (IV.A.2.d) of the types that definitions have, in the versions that libhdf5 writes for its oldest readers: 1, and
//! 2 for arrays and what has some in it.

use h5logfs_log::filters::Filter;
use h5logfs_log::journal::datatype::{Datatype, Member};

use crate::datatype::{self as file, Bits, Class, FloatFormat, Padding};
use crate::written::header;

/// Bytes of an element that lies in a heap: how many there are, and the place of the first.
const IN_HEAP: u32 = 16;

/// The datatype message of a type. `None` where it does not fit one.
pub fn message(datatype: &Datatype) -> Option<Vec<u8>> {
    within(datatype, 1)
}

/// The same in another one, of this version.
fn within(datatype: &Datatype, outer: u8) -> Option<Vec<u8>> {
    let version = outer.max(self::version(datatype));
    Some(match datatype {
        Datatype::Integer {
            size,
            signed,
            big_endian,
        } => ordered(
            header::integer(u8::try_from(*size).ok()?, *signed),
            *big_endian,
        ),
        Datatype::Float { size, big_endian } => {
            let ([sign, exponent, bits], bias) = match size {
                4 => ([31, 23, 8], 127u32),
                8 => ([63, 52, 11], 1023),
                _ => return None,
            };
            let precision = 8 * *size as u8;
            // The highest bit of the mantissa is 1, and not stored.
            let mut message = front(1, 1, [0x20, sign, 0], *size);
            message.extend([0, 0, precision, 0, exponent, bits, 0, exponent]);
            message.extend(bias.to_le_bytes());
            ordered(message, *big_endian)
        }
        Datatype::Bitfield { size, big_endian } => {
            let mut message = front(1, 4, [0; 3], *size);
            message.extend([0, 0, 8 * u8::try_from(*size).ok()?, 0]);
            ordered(message, *big_endian)
        }
        Datatype::Opaque { size, tag } => {
            let len = tag.len().next_multiple_of(8);
            let mut message = front(1, 5, [u8::try_from(len).ok()?, 0, 0], *size);
            message.extend(tag.as_bytes());
            message.resize(message.len() + len - tag.len(), 0);
            message
        }
        Datatype::Text { size, utf8 } => text(*size, 1, *utf8),
        Datatype::VariableText => variable_text(),
        Datatype::Enumeration { base, members } => {
            let integer = message(base)?;
            let mut message = front(version, 8, number(members.len())?, base.size());
            message.extend(&integer);
            members
                .iter()
                .for_each(|(name, _)| push_name(&mut message, name));
            for (_, value) in members {
                let bytes = value.to_le_bytes();
                let mut bytes = bytes.get(..base.size() as usize)?.to_vec();
                if matches!(
                    **base,
                    Datatype::Integer {
                        big_endian: true,
                        ..
                    }
                ) {
                    bytes.reverse();
                }
                message.extend(bytes);
            }
            message
        }
        Datatype::Compound { size, members } => {
            // One that needs a higher version raises that of what is in it, and of those before it.
            let raised = members
                .iter()
                .position(|m| self::version(&m.datatype) > outer);
            let messages = members.iter().enumerate().map(|(at, member)| {
                let is_raised = raised.is_some_and(|raised| at <= raised);
                let version = if is_raised { version } else { outer };
                let Member { name, offset, .. } = member;
                let message = within(&member.datatype, version)?;
                Some((name.as_str(), *offset, message))
            });
            compound(version, *size, &messages.collect::<Option<Vec<_>>>()?)?
        }
        Datatype::Array { base, dims } => {
            let mut message = front(2, 10, [0; 3], datatype.size());
            message.extend([u8::try_from(dims.len()).ok()?, 0, 0, 0]);
            message.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
            // The order of the dimensions is always this one.
            message.extend((0..dims.len() as u32).flat_map(u32::to_le_bytes));
            message.extend(within(base, outer)?);
            message
        }
    })
}

/// That of a text of so many bytes, in this padding: 0 ends it with a zero, 1 fills it up with zeros.
pub fn text(size: u32, padding: u8, utf8: bool) -> Vec<u8> {
    front(1, 3, [padding | u8::from(utf8) << 4, 0, 0], size)
}

/// That of a text of variable length in UTF-8.
pub fn variable_text() -> Vec<u8> {
    const IS_TEXT: u8 = 1;
    const UTF8: u8 = 1;
    let mut message = front(1, 9, [IS_TEXT, UTF8, 0], IN_HEAP);
    message.extend(header::integer(1, false));
    message
}

/// That of a reference to an object.
pub fn reference() -> Vec<u8> {
    front(1, 7, [0; 3], 8)
}

/// That of lists of any length.
pub fn list_of(base: &[u8]) -> Vec<u8> {
    let mut message = front(1, 9, [0; 3], IN_HEAP);
    message.extend(base);
    message
}

/// That of a structure of so many bytes, whose members have names, offsets and messages.
pub fn compound(version: u8, size: u32, members: &[(&str, u32, Vec<u8>)]) -> Option<Vec<u8>> {
    /// What version 1 says of the dimensions of a member that has none.
    const NO_DIMENSIONS: [u8; 28] = [0; 28];
    let mut message = front(version, 6, number(members.len())?, size);
    for (name, offset, datatype) in members {
        push_name(&mut message, name);
        message.extend(offset.to_le_bytes());
        if version == 1 {
            message.extend(NO_DIMENSIONS);
        }
        message.extend(datatype);
    }
    Some(message)
}

/// Names are padded with zeros, of which one is there at least.
fn push_name(message: &mut Vec<u8>, name: &str) {
    let end = message.len() + (name.len() + 1).next_multiple_of(8);
    message.extend(name.as_bytes());
    message.resize(end, 0);
}

fn number(members: usize) -> Option<[u8; 3]> {
    let [low, high] = u16::try_from(members).ok()?.to_le_bytes();
    Some([low, high, 0])
}

fn version(datatype: &Datatype) -> u8 {
    match datatype {
        Datatype::Array { .. } => 2,
        Datatype::Compound { members, .. } => {
            let versions = members.iter().map(|member| version(&member.datatype));
            versions.max().unwrap_or(1)
        }
        _ => 1,
    }
}

fn front(version: u8, class: u8, bits: [u8; 3], size: u32) -> Vec<u8> {
    let mut message = vec![version << 4 | class];
    message.extend(bits);
    message.extend(size.to_le_bytes());
    message
}

fn ordered(message: impl Into<Vec<u8>>, big_endian: bool) -> Vec<u8> {
    let mut message = message.into();
    message[1] |= u8::from(big_endian);
    message
}

/// The type of the elements of a logged dataset as a journal has it, and why the writer cannot write elements of it, if it cannot.
/// The type is then one of as many bytes.
pub fn in_journal(of: &file::Datatype, filters: &[Filter]) -> (Datatype, Option<String>) {
    let mut why = None;
    let found = of_file(of).filter(|found| found.check().is_ok());
    if found.is_none() {
        why = Some(format!("the writer has no type for its elements, {of}"));
    } else if let Some(gap) = found.as_ref().filter(|found| found.packed() != **found) {
        why = Some(format!(
            "there are gaps between the members of its elements, {} bytes in all, and the writer writes none",
            gap.size() - gap.packed().size()
        ));
    } else if let Some(filter) = filters.iter().find(|filter| !filter.can_apply()) {
        why = Some(format!("the writer does not have filter {}", filter.id));
    }
    let bytes = || Datatype::Opaque {
        size: of.size,
        tag: String::new(),
    };
    match (found, &why) {
        (Some(found), None) => (found, None),
        _ => (bytes(), why),
    }
}

/// `None` where journals have no such type.
fn of_file(of: &file::Datatype) -> Option<Datatype> {
    let size = of.size;
    let is_whole = |bits: &Bits| bits.offset == 0 && u32::from(bits.precision) == 8 * size;
    Some(match &of.class {
        Class::Integer {
            signed,
            big_endian,
            bits,
        } if is_whole(bits) => Datatype::Integer {
            size,
            signed: *signed,
            big_endian: *big_endian,
        },
        Class::Float { big_endian, format }
            if size > 2 && FloatFormat::ieee(size) == Some(*format) =>
        {
            Datatype::Float {
                size,
                big_endian: *big_endian,
            }
        }
        Class::Bitfield { big_endian, bits } if is_whole(bits) => Datatype::Bitfield {
            size,
            big_endian: *big_endian,
        },
        Class::Opaque { tag } => Datatype::Opaque {
            size,
            tag: named(tag)?,
        },
        Class::Text {
            padding: Padding::NullPadded,
            utf8,
        } => Datatype::Text { size, utf8: *utf8 },
        Class::Enumeration { base, members } => {
            let base = of_file(base)?;
            let Datatype::Integer {
                big_endian, signed, ..
            } = base
            else {
                return None;
            };
            let members = members.iter().map(|(name, value)| {
                let mut bytes = value.clone();
                if big_endian {
                    bytes.reverse();
                }
                Some((named(name)?, number_of(&bytes, signed)?))
            });
            Datatype::Enumeration {
                members: members.collect::<Option<_>>()?,
                base: Box::new(base),
            }
        }
        Class::Compound { members } => {
            let members = members.iter().map(|member| {
                Some(Member {
                    name: named(&member.name)?,
                    offset: member.offset,
                    datatype: of_file(&member.datatype)?,
                })
            });
            Datatype::Compound {
                size,
                members: members.collect::<Option<_>>()?,
            }
        }
        Class::Array { base, dims } => Datatype::Array {
            base: Box::new(of_file(base)?),
            dims: dims.clone(),
        },
        _ => return None,
    })
}

/// A little-endian integer. One above 2^63 becomes its two's complement.
fn number_of(bytes: &[u8], signed: bool) -> Option<i64> {
    let is_negative = signed && bytes.last().is_some_and(|high| high & 0x80 != 0);
    let mut all = [if is_negative { 0xff } else { 0 }; 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(all))
}

fn named(name: &[u8]) -> Option<String> {
    String::from_utf8(name.to_vec()).ok()
}
