//! Data that could not be read, and is missing from the file.

use std::fmt;

use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use serde::{Deserialize, Serialize};

/// Consecutive chunks that cannot be read for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Number of the dataset in the snapshot.
    pub number: usize,
    /// Path of the dataset.
    pub dataset: String,
    /// Place of the first chunk, in a form for people.
    pub first: String,
    /// Place of the last chunk.
    pub last: String,
    /// Number of chunks.
    pub count: u64,
    /// The reason why the chunks cannot be read.
    pub reason: String,
}

impl LeftOut {
    /// The chunk that an error concerns. Returns the error where it concerns something else: stopped work, or lack of
    /// memory.
    pub fn of(number: usize, error: Error) -> Result<Self, Error> {
        match error {
            Error::BadData {
                dataset,
                place,
                fault: fault @ (Fault::Damage(_) | Fault::Io { .. }),
                ..
            } => Ok(LeftOut {
                number,
                dataset,
                last: place.clone(),
                first: place,
                count: 1,
                reason: fault.to_string(),
            }),
            other => Err(other),
        }
    }

    /// Appends to the list, or extends its last entry.
    pub fn add_to(self, list: &mut Vec<LeftOut>) {
        match list.last_mut() {
            Some(before) if (before.number, &before.reason) == (self.number, &self.reason) => {
                before.count += self.count;
                before.last = self.last;
            }
            _ => list.push(self),
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dataset {}: {}", self.dataset, self.first)?;
        if self.count > 1 {
            write!(f, " to {} ({} in all)", self.last, self.count)?;
        }
        write!(f, ": {}", self.reason)
    }
}
