//! Type numbers (section 4.2), and elements in the metadata.

use crate::Result;
use crate::fields::Fields;
use crate::model::Type;

/// The number of an attribute with several texts.
pub(super) const TEXTS: u8 = 12;

/// The type with this number.
pub(super) fn of(number: u8) -> Result<Type> {
    Ok(match number {
        0 => Type::I8,
        1 => Type::I16,
        2 => Type::I32,
        4 => Type::I64,
        5 => Type::F32,
        6 => Type::F64,
        7 => Type::LongDouble,
        9 | TEXTS => Type::Text,
        10 => Type::Complex32,
        11 => Type::Complex64,
        50 => Type::U8,
        51 => Type::U16,
        52 => Type::U32,
        54 => Type::U64,
        55 => Type::Char,
        other => return Err(format!("type {other}, which is not known").into()),
    })
}

/// The next `count` elements.
pub(super) fn elements<'a>(fields: &mut Fields<'a>, ty: &Type, count: u64) -> Result<Fields<'a>> {
    if *ty != Type::Text {
        let len = ty.size().checked_mul(count).ok_or("too many elements")?;
        return fields.part(len);
    }
    let mut behind = fields.clone();
    for _ in 0..count {
        let len = behind.u16()?;
        behind.take(len.into())?;
    }
    fields.part((behind.at() - fields.at()) as u64)
}
