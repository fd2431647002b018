//! Element types of FFS and of BP5 (sections 3.6 and 3.7).

use super::ffs::Struct;
use crate::Result;
use crate::model::{Member, StructType, Type};

/// The number of struct types. They have an id as well.
pub(super) const STRUCT: u32 = 16;

/// The type with a number of section 3.7; `None` for struct types, which need their id.
pub(super) fn of_number(number: u32) -> Option<Type> {
    Some(match number {
        1 => Type::I8,
        2 => Type::I16,
        3 => Type::I32,
        4 => Type::I64,
        5 => Type::U8,
        6 => Type::U16,
        7 => Type::U32,
        8 => Type::U64,
        9 => Type::F32,
        10 => Type::F64,
        11 => Type::LongDouble,
        12 => Type::Complex32,
        13 => Type::Complex64,
        14 => Type::Text,
        15 => Type::Char,
        _ => return None,
    })
}

/// The type of a field of FFS.
pub(super) fn of_field(ty: &str, size: u32) -> Option<Type> {
    Some(match (ty, size) {
        ("integer", 1) => Type::I8,
        ("integer", 2) => Type::I16,
        ("integer", 4) => Type::I32,
        ("integer", 8) => Type::I64,
        ("unsigned integer", 1) => Type::U8,
        ("unsigned integer", 2) => Type::U16,
        ("unsigned integer", 4) => Type::U32,
        ("unsigned integer", 8) => Type::U64,
        ("float", 4) => Type::F32,
        ("float", 8) => Type::F64,
        ("float", 16) => Type::LongDouble,
        ("complex4", 8) => Type::Complex32,
        ("complex8", 16) => Type::Complex64,
        ("string", _) => Type::Text,
        ("char", 1) => Type::Char,
        _ => return None,
    })
}

/// The struct type that an FFS struct describes.
pub(super) fn members(of: &Struct<'_>) -> Result<StructType> {
    let members = of.fields.iter().map(|field| {
        let wrong = || {
            format!(
                "member {:?} of struct {:?}: {:?} of {} bytes cannot be the type of a member",
                field.name, of.name, field.ty, field.size
            )
        };
        let (ty, count) = match field.ty.split_once('[') {
            None => (field.ty, None),
            Some((ty, count)) => {
                let count = count
                    .strip_suffix(']')
                    .and_then(|count| count.parse::<u32>().ok());
                (ty, Some(count.ok_or_else(wrong)?))
            }
        };
        let ty = of_field(ty, field.size)
            .filter(|ty| *ty != Type::Text)
            .ok_or_else(wrong)?;
        let len = field.size.checked_mul(count.unwrap_or(1));
        let end = len.and_then(|len| field.offset.checked_add(len));
        if end.is_none_or(|end| end > of.len) || count == Some(0) {
            return Err(wrong().into());
        }
        Ok(Member {
            name: field.name.to_owned(),
            offset: field.offset,
            ty,
            count,
        })
    });
    Ok(StructType {
        size: of.len,
        members: members.collect::<Result<_>>()?,
    })
}
