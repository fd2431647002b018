//! Objects of a shadow that a closed log has without more ado: old groups, logged datasets, and their attributes. Whatever else a
//! shadow may have, libhdf5 copies.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use h5logfs_log::filters::Filter;
use h5logfs_log::image::object_header::{self, Mode, Prefix, kind};
use h5logfs_log::logvol::{escaped, names};

use super::header::{self, Messages, allocation};
use crate::attribute::Parts;
use crate::dataset::{Layout, pipeline};
use crate::datatype::{Class, Datatype, ReferenceKind};
use crate::heap::GlobalHeaps;
use crate::{Dataspace, LinkTarget, Objects, Result};

/// An object as the closed log has it, but for addresses.
#[derive(Debug)]
pub struct Plain {
    /// Objects that are alike share them.
    pub messages: Rc<Messages>,
    /// What differs in those of this one.
    pub patches: Patches,
    /// How many links lead to it.
    pub links: u32,
    /// Of a group.
    pub table: Option<GroupLinks>,
    /// Elements of its attributes that lie in a heap.
    pub heap_values: Vec<HeapValue>,
    /// Where in the messages the addresses of objects are, and the numbers of these.
    pub references: Vec<(usize, usize)>,
}

/// Bytes of messages that are replaced, and where they are: the ID of a dataset, and a time.
pub type Patches = [Option<(usize, [u8; 4])>; 2];

/// The links of a group, by name.
#[derive(Debug)]
pub struct GroupLinks {
    /// Where in the messages the symbol table is named.
    pub at: usize,
    pub links: Vec<(Vec<u8>, Target)>,
}

/// What a link leads to.
#[derive(Debug)]
pub enum Target {
    /// The object of this number.
    Object(usize),
    /// What is at this path.
    Path(Vec<u8>),
}

/// A value of variable length.
#[derive(Debug)]
pub struct HeapValue {
    /// Where in the messages its place is named.
    pub at: usize,
    pub stored: Stored,
}

/// What lies in a heap.
#[derive(Debug)]
pub enum Stored {
    Bytes(Vec<u8>),
    /// The addresses of the objects of these numbers.
    Objects(Vec<usize>),
}

impl Stored {
    /// Its bytes, where objects have these addresses.
    pub fn bytes(&self, addresses: &[u64]) -> Option<Cow<'_, [u8]>> {
        match self {
            Stored::Bytes(bytes) => Some(bytes.into()),
            Stored::Objects(numbers) => {
                let addresses = numbers.iter().map(|number| addresses.get(*number).copied());
                let addresses: Vec<u64> = addresses.collect::<Option<_>>()?;
                Some(addresses.into_iter().flat_map(u64::to_le_bytes).collect())
            }
        }
    }
}

/// All objects of an image, the root group first, of which those with IDs are logged. `None` where libhdf5 has to copy them.
pub fn objects(image: &Vec<u8>, ids: &HashMap<u64, u32>) -> Result<Option<Vec<Plain>>> {
    let objects = Objects::open(image)?;
    let mut reader = Reader {
        heaps: GlobalHeaps::new(image),
        objects,
        ids,
        kinds: Vec::new(),
    };
    let mut addresses = vec![reader.objects.root()];
    let mut numbers = HashMap::from([(reader.objects.root(), 0)]);
    // The superblock leads to the root group.
    let mut links = vec![1u32];
    let mut all = Vec::new();
    while let Some(address) = addresses.get(all.len()).copied() {
        let Some((mut object, targets)) = reader.object(address)? else {
            return Ok(None);
        };
        for (name, target) in targets {
            let target = match target {
                LinkTarget::Hard(address) => {
                    let number = *numbers.entry(address).or_insert(addresses.len());
                    if number == addresses.len() {
                        addresses.push(address);
                        links.push(0);
                    }
                    links[number] = links[number].saturating_add(1);
                    Target::Object(number)
                }
                LinkTarget::Soft(path) => Target::Path(path),
                LinkTarget::External { .. } | LinkTarget::Other(_) => return Ok(None),
            };
            if let Some(table) = &mut object.table {
                let stored = match escaped(&name) {
                    Cow::Owned(stored) => Some(stored),
                    Cow::Borrowed(_) => None,
                };
                table.links.push((stored.unwrap_or(name), target));
            }
        }
        all.push(object);
    }
    for (object, links) in all.iter_mut().zip(links) {
        object.links = links;
    }
    Ok(Some(all))
}

