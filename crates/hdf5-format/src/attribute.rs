//! Attributes, in messages of an object (IV.A.2.m) or in a fractal heap (IV.A.2.v).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::bounds::Allowance;
use crate::datatype::Datatype;
use crate::heap::FractalHeap;
use crate::messages::{Header, shared, shared_address};
use crate::name_index::{Dense, NameIndex};
use crate::object_header::{Prefix, kind};
use crate::{Dataspace, Fields, HeaderBytes, Objects, Result, at};

const KINDS: [u16; 2] = [kind::ATTRIBUTE, kind::ATTRIBUTE_INFO];
const SHORT: &str = "an attribute that ends early";

/// An attribute of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The name.
    pub name: Vec<u8>,
    /// The type of the elements. Attributes of one listing share their committed types.
    pub datatype: Arc<Datatype>,
    /// The extent of the attribute.
    pub space: Dataspace,
    /// The elements as they lie in the file: see [`Objects::values`].
    pub bytes: Vec<u8>,
}

/// Reads attribute messages.
struct Reader<'a, B: ?Sized> {
    bytes: &'a B,
    /// The committed datatypes read so far, by the addresses of their headers.
    types: HashMap<u64, Arc<Datatype>>,
}

/// The fractal heap and index of an object with dense attributes.
struct Outside<'a, B: ?Sized> {
    heap: FractalHeap<'a, B>,
    index: NameIndex<'a, B>,
}

/// A record of the index.
struct Record<'a> {
    heap_id: &'a [u8],
    is_shared: bool,
    order: u32,
}

impl<B: HeaderBytes> Objects<B> {
    /// The attributes of the object at `object`, in creation order if the object tracks it, and else sorted by name.
    pub fn attributes(&self, object: u64) -> Result<Vec<Attribute>> {
        self.all_attributes(object).map_err(at(object))
    }

    /// The attribute called `name`. Reads only a few blocks if many attributes lie outside the header.
    pub fn attribute(&self, object: u64, name: impl AsRef<[u8]>) -> Result<Option<Attribute>> {
        self.attribute_of(object, name.as_ref()).map_err(at(object))
    }

    fn all_attributes(&self, object: u64) -> Result<Vec<Attribute>> {
        let header = Header::read(&self.bytes, object, &KINDS)?;
        let mut reader = Reader::new(&self.bytes);
        let mut found = Vec::new();
        for message in header.all(kind::ATTRIBUTE) {
            let attribute = reader.attribute(message.own_data()?)?;
            found.push((u32::from(message.order.unwrap_or(0)), attribute));
        }
        if let Some(mut outside) = Outside::of(&self.bytes, &header)? {
            outside.each(&mut reader, None, |order, attribute| {
                found.push((order, attribute));
                ControlFlow::Continue(())
            })?;
        }
        if Prefix::read(&self.bytes, object)?.tracks_attributes() {
            found.sort_by_key(|(order, _)| *order);
        } else {
            found.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        }
        Ok(found.into_iter().map(|(_, attribute)| attribute).collect())
    }

    fn attribute_of(&self, object: u64, name: &[u8]) -> Result<Option<Attribute>> {
        let header = Header::read(&self.bytes, object, &KINDS)?;
        let mut reader = Reader::new(&self.bytes);
        for message in header.all(kind::ATTRIBUTE) {
            let data = message.own_data()?;
            if AttributeParts::of_message(data)?.name == name {
                return reader.attribute(data).map(Some);
            }
        }
        let mut found = None;
        if let Some(mut outside) = Outside::of(&self.bytes, &header)? {
            outside.each(&mut reader, Some(name), |_, attribute| {
                if attribute.name != name {
                    return ControlFlow::Continue(());
                }
                found = Some(attribute);
                ControlFlow::Break(())
            })?;
        }
        Ok(found)
    }
}

