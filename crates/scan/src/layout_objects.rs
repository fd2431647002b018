//! The trait by which a walk through an HDF5 file learns about a layout: the objects that belong to the layout, and
//! those that stand for datasets of the user.

use std::borrow::Cow;
use std::ffi::CString;

use crate::hdf5_sys::{self as h5, Id};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::DatasetHeader;
use h5logfs_hdf5_format::filters::Filter;

type Result<T> = std::result::Result<T, Fault>;

/// A form in which an HDF5 file stores the objects of a log.
pub trait LayoutObjects {
    /// The name of the copy of a link; `None` if the link belongs to the layout.
    fn copied_link<'n>(&self, name: &'n [u8], in_root: bool) -> Option<Cow<'n, [u8]>>;

    /// The name of the copy of an attribute; `None` if the attribute belongs to the layout.
    fn copied_attribute<'n>(&self, name: &'n [u8], owner: Owner) -> Option<Cow<'n, [u8]>>;

    /// The user's dataset that a stub dataset stands for; `None` for a plain dataset. `attributes` are the names of its
    /// attributes. Fails if their values are invalid.
    fn stub_dataset(&self, dataset: &Id, attributes: &[CString]) -> Result<Option<StubDataset>>;

    /// Does the work of [`stub_dataset`](Self::stub_dataset) for a dataset that libhdf5 has not opened. `None` also if
    /// libhdf5 has to open it.
    fn stub_dataset_in(&self, _dataset: &DatasetHeader) -> Option<StubDataset> {
        None
    }
}

/// The kind of object that owns an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Root,
    StubDataset,
    Other,
}

/// The user's dataset that a stub dataset stands for.
#[derive(Debug)]
pub struct StubDataset {
    /// The number by which the log knows the dataset.
    pub id: i64,
    pub dims: Vec<u64>,
    /// `None` is unlimited.
    pub max_dims: Vec<Option<u64>>,
    /// The recorded chunk shape, or why it is invalid; `None` if there is none.
    pub chunk: Option<Result<Vec<u64>>>,
    /// The recorded filters, or why they are invalid; `None` if there are none.
    pub filters: Option<Result<Vec<Filter>>>,
}

impl StubDataset {
    /// Whether the recorded chunk shape and filters are valid.
    pub fn is_sound(&self) -> bool {
        !matches!(self.chunk, Some(Err(_))) && !matches!(self.filters, Some(Err(_)))
    }
}

/// Reads at most `most` integers from the attribute `wanted` of a dataset; `None` if it has no such attribute.
pub fn integers(
    dataset: &Id,
    attributes: &[CString],
    wanted: &str,
    most: usize,
) -> Result<Option<Vec<i64>>> {
    let mut names = attributes.iter();
    let found = names.find(|n| n.as_bytes() == wanted.as_bytes());
    let read = |name: &CString| h5::read_integers(&h5::open_attribute(dataset, name)?, most);
    let values = found.map(read).transpose();
    values.map_err(|e| e.at(format_args!("attribute {wanted}")))
}

/// Checks an extent that a stub dataset records.
pub fn extent(value: i64) -> Result<u64> {
    Ok(u64::try_from(value).map_err(|_| format!("an extent of {value}"))?)
}
