//! The dimensions of datasets: their names, and the dimension scales with their coordinates (HDF5 Dimension Scale
//! Specification 1.0). netCDF-4 keeps its dimensions so, too.

use std::collections::HashMap;

use super::dataset::Dataset;
use super::log::Metadata;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Attribute, Dataspace, LinkTarget, Objects, Value};

/// Start of the name that netCDF-4 gives a scale which is only a dimension, and has no coordinates.
const NO_COORDINATES: &str = "This is a netCDF dimension but not a netCDF variable";

/// A dimension of a dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dimension {
    /// The name.
    pub name: Option<String>,
    /// The address of the dataset with the coordinates; `None` where the dimension has none.
    pub coordinates: Option<u64>,
    /// The units of the coordinates.
    pub units: Option<String>,
}

/// The dimension scales of a log, each looked up once.
#[derive(Debug, Default)]
pub struct Scales {
    found: HashMap<u64, Dimension>,
}

impl Scales {
    /// The dimensions of a dataset, as many as it has. Fails where its attributes are damaged.
    pub fn of(&mut self, dataset: &Dataset) -> Result<Vec<Dimension>> {
        let log = dataset.log();
        let rank = dataset.shape().len();
        let mut dimensions = vec![Dimension::default(); rank];
        log.with(dataset.path(), |objects| {
            let own = dataset.address();
            if is_scale(objects, own)? {
                if rank == 1 {
                    dimensions[0] = self.scale(objects, dataset.path(), own)?;
                }
                return Ok(());
            }
            for (dimension, scale) in dimensions.iter_mut().zip(attached(objects, own)?) {
                if let Some(address) = scale {
                    *dimension = self.scale(objects, dataset.path(), address)?;
                }
            }
            for (dimension, label) in dimensions.iter_mut().zip(labels(objects, own)?) {
                let label = Some(label).filter(|label| !label.is_empty());
                dimension.name = dimension.name.take().or(label);
            }
            Ok(())
        })?;
        Ok(dimensions)
    }

    fn scale(
        &mut self,
        objects: &Objects<Metadata>,
        path: &str,
        address: u64,
    ) -> Result<Dimension, Fault> {
        if let Some(known) = self.found.get(&address) {
            return Ok(known.clone());
        }
        let name = text(objects, address, "NAME")?.filter(|name| !name.is_empty());
        let is_bare = (name.as_ref()).is_some_and(|name| name.starts_with(NO_COORDINATES));
        let found = Dimension {
            name: match name.filter(|_| !is_bare) {
                Some(name) => Some(name),
                None => link_name(objects, path, address)?,
            },
            coordinates: (!is_bare && is_line_of_numbers(objects, address)?).then_some(address),
            units: text(objects, address, "units")?,
        };
        self.found.insert(address, found.clone());
        Ok(found)
    }
}

/// A text attribute of a dataset, such as `units`; `None` where it has none of this name, or one that is no text.
pub fn text_of(dataset: &Dataset, name: &str) -> Result<Option<String>> {
    let log = dataset.log();
    log.with(dataset.path(), |objects| {
        text(objects, dataset.address(), name)
    })
}

/// The number in an attribute of a dataset, such as `missing_value`; the first, where it has several.
pub fn number_of(dataset: &Dataset, name: &str) -> Result<Option<f64>> {
    let log = dataset.log();
    log.with(dataset.path(), |objects| {
        let values = values(objects, dataset.address(), name)?;
        Ok(values.first().and_then(number))
    })
}

/// The number that a value is; `None` for anything but numbers.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

/// Whether a dataset is a dimension that has no coordinates, but only their number: a file of netCDF-4 has such a dataset
/// for each dimension without a variable.
pub fn is_bare_dimension(dataset: &Dataset) -> Result<bool> {
    let name = text_of(dataset, "NAME")?;
    Ok(name.is_some_and(|name| name.starts_with(NO_COORDINATES)))
}

fn values(objects: &Objects<Metadata>, address: u64, name: &str) -> Result<Vec<Value>, Fault> {
    match objects.attribute(address, name)? {
        Some(Attribute {
            datatype, bytes, ..
        }) => objects.values(&datatype, &bytes),
        None => Ok(Vec::new()),
    }
}

fn text(objects: &Objects<Metadata>, address: u64, name: &str) -> Result<Option<String>, Fault> {
    let values = values(objects, address, name)?;
    Ok(match values.first() {
        Some(Value::Text(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    })
}

fn is_scale(objects: &Objects<Metadata>, address: u64) -> Result<bool, Fault> {
    let class = text(objects, address, "CLASS")?;
    Ok(class.is_some_and(|class| class == "DIMENSION_SCALE"))
}

/// The first scale of each dimension: `DIMENSION_LIST`.
fn attached(objects: &Objects<Metadata>, address: u64) -> Result<Vec<Option<u64>>, Fault> {
    let first = |value: &Value| match value {
        Value::List(scales) => match scales.first() {
            Some(Value::Reference(address)) => *address,
            _ => None,
        },
        _ => None,
    };
    let lists = values(objects, address, "DIMENSION_LIST")?;
    Ok(lists.iter().map(first).collect())
}

/// The names that a dataset itself gives its dimensions: `DIMENSION_LABELS`.
fn labels(objects: &Objects<Metadata>, address: u64) -> Result<Vec<String>, Fault> {
    let label = |value: &Value| match value {
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    let labels = values(objects, address, "DIMENSION_LABELS")?;
    Ok(labels.iter().map(label).collect())
}

fn is_line_of_numbers(objects: &Objects<Metadata>, address: u64) -> Result<bool, Fault> {
    let info = objects.dataset(address)?;
    let is_line = matches!(&info.space, Dataspace::Simple { dims, .. } if dims.len() == 1);
    Ok(is_line && super::numbers::are_numbers(&info.datatype))
}

/// The name of the link to an object in the group of `path`, or in a group above.
fn link_name(
    objects: &Objects<Metadata>,
    path: &str,
    address: u64,
) -> Result<Option<String>, Fault> {
    let mut group = path;
    while let Some(slash) = group.rfind('/') {
        group = &group[..slash];
        let Some(found) = objects.find(group)? else {
            continue;
        };
        let links = objects.links(found)?;
        let leads = |target: &LinkTarget| matches!(target, LinkTarget::Hard(at) if *at == address);
        if let Some(link) = links.iter().find(|link| leads(&link.target)) {
            return Ok(Some(String::from_utf8_lossy(&link.name).into_owned()));
        }
    }
    Ok(None)
}
