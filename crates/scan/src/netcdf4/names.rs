//! Decides which variable is the scale of a dimension, and under what names variables are shown (section 9.3).

use std::collections::{HashMap, HashSet};

use super::model::Model;
use h5logfs_common::diagnostic::Diagnostic;

/// The prefix for a variable that shares the name of a dimension but is not its scale.
const NOT_A_COORDINATE: &[u8] = b"_nc4_non_coord_";

/// The datasets of the image.
pub(super) struct Plan {
    /// The numbers of the dimensions without a coordinate variable.
    pub placeholders: Vec<usize>,
    pub variables: Vec<ShownVariable>,
    /// The variables that cannot be shown.
    pub diagnostics: Vec<Diagnostic>,
}

/// A variable that is shown.
pub(super) struct ShownVariable {
    pub number: usize,
    pub name: Vec<u8>,
    /// The dimension of which this is the coordinate variable.
    pub scale_of: Option<usize>,
}

impl Plan {
    pub(super) fn of(model: &Model) -> Self {
        let dimensions = model.dimensions.iter().enumerate();
        let dimensions = dimensions.map(|(number, d)| (d.name.as_slice(), number));
        let dimensions: HashMap<&[u8], usize> = dimensions.collect();
        let mut taken: HashSet<Vec<u8>> = dimensions.keys().map(|name| name.to_vec()).collect();
        let mut has_coordinate = HashSet::new();
        let (mut variables, mut diagnostics) = (Vec::new(), Vec::new());
        for (number, variable) in model.variables.iter().enumerate() {
            let namesake = dimensions.get(variable.name.as_slice()).copied();
            let first = variable.dimensions.first().copied();
            let scale_of = namesake.filter(|_| namesake == first);
            let name = match (namesake, scale_of) {
                (Some(_), None) => [NOT_A_COORDINATE, &variable.name].concat(),
                _ => variable.name.clone(),
            };
            has_coordinate.extend(scale_of);
            if scale_of.is_some() || taken.insert(name.clone()) {
                variables.push(ShownVariable {
                    number,
                    name,
                    scale_of,
                });
            } else {
                diagnostics.push(Diagnostic::note(format!(
                    "variable {} is not shown: its name in netCDF-4, {}, is taken",
                    String::from_utf8_lossy(&variable.name),
                    String::from_utf8_lossy(&name)
                )));
            }
        }
        let all = 0..model.dimensions.len();
        Plan {
            placeholders: all.filter(|d| !has_coordinate.contains(d)).collect(),
            variables,
            diagnostics,
        }
    }
}