/// A message of a header of version 1, whose data are there.
struct Message<'a> {
    kind: u16,
    flags: u8,
    /// Where in the image its data are.
    at: u64,
    data: &'a [u8],
}

/// Datasets whose headers differ in their time alone, as programs make thousands: their anchors differ in time and ID.
struct Alike<'a> {
    /// The header of one of them.
    header: &'a [u8],
    /// Where the time is in it, and in the messages of the anchor.
    time: Option<[usize; 2]>,
    /// Where the ID is in these.
    id: usize,
    messages: Rc<Messages>,
}

impl Alike<'_> {
    /// Whether a header is one of these.
    fn has(&self, header: &[u8]) -> bool {
        /// The number of links.
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

    /// The anchor of the dataset with this ID and a header that is one of these.
    fn anchor(&self, id: u32, header: &[u8]) -> Option<Plain> {
        let time = self.time.and_then(|[from, to]| {
            let time = header.get(from..)?.first_chunk()?;
            Some((to, *time))
        });
        let id = i32::try_from(id).ok()?;
        Some(Plain {
            messages: Rc::clone(&self.messages),
            patches: [Some((self.id, id.to_le_bytes())), time],
            links: 0,
            table: None,
            heap_values: Vec::new(),
            references: Vec::new(),
        })
    }
}

/// Bytes of a time, which follow its version.
const TIME: usize = 4;
const VERSION: usize = 4;

struct Reader<'a> {
    objects: Objects<&'a Vec<u8>>,
    heaps: GlobalHeaps<'a, Vec<u8>>,
    ids: &'a HashMap<u64, u32>,
    /// The last kinds of datasets.
    kinds: Vec<Alike<'a>>,
}

type Links = Vec<(Vec<u8>, LinkTarget)>;

impl<'a> Reader<'a> {
    fn object(&mut self, address: u64) -> Result<Option<(Plain, Links)>> {
        let id = self.ids.get(&address).copied();
        let header = id.and_then(|_| self.header(address));
        if let (Some(id), Some(header)) = (id, header)
            && let Some(kind) = self.kinds.iter().find(|kind| kind.has(header))
        {
            let anchor = kind.anchor(id, header);
            return Ok(anchor.map(|anchor| (anchor, Links::new())));
        }
        let Some(messages) = self.messages(address)? else {
            return Ok(None);
        };
        if let Some(id) = id {
            let is_time = |message: &&Message<'_>| message.kind == kind::MODIFICATION_TIME;
            let time = messages.iter().rev().find(is_time);
            let time = time.map(|message| (message.at.wrapping_sub(address), message.data.len()));
            let Some(made) = self.anchor(id, messages)? else {
                return Ok(None);
            };
            if let Some(header) = header {
                self.note(header, time, &made);
            }
            return Ok(Some((made.object(0, None), Links::new())));
        }
        self.group(address, messages)
    }

