//! ADIOS2 BP4 and BP5 directories (`docs/formats/adios-bp.md`; section numbers in this directory are those of that page). The
//! crate `adios` reads the metadata; this makes records of the blocks.
//!
//! * [`names`] knows the files of a directory.
//! * `check` checks what a snapshot says.
//! * `steps` reads the steps that a dataset needs.
//! * `stored` is the form that the sources of datasets have in a snapshot.
//! * `table` makes records of their blocks, and says who wrote them.

mod check;
pub mod names;
mod steps;
mod stored;
mod table;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use h5logfs_adios::tree::Steps;

use crate::source_file::SourceFile;
use h5logfs_adios::header::SIGNATURE;
use h5logfs_common::error::Result;

/// Whether the file at `relative` is the index of a directory, of whatever version: by its name, and by how it begins (section 1).
pub fn is_index(relative: &Path, file: &SourceFile) -> Result<bool> {
    let mut signature = [0; SIGNATURE.len()];
    let is_named = relative.file_name() == Some(OsStr::new(names::INDEX));
    if !is_named || file.len() < signature.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut signature, 0)?;
    Ok(signature == *SIGNATURE)
}

/// Whether a file is one of the older format BP3 (section 1), which ends with where its indices lie: it is not read.
pub fn is_bp3(file: &SourceFile) -> Result<bool> {
    /// Text, three offsets, and four bytes, of which the last one is the version.
    const END: u64 = 56;
    let Some(begin) = file.len().checked_sub(END) else {
        return Ok(false);
    };
    let mut end = [0; END as usize];
    file.read_exact_at(&mut end, begin)?;
    Ok(end.starts_with(SIGNATURE) && end.last() == Some(&3))
}

/// The number of the source `md.idx`, which is the file of the log.
pub const INDEX: u16 = 0;
/// The number of the source `md.0`.
pub const METADATA: u16 = 1;

/// A directory: its files, and where the elements of its datasets come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// The number of the source `mmd.0`, which BP4 has not.
    pub formats: Option<u16>,
    /// The number of each `data.N`, and that of its source; ascending.
    pub data: Vec<(u32, u16)>,
    /// The dataset with number `n` is the `n`th.
    #[serde(with = "stored")]
    pub datasets: Vec<DatasetSource>,
    /// Of a dataset with steps so many rows are indexed at a time: see [`strip_of`]. 0: all.
    pub strip: u64,
}

/// In bytes: metadata that are read at once, in a millisecond or two. Directories of tests have few.
const STRIP: u64 = if cfg!(debug_assertions) {
    1 << 10
} else {
    1 << 19
};
/// The most strips of a dataset. Each may be kept on disk.
const MOST_STRIPS: u64 = 64;

/// How many steps are read at a time where all of them have so many bytes of metadata. What is asked for decides what is read,
/// but a step alone may have too little for an index of its own.
pub fn strip_of(steps: u64, metadata: u64) -> u64 {
    let strips = metadata.div_ceil(STRIP).clamp(1, MOST_STRIPS);
    steps.div_ceil(strips)
}

/// Where the elements of a dataset come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetSource {
    /// Name of the variable, as the writer gave it.
    pub variable: Arc<str>,
    /// Its steps. With `has_steps` row `n` of the dataset is the `n`th of these. Otherwise it is one, or several that are
    /// flattened (section 3.9).
    pub steps: Arc<Steps>,
    /// The first dimension is that of the steps.
    pub has_steps: bool,
    /// Which block of a local array: its number in the step. Where steps are flattened, the blocks of all steps are counted.
    pub block: Option<u64>,
}
