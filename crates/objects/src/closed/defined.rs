//! The objects that definitions make, as a closed log has them: groups, anchors, attributes, dimension scales. A test of the crate that
//! calls libhdf5 compares them with what that makes of the same definitions.
//!
//! Groups are of the old kind, whose links do not say that a name is UTF-8. libhdf5 makes one of the new kind for such a name.

use std::collections::HashMap;
use std::rc::Rc;

use h5logfs_log::image::object_header::kind;
use h5logfs_log::journal::datatype::Datatype;
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Definition};
use h5logfs_log::journal::value::Value;
use h5logfs_log::logvol::escaped;

use super::datatype;
use super::header::{self, Messages};
use super::plain::{GroupLinks, HeapValue, Made, Plain, Stored, Target, push_numbers};

/// All objects, the root group first. `datasets` are in the order of their IDs, with their present extents. `None` where one does not fit
/// its header: libhdf5 has other forms for some, and tells what is wrong with others.
pub fn objects(definitions: &[Definition], datasets: &[Defined]) -> Option<Vec<Plain>> {
    let mut maker = Maker {
        objects: vec![group()?],
        numbers: HashMap::from([("", 0)]),
        datatypes: HashMap::new(),
        last: None,
    };
    let (mut of_datasets, mut next) = (Vec::new(), datasets.iter());
    for definition in definitions {
        match definition {
            Definition::Group { path } => {
                maker.add(path, group()?)?;
            }
            Definition::Dataset { path, .. } => {
                let anchor = maker.anchor(of_datasets.len(), next.next()?)?;
                of_datasets.push(maker.add(path, anchor)?);
            }
            Definition::Attribute {
                object,
                name,
                value,
            } => maker.attribute(object, name, value)?,
            // `datasets` have what these say.
            Definition::Extent { .. }
            | Definition::Scale { .. }
            | Definition::Attachment { .. }
            | Definition::Label { .. } => {}
        }
    }
    maker.scales(datasets, &of_datasets)?;
    let made = maker.objects.into_iter();
    Some(made.map(|(made, table)| made.object(1, table)).collect())
}

struct Maker<'a> {
    objects: Vec<(Made, Option<GroupLinks>)>,
    /// By path. That of the root group is empty.
    numbers: HashMap<&'a str, usize>,
    /// Thousands of datasets share a few types.
    datatypes: HashMap<&'a Datatype, Vec<u8>>,
    /// The last dataset that is no dimension scale: where its ID is, and its messages before there were attributes.
    last: Option<(&'a DatasetLayout, usize, Rc<Messages>)>,
}

/// A group without a link or an attribute.
fn group() -> Option<(Made, Option<GroupLinks>)> {
    let mut made = Made::default();
    let at = made.messages().push(kind::SYMBOL_TABLE, 0, &[0; 16])?;
    let links = Vec::new();
    Some((made, Some(GroupLinks { at, links })))
}

impl<'a> Maker<'a> {
    /// Adds an object below its parent. Returns its number.
    fn add(&mut self, path: &'a str, object: (Made, Option<GroupLinks>)) -> Option<usize> {
        let (parent, name) = path.rsplit_once('/')?;
        if !name.is_ascii() {
            return None;
        }
        let number = self.objects.len();
        let parent = *self.numbers.get(parent)?;
        let (_, table) = self.objects.get_mut(parent)?;
        let name = escaped(name.as_bytes()).into_owned();
        table.as_mut()?.links.push((name, Target::Object(number)));
        self.numbers.insert(path, number);
        self.objects.push(object);
        Some(number)
    }

    fn datatype(&mut self, of: &'a Datatype) -> Option<&[u8]> {
        if !self.datatypes.contains_key(of) {
            self.datatypes.insert(of, datatype::message(of)?);
        }
        self.datatypes.get(of).map(Vec::as_slice)
    }

