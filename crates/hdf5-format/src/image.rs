//! Fields of an HDF5 file that are found by the object header that holds them, and changed: times, addresses of chunk indexes,
//! end of file, links of old groups, and the checksums over them.
//!
//! The bytes may be a metadata image that libhdf5 made, or any other HDF5 file ([`HeaderBytes`]). They may come from another
//! process, so every offset is checked.

mod dataset;
mod links;

pub use dataset::{DatasetHeader, HeaderAttribute};
pub use links::NewLinks;

use std::ops::{ControlFlow, Range};

use crate::Result;
use crate::bytes::{HeaderBytes, HeaderBytesMut, read_array, read_vec};
use crate::checksum::lookup3;
use crate::dataset::fill_value;
use crate::object_header::{self, Message, Mode, Prefix, kind};
use crate::superblock::Places;

/// Times in seconds since 1970, of the object whose header is at `header`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectTimes {
    /// Address of the object header.
    pub header: u64,
    /// Last access.
    pub access: u32,
    /// Last modification.
    pub modification: u32,
    /// Last change of the metadata.
    pub change: u32,
    /// Creation.
    pub birth: u32,
}

/// An HDF5 file.
#[derive(Debug)]
pub struct Image<B = Vec<u8>> {
    bytes: B,
}

impl<B: HeaderBytes> Image<B> {
    /// Wraps bytes of a file that begin with its superblock.
    pub fn new(bytes: B) -> Self {
        Image { bytes }
    }

    fn get<const N: usize>(&self, at: u64) -> Result<[u8; N]> {
        read_array(&self.bytes, at)
    }

    fn u32_at(&self, at: u64) -> Result<u32> {
        self.get(at).map(u32::from_le_bytes)
    }

    /// The data layout message (IV.A.2.i) of the object header at `header`.
    pub fn layout(&self, header: u64) -> Result<Vec<u8>> {
        let message = self
            .message(header, kind::LAYOUT)?
            .ok_or("no layout message")?;
        message.body(&self.bytes)
    }

    /// The fill value of the dataset whose object header is at `header` (IV.A.2.f), in the datatype of the file. Empty stands
    /// for zeros, and for none.
    pub fn fill_value(&self, header: u64) -> Result<Vec<u8>> {
        let message = self.message(header, kind::FILL_VALUE)?;
        let message = message.ok_or("no fill value message")?;
        fill_value(&message.body(&self.bytes)?)
    }

    /// The first message of a kind in the object header at `header`.
    fn message(&self, header: u64, kind: u16) -> Result<Option<Message>> {
        let mut found = None;
        object_header::messages(&self.bytes, header, Mode::Lenient, |message| {
            if message.kind != kind {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(message);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

impl<B> Image<B> {
    /// The bytes with all fields set.
    pub fn into_bytes(self) -> B {
        self.bytes
    }
}

impl<B: HeaderBytesMut> Image<B> {
    fn put(&mut self, at: u64, value: &[u8]) -> Result<()> {
        self.bytes.write(at, value)
    }

    /// Refreshes the checksum in the last four bytes of a block.
    fn checksum(&mut self, block: Range<u64>) -> Result<()> {
        let at = block.end.checked_sub(4);
        let len = at.and_then(|at| at.checked_sub(block.start));
        let len = len.ok_or("a block without a checksum")?;
        let bytes = read_vec(&self.bytes, block.start, len)?;
        self.put(block.start + len, &lookup3(&bytes).to_le_bytes())
    }

    /// Sets base address and end of file in the superblock.
    pub fn set_superblock(&mut self, base: u64, end_of_file: u64) -> Result<()> {
        let places = Places::of(&self.bytes)?;
        self.put(places.base, &base.to_le_bytes())?;
        self.put(places.end, &end_of_file.to_le_bytes())?;
        self.refresh_superblock()
    }

    /// Refreshes the checksum of the superblock, where it has one. libhdf5 clears a field of it in the image of an open file,
    /// and leaves the checksum as it was.
    pub fn refresh_superblock(&mut self) -> Result<()> {
        let places = Places::of(&self.bytes)?;
        if places.has_checksum {
            self.checksum(0..places.len)?;
        }
        Ok(())
    }

    /// Sets the address in a data layout message (IV.A.2.i) of version 3: of the chunk index, or of contiguous elements.
    pub fn set_layout_address(&mut self, header: u64, address: u64, chunked: bool) -> Result<()> {
        let message = self
            .message(header, kind::LAYOUT)?
            .ok_or("no layout message")?;
        let [version, class] = self.get(message.data)?;
        let at = match (version, class, chunked) {
            (3, 1, false) => message.data + 2,
            (3, 2, true) => message.data + 3,
            _ => {
                return Err(format!("layout message of version {version}, class {class}").into());
            }
        };
        if at + 8 > message.end() {
            return Err("layout message too short".into());
        }
        self.put(at, &address.to_le_bytes())?;
        message.block.map_or(Ok(()), |block| self.checksum(block))
    }

    /// Sets early space allocation in a fill value message (IV.A.2.f) of version 2.
    pub fn set_early_allocation(&mut self, header: u64) -> Result<()> {
        const EARLY: u8 = 1;
        let message = self.message(header, kind::FILL_VALUE)?;
        let message = message.ok_or("no fill value message")?;
        match self.get::<1>(message.data)? {
            [2] => self.put(message.data + 1, &[EARLY])?,
            [version] => return Err(format!("fill value message of version {version}").into()),
        }
        message.block.map_or(Ok(()), |block| self.checksum(block))
    }

    /// Sets the times of an object. Headers of version 2 keep four times in their prefix (IV.A.1.b). In version 1 the
    /// modification time is a message, which not every object has.
    pub fn set_times(&mut self, times: &ObjectTimes) -> Result<()> {
        let prefix = Prefix::read(&self.bytes, times.header)?;
        if prefix.flags().is_none() {
            if let Some(message) = self.message(times.header, kind::MODIFICATION_TIME)? {
                self.put(message.data + 4, &times.change.to_le_bytes())?;
            }
            return Ok(());
        }
        if let Some(at) = prefix.times_at() {
            let all = [times.access, times.modification, times.change, times.birth];
            self.put(at, all.map(u32::to_le_bytes).as_flattened())?;
            self.checksum(prefix.first_block())?;
        }
        Ok(())
    }
}
