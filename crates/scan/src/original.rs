//! A file that is copied, and its objects, with the properties that all parts of a copy need.

use std::ffi::{CStr, CString};

use super::layout_objects::LayoutObjects;
use crate::hdf5_sys::{self as h5, Format, Id, Space};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;
use h5logfs_hdf5_format::{Dataspace, Objects};

type Result<T> = std::result::Result<T, Fault>;

/// The size from which an attribute does not fit into an object header (64 KiB, less the description of the attribute).
const LARGE_ATTRIBUTE: u64 = 64_000;
/// The most attributes that stay in an object header. libhdf5 searches a header from its start for each attribute.
const MOST_IN_HEADER: usize = 500;

/// The file that is copied.
#[derive(Clone, Copy)]
pub struct Original<'a> {
    /// The file as libhdf5 sees it.
    pub file: &'a Id,
    /// The bytes of the file. Addresses count from its first byte.
    pub bytes: &'a dyn HeaderBytes,
    pub layout: &'a dyn LayoutObjects,
    /// The copy leaves out what this libhdf5 cannot read, because an HDF5 program of a later version may have made it.
    /// If false, the copy fails there.
    pub is_partial: bool,
}

impl Original<'_> {
    /// Creation properties for a file whose root group is like the root group of this file.
    pub fn creation_of_copy(&self) -> Result<Id> {
        let (root, _) = self.object(h5::open_group(self.file, c"/")?)?;
        let creation = h5::new_file_creation()?;
        h5::copy_group_properties(&h5::group_creation(&root.id)?, &creation)?;
        root.prepare(&creation)?;
        Ok(creation)
    }

    /// Opens an object of the file. If the attributes cannot be read and the copy is partial, the object has none, and
    /// the reason is returned, too.
    pub fn object(&self, id: Id) -> Result<(Object, Option<String>)> {
        let (attributes, reason) = match h5::attribute_names(&id) {
            Err(Fault::Damage(reason)) if self.is_partial => (Vec::new(), Some(reason)),
            found => (found?, None),
        };
        let object = Object {
            info: h5::object_info(&id)?,
            attributes,
            id,
        };
        Ok((object, reason))
    }
}

/// An object of the file.
pub struct Object {
    pub id: Id,
    pub info: h5::ObjectInfo,
    pub attributes: Vec<CString>,
}

impl Object {
    /// Sets the creation properties of the copy: it stores times if the object does, because the creation properties
    /// that libhdf5 returns do not always say so. It also allows large attributes, or very many, which only version 2
    /// object headers can store elsewhere.
    pub fn prepare(&self, creation: &Id) -> Result<()> {
        h5::track_times(creation, self.has_times())?;
        if self.info.version < 2 {
            return Ok(());
        }
        if self.has_very_many_attributes() {
            return h5::allow_large_attributes(creation);
        }
        for name in &self.attributes {
            let attribute = h5::open_attribute(&self.id, name)?;
            if h5::attribute_storage(&attribute)? >= LARGE_ATTRIBUTE {
                return h5::allow_large_attributes(creation);
            }
        }
        Ok(())
    }

    /// The format in which the copy must be made, with the properties that [`prepare`](Self::prepare) has set; `None`
    /// for any.
    ///
    /// In the oldest format, libhdf5 reports times for all objects, except those that keep the order of their
    /// attributes. Headers of version 2 report times only for objects that store some.
    pub fn format(&self, creation: &Id) -> Result<Option<Format>> {
        Ok(if self.info.version < 2 {
            Some(Format::Oldest)
        } else if self.has_times() || h5::tracks_attributes(creation)? {
            None
        } else {
            Some(Format::V18)
        })
    }

    fn has_times(&self) -> bool {
        self.info.times[2] != 0
    }

    pub fn has_very_many_attributes(&self) -> bool {
        self.info.version >= 2 && self.attributes.len() > MOST_IN_HEADER
    }

    /// The names of the attributes in the order in which the copy gets them. If only the copy tracks the order, the
    /// attributes are sorted by name, as readers list those of the object.
    pub fn names_in_order(&self) -> Result<Vec<&CStr>> {
        let mut names: Vec<&CStr> = self.attributes.iter().map(CString::as_c_str).collect();
        if self.has_very_many_attributes()
            && !h5::attribute_has_order(&h5::open_attribute(&self.id, names[0])?)?
        {
            names.sort_unstable();
        }
        Ok(names)
    }
}

/// The extent that the file stores for the dataset whose object header is at `address`.
///
/// libhdf5 computes the extent of a virtual dataset on each request, from the source datasets. These do not exist here
/// in the form that the program sees. For a source without an extent, such as a stub dataset, libhdf5 takes whatever is
/// in memory.
pub fn stored_space(bytes: &dyn HeaderBytes, address: u64) -> Result<Space> {
    Ok(match Objects::open(bytes)?.dataset(address)?.space {
        Dataspace::Null => Space::Null,
        Dataspace::Simple { dims, max_dims } => Space::Simple {
            dims,
            max: max_dims,
        },
    })
}