    fn anchor(&mut self, id: usize, defined: &'a Defined) -> Option<(Made, Option<GroupLinks>)> {
        const CONSTANT: u8 = 1;
        let layout = &defined.layout;
        let id = i32::try_from(id).ok()? as u32;
        let is_scale = defined.scales.name.is_some();
        let mut made = Made::default();
        if let Some((last, id_at, messages)) = &self.last
            && *last == layout
            && !is_scale
        {
            made.messages = Rc::clone(messages);
            (made.id_at, made.id) = (Some(*id_at), Some(id));
            return Some((made, None));
        }
        // netCDF-C crashes where a dimension scale has no dimensions.
        let space = if is_scale {
            header::simple(&vec![0; layout.dims.len().max(1)])?
        } else {
            header::NULL.to_vec()
        };
        let new = made.messages();
        new.push(kind::DATASPACE, 0, &space)?;
        new.push(kind::DATATYPE, CONSTANT, self.datatype(&layout.datatype)?)?;
        let fill = header::fill_value(header::allocation::LATE, &layout.fill)?;
        new.push(kind::FILL_VALUE, CONSTANT, &fill)?;
        let nowhere = header::contiguous(u64::MAX, 0);
        new.push(kind::LAYOUT, 0, &nowhere)?;
        let max_dims = layout.max_dims.iter();
        let max_dims: Vec<u64> = max_dims.map(|dim| dim.unwrap_or(u64::MAX)).collect();
        let chunk = layout.chunk.as_deref();
        let id_at = push_numbers(new, id, &layout.dims, &max_dims, chunk, &layout.filters)?;
        if !is_scale {
            self.last = Some((layout, id_at, Rc::clone(&made.messages)));
        }
        Some((made, None))
    }

    fn attribute(&mut self, object: &str, name: &str, value: &'a Value) -> Option<()> {
        let object = if object == "/" { "" } else { object };
        let number = *self.numbers.get(object)?;
        let name = escaped(name.as_bytes());
        let name = str::from_utf8(&name).ok()?;
        match value {
            Value::Elements {
                datatype,
                dims,
                bytes,
            } => {
                let space = header::simple(dims)?;
                let datatype = self.datatype(datatype)?;
                let data = header::attribute(name, datatype, &space, bytes)?;
                let (made, _) = self.objects.get_mut(number)?;
                made.messages().push(kind::ATTRIBUTE, 0, &data).map(|_| ())
            }
            Value::Text(text) => self.texts(number, name, &header::SCALAR, [text]),
            Value::Texts(texts) => {
                let space = header::list(texts.len() as u64);
                self.texts(number, name, &space, texts)
            }
        }
    }

    fn texts<'t>(
        &mut self,
        number: usize,
        name: &str,
        space: &[u8],
        texts: impl IntoIterator<Item = &'t String>,
    ) -> Option<()> {
        let texts = texts.into_iter().map(|text| {
            let bytes = text.as_bytes().to_vec();
            Some((u32::try_from(bytes.len()).ok()?, Stored::Bytes(bytes)))
        });
        let texts: Option<Vec<_>> = texts.collect();
        let (made, _) = self.objects.get_mut(number)?;
        made.in_heap(name, &datatype::variable_text(), space, texts?)
    }

    /// Writes the attributes by which HDF5 knows dimension scales (HDF5 Dimension Scale Specification 1.0), and labels.
    /// `numbers`: those of the datasets among the objects.
    fn scales(&mut self, datasets: &[Defined], numbers: &[usize]) -> Option<()> {
        let mut uses: HashMap<usize, Vec<(usize, u32)>> = HashMap::new();
        for (number, defined) in numbers.iter().zip(datasets) {
            for (dimension, scales) in (0u32..).zip(&defined.scales.attached) {
                for scale in scales {
                    let of = uses.entry(*numbers.get(*scale as usize)?).or_default();
                    of.push((*number, dimension));
                }
            }
        }
        for (number, defined) in numbers.iter().zip(datasets) {
            let scales = &defined.scales;
            let (made, _) = self.objects.get_mut(*number)?;
            if let Some(name) = &scales.name {
                made.terminated_text("CLASS", "DIMENSION_SCALE")?;
                if !name.is_empty() {
                    made.terminated_text("NAME", name)?;
                }
            }
            if let Some(uses) = uses.get(number) {
                made.reference_list(uses)?;
            }
            if !scales.attached.is_empty() {
                let of_dimension = |of: &Vec<u32>| {
                    let objects = of.iter().map(|id| numbers.get(*id as usize).copied());
                    let objects: Vec<usize> = objects.collect::<Option<_>>()?;
                    Some((u32::try_from(objects.len()).ok()?, Stored::Objects(objects)))
                };
                let attached = scales.attached.iter().map(of_dimension);
                let attached: Vec<_> = attached.collect::<Option<_>>()?;
                let datatype = datatype::list_of(&datatype::reference());
                let space = header::list(attached.len() as u64);
                made.in_heap("DIMENSION_LIST", &datatype, &space, attached)?;
            }
            if !scales.labels.is_empty() {
                let space = header::list(scales.labels.len() as u64);
                self.texts(*number, "DIMENSION_LABELS", &space, &scales.labels)?;
            }
        }
        Some(())
    }
}

