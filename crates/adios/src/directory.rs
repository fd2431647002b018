//! The steps of one directory, of either version.
//!
//! [`Directory::open`] walks through `md.idx` and keeps where the metadata of each step lie; [`Directory::step`] reads those of
//! one. So what is asked for decides what is read.

use crate::model::Step;
use crate::{Bytes, Result};

/// The metadata files of a directory.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// `md.idx`.
    pub index: &'a dyn Bytes,
    /// `md.0`.
    pub metadata: &'a dyn Bytes,
    /// `mmd.0`, which BP4 has not.
    pub formats: Option<&'a dyn Bytes>,
}

/// Where the metadata of all steps of one directory lie.
#[derive(Debug)]
pub struct Directory {}

impl Directory {
    /// Reads where each step lies. Steps that are not complete yet, or no more, are not there.
    pub fn open(_files: Files<'_>) -> Result<Self> {
        Ok(Directory {})
    }

    /// Number of complete steps.
    pub fn steps(&self) -> usize {
        0
    }

    /// Reads the metadata of one step. `is_asked` chooses variables by name: others cost as little as can be.
    pub fn step(
        &self,
        _files: Files<'_>,
        _number: usize,
        _is_asked: &dyn Fn(&str) -> bool,
    ) -> Result<Step> {
        Ok(Step::default())
    }
}
