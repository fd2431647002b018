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
mod outline;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::object_header::{self, HEAD, Message, Mode, PREFIX, kind};
use h5logfs_hdf5_format::superblock::new_superblock;
use h5logfs_hdf5_format::written::dense::Dense;
use h5logfs_hdf5_format::written::header::{self, Messages, allocation};
use h5logfs_hdf5_format::written::{self, Made, NewObject, Root, Stored, Target, existing};
use h5logfs_hdf5_format::{Attribute, Objects, SUPERBLOCK, Space};
use h5logfs_log::journal::Recorded;
use h5logfs_log::journal::datatype::Datatype;
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Definition};
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::journal::value::Value;

use crate::Result;

pub use outline::outline;

/// The metadata image of a log: from its journal, or made from its definitions. Fails if the definitions do not fit
/// into an HDF5 file.
pub fn metadata_image(journal: &Recorded) -> Result<Cow<'_, MetadataImage>> {
    let Some(image) = &journal.metadata_image else {
        let made = of_definitions(&journal.definitions, &journal.outline.datasets);
        return made.map(Cow::Owned);
    };
    if !journal.has_definitions() {
        return Ok(Cow::Borrowed(image));
    }
    let mut outline = outline(image)?;
    let definitions = journal.definitions.iter();
    definitions.clone().try_for_each(|d| outline.add(d))?;
    for (dataset, dims) in &journal.extents {
        let (dataset, dims) = (*dataset, dims.clone());
        outline.add(&Definition::Extent { dataset, dims })?;
    }
    extended(image, &journal.definitions, &outline.datasets).map(Cow::Owned)
}

/// Makes the metadata image of definitions. `datasets` are in the order of their IDs, with their current extents. Fails if an
/// object does not fit into its header.
pub fn of_definitions(definitions: &[Definition], datasets: &[Defined]) -> Result<MetadataImage> {
    let mut maker = Maker::new(definitions, uses(datasets), datasets.len()).ok_or(NO_ROOM)?;
    maker.define(definitions, datasets)?;
    maker.scales(datasets).ok_or(NO_ROOM)?;
    Ok(maker.image().ok_or(NO_ROOM)?)
}

