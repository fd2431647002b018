//! netCDF files that SCORPIO wrote as ADIOS2 directories. Section numbers in this module refer to
//! `docs/formats/scorpio-bp.md`. The crate `adios` reads the metadata; this module turns frames and puts into records.
//!
//! * `lists` reads the lists about a variable.
//! * `maps` reads decomposition maps, and makes selections of them.
//! * `boxes` turns the places of a map into boxes.
//! * `frames` and `puts` make the records of a variable.
//! * `table` is the layout.

mod boxes;
mod frames;
mod lists;
mod maps;
mod puts;
mod table;

pub use maps::MapFacts;
pub use table::default_fill;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::adios::{Parts, Steps};
use crate::numbers::{NumberConversion, NumberFormat, NumberType};
use h5logfs_adios::Type;
use h5logfs_adios::scorpio::NcType;
use h5logfs_common::fault::Fault;

/// A directory: its files, and the variables of its netCDF file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// The files of the directory.
    pub parts: Parts,
    /// The ranks of each group, the root first.
    pub groups: Vec<Vec<u32>>,
    /// The decompositions by ID; ascending.
    pub maps: Vec<MapSource>,
    /// Variables by number. A dataset has the number of its variable.
    pub variables: Vec<VariableSource>,
}

/// A decomposition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapSource {
    /// Its ID.
    pub id: i64,
    /// The shape over which its places count.
    pub dims: Vec<u64>,
    /// The step that has its map.
    pub step: u64,
}

/// The source of a variable's elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableSource {
    /// Name of the variable in netCDF.
    pub name: Arc<str>,
    /// Its type.
    pub ty: NcType,
    /// Its first dimension is unlimited.
    pub has_records: bool,
    /// The fill value, in the byte order of the directory, in the first bytes.
    pub fill: [u8; 8],
    /// The steps with elements of it.
    pub steps: Arc<Steps>,
    /// How it was written.
    pub written: Written,
}

/// How a variable was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Written {
    /// In frames, by all processes.
    Frames,
    /// By one process. The number of its type in memory (section 3); `None` where none is known.
    Puts(Option<i64>),
}

impl VariableSource {
    /// The conversion of numbers that were stored as `ty`. Fails with the reason where they are none.
    fn conversion(&self, ty: &Type, big_endian: bool) -> Result<NumberConversion, String> {
        let from = number_of(ty).ok_or_else(|| format!("it was written as {ty:?}"))?;
        let format = |kind| NumberFormat { kind, big_endian };
        Ok(NumberConversion {
            from: format(from),
            to: format(number_type(self.ty)),
            fill: self.fill,
        })
    }
}

impl Tables {
    /// Fails with the reason where the parts contradict each other. `sources` is the number of source files.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        self.parts.check(sources)?;
        if !self.maps.is_sorted_by(|a, b| a.id < b.id) {
            return Err("decompositions that are not in order".into());
        }
        Ok(())
    }

    fn map(&self, id: i64) -> Option<(usize, &MapSource)> {
        let at = self.maps.binary_search_by_key(&id, |map| map.id).ok()?;
        Some((at, &self.maps[at]))
    }
}

/// The type of numbers of a netCDF type. A character is a signed byte, as in the file.
pub fn number_type(ty: NcType) -> NumberType {
    match ty {
        NcType::Byte | NcType::Char => NumberType::I8,
        NcType::Short => NumberType::I16,
        NcType::Int => NumberType::I32,
        NcType::Float => NumberType::F32,
        NcType::Double => NumberType::F64,
        NcType::UByte => NumberType::U8,
        NcType::UShort => NumberType::U16,
        NcType::UInt => NumberType::U32,
        NcType::Int64 => NumberType::I64,
        NcType::UInt64 => NumberType::U64,
    }
}

/// The type of numbers of a type of ADIOS2; `None` where its elements are no numbers of C.
fn number_of(ty: &Type) -> Option<NumberType> {
    NcType::of_attribute(ty).map(number_type)
}
