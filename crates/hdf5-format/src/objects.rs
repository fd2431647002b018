//! The objects of an HDF5 file by the addresses of their headers.

use h5logfs_common::fault::Fault;

use crate::bytes::HeaderBytes;
use crate::dataset::{self, DatasetInfo};
use crate::datatype::Datatype;
use crate::messages::{Header, OF_GROUPS};
use crate::object_header::kind;
use crate::superblock::Superblock;
use crate::{Result, UNDEFINED};

/// The objects of an HDF5 file. Each has the address of its object header as its number; addresses count from the
/// superblock.
#[derive(Debug)]
pub struct Objects<B> {
    pub(crate) bytes: B,
    root: u64,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A group, which has links.
    Group,
    /// A dataset, which has elements.
    Dataset,
    /// A committed datatype.
    Datatype,
}

/// An object, and what its header says of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A group, which has links.
    Group,
    /// A dataset, which has elements.
    Dataset(DatasetInfo),
    /// A committed datatype.
    Datatype(Datatype),
}

impl ObjectKind {
    /// The kind of an object. `has` tells whether its header has messages of a type.
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
        let root = Superblock::read(&bytes)?.root;
        if root == UNDEFINED {
            return Err("a file without a root group".into());
        }
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
pub(crate) fn at(address: u64) -> impl Fn(Fault) -> Fault {
    move |fault| fault.at(format_args!("the object at address {address}"))
}
