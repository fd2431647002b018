//! Makes the user's objects from their definitions, in the form of the Log VOL layout (`docs/formats/logvol.md`,
//! sections 1.3 and 2).

use std::collections::HashMap;

use super::anchor::{AnchorNumbers, AnchorWriter, stub};
use super::scales::{self, Uses};
use crate::hdf5_sys::{self as h5, Id, Link, Name, Space, Target};
use h5logfs_common::fault::Fault;
use h5logfs_log::journal::datatype::Datatype;
use h5logfs_log::journal::definition::{Defined, Definition};
use h5logfs_log::journal::value::Value;

type Result<T> = std::result::Result<T, Fault>;

/// Makes groups, anchors and attributes in an open file. `datasets` are in the order of their IDs, with their current
/// extents.
pub(crate) fn make_objects(
    file: &Id,
    definitions: &[Definition],
    datasets: &[Defined],
) -> Result<()> {
    let mut maker = Maker {
        root: h5::open_group(file, c"/")?,
        group_creation: h5::new_group_creation()?,
        null: stub(false, 0).create()?,
        creation: new_creation()?,
        anchors: AnchorWriter::new()?,
        datatypes: HashMap::new(),
        last: None,
        uses: Uses::of(datasets),
    };
    let mut next = datasets.iter().enumerate();
    for definition in definitions {
        match definition {
            Definition::Group { path } => maker.group(path),
            Definition::Dataset { path, .. } => match next.next() {
                Some((id, defined)) => maker.anchor(id, path, defined),
                None => Err(format!("dataset {path} has no number: a fault of h5logfs").into()),
            },
            Definition::Attribute {
                object,
                name,
                value,
            } => maker
                .attribute(object, name, value)
                .map_err(|e| e.at(format_args!("attribute {name} of {object}"))),
            // `datasets` have what these say.
            Definition::Extent { .. }
            | Definition::Scale { .. }
            | Definition::Attachment { .. }
            | Definition::Label { .. } => Ok(()),
        }?;
    }
    scales::write(&maker.root, datasets, &maker.uses)
}

/// The stored form of a path: each name that begins with an underscore gets another one.
pub(super) fn stored_path(path: &str) -> String {
    let names = path.split('/').map(stored_name);
    names.collect::<Vec<_>>().join("/")
}

fn stored_name(name: &str) -> String {
    if name.starts_with('_') {
        format!("_{name}")
    } else {
        name.to_owned()
    }
}

struct Maker {
    root: Id,
    group_creation: Id,
    null: Id,
    /// Creation properties of most datasets.
    creation: Id,
    anchors: AnchorWriter,
    /// Thousands of datasets share a few types.
    datatypes: HashMap<Datatype, Id>,
    /// The object used last. Its attributes usually follow.
    last: Option<(String, Id)>,
    uses: Uses,
}

impl Maker {
    fn group(&mut self, path: &str) -> Result<()> {
        let made = h5::create_group(&self.root, &link(path), &self.group_creation);
        let id = made.map_err(|e| e.at(format_args!("group {path}")))?;
        self.last = Some((path.to_owned(), id));
        Ok(())
    }

    fn anchor(&mut self, id: usize, path: &str, defined: &Defined) -> Result<()> {
        let made = self.make_anchor(id, path, defined);
        let object = made.map_err(|e| e.at(format_args!("dataset {path}")))?;
        self.last = Some((path.to_owned(), object));
        Ok(())
    }

    fn make_anchor(&mut self, id: usize, path: &str, defined: &Defined) -> Result<Id> {
        let layout = &defined.layout;
        let space = match defined.scales.name {
            Some(_) => stub(true, layout.dims.len()).create()?,
            None => self.null.clone(),
        };
        let datatype = self.datatype(&layout.datatype)?;
        let has_large_attribute = self.uses.are_many(id);
        let creation = if layout.fill.is_empty() && !has_large_attribute {
            self.creation.clone()
        } else {
            creation_with(&datatype, &layout.fill, has_large_attribute)?
        };
        let object = h5::create_dataset(&self.root, &link(path), &datatype, &space, &creation)?;
        let numbers = AnchorNumbers {
            id: id as i64,
            dims: &layout.dims,
            max_dims: &layout.max_dims,
            chunk: layout.chunk.as_deref(),
            filters: &layout.filters,
        };
        self.anchors.write(&object, &numbers)?;
        Ok(object)
    }

    fn attribute(&mut self, object: &str, name: &str, value: &Value) -> Result<()> {
        let known = self.last.take().filter(|(path, _)| path == object);
        let (path, id) = match known {
            Some(known) => known,
            None if object == "/" => (object.to_owned(), self.root.clone()),
            None => {
                let path = h5::c_name(stored_path(object).as_bytes())?;
                (object.to_owned(), h5::open_path(&self.root, &path)?)
            }
        };
        let stored = stored_name(name);
        let name = Name {
            bytes: stored.as_bytes(),
            utf8: !stored.is_ascii(),
        };
        let text = |text: &String| h5::c_name(text.as_bytes());
        match value {
            Value::Elements {
                datatype,
                dims,
                bytes,
            } => {
                let datatype = self.datatype(datatype)?;
                let space = Space::fixed(dims).create()?;
                h5::write_plain_attribute(&id, name, &datatype, &space, bytes)
            }
            Value::Text(value) => {
                h5::write_texts(&id, name, &Space::scalar().create()?, &[text(value)?])
            }
            Value::Texts(values) => {
                let texts = values.iter().map(text).collect::<Result<Vec<_>>>()?;
                let space = Space::fixed(&[texts.len() as u64]).create()?;
                h5::write_texts(&id, name, &space, &texts)
            }
        }?;
        self.last = Some((path, id));
        Ok(())
    }

