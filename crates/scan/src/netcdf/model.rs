//! The header of a netCDF classic file in netCDF's data model.

use crate::netcdf4::model::{Attribute, Dimension, Model, Value, Variable};
use h5logfs_log::netcdf::header::{self, Header};

/// The model of a file with `records` records.
pub fn model(header: &Header, records: u64) -> Model {
    let dimension = |dimension: &header::Dimension| {
        let is_unlimited = dimension.len == 0;
        Dimension {
            name: dimension.name.clone(),
            len: if is_unlimited { records } else { dimension.len },
            is_unlimited,
        }
    };
    let variable = |variable: &header::Variable| Variable {
        name: variable.name.clone(),
        dimensions: variable.dimensions.clone(),
        attributes: variable.attributes.iter().map(attribute).collect(),
        kind: variable.kind,
        // The view converts the elements.
        is_big_endian: false,
        fill: header.fill_of(variable),
        // In the file, elements that were never written are zeros.
        unwritten: [0; 8],
        unreadable: None,
    };
    Model {
        dimensions: header.dimensions.iter().map(dimension).collect(),
        attributes: header.attributes.iter().map(attribute).collect(),
        variables: header.variables.iter().map(variable).collect(),
        is_big_endian: false,
        // CDF-5 has types that are missing from the classic data model.
        is_classic: header.version != 5,
    }
}

fn attribute(attribute: &header::Attribute) -> Attribute {
    Attribute {
        name: attribute.name.clone(),
        value: Value::Plain {
            kind: attribute.kind,
            len: attribute.len,
            bytes: attribute.little_endian(),
        },
    }
}
