//! Datatype messages (IV.A.2.d) of the types in definitions. Their versions are those that libhdf5 writes for its
//! oldest readers: version 2 for arrays and for types that contain an array, version 1 for all others.

use h5logfs_hdf5_format::filters::Filter;
use h5logfs_hdf5_format::written::datatype as messages;
use h5logfs_hdf5_format::{Bits, Class, Datatype as FileDatatype, FloatFormat, Padding};
use h5logfs_log::journal::datatype::{Datatype, Member};

/// The datatype message of a type. `None` if the type does not fit into a message.
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
        } => {
            let little = messages::integer(u8::try_from(*size).ok()?, *signed);
            messages::ordered(little, *big_endian)
        }
        Datatype::Float { size, big_endian } => {
            messages::ordered(messages::float(*size)?, *big_endian)
        }
        Datatype::Bitfield { size, big_endian } => {
            let little = messages::bitfield(u8::try_from(*size).ok()?);
            messages::ordered(little, *big_endian)
        }
        Datatype::Opaque { size, tag } => messages::opaque(*size, tag)?,
        Datatype::Text { size, utf8 } => messages::text(*size, messages::ZERO_PADDED, *utf8),
        Datatype::VariableText => messages::variable_text(),
        Datatype::Enumeration { base, members } => {
            let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
            let mut values = Vec::new();
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
                values.extend(bytes);
            }
            messages::enumeration(version, base.size(), &message(base)?, &names, &values)?
        }
        Datatype::Compound { size, members } => {
            // A member that needs a higher version raises the version of its own members, and of the members before it.
            let raised = members
                .iter()
                .position(|m| self::version(&m.datatype) > outer);
            let of_members = members.iter().enumerate().map(|(at, member)| {
                let is_raised = raised.is_some_and(|raised| at <= raised);
                let version = if is_raised { version } else { outer };
                let Member { name, offset, .. } = member;
                let message = within(&member.datatype, version)?;
                Some((name.as_str(), *offset, message))
            });
            messages::compound(version, *size, &of_members.collect::<Option<Vec<_>>>()?)?
        }
        Datatype::Array { base, dims } => {
            messages::array(datatype.size(), dims, &within(base, outer)?)?
        }
    })
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

/// The element type of a logged dataset in the form of a journal, with the reason why the writer cannot write such elements, if
/// it cannot. In that case the type is an opaque one of the same size.
pub fn in_journal(of: &FileDatatype, filters: &[Filter]) -> (Datatype, Option<String>) {
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

/// The type in the form of a journal; `None` if journals cannot express it.
fn of_file(of: &FileDatatype) -> Option<Datatype> {
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

/// The value of a little-endian integer. An unsigned value of 2^63 or more wraps to its two's complement.
fn number_of(bytes: &[u8], signed: bool) -> Option<i64> {
    let is_negative = signed && bytes.last().is_some_and(|high| high & 0x80 != 0);
    let mut all = [if is_negative { 0xff } else { 0 }; 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(all))
}

fn named(name: &[u8]) -> Option<String> {
    String::from_utf8(name.to_vec()).ok()
}
