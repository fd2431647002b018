//! The result of a scan about the flushes of a log with seals.

use serde::{Deserialize, Serialize};

use crate::front::FRONT;
use crate::window::Piece;
use h5logfs_common::fault::Fault;

/// The flushes of an unclosed log up to one that this node has seen in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFlush {
    /// Number of that flush.
    pub flush: u64,
    /// Sum over the ends and tags of these flushes, which distinguishes them from others with the same numbers.
    pub sum: u64,
}

/// The verified part of a log with seals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The last flush shown; `None` without a journal.
    pub last: Option<KnownFlush>,
    /// Whether the scan began after the known flush of its request.
    pub goes_on: bool,
    /// The data files.
    pub files: Vec<SealedFile>,
}

/// A data file of a log with seals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFile {
    /// Index of the file among the sources.
    pub source: u16,
    /// Ends of flushes: a selection that includes the last one.
    pub ends: Vec<u64>,
    /// The scan has verified all data from this offset on.
    pub seen_from: u64,
    /// The table of a closed log, which has copies of the entries.
    pub table: Option<Piece>,
}

/// Least distance of the ends kept. A short walk finds the extents between two of them.
const APART: u64 = 1 << 20;

impl SealedFile {
    /// The file of this number, whose flushes have these ends.
    pub fn new(source: u16, ends: impl Iterator<Item = u64>, seen_from: u64) -> Self {
        let (mut kept, mut last) = (Vec::new(), FRONT);
        for end in ends {
            if end - kept.last().copied().unwrap_or(FRONT).min(end) >= APART {
                kept.push(end);
            }
            last = end;
        }
        if kept.last() != Some(&last) {
            kept.push(last);
        }
        SealedFile {
            source,
            ends: kept,
            seen_from,
            table: None,
        }
    }

    /// End of the extents.
    pub fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(FRONT)
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.ends.len() * size_of::<u64>()
    }
}

impl Sealed {
    /// Fails with the reason where the flushes cannot belong to a log of files with these lengths.
    pub(crate) fn check(&self, lens: &[u64]) -> Result<(), Fault> {
        for file in &self.files {
            let len = lens.get(usize::from(file.source));
            let is_sorted = file.ends.is_sorted() && file.ends.first() >= Some(&FRONT);
            let end = match file.table {
                Some(table) => table.offset.saturating_add(table.len),
                None => file.end(),
            };
            if !is_sorted || file.end() > end || len.is_none_or(|len| end > *len) {
                return Err(format!("ends of flushes outside of file {}", file.source).into());
            }
        }
        Ok(())
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(SealedFile::bytes).sum()
    }
}
