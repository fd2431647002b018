//! What all copies of datasets have in common.

use super::references::Translator;
use super::tree::{Copier, Object};
use crate::hdf5_sys::{self as h5, Id, Link, Shape, Space, StorageClass, Values};
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// Bytes that are copied at once.
const COPY_STEP: u64 = 8 << 20;

/// The first link to an object that is to be made.
pub struct NewLink<'a> {
    pub parent: &'a Id,
    pub link: &'a Link,
    /// The whole path, for messages.
    pub path: &'a str,
}

/// What the copy of a dataset takes from the dataset of the file.
pub struct Template<'a> {
    pub datatype: Id,
    pub creation: Id,
    pub at: &'a NewLink<'a>,
}

impl<'a> Template<'a> {
    /// `is_sharing`: objects of the file share messages.
    pub fn of(old: &Object, at: &'a NewLink<'a>, is_sharing: bool) -> Result<Self> {
        let mut creation = h5::dataset_creation(&old.id)?;
        if is_sharing {
            creation = h5::unshared_creation(&creation)?;
        }
        old.prepare(&creation)?;
        Ok(Template {
            datatype: h5::dataset_type(&old.id)?,
            creation,
            at,
        })
    }

    /// Whether the file has elements of this dataset.
    pub fn has_elements(&self, old: &Object) -> Result<bool> {
        Ok(match h5::storage_class(&self.creation)? {
            StorageClass::Elsewhere => false,
            StorageClass::Compact => true,
            _ => h5::storage_size(&old.id) > 0,
        })
    }
}

impl Copier<'_> {
    /// Makes a dataset with the creation properties of the template.
    pub fn create_dataset(&mut self, template: &Template<'_>, space: &Space) -> Result<Id> {
        let datatype = self.type_in_copy(&template.datatype)?;
        let (NewLink { parent, link, .. }, space) = (template.at, space.create()?);
        h5::create_dataset(parent, link, &datatype, &space, &template.creation)
    }

    /// Copies all elements. References follow when all objects are there.
    pub fn copy_elements(&mut self, old: &Object, new: &Id, at: &NewLink<'_>) -> Result<()> {
        if Shape::of(&h5::dataset_type(&old.id)?)?.has_references() {
            self.postpone_elements(old, new, at.path)
        } else {
            copy_elements(&old.id, new, None)
        }
    }
}

/// Copies the elements of a dataset, some rows at a time.
pub fn copy_elements(
    old: &Id,
    new: &Id,
    mut translator: Option<&mut Translator<'_>>,
) -> Result<()> {
    let Space::Simple { dims, .. } = h5::dataset_space(old)? else {
        return Ok(());
    };
    if dims.contains(&0) {
        return Ok(());
    }
    let datatype = h5::dataset_type(old)?;
    let row = dims.iter().skip(1).product::<u64>() * h5::type_size(&datatype)? as u64;
    let step = (COPY_STEP / row.max(1)).max(1);
    let rows = dims.first().copied().unwrap_or(1);
    let mut at = 0;
    while at < rows {
        let mut count = dims.clone();
        let mut start = vec![0; dims.len()];
        if let (Some(c), Some(s)) = (count.first_mut(), start.first_mut()) {
            *c = step.min(rows - at);
            *s = at;
        }
        let file_space = h5::dataset_space(old)?.create()?;
        if !dims.is_empty() {
            h5::select_block(&file_space, &start, &count, false)?;
        }
        let memory = Space::fixed(&count).create()?;
        let mut values = Values::zeros(datatype.clone(), memory.clone())?;
        h5::read_elements(old, &mut values, &memory, &file_space)?;
        if let Some(translator) = translator.as_deref_mut() {
            values.change_references(&mut |r| translator.translate(r))?;
        }
        h5::write_elements(new, &values, &memory, &file_space)?;
        at += step;
    }
    Ok(())
}
