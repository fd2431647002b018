//! Object headers of version 1 (IV.A.1.a), and messages of groups and datasets.

use crate::filters::Filter;
use crate::object_header::{HEAD, PREFIX, kind};
use crate::space::Space;

/// A sequence of messages.
#[derive(Debug)]
pub struct Messages {
    bytes: Vec<u8>,
    count: u16,
}

impl Default for Messages {
    /// An empty sequence, with room for the messages of a stub dataset.
    fn default() -> Self {
        Messages {
            bytes: Vec::with_capacity(512),
            count: 0,
        }
    }
}

impl Clone for Messages {
    /// A copy with room for another attribute, because objects with equal beginnings differ in their attributes.
    fn clone(&self) -> Self {
        const ATTRIBUTE: usize = 256;
        let mut bytes = Vec::with_capacity(self.bytes.len() + ATTRIBUTE);
        bytes.extend(&self.bytes);
        Messages {
            bytes,
            count: self.count,
        }
    }
}

impl Messages {
    /// Adds a message. Returns the position of its data, counted from the start of the first message; `None` if the
    /// message is too long, or if there are too many messages.
    pub fn push(&mut self, kind: u16, flags: u8, data: &[u8]) -> Option<usize> {
        let len = u16::try_from(data.len().next_multiple_of(8)).ok()?;
        self.count = self.count.checked_add(1)?;
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend([flags, 0, 0, 0]);
        let at = self.bytes.len();
        self.bytes.extend(data);
        self.bytes.resize(at + usize::from(len), 0);
        Some(at)
    }

    /// Adds a one-dimensional attribute of integers (IV.A.2.m, version 1). Returns the position of its elements.
    pub fn push_list<T: Copy, const N: usize>(
        &mut self,
        name: &str,
        datatype: [u8; 12],
        values: &[T],
        to_bytes: impl Fn(T) -> [u8; N],
    ) -> Option<usize> {
        let elements: Vec<u8> = values.iter().flat_map(|value| to_bytes(*value)).collect();
        let data = attribute(name, &datatype, &list(values.len() as u64), &elements)?;
        let at = self.push(kind::ATTRIBUTE, 0, &data)?;
        Some(at + data.len() - elements.len())
    }

    /// Adds bytes that are not a header message. Returns their position.
    pub fn push_bytes(&mut self, data: &[u8]) -> usize {
        let at = self.bytes.len();
        self.bytes.extend(data);
        at
    }

    /// Type, flags and data of each message.
    pub fn each(&self) -> impl Iterator<Item = (u16, u8, &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (head, data) = rest.split_first_chunk::<HEAD>()?;
            let len = u16::from_le_bytes([head[2], head[3]]);
            let (data, more) = data.split_at_checked(len.into())?;
            rest = more;
            Some((u16::from_le_bytes([head[0], head[1]]), head[4], data))
        })
    }

    /// The bytes of all messages.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of messages.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Writes the header of an object that `links` links lead to. `more` is the number of messages in other blocks. Returns the
    /// address of the header.
    pub fn put(&self, space: &mut Space, links: u32, more: u16) -> Option<u64> {
        let count = self.count.checked_add(more)?;
        let len = u32::try_from(self.bytes.len()).ok()?;
        let mut prefix = [0; PREFIX];
        prefix[0] = 1;
        prefix[2..4].copy_from_slice(&count.to_le_bytes());
        prefix[4..8].copy_from_slice(&links.to_le_bytes());
        prefix[8..12].copy_from_slice(&len.to_le_bytes());
        let address = space.put(&prefix);
        space.put(&self.bytes);
        Some(address)
    }
}

