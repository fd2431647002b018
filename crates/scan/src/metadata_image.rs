//! The objects of a log that a program writes through HDF5 itself (`docs/formats/journal.md`, section 2.5). All objects
//! have their natural form. The journal lists the logged datasets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::CString;

use super::layout_objects::{LayoutObjects, Owner, StubDataset};
use crate::hdf5_sys::{self as h5, Id, Space, StorageClass};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::journal::metadata_image::MetadataImage;

type Result<T> = std::result::Result<T, Fault>;

/// The logged datasets of a metadata image: their IDs, by the addresses of their object headers.
#[derive(Debug)]
pub struct LoggedObjects(HashMap<u64, u32>);

impl LoggedObjects {
    /// Collects the logged datasets. Fails if two IDs name one dataset.
    pub fn of(metadata_image: &MetadataImage) -> Result<Self> {
        let mut ids = HashMap::new();
        for (id, header) in &metadata_image.logged {
            let other = header.and_then(|header| ids.insert(header, *id));
            if let Some(other) = other {
                return Err(format!("the datasets {other} and {id} are the same object").into());
            }
        }
        Ok(LoggedObjects(ids))
    }

    /// The ID of the dataset whose object header is at `header`, if the dataset is logged.
    pub fn id(&self, header: u64) -> Option<u32> {
        self.0.get(&header).copied()
    }
}

/// The limits of an extent, from those of a dataspace.
pub fn limits(max: &[u64]) -> Vec<Option<u64>> {
    let limit = |max: &u64| (*max != h5::UNLIMITED).then_some(*max);
    max.iter().map(limit).collect()
}

impl LayoutObjects for LoggedObjects {
    fn copied_link<'n>(&self, name: &'n [u8], _: bool) -> Option<Cow<'n, [u8]>> {
        Some(name.into())
    }

    fn copied_attribute<'n>(&self, name: &'n [u8], _: Owner) -> Option<Cow<'n, [u8]>> {
        Some(name.into())
    }

    fn stub_dataset(&self, dataset: &Id, _: &[CString]) -> Result<Option<StubDataset>> {
        let Some(id) = self.id(h5::address(dataset)?) else {
            return Ok(None);
        };
        let Space::Simple { dims, max } = h5::dataset_space(dataset)? else {
            return Err("a logged dataset without a dataspace".into());
        };
        let creation = h5::dataset_creation(dataset)?;
        let is_chunked = h5::storage_class(&creation)? == StorageClass::Chunked;
        let filters = h5::filters(&creation)?.into_iter().map(Filter::skippable);
        let filters: Vec<_> = filters.collect();
        Ok(Some(StubDataset {
            id: id.into(),
            dims,
            max_dims: limits(&max),
            chunk: is_chunked.then(|| h5::chunk_shape(&creation)),
            filters: (!filters.is_empty()).then_some(Ok(filters)),
        }))
    }
}
