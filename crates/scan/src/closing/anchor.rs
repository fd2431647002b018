//! The attributes that make a dataset an anchor (`docs/formats/logvol.md`, section 2, and
//! `docs/formats/logvol-extensions.md`).

use std::collections::HashMap;

use crate::hdf5_sys::{self as h5, Id, Name, Space};
use h5logfs_core::filters::Filter;
use h5logfs_core::log::logvol::names;

type Result<T> = std::result::Result<T, String>;

/// What an anchor says of its dataset.
pub(super) struct AnchorNumbers<'a> {
    pub id: i64,
    pub dims: &'a [u64],
    /// `None` is unlimited.
    pub max_dims: &'a [Option<u64>],
    pub chunk: Option<&'a [u64]>,
    pub filters: &'a [Filter],
}

/// Writes these attributes. Thousands of anchors share their types and spaces.
pub(super) struct AnchorWriter {
    int64: Id,
    int32: Id,
    uint32: Id,
    /// One-dimensional spaces, by extent.
    spaces: HashMap<u64, Id>,
}

impl AnchorWriter {
    pub fn new() -> Result<Self> {
        Ok(AnchorWriter {
            int64: h5::integer_type(8, true, false)?,
            int32: h5::integer_type(4, true, false)?,
            uint32: h5::integer_type(4, false, false)?,
            spaces: HashMap::new(),
        })
    }

    pub fn write(&mut self, object: &Id, numbers: &AnchorNumbers<'_>) -> Result<()> {
        let (int64, int32) = (self.int64.clone(), self.int32.clone());
        self.list(object, names::DIMS, &int64, &to_bytes(numbers.dims))?;
        let max = numbers.max_dims.iter().map(|m| m.unwrap_or(u64::MAX));
        let max: Vec<u64> = max.collect();
        self.list(object, names::MAX_DIMS, &int64, &to_bytes(&max))?;
        let id = i32::try_from(numbers.id).map_err(|e| e.to_string())?;
        self.list(object, names::ID, &int32, &id.to_le_bytes())?;
        if let Some(chunk) = numbers.chunk {
            self.list(object, names::CHUNK, &int64, &to_bytes(chunk))?;
        }
        if numbers.filters.is_empty() {
            return Ok(());
        }
        let pipeline = numbers.filters.iter().flat_map(|f| {
            let head = [f.id as u32, f.flags, f.values.len() as u32];
            head.into_iter().chain(f.values.iter().copied())
        });
        let pipeline: Vec<u8> = pipeline.flat_map(u32::to_le_bytes).collect();
        let uint32 = self.uint32.clone();
        self.list(object, names::FILTERS, &uint32, &pipeline)
    }

    fn list(&mut self, object: &Id, name: &str, datatype: &Id, bytes: &[u8]) -> Result<()> {
        let count = bytes.len() / h5::type_size(datatype)?;
        let space = self.space(count as u64)?;
        h5::write_plain_attribute(object, Name::ascii(name), datatype, &space, bytes)
    }

    /// A one-dimensional space.
    pub fn space(&mut self, count: u64) -> Result<Id> {
        if let Some(known) = self.spaces.get(&count) {
            return Ok(known.clone());
        }
        let new = Space::fixed(&[count]).create()?;
        self.spaces.insert(count, new.clone());
        Ok(new)
    }
}

fn to_bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}
