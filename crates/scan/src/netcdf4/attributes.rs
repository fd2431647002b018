//! Attributes in their netCDF-4 form (section 9.4).

use std::collections::HashMap;
use std::ffi::CString;

use super::image::new_datatype;
use super::model::{Attribute, Value};
use crate::hdf5_sys::{self as h5, AttributeSpaces, Id, Name, Space};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_log::netcdf::header::Type;

type Result<T> = std::result::Result<T, Fault>;

/// Names that netCDF-4 and its readers reserve.
const RESERVED: [&[u8]; 8] = [
    b"CLASS",
    b"NAME",
    b"REFERENCE_LIST",
    b"DIMENSION_LIST",
    b"_Netcdf4Dimid",
    b"_Netcdf4Coordinates",
    b"_NCProperties",
    b"_nc3_strict",
];

/// Writes attributes. Thousands of them share a few types and spaces, so each type and space is made once.
pub(super) struct Attributes {
    spaces: AttributeSpaces,
    null: Id,
    /// Text types, by size and whether the text is UTF-8.
    texts: HashMap<(u32, bool), Id>,
    /// Types of numbers, by kind and byte order.
    numbers: Vec<(Type, bool, Id)>,
    integer: Id,
    is_big_endian: bool,
}

impl Attributes {
    /// `is_big_endian`: byte order of numeric attributes.
    pub(super) fn new(is_big_endian: bool) -> Result<Self> {
        Ok(Attributes {
            spaces: AttributeSpaces::new()?,
            null: Space::Null.create()?,
            texts: HashMap::new(),
            numbers: Vec::new(),
            integer: h5::integer_type(4, true, false)?,
            is_big_endian,
        })
    }

    /// The HDF5 type of a netCDF type in a byte order.
    pub(super) fn datatype(&mut self, kind: Type, is_big_endian: bool) -> Result<Id> {
        let mut known = self.numbers.iter();
        if let Some((_, _, known)) = known.find(|(k, big, _)| (*k, *big) == (kind, is_big_endian)) {
            return Ok(known.clone());
        }
        let new = new_datatype(kind, is_big_endian)?;
        self.numbers.push((kind, is_big_endian, new.clone()));
        Ok(new)
    }

    /// Writes the user's attributes of the file or of a variable. `of` names that object in messages.
    pub(super) fn user_attributes<'a>(
        &mut self,
        object: &Id,
        attributes: impl Iterator<Item = &'a Attribute>,
        of: &str,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<()> {
        for attribute in attributes {
            let name = String::from_utf8_lossy(&attribute.name);
            if RESERVED.contains(&attribute.name.as_slice()) {
                let text = format!("attribute {name} of {of} is not shown: netCDF-4 uses its name");
                diagnostics.push(Diagnostic::note(text));
                continue;
            }
            self.user_attribute(object, attribute)
                .map_err(|e| e.at(format_args!("attribute {name}")))?;
        }
        Ok(())
    }

    fn user_attribute(&mut self, object: &Id, attribute: &Attribute) -> Result<()> {
        let name = Name::ascii(&attribute.name);
        let (kind, len, bytes) = match &attribute.value {
            Value::Plain { kind, len, bytes } => (*kind, *len, bytes),
            Value::Texts(texts) => return self.texts(object, name, texts),
        };
        if len > 0 && kind == Type::Char {
            return self.text(object, &attribute.name, bytes);
        }
        let datatype = self.datatype(kind, self.is_big_endian)?;
        if len == 0 {
            return h5::write_plain_attribute(object, name, &datatype, &self.null, &[]);
        }
        let space = self.spaces.list(len)?;
        let bytes = ordered(bytes, kind, self.is_big_endian);
        h5::write_plain_attribute(object, name, &datatype, &space, &bytes)
    }

    fn texts(&mut self, object: &Id, name: Name<'_>, texts: &[Vec<u8>]) -> Result<()> {
        let space = match texts.len() {
            0 => self.null.clone(),
            len => self.spaces.list(len as u64)?,
        };
        let texts = texts
            .iter()
            .map(|text| CString::new(text.as_slice()).unwrap_or_default());
        h5::write_texts(object, name, &space, &texts.collect::<Vec<_>>())
    }

    /// Writes a text, which must not be empty. netCDF-C marks every text as ASCII, but h5netcdf then fails for UTF-8.
    pub(super) fn text(&mut self, object: &Id, name: &[u8], text: &[u8]) -> Result<()> {
        let size = u32::try_from(text.len())?;
        let utf8 = !text.is_ascii() && std::str::from_utf8(text).is_ok();
        let datatype = match self.texts.get(&(size, utf8)) {
            Some(known) => known.clone(),
            None => {
                let new = h5::terminated_text_type(size, utf8)?;
                self.texts.insert((size, utf8), new.clone());
                new
            }
        };
        h5::write_plain_attribute(
            object,
            Name::ascii(name),
            &datatype,
            &self.spaces.scalar,
            text,
        )
    }

    pub(super) fn number(&mut self, object: &Id, name: &str, number: i32) -> Result<()> {
        let (name, bytes) = (Name::ascii(name), number.to_le_bytes());
        h5::write_plain_attribute(object, name, &self.integer, &self.spaces.scalar, &bytes)
    }

    pub(super) fn numbers(&mut self, object: &Id, name: &str, numbers: &[usize]) -> Result<()> {
        let mut bytes = Vec::new();
        for number in numbers {
            let number = i32::try_from(*number)?;
            bytes.extend(number.to_le_bytes());
        }
        let space = self.spaces.list(numbers.len() as u64)?;
        h5::write_plain_attribute(object, Name::ascii(name), &self.integer, &space, &bytes)
    }
}

/// Little-endian values in the byte order of a type.
pub(super) fn ordered(values: &[u8], kind: Type, is_big_endian: bool) -> Vec<u8> {
    let mut values = values.to_vec();
    if is_big_endian {
        values
            .chunks_exact_mut(kind.size())
            .for_each(<[u8]>::reverse);
    }
    values
}