/// The messages of the attributes outside the header of an object, with their numbers in creation order.
pub fn outside_header<B: HeaderBytes>(bytes: &B, object: u64) -> Result<Vec<(u32, Vec<u8>)>> {
    let header = Header::read(bytes, object, &[kind::ATTRIBUTE_INFO])?;
    let mut found = Vec::new();
    let mut left = Allowance::of(bytes);
    if let Some(mut outside) = Outside::of(bytes, &header)? {
        outside.each_message(None, |order, message| {
            left.take(message.len() as u64)?;
            found.push((order, message));
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(found)
}

impl<'a, B: HeaderBytes> Outside<'a, B> {
    /// Opens the dense attributes of an object. `None` if all attributes are messages.
    fn of(bytes: &'a B, header: &Header) -> Result<Option<Self>> {
        let Some(info) = header.first(kind::ATTRIBUTE_INFO) else {
            return Ok(None);
        };
        let dense = Dense::of_attributes(info.own_data()?);
        let Some(dense) = dense.ok_or("an unknown attribute info message")? else {
            return Ok(None);
        };
        Ok(Some(Outside {
            heap: FractalHeap::open(bytes, dense.heap)?,
            index: NameIndex::of_attributes(bytes, dense.index)?,
        }))
    }

    /// Calls `see` with attributes and their creation order. Visits all attributes, or the ones whose names have the hash of
    /// `name`.
    fn each(
        &mut self,
        reader: &mut Reader<'_, B>,
        name: Option<&[u8]>,
        mut see: impl FnMut(u32, Attribute) -> ControlFlow<()>,
    ) -> Result<()> {
        self.each_message(name, |order, message| {
            Ok(see(order, reader.attribute(&message)?))
        })
    }

    /// Calls `see` with the creation order and the message of each attribute, or of the attributes whose names have the hash of
    /// `name`.
    fn each_message(
        &mut self,
        name: Option<&[u8]>,
        mut see: impl FnMut(u32, Vec<u8>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Outside { heap, index } = self;
        index.each(name, |record| {
            let record = Record::read(record)?;
            if record.is_shared {
                return Err(
                    "an attribute in the heap of shared messages: h5logfs does not read these"
                        .into(),
                );
            }
            see(record.order, heap.object(record.heap_id)?)
        })
    }
}

impl<'a> Record<'a> {
    fn read(record: &'a [u8]) -> Result<Self> {
        const IS_SHARED: u8 = 2;
        let mut fields = Fields(record);
        let mut read = || {
            Some(Record {
                heap_id: fields.take(8)?,
                is_shared: fields.u8()? & IS_SHARED != 0,
                order: fields.u32()?,
            })
        };
        Ok(read().ok_or(SHORT)?)
    }
}

/// The parts of an attribute message.
pub struct AttributeParts<'a> {
    /// The name, without the zero byte at the end.
    pub name: &'a [u8],
    /// The datatype message.
    pub datatype: &'a [u8],
    /// Whether the datatype message is shared: it contains the place of the real message.
    pub has_shared_datatype: bool,
    /// The dataspace message.
    pub space: &'a [u8],
    /// Whether the dataspace message is shared: it contains the place of the real message.
    pub has_shared_space: bool,
    /// The elements, possibly followed by padding.
    pub rest: &'a [u8],
}

impl<'a> AttributeParts<'a> {
    /// Splits an attribute message of versions 1 to 3 into its parts. Fails if the message ends early.
    pub fn of_message(message: &'a [u8]) -> Result<Self> {
        match message {
            [1..=3, ..] => Ok(AttributeParts::read(message).ok_or(SHORT)?),
            [version, ..] => Err(format!("an attribute message of version {version}").into()),
            [] => Err(SHORT.into()),
        }
    }

    fn read(message: &'a [u8]) -> Option<Self> {
        const SHARED_DATATYPE: u8 = 1;
        const SHARED_SPACE: u8 = 2;
        let mut fields = Fields(message);
        let version = fields.u8()?;
        let flags = match (version, fields.u8()?) {
            (1, _) => 0,
            (_, flags) => flags,
        };
        let sizes = [fields.u16()?, fields.u16()?, fields.u16()?].map(usize::from);
        if version == 3 {
            // The character set of the name.
            fields.skip(1)?;
        }
        let pad = if version == 1 { 8 } else { 1 };
        let [name, datatype, space] = sizes.map(|size| {
            let part = fields.take(size)?;
            fields.skip(size.next_multiple_of(pad) - size)?;
            Some(part)
        });
        let name = name?;
        let end = name.iter().position(|byte| *byte == 0)?;
        Some(AttributeParts {
            name: &name[..end],
            datatype: datatype?,
            has_shared_datatype: flags & SHARED_DATATYPE != 0,
            space: space?,
            has_shared_space: flags & SHARED_SPACE != 0,
            rest: fields.0,
        })
    }
}

impl<'a, B: HeaderBytes> Reader<'a, B> {
    fn new(bytes: &'a B) -> Self {
        Reader {
            bytes,
            types: HashMap::new(),
        }
    }

    /// Reads an attribute message.
    fn attribute(&mut self, message: &[u8]) -> Result<Attribute> {
        let parts = AttributeParts::of_message(message)?;
        let name = parts.name.to_vec();
        self.of_parts(parts)
            .map_err(|fault| fault.at(format_args!("attribute {}", String::from_utf8_lossy(&name))))
    }

    fn of_parts(&mut self, parts: AttributeParts<'_>) -> Result<Attribute> {
        let datatype = if parts.has_shared_datatype {
            self.committed(parts.datatype)?
        } else {
            Arc::new(Datatype::of_message(parts.datatype)?)
        };
        if parts.has_shared_space {
            shared_address(parts.space)?;
            return Err("its extent lies in another object".into());
        }
        let space = Dataspace::of_message(parts.space).ok_or("an unknown dataspace message")?;
        let len = space.bytes(datatype.size);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let elements = len.and_then(|len| parts.rest.get(..len)).ok_or(SHORT)?;
        Ok(Attribute {
            name: parts.name.to_vec(),
            bytes: elements.to_vec(),
            datatype,
            space,
        })
    }

    /// The committed datatype that a shared message refers to.
    fn committed(&mut self, place: &[u8]) -> Result<Arc<Datatype>> {
        let address = shared_address(place)?;
        if let Some(known) = self.types.get(&address) {
            return Ok(Arc::clone(known));
        }
        let datatype = Datatype::of_message(&shared(self.bytes, kind::DATATYPE, place)?)?;
        let datatype = Arc::new(datatype);
        self.types.insert(address, Arc::clone(&datatype));
        Ok(datatype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::Class;

    /// A signed integer of two bytes.
    const TYPE: [u8; 12] = [0x10, 8, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0];
    /// Two elements.
    const SPACE: [u8; 12] = [2, 1, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0];

    fn message(version: u8) -> Vec<u8> {
        let mut bytes = vec![version, 0, 5, 0, 12, 0, 12, 0];
        if version == 3 {
            bytes.push(1);
        }
        for part in [&b"name\0"[..], &TYPE, &SPACE] {
            bytes.extend(part);
            if version == 1 {
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
        }
        bytes.extend([1, 0, 2, 0]);
        bytes
    }

    #[test]
    fn all_versions_say_the_same() {
        let bytes = Vec::new();
        let read = |message: &[u8]| Reader::new(&bytes).attribute(message);
        for version in 1..=3 {
            let sound = message(version);
            let found = read(&sound).unwrap();
            assert_eq!(found.name, b"name");
            assert_eq!(found.space.elements(), Some(2));
            assert!(matches!(
                found.datatype.class,
                Class::Integer { signed: true, .. }
            ));
            assert_eq!(found.bytes, [1, 0, 2, 0]);
            for len in 0..sound.len() {
                assert!(read(&sound[..len]).is_err());
            }
        }
        assert!(read(&message(4)).is_err());
    }
}
