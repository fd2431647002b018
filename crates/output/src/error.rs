//! Errors of the writer. An error of one rank reaches all ranks at the next collective call. Each message begins with the
//! file, because a job has several, and names the rank, because a batch log mixes the lines of all.

use std::path::{Path, PathBuf};

use h5logfs_common::fault::{Fault, Kind};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of an action of one rank. At the next agreement a fault becomes an error of all ranks.
pub(crate) type FaultResult<T = ()> = Result<T, Fault>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An impossible definition. All ranks make the same definitions, so all get this error.
    #[error("{}: rank {rank}: {reason}", file.display())]
    Definition {
        file: PathBuf,
        rank: u32,
        reason: Fault,
    },

    /// A write whose shape, extent or type does not match its dataset. It had no effect.
    #[error("{}: rank {rank}: dataset {dataset}: {reason}", file.display())]
    Write {
        file: PathBuf,
        rank: u32,
        dataset: String,
        reason: Fault,
    },

    /// The buffer has no room for a write, and its data cannot go to the file now. Earlier writes are kept. The write can be
    /// repeated after a flush. It had no effect, but a part of a write larger than the whole buffer may be stored.
    #[error(
        "{}: rank {rank}: dataset {dataset}: {}",
        file.display(),
        buffer_full(*limit, *held, *wanted, reason.as_ref())
    )]
    BufferFull {
        file: PathBuf,
        rank: u32,
        dataset: String,
        limit: u64,
        held: u64,
        wanted: u64,
        /// Why nothing more goes to the file, if that was tried.
        reason: Option<Fault>,
    },

    /// A collective call failed on some rank, and had no effect. Flushed data are unchanged, other data are still buffered,
    /// and the call can be repeated.
    #[error(
        "{}: {operation} failed on rank {rank}: {}{}",
        file.display(),
        without(file, reason),
        afterwards(operation)
    )]
    Failed {
        file: PathBuf,
        operation: &'static str,
        rank: u32,
        reason: Fault,
    },

    /// A flush is complete except for the part that `reason` names: a write that a rank refused, or attributes that differ
    /// between ranks. `rank` refused the write, or is the first that differs. Reported once.
    #[error("{}: flushed without {reason}", file.display())]
    Refused {
        file: PathBuf,
        rank: u32,
        reason: Fault,
    },

    /// The file is closed, but the option `settle` failed to make it an ordinary HDF5 file. It is a complete log, and
    /// `h5logfs settle` can be run later.
    #[error(
        "{}: closed, but not settled: {}. The log is whole, and `h5logfs settle {}` can be run later",
        file.display(),
        without(file, reason),
        file.display()
    )]
    NotSettled { file: PathBuf, reason: Fault },

    /// The file is closed, or was not created.
    #[error("{}: the file is closed, or was not created", file.display())]
    Closed { file: PathBuf },

    /// The process was forked from `process`, which opened the file and alone writes it. The call had no effect.
    #[error("{}: {}", file.display(), forked(*process))]
    Forked { file: PathBuf, process: u32 },
}

/// The text names file and rank. The kind is the one on which the ranks have agreed.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        error.kind().told(error.to_string())
    }
}

impl Error {
    pub fn closed(file: &Path) -> Self {
        Error::Closed {
            file: file.to_owned(),
        }
    }

    /// Adds another failure to a refusal. Any other error stays as it is.
    pub fn with(mut self, other: &Error) -> Self {
        if let Error::Refused { reason, .. } = &mut self {
            *reason = reason.with(format_args!("Besides, {other}"));
        }
        self
    }

    /// The kind of the failure, the same on all ranks.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Definition { reason, .. }
            | Error::Write { reason, .. }
            | Error::Failed { reason, .. }
            | Error::Refused { reason, .. }
            | Error::NotSettled { reason, .. } => reason.kind(),
            Error::BufferFull { .. } | Error::Closed { .. } | Error::Forked { .. } => Kind::Refused,
        }
    }
}

/// The state after a failure, and advice.
fn afterwards(operation: &str) -> &'static str {
    match operation {
        "flush" => ". It changed nothing that was flushed before, and can be repeated",
        "close" => {
            ". It changed nothing that was flushed: close again, or let the job end and close it with `h5logfs recover`"
        }
        _ => "",
    }
}

/// The reason why a process forked from `process` changes nothing.
pub(crate) fn forked(process: u32) -> String {
    format!(
        "process {process} has opened the file for writing, and this process was forked from that one: only process {process} \
         changes it. A process that is to write opens a file of its own after the fork"
    )
}

