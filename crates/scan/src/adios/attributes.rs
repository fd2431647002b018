//! Attributes of the objects of a directory.
//!
//! Texts have variable length, except in a file of openPMD. openPMD's own writer stores each text with its exact
//! length, and the readers of its files rely on it.

use std::ffi::CString;

use super::types::Types;
use crate::hdf5_sys::{self as h5, AttributeSpaces, Id, Name};
use h5logfs_adios::model::Value;
use h5logfs_adios::tree::{Content, Object, Steps};
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// The largest attribute, in bytes, that fits into the header of its object. A message has less than 64 KiB.
const LARGEST: u64 = 60_000;
/// The largest number of attributes that a header holds as a list. More attributes get an index.
const MOST: usize = 32;
/// Bytes that an attribute holds for one variable-length text.
const TEXT: u64 = 16;

/// The most bytes of fixed-length texts in one attribute.
const MOST_FIXED: usize = 1 << 20;

/// The attribute that labels the dimensions of a dataset.
const LABELS: &str = "DIMENSION_LABELS";
/// The attribute of the root that marks a file of openPMD (section 8).
const OPENPMD: &str = "openPMD";
/// The label of the dimension of steps.
const STEP: &str = "step";

/// Writes attributes.
pub(super) struct Attributes {
    spaces: AttributeSpaces,
    steps: Id,
    booleans: Id,
    has_fixed_texts: bool,
}

impl Attributes {
    /// Makes a writer for the objects below `root`.
    pub fn new(root: &Object) -> Result<Self> {
        Ok(Attributes {
            spaces: AttributeSpaces::new()?,
            steps: h5::integer_type(8, true, false)?,
            booleans: boolean_type()?,
            has_fixed_texts: root.attributes.iter().any(|(name, _)| name == OPENPMD),
        })
    }

    /// Writes one attribute of a tree.
    pub fn write(
        &mut self,
        object: &Id,
        name: &str,
        content: &Content,
        types: &mut Types,
    ) -> Result<()> {
        let value = match content {
            Content::Steps(steps) => return self.steps(object, name, steps),
            Content::Boolean(value) => return self.boolean(object, name, *value),
            Content::Value(value) => &**value,
        };
        match value {
            Value::Text(text) => self.text(object, name, text),
            Value::Texts(texts) => {
                let texts: Vec<CString> = texts.iter().map(|text| c_text(text)).collect();
                let space = self.spaces.list(texts.len() as u64)?;
                self.texts(object, name, &space, &texts)
            }
            Value::Numbers {
                ty,
                is_single,
                bytes,
            } => {
                let count = bytes.len() as u64 / ty.size().max(1);
                let space = if *is_single {
                    self.spaces.scalar.clone()
                } else {
                    self.spaces.list(count)?
                };
                h5::write_plain_attribute(object, name_of(name), &types.get(ty)?, &space, bytes)
            }
        }
    }

    pub fn text(&mut self, object: &Id, name: &str, text: &str) -> Result<()> {
        self.texts(object, name, &self.spaces.scalar, &[c_text(text)])
    }

    fn texts(&self, object: &Id, name: &str, space: &Id, texts: &[CString]) -> Result<()> {
        let longest = texts
            .iter()
            .map(|text| text.as_bytes_with_nul().len())
            .max();
        let size = longest.unwrap_or(1);
        // All texts of the attribute get the length of its longest text.
        let bytes = size.checked_mul(texts.len());
        let bytes = bytes.filter(|bytes| self.has_fixed_texts && *bytes <= MOST_FIXED);
        let Some(bytes) = bytes else {
            return h5::write_texts(object, name_of(name), space, texts);
        };
        let is_ascii = texts.iter().all(|text| text.to_bytes().is_ascii());
        let mut bytes = vec![0; bytes];
        for (text, place) in texts.iter().zip(bytes.chunks_exact_mut(size)) {
            let text = text.to_bytes();
            place[..text.len()].copy_from_slice(text);
        }
        let datatype = h5::terminated_text_type(u32::try_from(size)?, !is_ascii)?;
        h5::write_plain_attribute(object, name_of(name), &datatype, space, &bytes)
    }

    fn boolean(&self, object: &Id, name: &str, value: bool) -> Result<()> {
        let (name, space) = (name_of(name), &self.spaces.scalar);
        h5::write_plain_attribute(object, name, &self.booleans, space, &[value.into()])
    }

    /// Labels the first dimension of a dataset of rank `rank`.
    pub fn label_steps(&mut self, object: &Id, rank: usize) -> Result<()> {
        let mut labels = vec![CString::default(); rank];
        if let Some(first) = labels.first_mut() {
            *first = c_text(STEP);
        }
        let space = self.spaces.list(rank as u64)?;
        h5::write_texts(object, Name::ascii(LABELS), &space, &labels)
    }

    fn steps(&mut self, object: &Id, name: &str, steps: &Steps) -> Result<()> {
        let bytes: Vec<u8> = steps.iter().flat_map(u64::to_le_bytes).collect();
        let space = self.spaces.list(steps.len())?;
        h5::write_plain_attribute(object, name_of(name), &self.steps, &space, &bytes)
    }
}

/// The type of booleans in HDF5 files of openPMD. Its reader takes an enumeration for booleans only with the members in
/// this order.
fn boolean_type() -> Result<Id> {
    let members = [("TRUE", 1), ("FALSE", 0)];
    let members = members.map(|(name, value)| (name.to_owned(), vec![value]));
    h5::enumeration_type(&h5::integer_type(1, true, false)?, &members)
}

/// Whether the attributes of an object must be stored outside its header.
pub(super) fn are_outside(object: &Object) -> bool {
    let size = |(name, content): &(String, Content)| {
        let values = match content {
            Content::Steps(steps) => 8 * steps.len(),
            Content::Value(value) => match &**value {
                Value::Text(text) => TEXT.max(text.len() as u64),
                Value::Texts(texts) => {
                    let longest = texts.iter().map(|text| text.len() as u64).max();
                    TEXT.max(longest.unwrap_or(0))
                        .saturating_mul(texts.len() as u64)
                }
                Value::Numbers { bytes, .. } => bytes.len() as u64,
            },
            Content::Boolean(_) => 1,
        };
        name.len() as u64 + values
    };
    let attributes = &object.attributes;
    attributes.len() > MOST || attributes.iter().any(|attribute| size(attribute) > LARGEST)
}

/// A text that ends at its first zero byte. Zeros at the end of `text` are dropped. Other zeros become U+FFFD.
pub(super) fn c_text(text: &str) -> CString {
    let text = text.trim_end_matches('\0').replace('\0', "\u{fffd}");
    CString::new(text).unwrap_or_default()
}

pub(super) fn name_of(name: &str) -> Name<'_> {
    Name {
        bytes: name.as_bytes(),
        utf8: !name.is_ascii(),
    }
}
