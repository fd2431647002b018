//! Open logs and their objects.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dataset::Dataset;
use h5logfs_catalog::direct::{self, Inside, OpenLog, Opened, Options};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;
use h5logfs_hdf5_format::{
    self as objects, Attribute, Link, LinkTarget, ObjectKind, Objects, Place, Value,
};

/// One state of a log: the HDF5 objects that its program defined. Clones share the open log, also between threads.
#[derive(Clone)]
pub struct Log {
    pub(crate) inner: Arc<Inner>,
}

/// State shared by the objects of a log.
pub(crate) struct Inner {
    pub open: Arc<OpenLog>,
    objects: Objects<Metadata>,
    /// Snapshot number, by header address, of each dataset whose elements are in the log.
    numbers: HashMap<u64, usize>,
    /// Number of virtual datasets that led here.
    depth: u8,
}

/// The metadata of a log's canonical file.
pub(crate) struct Metadata(Arc<OpenLog>);

impl HeaderBytes for Metadata {
    fn size(&self) -> u64 {
        self.0.view().metadata().size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.0.view().metadata().read(at, buf)
    }
}

/// An object of a log.
pub enum Object {
    /// A group.
    Group,
    /// A dataset.
    Dataset(Box<Dataset>),
    /// A named datatype.
    Datatype(h5logfs_hdf5_format::Datatype),
}

