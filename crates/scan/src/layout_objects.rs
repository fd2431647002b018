//! What of a file is its layout's own, and what stands for the user's objects: all that a walk through
//! the objects has to know of a layout.

use std::ffi::CString;

use crate::hdf5_sys::{self as h5, Id};
use h5logfs_core::snapshot::Filter;

type Result<T> = std::result::Result<T, String>;

/// The largest rank of a dataspace in HDF5.
pub const MOST_DIMS: u64 = 32;

/// One implementation for each layout.
pub trait LayoutObjects {
    /// Under which name a stored name of a link is shown; `None` where it is internal.
    fn present_link<'n>(&self, stored: &'n [u8], in_root: bool) -> Option<&'n [u8]>;

    /// The same for attributes.
    fn present_attribute<'n>(&self, stored: &'n [u8], owner: Owner) -> Option<&'n [u8]>;

    /// What a dataset stands for; `None` where it is a plain one. `names`: of its attributes. Fails where
    /// what they say makes no sense.
    fn anchor(&self, dataset: &Id, names: &[CString]) -> Result<Option<Anchor>>;
}

/// Whose attribute a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Root,
    Anchor,
    Other,
}

/// The user's dataset that an anchor stands for.
#[derive(Debug)]
pub struct Anchor {
    /// The layout's number of it.
    pub id: i64,
    pub dims: Vec<u64>,
    /// `None` is unlimited.
    pub max_dims: Vec<Option<u64>>,
    /// Chunk shape and filters where they were recorded, or why they cannot be believed.
    pub chunk: Option<Result<Vec<u64>>>,
    pub filters: Option<Result<Vec<Filter>>>,
}

/// The values of the attribute `wanted` of a dataset, at most so many, if it has that.
pub fn integers(
    dataset: &Id,
    names: &[CString],
    wanted: &str,
    most: u64,
) -> Result<Option<Vec<i64>>> {
    let found = names.iter().find(|n| n.as_bytes() == wanted.as_bytes());
    let read = |name: &CString| h5::read_integers(&h5::open_attribute(dataset, name)?, most);
    let values = found.map(read).transpose();
    values.map_err(|e| format!("attribute {wanted}: {e}"))
}

/// An extent that an anchor states.
pub fn extent(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| format!("an extent of {value}"))
}
