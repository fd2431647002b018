//! An unclosed log: its journal and its data files (`docs/formats/journal.md`). The journal records definitions and
//! complete flushes.
//!
//! * [`datatype`], [`definition`], [`scales`] and [`value`] hold a program's definitions as plain data.
//! * [`words`] puts them into words for messages; `limits` has their upper bounds.
//! * [`metadata_image`] is the metadata image, which a journal has in place of definitions where HDF5 itself keeps the
//!   objects.
//! * [`shown_flush`] names the state that is shown.
//! * [`extent`](crate::logvol::extent) describes the content of data files before they are HDF5.
//! * [`visible`] tells which flushes a file system shows in full. [`sealed`] is a scan's result about that, and
//!   [`guard`] verifies the rest when it is first read.
//! * [`closed`] tells whether a close is visible in full.
//! * [`beside`] tells whether a file beside the log is its journal, or a stale one.
//! * [`fresh`] waits until this node sees all of a file.
//! * [`unflushed`] finds data that no flush covers. [`kept`] keeps it beside a log that goes on without it.
//! * [`known_table`] is the table of a log that this process has closed.
//! * [`held`] notices when the name of a log's file leads to another file.
//! * [`job`] describes who writes a log, and whether the job still runs.
//! * `line` is a line of JSON with a checksum over all lines so far. `writing` writes lines, `lines` reads them, and
//!   `recorded` is their content up to the last commit.
//!
//! The writer, the scan, and `h5logfs recover` use this module. It needs neither MPI nor libhdf5.

pub mod beside;
pub mod closed;
pub mod datatype;
pub mod definition;
pub mod fresh;
pub mod guard;
pub mod held;
mod hex;
pub mod job;
pub mod kept;
pub mod known_table;
mod limits;
mod line;
mod lines;
pub mod metadata_image;
mod recorded;
pub mod scales;
pub mod sealed;
pub mod shown_flush;
pub mod unflushed;
pub mod value;
pub mod visible;
pub mod words;
mod writing;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::front;
use crate::log_files::LogFiles;
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use h5logfs_common::error::Result;
use lines::Lines;

pub use beside::{Beside, Stale, is_journal, lacks_front};
pub use held::{HeldFile, number_at, parent, remove_left_behind, rename_without_replacing, sync};
pub use job::{Job, JobState, lock};
pub use line::{Append, Commit, Header, Line, MOST_SUBFILES, writer_name};
pub use lines::{Cause, MOST_FLUSHES, Torn};
pub use recorded::{MOST_ENDS, Recorded};
pub use shown_flush::{SETTLED, ShownFlush};
pub use unflushed::Unflushed;
pub use writing::{Journal, extended};

/// The suffix that a journal appends to the name of its log file.
pub const SUFFIX: &str = ".h5logfs-journal";

/// Path of the journal of the log file at `path`.
pub fn path_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    name.into()
}

/// The journal of the log file `file`, and its place; `None` where the file is closed, or this writer did not make
/// it. Fails where the file is unclosed and has no journal.
pub fn of_file(files: &LogFiles<'_>, file: &SourceFile) -> Result<Option<(SourcePath, Recorded)>> {
    Beside::of(files, file).map(Beside::journal)
}

/// The job that writes the journal `source`, from its first line; `None` where it is not recorded.
pub fn job_of(source: &SourceFile) -> Option<Job> {
    header_of(source)?.job
}

/// The first line of the journal `source`; `None` where it is not a journal.
pub fn header_of(source: &SourceFile) -> Option<Header> {
    Lines::new(source).header().ok().map(|(header, _)| header)
}

/// Whether the log file `file` is unclosed, or may be, according to its journal. Reads only the first line of the
/// journal: the rest takes memory that only a scan process may use. The journal may be [stale](beside).
pub fn may_belong_to(files: &LogFiles<'_>, file: &SourceFile) -> Result<bool> {
    let Some(id) = file.file_id()? else {
        return Ok(false);
    };
    let place = SourcePath::below(path_of(files.log()));
    let header = files
        .open(&place)
        .and_then(|source| Lines::new(&source).header());
    match header {
        Ok((_, of)) if of == id => Ok(true),
        _ => front::is_unclosed(file),
    }
}

#[cfg(test)]
mod tests;
