//! A file of which a copy is made, and its objects, as far as all parts of a copy need them.

use std::ffi::{CStr, CString};

use super::layout_objects::LayoutObjects;
use crate::hdf5_sys::{self as h5, Format, Id, Space};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;
use h5logfs_hdf5_format::{Dataspace, Objects};

type Result<T> = std::result::Result<T, Fault>;

/// Attributes of this size and more do not fit into an object header (64 KiB, less what describes them).
const LARGE_ATTRIBUTE: u64 = 64_000;
/// Where an object has more attributes, libhdf5 would look through all of them in its header for each.
const MOST_IN_HEADER: usize = 500;

/// The file that is copied.
#[derive(Clone, Copy)]
pub struct Original<'a> {
    /// The file as libhdf5 sees it.
    pub file: &'a Id,
    /// Its bytes. Addresses count from the first of them.
    pub bytes: &'a dyn HeaderBytes,
    pub layout: &'a dyn LayoutObjects,
    /// The copy lacks what this libhdf5 cannot read: an HDF5 program of a later version may have made it. Else the copy
    /// fails there.
    pub is_partial: bool,
}

impl Original<'_> {
    /// Creation properties of a file whose root group is like that of this one.
    pub fn creation_of_copy(&self) -> Result<Id> {
        let (root, _) = self.object(h5::open_group(self.file, c"/")?)?;
        let creation = h5::new_file_creation()?;
        h5::copy_group_properties(&h5::group_creation(&root.id)?, &creation)?;
        root.prepare(&creation)?;
        Ok(creation)
    }

    /// An object of the file. Where its attributes cannot be read and the copy is partial, it has none, and the reason is
    /// returned.
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
    /// Lets the copy have times if the object has some: the creation properties that libhdf5 tells of an object do not
    /// say it of all. And large attributes, or very many, which only version 2 object headers can hold elsewhere.
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

    /// The format in which the copy has to be made, with the properties that [`prepare`](Self::prepare) has set; `None` for any. In the
    /// oldest one, libhdf5 says that all objects have times, unless they keep the order of their attributes. Headers of version 2 say
    /// that of all objects which have some.
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

    /// The names of the attributes in the order in which the copy gets them. Where the copy tracks that order and the object
    /// does not, it is the one of the names, in which readers list those of the object.
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

/// The extent of the dataset whose object header is at an address, as the file has it. libhdf5 makes that of a virtual dataset anew where
/// it is asked, of its sources, which are not there as the program sees them: of one without an extent, as a stub dataset is, it takes
/// what is in memory.
pub fn stored_space(bytes: &dyn HeaderBytes, address: u64) -> Result<Space> {
    Ok(match Objects::open(bytes)?.dataset(address)?.space {
        Dataspace::Null => Space::Null,
        Dataspace::Simple { dims, max_dims } => Space::Simple {
            dims,
            max: max_dims,
        },
    })
}
