//! Reads objects back as definitions, with libhdf5, so that tests can compare them with the original definitions. Objects that
//! definitions cannot describe are an error, except for the times of objects and the order of names in a group.

mod scales;
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CString;
use std::path::Path;

use crate::hdf5_sys::{self as h5, Id, Kind, Link, Space, Target};
use crate::layout_objects::{LayoutObjects, Owner, StubDataset};
use crate::logvol::{self, LogVolObjects};
use h5logfs_common::error::{Error, Result as CoreResult};
use h5logfs_common::fault::Fault;
use h5logfs_log::journal::datatype::Datatype;
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Definition, Outline};
use h5logfs_log::journal::value::Value;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use scales::{ScaleTypes, Stored};

type Result<T> = std::result::Result<T, Fault>;

/// The definitions that make the objects of the closed log `name` in `dir`.
fn of_closed(dir: &SourceDir, name: &Path) -> CoreResult<Vec<Definition>> {
    let path = dir.full_path(name);
    let bad = |fault: Fault| Error::of(&path, fault);
    let file = crate::open(&SourceFile::open(dir, name)?).map_err(bad)?;
    let mark = logvol::find_mark(&file).map_err(bad)?;
    let mark = mark.ok_or_else(|| bad("it is not a log".into()))?;
    let header = logvol::Header::read(&mark).map_err(bad)?;
    let used = header.datasets();
    of_file(&file, &LogVolObjects, used).map_err(bad)
}

/// The definitions that make the objects of a file in a layout. `used` is the number of IDs that datasets have ever had.
fn of_file(file: &Id, layout: &dyn LayoutObjects, used: i64) -> Result<Vec<Definition>> {
    let mut collector = Collector {
        file,
        layout,
        scale_types: ScaleTypes::new()?,
        seen: HashSet::new(),
        groups: Vec::new(),
        attributes: Vec::new(),
        datasets: BTreeMap::new(),
    };
    collector.collect()?;
    let definitions = collector.definitions(used)?;
    let mut outline = Outline::default();
    definitions.iter().try_for_each(|d| outline.add(d))?;
    Ok(definitions)
}

struct Collector<'a> {
    file: &'a Id,
    layout: &'a dyn LayoutObjects,
    scale_types: ScaleTypes,
    /// The addresses of the objects found so far.
    seen: HashSet<u64>,
    groups: Vec<Definition>,
    attributes: Vec<Definition>,
    /// The datasets by ID.
    datasets: BTreeMap<i64, Found>,
}

/// A logged dataset.
struct Found {
    /// The address of its stub dataset.
    address: u64,
    path: String,
    layout: DatasetLayout,
    scales: Stored,
}

/// A group whose links have not been followed yet.
struct Group {
    id: Id,
    /// The path without a slash at the end, so the root group has an empty path.
    path: String,
}

impl Collector<'_> {
    fn collect(&mut self) -> Result<()> {
        let root = h5::open_group(self.file, c"/")?;
        let root = self.group(root, String::new(), Owner::Root)?;
        let mut groups = vec![root];
        while let Some(group) = groups.pop() {
            groups.extend(self.links(&group)?);
        }
        Ok(())
    }

    /// Reads the objects that the links of a group lead to. Returns the groups among them.
    fn links(&mut self, group: &Group) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        for link in h5::links(&group.id)? {
            let Some(name) = self.layout.copied_link(&link.name, group.path.is_empty()) else {
                continue;
            };
            let path = format!("{}/{}", group.path, text(&name)?);
            let made = self.link(&link, &path);
            groups.extend(made.map_err(|e| e.at(format_args!("{path}")))?);
        }
        Ok(groups)
    }

    fn link(&mut self, link: &Link, path: &str) -> Result<Option<Group>> {
        let Target::Hard(address) = link.target else {
            return Err("it is a symbolic link".into());
        };
        if !self.seen.insert(address) {
            return Err("it is a second link to an object".into());
        }
        let object = h5::open_object(self.file, address)?;
        match h5::object_info(&object)?.kind {
            Kind::Datatype => Err("it is a committed datatype".into()),
            Kind::Dataset => self.dataset(&object, address, path).map(|()| None),
            Kind::Group => {
                let path = path.to_owned();
                self.groups.push(Definition::Group { path: path.clone() });
                self.group(object, path, Owner::Other).map(Some)
            }
        }
    }

    fn group(&mut self, id: Id, path: String, owner: Owner) -> Result<Group> {
        let creation = h5::group_creation(&id)?;
        if h5::orders_links(&creation)? {
            return Err("the group keeps the order of its links".into());
        }
        check_object(&id, &creation)?;
        let names = h5::attribute_names(&id)?;
        let object = if path.is_empty() { "/" } else { &path };
        self.attributes(&id, &names, owner, object)?;
        Ok(Group { id, path })
    }

    fn dataset(&mut self, id: &Id, address: u64, path: &str) -> Result<()> {
        let names = h5::attribute_names(id)?;
        let stub_dataset = self.layout.stub_dataset(id, &names)?;
        let stub_dataset = stub_dataset.ok_or("the elements of the dataset are not in the log")?;
        let creation = h5::dataset_creation(id)?;
        check_object(id, &creation)?;
        if !h5::has_usual_fill(&creation)? {
            return Err("the dataset has another fill time than usual, or no fill value".into());
        }
        let (scales, others) = self.scale_types.read(id, names, stub_dataset.dims.len())?;
        self.attributes(id, &others, Owner::StubDataset, path)?;
        let number = stub_dataset.id;
        let found = Found {
            address,
            path: path.to_owned(),
            layout: layout(id, &creation, stub_dataset)?,
            scales,
        };
        match self.datasets.insert(number, found) {
            None => Ok(()),
            Some(other) => Err(format!("it has the number of {}", other.path).into()),
        }
    }

    fn attributes(
        &mut self,
        object: &Id,
        names: &[CString],
        owner: Owner,
        path: &str,
    ) -> Result<()> {
        for stored in names {
            let Some(name) = self.layout.copied_attribute(stored.as_bytes(), owner) else {
                continue;
            };
            let name = text(&name)?;
            let value = h5::open_attribute(object, stored).and_then(|found| value(&found));
            let value = value.map_err(|e| e.at(format_args!("attribute {name}")))?;
            self.attributes.push(Definition::Attribute {
                object: path.to_owned(),
                name,
                value,
            });
        }
        Ok(())
    }

    /// All definitions. `used` is the number of IDs that datasets have ever had.
    fn definitions(self, used: i64) -> Result<Vec<Definition>> {
        let numbers = || self.datasets.keys().copied();
        if !numbers().eq(0..used) {
            let there = self.datasets.len();
            return Err(format!(
                "of {used} datasets that the log had it has {there}: some were removed"
            )
            .into());
        }
        let ids = self.datasets.values().map(|found| found.address);
        let ids: HashMap<u64, u32> = ids.zip(0..).collect();
        let defined = |found: Found| {
            let scales = found.scales.resolved(&ids);
            Ok(Defined {
                scales: scales.map_err(|fault| fault.at(&found.path))?,
                path: found.path,
                layout: found.layout,
                foreign: None,
            })
        };
        let datasets = self.datasets.into_values().map(defined);
        let datasets = datasets.collect::<Result<Vec<_>>>()?;
        let mut definitions = self.groups;
        definitions.extend(datasets.iter().map(definition));
        definitions.extend(self.attributes);
        definitions.extend(scale_definitions(&datasets));
        Ok(definitions)
    }
}

