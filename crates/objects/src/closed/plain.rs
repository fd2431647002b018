//! Copies objects of a metadata image into the form of a closed log: groups with symbol tables or link messages, logged
//! datasets, and their attributes. An image with anything else is left to libhdf5.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use h5logfs_hdf5_format::filters::{self, Filter};
use h5logfs_hdf5_format::object_header::{self, Mode, PREFIX, Prefix, kind};
use h5logfs_hdf5_format::written::header::{self, Messages, allocation};
use h5logfs_hdf5_format::written::{HeapValue, Made, NewObject, Patches, Stored, Target, datatype};
use h5logfs_hdf5_format::{
    AttributeParts, Class, Dataspace, Datatype, GlobalHeaps, Layout, Link, LinkTarget, Objects,
    ReferenceKind, link,
};
use h5logfs_log::logvol::{escaped, names};

use crate::Result;

/// Copies all objects of an image, the root group first. `ids` lists the logged datasets. `None` if libhdf5 has to copy
/// them.
pub fn objects(image: &Vec<u8>, ids: &HashMap<u64, u32>) -> Result<Option<Vec<NewObject>>> {
    let objects = Objects::open(image)?;
    let mut reader = Reader {
        heaps: GlobalHeaps::new(image),
        objects,
        ids,
        kinds: Vec::new(),
        bases: Vec::new(),
        last_type: None,
    };
    let mut found = Found::of(reader.objects.root(), ids.len());
    let mut all = Vec::with_capacity(ids.len() + 1);
    let mut pointers = Vec::with_capacity(ids.len() + 1);
    while let Some(address) = found.addresses.get(all.len()).copied() {
        let Some(copy) = reader.object(address)? else {
            return Ok(None);
        };
        let Copy {
            mut made,
            patches,
            links,
            pointers: of_object,
            ..
        } = copy;
        for link in links {
            let target = match link.target {
                LinkTarget::Hard(address) => Target::Object(found.link_to(address)),
                LinkTarget::Soft(path) => Target::Path(path),
                LinkTarget::External { .. } | LinkTarget::Other(_) => return Ok(None),
            };
            let name = match escaped(&link.name) {
                Cow::Owned(stored) => stored,
                Cow::Borrowed(_) => link.name,
            };
            if made.push_link(name, link.utf8, target).is_none() {
                return Ok(None);
            }
        }
        let object = made.object(0);
        all.push(NewObject { patches, ..object });
        pointers.push(of_object);
    }
    for ((object, links), pointers) in all.iter_mut().zip(found.links).zip(pointers) {
        object.links = links;
        // An object without a link is left to libhdf5, which decides about references to it.
        if pointers.resolve(object, &found.numbers).is_none() {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// The objects that links lead to.
struct Found {
    /// The addresses of the objects, by number.
    addresses: Vec<u64>,
    numbers: HashMap<u64, usize>,
    /// The number of links to each object.
    links: Vec<u32>,
}

impl Found {
    /// Starts with the root group. `more` further objects are expected.
    fn of(root: u64, more: usize) -> Self {
        let mut numbers = HashMap::with_capacity(more + 1);
        numbers.insert(root, 0);
        Found {
            addresses: vec![root],
            numbers,
            links: vec![1],
        }
    }

    /// Records a link to the object at an address. Returns the number of the object.
    fn link_to(&mut self, address: u64) -> usize {
        let number = *self.numbers.entry(address).or_insert(self.addresses.len());
        if number == self.addresses.len() {
            self.addresses.push(address);
            self.links.push(0);
        }
        self.links[number] = self.links[number].saturating_add(1);
        number
    }
}

/// References in the attributes of an object: addresses in the image, and positions in the messages.
#[derive(Default)]
struct Pointers {
    references: Vec<(usize, u64)>,
    /// Lists in a heap, by the positions of their places in the messages.
    lists: Vec<(usize, Vec<u64>)>,
}

impl Pointers {
    /// Turns the addresses into references of the copy. `numbers` maps addresses to objects. `None` if an address
    /// belongs to none of these.
    fn resolve(self, object: &mut NewObject, numbers: &HashMap<u64, usize>) -> Option<()> {
        for (at, address) in self.references {
            object.references.push((at, *numbers.get(&address)?));
        }
        for (at, addresses) in self.lists {
            let of_list = addresses
                .iter()
                .map(|address| numbers.get(address).copied());
            let stored = Stored::Objects(of_list.collect::<Option<_>>()?);
            object.heap_values.push(HeapValue { at, stored });
        }
        Some(())
    }
}

/// The copy of an object.
#[derive(Default)]
struct Copy {
    made: Made,
    patches: Patches,
    links: Vec<Link>,
    pointers: Pointers,
    /// The positions in the messages of a stub dataset's ID, and of the last time.
    id_at: Option<usize>,
    time_at: Option<usize>,
}

/// A message of a version-1 header, with its data.
struct Message<'a> {
    kind: u16,
    flags: u8,
    /// The position of the data in the image.
    at: u64,
    data: &'a [u8],
}

/// A group of datasets whose headers differ only in time. Programs make thousands of them. Their stub datasets differ
/// in time and ID.
struct Alike<'a> {
    /// The header of one of the datasets.
    header: &'a [u8],
    /// The positions of the time in that header, and in the messages of the stub dataset.
    time: Option<[usize; 2]>,
    /// The position of the ID in those messages.
    id: usize,
    messages: Rc<Messages>,
}

impl Alike<'_> {
    /// Whether a header belongs to the group.
    fn has(&self, header: &[u8]) -> bool {
        /// The number of links to the object.
        const LINKS: Range<usize> = 4..8;
        let [from, to] = self
            .time
            .map_or([header.len(); 2], |[at, _]| [at, at + TIME]);
        let same = |range: Range<usize>| header.get(range.clone()) == self.header.get(range);
        header.len() == self.header.len()
            && same(0..LINKS.start)
            && same(LINKS.end..from)
            && same(to..header.len())
    }

    /// The stub dataset of a dataset of this group, with this ID and header.
    fn stub_dataset(&self, id: u32, header: &[u8]) -> Option<Copy> {
        let time = self.time.and_then(|[from, to]| {
            let time = header.get(from..)?.first_chunk()?;
            Some((to, *time))
        });
        let id = i32::try_from(id).ok()?;
        Some(Copy {
            made: Made {
                messages: Rc::clone(&self.messages),
                ..Made::default()
            },
            patches: [Some((self.id, id.to_le_bytes())), time],
            ..Copy::default()
        })
    }
}

