//! Reads a dataset from its object header, if the header describes the dataset completely.

use std::ops::ControlFlow;

use super::object_header::{self, Message, Mode, Prefix, kind};
use super::{HeaderBytes, Image, MAX_RANK};
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// A dataset without a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetHeader {
    /// The bytes that describe datatype and creation properties. Two datasets of a file with equal bytes have equal
    /// types and properties.
    pub like: Vec<u8>,
    /// The dataspace.
    pub space: HeaderSpace,
    /// All attributes, in the order of the header.
    pub attributes: Vec<HeaderAttribute>,
    /// Access, modification, change and birth in seconds since 1970; 0 if not stored.
    pub times: [u32; 4],
}

/// A dataspace in an object header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderSpace {
    /// A null dataspace: no elements and no dimensions.
    Null,
    /// A scalar has no dimensions.
    Simple {
        /// The extent.
        dims: Vec<u64>,
        /// The maximum extent; `u64::MAX` is unlimited.
        max_dims: Vec<u64>,
    },
}

impl HeaderSpace {
    /// Reads a dataspace message (IV.A.2.b). `None` if its form is unknown.
    pub fn of_message(body: &[u8]) -> Option<Self> {
        space(body)
    }

    /// The number of elements; `None` if it is 2^64 or more.
    pub fn elements(&self) -> Option<u64> {
        match self {
            HeaderSpace::Null => Some(0),
            HeaderSpace::Simple { dims, .. } if dims.contains(&0) => Some(0),
            HeaderSpace::Simple { dims, .. } => {
                dims.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim))
            }
        }
    }

    /// Whether the dataspace has no elements.
    pub fn is_empty(&self) -> bool {
        match self {
            HeaderSpace::Null => true,
            HeaderSpace::Simple { dims, .. } => dims.contains(&0),
        }
    }
}

/// An attribute in an object header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderAttribute {
    /// The name, without the zero byte at its end.
    pub name: Vec<u8>,
    /// The values; `None` if they are not integers, or if their type has values that an `i64` does not have.
    pub integers: Option<Vec<i64>>,
}

