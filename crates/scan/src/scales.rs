//! The attributes of dimension scales (HDF5 Dimension Scale Specification 1.0).
//!
//! libhdf5's own functions for scales need the dataspaces of the datasets. The stub datasets of a log have none.

use std::ffi::CString;

use crate::hdf5_sys::{self as h5, Id, Name, Space};
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// Size of an item of `REFERENCE_LIST`: a reference, a dimension, and the padding of a C structure.
const USE_SIZE: u32 = 16;

/// The attribute that makes a dataset a scale, and its value.
const CLASS: (&str, &[u8]) = ("CLASS", b"DIMENSION_SCALE");

/// Whether a dataset with these attributes is a scale.
pub fn is_scale(dataset: &Id, attributes: &[CString]) -> Result<bool> {
    let (name, text) = CLASS;
    let mut named = attributes
        .iter()
        .filter(|own| own.as_bytes() == name.as_bytes());
    let Some(name) = named.next() else {
        return Ok(false);
    };
    let values = h5::read_attribute(&h5::open_attribute(dataset, name)?)?;
    let found = values.bytes().strip_prefix(text);
    Ok(found.is_some_and(|rest| rest.iter().all(|byte| *byte == 0)))
}

/// One use of a scale, by a dimension of a dataset.
#[derive(Debug, Clone, Copy)]
pub struct ScaleUse {
    /// Address of the dataset.
    pub dataset: u64,
    pub dimension: u32,
}

/// Writes attributes of scales and of the datasets that use them.
pub struct ScaleAttributes {
    scalar: Id,
    /// The type of an item of `DIMENSION_LIST`: a sequence of references to objects.
    dimension_list: Id,
    /// The type of an item of `REFERENCE_LIST`: a reference to an object, and a dimension of it.
    reference_list: Id,
}

impl ScaleAttributes {
    pub fn new() -> Result<Self> {
        let reference = h5::object_reference_type()?;
        let members = [
            ("dataset", 0, reference.clone()),
            ("dimension", 8, h5::integer_type(4, true, false)?),
        ];
        Ok(ScaleAttributes {
            scalar: Space::scalar().create()?,
            reference_list: h5::compound_type(USE_SIZE, &members)?,
            dimension_list: h5::sequence_type(&reference)?,
        })
    }

    /// Makes a dataset a scale. An empty `name` means that the scale has no name.
    pub fn make_scale(&self, object: &Id, name: &[u8]) -> Result<()> {
        let (class, text) = CLASS;
        self.text(object, class, text)?;
        if name.is_empty() {
            return Ok(());
        }
        self.text(object, "NAME", name)
    }

    /// Writes a text that ends with a zero byte, as readers expect.
    fn text(&self, object: &Id, name: &str, text: &[u8]) -> Result<()> {
        let text = [text, b"\0"].concat();
        let size = u32::try_from(text.len())?;
        let utf8 = !text.is_ascii() && std::str::from_utf8(&text).is_ok();
        let datatype = h5::terminated_text_type(size, utf8)?;
        h5::write_plain_attribute(object, Name::ascii(name), &datatype, &self.scalar, &text)
    }

    /// Writes the addresses of the scales of each dimension of a dataset.
    pub fn dimension_list(&self, object: &Id, scales: &[Vec<u64>]) -> Result<()> {
        let bytes = |of: &Vec<u64>| of.iter().flat_map(|a| a.to_ne_bytes()).collect();
        let sequences: Vec<Vec<u8>> = scales.iter().map(bytes).collect();
        let items: Vec<&[u8]> = sequences.iter().map(Vec::as_slice).collect();
        let space = Space::fixed(&[items.len() as u64]).create()?;
        let name = Name::ascii("DIMENSION_LIST");
        h5::write_sequences(object, name, &self.dimension_list, &space, &items)
    }

    /// Writes the list of datasets that use a scale.
    pub fn reference_list(&self, object: &Id, uses: &[ScaleUse]) -> Result<()> {
        let mut bytes = Vec::with_capacity(uses.len() * USE_SIZE as usize);
        for one in uses {
            bytes.extend(one.dataset.to_ne_bytes());
            bytes.extend(one.dimension.to_le_bytes());
            bytes.extend([0; 4]);
        }
        let space = Space::fixed(&[uses.len() as u64]).create()?;
        let name = Name::ascii("REFERENCE_LIST");
        h5::write_plain_attribute(object, name, &self.reference_list, &space, &bytes)
    }
}
