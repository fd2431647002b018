//! The parts of a scan that client and server share. The client asks for a scan and gets a [`Snapshot`]. The server
//! runs libhdf5, in the same process or in a confined one.
//!
//! * [`damage`] tells whether elements cannot be read, where that costs little.
//! * [`incomplete`] is the attribute that tells readers which data are missing.
//! * [`settings`] holds the options that decide the outcome of a scan.
//! * [`choice`] holds the objects that a copy of a log has.
//! * [`shape`] chooses chunk shapes where the log records none.
//! * [`protocol`] is the form of messages between a client and a server in another process.

pub mod choice;
pub mod damage;
pub mod incomplete;
pub mod protocol;
pub mod settings;
pub mod shape;

use std::fmt;
use std::path::Path;

pub use choice::Choice;
pub use settings::{LAYOUT_OPTIONS, LayoutOption, SUBFILE_VARIABLES, Settings};
pub use shape::Chunking;

use crate::journal::sealed::KnownFlush;
use crate::snapshot::Snapshot;
use crate::source_dir::{SourceDir, SourcePath};
use crate::tiles::names::MemberName;
use h5logfs_common::error::Result;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;

/// A file to be scanned.
#[derive(Debug, Clone, Copy)]
pub struct ScanRequest<'a> {
    /// The directory below which all files of the log lie.
    pub dir: &'a SourceDir,
    /// The log file, below the directory; or the joined name of a set, which no file has.
    pub relative: &'a Path,
    /// The files whose presence makes a log of it, and that belong to it. The look-up of the catalog finds them. `None`
    /// for a file that needs none.
    pub companions: Option<&'a [SourcePath]>,
    /// The user's options.
    pub settings: &'a Settings,
    /// The last flush up to which an earlier scan has seen all of the log. This part need not be scanned again.
    pub known: Option<KnownFlush>,
}

impl<'a> ScanRequest<'a> {
    /// A request for a file that has no companion files.
    pub fn alone(dir: &'a SourceDir, relative: &'a Path, settings: &'a Settings) -> Self {
        ScanRequest {
            dir,
            relative,
            companions: None,
            settings,
            known: None,
        }
    }

    /// The members, by number, where the request is for a set of netCDF files. Then no file is at its path.
    pub fn members(&self) -> Option<&'a [SourcePath]> {
        let members = self.companions?;
        let first = members.first()?;
        let joined = MemberName::parse(first.path.file_name()?)?.joined();
        let is_set = self.relative.file_name() == Some(&joined);
        is_set.then_some(members)
    }

    /// The path of the log file: that of the first member of a set.
    pub fn file(&self) -> &'a Path {
        let first = self.members().and_then(|members| members.first());
        first.map_or(self.relative, |first| &first.path)
    }
}

/// Turns a log file into a snapshot.
pub trait Scanner: fmt::Debug + Send + Sync {
    /// Scans one file. `task` reserves the memory of the snapshot. [`Error::NotALog`] says that the file is not a log;
    /// [`Error::ScanDied`] says that the scan crashed or went past its limits.
    ///
    /// [`Error::NotALog`]: h5logfs_common::error::Error::NotALog
    /// [`Error::ScanDied`]: h5logfs_common::error::Error::ScanDied
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>>;

    /// Announces scans of several files of a directory. They end with as many calls of [`Scanner::end_listing`].
    fn begin_listing(&self) {}

    /// Ends a listing that [`Scanner::begin_listing`] has announced.
    fn end_listing(&self) {}
}

/// A directory that is being listed, until this is dropped.
#[derive(Debug)]
pub struct ListingScans<'a>(&'a dyn Scanner);

impl<'a> ListingScans<'a> {
    /// Announces a listing to `scanner`.
    pub fn begin(scanner: &'a dyn Scanner) -> Self {
        scanner.begin_listing();
        ListingScans(scanner)
    }
}

impl Drop for ListingScans<'_> {
    fn drop(&mut self) {
        self.0.end_listing();
    }
}
