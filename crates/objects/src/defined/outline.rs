//! The outline of a metadata image: the facts about its objects that a program needs before its definitions add to them.
//!
//! An HDF5 program may have made any kind of object. An object whose name no definition can express, such as a name that is not
//! UTF-8, is left out. An object that no definition can describe keeps only its name.

use std::collections::{HashMap, VecDeque};

use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Existing, Other, Outline};
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::journal::scales::Scales;

use super::datatype;
use crate::Result;
use h5logfs_hdf5_format::{
    Attribute, Class, DatasetInfo, Dataspace, Layout, LinkTarget, Object, Objects, UNLIMITED, Value,
};

/// The outline of the objects of an image.
pub fn outline(image: &MetadataImage) -> Result<Outline> {
    let mut outline = Outline::default();
    let mut found = Found::of(image)?;
    found.walk(&mut outline)?;
    found.add_scales(&mut outline);
    outline.set_ids(image.ids());
    Ok(outline)
}

struct Found<'a> {
    objects: Objects<&'a Vec<u8>>,
    /// The IDs of the logged datasets, by the addresses of their headers.
    ids: HashMap<u64, u32>,
    /// The paths of the objects, by the addresses of their headers. The root group has an empty path.
    paths: HashMap<u64, String>,
    /// For each dataset by ID, the addresses of the scales of its dimensions.
    scales: Vec<(u32, Vec<Vec<u64>>)>,
}

impl<'a> Found<'a> {
    fn of(image: &'a MetadataImage) -> Result<Self> {
        let logged = image.logged.iter();
        let ids = logged.filter_map(|(id, header)| Some(((*header)?, *id)));
        let objects = Objects::open(&image.image)?;
        Ok(Found {
            paths: HashMap::from([(objects.root(), String::new())]),
            objects,
            ids: ids.collect(),
            scales: Vec::new(),
        })
    }

    /// Visits all groups, the ones with the fewest names in their path first.
    fn walk(&mut self, outline: &mut Outline) -> Result<()> {
        let root = self.objects.root();
        let attributes = self.objects.attributes(root)?;
        outline.add_existing("/", Existing::Group, names(&attributes));
        let mut groups = VecDeque::from([root]);
        // Links to objects with other paths, and links that lead nowhere.
        let mut others = Vec::new();
        while let Some(group) = groups.pop_front() {
            let parent = self.paths.get(&group).cloned().unwrap_or_default();
            for link in self.objects.links(group)? {
                let Ok(name) = String::from_utf8(link.name) else {
                    continue;
                };
                let path = format!("{parent}/{name}");
                match link.target {
                    LinkTarget::Hard(address) if !self.paths.contains_key(&address) => {
                        self.paths.insert(address, path.clone());
                        if self.object(outline, address, &path)? {
                            groups.push_back(address);
                        }
                    }
                    LinkTarget::Hard(address) => others.push((path, Some(address))),
                    LinkTarget::Soft(target) => {
                        let target = String::from_utf8_lossy(&target);
                        let target = if target.starts_with('/') {
                            target.into_owned()
                        } else {
                            format!("{parent}/{target}")
                        };
                        // A link that leads nowhere still takes the path: an HDF5 program may create its target later.
                        others.push((path, self.objects.find(target).ok().flatten()));
                    }
                    LinkTarget::External { .. } | LinkTarget::Other(_) => others.push((path, None)),
                }
            }
        }
        for (path, address) in others {
            let object = address.and_then(|address| self.paths.get(&address));
            let object = object.map(|object| match &object[..] {
                "" => "/".to_owned(),
                object => object.to_owned(),
            });
            outline.add_link(path, object);
        }
        Ok(())
    }

    /// Adds an object. Returns whether it is a group.
    fn object(&mut self, outline: &mut Outline, address: u64, path: &str) -> Result<bool> {
        let object = self.objects.object(address)?;
        let attributes = match object {
            // Definitions cannot set attributes of committed types.
            Object::Datatype(_) => Vec::new(),
            _ => self.objects.attributes(address)?,
        };
        let is_group = matches!(object, Object::Group);
        let existing = match object {
            Object::Group => Existing::Group,
            Object::Datatype(_) => Existing::Other(Other::CommittedDatatype),
            Object::Dataset(info) => match self.ids.get(&address).copied() {
                Some(id) => self.logged(id, path, info, &attributes),
                None => Existing::Other(Other::DatasetNotLogged),
            },
        };
        outline.add_existing(path, existing, names(&attributes));
        Ok(is_group)
    }

