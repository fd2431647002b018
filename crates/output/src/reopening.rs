//! Opens a log again: it becomes one that is not closed, with a new journal that begins with its state
//! (`docs/formats/journal.md`, section 2.6).
//!
//! Nothing changes before the new journal is there, and that comes when all ranks have found their data files. From then
//! on the log is not closed, and whatever happens holds what it held.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::base::Base;
use crate::error::FaultResult;
use crate::existing::{Existing, Opened};
use crate::options::{Fsync, Options};
use crate::ranks::Ranks;
use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::{FRONT, unclosed_front};
use h5logfs_log::journal::fresh::refresh;
use h5logfs_log::journal::kept::keep;
use h5logfs_log::journal::unflushed::{Unflushed, remove_spills};
use h5logfs_log::journal::{self, Append, Commit, Header, HeldFile, Job, Journal};
use h5logfs_log::journal::{Line, Recorded, sync};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::names::{spill_dir, subfile};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::{Identity, SourceFile};

/// A log that is to be opened again. Nothing has changed yet.
pub(crate) struct Prepared {
    path: PathBuf,
    /// Keeps the journal locked, if the log is not closed.
    existing: Existing,
    /// The log file, locked until it has a journal that is.
    _locked: File,
    /// Identity of the log file when its state was read.
    identity: Identity,
    pub header: Header,
    pub base: Base,
}

/// A log that is open again.
pub(crate) struct Reopened {
    pub journal: Journal,
    /// The log file.
    pub held: HeldFile,
}

impl Prepared {
    /// On the first rank: looks at the log at `path`. `base` tells what it holds, from its journal if it is not closed.
    pub fn new(
        path: &Path,
        ranks: &Ranks,
        options: &Options,
        base: impl FnOnce(&SourceFile, Option<&Recorded>) -> FaultResult<Base>,
    ) -> FaultResult<Self> {
        let mut existing = Existing::to_append(path)?;
        check_owners(path, &existing)?;
        let locked = lock_shared(path)?;
        let before = identity(path)?;
        let opened = existing.opened(before)?;
        if let Some(torn) = existing.recorded()?.and_then(|recorded| recorded.torn) {
            log::warn!("{}: {torn}", path.display());
        }
        let base = base(&opened.file, existing.recorded()?).map_err(|e| {
            let is_opened = !existing.has_journal() && journal::path_of(path).exists();
            if is_opened || identity(path).is_ok_and(|now| now != before) {
                just_opened()
            } else {
                e
            }
        })?;
        options.check_settle(base.subfiles > 0)?;
        check_files(&opened, &base)?;
        let config = options.config() | base.config;
        let header = Header {
            job: Some(Job::of_this_process()),
            append: Some(Append { flush: base.flush }),
            ..Header::new(&base.id, ranks.size(), base.subfiles, config)
        };
        Ok(Prepared {
            path: path.to_owned(),
            existing,
            _locked: locked,
            identity: before,
            header,
            base,
        })
    }

    /// On the first rank: opens the log.
    pub fn open(self, options: &Options) -> FaultResult<Reopened> {
        self.keep_unflushed()?;
        let Base {
            id,
            subfiles,
            flush,
            asked,
            ends,
            mut lines,
            ..
        } = self.base;
        let commit = Commit::new(flush, ends.clone()).asked_at(asked);
        lines.push(Line::Commit(commit));
        let replace = self.existing.has_journal();
        let journal_path = journal::path_of(&self.path);
        let is_synced = options.fsync != Fsync::None || options.checksums;
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
        // A job may have taken its turn before the new journal kept it away. It has closed the log again.
        if !replace && identity(&self.path)? != self.identity {
            undo()?;
            return Err(just_opened());
        }
        // What the journal says is overwritten elsewhere. It is on the disk, and now its name is, too.
        if options.fsync != Fsync::None
            && let Err(e) = sync(parent)
        {
            if !replace {
                undo()?;
            }
            return Err(e.into());
        }
        for (file, end) in files_of(&self.path, subfiles, &ends) {
            let made = make_unclosed(&file, &id, end);
            made.map_err(|e| Fault::from(e).of_file(&file).with(KEPT))?;
        }
        let held = hold(&self.path).map_err(|e| e.with(KEPT))?;
        Ok(Reopened { journal, held })
    }
}

