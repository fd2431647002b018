//! netCDF's data model of the definitions (section 12), and the sources of the elements.

use std::sync::Arc;

use super::collected::Collected;
use crate::netcdf4::model::{self, Attribute, Dimension, Model, Variable};
use h5logfs_adios::model::Value;
use h5logfs_adios::scorpio::{Definition, NcType, Way};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_log::netcdf::header::Type;
use h5logfs_log::scorpio::{MapSource, Tables, VariableSource, Written, default_fill, number_type};

/// The error of a variable whose maps were left out (section 6.5).
const NO_MAPS: &str =
    "the file has no decomposition maps (SCORPIO was built with ADIOS_NO_DECOMPS)";

/// The model, and the tables without the files.
pub(super) struct Made {
    pub model: Model,
    pub tables: Tables,
}

/// Makes the model. Problems are added to `collected`.
pub(super) fn of(collected: &mut Collected, is_big_endian: bool) -> Made {
    let definitions = std::mem::take(&mut collected.definitions);
    let dimensions = definitions.dimensions.iter().enumerate();
    let dimensions = dimensions.map(|(number, dimension)| Dimension {
        name: dimension.name.clone().into_bytes(),
        len: match dimension.len {
            0 => collected.records.get(&number).copied().unwrap_or(0),
            len => len,
        },
        is_unlimited: dimension.len == 0,
    });
    let mut made = Made {
        model: Model {
            dimensions: dimensions.collect(),
            attributes: attributes(
                "the file",
                &definitions.attributes,
                is_big_endian,
                collected,
            ),
            variables: Vec::new(),
            is_big_endian,
            is_classic: false,
        },
        tables: Tables {
            groups: definitions.groups.clone(),
            maps: Vec::new(),
            ..Tables::default()
        },
    };
    for (id, step) in &collected.maps {
        if let Some(dims) = definitions.shapes.get(id) {
            let dims = dims.clone();
            made.tables.maps.push(MapSource {
                id: *id,
                dims,
                step: *step,
            });
        } else {
            let text = format!("decomposition {id}: it has no shape");
            collected.errors.push(text);
        }
    }
    for definition in definitions.in_order() {
        let (ty, dimensions) = match definition.form(&definitions) {
            Ok(form) => form,
            Err(fault) => {
                let name = &definition.name;
                collected.error(format!("variable {name} is left out: {fault}"));
                continue;
            }
        };
        let has_records = dimensions
            .first()
            .is_some_and(|first| definitions.dimensions[*first].len == 0);
        let variable = variable(definition, (ty, dimensions), is_big_endian, collected);
        let dims = made.model.dims(&variable);
        if bytes_of(&dims, ty).is_none() {
            let name = &definition.name;
            collected.error(format!(
                "variable {name} is left out: {dims:?} elements are too many"
            ));
            continue;
        }
        let is_refused = definitions.lacks_maps && definition.way == Some(Way::All);
        let unreadable = is_refused.then(|| NO_MAPS.to_owned());
        if let Some(reason) = &unreadable {
            collected.error(format!("{}: {reason}", definition.name));
        }
        made.tables.variables.push(VariableSource {
            name: definition.name.clone(),
            ty,
            has_records,
            fill: variable.unwritten,
            steps: Arc::new(collected.steps.remove(&definition.name).unwrap_or_default()),
            written: match definition.way {
                Some(Way::All) => Written::Frames,
                _ => Written::Puts(definition.memory_number),
            },
        });
        made.model.variables.push(Variable {
            unreadable,
            ..variable
        });
    }
    collected.definitions.problems = definitions.problems;
    made
}

/// Bytes of all elements; `None` where HDF5 cannot count them.
fn bytes_of(dims: &[u64], ty: NcType) -> Option<i64> {
    let size = ty.stored().size();
    let bytes = dims
        .iter()
        .try_fold(size, |all, side| all.checked_mul(*side));
    i64::try_from(bytes?).ok()
}

fn variable(
    definition: &Definition,
    (ty, dimensions): (NcType, Vec<usize>),
    is_big_endian: bool,
    collected: &mut Collected,
) -> Variable {
    let kind = match ty {
        NcType::Char => Type::Char,
        number => Type::Number(number_type(number)),
    };
    let name = &definition.name;
    let attributes = attributes(name, &definition.attributes, is_big_endian, collected);
    let own = attributes
        .iter()
        .find(|attribute| attribute.name == b"_FillValue");
    let own = own.and_then(|attribute| match &attribute.value {
        model::Value::Plain { kind, len, bytes } => Some((*kind, *len, bytes)),
        model::Value::Texts(_) => None,
    });
    // An empty text is the fill value 0 of characters.
    if let Some((of, count, _)) = own.filter(|(of, count, _)| *of != kind || *count > 1) {
        collected.note(format!(
            "{name}: its attribute _FillValue has {count} values of {of:?}, not one of {kind:?}: netCDF's own stands in its place"
        ));
    }
    let fill = match own.filter(|(of, count, _)| *of == kind && *count == 1) {
        Some((_, _, bytes)) => {
            let mut fill = [0; 8];
            fill[..bytes.len()].copy_from_slice(bytes);
            fill
        }
        None => default_fill(ty, false),
    };
    let mut unwritten = fill;
    if is_big_endian {
        unwritten[..kind.size()].reverse();
    }
    Variable {
        name: name.as_bytes().to_vec(),
        dimensions,
        attributes,
        kind,
        is_big_endian,
        fill,
        unwritten,
        unreadable: None,
    }
}

/// The attributes of the file or of a variable (section 7). `of` names it in messages.
fn attributes(
    of: &str,
    own: &[(String, Value)],
    is_big_endian: bool,
    collected: &mut Collected,
) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    for (name, value) in own {
        match attribute(name, value, is_big_endian) {
            Some(attribute) => attributes.push(attribute),
            None => {
                let text =
                    format!("attribute {name} of {of} is not shown: netCDF has no such values");
                collected.notes.push(Diagnostic::note(text));
            }
        }
    }
    attributes
}

fn attribute(name: &str, value: &Value, is_big_endian: bool) -> Option<Attribute> {
    let (kind, values) = match value {
        Value::Text(text) => {
            let text = text.split('\0').next().unwrap_or_default();
            (Type::Char, text.as_bytes().to_vec())
        }
        Value::Numbers { ty, bytes, .. } => {
            let kind = Type::Number(number_type(NcType::of_attribute(ty)?));
            let mut values = bytes.clone();
            if is_big_endian {
                values
                    .chunks_exact_mut(kind.size())
                    .for_each(<[u8]>::reverse);
            }
            (kind, values)
        }
        Value::Texts(_) => return None,
    };
    let len = values.len() / kind.size();
    values.len().is_multiple_of(kind.size()).then(|| Attribute {
        name: name.as_bytes().to_vec(),
        value: model::Value::Plain {
            kind,
            len: len as u64,
            bytes: values,
        },
    })
}
