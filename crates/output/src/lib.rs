//! Output to disk: the records of a log, its extents, flushes and journal, written by any number of ranks.
//!
//! The writer and the VOL connector use this crate. It knows neither MPI nor libhdf5. The ranks are a
//! [`Communicator`](ranks::Communicator), and its users decide what a closed log contains.
//!
//! | module | contents |
//! |---|---|
//! | [`selection`] | the elements of a write, as a list of blocks |
//! | [`lists`] | repeated lists of blocks |
//! | [`stored`] | splits writes into records, and filters them |
//! | [`entries`] | the entries of one rank: its section of the record table |
//! | [`entry`] | one entry as bytes |
//! | [`flushed`] | entries that have left the memory |
//! | `sharing` | the selections that later entries refer to |
//! | [`joining`] | consecutive small writes become one entry |
//! | `covered` | the elements that a joined entry covers |
//! | `regular` | blocks with regular steps |
//! | [`log_writer`] | the buffer of a rank, and the collective flush: the interface for users |
//! | `buffer` | the data of the buffer |
//! | [`neighbours`] | pending writes that the ranks of a node show each other |
//! | [`ranks`] | the processes that write a log together |
//! | [`files`] | the files of a log: places and writes extents, commits flushes |
//! | `extent` | extents as bytes, and the writes that put them into a file |
//! | [`options`], [`error`] | options and errors of users |
//! | [`automatic`] | the times of automatic flushes |
//! | `creation`, `existing`, `aside` | a new log takes its name, on all ranks or on none |
//! | [`found`], [`base`], `reopening` | the reopening of a log |
//! | `earlier` | entries of earlier jobs, for the close |
//! | [`nfs`] | one file that several nodes write, on NFS |
//! | `late` | reads of bytes that this node may not see yet |
//! | [`reading`] | elements of the log that is being written |
//! | `spill` | writes of a full buffer before the flush |
//! | `write_back` | early writes of complete data to the disk |
//! | [`plain_close`] | the close without libhdf5 |
//! | [`remembered`] | the memory of logs that this process has closed |

pub mod automatic;
pub mod base;
pub mod entries;
pub mod entry;
pub mod error;
pub mod files;
pub mod flushed;
pub mod found;
pub mod joining;
pub mod lists;
pub mod log_writer;
pub mod neighbours;
pub mod nfs;
pub mod options;
pub mod plain_close;
pub mod ranks;
pub mod reading;
pub mod remembered;
pub mod selection;
pub mod stored;

mod aside;
mod buffer;
mod covered;
mod creation;
mod earlier;
mod existing;
mod extent;
mod late;
mod regular;
mod reopening;
mod sharing;
mod spill;
mod write_back;

use std::path::Path;

pub use base::Base;
pub use creation::check_same;
pub use error::{Error, Result};
pub use log_writer::LogWriter;
pub use options::{Fsync, Options, Subfiles};
pub use ranks::{GlobalOutcome, LocalOutcome, Ranks};
pub use selection::{Blocks, Selection};

/// Adds the file to the error of a collective call.
pub fn check_outcome(file: &Path, operation: &'static str, outcome: GlobalOutcome) -> Result<()> {
    match outcome {
        GlobalOutcome::Good => Ok(()),
        GlobalOutcome::Refused { rank, reason } => Err(Error::Refused {
            file: file.to_owned(),
            rank,
            reason,
        }),
        GlobalOutcome::Failed { rank, reason } => Err(Error::Failed {
            file: file.to_owned(),
            operation,
            rank,
            reason,
        }),
    }
}