    /// A header in one piece of version 1.
    fn header(&self, address: u64) -> Option<&'a [u8]> {
        let image: &'a Vec<u8> = self.objects.bytes();
        let header = image.get(usize::try_from(address).ok()?..)?;
        let (1, len) = (header.first()?, header.get(8..)?.first_chunk()?) else {
            return None;
        };
        header.get(..header::PREFIX + u32::from_le_bytes(*len) as usize)
    }

    /// Takes note of a kind of datasets: that of an anchor which was made. `time`: where the header has its last time, and the bytes of
    /// that message.
    fn note(&mut self, header: &'a [u8], time: Option<(u64, usize)>, made: &Made) {
        /// Programs that make many datasets make few kinds of them, or no two of a kind.
        const MOST: usize = 8;
        let time = match (time, made.time_at) {
            (None, None) => None,
            // It may lie in another piece of the header.
            (Some((at, len)), Some(in_anchor))
                if len == VERSION + TIME && at < (header.len() - len) as u64 =>
            {
                Some([at as usize + VERSION, in_anchor + VERSION])
            }
            _ => return,
        };
        let leads_nowhere = made.heap_values.is_empty() && made.references.is_empty();
        let Some(id) = made.id_at.filter(|_| leads_nowhere) else {
            return;
        };
        self.kinds.truncate(MOST - 1);
        self.kinds.insert(
            0,
            Alike {
                header,
                time,
                id,
                messages: Rc::clone(&made.messages),
            },
        );
    }

    /// The messages of an object. `None` where they are not as libhdf5 writes them in headers of version 1.
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

    fn group(
        &mut self,
        address: u64,
        messages: Vec<Message<'_>>,
    ) -> Result<Option<(Plain, Links)>> {
        if messages
            .iter()
            .all(|message| message.kind != kind::SYMBOL_TABLE)
        {
            return Ok(None);
        }
        let mut made = Made::default();
        let Some(at) = made.messages().push(kind::SYMBOL_TABLE, 0, &[0; 16]) else {
            return Ok(None);
        };
        for message in messages {
            let is_made = match message.kind {
                kind::SYMBOL_TABLE => Some(()),
                _ => self.common(&mut made, &message)?,
            };
            if is_made.is_none() {
                return Ok(None);
            }
        }
        let links = self.objects.links(address)?;
        let links = links.into_iter().map(|link| (link.name, link.target));
        let table = GroupLinks {
            at,
            links: Vec::new(),
        };
        Ok(Some((made.object(0, Some(table)), links.collect())))
    }

    /// The anchor of a logged dataset (`docs/formats/logvol.md`, section 2).
    fn anchor(&mut self, id: u32, messages: Vec<Message<'_>>) -> Result<Option<Made>> {
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
        let (chunk, usual) = match crate::dataset::layout(layout.data, &of, &space)? {
            Layout::Chunked { chunk, .. } => (Some(chunk), allocation::INCREMENTAL),
            Layout::Contiguous { .. } => (None, allocation::LATE),
            Layout::Compact(_) => (None, allocation::EARLY),
            Layout::Virtual(_) | Layout::Other(_) => return Ok(None),
        };
        let filters = match one(kind::PIPELINE) {
            Some(message) => match pipeline(message.data) {
                Some(filters) => filters,
                None => return Ok(None),
            },
            None => Vec::new(),
        };
        let mut made = Made::default();
        let mut make = || {
            let new = made.messages();
            new.push(kind::DATASPACE, 0, &header::NULL)?;
            new.push(kind::DATATYPE, datatype.flags, datatype.data)?;
            for message in &messages {
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
            let at = push_numbers(new, id, dims, max_dims, chunk.as_deref(), &filters)?;
            made.id_at = Some(at);
            Some(())
        };
        if make().is_none() {
            return Ok(None);
        }
        for message in &messages {
            let is_made = match message.kind {
                kind::DATASPACE
                | kind::DATATYPE
                | kind::LAYOUT
                | kind::PIPELINE
                | kind::FILL_VALUE
                | kind::OLD_FILL_VALUE => Some(()),
                _ => self.common(&mut made, message)?,
            };
            if is_made.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(made))
    }

    /// What objects of all kinds may have: a time, a comment, and attributes.
    fn common(&mut self, made: &mut Made, message: &Message<'_>) -> Result<Option<()>> {
        let Message {
            kind, flags, data, ..
        } = message;
        match *kind {
            kind::MODIFICATION_TIME | kind::COMMENT => {
                let at = made.messages().push(*kind, *flags, data);
                if *kind == kind::MODIFICATION_TIME {
                    made.time_at = at;
                }
                Ok(at.map(|_| ()))
            }
            kind::ATTRIBUTE => self.attribute(made, *flags, data),
            _ => Ok(None),
        }
    }

    fn attribute(&mut self, made: &mut Made, flags: u8, data: &[u8]) -> Result<Option<()>> {
        /// Makes a dataset a dimension scale, whose anchor has dimensions.
        const CLASS: &[u8] = b"CLASS";
        let parts = Parts::of_message(data)?;
        if parts.has_shared_datatype || parts.has_shared_space || parts.name == CLASS {
            return Ok(None);
        }
        let datatype = Datatype::of_message(parts.datatype)?;
        let space = Dataspace::of_message(parts.space);
        let count = space.as_ref().and_then(Dataspace::elements);
        let len = count.and_then(|count| count.checked_mul(datatype.size.into()));
        let len = len.and_then(|len| usize::try_from(len).ok());
        let Some(elements) = len.and_then(|len| parts.rest.get(..len)) else {
            return Ok(None);
        };
        let is_text = matches!(datatype.class, Class::VariableText { .. });
        if !is_text && leads_elsewhere(&datatype.class) {
            return Ok(None);
        }
        let Some((data, elements_at)) = renamed(data, &parts, elements.len()) else {
            return Ok(None);
        };
        let Some(at) = made.messages().push(kind::ATTRIBUTE, flags, &data) else {
            return Ok(None);
        };
        if is_text {
            for (number, element) in elements.as_chunks::<16>().0.iter().enumerate() {
                let place = at + elements_at + 16 * number + 4;
                self.heap_value(made, place, element)?;
            }
        }
        Ok(Some(()))
    }

    /// Takes a value of variable length along, which has a length, and an address and a number of its heap at `at`.
    fn heap_value(&mut self, made: &mut Made, at: usize, element: &[u8; 16]) -> Result<()> {
        let &[a, b, c, d] = element.as_chunks::<4>().0 else {
            return Ok(());
        };
        let (length, number) = (u32::from_le_bytes(a), u32::from_le_bytes(d));
        let address = u64::from(u32::from_le_bytes(b)) | u64::from(u32::from_le_bytes(c)) << 32;
        // One without bytes lies nowhere.
        if length == 0 && number == 0 {
            return Ok(());
        }
        let bytes = self.heaps.object(address, number)?;
        let stored = Stored::Bytes(bytes);
        made.heap_values.push(HeapValue { at, stored });
        Ok(())
    }
}