impl Log {
    /// Opens the log at `path`. Fails where there is none, or it cannot be presented.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        match direct::open(path, options)? {
            Opened::Log(log) => Self::of(Arc::new(log)),
            Opened::Plain => Err(Error::NotALog {
                path: path.to_owned(),
                reason: "it is a plain file".into(),
            }),
        }
    }

    /// The file of a virtual dataset's source: a log or a plain HDF5 file.
    pub(crate) fn source(path: &Path, of: &Dataset) -> Result<Self> {
        let options = of.log().open.options().of_another();
        let open = direct::open_any(path, &options)?;
        Self::at_depth(Arc::new(open), of.depth() + 1)
    }

    /// The objects of an open log.
    pub fn of(open: Arc<OpenLog>) -> Result<Self> {
        Self::at_depth(open, 0)
    }

    fn at_depth(open: Arc<OpenLog>, depth: u8) -> Result<Self> {
        let objects = {
            let _inside = open.enter()?;
            let objects = Objects::open(Metadata(Arc::clone(&open)));
            objects.map_err(|fault| Error::of(open.view().path(), fault))?
        };
        let datasets = open.view().snapshot().datasets.iter().enumerate();
        let numbers = datasets.map(|(number, dataset)| (dataset.header, number));
        Ok(Log {
            inner: Arc::new(Inner {
                numbers: numbers.collect(),
                depth,
                open,
                objects,
            }),
        })
    }

    /// The path of the log.
    pub fn path(&self) -> PathBuf {
        self.inner.open.view().path()
    }

    /// The dataset at a path from the root group. Soft links are followed.
    pub fn dataset(&self, path: &str) -> Result<Dataset> {
        match self.object(path)? {
            Some(Object::Dataset(dataset)) => Ok(*dataset),
            Some(_) => Err(self.failed(path, "it is not a dataset".into())),
            None => Err(self.failed(path, "there is no such object".into())),
        }
    }

    /// The object at a path; `None` where no link leads to one.
    pub fn object(&self, path: &str) -> Result<Option<Object>> {
        self.object_below(path, self.inner.depth)
    }

    /// The object at a path, as a source of a virtual dataset.
    pub(crate) fn object_below(&self, path: &str, depth: u8) -> Result<Option<Object>> {
        self.inner.with(path, |objects| {
            let address = objects.find(path)?;
            let look = |address| self.look(objects, path, address, depth);
            address.map(look).transpose()
        })
    }

    /// The object with a header address from a link or reference, and a path to give it. A walk through a group is
    /// faster with the addresses of its links than with paths.
    pub fn object_at(&self, path: &str, address: u64) -> Result<Object> {
        self.inner.with(path, |objects| {
            self.look(objects, path, address, self.inner.depth)
        })
    }

    fn look(
        &self,
        objects: &Objects<Metadata>,
        path: &str,
        address: u64,
        depth: u8,
    ) -> Result<Object, Fault> {
        Ok(match objects.object(address)? {
            objects::Object::Group => Object::Group,
            objects::Object::Datatype(datatype) => Object::Datatype(datatype),
            objects::Object::Dataset(info) => {
                let log = Arc::clone(&self.inner);
                Object::Dataset(Box::new(Dataset::new(log, path, address, info, depth)))
            }
        })
    }

    /// The address of the object at a path; `None` where no link leads to one. All links to an object share its
    /// address.
    pub fn address_of(&self, path: &str) -> Result<Option<u64>> {
        self.inner.with(path, |objects| objects.find(path))
    }

    /// Where a path leads, also out of the log.
    pub fn place_of(&self, path: &str) -> Result<Place> {
        self.inner.with(path, |objects| objects.place(path))
    }

    /// Whether there is a link at a path, wherever it leads.
    pub fn has_link(&self, path: &str) -> Result<bool> {
        self.inner.with(path, |objects| objects.has_link(path))
    }

    /// The kind of the object with a header address.
    pub fn kind_at(&self, path: &str, address: u64) -> Result<ObjectKind> {
        self.inner.with(path, |objects| objects.kind(address))
    }

    /// The kind of object at a path; `None` where no link leads to one.
    pub fn kind_of(&self, path: &str) -> Result<Option<ObjectKind>> {
        self.inner.with(path, |objects| {
            let address = objects.find(path)?;
            address.map(|address| objects.kind(address)).transpose()
        })
    }

    /// The links of a group by name, each with its target.
    pub fn links(&self, group: &str) -> Result<Vec<Link>> {
        self.at(group, |objects, address| objects.links(address))
    }

    /// The kind of a hard link's target; `None` for other links.
    pub fn kind(&self, link: &Link) -> Result<Option<ObjectKind>> {
        match link.target {
            LinkTarget::Hard(address) => {
                let name = String::from_utf8_lossy(&link.name);
                let kind = self.inner.with(&name, |objects| objects.kind(address));
                kind.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The attributes of the object at a path, in creation order where the object records it, else by name.
    pub fn attributes(&self, path: &str) -> Result<Vec<Attribute>> {
        self.at(path, |objects, address| objects.attributes(address))
    }

    /// The elements of an attribute as plain values.
    pub fn values(&self, attribute: &Attribute) -> Result<Vec<Value>> {
        let name = String::from_utf8_lossy(&attribute.name);
        self.inner.with(&name, |objects| {
            objects.values(&attribute.datatype, &attribute.bytes)
        })
    }

    fn at<T>(
        &self,
        path: &str,
        look: impl FnOnce(&Objects<Metadata>, u64) -> Result<T, Fault>,
    ) -> Result<T> {
        self.inner.with(path, |objects| {
            let address = objects.find(path)?.ok_or("there is no such object")?;
            look(objects, address)
        })
    }

    fn failed(&self, path: &str, fault: Fault) -> Error {
        self.inner.failed(path, fault)
    }
}

impl Inner {
    /// Uses the objects. A failure names the log and `path`.
    pub fn with<T>(
        &self,
        path: &str,
        look: impl FnOnce(&Objects<Metadata>) -> Result<T, Fault>,
    ) -> Result<T> {
        let _inside = self.enter()?;
        look(&self.objects).map_err(|fault| self.failed(path, fault))
    }

    /// The snapshot number of the dataset with this header address. `None` where its elements lie in the canonical
    /// file as its metadata says.
    pub fn number(&self, address: u64) -> Option<usize> {
        self.numbers.get(&address).copied()
    }

    /// The objects, for use within a task.
    pub fn objects(&self) -> &Objects<Metadata> {
        &self.objects
    }

    /// Begins a task on the view.
    pub fn enter(&self) -> Result<Inside> {
        self.open.enter()
    }

    pub fn failed(&self, path: &str, fault: Fault) -> Error {
        Error::of(self.open.view().path(), fault.at(format_args!("{path}")))
    }
}
