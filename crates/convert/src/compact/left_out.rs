//! What could not be read, and is not in the file.

use std::fmt;

use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use serde::{Deserialize, Serialize};

/// Chunks that follow each other and cannot be read for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Number of the dataset in the snapshot.
    pub number: usize,
    /// Its path.
    pub dataset: String,
    /// The place of the first one, for a person to read.
    pub first: String,
    /// The place of the last one.
    pub last: String,
    /// How many they are.
    pub count: u64,
    /// Why they cannot be read.
    pub reason: String,
}

impl LeftOut {
    /// What an error says of elements that cannot be read. Gives the error back where it is about something else: work that
    /// was stopped, or has no memory, says nothing about elements.
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

    /// Adds it behind what was left out before.
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
