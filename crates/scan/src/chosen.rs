//! Adds the dimension scales to a choice of datasets. netCDF does not open a file in which a dataset's list of scales
//! contains null references.

use std::collections::HashSet;

use super::original::Original;
use crate::hdf5_sys::{self as h5, Id, Kind, Target};
use h5logfs_common::fault::Fault;
use h5logfs_log::scan::Choice;

type Result<T> = std::result::Result<T, Fault>;

/// The choice, extended by the scales of all its datasets.
pub fn with_scales(original: Original<'_>, choice: &Choice) -> Result<Choice> {
    if choice.has_all() {
        return Ok(choice.clone());
    }
    let mut scales = HashSet::new();
    visit_datasets(original, &|path| choice.has(path), &mut |_, _, dataset| {
        // Unreadable attributes are reported by the copy.
        scales.extend(scales_of(dataset).unwrap_or_default());
    })?;
    let mut paths = Vec::new();
    visit_datasets(original, &|_| true, &mut |path, address, _| {
        if scales.remove(&address) {
            paths.push(path.to_owned());
        }
    })?;
    Ok(choice.with_objects(paths))
}

/// Calls `visit` with path, address and dataset of each dataset whose links `enters` allows. Objects that cannot be
/// opened are skipped, because the copy reports them.
fn visit_datasets(
    original: Original<'_>,
    enters: &dyn Fn(&str) -> bool,
    visit: &mut dyn FnMut(&str, u64, &Id),
) -> Result<()> {
    let mut known = HashSet::new();
    let mut groups = vec![(h5::open_group(original.file, c"/")?, String::new())];
    while let Some((group, above)) = groups.pop() {
        for link in h5::links(&group).unwrap_or_default() {
            let Target::Hard(address) = link.target else {
                continue;
            };
            let Some(name) = original.layout.copied_link(&link.name, above.is_empty()) else {
                continue;
            };
            let path = format!("{above}/{}", String::from_utf8_lossy(&name));
            if !enters(&path) || !known.insert(address) {
                continue;
            }
            let Ok(object) = h5::open_object(original.file, address) else {
                continue;
            };
            match h5::object_info(&object).map(|info| info.kind) {
                Ok(Kind::Dataset) => visit(&path, address, &object),
                Ok(Kind::Group) => groups.push((object, path)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The addresses of the scales of a dataset's dimensions.
fn scales_of(dataset: &Id) -> Result<Vec<u64>> {
    let Some(attribute) = h5::find_attribute(dataset, c"DIMENSION_LIST")? else {
        return Ok(Vec::new());
    };
    let wanted = h5::sequence_type(&h5::object_reference_type()?)?;
    if !h5::equal_types(&h5::attribute_type(&attribute)?, &wanted)? {
        return Ok(Vec::new());
    }
    let mut values = h5::read_attribute(&attribute)?;
    Ok(values.sequences_of_references()?.concat())
}