/// The text of `reason` without the file, which the message already names.
fn without(file: &Path, reason: &Fault) -> String {
    let (named, reason) = (format!("{}: ", file.display()), reason.to_string());
    reason.strip_prefix(&named).unwrap_or(&reason).to_owned()
}

fn buffer_full(limit: u64, held: u64, wanted: u64, reason: Option<&Fault>) -> String {
    let full = format!(
        "the buffer is full: {held} of {limit} bytes are taken, and a write of {wanted} does not fit: flush first, on all \
         ranks, or raise buffer_limit"
    );
    match reason {
        Some(reason) => format!("{full}. It cannot go to the file: {reason}"),
        None => full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message in the log of a job names file, rank and object, what was wrong, and what to do.
    #[test]
    fn messages_name_file_rank_and_object_and_say_what_to_do() {
        let file = || PathBuf::from("/scratch/run.h5");
        let failed = |operation, reason: &str| Error::Failed {
            file: file(),
            operation,
            rank: 3,
            reason: Kind::Refused.told(reason),
        };
        let full = |held, wanted, reason: Option<&str>| Error::BufferFull {
            file: file(),
            rank: 3,
            dataset: "/air/p".into(),
            limit: 1000,
            held,
            wanted,
            reason: reason.map(|reason| Kind::Refused.told(reason)),
        };
        let (rank, dataset) = (3, "/air/p".to_owned());
        let cases = [
            (
                Error::Definition {
                    file: file(),
                    rank,
                    reason: Fault::Refused("dataset /d: filters need a chunk shape".into()),
                },
                "/scratch/run.h5: rank 3: dataset /d: filters need a chunk shape",
            ),
            (
                Error::Write {
                    file: file(),
                    rank,
                    dataset,
                    reason: Fault::Refused("3 elements for a selection of 4".into()),
                },
                "/scratch/run.h5: rank 3: dataset /air/p: 3 elements for a selection of 4",
            ),
            (
                full(900, 200, None),
                "/scratch/run.h5: rank 3: dataset /air/p: the buffer is full: 900 of 1000 bytes are taken, and a write \
                 of 200 does not fit: flush first, on all ranks, or raise buffer_limit",
            ),
            (
                full(0, 2000, Some("No space left on device")),
                "/scratch/run.h5: rank 3: dataset /air/p: the buffer is full: 0 of 1000 bytes are taken, and a write of \
                 2000 does not fit: flush first, on all ranks, or raise buffer_limit. It cannot go to the file: No space \
                 left on device",
            ),
            (
                failed("create", "/scratch/run.h5: it exists"),
                "/scratch/run.h5: create failed on rank 3: it exists",
            ),
            (
                failed(
                    "flush",
                    "/scratch/run.h5.subfiles/run.h5.1: No space left on device",
                ),
                "/scratch/run.h5: flush failed on rank 3: /scratch/run.h5.subfiles/run.h5.1: No space left on device. \
                 It changed nothing that was flushed before, and can be repeated",
            ),
            (
                failed("close", "/scratch/run.h5: No space left on device"),
                "/scratch/run.h5: close failed on rank 3: No space left on device. It changed nothing that was flushed: \
                 close again, or let the job end and close it with `h5logfs recover`",
            ),
            (
                Error::Refused {
                    file: file(),
                    rank,
                    reason: Fault::Refused(
                        "a write that rank 3 refused: dataset /d: too many elements".into(),
                    ),
                },
                "/scratch/run.h5: flushed without a write that rank 3 refused: dataset /d: too many elements",
            ),
            (
                Error::NotSettled {
                    file: file(),
                    reason: Fault::Refused("/scratch/run.h5: No space left on device".into()),
                },
                "/scratch/run.h5: closed, but not settled: No space left on device. The log is whole, and `h5logfs settle \
                 /scratch/run.h5` can be run later",
            ),
            (
                Error::closed(&file()),
                "/scratch/run.h5: the file is closed, or was not created",
            ),
            (
                Error::Forked {
                    file: file(),
                    process: 7,
                },
                "/scratch/run.h5: process 7 has opened the file for writing, and this process was forked from that one: only \
                 process 7 changes it. A process that is to write opens a file of its own after the fork",
            ),
        ];
        for (error, words) in cases {
            assert_eq!(error.to_string(), words);
        }
    }
}