    fn logged(
        &mut self,
        id: u32,
        path: &str,
        info: DatasetInfo,
        attributes: &[Attribute],
    ) -> Existing {
        let Dataspace::Simple { dims, max_dims } = info.space else {
            return Existing::Other(Other::DatasetWithoutExtent);
        };
        let named = |name: &[u8]| attributes.iter().find(|a| a.name == name);
        let text = |name| text(&self.objects, named(name)?);
        let is_scale = text(b"CLASS").is_some_and(|class| class == "DIMENSION_SCALE");
        let labels = named(b"DIMENSION_LABELS").and_then(|a| labels(&self.objects, a, dims.len()));
        let scales = Scales {
            name: is_scale.then(|| text(b"NAME").unwrap_or_default()),
            attached: Vec::new(),
            labels: labels.unwrap_or_default(),
        };
        let attached = named(b"DIMENSION_LIST").and_then(|a| lists(&self.objects, a, dims.len()));
        if let Some(attached) = attached {
            self.scales.push((id, attached));
        }
        let (element, foreign) = datatype::in_journal(&info.datatype, &info.filters);
        let limit = |max: &u64| (*max != UNLIMITED).then_some(*max);
        let layout = DatasetLayout {
            datatype: element,
            dims,
            max_dims: max_dims.iter().map(limit).collect(),
            chunk: match info.layout {
                Layout::Chunked { chunk, .. } => Some(chunk),
                _ => None,
            },
            filters: info.filters.into_iter().map(Filter::skippable).collect(),
            fill: info.fill.unwrap_or_default(),
        };
        Existing::Logged(
            id,
            Box::new(Defined {
                path: path.to_owned(),
                layout,
                scales,
                foreign: foreign.map(String::into_boxed_str),
            }),
        )
    }

    /// Adds the scales of dimensions to the datasets of the outline. A scale that is not logged has no ID; a placeholder records
    /// that it exists.
    fn add_scales(self, outline: &mut Outline) {
        const NOT_LOGGED: u32 = u32::MAX;
        let id = |address: &u64| self.ids.get(address).copied().unwrap_or(NOT_LOGGED);
        for (dataset, attached) in self.scales {
            let attached = attached.iter().map(|of| of.iter().map(id).collect());
            if let Some(defined) = outline.datasets.get_mut(dataset as usize) {
                defined.scales.attached = attached.collect();
            }
        }
    }
}

fn names(attributes: &[Attribute]) -> Vec<String> {
    let names = attributes.iter().map(|attribute| attribute.name.clone());
    names
        .filter_map(|name| String::from_utf8(name).ok())
        .collect()
}

fn text(objects: &Objects<&Vec<u8>>, attribute: &Attribute) -> Option<String> {
    let values = objects.values(&attribute.datatype, &attribute.bytes).ok()?;
    match &values[..] {
        [Value::Text(text)] => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

/// The labels of the dimensions of a dataset; `None` unless there are `rank` of them.
fn labels(objects: &Objects<&Vec<u8>>, attribute: &Attribute, rank: usize) -> Option<Vec<String>> {
    let values = objects.values(&attribute.datatype, &attribute.bytes).ok()?;
    let label = |value: &Value| match value {
        Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    let labels: Vec<String> = values.iter().map(label).collect::<Option<_>>()?;
    (labels.len() == rank).then_some(labels)
}

/// The addresses of the scales of each dimension (HDF5 Dimension Scale Specification 1.0, `DIMENSION_LIST`); `None` unless there
/// are `rank` lists.
pub fn lists(
    objects: &Objects<&Vec<u8>>,
    attribute: &Attribute,
    rank: usize,
) -> Option<Vec<Vec<u64>>> {
    let Class::VariableList { .. } = attribute.datatype.class else {
        return None;
    };
    let values = objects.values(&attribute.datatype, &attribute.bytes).ok()?;
    let address = |value: &Value| match value {
        Value::Reference(address) => *address,
        _ => None,
    };
    let list = |value: &Value| match value {
        Value::List(list) => Some(list.iter().filter_map(address).collect()),
        _ => None,
    };
    let lists: Vec<Vec<u64>> = values.iter().map(list).collect::<Option<_>>()?;
    (lists.len() == rank).then_some(lists)
}

/// The uses of a scale (`REFERENCE_LIST`): the header addresses of datasets, with dimensions. Also whether the integer type of
/// dimensions is signed, which it no longer is in HDF5 2.
pub fn uses(objects: &Objects<&Vec<u8>>, attribute: &Attribute) -> Option<(Vec<(u64, u32)>, bool)> {
    let Class::Compound { members } = &attribute.datatype.class else {
        return None;
    };
    let signed = match members.get(1)?.datatype.class {
        Class::Integer { signed, .. } => signed,
        _ => return None,
    };
    let values = objects.values(&attribute.datatype, &attribute.bytes).ok()?;
    let one = |value: &Value| match value {
        Value::Compound(members) => match &members[..] {
            [Value::Reference(Some(address)), Value::Integer(dimension)] => {
                Some((*address, u32::try_from(*dimension).ok()?))
            }
            _ => None,
        },
        _ => None,
    };
    // A reference that leads nowhere is no use of the scale.
    Some((values.iter().filter_map(one).collect(), signed))
}
