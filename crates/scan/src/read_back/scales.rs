//! Dimension scales and labels in the form that the close writes.

use std::collections::HashMap;
use std::ffi::CString;

use super::Result;
use crate::hdf5_sys::{self as h5, Id, Space, Values};
use h5logfs_log::journal::scales::Scales;

/// The scales and labels of a dataset, from its attributes.
#[derive(Debug, Default)]
pub struct Stored {
    name: Option<String>,
    /// The addresses of the scales of each dimension.
    attached: Vec<Vec<u64>>,
    labels: Vec<String>,
}

/// The datatypes of scale attributes. An attribute of another type belongs to the user.
pub struct ScaleTypes {
    dimension_list: Id,
    text: Id,
}

impl ScaleTypes {
    pub fn new() -> Result<Self> {
        Ok(ScaleTypes {
            dimension_list: h5::sequence_type(&h5::object_reference_type()?)?,
            text: h5::variable_text_type()?,
        })
    }

    /// Reads the scales and labels of a dataset of rank `rank`. Also returns the names of its other attributes.
    pub fn read(
        &self,
        dataset: &Id,
        mut names: Vec<CString>,
        rank: usize,
    ) -> Result<(Stored, Vec<CString>)> {
        let mut stored = Stored::default();
        if names.iter().any(|name| name.as_c_str() == c"CLASS")
            && terminated_text(dataset, c"CLASS")?.as_deref() == Some("DIMENSION_SCALE")
        {
            // The uses of a scale follow from the datasets that it is attached to.
            names.retain(|name| ![c"CLASS", c"REFERENCE_LIST"].contains(&name.as_c_str()));
            let name = if names.iter().any(|name| name.as_c_str() == c"NAME") {
                terminated_text(dataset, c"NAME")?.filter(|name| !name.is_empty())
            } else {
                None
            };
            if name.is_some() {
                names.retain(|name| name.as_c_str() != c"NAME");
            }
            stored.name = Some(name.unwrap_or_default());
        }
        let mut take = |name: &std::ffi::CStr, datatype| {
            let at = names.iter().position(|found| found.as_c_str() == name);
            let Some(at) = at else {
                return Ok(None);
            };
            let values = of_dimensions(&h5::open_attribute(dataset, name)?, datatype, rank)?;
            if values.is_some() {
                names.remove(at);
            }
            Ok::<Option<Values>, String>(values)
        };
        if let Some(mut values) = take(c"DIMENSION_LIST", &self.dimension_list)? {
            stored.attached = values.sequences_of_references()?;
        }
        if let Some(values) = take(c"DIMENSION_LABELS", &self.text)? {
            stored.labels = values.texts()?;
        }
        Ok((stored, names))
    }
}

impl Stored {
    /// Replaces addresses of scales by IDs. `ids` maps the addresses of all datasets to their IDs.
    pub fn resolved(self, ids: &HashMap<u64, u32>) -> Result<Scales> {
        let id = |address: &u64| {
            let id = ids.get(address).copied();
            id.ok_or("a scale of one of its dimensions is not a dataset of the log")
        };
        let of_dimension = |of: &Vec<u64>| of.iter().map(id).collect();
        let attached = self.attached.iter().map(of_dimension);
        Ok(Scales {
            name: self.name,
            attached: attached.collect::<std::result::Result<_, _>>()?,
            labels: self.labels,
        })
    }
}

/// A text whose only zero byte is its last byte; `None` if the attribute is anything else.
fn terminated_text(dataset: &Id, name: &std::ffi::CStr) -> Result<Option<String>> {
    let attribute = h5::open_attribute(dataset, name)?;
    let datatype = h5::attribute_type(&attribute)?;
    if h5::committed(&datatype)?.is_some()
        || Space::of(&h5::attribute_space(&attribute)?)? != Space::scalar()
    {
        return Ok(None);
    }
    let size = u32::try_from(h5::type_size(&datatype)?)?;
    let values = h5::read_attribute(&attribute)?;
    let text = values.bytes().strip_suffix(b"\0");
    let text = text.and_then(|text| String::from_utf8(text.to_vec()).ok());
    let Some(text) = text.filter(|text| !text.contains('\0')) else {
        return Ok(None);
    };
    let wanted = h5::terminated_text_type(size, !text.is_ascii())?;
    Ok(h5::equal_types(&datatype, &wanted)?.then_some(text))
}

/// The values of an attribute with one element of this type for each dimension; `None` if the attribute is anything else.
fn of_dimensions(attribute: &Id, datatype: &Id, rank: usize) -> Result<Option<Values>> {
    let own = h5::attribute_type(attribute)?;
    let is_one = h5::committed(&own)?.is_none()
        && h5::equal_types(&own, datatype)?
        && Space::of(&h5::attribute_space(attribute)?)? == Space::fixed(&[rank as u64]);
    is_one.then(|| h5::read_attribute(attribute)).transpose()
}
