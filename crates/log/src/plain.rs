//! Tells of most plain HDF5 files that they are no logs, without libhdf5.
//!
//! Only a file that is sound as far as it is read here, and lacks the names of all layouts, is certainly plain. A scan tells what
//! any other file is. So functions return `None` wherever a file is not as expected.

use std::ops::ControlFlow;

use h5logfs_hdf5_format::object_header::{self, Mode, kind};
use h5logfs_hdf5_format::symbol_table::Table;
use h5logfs_hdf5_format::{Dense, HeaderBytes, LocalHeap, NameIndex, Superblock, Window};

use crate::hdf5_bytes::Hdf5;
use crate::source_file::SourceFile;
use crate::{classic, logvol};

/// A larger local heap is not read, in bytes.
const MOST_NAMES: u64 = 1 << 20;

/// Whether the HDF5 file whose signature is at `signature` is certainly no log. It reads some hundred bytes of most files,
/// and a few MiB at most.
pub fn is_certain(file: &SourceFile, signature: u64) -> bool {
    has_marks(file, signature) == Some(false)
}

/// Whether the root group may have the names of a layout; `None` where that cannot be told.
fn has_marks(file: &SourceFile, signature: u64) -> Option<bool> {
    let bytes = Window::new(Hdf5 {
        source: file,
        base: signature,
    });
    let superblock = Superblock::read(&bytes).ok()?;
    // libhdf5 opens no file that has been cut off, and moves the base where it is not at the superblock.
    let is_usual = superblock.flags == 0
        && superblock.base == signature
        && superblock.end <= file.len()
        && !(superblock.is_old() && superblock.info.is_some());
    is_usual.then_some(())?;
    if let Some(extension) = superblock.info {
        let known = [
            kind::NIL,
            kind::CONTINUATION,
            kind::BTREE_K,
            kind::FILE_SPACE_INFO,
        ];
        let messages = messages(&bytes, extension)?;
        let are_known = messages.iter().all(|(kind, _)| known.contains(kind));
        are_known.then_some(())?;
    }
    let root = Root::read(&bytes, &superblock)?;
    let is_logvol = root.may_have_attribute(logvol::MARK)?;
    let is_classic =
        root.may_have_link(classic::METADATA_LOG)? && root.may_have_link(classic::DATA_LOG)?;
    Some(is_logvol || is_classic)
}

/// Types and data of all messages of the object header at `address`. `None` where it is not as libhdf5 makes it, or one of them
/// is shared.
fn messages<B: HeaderBytes>(bytes: &B, address: u64) -> Option<Vec<(u16, Vec<u8>)>> {
    let mut found = Vec::new();
    let walk = object_header::messages(bytes, address, Mode::Strict, |message| {
        if message.is_shared() {
            return Err("a shared message".into());
        }
        found.push((message.kind, message.body(bytes)?));
        Ok(ControlFlow::Continue(()))
    });
    walk.ok().map(|()| found)
}

/// The root group.
struct Root<'a, B> {
    messages: Vec<(u16, Vec<u8>)>,
    links: Links<'a, B>,
    /// The index of the names of attributes, where these do not lie in the object header.
    attributes: Option<NameIndex<'a, B>>,
}

/// Where the names of links lie.
enum Links<'a, B> {
    /// In the object header.
    Header,
    /// In an index.
    Index(NameIndex<'a, B>),
    /// In a local heap: all names, and remains of others.
    Heap(Vec<u8>),
}

impl<'a, B: HeaderBytes> Root<'a, B> {
    fn read(bytes: &'a B, superblock: &Superblock) -> Option<Self> {
        let messages = messages(bytes, superblock.root)?;
        let mut links = None;
        let mut attributes = None;
        for (kind, body) in &messages {
            let found = match *kind {
                kind::SYMBOL_TABLE => {
                    let table = Table::of_message(body)?;
                    // Where these differ, libhdf5 decides which one it takes.
                    let agrees = superblock.table.is_none_or(|cached| cached == table);
                    agrees.then_some(())?;
                    let heap = LocalHeap::open(bytes, table.heap).ok()?;
                    Some(Links::Heap(heap.all(MOST_NAMES).ok()?))
                }
                kind::LINK_INFO => Some(match Dense::of_links(body)? {
                    Some(dense) => Links::Index(NameIndex::of_links(bytes, dense.index).ok()?),
                    None => Links::Header,
                }),
                kind::ATTRIBUTE_INFO => {
                    if let Some(dense) = Dense::of_attributes(body)? {
                        attributes = Some(NameIndex::of_attributes(bytes, dense.index).ok()?);
                    }
                    None
                }
                kind::NIL
                | kind::LINK
                | kind::GROUP_INFO
                | kind::ATTRIBUTE
                | kind::COMMENT
                | kind::OLD_MODIFICATION_TIME
                | kind::CONTINUATION
                | kind::MODIFICATION_TIME
                | kind::REFERENCE_COUNT => None,
                _ => return None,
            };
            match (&links, found) {
                (Some(_), Some(_)) => return None,
                (None, Some(found)) => links = Some(found),
                (_, None) => {}
            }
        }
        Some(Root {
            links: links?,
            messages,
            attributes,
        })
    }

    fn may_have_attribute(&self, name: &str) -> Option<bool> {
        let indexed = match &self.attributes {
            Some(index) => index.may_have(name.as_bytes()).ok()?,
            None => false,
        };
        Some(indexed || self.header_has(name))
    }

    fn may_have_link(&self, name: &str) -> Option<bool> {
        let elsewhere = match &self.links {
            Links::Header => false,
            Links::Index(index) => index.may_have(name.as_bytes()).ok()?,
            Links::Heap(names) => has_text(names, name),
        };
        Some(elsewhere || self.header_has(name))
    }

    /// Whether a name is anywhere in the object header.
    fn header_has(&self, name: &str) -> bool {
        self.messages.iter().any(|(_, body)| has_text(body, name))
    }
}

fn has_text(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}