impl<B: HeaderBytes> Image<B> {
    /// Reads the dataset whose object header is at `header`. `None` if [`DatasetHeader`] cannot describe all of it.
    /// Fails if the header is not in libhdf5's form.
    pub fn dataset(&self, header: u64) -> Result<Option<DatasetHeader>> {
        if !self.has_usual_sizes()? {
            return Ok(None);
        }
        let (like, times) = self.dataset_prefix(header)?;
        let mut found = DatasetHeader {
            like,
            space: HeaderSpace::Null,
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
                kind::ATTRIBUTE_INFO => has_no_heap(&message.body(&self.bytes)?),
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

    /// Whether the superblock (II.A) is at the start of the file, and offsets and lengths have eight bytes.
    fn has_usual_sizes(&self) -> Result<bool> {
        if &self.get::<8>(0)? != b"\x89HDF\r\n\x1a\n" {
            return Ok(false);
        }
        let at = match self.get::<1>(8)? {
            [0 | 1] => 13,
            _ => 9,
        };
        Ok(self.get::<2>(at)? == [8, 8])
    }

    /// The creation properties in the prefix of an object header, and the times of the object.
    fn dataset_prefix(&self, header: u64) -> Result<(Vec<u8>, [u32; 4])> {
        /// The flags of version 2, except the two for the width of a length.
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

    /// Reads a dataspace message (IV.A.2.b).
    fn space(&self, message: &Message) -> Result<Option<HeaderSpace>> {
        if message.is_shared() {
            return Ok(None);
        }
        Ok(space(&message.body(&self.bytes)?))
    }

    /// Reads an attribute message (IV.A.2.m). `None` if the attribute lies elsewhere, or if its form is unknown.
    fn attribute(&self, message: &Message) -> Result<Option<HeaderAttribute>> {
        // An object with a larger attribute is left to libhdf5.
        const MOST: u16 = 32 << 10;
        if message.is_shared() || message.len > MOST {
            return Ok(None);
        }
        Ok(attribute(&message.body(&self.bytes)?))
    }
}

fn space(data: &[u8]) -> Option<HeaderSpace> {
    const HAS_LIMITS: u8 = 1;
    const NULL: u8 = 2;
    let (rank, flags, numbers) = match *data {
        [1, rank, flags, ..] => (rank, flags, data.get(8..)?),
        [2, _, _, NULL, ..] => return Some(HeaderSpace::Null),
        [2, rank, flags, ..] => (rank, flags, data.get(4..)?),
        _ => return None,
    };
    let rank = usize::from(rank);
    let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let (numbers, _) = numbers.as_chunks();
    let mut numbers = numbers.iter().map(number);
    let dims: Vec<u64> = numbers.by_ref().take(rank).collect();
    let max_dims = match flags & HAS_LIMITS {
        0 => dims.clone(),
        _ => numbers.take(rank).collect(),
    };
    let is_whole = rank <= MAX_RANK && dims.len() == rank && max_dims.len() == rank;
    is_whole.then_some(HeaderSpace::Simple { dims, max_dims })
}

fn attribute(data: &[u8]) -> Option<HeaderAttribute> {
    let (&[version, shared], sizes) = data.split_first_chunk()?;
    let (sizes, mut rest) = sizes.split_first_chunk::<6>()?;
    let size = |at: usize| usize::from(u16::from_le_bytes([sizes[at], sizes[at + 1]]));
    let pad = match version {
        1 => 8,
        2 => 1,
        // The character set of the name comes first.
        3 => {
            rest = rest.get(1..)?;
            1
        }
        _ => return None,
    };
    let mut part = |size: usize| {
        let part = rest.get(..size)?;
        rest = rest.get(size.next_multiple_of(pad)..)?;
        Some(part)
    };
    let name = part(size(0))?;
    let (datatype, extent) = (part(size(2))?, part(size(4))?);
    let (name, _) = name.split_at(name.iter().position(|b| *b == 0)?);
    let is_here = version == 1 || shared == 0;
    Some(HeaderAttribute {
        name: name.to_vec(),
        integers: is_here.then(|| integers(datatype, extent, rest)).flatten(),
    })
}

/// The values of an attribute, from its datatype message (IV.A.2.d), its dataspace message, and its elements.
fn integers(datatype: &[u8], extent: &[u8], elements: &[u8]) -> Option<Vec<i64>> {
    const BIG_ENDIAN: u8 = 1;
    const SIGNED: u8 = 8;
    const INTEGER: u8 = 0;
    let &[class, flags, 0, 0, size, 0, 0, 0, 0, 0, precision, 0, ..] = datatype else {
        return None;
    };
    let is_signed = flags & SIGNED != 0;
    let is_whole = u16::from(precision) == 8 * u16::from(size);
    let is_known = matches!(size, 1 | 2 | 4) || size == 8 && is_signed;
    if class & 0xf != INTEGER || flags & !(BIG_ENDIAN | SIGNED) != 0 || !is_whole || !is_known {
        return None;
    }
    let count = space(extent)?.elements()?;
    let size = usize::from(size);
    let len = usize::try_from(count).ok()?.checked_mul(size)?;
    let value = |element: &[u8]| {
        let byte = |at: usize| match flags & BIG_ENDIAN {
            0 => element[at],
            _ => element[size - 1 - at],
        };
        let bits = (0..size).fold(0, |bits, at| bits | u64::from(byte(at)) << (8 * at));
        let unused = 64 - 8 * size as u32;
        if is_signed {
            (bits << unused) as i64 >> unused
        } else {
            bits as i64
        }
    };
    Some(elements.get(..len)?.chunks_exact(size).map(value).collect())
}

/// Whether all attributes are in the header, according to an attribute info message (IV.A.2.v).
fn has_no_heap(data: &[u8]) -> bool {
    const TRACKS_ORDER: u8 = 1;
    let (at, flags) = match *data {
        [0, flags, ..] => (2 + 2 * usize::from(flags & TRACKS_ORDER), flags),
        _ => return false,
    };
    flags & !3 == 0 && data.get(at..at + 8) == Some(&[0xff; 8])
}

/// The data of a message without the part that follows from the extent: the size of contiguous storage (IV.A.2.i).
fn without_size(kind: u16, data: &[u8]) -> &[u8] {
    const CONTIGUOUS: u8 = 1;
    match (kind, data) {
        (kind::LAYOUT, [3 | 4, CONTIGUOUS, ..]) => &data[..data.len().min(10)],
        _ => data,
    }
}
