//! Errors of the writer. An error of one rank reaches all ranks at the next collective call. Each message begins with
//! the file, because a job has several, and names the rank, because a batch log has the lines of all.

use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An impossible definition. All ranks make the same definitions, so all get this error.
    #[error("{}: rank {rank}: {reason}", file.display())]
    Definition {
        file: PathBuf,
        rank: u32,
        reason: String,
    },

    /// A write whose shape, extent or type does not fit its dataset. It had no effect.
    #[error("{}: rank {rank}: dataset {dataset}: {reason}", file.display())]
    Write {
        file: PathBuf,
        rank: u32,
        dataset: String,
        reason: String,
    },

    /// The buffer has no room for a write. The write had no effect, and earlier writes are not lost. It
    /// fits after a flush, unless it is larger than the buffer limit.
    #[error(
        "{}: rank {rank}: dataset {dataset}: {}",
        file.display(),
        buffer_full(*limit, *held, *wanted)
    )]
    BufferFull {
        file: PathBuf,
        rank: u32,
        dataset: String,
        limit: u64,
        held: u64,
        wanted: u64,
    },

    /// A collective call failed on some rank, and had no effect. Flushed data are unchanged, other data
    /// are still buffered, and the call can be repeated.
    #[error("{}: {operation} failed on rank {rank}: {}", file.display(), without(file, reason))]
    Failed {
        file: PathBuf,
        operation: &'static str,
        rank: u32,
        reason: String,
    },

    /// A flush is complete, but it lacks what `reason` names: a write that a rank refused, or attributes that were
    /// not the same on all ranks. `rank` refused the write, or is the first that differs. It is told once.
    #[error("{}: flushed without {reason}", file.display())]
    Refused {
        file: PathBuf,
        rank: u32,
        reason: String,
    },

    /// The file was closed, or could not be created.
    #[error("{}: the file is closed", file.display())]
    Closed { file: PathBuf },
}

impl Error {
    pub(super) fn closed(file: &Path) -> Self {
        Error::Closed {
            file: file.to_owned(),
        }
    }
}

/// A reason without the file in front, which the message names before it.
fn without<'r>(file: &Path, reason: &'r str) -> &'r str {
    let named = format!("{}: ", file.display());
    reason.strip_prefix(&named).unwrap_or(reason)
}

fn buffer_full(limit: u64, held: u64, wanted: u64) -> String {
    if wanted > limit {
        format!(
            "a write of {wanted} bytes is larger than the whole buffer, {limit} bytes: raise buffer_limit, split the \
             write, or write without copying (a batch in Rust, h5logfs_lend in C)"
        )
    } else {
        format!(
            "the buffer is full: {held} of {limit} bytes are taken, and a write of {wanted} does not fit: flush first, \
             on all ranks, or raise buffer_limit"
        )
    }
}