/// Adds definitions to a metadata image. `datasets` are all datasets of the log in the order of their IDs, with their current
/// extents. Fails if an object does not fit into its header, or if the image is damaged.
pub fn extended(
    image: &MetadataImage,
    definitions: &[Definition],
    datasets: &[Defined],
) -> Result<MetadataImage> {
    let present = MetadataImage {
        image: with_extents(image, datasets)?,
        logged: image.logged.clone(),
    };
    if definitions.is_empty() {
        return Ok(present);
    }
    let mut maker = Maker::onto(&present, definitions)?;
    let ids = image.ids();
    let new = datasets.get(ids..).ok_or("datasets without a definition")?;
    maker.define(definitions, new)?;
    maker.scales(new).ok_or(NO_ROOM)?;
    maker.scales_of_old(definitions, datasets)?;
    maker.onto_image(&present)
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

/// The bytes of an image with the current extents of its datasets.
fn with_extents(image: &MetadataImage, datasets: &[Defined]) -> Result<Vec<u8>> {
    let mut bytes = image.image.clone();
    for (id, header) in &image.logged {
        let defined = datasets
            .get(*id as usize)
            .filter(|defined| defined.is_there());
        if let (Some(header), Some(Defined { path, layout, .. })) = (header, defined) {
            let set = set_extent(&mut bytes, *header, &layout.dims);
            set.map_err(|fault| fault.at(format_args!("the extent of {path}")))?;
        }
    }
    Ok(bytes)
}

/// Sets the extents of datasets in a metadata image, by ID.
pub fn set_extents(image: &mut MetadataImage, extents: &BTreeMap<u32, Vec<u64>>) -> Result<()> {
    for (id, dims) in extents {
        let header = image.logged.get(id).copied().flatten();
        set_extent(
            &mut image.image,
            header.ok_or("a dataset that is gone")?,
            dims,
        )?;
    }
    Ok(())
}

/// Sets the extent of the dataset with its header at this address.
fn set_extent(image: &mut Vec<u8>, header: u64, dims: &[u64]) -> Result<()> {
    let (mut space, mut place) = (None, None);
    object_header::messages(image, header, Mode::Checked, |message| {
        match message.kind {
            kind::DATASPACE => space = Some(message),
            kind::LAYOUT => place = Some(message),
            _ => {}
        }
        Ok(match (&space, &place) {
            (Some(_), Some(_)) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    })?;
    let space = space.filter(|space| !space.is_shared());
    let space = space.ok_or("no dataset: it has no extent")?;
    let body = space.body(image)?;
    // The position of the extent in versions 1 and 2 of the message (IV.A.2.b).
    let at = match body[..] {
        [1, rank, ..] if usize::from(rank) == dims.len() => 8,
        [2, rank, ..] if usize::from(rank) == dims.len() => 4,
        _ => return Err("an extent of other dimensions".into()),
    };
    let new: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
    if body.get(at..).is_some_and(|old| old.starts_with(&new)) {
        return Ok(());
    }
    replace(image, &space, at, &new)?;
    let Some(place) = place.filter(|place| !place.is_shared()) else {
        return Ok(());
    };
    // Contiguous layout in versions 3 and 4 (IV.A.2.i): class, address, bytes.
    if let [3 | 4, 1, ..] = place.body(image)?[..] {
        let element = Objects::open(&*image)?.dataset(header)?.datatype.size;
        let bytes = dims
            .iter()
            .fold(element.into(), |n: u64, dim| n.saturating_mul(*dim));
        replace(image, &place, 10, &bytes.to_le_bytes())?;
    }
    Ok(())
}

/// Removes the chunks of datasets without elements, given by the addresses of their headers, so that the next reader of the log
/// chooses chunks. A header without room for the change stays as it is.
pub fn without_chunks(image: &mut Vec<u8>, headers: &[u64]) -> Result<()> {
    for header in headers {
        let info = Objects::open(&*image)?.dataset(*header)?;
        let mut found = Vec::new();
        object_header::messages(image, *header, Mode::Checked, |message| {
            if matches!(message.kind, kind::LAYOUT | kind::FILL_VALUE) && !message.is_shared() {
                found.push(message);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let elements = info.space.elements().unwrap_or(u64::MAX);
        let bytes = elements.saturating_mul(info.datatype.size.into());
        let mut place = header::contiguous(u64::MAX, bytes);
        let room = found.iter().find(|message| message.kind == kind::LAYOUT);
        let room = room.map_or(0, |message| usize::from(message.len));
        if room < place.len() {
            continue;
        }
        place.resize(room, 0);
        for message in found {
            let body = message.body(image)?;
            match (message.kind, &body[..]) {
                (kind::LAYOUT, _) => replace(image, &message, 0, &place)?,
                (_, [1 | 2, allocation::INCREMENTAL, ..]) => {
                    replace(image, &message, 1, &[allocation::LATE])?;
                }
                // Version 3: the allocation time is in the two lowest bits.
                (_, [3, flags, ..]) if flags & 3 == allocation::INCREMENTAL => {
                    replace(image, &message, 1, &[flags & !3 | allocation::LATE])?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Replaces bytes of a message.
fn replace(image: &mut [u8], message: &Message, at: usize, bytes: &[u8]) -> Result<()> {
    existing::put_at(image, message.data + at as u64, bytes)?;
    let block = message.block.clone();
    block.map_or(Ok(()), |block| existing::set_checksum(image, block))
}

/// The uses of scales: for each scale, pairs of a dataset and one of its dimensions. Scales and datasets are IDs.
type Uses = HashMap<u32, Vec<(u32, u32)>>;

struct Maker<'a> {
    /// All objects, the root group first.
    objects: Vec<Made>,
    /// Numbers of objects, by path. The path of the root group is empty.
    numbers: HashMap<&'a str, usize>,
    /// The ID of the first new dataset.
    first: u32,
    /// The numbers of the new datasets, in the order of their IDs.
    of_datasets: Vec<usize>,
    /// Groups with link messages, by path, with the number of their links.
    with_messages: HashMap<&'a str, usize>,
    /// The messages of datatypes. Thousands of datasets share a few types.
    datatypes: HashMap<&'a Datatype, Vec<u8>>,
    /// The last dataset, and its messages without attributes.
    last: Option<(&'a DatasetLayout, Rc<Messages>)>,
    /// The uses that the definitions add.
    uses: Uses,
    /// The image to add to, if there is one.
    base: Option<Base<'a>>,
}

/// An image to which definitions add.
struct Base<'a> {
    objects: Objects<&'a Vec<u8>>,
    image: &'a MetadataImage,
    /// Numbers of objects in the image, by the addresses of their headers.
    numbers: HashMap<u64, usize>,
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
    for (dataset, defined) in (0u32..).zip(datasets) {
        for (dimension, scales) in (0u32..).zip(&defined.scales.attached) {
            for scale in scales {
                uses.entry(*scale).or_default().push((dataset, dimension));
            }
        }
    }
    uses
}

fn new_uses(definitions: &[Definition]) -> Uses {
    let mut uses = Uses::new();
    for definition in definitions {
        if let Definition::Attachment {
            dataset,
            dimension,
            scale,
        } = definition
        {
            uses.entry(*scale).or_default().push((*dataset, *dimension));
        }
    }
    uses
}

impl<'a> Maker<'a> {
    /// `datasets`: the expected number of datasets, for which room is reserved.
    fn new(definitions: &'a [Definition], uses: Uses, datasets: usize) -> Option<Self> {
        let with_messages = groups_with_messages(definitions);
        let root = Made::group(with_messages.contains_key(""))?;
        let mut maker = Self::of_root(root, with_messages, uses);
        maker.objects.reserve(datasets);
        maker.numbers.reserve(datasets);
        maker.of_datasets.reserve(datasets);
        Some(maker)
    }

    fn of_root(root: Made, with_messages: HashMap<&'a str, usize>, uses: Uses) -> Self {
        Maker {
            objects: vec![root],
            numbers: HashMap::from([("", 0)]),
            first: 0,
            of_datasets: Vec::new(),
            with_messages,
            datatypes: HashMap::new(),
            last: None,
            uses,
            base: None,
        }
    }

    /// A maker that adds to an image.
    fn onto(image: &'a MetadataImage, definitions: &'a [Definition]) -> Result<Self> {
        let objects = Objects::open(&image.image)?;
        let root = objects.root();
        let with_messages = groups_with_messages(definitions);
        Ok(Maker {
            first: u32::try_from(image.ids())?,
            base: Some(Base {
                objects,
                image,
                numbers: HashMap::from([(root, 0)]),
            }),
            ..Self::of_root(Made::existing(root), with_messages, new_uses(definitions))
        })
    }

    /// Makes the objects of definitions. `datasets` are the new datasets.
    fn define(&mut self, definitions: &'a [Definition], datasets: &'a [Defined]) -> Result<()> {
        let mut next = datasets.iter();
        for definition in definitions {
            let made = match definition {
                Definition::Group { path } => self.group(path),
                Definition::Dataset { path, .. } => {
                    let defined = next.next().ok_or("a dataset without a number")?;
                    self.dataset(path, defined)
                }
                Definition::Attribute {
                    object,
                    name,
                    value,
                } => self.attribute(object, name, value),
                // `datasets` reflect these already; for datasets of the image, `scales_of_old` adds them.
                Definition::Extent { .. }
                | Definition::Scale { .. }
                | Definition::Attachment { .. }
                | Definition::Label { .. } => Some(()),
            };
            made.ok_or_else(|| no_room(definition))?;
        }
        Ok(())
    }

    /// The number of the object at a path.
    fn number(&mut self, path: &str) -> Option<usize> {
        if let Some(number) = self.numbers.get(path) {
            return Some(*number);
        }
        let address = self.base.as_ref()?.objects.find(path).ok()??;
        self.existing(address)
    }

    /// The number of the object of the image with its header at this address.
    fn existing(&mut self, address: u64) -> Option<usize> {
        let numbers = &mut self.base.as_mut()?.numbers;
        let next = self.objects.len();
        let number = *numbers.entry(address).or_insert(next);
        if number == next {
            self.objects.push(Made::existing(address));
        }
        Some(number)
    }

    /// The number of the dataset with this ID.
    fn of_id(&mut self, id: u32) -> Option<usize> {
        if let Some(new) = id.checked_sub(self.first) {
            return self.of_datasets.get(new as usize).copied();
        }
        let address = self.base.as_ref()?.image.logged.get(&id).copied()??;
        self.existing(address)
    }

    /// Adds an object to its group. Returns the number of the object.
    fn add(&mut self, path: &'a str, object: Made) -> Option<usize> {
        let (parent, name) = path.rsplit_once('/')?;
        let parent = self.number(parent)?;
        let number = self.objects.len();
        let parent = self.objects.get_mut(parent)?;
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
        let id = self.first + u32::try_from(self.of_datasets.len()).ok()?;
        let uses = self.uses.get(&id);
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
        let number = self.number(object)?;
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
        for (id, defined) in (self.first..).zip(datasets) {
            let number = self.of_id(id)?;
            let scales = &defined.scales;
            if let Some(name) = &scales.name {
                self.objects.get_mut(number)?.scale(name)?;
            }
            if let Some(uses) = self.uses.remove(&id) {
                self.reference_list(number, (Vec::new(), true), uses)?;
            }
            if !scales.attached.is_empty() {
                let attached = scales.attached.iter();
                let attached = attached.map(|of| of.iter().map(|id| self.of_id(*id)).collect());
                let attached = attached.collect::<Option<Vec<_>>>()?;
                self.objects.get_mut(number)?.dimension_list(attached)?;
            }
            if !scales.labels.is_empty() {
                self.labels(number, &scales.labels)?;
            }
        }
        Some(())
    }

    /// Adds scales and labels to datasets of the image. `datasets` are all datasets of the log.
    fn scales_of_old(&mut self, definitions: &[Definition], datasets: &[Defined]) -> Result<()> {
        let Some(base) = &self.base else {
            return Ok(());
        };
        let ids = u32::try_from(base.image.ids())?;
        let mut attached: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        let mut labelled = BTreeSet::new();
        for definition in definitions {
            match definition {
                Definition::Scale { dataset, name } if *dataset < ids => {
                    let number = self.of_id(*dataset).ok_or(NO_DATASET)?;
                    self.objects[number].scale(name).ok_or(NO_ROOM)?;
                }
                Definition::Attachment {
                    dataset,
                    dimension,
                    scale,
                } if *dataset < ids => {
                    let of_dataset = attached.entry(*dataset).or_default();
                    of_dataset.push((*dimension, *scale));
                }
                Definition::Label { dataset, .. } if *dataset < ids => {
                    labelled.insert(*dataset);
                }
                _ => {}
            }
        }
        for (id, new) in attached {
            let rank = datasets
                .get(id as usize)
                .ok_or(NO_DATASET)?
                .layout
                .dims
                .len();
            self.attach(id, new, rank)?;
        }
        for (scale, uses) in std::mem::take(&mut self.uses) {
            self.use_old(scale, uses)?;
        }
        for id in labelled {
            let number = self.of_id(id).ok_or(NO_DATASET)?;
            let labels = &datasets.get(id as usize).ok_or(NO_DATASET)?.scales.labels;
            self.objects[number].replace("DIMENSION_LABELS");
            self.labels(number, labels).ok_or(NO_ROOM)?;
        }
        Ok(())
    }

    /// Attaches scales to dimensions of a dataset in the image.
    fn attach(&mut self, dataset: u32, new: Vec<(u32, u32)>, rank: usize) -> Result<()> {
        const NAME: &str = "DIMENSION_LIST";
        let number = self.of_id(dataset).ok_or(NO_DATASET)?;
        let old = self.old_attribute(number, NAME, |objects, found| {
            outline::lists(objects, found, rank)
        })?;
        let mut lists = Vec::with_capacity(rank);
        for old in old.unwrap_or_else(|| vec![Vec::new(); rank]) {
            let numbers = old.into_iter().map(|address| self.existing(address));
            lists.push(numbers.collect::<Option<Vec<_>>>().ok_or(NO_DATASET)?);
        }
        for (dimension, scale) in new {
            let scale = self.of_id(scale).ok_or(NO_DATASET)?;
            let list = lists.get_mut(dimension as usize);
            list.ok_or("a scale of no dimension")?.push(scale);
        }
        self.objects[number].replace(NAME);
        Ok(self.objects[number].dimension_list(lists).ok_or(NO_ROOM)?)
    }

    /// Adds uses to a scale in the image.
    fn use_old(&mut self, scale: u32, new: Vec<(u32, u32)>) -> Result<()> {
        const NAME: &str = "REFERENCE_LIST";
        let number = self.of_id(scale).ok_or(NO_DATASET)?;
        let old = self.old_attribute(number, NAME, outline::uses)?;
        let (old, signed) = old.unwrap_or((Vec::new(), true));
        let mut uses = Vec::with_capacity(old.len() + new.len());
        for (address, dimension) in old {
            uses.push((self.existing(address).ok_or(NO_DATASET)?, dimension));
        }
        self.objects[number].replace(NAME);
        Ok(self
            .reference_list(number, (uses, signed), new)
            .ok_or(NO_ROOM)?)
    }

    /// Reads an attribute of an object in the image with `read`. Fails if the attribute does not have the form that the
    /// specification of dimension scales demands.
    fn old_attribute<T>(
        &self,
        number: usize,
        name: &str,
        read: impl FnOnce(&Objects<&'a Vec<u8>>, &Attribute) -> Option<T>,
    ) -> Result<Option<T>> {
        let existing = self.objects[number].existing.as_ref();
        let (Some(base), Some(existing)) = (&self.base, existing) else {
            return Ok(None);
        };
        let Some(found) = base.objects.attribute(existing.address, name)? else {
            return Ok(None);
        };
        let read = read(&base.objects, &found);
        Ok(Some(read.ok_or_else(|| {
            format!("an attribute {name} of another form")
        })?))
    }

    fn labels(&mut self, number: usize, labels: &[String]) -> Option<()> {
        let space = header::list(labels.len() as u64);
        self.texts(number, "DIMENSION_LABELS", &space, labels)
    }

    /// Adds the list of the dimensions that use a scale. `uses` are numbers of objects with dimensions, and `signed` tells
    /// whether the integer type of dimensions is signed. `new` are IDs of datasets with dimensions.
    fn reference_list(
        &mut self,
        scale: usize,
        (mut uses, signed): (Vec<(usize, u32)>, bool),
        new: Vec<(u32, u32)>,
    ) -> Option<()> {
        for (dataset, dimension) in new {
            uses.push((self.of_id(dataset)?, dimension));
        }
        self.objects.get_mut(scale)?.reference_list(&uses, signed)
    }

    /// The image with all new objects.
    fn onto_image(self, image: &MetadataImage) -> Result<MetadataImage> {
        let objects = self.objects.into_iter().map(|made| made.object(1));
        let (bytes, addresses) = written::add(&image.image, objects.collect())?;
        let mut logged = image.logged.clone();
        for (id, number) in (self.first..).zip(self.of_datasets) {
            logged.insert(id, addresses.get(number).copied());
        }
        Ok(MetadataImage {
            image: bytes,
            logged,
        })
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
        Some(MetadataImage {
            image: space.into_bytes(),
            logged: (0u32..).zip(self.of_datasets.iter().map(address)).collect(),
        })
    }
}

const NO_DATASET: &str = "there is no such dataset";

/// The largest number of uses of a scale that fits into its header. A message is shorter than 64 KiB.
const MOST_USES_IN_HEADER: usize = 3900;
