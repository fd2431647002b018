//! The objects of an HDF5 file, read from its bytes without libhdf5: links, attributes, datatypes, and what a dataset is made
//! of. Also the metadata image of definitions ([`defined`]), and the metadata of a closed log ([`closed`]). Sections are those of the
//! HDF5 File Format Specification 3.0.
//!
#![doc = "```ignore"]
#![doc = include_str!("../examples/show_dataset.rs")]
#![doc = "```"]
//!
//! * `superblock` finds the root group.
//! * `group` reads links, and follows paths. In it: `link`, one link, and `symbol_table`, those of old groups.
//! * `attribute`, `dataset`, [`Datatype`] (`datatype`): what the header of an object says.
//! * `chunks`: the chunk indexes of datasets.
//! * `value`: elements as plain values. `virtuals`: which elements of virtual datasets are those of others.
//! * `heap`: local, global and fractal heaps. `messages`: object headers.
//! * [`defined`]: the metadata image of what a program defines. [`closed`]: what a log is closed with, made of its metadata image.
//! * `written`: objects that are written.
//! * `bounds`: how much a walk may take.
//!
//! **Names** are bytes. Nearly all are UTF-8; HDF5 does not ask for that.
//!
//! **Bytes may be hostile.** Whatever they say, each call ends, and takes memory and time that are bounded by the number of
//! bytes: all that a sound file holds lies side by side in it. Of a view, give the bytes of the image alone where its end is
//! known. What breaks the rules of the format is [`Fault::Damage`](h5logfs_common::fault::Fault), and so is what this crate
//! does not read: messages that lie in the heap of shared messages, fractal heaps with filters, addresses that have not eight
//! bytes.
//!
//! **Nothing is kept between calls**, so objects can be read by many threads at once if the bytes can. Headers are read field
//! by field: bytes that are slow to read want a [`Window`](h5logfs_log::image::Window) around them.

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

/// The objects of an HDF5 file. Each has the address of its object header as its number; addresses count from the
/// superblock.
#[derive(Debug)]
pub struct Objects<B> {
    bytes: B,
    root: u64,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// It has links.
    Group,
    /// It has elements.
    Dataset,
    /// A committed datatype.
    Datatype,
}

/// An object, and what its header says of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// It has links.
    Group,
    /// It has elements.
    Dataset(DatasetInfo),
    /// A committed datatype.
    Datatype(Datatype),
}

impl ObjectKind {
    /// What an object is whose header has messages of these types.
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
    /// The objects of a file whose superblock is the first of `bytes`. Fails where that is no superblock of versions 0 to 3.
    pub fn open(bytes: B) -> Result<Self> {
        let root = superblock::root(&bytes)?;
        Ok(Objects { bytes, root })
    }

    /// The bytes.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// The address of the root group.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// What the object at an address is. Fails where there is none.
    pub fn kind(&self, address: u64) -> Result<ObjectKind> {
        let kinds = Header::kinds(&self.bytes, address);
        let kind = kinds.and_then(|kinds| ObjectKind::of(|kind| kinds.contains(&kind)));
        kind.map_err(at(address))
    }

    /// The object at an address, by one walk through its header. Fails where there is none.
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

/// Names the object in a fault.
fn at(address: u64) -> impl Fn(Fault) -> Fault {
    move |fault| fault.at(format_args!("the object at address {address}"))
}