impl Made {
    /// Adds an attribute whose elements lie in a heap: of each its length, and what is stored.
    fn in_heap(
        &mut self,
        name: &str,
        datatype: &[u8],
        space: &[u8],
        values: Vec<(u32, Stored)>,
    ) -> Option<()> {
        let elements = values.iter().flat_map(|(len, _)| {
            let mut element = [0; 16];
            element[..4].copy_from_slice(&len.to_le_bytes());
            element
        });
        let elements: Vec<u8> = elements.collect();
        let data = header::attribute(name, datatype, space, &elements)?;
        let at = self.messages().push(kind::ATTRIBUTE, 0, &data)? + data.len() - elements.len();
        for (number, (len, stored)) in values.into_iter().enumerate() {
            // A list without elements lies nowhere. A text does, or it would be none.
            if len > 0 || matches!(stored, Stored::Bytes(_)) {
                let at = at + 16 * number + 4;
                self.heap_values.push(HeapValue { at, stored });
            }
        }
        Some(())
    }

    /// Adds a text with a zero at its end, as readers expect it of scales.
    fn terminated_text(&mut self, name: &str, text: &str) -> Option<()> {
        let text = [text.as_bytes(), &[0]].concat();
        let datatype = datatype::text(u32::try_from(text.len()).ok()?, 0, !text.is_ascii());
        let data = header::attribute(name, &datatype, &header::SCALAR, &text)?;
        self.messages().push(kind::ATTRIBUTE, 0, &data).map(|_| ())
    }

    /// Adds the list of the dimensions that use a scale: numbers of objects, and of dimensions.
    fn reference_list(&mut self, uses: &[(usize, u32)]) -> Option<()> {
        /// A reference, a dimension, and the padding of a C structure.
        const USE: usize = 16;
        let members = [
            ("dataset", 0, datatype::reference()),
            ("dimension", 8, header::integer(4, true).to_vec()),
        ];
        let datatype = datatype::compound(1, USE as u32, &members)?;
        let elements = uses.iter().flat_map(|(_, dimension)| {
            let mut element = [0; USE];
            element[8..12].copy_from_slice(&dimension.to_le_bytes());
            element
        });
        let elements: Vec<u8> = elements.collect();
        let space = header::list(uses.len() as u64);
        let data = header::attribute("REFERENCE_LIST", &datatype, &space, &elements)?;
        let at = self.messages().push(kind::ATTRIBUTE, 0, &data)? + data.len() - elements.len();
        let references = uses.iter().enumerate();
        self.references
            .extend(references.map(|(number, (object, _))| (at + USE * number, *object)));
        Some(())
    }
}
