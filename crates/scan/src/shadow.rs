//! The objects of a log that a program writes through HDF5 itself (`docs/formats/journal.md`, section 2.5): all have their
//! natural form, and the journal says which datasets are logged.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::CString;

use super::layout_objects::{Anchor, LayoutObjects, Owner};
use super::logvol::can_be_skipped;
use crate::hdf5_sys::{self as h5, Id, Space, StorageClass};
use h5logfs_core::journal::shadow::Shadow;

type Result<T> = std::result::Result<T, String>;

/// The datasets of a shadow that are logged: their IDs, by the addresses of their object headers.
#[derive(Debug)]
pub struct ShadowObjects(HashMap<u64, u32>);

impl ShadowObjects {
    /// Fails where two IDs have the same dataset.
    pub fn of(shadow: &Shadow) -> Result<Self> {
        let mut ids = HashMap::new();
        for (id, header) in &shadow.logged {
            let other = header.and_then(|header| ids.insert(header, *id));
            if let Some(other) = other {
                return Err(format!("the datasets {other} and {id} are the same object"));
            }
        }
        Ok(ShadowObjects(ids))
    }
}

impl LayoutObjects for ShadowObjects {
    fn copied_link<'n>(&self, name: &'n [u8], _: bool) -> Option<Cow<'n, [u8]>> {
        Some(name.into())
    }

    fn copied_attribute<'n>(&self, name: &'n [u8], _: Owner) -> Option<Cow<'n, [u8]>> {
        Some(name.into())
    }

    fn anchor(&self, dataset: &Id, _: &[CString]) -> Result<Option<Anchor>> {
        let Some(id) = self.0.get(&h5::address(dataset)?) else {
            return Ok(None);
        };
        let Space::Simple { dims, max } = h5::dataset_space(dataset)? else {
            return Err("a logged dataset without a dataspace".into());
        };
        let creation = h5::dataset_creation(dataset)?;
        let is_chunked = h5::storage_class(&creation)? == StorageClass::Chunked;
        let limit = |max: u64| (max != h5::UNLIMITED).then_some(max);
        let filters = h5::filters(&creation)?.into_iter().map(can_be_skipped);
        let filters: Vec<_> = filters.collect();
        Ok(Some(Anchor {
            id: (*id).into(),
            dims,
            max_dims: max.into_iter().map(limit).collect(),
            chunk: is_chunked.then(|| h5::chunk_shape(&creation)),
            filters: (!filters.is_empty()).then_some(Ok(filters)),
        }))
    }
}
