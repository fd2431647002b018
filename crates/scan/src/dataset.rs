//! The steps that all copies of datasets share.

use super::elements::Elements;
use super::original::{Object, Original, stored_space};
use super::tree::Copier;
use crate::hdf5_sys::{self as h5, Format, Id, Link, Space, StorageClass};
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// The first link to an object that is about to be made.
pub struct NewLink<'a> {
    pub parent: &'a Id,
    pub link: &'a Link,
    /// The full path, for messages.
    pub path: &'a str,
}

/// The properties that the copy of a dataset takes from the original.
pub struct Template<'a> {
    pub datatype: Id,
    pub creation: Id,
    /// The result of [`Object::format`].
    pub format: Option<Format>,
    pub at: &'a NewLink<'a>,
}

impl<'a> Template<'a> {
    /// Takes the properties of `old`. `is_sharing`: objects of the file share messages.
    pub fn of(old: &Object, at: &'a NewLink<'a>, is_sharing: bool) -> Result<Self> {
        let mut creation = h5::dataset_creation(&old.id)?;
        if is_sharing {
            creation = h5::unshared_creation(&creation)?;
        }
        old.prepare(&creation)?;
        Ok(Template {
            datatype: h5::dataset_type(&old.id)?,
            format: old.format(&creation)?,
            creation,
            at,
        })
    }

    /// Whether the file may hold elements of this dataset.
    pub fn has_elements(&self, old: &Object) -> Result<bool> {
        Ok(match h5::storage_class(&self.creation)? {
            StorageClass::Elsewhere => false,
            StorageClass::Compact | StorageClass::Chunked => true,
            StorageClass::Contiguous => h5::dataset_offset(&old.id)?.is_some(),
        })
    }

    /// The extent that the file records for the dataset: see [`stored_space`].
    pub fn space(&self, original: Original<'_>, old: &Object) -> Result<Space> {
        match h5::storage_class(&self.creation)? {
            StorageClass::Elsewhere => stored_space(original.bytes, old.info.address),
            _ => h5::dataset_space(&old.id),
        }
    }
}

impl Copier<'_> {
    /// Makes a dataset with the creation properties of the template.
    pub fn create_dataset(&mut self, template: &Template<'_>, space: &Space) -> Result<Id> {
        let datatype = self.type_in_copy(&template.datatype)?;
        let (NewLink { parent, link, .. }, space) = (template.at, space.create()?);
        h5::allow_missing_filters(&template.creation)?;
        h5::create_dataset(parent, link, &datatype, &space, &template.creation)
    }

    /// Copies the elements that the file holds. Elements with references follow once all objects exist.
    pub fn copy_elements(&mut self, old: &Object, new: &Id, at: &NewLink<'_>) -> Result<()> {
        let elements = Elements::of(self.original, old)?;
        if elements.has_references {
            self.postpone_elements(old, new, at.path)
        } else {
            elements.copy_to(new, None)
        }
    }
}
