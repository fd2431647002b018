//! Reads blocks of metadata.

use std::ops::ControlFlow;

use crate::image::btree2::Tree;
use crate::image::object_header::{self, Mode};
use crate::image::{Hdf5, HeaderBytes, Window, read_checked, read_vec};
use crate::source_file::SourceFile;

/// The largest block that is read, in bytes.
const MOST: u64 = 1 << 20;

/// The metadata of an HDF5 file.
pub struct Metadata<'a> {
    file: Hdf5<'a>,
    bytes: Window<Hdf5<'a>>,
}

/// A message of an object header.
pub struct Message {
    pub kind: u16,
    pub body: Vec<u8>,
}

impl<'a> Metadata<'a> {
    /// Opens the metadata of `source`. Addresses count from `base`.
    pub fn new(source: &'a SourceFile, base: u64) -> Self {
        let file = Hdf5 { source, base };
        Metadata {
            file,
            bytes: Window::new(file),
        }
    }

    /// Bytes of the file in front of address 0.
    pub fn base(&self) -> u64 {
        self.file.base
    }

    /// Length of the file from its first byte.
    pub fn file_len(&self) -> u64 {
        self.file.source.len()
    }

    /// Reads `len` bytes at `address`; `None` if the file does not have them, or if they are too many.
    pub fn read(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        if len > MOST || address.checked_add(len)? > self.bytes.size() {
            return None;
        }
        read_vec(&self.bytes, address, len).ok()
    }

    /// Reads `len` bytes, and removes the checksum in the last four of them. `None` also if the checksum is wrong.
    pub fn read_checked(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        if len > MOST {
            return None;
        }
        read_checked(&self.bytes, address, len).ok()
    }

    /// The version-2 B-tree at `address`, with records of type `kind`.
    pub fn tree(&self, address: u64, kind: u8) -> Option<Tree<'_, Window<Hdf5<'a>>>> {
        Tree::open(&self.bytes, address, kind).ok()
    }

    /// All messages of the object header at `address`. `None` if the header is not in libhdf5's form, or if a message
    /// is shared.
    pub fn messages(&self, address: u64) -> Option<Vec<Message>> {
        let mut found = Vec::new();
        let walk = object_header::messages(&self.bytes, address, Mode::Strict, |message| {
            if message.is_shared() {
                return Err("a shared message".into());
            }
            found.push(Message {
                kind: message.kind,
                body: message.body(&self.bytes)?,
            });
            Ok(ControlFlow::Continue(()))
        });
        walk.ok().map(|()| found)
    }
}
