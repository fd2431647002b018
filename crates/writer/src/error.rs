//! What can go wrong while writing. An error of one rank reaches every rank at the next collective
//! call.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A definition that cannot be: every rank makes the same ones, and gets the same answer.
    #[error("{0}")]
    Definition(String),

    /// A write whose shape, extent or type does not fit its dataset. Nothing of it was taken.
    #[error("dataset {dataset}: {reason}")]
    Write { dataset: String, reason: String },

    /// The buffer has no room for a write. Nothing of it was taken, nothing before it is lost: it
    /// fits after a flush, unless it is larger than the buffer may be.
    #[error("{}", full(*limit, *held, *wanted))]
    BufferFull { limit: u64, held: u64, wanted: u64 },

    /// A collective call failed, on this rank or another one, and had no effect: what was flushed
    /// before is as it was, what was not flushed is still held, and the call can be made again.
    #[error("{operation} failed on rank {rank}: {reason}")]
    Failed {
        operation: &'static str,
        rank: u32,
        reason: String,
    },

    /// A flush is complete, but a write before it had been refused on a rank, and is not in it.
    #[error("flushed, but without a write that rank {rank} had refused: {reason}")]
    Refused { rank: u32, reason: String },

    /// The file was closed, or could not be made.
    #[error("the file is closed")]
    Closed,
}

fn full(limit: u64, held: u64, wanted: u64) -> String {
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
