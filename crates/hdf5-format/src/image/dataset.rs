//! What the object header of a dataset says, where it says all that there is to say.

use std::ops::ControlFlow;

use super::Image;
use crate::Result;
use crate::attribute::AttributeParts;
use crate::bytes::HeaderBytes;
use crate::dataspace::Dataspace;
use crate::datatype::{Class, Datatype};
use crate::name_index::Dense;
use crate::object_header::{self, Message, Mode, Prefix, kind};
use crate::superblock::Superblock;
use crate::value::{Value, integer};

/// A dataset without a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetHeader {
    /// Two datasets of a file in which these bytes are the same have the same type and creation properties.
    pub like: Vec<u8>,
    /// What its dataspace is.
    pub space: Dataspace,
    /// All of its attributes, in the order of the header.
    pub attributes: Vec<HeaderAttribute>,
    /// Access, modification, change and birth in seconds since 1970; 0 if not stored.
    pub times: [u32; 4],
}

/// An attribute in an object header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderAttribute {
    /// Its name, without the zero byte at the end.
    pub name: Vec<u8>,
    /// Its values. `None` if they are no integers, or such that not all values of their type are those of an `i64`.
    pub integers: Option<Vec<i64>>,
}

impl<B: HeaderBytes> Image<B> {
    /// The dataset whose object header is at `header`. `None` if there is more of it than is told here. Fails where the
    /// header is not as libhdf5 makes it.
    pub fn dataset(&self, header: u64) -> Result<Option<DatasetHeader>> {
        if Superblock::read(&self.bytes).is_err() {
            return Ok(None);
        }
        let (like, times) = self.dataset_prefix(header)?;
        let mut found = DatasetHeader {
            like,
            space: Dataspace::Null,
            attributes: Vec::new(),
            times,
        };
        let mut has_space = false;
        let mut is_plain = true;
        object_header::messages(&self.bytes, header, Mode::Strict, |message| {
            is_plain = match message.kind {
                kind::NIL | kind::CONTINUATION => true,
                kind::DATASPACE => match self.space(&message)? {
                    Some(space) => {
                        found.space = space;
                        has_space = true;
                        true
                    }
                    None => false,
                },
                kind::MODIFICATION_TIME => {
                    found.times[2] = self.u32_at(message.data + 4)?;
                    found.like.push(kind::MODIFICATION_TIME as u8);
                    true
                }
                kind::DATATYPE
                | kind::FILL_VALUE
                | kind::OLD_FILL_VALUE
                | kind::LAYOUT
                | kind::PIPELINE => {
                    let data = message.body(&self.bytes)?;
                    let data = without_size(message.kind, &data);
                    found.like.extend([message.kind as u8, message.flags]);
                    found.like.extend((data.len() as u32).to_le_bytes());
                    found.like.extend(data);
                    true
                }
                kind::ATTRIBUTE => match self.attribute(&message)? {
                    Some(attribute) => {
                        found.attributes.push(attribute);
                        true
                    }
                    None => false,
                },
                kind::ATTRIBUTE_INFO => {
                    Dense::of_attributes(&message.body(&self.bytes)?) == Some(None)
                }
                _ => false,
            };
            Ok(if is_plain {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        Ok((is_plain && has_space).then_some(found))
    }

    /// What the prefix of an object header says of the creation properties, and the times of the object.
    fn dataset_prefix(&self, header: u64) -> Result<(Vec<u8>, [u32; 4])> {
        /// Flags of version 2, but for the two that say how long a length is.
        const PROPERTIES: u8 = 0xfc;
        let prefix = Prefix::read(&self.bytes, header)?;
        let Some(flags) = prefix.flags() else {
            return Ok((vec![1], [0; 4]));
        };
        let mut like = vec![2, flags & PROPERTIES];
        let mut times = [0; 4];
        if let Some(at) = prefix.times_at() {
            let found = self.get::<16>(at)?;
            for (time, found) in times.iter_mut().zip(found.as_chunks().0) {
                *time = u32::from_le_bytes(*found);
            }
        }
        if let Some(at) = prefix.limits_at() {
            like.extend(self.get::<4>(at)?);
        }
        Ok((like, times))
    }

    /// Dataspace message (IV.A.2.b).
    fn space(&self, message: &Message) -> Result<Option<Dataspace>> {
        if message.is_shared() {
            return Ok(None);
        }
        Ok(Dataspace::of_message(&message.body(&self.bytes)?))
    }

    /// Attribute message (IV.A.2.m). `None` where the attribute lies elsewhere, or is not in a known form.
    fn attribute(&self, message: &Message) -> Result<Option<HeaderAttribute>> {
        // An object with larger ones is made in another way.
        const MOST: u16 = 32 << 10;
        if message.is_shared() || message.len > MOST {
            return Ok(None);
        }
        Ok(attribute(&message.body(&self.bytes)?))
    }
}

fn attribute(data: &[u8]) -> Option<HeaderAttribute> {
    let parts = AttributeParts::of_message(data).ok()?;
    let is_here = !parts.has_shared_datatype && !parts.has_shared_space;
    Some(HeaderAttribute {
        name: parts.name.to_vec(),
        integers: is_here.then(|| integers(&parts)).flatten(),
    })
}

/// The values of an attribute.
fn integers(parts: &AttributeParts<'_>) -> Option<Vec<i64>> {
    let Datatype { size, class } = Datatype::of_message(parts.datatype).ok()?;
    let Class::Integer {
        signed,
        big_endian,
        bits,
    } = class
    else {
        return None;
    };
    let is_whole = bits.offset == 0 && u32::from(bits.precision) == 8 * size;
    let is_known = matches!(size, 1 | 2 | 4) || size == 8 && signed;
    if !is_whole || !is_known {
        return None;
    }
    let len = Dataspace::of_message(parts.space)?.bytes(size)?;
    let elements = parts.rest.get(..usize::try_from(len).ok()?)?;
    let value = |element| match integer(element, signed, big_endian, bits) {
        Value::Integer(value) => i64::try_from(value).ok(),
        _ => None,
    };
    elements.chunks_exact(size as usize).map(value).collect()
}

/// The data of a message without those that follow from the extent: the size of contiguous storage (IV.A.2.i).
fn without_size(kind: u16, data: &[u8]) -> &[u8] {
    const CONTIGUOUS: u8 = 1;
    match (kind, data) {
        (kind::LAYOUT, [3 | 4, CONTIGUOUS, ..]) => &data[..data.len().min(10)],
        _ => data,
    }
}
