//! Errors of the writer. An error of one rank reaches all ranks at the next collective call.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An impossible definition. All ranks make the same definitions, so all get this error.
    #[error("{0}")]
    Definition(String),

    /// A write whose shape, extent or type does not fit its dataset. It had no effect.
    #[error("dataset {dataset}: {reason}")]
    Write { dataset: String, reason: String },

    /// The buffer has no room for a write. The write had no effect, and earlier writes are not lost. It
    /// fits after a flush, unless it is larger than the buffer limit.
    #[error("{}", buffer_full(*limit, *held, *wanted))]
    BufferFull { limit: u64, held: u64, wanted: u64 },

    /// A collective call failed on some rank, and had no effect. Flushed data are unchanged, other data
    /// are still buffered, and the call can be repeated.
    #[error("{operation} failed on rank {rank}: {reason}")]
    Failed {
        operation: &'static str,
        rank: u32,
        reason: String,
    },

    /// A flush is complete, but it lacks a write that was refused on a rank.
    #[error("flushed, but without a write that rank {rank} had refused: {reason}")]
    Refused { rank: u32, reason: String },

    /// The file was closed, or could not be created.
    #[error("the file is closed")]
    Closed,
}

fn buffer_full(limit: u64, held: u64, wanted: u64) -> String {
    if wanted > limit {
        format!(
            "a write of {wanted} bytes is larger than the buffer may be, {limit} bytes: a batch does without"
        )
    } else {
        format!(
            "the buffer is full: {held} of {limit} bytes are taken, and a write of {wanted} does not fit; flush first"
        )
    }
}
