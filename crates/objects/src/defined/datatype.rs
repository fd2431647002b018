//! Datatype messages (IV.A.2.d) of the types in definitions. Their versions are those that libhdf5 writes for its
//! oldest readers: version 2 for arrays and for types that contain an array, version 1 for all others.

use h5logfs_log::journal::datatype::{Datatype, Member};

use crate::written::header;

/// Bytes of an element in a heap: its length, and its place.
const IN_HEAP: u32 = 16;

/// The datatype message of a type; `None` if the type does not fit into a message.
pub fn message(datatype: &Datatype) -> Option<Vec<u8>> {
    within(datatype, 1)
}

/// The message of a type inside another message of version `outer`.
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
            // The highest bit of the mantissa is 1, and is not stored.
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
            // A member that needs a higher version raises the version of its own members, and of the members before it.
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
            // The permutation of the dimensions is always the identity.
            message.extend((0..dims.len() as u32).flat_map(u32::to_le_bytes));
            message.extend(within(base, outer)?);
            message
        }
    })
}

/// The message of a text of `size` bytes. `padding` 0 ends the text with a zero byte, and 1 pads it with zeros.
pub fn text(size: u32, padding: u8, utf8: bool) -> Vec<u8> {
    front(1, 3, [padding | u8::from(utf8) << 4, 0, 0], size)
}

/// The message of a variable-length text in UTF-8.
pub fn variable_text() -> Vec<u8> {
    const IS_TEXT: u8 = 1;
    const UTF8: u8 = 1;
    let mut message = front(1, 9, [IS_TEXT, UTF8, 0], IN_HEAP);
    message.extend(header::integer(1, false));
    message
}

/// The message of an object reference.
pub fn reference() -> Vec<u8> {
    front(1, 7, [0; 3], 8)
}

/// The message of a variable-length sequence.
pub fn list_of(base: &[u8]) -> Vec<u8> {
    let mut message = front(1, 9, [0; 3], IN_HEAP);
    message.extend(base);
    message
}

/// The message of a compound of `size` bytes. `members`: names, offsets and messages.
pub fn compound(version: u8, size: u32, members: &[(&str, u32, Vec<u8>)]) -> Option<Vec<u8>> {
    /// The dimension fields of a version-1 member without dimensions.
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

/// Adds a name. It ends with at least one zero byte, and is padded with zeros.
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
