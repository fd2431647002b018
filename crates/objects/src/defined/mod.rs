//! The metadata image of definitions: an HDF5 file in memory with all objects that a program defines through the
//! writer's own API, in their natural form (`docs/formats/journal.md`, section 2.5). So every reader of a log sees an
//! image, whatever API the program uses.
//!
//! `datatype` makes datatype messages. Tests in the crate that calls libhdf5 read images with it.
//!
//! * Groups have symbol tables, which do not record that a name is UTF-8. A group with such a name has link messages
//!   instead.
//! * The list of uses of a scale with thousands of uses does not fit into an object header. The attributes of such a
//!   scale are dense.
//! * There are no times, because each scan of a log makes the image anew, with the same bytes.

mod datatype;

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::object_header::{HEAD, PREFIX, kind};
use h5logfs_hdf5_format::superblock::new_superblock;
use h5logfs_hdf5_format::written::dense::Dense;
use h5logfs_hdf5_format::written::header::{self, Messages, allocation};
use h5logfs_hdf5_format::written::{self, Made, NewObject, Root, Stored, Target};
use h5logfs_hdf5_format::{SUPERBLOCK, Space};
use h5logfs_log::journal::Recorded;
use h5logfs_log::journal::datatype::Datatype;
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Definition};
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::journal::value::Value;

use crate::Result;

/// The metadata image of a log: from its journal, or made from its definitions. Fails if the definitions do not fit
/// into an HDF5 file.
pub fn metadata_image(journal: &Recorded) -> Result<Cow<'_, MetadataImage>> {
    match &journal.metadata_image {
        Some(image) => Ok(Cow::Borrowed(image)),
        None => of_definitions(&journal.definitions, &journal.outline.datasets).map(Cow::Owned),
    }
}

/// Makes the metadata image of definitions. `datasets` are in the order of their IDs, with their present extents. Fails
/// if an object does not fit into its header.
pub fn of_definitions(definitions: &[Definition], datasets: &[Defined]) -> Result<MetadataImage> {
    let mut maker = Maker::new(definitions, datasets).ok_or(NO_ROOM)?;
    let mut next = datasets.iter();
    for definition in definitions {
        let made = match definition {
            Definition::Group { path } => maker.group(path),
            Definition::Dataset { path, .. } => {
                let defined = next.next().ok_or("a dataset without a number")?;
                maker.dataset(path, defined)
            }
            Definition::Attribute {
                object,
                name,
                value,
            } => maker.attribute(object, name, value),
            // `datasets` already contain the effect of these.
            Definition::Extent { .. }
            | Definition::Scale { .. }
            | Definition::Attachment { .. }
            | Definition::Label { .. } => Some(()),
        };
        made.ok_or_else(|| no_room(definition))?;
    }
    maker.scales(datasets).ok_or(NO_ROOM)?;
    Ok(maker.image().ok_or(NO_ROOM)?)
}

const NO_ROOM: &str = "the objects of the log do not fit an HDF5 file";

fn no_room(definition: &Definition) -> Fault {
    let what = match definition {
        Definition::Group { path } => format!("group {path}"),
        Definition::Dataset { path, .. } => format!("dataset {path}"),
        Definition::Attribute { object, name, .. } => format!("attribute {name} of {object}"),
        other => format!("{other:?}"),
    };
    format!("{what} does not fit an HDF5 object header").into()
}

/// The uses of scales, by scale: IDs of datasets, and dimensions. Scales are given by ID, too.
type Uses = HashMap<usize, Vec<(usize, u32)>>;

struct Maker<'a> {
    /// All objects, the root group first.
    objects: Vec<Made>,
    /// Numbers of objects, by path. The path of the root group is empty.
    numbers: HashMap<&'a str, usize>,
    /// Numbers of the datasets, by ID.
    of_datasets: Vec<usize>,
    /// Groups with link messages, by path.
    with_messages: HashMap<&'a str, usize>,
    /// The messages of datatypes. Thousands of datasets share a few types.
    datatypes: HashMap<&'a Datatype, Vec<u8>>,
    /// The last dataset, and its messages without attributes.
    last: Option<(&'a DatasetLayout, Rc<Messages>)>,
    uses: Uses,
}