/// An attribute message (IV.A.2.m): of version 1, or of version 3 if the name is not ASCII.
pub fn attribute(name: &str, datatype: &[u8], space: &[u8], elements: &[u8]) -> Option<Vec<u8>> {
    const UTF8: u8 = 1;
    let (version, pad) = if name.is_ascii() { (1, 8) } else { (3, 1) };
    let name = [name.as_bytes(), &[0]].concat();
    let mut data = vec![version, 0];
    for part in [&name[..], datatype, space] {
        data.extend(u16::try_from(part.len()).ok()?.to_le_bytes());
    }
    if version == 3 {
        data.push(UTF8);
    }
    for part in [&name[..], datatype, space] {
        let end = data.len() + part.len().next_multiple_of(pad);
        data.extend(part);
        data.resize(end, 0);
    }
    data.extend(elements);
    Some(data)
}

/// The dataspace message (IV.A.2.b) of a list.
pub fn list(len: u64) -> Vec<u8> {
    let mut data = vec![1, 1, 0, 0, 0, 0, 0, 0];
    data.extend(len.to_le_bytes());
    data
}

/// The dataspace message of a fixed extent. Without dimensions it has one element.
pub fn simple(dims: &[u64]) -> Option<Vec<u8>> {
    let mut data = vec![1, u8::try_from(dims.len()).ok()?, 0, 0, 0, 0, 0, 0];
    data.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
    Some(data)
}

/// The dataspace message of an extent with limits; `u64::MAX` is unlimited.
pub fn extent(dims: &[u64], max_dims: &[u64]) -> Option<Vec<u8>> {
    const HAS_LIMITS: u8 = 1;
    let mut data = simple(dims)?;
    if dims != max_dims {
        data[2] = HAS_LIMITS;
        data.extend(max_dims.iter().flat_map(|dim| dim.to_le_bytes()));
    }
    Some(data)
}

/// The dataspace message of a scalar.
pub const SCALAR: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
/// The dataspace message of a null dataspace.
pub const NULL: [u8; 4] = [2, 0, 0, 2];

/// The layout message (IV.A.2.i) of contiguous elements.
pub fn contiguous(address: u64, len: u64) -> Vec<u8> {
    [&[3, 1][..], &address.to_le_bytes(), &len.to_le_bytes()].concat()
}

/// The layout message of chunks without storage. `element` is the size of an element in bytes.
pub fn chunked(chunk: &[u64], element: u32) -> Option<Vec<u8>> {
    let mut data = vec![3, 2, u8::try_from(chunk.len() + 1).ok()?];
    data.extend(u64::MAX.to_le_bytes());
    for side in chunk {
        data.extend(u32::try_from(*side).ok()?.to_le_bytes());
    }
    data.extend(element.to_le_bytes());
    Some(data)
}

/// The filter pipeline message (IV.A.2.l, version 1), with unnamed filters.
pub fn pipeline(filters: &[Filter]) -> Option<Vec<u8>> {
    let mut data = vec![1, u8::try_from(filters.len()).ok()?, 0, 0, 0, 0, 0, 0];
    for Filter { id, flags, values } in filters {
        let numbers = [
            u16::try_from(*id).ok()?,
            0,
            u16::try_from(*flags).ok()?,
            u16::try_from(values.len()).ok()?,
        ];
        data.extend(numbers.map(u16::to_le_bytes).as_flattened());
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        data.resize(data.len().next_multiple_of(8), 0);
    }
    Some(data)
}

/// Allocation times in a fill value message.
pub mod allocation {
    /// When the dataset is created.
    pub const EARLY: u8 = 1;
    /// When elements are written for the first time.
    pub const LATE: u8 = 2;
    /// When a chunk is written for the first time.
    pub const INCREMENTAL: u8 = 3;
}

/// The fill value message (IV.A.2.f, version 2) for the given allocation time. The fill value is written if a program
/// has set one. An empty `value` means zeros.
pub fn fill_value(allocation: u8, value: &[u8]) -> Option<Vec<u8>> {
    const IF_SET: u8 = 2;
    const IS_DEFINED: u8 = 1;
    let len = u32::try_from(value.len()).ok()?.to_le_bytes();
    Some([&[2, allocation, IF_SET, IS_DEFINED][..], &len, value].concat())
}
