//! netCDF classic files with logs of PnetCDF's burst-buffering driver (`docs/formats/pnetcdf-burst-buffer.md`, whose
//! section numbers this directory cites).
//!
//! * [`header`] reads the header of the netCDF file.
//! * [`names`] parses the names of log files.
//! * [`metadata`] reads the header of a metadata log, counts its valid entries, and walks through them.
//! * [`channels`] finds the logs of several processes in one pair of files.
//! * `entry` reads and checks an entry.
//! * `table` holds the positions of the entries of each variable.
//! * `decode` turns the entries of a variable into records.
//! * `check` checks a snapshot's description of the file and its logs.

pub mod channels;
mod check;
mod decode;
mod entry;
pub mod header;
pub mod metadata;
pub mod names;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::numbers::NumberType;
use crate::source_file::SourceFile;
use h5logfs_common::error::Result;
pub use table::summarize;

/// Whether a file begins like a netCDF classic file (section 7).
pub fn has_magic(file: &SourceFile) -> Result<bool> {
    let mut magic = [0; 4];
    if file.len() < magic.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut magic, 0)?;
    Ok(matches!(magic, [b'C', b'D', b'F', 1 | 2 | 5]))
}

/// Whether a file begins like the files of a log.
pub fn has_log_magic(file: &SourceFile) -> Result<bool> {
    let mut magic = [0; metadata::MAGIC.len()];
    if file.len() < magic.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut magic, 0)?;
    Ok(magic == *metadata::MAGIC)
}

/// A netCDF file and its logs. Source 0 is the netCDF file, extended with zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Version of the netCDF file: 1, 2 or 5, for CDF-1, CDF-2 or CDF-5.
    pub version: u8,
    /// Bytes from one record of all record variables to the next.
    pub record_size: u64,
    /// Variables in the order of their numbers in the header.
    pub variables: Vec<Variable>,
    /// Logs in the order in which they apply.
    pub logs: Vec<ProcessLog>,
}

/// A variable, with the properties that reading needs. Its dataset has the same number, and the same type in
/// little-endian form. Text becomes unsigned bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Type of its values.
    pub kind: NumberType,
    /// The type of the variable is `char`.
    pub is_text: bool,
    /// The first dimension is the record dimension.
    pub is_record: bool,
    /// Extent; 0 along the record dimension.
    pub dims: Vec<u64>,
    /// Offset of the data, or of its first record, in the netCDF file.
    pub begin: u64,
    /// Fill value, little-endian, in the first bytes. It replaces values that the type cannot represent.
    pub fill: [u8; 8],
}

/// The log of one process: one channel of its two files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLog {
    /// Number of the source of the metadata log.
    pub metadata: u16,
    /// Number of the source of the data log.
    pub data: Option<u16>,
    /// The number in the name of the files (1.1).
    pub generation: u32,
    /// The rank of the writer.
    pub rank: u64,
}
