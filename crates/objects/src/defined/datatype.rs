//! Datatype messages (IV.A.2.d) of the types in definitions. Their versions are those that libhdf5 writes for its
//! oldest readers: version 2 for arrays and for types that contain an array, version 1 for all others.

use h5logfs_hdf5_format::written::datatype as messages;
use h5logfs_log::journal::datatype::{Datatype, Member};

/// The datatype message of a type. `None` where it does not fit one.
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
