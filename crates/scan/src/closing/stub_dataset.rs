//! The attributes that make a dataset a stub dataset (`docs/formats/logvol.md`, section 2, and
//! `docs/formats/logvol-extensions.md`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::hdf5_sys::{self as h5, Id, Name, PlainForm, Space};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::logvol::names;

type Result<T> = std::result::Result<T, Fault>;

/// The values that a stub dataset records about its dataset.
pub(super) struct StubNumbers<'a> {
    pub id: i64,
    pub dims: &'a [u64],
    /// `None` is unlimited.
    pub max_dims: &'a [Option<u64>],
    pub chunk: Option<&'a [u64]>,
    pub filters: &'a [Filter],
}

/// The dataspace of a stub dataset: null. A scale is the exception, because netCDF-C crashes on a dimension scale
/// without dimensions. Its stub dataset has the rank of the scale, and no element.
pub(super) fn stub(is_scale: bool, rank: usize) -> Space {
    if is_scale {
        Space::fixed(&vec![0; rank.max(1)])
    } else {
        Space::Null
    }
}

/// Writes the attributes of stub datasets. Thousands of stub datasets share their types and spaces.
pub(super) struct StubWriter {
    int64: Lists,
    int32: Lists,
    uint32: Lists,
}

/// One-dimensional attributes of one type, by length.
struct Lists {
    datatype: Id,
    forms: HashMap<u64, PlainForm>,
}

impl StubWriter {
    pub fn new() -> Result<Self> {
        let lists = |size, signed| {
            Ok::<_, String>(Lists {
                datatype: h5::integer_type(size, signed, false)?,
                forms: HashMap::new(),
            })
        };
        Ok(StubWriter {
            int64: lists(8, true)?,
            int32: lists(4, true)?,
            uint32: lists(4, false)?,
        })
    }

    pub fn write(&mut self, object: &Id, numbers: &StubNumbers<'_>) -> Result<()> {
        let int64 = &mut self.int64;
        int64.write(object, names::DIMS, numbers.dims, u64::to_le_bytes)?;
        let max = numbers.max_dims.iter().map(|m| m.unwrap_or(u64::MAX));
        let max: Vec<u64> = max.collect();
        int64.write(object, names::MAX_DIMS, &max, u64::to_le_bytes)?;
        let id = i32::try_from(numbers.id)?;
        self.int32
            .write(object, names::ID, &[id], i32::to_le_bytes)?;
        if let Some(chunk) = numbers.chunk {
            int64.write(object, names::CHUNK, chunk, u64::to_le_bytes)?;
        }
        if numbers.filters.is_empty() {
            return Ok(());
        }
        let pipeline = numbers.filters.iter().flat_map(|f| {
            let head = [f.id as u32, f.flags, f.values.len() as u32];
            head.into_iter().chain(f.values.iter().copied())
        });
        let pipeline: Vec<u32> = pipeline.collect();
        self.uint32
            .write(object, names::FILTERS, &pipeline, u32::to_le_bytes)
    }
}

impl Lists {
    fn write<T: Copy, const N: usize>(
        &mut self,
        object: &Id,
        name: &str,
        values: &[T],
        to_bytes: impl Fn(T) -> [u8; N],
    ) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| to_bytes(*value)).collect();
        let form = match self.forms.entry(values.len() as u64) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let space = Space::fixed(&[values.len() as u64]).create()?;
                place.insert(PlainForm::new(&self.datatype, &space)?)
            }
        };
        form.write(object, Name::ascii(name), &bytes)
    }
}