/// The definition of a dataset with its current extent, without scales and labels.
fn definition(defined: &Defined) -> Definition {
    Definition::Dataset {
        path: defined.path.clone(),
        layout: Box::new(defined.layout.clone()),
    }
}

/// The definitions of the scales and labels of all datasets. `datasets` are in the order of their IDs.
fn scale_definitions(datasets: &[Defined]) -> Vec<Definition> {
    let numbered = || (0u32..).zip(datasets);
    let scales = numbered().filter_map(|(dataset, defined)| {
        let name = defined.scales.name.clone()?;
        Some(Definition::Scale { dataset, name })
    });
    // A dataset must be a scale before it is attached.
    let mut definitions: Vec<Definition> = scales.collect();
    for (dataset, defined) in numbered() {
        for (dimension, scales) in (0u32..).zip(&defined.scales.attached) {
            definitions.extend(scales.iter().map(|scale| Definition::Attachment {
                dataset,
                dimension,
                scale: *scale,
            }));
        }
        let labels = (0u32..).zip(&defined.scales.labels);
        let labels = labels.filter(|(_, label)| !label.is_empty());
        definitions.extend(labels.map(|(dimension, label)| Definition::Label {
            dataset,
            dimension,
            label: label.clone(),
        }));
    }
    definitions
}

/// Fails if an object has a property that no definition can set.
fn check_object(id: &Id, creation: &Id) -> Result<()> {
    if h5::comment(id)?.is_some() {
        return Err("it has a comment".into());
    }
    if h5::orders_attributes(creation)? {
        return Err("it keeps the order of its attributes".into());
    }
    Ok(())
}

fn layout(id: &Id, creation: &Id, stub_dataset: StubDataset) -> Result<DatasetLayout> {
    let datatype = h5::dataset_type(id)?;
    let plain = h5::plain_type(&datatype)?;
    if plain != plain.packed() {
        return Err("its datatype has gaps".into());
    }
    let filters = stub_dataset.filters.transpose()?.unwrap_or_default();
    if let Some(filter) = filters.iter().find(|filter| !filter.can_apply()) {
        return Err(format!("the writer does not have filter {}", filter.id).into());
    }
    Ok(DatasetLayout {
        datatype: plain,
        dims: stub_dataset.dims,
        max_dims: stub_dataset.max_dims,
        chunk: stub_dataset.chunk.transpose()?,
        filters,
        fill: h5::fill_value(creation, &datatype)?,
    })
}

fn value(attribute: &Id) -> Result<Value> {
    let datatype = h5::plain_type(&h5::attribute_type(attribute)?)?;
    let Space::Simple { dims, .. } = Space::of(&h5::attribute_space(attribute)?)? else {
        return Err("it has a null dataspace".into());
    };
    let values = h5::read_attribute(attribute)?;
    if datatype != Datatype::VariableText {
        return Ok(Value::Elements {
            datatype,
            dims,
            bytes: values.bytes().to_vec(),
        });
    }
    let mut texts = values.texts()?;
    match dims.len() {
        0 => Ok(Value::Text(texts.pop().unwrap_or_default())),
        1 => Ok(Value::Texts(texts)),
        rank => Err(format!("it has texts of variable length in {rank} dimensions").into()),
    }
}

fn text(name: &[u8]) -> Result<String> {
    let name = String::from_utf8(name.to_vec());
    Ok(name.map_err(|e| format!("the name {:?} is not UTF-8", e.to_string()))?)
}
