//! ADIOS2 BP4 and BP5 directories. Section numbers in this module refer to `docs/formats/adios-bp.md`. The crate
//! `adios` reads the metadata; this module turns blocks into records.
//!
//! * [`names`] has the names of the files of a directory.
//! * `check` checks a snapshot's description.
//! * `others` knows files of ADIOS2 that are no logs.
//! * `parts` finds the bytes of blocks in the files of a directory.
//! * `steps` reads the steps that a dataset needs.
//! * `stored` is the form of datasets' sources in a snapshot.
//! * `tar` finds the members of an archive.
//! * `table` turns blocks into records, and finds the rank that wrote each of them.

mod check;
pub mod names;
mod others;
mod parts;
pub(crate) mod steps;
mod stored;
mod table;
mod tar;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use h5logfs_adios::tree::Steps;
pub use others::why_no_log;

use crate::source_file::SourceFile;
use h5logfs_adios::header::SIGNATURE;
use h5logfs_common::error::Result;

/// Whether the file at `relative` is the index of a directory of any version, judged by name and first bytes (section
/// 1).
pub fn is_index(relative: &Path, file: &SourceFile) -> Result<bool> {
    let mut signature = [0; SIGNATURE.len()];
    let is_named = relative.file_name() == Some(OsStr::new(names::INDEX));
    if !is_named || file.len() < signature.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut signature, 0)?;
    Ok(signature == *SIGNATURE)
}

/// The source number of `md.idx`, which is the file of the log.
pub const INDEX: u16 = 0;
/// The source number of `md.0`.
pub const METADATA: u16 = 1;

/// The files of a directory besides `md.idx` and `md.0`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Parts {
    /// The source number of `mmd.0`; BP4 has none.
    pub formats: Option<u16>,
    /// Number of each `data.N`, and of its source; ascending.
    pub data: Vec<(u32, u16)>,
    /// Number of each `data.N` that the scan could not open, and the reason, which goes on after the name of the file.
    pub unopened: BTreeMap<u32, String>,
}

/// A directory: its files, and the sources of its datasets' elements.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// The files of the directory.
    pub parts: Parts,
    /// Datasets by number.
    #[serde(with = "stored")]
    pub datasets: Vec<DatasetSource>,
    /// Number of rows indexed at a time in a dataset with steps: see [`strip_of`]. 0: all.
    pub strip: u64,
}

/// Bytes of metadata that are read at once, in a millisecond or two. The value is small in tests.
const STRIP: u64 = if cfg!(debug_assertions) {
    1 << 10
} else {
    1 << 19
};
/// The most strips of a dataset. Each may be kept on disk.
const MOST_STRIPS: u64 = 64;

/// Number of steps read at a time, where all steps together have `metadata` bytes of metadata. A request reads only
/// the strips that it needs, but a single step may be too small for an index of its own.
pub fn strip_of(steps: u64, metadata: u64) -> u64 {
    let strips = metadata.div_ceil(STRIP).clamp(1, MOST_STRIPS);
    steps.div_ceil(strips)
}

/// The source of a dataset's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetSource {
    /// Name of the variable, as the writer gave it.
    pub variable: Arc<str>,
    /// Steps of the dataset. With `has_steps`, row `n` of the dataset is step `n` of this list. Otherwise there is
    /// one step, or several that are flattened (section 3.9).
    pub steps: Arc<Steps>,
    /// The first dimension counts steps.
    pub has_steps: bool,
    /// Index of the block of a local array within its step. Where steps are flattened, it counts through all steps.
    pub block: Option<u64>,
}
