//! An entry of the index of attributes (section 4.2).

use super::set::{Of, Set};
use super::types;
use crate::Result;
use crate::fields::Fields;
use crate::model::{Attribute, Type, Value};

/// Reads an entry. Subtracts the number of its texts from `most`.
pub(super) fn read(mut entry: Fields<'_>, most: &mut usize) -> Result<Attribute> {
    let _id = entry.u32()?;
    let _group = entry.text()?;
    let name = entry.text()?;
    let value = value(entry, most).map_err(|fault| fault.at(format!("attribute {name}")))?;
    Ok(Attribute {
        name: name.to_owned(),
        value,
    })
}

fn value(mut entry: Fields<'_>, most: &mut usize) -> Result<Value> {
    let _path = entry.text()?;
    let number = entry.u8()?;
    let ty = types::of(number)?;
    let _sets = entry.u64()?;
    let set = Set::read(&mut entry, &ty, Of::Attribute)?;
    let mut value = set.value.ok_or("it has no value")?;
    Ok(match (ty, number) {
        (Type::Text, types::TEXTS) => Value::Texts(texts(value, most)?),
        (Type::Text, _) => Value::Text(value.text()?.to_owned()),
        (ty, _) => Value::Numbers {
            // A single value and an array of one look the same.
            is_single: value.rest().len() as u64 == ty.size(),
            bytes: value.rest().to_vec(),
            ty,
        },
    })
}

fn texts(mut value: Fields<'_>, most: &mut usize) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    while !value.is_empty() {
        *most = most
            .checked_sub(1)
            .ok_or("more texts than its bytes stand for")?;
        texts.push(value.text()?.to_owned());
    }
    Ok(texts)
}
