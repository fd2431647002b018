//! The close of a log in one file by the program that has written it, if its metadata can be made without libhdf5. It
//! works like `h5logfs recover` (`docs/formats/journal.md`, section 5), but does not read the data that the program
//! knows.
//!
//! The ranks of the writer write the table together ([`Files::write_tables`](crate::files::Files::write_tables)). For the VOL
//! connector the first rank writes it ([`Ended::close`]). The rest is common ([`TabledLog::finish`]).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::Added;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::extents_until;
use h5logfs_log::journal::closed::{CloseSeal, ClosedLog, seal_in};
use h5logfs_log::journal::fresh::refresh;
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::journal::{Header, Journal, parent, sync};
use h5logfs_log::logvol::extent::sections_after;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::window::Piece;

use crate::error::FaultResult;

/// The most bytes of entries that a program keeps in memory for its next close.
pub(crate) const MOST: u64 = 4 << 20;

/// A log that no rank writes any more, and whose data files are closed. The journal stays locked while this lives.
pub struct Ended {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(crate) id: FileId,
    /// The data file, opened by this rank alone.
    pub(crate) file: Arc<File>,
    /// The journal, on the first rank.
    pub(crate) journal: Option<Journal>,
    /// The flush with which this job began, and its own flushes, with their ends in the first data file.
    pub(crate) commits: Vec<(u64, u64)>,
}

/// A log that was just closed.
#[derive(Default)]
pub struct JustClosed {
    /// Table, for the next close.
    pub table: KnownTable,
    /// The seal of the close, if it is known.
    pub seal: Option<CloseSeal>,
}

/// A log in one file that has its table. The journal stays locked while this lives.
pub struct TabledLog<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Journal.
    pub journal: &'a Journal,
    /// The file, opened by this rank alone.
    pub file: &'a File,
    /// The content of the closed file.
    pub log: ClosedLog<'a>,
    /// Whether to wait until the file is on the disk.
    pub is_synced: bool,
}

impl Ended {
    /// Whether the log lies in one file.
    pub fn is_one_file(&self) -> bool {
        self.header.subfiles == 0
    }

    /// Inode number of the journal, on the first rank.
    pub fn journal_number(&self) -> Option<u64> {
        let journal = self.journal.as_ref();
        journal.map(|journal| journal.held().number())
    }

    /// Releases the lock of the journal. The log stays unclosed.
    pub fn unlock(self) {
        // Dropping the journal would leave it locked as long as a child of the program has it open.
        if let Some(journal) = self.journal {
            journal.unlock();
        }
    }

    /// On the first rank: closes the log, which is in one file. `known` is its table as far as this process knows it;
    /// `metadata` makes the rest. `is_synced`: waits until the file is on the disk. After a failure the log is either closed
    /// or not, and has all flushed data in both cases. The call can be repeated.
    pub fn close(
        &self,
        known: KnownTable,
        is_synced: bool,
        metadata: impl FnOnce(ClosedLog<'_>) -> Result<Added, Fault>,
    ) -> FaultResult<JustClosed> {
        let (Some(journal), Some(&(flush, end))) = (&self.journal, self.commits.last()) else {
            return Err("there is no journal".into());
        };
        journal.check_name()?;
        let path = self.path.as_path();
        let io = |e| Fault::from(Error::io(path, e));
        let source = self.file.try_clone().map_err(io)?;
        let source = SourceFile::new(source, path.to_owned()).map_err(io)?;
        source.descriptor().map(refresh);
        let known = known.up_to(&self.commits);
        let behind = known.behind();
        let new = self.commits.iter().copied();
        let new = new.filter(|(flush, _)| *flush > behind.0);
        let found = sections_after(&source, 0, behind, new)?;
        if let Some(diagnostic) = found.diagnostics.first() {
            return Err(diagnostic.to_string().into());
        }
        let has_seals = found.has_seals || known.has_seals;
        let mut entries = known.entries;
        let file = &*self.file;
        let table = Piece {
            offset: end,
            len: entries
                .write(file, &found.sections, end, MOST)
                .map_err(io)?,
        };
        let log = ClosedLog {
            header: &self.header,
            id: &self.id,
            data: extents_until(end),
            table,
            flush,
            has_seals,
        };
        let tabled = TabledLog {
            path,
            journal,
            file,
            log,
            is_synced,
        };
        let seal = tabled.finish(&metadata(log)?)?;
        let table = KnownTable::new(&file.metadata().map_err(io)?, log, entries);
        Ok(JustClosed { table, seal })
    }
}

impl TabledLog<'_> {
    /// Writes the metadata, and removes the journal. Returns the seal. After a failure the log is either closed or not, and
    /// has all flushed data in both cases. The call can be repeated.
    pub fn finish(&self, metadata: &Added) -> FaultResult<Option<CloseSeal>> {
        self.journal.check_name()?;
        let io = |e| Fault::from(Error::io(self.path, e));
        // If the program has reopened the log, the names are on the disk, and so is the journal with the previous state of
        // the log.
        let goes_on = self.log.header.append.is_some();
        // Until the file is complete, its front relies on the journal.
        if self.is_synced && !goes_on {
            self.journal.sync()?;
        }
        let Piece { offset, len } = self.log.table;
        self.file.set_len(offset + len).map_err(io)?;
        metadata.write_to(self.file).map_err(io)?;
        if self.is_synced {
            self.file.sync_all().map_err(io)?;
        }
        let seal = seal_in(metadata.front());
        self.remove_journal(goes_on, goes_on && seal.is_some())?;
        Ok(seal)
    }

    /// Removes the journal. `is_proven`: a crash of the system may restore it, because the file itself proves that it is
    /// closed.
    fn remove_journal(&self, goes_on: bool, is_proven: bool) -> FaultResult {
        let dir: &Path = parent(self.path);
        if self.is_synced && !goes_on {
            sync(dir)?;
        }
        self.journal.remove()?;
        if self.is_synced && !is_proven {
            sync(dir)?;
        }
        Ok(())
    }
}