/// The place of an object: the path of its group, and its name.
fn place(definition: &Definition) -> Option<(&str, &str)> {
    match definition {
        Definition::Group { path } | Definition::Dataset { path, .. } => path.rsplit_once('/'),
        _ => None,
    }
}

/// The groups with a name that is not ASCII, and the number of their links. Groups with more links than a header can
/// hold beside attributes are left out. Names in their symbol tables have the same bytes, but are not marked as UTF-8.
fn groups_with_messages(definitions: &[Definition]) -> HashMap<&str, usize> {
    const MOST: usize = 1 << 15;
    let places = || definitions.iter().filter_map(place);
    let mut groups: HashMap<&str, usize> = places()
        .filter(|(_, name)| !name.is_ascii())
        .map(|(group, _)| (group, 0))
        .collect();
    if !groups.is_empty() {
        for (group, _) in places() {
            groups.entry(group).and_modify(|links| *links += 1);
        }
    }
    groups.retain(|_, links| *links <= MOST);
    groups
}

fn uses(datasets: &[Defined]) -> Uses {
    let mut uses = Uses::new();
    for (dataset, defined) in datasets.iter().enumerate() {
        for (dimension, scales) in (0u32..).zip(&defined.scales.attached) {
            for scale in scales {
                let of = uses.entry(*scale as usize).or_default();
                of.push((dataset, dimension));
            }
        }
    }
    uses
}

impl<'a> Maker<'a> {
    fn new(definitions: &'a [Definition], datasets: &[Defined]) -> Option<Self> {
        let with_messages = groups_with_messages(definitions);
        let mut objects = Vec::with_capacity(datasets.len() + 1);
        objects.push(Made::group(with_messages.contains_key(""))?);
        let mut numbers = HashMap::with_capacity(datasets.len() + 1);
        numbers.insert("", 0);
        Some(Maker {
            objects,
            numbers,
            of_datasets: Vec::with_capacity(datasets.len()),
            with_messages,
            datatypes: HashMap::new(),
            last: None,
            uses: uses(datasets),
        })
    }

    /// Adds an object to its group, and returns its number.
    fn add(&mut self, path: &'a str, object: Made) -> Option<usize> {
        let (parent, name) = path.rsplit_once('/')?;
        let number = self.objects.len();
        let parent = self.objects.get_mut(*self.numbers.get(parent)?)?;
        let target = Target::Object(number);
        parent.push_link(name.as_bytes().to_vec(), !name.is_ascii(), target)?;
        self.numbers.insert(path, number);
        self.objects.push(object);
        Some(number)
    }

    fn group(&mut self, path: &'a str) -> Option<()> {
        let group = Made::group(self.with_messages.contains_key(path))?;
        self.add(path, group).map(|_| ())
    }

    fn dataset(&mut self, path: &'a str, defined: &'a Defined) -> Option<()> {
        let messages = self.messages(&defined.layout)?;
        let uses = self.uses.get(&self.of_datasets.len());
        let made = if uses.is_some_and(|uses| uses.len() > MOST_USES_IN_HEADER) {
            let header = Rc::unwrap_or_clone(messages);
            Made {
                dense: Some(Dense::of(header)),
                ..Made::default()
            }
        } else {
            Made {
                messages,
                ..Made::default()
            }
        };
        let number = self.add(path, made)?;
        self.of_datasets.push(number);
        Some(())
    }

    /// The messages of a dataset without attributes.
    fn messages(&mut self, layout: &'a DatasetLayout) -> Option<Rc<Messages>> {
        const CONSTANT: u8 = 1;
        if let Some((last, messages)) = &self.last
            && *last == layout
        {
            return Some(Rc::clone(messages));
        }
        let mut new = Messages::default();
        let max_dims = layout.max_dims.iter();
        let max_dims: Vec<u64> = max_dims.map(|dim| dim.unwrap_or(u64::MAX)).collect();
        let space = header::extent(&layout.dims, &max_dims)?;
        new.push(kind::DATASPACE, 0, &space)?;
        new.push(kind::DATATYPE, CONSTANT, self.datatype(&layout.datatype)?)?;
        let element = layout.datatype.size();
        let (allocated, place) = match &layout.chunk {
            Some(chunk) => (allocation::INCREMENTAL, header::chunked(chunk, element)?),
            None => {
                let elements = layout.dims.iter();
                let bytes = elements.fold(element.into(), |n: u64, dim| n.saturating_mul(*dim));
                (allocation::LATE, header::contiguous(u64::MAX, bytes))
            }
        };
        let fill = header::fill_value(allocated, &layout.fill)?;
        new.push(kind::FILL_VALUE, CONSTANT, &fill)?;
        new.push(kind::LAYOUT, 0, &place)?;
        if !layout.filters.is_empty() {
            let filters = header::pipeline(&layout.filters)?;
            new.push(kind::PIPELINE, CONSTANT, &filters)?;
        }
        let messages = Rc::new(new);
        self.last = Some((layout, Rc::clone(&messages)));
        Some(messages)
    }