impl Prepared {
    /// Keeps beside the log what the last job has written and not flushed: the log goes on from its last flush, and what
    /// lies behind that is written over.
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

/// Takes the lock of a log file that programs share which do not change it yet. `h5logfs settle`, and programs that write
/// to the file as HDF5, have it alone.
fn lock_shared(path: &Path) -> FaultResult<File> {
    let file = File::open(path).map_err(|e| Fault::from(e).of_file(path))?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Err(Fault::Refused(format!(
            "{}: another program changes it, as its lock shows: wait until that ends",
            path.display()
        ))),
        // Some file systems have no locks.
        _ => Ok(file),
    }
}

/// What is said where two jobs open a log at the same time.
fn just_opened() -> Fault {
    Fault::Refused("another job has just opened it".into())
}

/// What is said of a log that could not be opened on all ranks.
pub(crate) const KEPT: &str = "The log is not closed now, and holds what it held: open it again, or let `h5logfs recover` \
                               close it";

/// Opens a file whose name is to be looked after.
pub(crate) fn hold(path: &Path) -> FaultResult<HeldFile> {
    let held = File::open(path).and_then(|file| HeldFile::new(file, path.to_owned()));
    held.map_err(|e| Fault::from(e).of_file(path))
}

fn identity(path: &Path) -> FaultResult<Identity> {
    let found = path.metadata();
    let found = found.map_err(|e| Fault::from(e).of_file(path))?;
    Ok(Identity::from(&found))
}

/// Fails where readers would not take the new journal for that of the log, and where the present one is none of it.
fn check_owners(path: &Path, existing: &Existing) -> FaultResult {
    let owner = path.metadata()?.uid();
    let user = rustix::process::geteuid();
    if owner != user.as_raw() && !user.is_root() {
        return Err(Fault::Refused(format!(
            "user {owner} owns it: only that user can append to it, because journals of other users do not count"
        )));
    }
    if !existing.has_journal() {
        return Ok(());
    }
    let Opened { dir, name, file } = Opened::at(path)?;
    let journal = SourcePath::below(journal::path_of(&name));
    let belongs = LogFiles::of(&dir, &name, &file).check(&journal);
    belongs.map_err(|e| Fault::from(e).of_file(&journal::path_of(path)))
}

/// Fails where a data file is not there under the name that it gets from the log, or is not of this log.
fn check_files(log: &Opened, base: &Base) -> FaultResult {
    let Opened { dir, name, file } = log;
    let files = LogFiles::of(dir, name, file);
    for (file, end) in files_of(name, base.subfiles, &base.ends) {
        // What is there already need not be looked at again.
        if file == *name && log.file.file_id()? == Some(base.id) && log.file.len() >= end {
            refresh(&log.file);
            continue;
        }
        let open = || {
            if file == *name {
                SourceFile::open(dir, name)
            } else {
                files.open(&SourcePath::below(&file))
            }
        };
        refresh(open()?);
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
    Ok(())
}

/// The files of a log, and where each ends.
fn files_of(path: &Path, subfiles: u32, ends: &[u64]) -> Vec<(PathBuf, u64)> {
    if subfiles == 0 {
        return vec![(path.to_owned(), ends.first().copied().unwrap_or(FRONT))];
    }
    let numbered = (0..subfiles).map(|number| subfile(path, number));
    let mut files = vec![(path.to_owned(), FRONT)];
    files.extend(numbered.zip(ends.iter().copied()));
    files
}

/// Gives a file the front of one that is not closed, and cuts off what lies behind its data: the journal has all of it.
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
