//! The extents of the logged datasets of an unclosed log, and the extents that unflushed data need. A program that writes past
//! the end of a dataset has extended it first, but only a flush records the new extent.

use std::collections::HashMap;

use crate::metadata_image::limits;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::{Dataspace, LinkTarget, ObjectKind, Objects};
use h5logfs_log::journal::Recorded;
use h5logfs_log::logvol::Tables;
use h5logfs_log::model::Selections;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::{Layout, Logged};
use h5logfs_objects::defined::metadata_image;

type Result<T> = std::result::Result<T, Fault>;

/// The extent of a logged dataset, with the facts that its growth depends on.
pub struct Extended {
    pub id: u32,
    pub name: String,
    pub dims: Vec<u64>,
    max_dims: Vec<Option<u64>>,
    element_size: u64,
    filtered: bool,
}

impl Extended {
    /// Enlarges an extent until it contains a block that ends at `end`, within the limits of the dataset.
    fn grow(&self, dims: &mut [u64], end: &[u64]) {
        for ((dim, end), max) in dims.iter_mut().zip(end).zip(&self.max_dims) {
            *dim = (*dim).max(max.map_or(*end, |max| max.min(*end)));
        }
    }

    fn logged(&self) -> Logged<'_> {
        Logged {
            id: self.id.into(),
            dims: &self.dims,
            element_size: self.element_size,
            filtered: self.filtered,
        }
    }
}

/// The logged datasets of a log.
pub fn logged(journal: &Recorded) -> Result<Vec<Extended>> {
    let metadata_image = metadata_image(journal)?;
    let objects = Objects::open(&metadata_image.image)?;
    let paths = paths(&objects)?;
    let mut found = Vec::new();
    for (id, header) in &metadata_image.logged {
        let Some(header) = header else { continue };
        let dataset = objects.dataset(*header)?;
        let Dataspace::Simple { dims, max_dims } = dataset.space else {
            continue;
        };
        let name = paths.get(header).cloned();
        found.push(Extended {
            id: *id,
            name: name.unwrap_or_else(|| format!("dataset {id}")),
            dims,
            max_dims: limits(&max_dims),
            element_size: dataset.datatype.size.into(),
            filtered: !dataset.filters.is_empty(),
        });
    }
    Ok(found)
}

/// A path of each object that hard links lead to, by the address of its header.
fn paths(objects: &Objects<&Vec<u8>>) -> Result<HashMap<u64, String>> {
    let mut paths = HashMap::from([(objects.root(), String::new())]);
    let mut groups = vec![objects.root()];
    while let Some(group) = groups.pop() {
        let parent = paths.get(&group).cloned().unwrap_or_default();
        for link in objects.links(group)? {
            let LinkTarget::Hard(address) = link.target else {
                continue;
            };
            if paths.contains_key(&address) {
                continue;
            }
            let name = String::from_utf8_lossy(&link.name);
            paths.insert(address, format!("{parent}/{name}"));
            if objects.kind(address)? == ObjectKind::Group {
                groups.push(address);
            }
        }
    }
    Ok(paths)
}

/// The datasets that have to grow for new records, with their new extents. `is_new` decides from the source and offset of its
/// data whether a record is new.
pub fn larger<'a>(
    tables: &Tables,
    sources: &[SourceFile],
    datasets: &'a [Extended],
    is_new: impl Fn(u16, u64) -> bool,
) -> Result<Vec<(&'a Extended, Vec<u64>)>> {
    let logged: Vec<Logged<'_>> = datasets.iter().map(Extended::logged).collect();
    let task = Task::unlimited();
    let table = tables.read_tables(&task, sources, &logged)?;
    if let Some(diagnostic) = table.diagnostics().first() {
        return Err(diagnostic.to_string().into());
    }
    let selections = Selections::default();
    let mut found = Vec::new();
    for (dataset, logged) in datasets.iter().zip(&logged) {
        let mut dims = dataset.dims.clone();
        let records = table.records(&task, sources, logged, &selections)?.records;
        let mut cells = Vec::new();
        for number in 0..records.len() {
            let record = records.get(number, &mut cells);
            if is_new(record.stored.source, record.stored.offset) {
                dataset.grow(&mut dims, &record.bounds().end);
            }
        }
        if dims != dataset.dims {
            found.push((dataset, dims));
        }
    }
    Ok(found)
}
