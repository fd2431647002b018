//! Attributes, as netCDF-4 has them (section 9.4).

use std::collections::HashMap;

use super::new_datatype;
use crate::hdf5_sys::{self as h5, Id, Space};
use h5logfs_core::diagnostic::Diagnostic;
use h5logfs_core::log::netcdf::header::{Attribute, Type};

type Result<T> = std::result::Result<T, String>;

/// Names that netCDF-4 and its readers keep for themselves.
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

/// Writes attributes. Thousands of them have the same few types and extents, which are made once.
pub(super) struct Attributes {
    scalar: Id,
    null: Id,
    /// Of one dimension, by extent.
    lists: HashMap<u64, Id>,
    /// By size, and whether they are UTF-8.
    texts: HashMap<(u32, bool), Id>,
    numbers: Vec<(Type, Id)>,
    integer: Id,
    /// A sequence of references to objects.
    scales: Id,
    /// A reference to an object, and the position of a dimension in it.
    user: Id,
}

/// Bytes of the type of one use of a dimension: a reference, a position, and what C puts behind them.
const USER: u32 = 16;

impl Attributes {
    pub(super) fn new() -> Result<Self> {
        let reference = h5::object_reference_type()?;
        let integer = h5::integer_type(4, true, false)?;
        let members = [
            ("dataset", 0, reference.clone()),
            ("dimension", 8, integer.clone()),
        ];
        Ok(Attributes {
            scalar: simple(Vec::new())?,
            null: Space::Null.create()?,
            lists: HashMap::new(),
            texts: HashMap::new(),
            numbers: Vec::new(),
            user: h5::compound_type(USER, &members)?,
            scales: h5::sequence_type(&reference)?,
            integer,
        })
    }

    /// The HDF5 type of variables and attributes of a type.
    pub(super) fn datatype(&mut self, kind: Type) -> Result<Id> {
        if let Some((_, known)) = self.numbers.iter().find(|(k, _)| *k == kind) {
            return Ok(known.clone());
        }
        let new = new_datatype(kind)?;
        self.numbers.push((kind, new.clone()));
        Ok(new)
    }

    /// All attributes of the file, or of a variable, that can be shown. `of`: whose they are.
    pub(super) fn own(
        &mut self,
        object: &Id,
        attributes: &[Attribute],
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
            self.one(object, attribute)
                .map_err(|e| format!("attribute {name}: {e}"))?;
        }
        Ok(())
    }

    fn one(&mut self, object: &Id, attribute: &Attribute) -> Result<()> {
        let name = attribute.name.as_slice();
        if attribute.len == 0 {
            let datatype = self.datatype(attribute.kind)?;
            return h5::write_plain_attribute(object, (name, false), &datatype, &self.null, &[]);
        }
        if attribute.kind == Type::Char {
            return self.text(object, name, &attribute.values);
        }
        let datatype = self.datatype(attribute.kind)?;
        let space = self.list(attribute.len)?;
        let values = attribute.little_endian();
        h5::write_plain_attribute(object, (name, false), &datatype, &space, &values)
    }

    /// A text, which is not empty. netCDF-C calls it ASCII in all cases; h5netcdf believes that.
    pub(super) fn text(&mut self, object: &Id, name: &[u8], text: &[u8]) -> Result<()> {
        let size = u32::try_from(text.len()).map_err(|e| e.to_string())?;
        let utf8 = !text.is_ascii() && std::str::from_utf8(text).is_ok();
        let datatype = match self.texts.get(&(size, utf8)) {
            Some(known) => known.clone(),
            None => {
                let new = h5::terminated_text_type(size, utf8)?;
                self.texts.insert((size, utf8), new.clone());
                new
            }
        };
        h5::write_plain_attribute(object, (name, false), &datatype, &self.scalar, text)
    }

    /// A text with a zero behind it.
    pub(super) fn title(&mut self, object: &Id, name: &str, text: &[u8]) -> Result<()> {
        self.text(object, name.as_bytes(), &[text, b"\0"].concat())
    }

    pub(super) fn number(&mut self, object: &Id, name: &str, number: i32) -> Result<()> {
        let (name, bytes) = ((name.as_bytes(), false), number.to_le_bytes());
        h5::write_plain_attribute(object, name, &self.integer, &self.scalar, &bytes)
    }

    pub(super) fn numbers(&mut self, object: &Id, name: &str, numbers: &[usize]) -> Result<()> {
        let mut bytes = Vec::new();
        for number in numbers {
            let number = i32::try_from(*number).map_err(|e| e.to_string())?;
            bytes.extend(number.to_le_bytes());
        }
        let space = self.list(numbers.len() as u64)?;
        let name = (name.as_bytes(), false);
        h5::write_plain_attribute(object, name, &self.integer, &space, &bytes)
    }

    /// The scales of a variable, one for each of its dimensions.
    pub(super) fn dimension_list(&mut self, object: &Id, scales: &[u64]) -> Result<()> {
        let references: Vec<_> = scales.iter().map(|scale| scale.to_ne_bytes()).collect();
        let items: Vec<&[u8]> = references.iter().map(|r| r.as_slice()).collect();
        let space = self.list(items.len() as u64)?;
        h5::write_sequences(
            object,
            (b"DIMENSION_LIST", false),
            &self.scales,
            &space,
            &items,
        )
    }

    /// The users of a scale: their addresses, and in which of their dimensions they use it.
    pub(super) fn reference_list(&mut self, object: &Id, uses: &[(u64, u32)]) -> Result<()> {
        let mut bytes = Vec::with_capacity(uses.len() * USER as usize);
        for (address, position) in uses {
            bytes.extend(address.to_ne_bytes());
            bytes.extend(position.to_le_bytes());
            bytes.extend([0; 4]);
        }
        let space = self.list(uses.len() as u64)?;
        let name: (&[u8], bool) = (b"REFERENCE_LIST", false);
        h5::write_plain_attribute(object, name, &self.user, &space, &bytes)
    }

    fn list(&mut self, len: u64) -> Result<Id> {
        if let Some(known) = self.lists.get(&len) {
            return Ok(known.clone());
        }
        let new = simple(vec![len])?;
        self.lists.insert(len, new.clone());
        Ok(new)
    }
}

fn simple(dims: Vec<u64>) -> Result<Id> {
    let max = dims.clone();
    Space::Simple { dims, max }.create()
}