/// An object that is being made.
#[derive(Default)]
pub(super) struct Made {
    pub messages: Rc<Messages>,
    pub heap_values: Vec<HeapValue>,
    pub references: Vec<(usize, usize)>,
    /// Where in the messages its ID is, and the last time.
    pub id_at: Option<usize>,
    time_at: Option<usize>,
    /// The ID, where the messages are those of another one.
    pub id: Option<u32>,
}

impl Made {
    /// The messages, to be changed.
    pub fn messages(&mut self) -> &mut Messages {
        Rc::make_mut(&mut self.messages)
    }

    /// The object, with so many links to it.
    pub fn object(self, links: u32, table: Option<GroupLinks>) -> Plain {
        let id = self.id_at.zip(self.id);
        Plain {
            messages: self.messages,
            patches: [id.map(|(at, id)| (at, id.to_le_bytes())), None],
            links,
            table,
            heap_values: self.heap_values,
            references: self.references,
        }
    }
}

/// The fill value message (IV.A.2.f) of an anchor, whose elements are in one piece. What is `usual` for the layout of the
/// dataset becomes what is usual for that.
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

/// The attributes that make a dataset an anchor. Returns where its ID is.
pub(super) fn push_numbers(
    messages: &mut Messages,
    id: u32,
    dims: &[u64],
    max_dims: &[u64],
    chunk: Option<&[u64]>,
    filters: &[Filter],
) -> Option<usize> {
    let int64 = header::integer(8, true);
    messages.push_list(names::DIMS, int64, dims, u64::to_le_bytes)?;
    messages.push_list(names::MAX_DIMS, int64, max_dims, u64::to_le_bytes)?;
    let id = [i32::try_from(id).ok()?];
    let at = messages.push_list(names::ID, header::integer(4, true), &id, i32::to_le_bytes)?;
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
    let uint32 = header::integer(4, false);
    messages.push_list(names::FILTERS, uint32, &pipeline, u32::to_le_bytes)?;
    Some(at)
}

/// Whether elements lead to other objects, or to a heap.
fn leads_elsewhere(class: &Class) -> bool {
    match class {
        Class::Reference(
            ReferenceKind::Object | ReferenceKind::Region | ReferenceKind::Other(_),
        )
        | Class::VariableList { .. }
        | Class::VariableText { .. }
        | Class::Other(_) => true,
        Class::Array { base, .. } | Class::Enumeration { base, .. } | Class::Complex { base } => {
            leads_elsewhere(&base.class)
        }
        Class::Compound { members } => members
            .iter()
            .any(|member| leads_elsewhere(&member.datatype.class)),
        Class::Integer { .. }
        | Class::Float { .. }
        | Class::Time { .. }
        | Class::Text { .. }
        | Class::Bitfield { .. }
        | Class::Opaque { .. } => false,
    }
}

/// An attribute message with the name that the log gives to the attribute, and where its elements begin.
fn renamed(data: &[u8], parts: &Parts<'_>, elements: usize) -> Option<(Vec<u8>, usize)> {
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
