//! What the object header of a dataset says, where it says all that there is to say.

use std::ops::ControlFlow;

use super::{CONTINUATION, FILL_VALUE, HeaderBytes, Image, LAYOUT, MODIFICATION_TIME, Message};

type Result<T> = std::result::Result<T, String>;

/// Further message types (HDF5 File Format Specification, IV.A.2).
const NIL: u16 = 0x00;
const DATASPACE: u16 = 0x01;
const DATATYPE: u16 = 0x03;
const OLD_FILL_VALUE: u16 = 0x04;
const PIPELINE: u16 = 0x0b;

/// More dimensions than HDF5 has.
const MOST_DIMS: usize = 32;

/// A dataset without attributes and comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetHeader {
    /// Two datasets of a file in which these bytes are the same have the same type and creation properties.
    pub like: Vec<u8>,
    /// Its extent.
    pub dims: Vec<u64>,
    /// Its largest extent. `u64::MAX` is unlimited.
    pub max_dims: Vec<u64>,
    /// Access, modification, change and birth in seconds since 1970; 0 if not stored.
    pub times: [u32; 4],
}

impl<B: HeaderBytes> Image<B> {
    /// The dataset whose object header is at `header`. `None` if there is more of it than is told here.
    pub fn dataset(&self, header: u64) -> Result<Option<DatasetHeader>> {
        if !self.has_usual_sizes()? {
            return Ok(None);
        }
        let (like, times) = self.dataset_prefix(header)?;
        let mut found = DatasetHeader {
            like,
            dims: Vec::new(),
            max_dims: Vec::new(),
            times,
        };
        let mut has_space = false;
        let mut is_plain = true;
        self.messages(header, |message| {
            match message.kind {
                NIL | CONTINUATION => {}
                DATASPACE => has_space = self.extent(&message, &mut found)?,
                MODIFICATION_TIME => {
                    found.times[2] = self.u32_at(message.data + 4)?;
                    found.like.push(MODIFICATION_TIME as u8);
                }
                DATATYPE | FILL_VALUE | OLD_FILL_VALUE | LAYOUT | PIPELINE => {
                    let data = self.data(&message)?;
                    let data = without_size(message.kind, &data);
                    found.like.extend([message.kind as u8, message.flags]);
                    found.like.extend((data.len() as u32).to_le_bytes());
                    found.like.extend(data);
                }
                _ => {
                    is_plain = false;
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((is_plain && has_space).then_some(found))
    }

    /// Whether the superblock (II.A) is the first of the file, and offsets and lengths have eight bytes.
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

    /// What the prefix of an object header says of the creation properties, and the times of the object.
    fn dataset_prefix(&self, header: u64) -> Result<(Vec<u8>, [u32; 4])> {
        /// Flags of version 2, but for the two that say how long a length is.
        const PROPERTIES: u8 = 0xfc;
        /// It says at how many attributes their storage changes.
        const HAS_LIMITS: u8 = 0x10;
        let header = usize::try_from(header).map_err(|e| e.to_string())?;
        if &self.get::<4>(header)? != b"OHDR" {
            return Ok((vec![1], [0; 4]));
        }
        let [flags] = self.get(header + 5)?;
        let mut like = vec![2, flags & PROPERTIES];
        let mut at = header + 6;
        let mut times = [0; 4];
        if self.prefix_v2(header)?.has_times {
            for time in &mut times {
                *time = self.u32_at(at)?;
                at += 4;
            }
        }
        if flags & HAS_LIMITS != 0 {
            like.extend(self.get::<4>(at)?);
        }
        Ok((like, times))
    }

    fn data(&self, message: &Message) -> Result<Vec<u8>> {
        self.end_of(message.data, message.len)?;
        let mut data = vec![0; message.len];
        self.bytes.read(message.data as u64, &mut data)?;
        Ok(data)
    }

    /// Dataspace message (IV.A.2.b). False if the dataset has no extent.
    fn extent(&self, message: &Message, found: &mut DatasetHeader) -> Result<bool> {
        const SHARED: u8 = 2;
        const HAS_LIMITS: u8 = 1;
        const NULL: u8 = 2;
        let data = self.data(message)?;
        let (rank, flags, numbers) = match *data.as_slice() {
            _ if message.flags & SHARED != 0 => return Ok(false),
            [1, rank, flags, ..] => (rank, flags, data.get(8..)),
            [2, _, _, NULL, ..] => return Ok(false),
            [2, rank, flags, ..] => (rank, flags, data.get(4..)),
            _ => return Ok(false),
        };
        let rank = usize::from(rank);
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let (numbers, _) = numbers.unwrap_or_default().as_chunks();
        let mut numbers = numbers.iter().map(number);
        found.dims = numbers.by_ref().take(rank).collect();
        found.max_dims = match flags & HAS_LIMITS {
            0 => found.dims.clone(),
            _ => numbers.take(rank).collect(),
        };
        Ok(rank <= MOST_DIMS && found.dims.len() == rank && found.max_dims.len() == rank)
    }
}

/// The data of a message without those that follow from the extent: the size of contiguous storage (IV.A.2.i).
fn without_size(kind: u16, data: &[u8]) -> &[u8] {
    const CONTIGUOUS: u8 = 1;
    match (kind, data) {
        (LAYOUT, [3 | 4, CONTIGUOUS, ..]) => &data[..data.len().min(10)],
        _ => data,
    }
}