    fn datatype(&mut self, datatype: &Datatype) -> Result<Id> {
        if let Some(known) = self.datatypes.get(datatype) {
            return Ok(known.clone());
        }
        let new = self.make_datatype(datatype)?;
        self.datatypes.insert(datatype.clone(), new.clone());
        Ok(new)
    }

    fn make_datatype(&mut self, datatype: &Datatype) -> Result<Id> {
        match datatype {
            Datatype::Integer {
                size,
                signed,
                big_endian,
            } => h5::integer_type(*size, *signed, *big_endian),
            Datatype::Float { size, big_endian } => h5::float_type(*size, *big_endian),
            Datatype::Bitfield { size, big_endian } => h5::bitfield_type(*size, *big_endian),
            Datatype::Opaque { size, tag } => h5::opaque_type(*size, tag),
            Datatype::Text { size, utf8 } => h5::text_type(*size, *utf8),
            Datatype::VariableText => h5::variable_text_type(),
            Datatype::Enumeration { base, members } => {
                let value = |v: i64| match **base {
                    Datatype::Integer {
                        size,
                        big_endian: true,
                        ..
                    } => v.to_be_bytes()[8 - size as usize..].to_vec(),
                    _ => v.to_le_bytes()[..base.size() as usize].to_vec(),
                };
                let members = members.iter().map(|(name, v)| (name.clone(), value(*v)));
                h5::enumeration_type(&self.datatype(base)?, &members.collect::<Vec<_>>())
            }
            Datatype::Compound { size, members } => {
                let made = members
                    .iter()
                    .map(|m| Ok((m.name.as_str(), m.offset, self.datatype(&m.datatype)?)));
                h5::compound_type(*size, &made.collect::<Result<Vec<_>>>()?)
            }
            Datatype::Array { base, dims } => {
                let dims: Vec<u64> = dims.iter().map(|d| u64::from(*d)).collect();
                h5::array_type(&self.datatype(base)?, &dims)
            }
        }
    }
}

/// Creation properties without times: each scan of a log that is not closed makes its objects anew, and they must have
/// the same bytes.
fn new_creation() -> Result<Id> {
    let creation = h5::new_dataset_creation()?;
    h5::track_times(&creation, false)?;
    Ok(creation)
}

/// Creation properties of an anchor. An empty fill value is none.
fn creation_with(datatype: &Id, fill: &[u8], has_large_attribute: bool) -> Result<Id> {
    let creation = new_creation()?;
    if !fill.is_empty() {
        h5::set_fill_value(&creation, datatype, fill)?;
    }
    if has_large_attribute {
        h5::allow_large_attributes(&creation)?;
    }
    Ok(creation)
}

fn link(path: &str) -> Link {
    let stored = stored_path(path);
    Link {
        utf8: !stored.is_ascii(),
        name: stored.into_bytes(),
        target: Target::Hard(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::journal::definition::{DatasetLayout, Outline};

    #[test]
    fn underscores_are_escaped_name_by_name() {
        assert_eq!(stored_path("/a/_b/__c/d_"), "/a/__b/___c/d_");
        assert_eq!(stored_path("/_LOG"), "/__LOG");
    }

    /// Two scans of one state of a log that is not closed make the same bytes.
    #[test]
    fn objects_have_no_times() {
        let layout = |fill: &[u8]| DatasetLayout {
            fill: fill.to_vec(),
            ..DatasetLayout::fixed(Datatype::integer(1, false), &[4])
        };
        let mut outline = Outline::default();
        let mut definitions = vec![Definition::Group { path: "/g".into() }];
        definitions.extend(
            [("/a", layout(&[])), ("/b", layout(&[7]))].map(|(path, layout)| Definition::Dataset {
                path: path.into(),
                layout: Box::new(layout),
            }),
        );
        for definition in &definitions {
            outline.add(definition).unwrap();
        }
        let file = h5::create_in_memory(&h5::new_file_creation().unwrap()).unwrap();
        make_objects(&file, &definitions, &outline.datasets).unwrap();
        let root = h5::open_group(&file, c"/").unwrap();
        let objects = [
            h5::open_group(&file, c"/g").unwrap(),
            h5::open_dataset(&root, c"a").unwrap(),
            h5::open_dataset(&root, c"b").unwrap(),
        ];
        for object in &objects {
            assert_eq!(h5::object_info(object).unwrap().times, [0; 4]);
        }
    }
}
