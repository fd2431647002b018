//! Tells of most plain HDF5 files that they are no logs, without libhdf5. Sections are those of the HDF5 File Format
//! Specification.
//!
//! * `superblock` finds the root group.
//! * `name_index` looks a name up in the index of a large group.
//! * `metadata` reads the bytes, and the messages of an object.
//!
//! Only a file that is sound as far as it is read here, and lacks the names of all layouts, is certainly plain. Of any
//! other one a scan tells what it is. So code here returns `None` wherever a file is not as expected.

mod metadata;
mod name_index;
mod superblock;

use metadata::{Message, Metadata};
use name_index::Indexed;
use superblock::Superblock;

use h5logfs_hdf5_format::Fields;
use h5logfs_hdf5_format::object_header::kind;

use super::source_file::SourceFile;
use super::{classic, logvol};

/// Whether the HDF5 file whose signature is at `signature` is certainly no log. It reads some hundred bytes of most files,
/// and a few MiB at most.
pub fn is_certain(file: &SourceFile, signature: u64) -> bool {
    has_marks(file, signature) == Some(false)
}

/// Whether the root group may have the names of a layout; `None` where that cannot be told.
fn has_marks(file: &SourceFile, signature: u64) -> Option<bool> {
    let metadata = Metadata::new(file, signature);
    let superblock = Superblock::read(&metadata)?;
    if let Some(extension) = superblock.extension {
        let messages = metadata.messages(extension)?;
        let known = [kind::NIL, kind::CONTINUATION, kind::BTREE_K];
        let is_known = |m: &Message| known.contains(&m.kind) || m.kind == kind::FILE_SPACE_INFO;
        messages.iter().all(is_known).then_some(())?;
    }
    let root = Root::read(&metadata, &superblock)?;
    let is_logvol = root.may_have_attribute(logvol::MARK)?;
    let is_classic =
        root.may_have_link(classic::METADATA_LOG)? && root.may_have_link(classic::DATA_LOG)?;
    Some(is_logvol || is_classic)
}

/// The root group.
struct Root<'a> {
    metadata: &'a Metadata<'a>,
    messages: Vec<Message>,
    links: Links,
    /// The index of the names of attributes, where these do not lie in the object header.
    attributes: Option<Indexed>,
}

/// Where the names of links lie.
enum Links {
    /// In the object header.
    Header,
    /// In an index.
    Index(Indexed),
    /// In a local heap: all names, and remains of others.
    Heap(Vec<u8>),
}

impl<'a> Root<'a> {
    fn read(metadata: &'a Metadata<'a>, superblock: &Superblock) -> Option<Self> {
        let messages = metadata.messages(superblock.root)?;
        let mut links = None;
        let mut attributes = None;
        for message in &messages {
            let mut fields = Fields(&message.body);
            let found = match message.kind {
                kind::SYMBOL_TABLE => {
                    let table = (fields.u64()?, fields.u64()?);
                    // Where these differ, libhdf5 decides which one it takes.
                    let agrees = superblock.table.is_none_or(|cached| cached == table);
                    agrees.then_some(())?;
                    Some(Links::Heap(local_heap(metadata, table.1)?))
                }
                kind::LINK_INFO => {
                    let index = name_index_of(&mut fields, 8)?;
                    Some(index.map_or(Links::Header, |at| Links::Index(Indexed::links(at))))
                }
                kind::ATTRIBUTE_INFO => {
                    let index = name_index_of(&mut fields, 2)?;
                    attributes = index.map(Indexed::attributes);
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
            metadata,
            links: links?,
            messages,
            attributes,
        })
    }

    fn may_have_attribute(&self, name: &str) -> Option<bool> {
        let indexed = match &self.attributes {
            Some(index) => index.may_have(self.metadata, name)?,
            None => false,
        };
        Some(indexed || self.header_has(name))
    }

    fn may_have_link(&self, name: &str) -> Option<bool> {
        let elsewhere = match &self.links {
            Links::Header => false,
            Links::Index(index) => index.may_have(self.metadata, name)?,
            Links::Heap(names) => has_text(names, name),
        };
        Some(elsewhere || self.header_has(name))
    }

    /// Whether a name is anywhere in the object header.
    fn header_has(&self, name: &str) -> bool {
        self.messages.iter().any(|m| has_text(&m.body, name))
    }
}

/// The address of the index of names that a link info or attribute info message names (IV.A.2.c and v); `Some(None)`
/// where the names lie in the object header. `order` is the number of bytes of the largest creation index.
fn name_index_of(fields: &mut Fields<'_>, order: usize) -> Option<Option<u64>> {
    let version = fields.u8()?;
    let flags = fields.u8()?;
    if version != 0 || flags & !3 != 0 {
        return None;
    }
    if flags & 1 != 0 {
        fields.skip(order)?;
    }
    let heap = fields.address()?;
    let index = fields.address()?;
    // Both are there or neither is.
    (heap.is_some() == index.is_some()).then_some(index)
}

/// The data of the local heap at `address` (III.D).
fn local_heap(metadata: &Metadata<'_>, address: u64) -> Option<Vec<u8>> {
    let header = metadata.read(address, 32)?;
    let mut fields = Fields(&header);
    fields.expect(b"HEAP\0")?;
    fields.skip(3)?;
    let size = fields.u64()?;
    fields.skip(8)?;
    metadata.read(fields.u64()?, size)
}

fn has_text(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}
