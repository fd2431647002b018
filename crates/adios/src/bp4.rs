//! Metadata of BP4 (section 4).

use crate::directory::Files;
use crate::model::Step;
use crate::{Bytes, Result};

/// Where the metadata of all steps lie.
#[derive(Debug)]
pub struct Index {}

impl Index {
    /// Refuses: nothing reads it yet.
    pub fn open(_index: &dyn Bytes) -> Result<Self> {
        Err("BP4 cannot be read yet".into())
    }

    /// Ends the list with the last step whose metadata lie in the first `len` bytes of `md.0`.
    pub fn limit(&mut self, _len: u64) {}

    /// Number of complete steps.
    pub fn steps(&self) -> usize {
        0
    }

    /// Why the list of steps ends, where it is not the end of `md.idx`.
    pub fn problems(&self) -> &[String] {
        &[]
    }

    /// The most writers of a step.
    pub fn writers(&self, _metadata: &dyn Bytes) -> Result<u64> {
        Ok(0)
    }
}

/// Reads the metadata of one step. `is_asked` chooses variables by name.
pub fn step(
    _index: &Index,
    _files: Files<'_>,
    _number: usize,
    _is_asked: &dyn Fn(&str) -> bool,
) -> Result<Step> {
    Err("BP4 cannot be read yet".into())
}
