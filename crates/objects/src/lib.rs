//! Reads the objects of an HDF5 file from its bytes, without libhdf5: links, attributes, datatypes, and the properties
//! of datasets. Also makes the metadata image of definitions ([`defined`]), and the metadata of a closed log
//! ([`closed`]). Sections are those of the HDF5 File Format Specification 3.0.
//!
#![doc = "```ignore"]
#![doc = include_str!("../examples/show_dataset.rs")]
#![doc = "```"]
//!
//! * `superblock` finds the root group.
//! * `group` reads links and follows paths. `group/link` reads one link, and `group/symbol_table` the links of old
//!   groups.
//! * `attribute`, `dataset` and [`Datatype`] (`datatype`) read object headers.
//! * `chunks` reads the chunk indexes of datasets.
//! * `value` decodes elements into plain values. `virtuals` reads the mappings of virtual datasets.
//! * `heap` reads local, global and fractal heaps. `messages` reads the messages of object headers.
//! * [`defined`] makes the metadata image of definitions. [`closed`] makes the metadata of a closed log from its
//!   metadata image.
//! * `written` writes objects.
//! * `bounds` limits walks.
//!
//! **Names** are bytes. Nearly all are UTF-8, but HDF5 does not require it.
//!
//! **Bytes may be hostile.** Each call ends, and takes memory and time that are bounded by the number of bytes, because
//! in a valid file no two things share bytes. For a view, pass the bytes of the image alone if its end is known. A
//! violation of the format is [`Fault::Damage`](h5logfs_common::fault::Fault). So is a feature that this crate does not
//! read: messages in the heap of shared messages, fractal heaps with filters, and addresses that are not eight bytes
//! long.
//!
//! **Nothing is kept between calls**, so many threads can read objects at once if the bytes allow it. Headers are read
//! field by field. Put a [`Window`](h5logfs_log::image::Window) around bytes that are slow to read.

#![deny(missing_docs)]

mod attribute;
mod bounds;
mod chunks;
pub mod closed;
mod dataset;
mod datatype;
pub mod defined;
mod group;
mod heap;
mod messages;
mod superblock;
mod value;
mod virtuals;
mod written;

pub use attribute::Attribute;
pub use chunks::{Chunk, ChunkIndex};
pub use dataset::{DatasetInfo, Layout};
pub use datatype::{
    Bits, Class, Datatype, FloatFormat, Member, Normalization, Padding, ReferenceKind,
};
pub use group::{Link, LinkTarget};
pub use h5logfs_log::image::HeaderSpace as Dataspace;
pub use value::{Region, Value};
pub use virtuals::{Mapping, Picked, Steps, UNLIMITED};

use h5logfs_common::fault::Fault;
use h5logfs_log::image::HeaderBytes;
use h5logfs_log::image::object_header::kind;

use messages::{Header, OF_GROUPS};

type Result<T> = std::result::Result<T, Fault>;

/// The objects of an HDF5 file. The address of its object header identifies an object. Addresses count from the
/// superblock.
#[derive(Debug)]
pub struct Objects<B> {
    bytes: B,
    root: u64,
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A group.
    Group,
    /// A dataset.
    Dataset,
    /// A committed datatype.
    Datatype,
}

/// An object, with the description of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A group.
    Group,
    /// A dataset.
    Dataset(DatasetInfo),
    /// A committed datatype.
    Datatype(Datatype),
}

impl ObjectKind {
    /// The kind of an object whose header has messages of these types.
    fn of(has: impl Fn(u16) -> bool) -> Result<Self> {
        if OF_GROUPS.into_iter().any(&has) {
            Ok(ObjectKind::Group)
        } else if has(kind::DATATYPE) && has(kind::DATASPACE) {
            Ok(ObjectKind::Dataset)
        } else if has(kind::DATATYPE) {
            Ok(ObjectKind::Datatype)
        } else {
            Err("no group, dataset or datatype".into())
        }
    }
}

impl<B: HeaderBytes> Objects<B> {
    /// Opens a file whose superblock is at the start of `bytes`. Fails if there is no superblock of version 0 to 3.
    pub fn open(bytes: B) -> Result<Self> {
        let root = superblock::root(&bytes)?;
        Ok(Objects { bytes, root })
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// The address of the root group.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// The kind of the object at `address`. Fails if there is no object.
    pub fn kind(&self, address: u64) -> Result<ObjectKind> {
        let kinds = Header::kinds(&self.bytes, address);
        let kind = kinds.and_then(|kinds| ObjectKind::of(|kind| kinds.contains(&kind)));
        kind.map_err(at(address))
    }

    /// Reads the object at `address` in one walk through its header. Fails if there is no object.
    pub fn object(&self, address: u64) -> Result<Object> {
        self.of_header(address).map_err(at(address))
    }

    fn of_header(&self, address: u64) -> Result<Object> {
        let header = Header::read_until(&self.bytes, address, &dataset::KINDS, &OF_GROUPS)?;
        Ok(match ObjectKind::of(|kind| header.first(kind).is_some())? {
            ObjectKind::Group => Object::Group,
            ObjectKind::Dataset => Object::Dataset(self.dataset_of(&header)?),
            ObjectKind::Datatype => Object::Datatype(self.type_of(&header)?),
        })
    }
}

/// Adds the address of the object to a fault.
fn at(address: u64) -> impl Fn(Fault) -> Fault {
    move |fault| fault.at(format_args!("the object at address {address}"))
}
