//! Opens a log again: it becomes unclosed, with a new journal that begins with its state
//! (`docs/formats/journal.md`, section 2.6).
//!
//! Nothing changes before the new journal exists, and it is made when all ranks have found their data files. From then on the
//! log is unclosed, and keeps its content whatever happens.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::Base;
use crate::error::FaultResult;
use crate::existing::{Existing, Opened};
use crate::found::FoundLog;
use crate::options::{Fsync, Options};
use crate::ranks::Ranks;
use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::{FRONT, unclosed_front};
use h5logfs_log::journal::fresh::{FileSystem, refresh};
use h5logfs_log::journal::kept::keep;
use h5logfs_log::journal::unflushed::{Unflushed, remove_spills};
use h5logfs_log::journal::{self, Append, Commit, Header, HeldFile, Job, Journal};
use h5logfs_log::journal::{Line, Recorded, sync};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::names::{spill_dir, subfile};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::{Identity, SourceFile};

/// A log that is about to be opened again. Nothing has changed yet.
pub(crate) struct Prepared {
    path: PathBuf,
    /// Keeps the journal of an unclosed log locked.
    existing: Existing,
    /// The log file when its state was read. It is locked until it has a locked journal.
    log: FoundLog,
    /// File system of the log file.
    file_system: FileSystem,
    pub header: Header,
    pub base: Base,
}

/// A reopened log.
pub(crate) struct Reopened {
    pub journal: Journal,
    /// The log file.
    pub held: HeldFile,
}

impl Prepared {
    /// On the first rank: looks at the log at `path`. `base` returns its state, from the journal if it is not closed.
    pub fn new(
        path: &Path,
        ranks: &Ranks,
        options: &Options,
        base: impl FnOnce(&FoundLog, Option<&Recorded>) -> FaultResult<Base>,
    ) -> FaultResult<Self> {
        let (existing, log) = Existing::to_append(path)?;
        if existing.has_journal() {
            check_journal(path)?;
        }
        if let Some(torn) = existing.recorded()?.and_then(|recorded| recorded.torn) {
            log::warn!("{}: {torn}", path.display());
        }
        let base = base(&log, existing.recorded()?).map_err(|e| {
            let is_opened = !existing.has_journal() && journal::path_of(path).exists();
            if is_opened || identity(path).is_ok_and(|now| now != log.identity()) {
                just_opened()
            } else {
                e
            }
        })?;
        options.check_settle(base.subfiles > 0)?;
        let file_system = check_files(path, &log, &base)?;
        let config = options.config() | base.config;
        let header = Header {
            job: Some(Job::of_this_process()),
            append: Some(Append { flush: base.flush }),
            ..Header::new(&base.id, ranks.size(), base.subfiles, config)
        };
        let header = if base.takes_definitions {
            header.with_base()
        } else {
            header
        };
        Ok(Prepared {
            path: path.to_owned(),
            existing,
            log,
            file_system,
            header,
            base,
        })
    }

    /// The log file, and its file system.
    pub fn log_file(&self) -> (Arc<File>, FileSystem) {
        (Arc::clone(self.log.file()), self.file_system)
    }

    /// On the first rank: opens the log.
    pub fn open(mut self, options: &Options) -> FaultResult<Reopened> {
        let lines = mem::take(&mut self.base.lines);
        let opened = self.open_with(lines, options);
        self.log.unlock();
        opened
    }

    fn open_with(&self, mut lines: Vec<Line>, options: &Options) -> FaultResult<Reopened> {
        self.keep_unflushed()?;
        let Base {
            id,
            subfiles,
            flush,
            asked,
            ref ends,
            ..
        } = self.base;
        let commit = Commit::new(flush, ends.clone()).asked_at(asked);
        lines.push(Line::Commit(commit));
        let replace = self.existing.has_journal();
        let journal_path = journal::path_of(&self.path);
        let is_synced = options.fsync != Fsync::None || options.checksums;
        if replace && is_synced {
            // The last job may have left flushes that no disk has yet. The new journal tells of them alone, and will be on the disk:
            // without them, not even older flushes could be shown.
            for (file, _) in files_of(&self.path, subfiles, ends) {
                sync(&file)?;
            }
        }
        let journal = Journal::create_with(&journal_path, &self.header, &lines, replace, is_synced);
        let journal = journal.map_err(|e| match e {
            Error::Io { cause, .. } if cause.kind() == ErrorKind::AlreadyExists => just_opened(),
            e => e.into(),
        })?;
        let parent = journal::parent(&self.path);
        // Without the journal the log is closed as before.
        let undo = || {
            journal.remove()?;
            sync(parent)?;
            FaultResult::Ok(())
        };
        // Another job may have opened and closed the log before the new journal kept it away.
        if !replace && identity(&self.path)? != self.log.identity() {
            undo()?;
            return Err(just_opened());
        }
        // The bytes that the old journal refers to will be overwritten. The new journal is on the disk; now its name must be,
        // too.
        if options.fsync != Fsync::None
            && let Err(e) = sync(parent)
        {
            if !replace {
                undo()?;
            }
            return Err(e.into());
        }
        for (file, end) in files_of(&self.path, subfiles, ends) {
            let made = if file == self.path {
                self.log.make_unclosed(&id, end)
            } else {
                make_unclosed(&file, &id, end)
            };
            made.map_err(|e| Fault::from(e).of_file(&file).with(KEPT))?;
        }
        let held = self.log.hold();
        Ok(Reopened { journal, held })
    }