    fn datatype(&mut self, of: &'a Datatype) -> Option<&[u8]> {
        if !self.datatypes.contains_key(of) {
            self.datatypes.insert(of, datatype::message(of)?);
        }
        self.datatypes.get(of).map(Vec::as_slice)
    }

    fn attribute(&mut self, object: &str, name: &str, value: &'a Value) -> Option<()> {
        let object = if object == "/" { "" } else { object };
        let number = *self.numbers.get(object)?;
        match value {
            Value::Elements {
                datatype,
                dims,
                bytes,
            } => {
                let space = header::simple(dims)?;
                let datatype = self.datatype(datatype)?;
                let data = header::attribute(name, datatype, &space, bytes)?;
                let made = self.objects.get_mut(number)?;
                made.push_attribute(name.as_bytes(), 0, &data).map(|_| ())
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
        let made = self.objects.get_mut(number)?;
        made.in_heap(name, &written::datatype::variable_text(), space, texts?)
    }

    /// Writes the attributes of dimension scales (HDF5 Dimension Scale Specification 1.0), and labels.
    fn scales(&mut self, datasets: &[Defined]) -> Option<()> {
        let numbers = std::mem::take(&mut self.of_datasets);
        for (id, (number, defined)) in numbers.iter().zip(datasets).enumerate() {
            let scales = &defined.scales;
            let made = self.objects.get_mut(*number)?;
            if let Some(name) = &scales.name {
                made.terminated_text("CLASS", "DIMENSION_SCALE")?;
                if !name.is_empty() {
                    made.terminated_text("NAME", name)?;
                }
            }
            let number_of = |id: usize| numbers.get(id).copied();
            if let Some(uses) = self.uses.get(&id) {
                let uses = uses.iter().map(|(of, dim)| Some((number_of(*of)?, *dim)));
                made.reference_list(&uses.collect::<Option<Vec<_>>>()?)?;
            }
            if !scales.attached.is_empty() {
                let of_dimension =
                    |ids: &Vec<u32>| ids.iter().map(|id| number_of(*id as usize)).collect();
                let attached: Option<Vec<Vec<usize>>> =
                    scales.attached.iter().map(of_dimension).collect();
                made.dimension_list(attached?)?;
            }
            if !scales.labels.is_empty() {
                let space = header::list(scales.labels.len() as u64);
                self.texts(*number, "DIMENSION_LABELS", &space, &scales.labels)?;
            }
        }
        self.of_datasets = numbers;
        Some(())
    }

    fn image(self) -> Option<MetadataImage> {
        let objects: Vec<NewObject> = self
            .objects
            .into_iter()
            .map(|made| made.object(1))
            .collect();
        let mut space = Space::with_room(0, SUPERBLOCK + written::size(&objects));
        space.put(&[0; SUPERBLOCK]);
        let root = objects.first()?.messages.put(&mut space, 1, 0)?;
        let messages = root + PREFIX as u64;
        let placed = written::put(
            &mut space,
            &objects,
            Root {
                address: root,
                messages,
                more: None,
            },
        )?;
        if let Some(table) = placed.of_root {
            space.set(messages + HEAD as u64, &table.to_bytes());
        }
        let superblock = new_superblock(root, placed.of_root, space.end());
        space.set(0, &superblock);
        let address = |number: &usize| placed.addresses.get(*number).copied();
        let logged = self.of_datasets.iter().map(address);
        Some(MetadataImage {
            image: space.into_bytes(),
            logged: (0u32..).zip(logged).collect(),
        })
    }
}

/// The most uses of a scale that its header lists. A message has less than 64 KiB.
const MOST_USES_IN_HEADER: usize = 3900;
