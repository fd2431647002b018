//! The header of the joined file (sections 8.1 to 8.4).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::collected::{Collected, First};
use super::{Axes, Joined};
use crate::netcdf::header::Type;
use crate::tiles::families::{self, Cut, Members};
use crate::tiles::member::{Attribute, Dimension, Value, Variable, attribute, lossy};
use crate::tiles::{self, Family};

/// The attribute in which FMS puts the name of the file.
const FILE_NAME: &[u8] = b"filename";

/// The lengths of the dimensions of the whole: the largest of all members where they are not decomposed. Records of which no file
/// has a byte do not count, because a header may claim any number.
pub fn lengths(collected: &Collected, cuts: &[Cut]) -> Vec<u64> {
    let all = 0..collected.dimensions.len();
    all.map(|number| {
        let cut = cuts.iter().find(|cut| cut.dimension == number);
        let members = 0..collected.marked.len();
        let is_unlimited = collected.dimensions[number].is_unlimited;
        let len = |member: usize| {
            let len = collected.len(member, number)?;
            let most = if is_unlimited {
                collected.held[member]
            } else {
                u64::MAX
            };
            Some(len.min(most))
        };
        let longest = members.filter_map(len).max();
        cut.map_or(longest.unwrap_or(0), |cut| cut.whole)
    })
    .collect()
}

/// The variables, as readers of the members need them.
pub fn variables(
    collected: &Collected,
    family: Family,
    members: &Members<'_>,
    cuts: &[Cut],
    axes: &Axes,
) -> Vec<tiles::Variable> {
    let variables = collected.variables.iter();
    variables
        .map(|variable| {
            let dims = axes.all(variable);
            tiles::Variable {
                name: lossy(&variable.name).into(),
                kind: variable.kind.number(),
                is_big_endian: variable.is_big_endian,
                holders: families::holders(family, &variable.name, &dims, members, cuts),
                dims,
            }
        })
        .collect()
}

/// The header, with these lengths of dimensions. Fails where the file would be too large.
pub fn header(
    collected: Collected,
    first: First,
    family: Family,
    joined: &OsStr,
    lens: &[u64],
) -> Result<Joined, String> {
    let mut total = 0u64;
    for variable in &collected.variables {
        let sides = variable.dimensions.iter().map(|d| lens[*d]);
        let bytes = sides.fold(variable.kind.size() as u64, u64::saturating_mul);
        total = total.saturating_add(bytes);
    }
    if total > i64::MAX as u64 {
        return Err("the joined file has 2^63 bytes or more".to_owned());
    }
    let dimensions = collected.dimensions.into_iter().zip(lens);
    let dimensions = dimensions.map(|(dimension, len)| Dimension {
        len: *len,
        ..dimension
    });
    let mut attributes = first.attributes;
    attributes.retain(|attribute| !families::goes(family, &attribute.name));
    if let Some(own) = attributes
        .iter_mut()
        .find(|a| family == Family::Fms && a.name == FILE_NAME)
    {
        own.value = Value::Text(joined.as_bytes().to_vec());
    }
    let mut variables = collected.variables;
    for variable in &mut variables {
        variable
            .attributes
            .retain(|attribute| !families::goes_of_variable(family, &attribute.name));
    }
    Ok(Joined {
        dimensions: dimensions.collect(),
        attributes,
        variables,
        is_classic: first.is_classic,
    })
}

/// The value of elements that no member has, little-endian, in the first bytes: `_FillValue` or `missing_value`, if it is one value
/// of the variable's type, else zeros.
pub fn gap_value(variable: &Variable) -> [u8; 8] {
    let of = |name: &str| {
        let found: &Attribute = attribute(&variable.attributes, name)?;
        let bytes = match (&found.value, variable.kind) {
            (Value::Text(bytes), Type::Char) => bytes,
            (Value::Numbers(kind, bytes), Type::Number(own)) if *kind == own => bytes,
            _ => return None,
        };
        (bytes.len() == variable.kind.size()).then_some(bytes)
    };
    let mut value = [0; 8];
    if let Some(bytes) = of("_FillValue").or_else(|| of("missing_value")) {
        value[..bytes.len()].copy_from_slice(bytes);
    }
    value
}
