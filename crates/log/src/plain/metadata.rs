//! Reads blocks of metadata.

use std::ops::ControlFlow;

use crate::hdf5_bytes::Hdf5;
use crate::source_file::SourceFile;
use h5logfs_hdf5_format::btree2::Tree;
use h5logfs_hdf5_format::object_header::{self, Mode};
use h5logfs_hdf5_format::{HeaderBytes, Window, read_checked, read_vec};

/// Larger blocks are not read, in bytes.
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
    /// The addresses of `source` count from `base`.
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

    /// Bytes of the file from its first byte on.
    pub fn file_len(&self) -> u64 {
        self.file.source.len()
    }

    /// `len` bytes at `address`; `None` where the file does not have them, or they are too many.
    pub fn read(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        if len > MOST || address.checked_add(len)? > self.bytes.size() {
            return None;
        }
        read_vec(&self.bytes, address, len).ok()
    }

    /// The same without the checksum in the last four bytes; `None` also where that is wrong.
    pub fn read_checked(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        if len > MOST {
            return None;
        }
        read_checked(&self.bytes, address, len).ok()
    }

    /// The version-2 B-tree at `address`, with records of this type.
    pub fn tree(&self, address: u64, kind: u8) -> Option<Tree<'_, Window<Hdf5<'a>>>> {
        Tree::open(&self.bytes, address, kind).ok()
    }

    /// All messages of the object header at `address`. `None` where it is not as libhdf5 makes it, or one of them is
    /// shared.
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
