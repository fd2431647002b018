//! What a scan says of the flushes of a log that have seals.

use serde::{Deserialize, Serialize};

use crate::front::FRONT;
use crate::window::Piece;
use h5logfs_common::fault::Fault;

/// The flushes of a log that is not closed, up to one of which all was seen on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFlush {
    /// Its number.
    pub flush: u64,
    /// Tells these flushes from others of the same numbers: a sum over their ends and tags.
    pub sum: u64,
}

/// What was compared of a log with seals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The last flush that is shown; `None` where no journal tells.
    pub last: Option<KnownFlush>,
    /// The scan began after the flush that it was told to be known.
    pub goes_on: bool,
    /// The data files.
    pub files: Vec<SealedFile>,
}

/// A data file of a log with seals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFile {
    /// Number of the file among the sources.
    pub source: u16,
    /// Where flushes end: not all of them, but the last one.
    pub ends: Vec<u64>,
    /// The scan has compared all data from here on.
    pub seen_from: u64,
    /// Of a closed log: the table, which has copies of the entries.
    pub table: Option<Piece>,
}

/// How far the ends lie apart that are kept. The extents between two of them can be found by a short walk.
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

    /// Where the extents end.
    pub fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(FRONT)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.ends.len() * size_of::<u64>()
    }
}

impl Sealed {
    /// Fails with the reason where it cannot be of a log of files with these lengths.
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

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(SealedFile::bytes).sum()
    }
}