    /// Keeps the unflushed data of the last job beside the log: the log goes on after its last flush, and overwrites them.
    fn keep_unflushed(&self) -> FaultResult {
        if let Some(recorded) = self.existing.recorded()? {
            let Opened { dir, name, file } = Opened::at(&self.path)?;
            let files = LogFiles::of(&dir, &name, &file);
            let unflushed = Unflushed::of(&files, recorded, false)?;
            if !unflushed.is_empty() {
                let kept = keep(&files, recorded, &unflushed)?;
                let (log, kept) = (self.path.display(), kept.display());
                log::warn!("{log}: {}, is kept in {kept}", unflushed.summary());
            }
        }
        remove_spills(&self.path).map_err(|e| Fault::from(e).of_file(&spill_dir(&self.path)))
    }
}

/// The refusal when two jobs open a log at the same time.
fn just_opened() -> Fault {
    Fault::Refused("another job has just opened it".into())
}

/// Advice about a log that could not be opened on all ranks.
pub(crate) const KEPT: &str = "The log is not closed now, and has lost nothing: open it again, or let `h5logfs recover` \
                               close it";

/// Opens a file whose name is checked.
pub(crate) fn hold(path: &Path) -> FaultResult<HeldFile> {
    let held = File::open(path).and_then(|file| HeldFile::new(file, path.to_owned()));
    held.map_err(|e| Fault::from(e).of_file(path))
}

fn identity(path: &Path) -> FaultResult<Identity> {
    let found = path.metadata();
    let found = found.map_err(|e| Fault::from(e).of_file(path))?;
    Ok(Identity::from(&found))
}

/// Fails if readers would not accept the journal as that of the log.
fn check_journal(path: &Path) -> FaultResult {
    let Opened { dir, name, file } = Opened::at(path)?;
    let journal = SourcePath::below(journal::path_of(&name));
    let belongs = LogFiles::of(&dir, &name, &file).check(&journal);
    belongs.map_err(|e| Fault::from(e).of_file(&journal::path_of(path)))
}

/// Fails if a data file is missing under its name, or belongs to another log. Returns the file system of the log file.
fn check_files(path: &Path, log: &FoundLog, base: &Base) -> FaultResult<FileSystem> {
    let file_system = refresh(log.file());
    let is_seen = |end: &u64| log.id() == Some(base.id) && log.len() >= *end;
    // This file was checked when it was found.
    if base.subfiles == 0 && base.ends.first().is_some_and(is_seen) {
        return Ok(file_system);
    }
    let Opened { dir, name, file } = &Opened::at(path)?;
    let files = LogFiles::of(dir, name, file);
    for (file, end) in files_of(name, base.subfiles, &base.ends) {
        let open = || {
            if file == *name {
                SourceFile::open(dir, name)
            } else {
                files.open(&SourcePath::below(&file))
            }
        };
        open()?.descriptor().map(refresh);
        let data = open()?;
        let id = data.file_id()?;
        let shown = dir.full_path(&file);
        if id != Some(base.id) {
            return Err(format!("{} belongs to another log", shown.display()).into());
        }
        if data.len() < end {
            let (shown, len) = (shown.display(), data.len());
            return Err(format!("{shown} has {len} bytes, and {end} belong to the log").into());
        }
    }
    Ok(file_system)
}

/// The files of a log, each with its end.
fn files_of(path: &Path, subfiles: u32, ends: &[u64]) -> Vec<(PathBuf, u64)> {
    if subfiles == 0 {
        return vec![(path.to_owned(), ends.first().copied().unwrap_or(FRONT))];
    }
    let numbered = (0..subfiles).map(|number| subfile(path, number));
    let mut files = vec![(path.to_owned(), FRONT)];
    files.extend(numbered.zip(ends.iter().copied()));
    files
}

/// Gives a file the front of an unclosed one, and cuts off the bytes after its data, which the journal describes.
fn make_unclosed(path: &Path, id: &FileId, end: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    id.check(&file)?;
    let front = unclosed_front(id);
    let mut begin = [0; 64];
    file.read_exact_at(&mut begin, 0)?;
    if front[..begin.len()] != begin {
        file.write_all_at(&front, 0)?;
    }
    file.set_len(end)
}