/// The common part of stub datasets whose datasets differ only in times and attributes.
struct Base<'a> {
    /// The dataset's messages that it was made from: type, flags and data.
    of: Vec<(u16, u8, &'a [u8])>,
    is_scale: bool,
    messages: Rc<Messages>,
    /// The position of the ID in the messages.
    id: usize,
}

/// Whether a stub dataset has this message in another form.
fn is_of_base(message: &Message<'_>) -> bool {
    matches!(
        message.kind,
        kind::DATASPACE
            | kind::DATATYPE
            | kind::LAYOUT
            | kind::PIPELINE
            | kind::FILL_VALUE
            | kind::OLD_FILL_VALUE
    )
}

fn base<'m, 'a>(messages: &'m [Message<'a>]) -> impl Iterator<Item = (u16, u8, &'a [u8])> + 'm {
    let of_base = messages.iter().filter(|message| is_of_base(message));
    of_base.map(|message| (message.kind, message.flags, message.data))
}

impl<'a> Base<'a> {
    /// Whether a dataset with these messages has this common part.
    fn has(&self, messages: &[Message<'a>], is_scale: bool) -> bool {
        self.is_scale == is_scale && base(messages).eq(self.of.iter().copied())
    }

    /// Makes the common part for a dataset with these messages. `None` if libhdf5 has to make it.
    fn of(messages: &[Message<'a>], is_scale: bool) -> Result<Option<Self>> {
        let one = |kind| {
            let mut all = messages.iter().filter(|message| message.kind == kind);
            all.next().filter(|_| all.next().is_none())
        };
        let (Some(datatype), Some(space), Some(layout)) =
            (one(kind::DATATYPE), one(kind::DATASPACE), one(kind::LAYOUT))
        else {
            return Ok(None);
        };
        let Some(space) = Dataspace::of_message(space.data) else {
            return Ok(None);
        };
        let Dataspace::Simple { dims, max_dims } = &space else {
            return Ok(None);
        };
        let of = Datatype::of_message(datatype.data)?;
        let (chunk, usual) = match Layout::of_message(layout.data, space.bytes(of.size))? {
            Layout::Chunked { chunk, .. } => (Some(chunk), allocation::INCREMENTAL),
            Layout::Contiguous { .. } => (None, allocation::LATE),
            Layout::Compact(_) => (None, allocation::EARLY),
            Layout::Virtual(_) | Layout::Other(_) => return Ok(None),
        };
        let filters = match one(kind::PIPELINE) {
            Some(message) => match filters::of_message(message.data) {
                Some(filters) => filters,
                None => return Ok(None),
            },
            None => Vec::new(),
        };
        // netCDF-C crashes on a dimension scale without dimensions.
        let stub = if is_scale {
            header::simple(&vec![0; dims.len().max(1)])
        } else {
            Some(header::NULL.to_vec())
        };
        let make = || {
            let mut new = Messages::default();
            new.push(kind::DATASPACE, 0, &stub?)?;
            new.push(kind::DATATYPE, datatype.flags, datatype.data)?;
            for message in messages {
                match message.kind {
                    kind::FILL_VALUE => {
                        let data = fill_value(message.data, usual)?;
                        new.push(kind::FILL_VALUE, message.flags, &data)?;
                    }
                    kind::OLD_FILL_VALUE => {
                        new.push(message.kind, message.flags, message.data)?;
                    }
                    _ => {}
                }
            }
            let nowhere = header::contiguous(u64::MAX, 0);
            new.push(kind::LAYOUT, 0, &nowhere)?;
            let id = push_numbers(&mut new, dims, max_dims, chunk.as_deref(), &filters)?;
            Some((Rc::new(new), id))
        };
        Ok(make().map(|(messages_of_stub, id)| Base {
            of: base(messages).collect(),
            is_scale,
            messages: messages_of_stub,
            id,
        }))
    }
}

/// The number of kinds of datasets that are remembered. Programs with many datasets make few kinds of them, or no two
/// of a kind.
const MOST_KINDS: usize = 8;

/// Bytes of a time, and of the version in front of it.
const TIME: usize = 4;
const VERSION: usize = 4;

struct Reader<'a> {
    objects: Objects<&'a Vec<u8>>,
    heaps: GlobalHeaps<'a, Vec<u8>>,
    ids: &'a HashMap<u64, u32>,
    /// The most recent kinds of datasets.
    kinds: Vec<Alike<'a>>,
    /// The most recent common parts of stub datasets.
    bases: Vec<Base<'a>>,
    /// The most recent attribute type: its message, its size, and its targets.
    last_type: Option<(&'a [u8], usize, Rc<Leads>)>,
}

impl<'a> Reader<'a> {
    fn object(&mut self, address: u64) -> Result<Option<Copy>> {
        let Some(id) = self.ids.get(&address).copied() else {
            let messages = self.messages(address)?;
            return match messages {
                Some(messages) => self.group(address, messages),
                None => Ok(None),
            };
        };
        let header = self.header(address);
        if let Some(header) = header
            && let Some(kind) = self.kinds.iter().find(|kind| kind.has(header))
        {
            return Ok(kind.stub_dataset(id, header));
        }
        let Some(messages) = self.messages(address)? else {
            return Ok(None);
        };
        let is_time = |message: &&Message<'_>| message.kind == kind::MODIFICATION_TIME;
        let time = messages.iter().rev().find(is_time);
        let time = time.map(|message| (message.at.wrapping_sub(address), message.data.len()));
        let copy = self.stub_dataset(id, messages)?;
        if let (Some(header), Some(copy)) = (header, &copy) {
            self.note(header, time, copy);
        }
        Ok(copy)
    }

    /// A version-1 header, if it is in one piece.
    fn header(&self, address: u64) -> Option<&'a [u8]> {
        let image: &'a Vec<u8> = self.objects.bytes();
        let header = image.get(usize::try_from(address).ok()?..)?;
        let (1, len) = (header.first()?, header.get(8..)?.first_chunk()?) else {
            return None;
        };
        header.get(..PREFIX + u32::from_le_bytes(*len) as usize)
    }

    /// Remembers a kind of datasets, from a stub dataset that was just made. `time`: the position and length of the
    /// message with the last time.
    fn note(&mut self, header: &'a [u8], time: Option<(u64, usize)>, copy: &Copy) {
        let time = match (time, copy.time_at) {
            (None, None) => None,
            // The time may lie in another piece of the header.
            (Some((at, len)), Some(in_stub_dataset))
                if len == VERSION + TIME && at < (header.len() - len) as u64 =>
            {
                Some([at as usize + VERSION, in_stub_dataset + VERSION])
            }
            _ => return,
        };
        let Pointers { references, lists } = &copy.pointers;
        let leads_nowhere =
            copy.made.heap_values.is_empty() && references.is_empty() && lists.is_empty();
        let Some(id) = copy.id_at.filter(|_| leads_nowhere) else {
            return;
        };
        self.kinds.truncate(MOST_KINDS - 1);
        self.kinds.insert(
            0,
            Alike {
                header,
                time,
                id,
                messages: Rc::clone(&copy.made.messages),
            },
        );
    }

    /// The messages of an object. `None` if they are not what libhdf5 writes in version-1 headers.
    fn messages(&self, address: u64) -> Result<Option<Vec<Message<'a>>>> {
        let image: &'a Vec<u8> = self.objects.bytes();
        if Prefix::read(image, address)?.flags().is_some() {
            return Ok(None);
        }
        let (mut messages, mut are_own) = (Vec::with_capacity(8), true);
        object_header::messages(image, address, Mode::Strict, |message| {
            are_own &= !message.is_shared();
            if !matches!(message.kind, kind::NIL | kind::CONTINUATION) {
                messages.push(Message {
                    kind: message.kind,
                    flags: message.flags,
                    at: message.data,
                    data: usize::try_from(message.data)
                        .ok()
                        .and_then(|at| image.get(at..)?.get(..message.len.into()))
                        .ok_or("a message past the image")?,
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(are_own.then_some(messages))
    }

    fn group(&mut self, address: u64, messages: Vec<Message<'a>>) -> Result<Option<Copy>> {
        let has_table = messages
            .iter()
            .any(|message| message.kind == kind::SYMBOL_TABLE);
        let mut copy = Copy::default();
        if has_table {
            let Some(made) = Made::group(false) else {
                return Ok(None);
            };
            copy.made = made;
        } else if !messages
            .iter()
            .any(|message| message.kind == kind::LINK_INFO)
        {
            return Ok(None);
        }
        for message in messages {
            let is_made = match message.kind {
                kind::SYMBOL_TABLE if has_table => Some(()),
                kind::LINK_INFO | kind::GROUP_INFO if !has_table => {
                    copied_info(&mut copy, &message)
                }
                // Links follow when their targets have numbers.
                kind::LINK if !has_table => Some(()),
                _ => self.common(&mut copy, &message)?,
            };
            if is_made.is_none() {
                return Ok(None);
            }
        }
        copy.links = self.objects.links(address)?;
        Ok(Some(copy))
    }

    /// The stub dataset of a logged dataset (`docs/formats/logvol.md`, section 2).
    fn stub_dataset(&mut self, id: u32, messages: Vec<Message<'a>>) -> Result<Option<Copy>> {
        let Some(id_bytes) = i32::try_from(id).ok().map(i32::to_le_bytes) else {
            return Ok(None);
        };
        let is_scale = is_scale(&messages)?;
        let known = self.bases.iter().find(|base| base.has(&messages, is_scale));
        let (base, id_at) = match known {
            Some(base) => (Rc::clone(&base.messages), base.id),
            None => match Base::of(&messages, is_scale)? {
                Some(base) => {
                    let found = (Rc::clone(&base.messages), base.id);
                    self.bases.truncate(MOST_KINDS - 1);
                    self.bases.insert(0, base);
                    found
                }
                None => return Ok(None),
            },
        };
        let mut copy = Copy {
            patches: [Some((id_at, id_bytes)), None],
            id_at: Some(id_at),
            ..Copy::default()
        };
        copy.made.messages = base;
        for message in messages.iter().filter(|message| !is_of_base(message)) {
            if self.common(&mut copy, message)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(copy))
    }

    /// Copies the messages that objects of all kinds may have: a time, a comment, and attributes.
    fn common(&mut self, copy: &mut Copy, message: &Message<'a>) -> Result<Option<()>> {
        let Message {
            kind, flags, data, ..
        } = message;
        match *kind {
            kind::MODIFICATION_TIME | kind::COMMENT => {
                let at = copy.made.messages().push(*kind, *flags, data);
                if *kind == kind::MODIFICATION_TIME {
                    copy.time_at = at;
                }
                Ok(at.map(|_| ()))
            }
            kind::ATTRIBUTE => self.attribute(copy, *flags, data),
            _ => Ok(None),
        }
    }

    fn attribute(&mut self, copy: &mut Copy, flags: u8, data: &'a [u8]) -> Result<Option<()>> {
        let parts = AttributeParts::of_message(data)?;
        if parts.has_shared_datatype || parts.has_shared_space {
            return Ok(None);
        }
        let Some((size, leads)) = self.attribute_type(parts.datatype)? else {
            return Ok(None);
        };
        let Some(elements) = elements(&parts, size) else {
            return Ok(None);
        };
        let Some((data, elements_at)) = renamed(data, &parts, elements.len()) else {
            return Ok(None);
        };
        let Some(at) = copy.made.messages().push(kind::ATTRIBUTE, flags, &data) else {
            return Ok(None);
        };
        for (number, element) in elements.chunks_exact(size).enumerate() {
            let at = at + elements_at + size * number;
            match &*leads {
                Leads::Nowhere => return Ok(Some(())),
                Leads::ToObjects(places) => copy.pointers.note(at, element, places),
                Leads::ToHeap { are_objects } => {
                    self.heap_value(copy, at + 4, element, *are_objects)?;
                }
            }
        }
        Ok(Some(()))
    }

    /// The size of an element of this type, and its targets. `None` if libhdf5 has to copy it.
    fn attribute_type(&mut self, message: &'a [u8]) -> Result<Option<(usize, Rc<Leads>)>> {
        if let Some((last, size, leads)) = &self.last_type
            && *last == message
        {
            return Ok(Some((*size, Rc::clone(leads))));
        }
        let datatype = Datatype::of_message(message)?;
        let size = datatype.size as usize;
        Ok(Leads::of(&datatype).map(|leads| {
            let leads = Rc::new(leads);
            self.last_type = Some((message, size, Rc::clone(&leads)));
            (size, leads)
        }))
    }

    /// Copies a value of variable length. Its length comes first, and its heap address and number are at `at`.
    fn heap_value(
        &mut self,
        copy: &mut Copy,
        at: usize,
        element: &[u8],
        are_objects: bool,
    ) -> Result<()> {
        let &[a, b, c, d] = element.as_chunks::<4>().0 else {
            return Ok(());
        };
        let (length, number) = (u32::from_le_bytes(a), u32::from_le_bytes(d));
        let address = u64::from(u32::from_le_bytes(b)) | u64::from(u32::from_le_bytes(c)) << 32;
        // An empty value has no place in a heap.
        if length == 0 && number == 0 {
            return Ok(());
        }
        let bytes = self.heaps.object(address, number)?;
        if are_objects {
            let addresses = bytes.as_chunks().0.iter();
            let addresses = addresses.map(|bytes| u64::from_le_bytes(*bytes));
            copy.pointers.lists.push((at, addresses.collect()));
        } else {
            let stored = Stored::Bytes(bytes);
            copy.made.heap_values.push(HeapValue { at, stored });
        }
        Ok(())
    }
}

/// Copies the message of a group about its link messages. `None` if the group tracks their order, or keeps links in a
/// heap.
fn copied_info(copy: &mut Copy, message: &Message<'_>) -> Option<()> {
    if message.kind == kind::LINK_INFO && !message.data.starts_with(&link::IN_MESSAGES) {
        return None;
    }
    let messages = copy.made.messages();
    messages.push(message.kind, message.flags, message.data)?;
    Some(())
}

/// Whether a dataset with these messages is a dimension scale (HDF5 Dimension Scale Specification 1.0).
fn is_scale(messages: &[Message<'_>]) -> Result<bool> {
    const TEXT: &[u8] = b"DIMENSION_SCALE";
    for message in messages {
        if message.kind != kind::ATTRIBUTE {
            continue;
        }
        let parts = AttributeParts::of_message(message.data)?;
        if parts.name == b"CLASS" && !parts.has_shared_datatype {
            let datatype = Datatype::of_message(parts.datatype)?;
            let text =
                elements(&parts, datatype.size as usize).and_then(|text| text.strip_prefix(TEXT));
            return Ok(text.is_some_and(|rest| rest.iter().all(|byte| *byte == 0)));
        }
    }
    Ok(false)
}

/// The elements of an attribute, each of `size` bytes. `None` if some are missing.
fn elements<'a>(parts: &AttributeParts<'a>, size: usize) -> Option<&'a [u8]> {
    let count = Dataspace::of_message(parts.space)?.elements()?;
    let len = usize::try_from(count).ok()?.checked_mul(size)?;
    parts.rest.get(..len)
}

impl Pointers {
    /// Records the references of an element at `at`. `places` are their positions in the element.
    fn note(&mut self, at: usize, element: &[u8], places: &[usize]) {
        for place in places {
            let address = element.get(*place..).and_then(<[u8]>::first_chunk);
            // Zeros are the null reference.
            if let Some(address) = address.filter(|address| **address != [0; 8]) {
                self.references
                    .push((at + place, u64::from_le_bytes(*address)));
            }
        }
    }
}

/// The targets of elements.
enum Leads {
    Nowhere,
    /// References to objects, at these positions in an element.
    ToObjects(Vec<usize>),
    /// Values of variable length: texts, or lists.
    ToHeap {
        /// The lists consist of references to objects only.
        are_objects: bool,
    },
}

impl Leads {
    /// The targets of elements of a type. `None` if libhdf5 has to copy them.
    fn of(datatype: &Datatype) -> Option<Self> {
        match &datatype.class {
            Class::VariableText { .. } => Some(Leads::ToHeap { are_objects: false }),
            Class::VariableList { base } => match &base.class {
                Class::Reference(ReferenceKind::Object) => {
                    Some(Leads::ToHeap { are_objects: true })
                }
                _ => match Leads::of(base)? {
                    Leads::Nowhere => Some(Leads::ToHeap { are_objects: false }),
                    _ => None,
                },
            },
            _ => {
                let mut places = Vec::new();
                add_references(datatype, 0, &mut places)?;
                Some(if places.is_empty() {
                    Leads::Nowhere
                } else {
                    Leads::ToObjects(places)
                })
            }
        }
    }
}

/// Adds the positions of object references in an element that begins at `at`. `None` if the element has other targets,
/// too.
fn add_references(datatype: &Datatype, at: usize, places: &mut Vec<usize>) -> Option<()> {
    match &datatype.class {
        Class::Reference(ReferenceKind::Object) => places.push(at),
        Class::Compound { members } => {
            for member in members {
                add_references(&member.datatype, at + member.offset as usize, places)?;
            }
        }
        Class::Array { base, .. } | Class::Enumeration { base, .. } | Class::Complex { base } => {
            let before = places.len();
            add_references(base, at, places)?;
            // Programs make no attributes with arrays of references.
            if places.len() > before {
                return None;
            }
        }
        Class::Reference(ReferenceKind::Region | ReferenceKind::Other(_))
        | Class::VariableList { .. }
        | Class::VariableText { .. }
        | Class::Other(_) => return None,
        Class::Integer { .. }
        | Class::Float { .. }
        | Class::Time { .. }
        | Class::Text { .. }
        | Class::Bitfield { .. }
        | Class::Opaque { .. } => {}
    }
    Some(())
}

/// The fill value message (IV.A.2.f) of a stub dataset. Its elements are contiguous, so the `usual` allocation time of
/// the dataset's layout becomes the usual one of a contiguous layout.
fn fill_value(data: &[u8], usual: u8) -> Option<Vec<u8>> {
    let mut data = data.to_vec();
    match data.get_mut(..2)? {
        [1 | 2, allocated] => {
            if *allocated == usual {
                *allocated = allocation::LATE;
            }
        }
        _ => return None,
    }
    Some(data)
}

/// Adds the attributes that make a dataset a stub dataset. Returns the position of its ID, which is still 0.
fn push_numbers(
    messages: &mut Messages,
    dims: &[u64],
    max_dims: &[u64],
    chunk: Option<&[u64]>,
    filters: &[Filter],
) -> Option<usize> {
    let int64 = datatype::integer(8, true);
    messages.push_list(names::DIMS, int64, dims, u64::to_le_bytes)?;
    messages.push_list(names::MAX_DIMS, int64, max_dims, u64::to_le_bytes)?;
    let at = messages.push_list(
        names::ID,
        datatype::integer(4, true),
        &[0],
        i32::to_le_bytes,
    )?;
    if let Some(chunk) = chunk {
        messages.push_list(names::CHUNK, int64, chunk, u64::to_le_bytes)?;
    }
    if filters.is_empty() {
        return Some(at);
    }
    let pipeline = filters
        .iter()
        .cloned()
        .map(Filter::skippable)
        .flat_map(|f| {
            let head = [f.id as u32, f.flags, f.values.len() as u32];
            head.into_iter().chain(f.values)
        });
    let pipeline: Vec<u32> = pipeline.collect();
    let uint32 = datatype::integer(4, false);
    messages.push_list(names::FILTERS, uint32, &pipeline, u32::to_le_bytes)?;
    Some(at)
}

/// An attribute message under the name that the log gives to the attribute, and the position of its elements.
fn renamed(data: &[u8], parts: &AttributeParts<'_>, elements: usize) -> Option<(Vec<u8>, usize)> {
    let name = escaped(parts.name);
    let at = data.len() - parts.rest.len();
    let end = at.checked_add(elements)?;
    if *name == *parts.name {
        return Some((data[..end].to_vec(), at));
    }
    let (&version, pad) = match data.first()? {
        version @ 1 => (version, 8),
        version => (version, 1),
    };
    let fixed = if version == 3 { 9 } else { 8 };
    let mut new = data.get(..fixed)?.to_vec();
    new[2..4].copy_from_slice(&u16::try_from(name.len() + 1).ok()?.to_le_bytes());
    for part in [&[&name, &[0][..]].concat(), parts.datatype, parts.space] {
        let at = new.len();
        new.extend(part);
        new.resize(at + part.len().next_multiple_of(pad), 0);
    }
    let at = new.len();
    new.extend(&data[data.len() - parts.rest.len()..end]);
    Some((new, at))
}
