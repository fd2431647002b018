//! Metadata that are added to a file, and kept in memory until they are written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use h5logfs_common::fault::Shortage;

use crate::Result;
use crate::bytes::{HeaderBytes, HeaderBytesMut};

/// The metadata of a file: its front, and the additions at its end. The bytes between do not belong to libhdf5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    front: Vec<u8>,
    /// The address of the additions.
    start: u64,
    rest: Vec<u8>,
}

impl Added {
    /// Starts with a file and no additions. The first `front` bytes may be changed, too.
    pub fn to(file: &File, front: u64) -> io::Result<Self> {
        let start = file.metadata()?.len();
        let mut bytes = vec![0; front.min(start) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Added {
            front: bytes,
            start,
            rest: Vec::new(),
        })
    }

    /// An empty front of `front` bytes, and empty additions at address `start`.
    pub fn new(front: usize, start: u64) -> Self {
        Added {
            front: vec![0; front],
            start,
            rest: Vec::new(),
        }
    }

    /// A front, and the additions at address `start`.
    pub fn of(front: Vec<u8>, start: u64, rest: Vec<u8>) -> Self {
        Added { front, start, rest }
    }

    /// The inverse of [`Added::into_bytes`]: `bytes` begin with a front of `front` bytes. Fails if there are fewer
    /// bytes.
    pub fn from_bytes(mut bytes: Vec<u8>, front: usize, start: u64) -> Result<Self> {
        if bytes.len() < front {
            return Err(format!(
                "{} bytes, fewer than the {front} bytes of a front",
                bytes.len()
            )
            .into());
        }
        let rest = bytes.split_off(front);
        Ok(Added {
            front: bytes,
            start,
            rest,
        })
    }

    /// The front, followed by the additions.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.front;
        bytes.extend(self.rest);
        bytes
    }

    /// The bytes at address 0.
    pub fn front(&self) -> &[u8] {
        &self.front
    }

    /// The front, for changes, and the additions.
    pub fn front_mut(&mut self) -> (&mut [u8], &[u8]) {
        (&mut self.front, &self.rest)
    }

    /// The bytes at [`Added::start`].
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// The address of the additions.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Writes the metadata to the file: first the objects, then the front, which leads to them.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.rest, self.start)?;
        self.write_front_to(file)
    }

    /// Writes the additions to the file, and ends the file behind them.
    pub fn write_rest_to(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.rest, self.start)?;
        file.set_len(self.size())
    }

    /// Writes the front to the file.
    pub fn write_front_to(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.front, 0)
    }

    /// Makes the file end at `end`.
    pub fn resize(&mut self, end: u64) -> Result<()> {
        let len = usize::try_from(end.saturating_sub(self.start))?;
        let more = len.saturating_sub(self.rest.len());
        let room = self.rest.try_reserve(more);
        room.map_err(|_| Shortage::System { bytes: more as u64 })?;
        self.rest.resize(len, 0);
        Ok(())
    }

    /// Fills `buf`. Bytes between front and additions, and past the end of the file, are zeros. libhdf5 reads past an
    /// object header if it does not know the header's length.
    pub fn fill(&self, at: u64, buf: &mut [u8]) {
        buf.fill(0);
        copy_common(&self.front, 0, at, buf);
        copy_common(&self.rest, self.start, at, buf);
    }

    /// Writes bytes, also past the end.
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at.checked_add(bytes.len() as u64).ok_or("past 2^64")?;
        if end > self.size() {
            self.resize(end)?;
        }
        self.write(at, bytes)
    }
}

/// Copies the overlap of `bytes`, at `start` of a file, and `buf`, at `at`.
fn copy_common(bytes: &[u8], start: u64, at: u64, buf: &mut [u8]) {
    let ahead =
        |of: u64, other: u64| usize::try_from(other.saturating_sub(of)).unwrap_or(usize::MAX);
    let from = bytes.get(ahead(start, at)..).unwrap_or_default();
    let to = buf.get_mut(ahead(at, start)..).unwrap_or_default();
    let count = to.len().min(from.len());
    to[..count].copy_from_slice(&from[..count]);
}

impl HeaderBytes for Added {
    fn size(&self) -> u64 {
        self.start.saturating_add(self.rest.len() as u64)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        match at.checked_sub(self.start) {
            Some(at) => self.rest.read(at, buf),
            None => self.front.read(at, buf),
        }
    }
}

impl HeaderBytesMut for Added {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match at.checked_sub(self.start) {
            Some(at) => HeaderBytesMut::write(&mut self.rest, at, bytes),
            None => HeaderBytesMut::write(&mut self.front, at, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_is_not_seen() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 10], 0).unwrap();
        let mut added = Added::to(&file, 4).unwrap();
        for at in [3, 4, 9] {
            added.put(at, &[2; 2]).unwrap_err();
        }
        added.put(11, &[3]).unwrap();
        added.put(0, &[4]).unwrap();
        let mut found = [9; 14];
        added.fill(0, &mut found);
        assert_eq!(found, [4, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0]);
        let mut found = [9; 3];
        for (at, wanted) in [(2, [1, 1, 0]), (10, [0, 3, 0]), (u64::MAX, [0; 3])] {
            added.fill(at, &mut found);
            assert_eq!(found, wanted);
        }
        added.put(u64::MAX, &[5; 2]).unwrap_err();
        added.write_to(&file).unwrap();
        let mut bytes = [0; 12];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 3]);
    }

    #[test]
    fn both_parts_are_one_list_of_bytes() {
        let mut added = Added::new(4, 100);
        added.put(1, &[1, 2]).unwrap();
        added.put(101, &[3]).unwrap();
        let bytes = added.clone().into_bytes();
        assert_eq!(bytes, [0, 1, 2, 0, 0, 3]);
        assert_eq!(Added::from_bytes(bytes.clone(), 4, 100), Ok(added));
        Added::from_bytes(bytes, 7, 100).unwrap_err();
    }
}
