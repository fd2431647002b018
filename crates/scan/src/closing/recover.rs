//! Closes a log whose job died before it could close it: `h5logfs recover`.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::front::{Front, Role};
use super::kept::{KeptFile, KeptState, all_kept, remove_taken_in};
use super::stored::OpenImage;
use super::unflushed::{Did, Handled, Unflushing, restore, split, take_in};
use super::{WithObjects, open_to_write, plain, put_front, refusal};
use crate::hdf5_sys::Id;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::extents_until;
use h5logfs_log::journal::closed::{ClosedLog, sealed};
use h5logfs_log::journal::fresh::refresh;
use h5logfs_log::journal::kept::{Kept, keep, path_of_kept};
use h5logfs_log::journal::known_table::{Entries, KnownTable};
use h5logfs_log::journal::unflushed::{Summary, open_data_files, remove_spills};
use h5logfs_log::journal::visible::{MOST_DATA, Unseen, first_unseen, is_sealed};
use h5logfs_log::journal::{self, Beside, HeldFile, Recorded, Torn, Unflushed};
use h5logfs_log::journal::{parent, sync};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::Section;
use h5logfs_log::logvol::extent::{sections, sections_after};
use h5logfs_log::logvol::names::{spill_dir, subfile_dir, subfile_number};
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_log::window::Piece;
use h5logfs_objects::closed::ClosedObjects;
use h5logfs_objects::defined::metadata_image;

/// The result of a close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Flushes of the closed log.
    pub flushes: u64,
    /// The last flush that the program asked for; 0 if there is none.
    pub asked: u64,
    pub datasets: usize,
    /// The end of the journal that was dropped, if there is one.
    pub torn: Option<Torn>,
    /// Problems of the closed log: objects of the program that it lacks.
    pub diagnostics: Vec<Diagnostic>,
    /// The treatment of unflushed data. `None` if there were no such data.
    pub unflushed: Option<Handled>,
}

/// The outcome of a close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The log was not closed. Now it is.
    Recovered(Recovered),
    /// The log was closed already. A journal of an earlier time lay beside it and is removed. The text is the reason.
    Cleared(String),
    /// The log was closed already, and there was nothing to do. These files beside it hold kept data.
    Closed(Vec<KeptFile>),
    /// The log was closed already. These files beside it held kept data and are removed: the caller wants it, or the log contains
    /// all of the data.
    Discarded(Vec<PathBuf>),
}

/// The way to close a log.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    /// The last flush to keep; later flushes are dropped. `None` keeps all complete flushes.
    pub last_flush: Option<u64>,
    /// The inode number of the journal to close. Another number means that another job has opened the log again.
    pub journal: Option<u64>,
    /// The treatment of unflushed data.
    pub unflushed: Unflushing,
    /// The request of the caller.
    pub asked: Asked,
}

/// The request of the caller for an unclosed log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asked {
    /// Close the log, whose job has died, and wait until the files are on the disk.
    #[default]
    Close,
    /// Close the log without waiting for the disk.
    CloseUnsynced,
    /// Close the log for the caller, which has written it and flushed everything.
    CloseOwn {
        /// Wait until the files are on the disk.
        sync: bool,
    },
    /// Turn unflushed data into one more flush. The log stays open.
    TakeIn,
    /// Report what a close would do, and change nothing.
    Tell,
}

impl Asked {
    /// Whether the caller has written the log and flushed everything.
    fn is_own(self) -> bool {
        matches!(self, Asked::CloseOwn { .. })
    }

    /// Whether to wait until the files are on the disk.
    fn syncs(self) -> bool {
        !matches!(self, Asked::CloseUnsynced | Asked::CloseOwn { sync: false })
    }
}

/// A data file of the log, with its records up to the last flush that is kept.
struct DataFile {
    path: PathBuf,
    sections: Vec<Section>,
    /// The end of its data.
    end: u64,
    has_seals: bool,
    /// The part of the same entries that an earlier close left in memory.
    known: Entries,
    /// The table, once it is written.
    table: Piece,
}

/// The limit for entries in memory, in bytes. They stay there when one process closes one log after another.
const MOST_KNOWN: u64 = 32 << 20;

/// Closes the log at `path` from its journal. An interrupted call can be repeated.
pub fn recover(path: &Path, how: How) -> Result<Outcome> {
    recover_knowing(path, how, &mut KnownTable::default())
}

/// Turns unflushed data of the log at `path` into one more flush, and leaves the log unclosed.
///
/// For a closed log, the flush is made of its kept data, provided that no flush has been added to the log since. An interrupted
/// call can be repeated. Returns a sentence about data that cannot be taken in.
pub fn take_in_unflushed(path: &Path) -> Result<Option<String>> {
    let how = How {
        unflushed: Unflushing::TakeIn,
        asked: Asked::TakeIn,
        ..How::default()
    };
    let said = match recover(path, how)? {
        Outcome::Closed(kept) => kept.iter().find_map(too_late),
        Outcome::Recovered(Recovered {
            unflushed: Some(handled),
            ..
        }) => handled.left(),
        _ => None,
    };
    Ok(said.map(|said| format!("{}: {said}", path.display())))
}

/// Closes a log like [`recover`], for a process that closes one log after another. `known` holds the entries of the last log.
pub fn recover_knowing(path: &Path, how: How, known: &mut KnownTable) -> Result<Outcome> {
    let (dir, name) = refusal::open_directory(path)?;
    let master = SourceFile::open(&dir, &name)?;
    let files = LogFiles::of(&dir, &name, &master);
    let path = &dir.full_path(&name);
    let can_be_others = how.last_flush.is_none() && how.asked != Asked::TakeIn;
    if can_be_others && refusal::is_closed_by_others(&files, &master)? {
        return Ok(Outcome::Closed(Vec::new()));
    }
    let is_closed = refusal::is_closed(&files, &master)?;
    let log = Log {
        path,
        files: &files,
        master: &master,
        how,
    };
    let outcome = match lock(path, &files) {
        // The lock holds until the log is closed.
        Ok(lock) => recover_locked(log, &lock, known)?,
        // There is no journal, or it belongs to another log.
        Err(_) if is_closed => return closed(log, known),
        Err(e) => return Err(e),
    };
    let takes_in = how.unflushed == Unflushing::TakeIn && how.asked != Asked::Tell;
    match outcome {
        // A run that was interrupted may have restored the journal from kept data and stopped there. The data may still wait.
        Outcome::Cleared(_) if takes_in => {
            let master = &SourceFile::open(&dir, &name)?;
            match closed(Log { master, ..log }, known)? {
                Outcome::Closed(kept) if kept.is_empty() => Ok(outcome),
                more => Ok(more),
            }
        }
        // An interrupted run may have taken kept data in without removing their file.
        Outcome::Recovered(_) if takes_in && how.asked != Asked::TakeIn => {
            let master = SourceFile::open(&dir, &name)?;
            remove_taken_in(&files, &mut all_kept(&files, &master)?)?;
            Ok(outcome)
        }
        outcome => Ok(outcome),
    }
}

/// A log to close, with the request of the caller.
#[derive(Clone, Copy)]
struct Log<'a> {
    path: &'a Path,
    files: &'a LogFiles<'a>,
    master: &'a SourceFile,
    how: How,
}

/// Handles a log that is closed already.
fn closed(log: Log<'_>, known: &mut KnownTable) -> Result<Outcome> {
    match look_at_closed(log)? {
        Shut::Done(outcome) => Ok(outcome),
        Shut::Restored(journal) => recover_locked(log, journal.file(), known),
    }
}

/// The result of looking at a closed log.
enum Shut {
    /// There is nothing left to do.
    Done(Outcome),
    /// The log has a journal again, made from kept data. The journal is locked.
    Restored(HeldFile),
}

fn look_at_closed(log: Log<'_>) -> Result<Shut> {
    let Log {
        path,
        files,
        master,
        how,
    } = log;
    check_nothing_to_drop(path, how)?;
    let mut kept = all_kept(files, master)?;
    match how.unflushed {
        Unflushing::TakeIn if how.asked != Asked::Tell => {
            let waits = kept.iter().rev();
            let mut waits = waits.filter(|(_, file)| file.state == KeptState::Waits);
            if let Some((kept, _)) = waits.next() {
                return Ok(Shut::Restored(restore(path, files, master, kept)?));
            }
            let removed = remove_taken_in(files, &mut kept)?;
            let late = kept.iter().find_map(|(_, file)| too_late(file));
            match late {
                // The program opens the log again, and the kept data are of no use to it.
                Some(reason) if how.asked != Asked::TakeIn => Err(Error::of(path, reason)),
                _ if removed.is_empty() => Ok(Shut::Done(Outcome::Closed(states(kept)))),
                _ => Ok(Shut::Done(Outcome::Discarded(removed))),
            }
        }
        Unflushing::Discard if how.asked != Asked::Tell && !kept.is_empty() => {
            let removed = kept.iter().map(|(kept, _)| kept.remove(files));
            let removed = removed.collect::<Result<_>>()?;
            Ok(Shut::Done(Outcome::Discarded(removed)))
        }
        _ => Ok(Shut::Done(Outcome::Closed(states(kept)))),
    }
}

fn states(kept: Vec<(Kept, KeptFile)>) -> Vec<KeptFile> {
    kept.into_iter().map(|(_, file)| file).collect()
}

/// The reason why kept data cannot be taken in any more. `None` if they can be, or already are.
fn too_late(file: &KeptFile) -> Option<String> {
    let why = match file.state {
        KeptState::Waits | KeptState::TakenIn { .. } => return None,
        KeptState::Late { follows, last } => format!(
            "has what ranks had written after flush {follows}, and the log has gone on since, to flush {last}: it can no \
             longer be merged"
        ),
        KeptState::Damaged => "is damaged, so it cannot be merged".to_owned(),
    };
    let path = file.path.display();
    Some(format!("{path} {why}. `--discard-unflushed` removes it"))
}

/// Fails if the caller wants to drop flushes of a closed log.
fn check_nothing_to_drop(path: &Path, how: How) -> Result<()> {
    if how.last_flush.is_none() {
        return Ok(());
    }
    let reason = "it is closed already, and a closed log has no flushes that could be dropped";
    Err(Error::of(path, reason))
}

/// Closes a log whose journal the caller has locked, in three phases: examine the log, treat its unflushed data, close it.
fn recover_locked(mut log: Log<'_>, lock: &File, known: &mut KnownTable) -> Result<Outcome> {
    // Journals that replaced the first one. All stay locked until the end.
    let mut later: Vec<HeldFile> = Vec::new();
    let mut taken_in = None;
    let outcome = loop {
        let lock = later.last().map_or(lock, HeldFile::file);
        let mut found = match examine(log, lock)? {
            Examined::Unclosed(found) => found,
            Examined::Stale(reason) => break Outcome::Cleared(reason),
            Examined::Closed => match look_at_closed(log)? {
                Shut::Done(outcome) => break outcome,
                Shut::Restored(journal) => {
                    later.push(journal);
                    continue;
                }
            },
        };
        match handle_unflushed(log, lock, &mut found)? {
            Next::Again(_, handled) if log.how.asked == Asked::TakeIn => {
                break Outcome::Recovered(Recovered {
                    flushes: found.flushes + 1,
                    ..Recovered::of(&found.kept, Some(handled))
                });
            }
            Next::Again(journal, handled) => {
                later.push(journal);
                log.how.unflushed = Unflushing::Discard;
                taken_in = Some(handled);
            }
            Next::Done(handled) if log.how.asked == Asked::TakeIn => {
                break Outcome::Recovered(Recovered::of(&found.kept, handled));
            }
            Next::Done(handled) => break close(log, lock, &found, handled, known)?,
        }
    };
    Ok(match taken_in {
        Some(handled) => outcome.with(handled),
        None => outcome,
    })
}

/// The state of a log whose journal is locked.
enum Examined {
    /// The log is not closed.
    Unclosed(Box<Unclosed>),
    /// The log is closed. A journal of an earlier time lay beside it, and is removed unless the caller wants a report only. The
    /// text is the reason.
    Stale(String),
    /// The log is closed and has no journal. Either its job has closed it meanwhile, or the journal belongs to another log.
    Closed,
}

/// A log that has not been closed.
struct Unclosed {
    begun: Begun,
    /// The journal up to the last flush that is kept.
    kept: Recorded,
    /// Flushes of the whole journal.
    flushes: u64,
    /// Unflushed data. `None` if the caller has flushed everything.
    unflushed: Option<Found>,
}

/// The first phase: examines the log. The only change that it makes is to remove a journal of an earlier time.
fn examine(log: Log<'_>, lock: &File) -> Result<Examined> {
    let Log {
        path,
        files,
        master,
        how,
    } = log;
    let is_locked = |identity| {
        let checked = check_locked(lock, identity);
        checked.map_err(|e| Error::io(journal::path_of(path), e))
    };
    let begun = Begun::of(path, lock, how)?;
    let all = match Beside::of(files, master)? {
        Beside::Journal(_, all) => *all,
        Beside::Stale(stale) => {
            check_nothing_to_drop(path, how)?;
            is_locked(stale.identity)?;
            if how.asked != Asked::Tell {
                remove_journal(path, files.dir(), how, lock)?;
                if how.asked.syncs() {
                    sync(parent(path))?;
                }
            }
            return Ok(Examined::Stale(stale.reason));
        }
        Beside::Nothing => return Ok(Examined::Closed),
    };
    is_locked(all.identity)?;
    let is_own = how.asked.is_own();
    if !is_own && all.metadata_image.is_some() {
        refusal::check_owner(path, &all)?;
    }
    let flushes = all.flushes();
    let unflushed = if is_own {
        None
    } else {
        Some(Found::of(files, &all, how)?)
    };
    let kept = choose_flushes(path, files, all, how.last_flush)?;
    for file in &open_data_files(files, &kept.header)? {
        file.descriptor().map(refresh);
    }
    if !is_own {
        check_whole(path, files, &kept)?;
    }
    Ok(Examined::Unclosed(Box::new(Unclosed {
        begun,
        kept,
        flushes,
        unflushed,
    })))
}

/// The second phase: treats unflushed data as the caller wants.
fn handle_unflushed(log: Log<'_>, lock: &File, found: &mut Unclosed) -> Result<Next> {
    match found.unflushed.take() {
        Some(unflushed) if found.kept.flushes() == found.flushes => {
            unflushed.handle(log.path, log.files, &found.kept, log.how, lock)
        }
        // The data follow flushes that are dropped.
        Some(unflushed) => Ok(Next::Done(unflushed.discarded())),
        None => Ok(Next::Done(None)),
    }
}

/// The third phase: closes the log. All reads come before all writes, because reads can fail.
fn close(
    log: Log<'_>,
    lock: &File,
    found: &Unclosed,
    handled: Option<Handled>,
    known: &mut KnownTable,
) -> Result<Outcome> {
    let Log {
        path, files, how, ..
    } = log;
    let Unclosed {
        begun,
        kept,
        flushes,
        ..
    } = found;
    let mut data_files =
        read_data_files(files, kept, known).map_err(|e| with_way_out(files, kept, e))?;
    let objects = Objects::of(path, kept)?;
    if how.asked == Asked::Tell {
        return Ok(Outcome::Recovered(Recovered::of(kept, handled)));
    }
    let syncs = how.asked.syncs();
    // If the log goes on from a closed state, the names of its files are on the disk already. So is the journal with the state at
    // the start of the job, which describes the log until the close is complete. If a crash brings the journal back later, the
    // log file proves that it is closed. Programs that close their log after each step save three waits for the disk this way.
    let goes_on = how.asked.is_own() && kept.header.append.is_some() && kept.header.subfiles == 0;
    if syncs && !goes_on {
        // The journal must describe the log until all that the front leads to is on the disk.
        let synced = lock.sync_data();
        synced.map_err(|e| Error::io(journal::path_of(path), e))?;
    }
    // Holds the lock of the journal that replaces the old one.
    let shortened = if kept.flushes() < *flushes {
        Some(drop_flushes(path, kept, &data_files, lock)?)
    } else {
        None
    };
    begun.check(path, lock)?;
    let diagnostics = objects.write_closed(path, &mut data_files, syncs)?;
    if syncs {
        sync_all(path, &data_files, goes_on)?;
    }
    begun.check(path, lock)?;
    let is_proven = goes_on && proves_its_close(files)?;
    let journal = shortened.as_ref().map_or(lock, HeldFile::file);
    remove_journal(path, files.dir(), how, journal)?;
    if syncs && !is_proven {
        sync(parent(path))?;
    }
    if let [file] = data_files.as_mut_slice()
        && kept.header.subfiles == 0
        && let Ok(found) = SourceFile::open(files.dir(), files.log()).and_then(|log| log.metadata())
    {
        let entries = std::mem::take(&mut file.known);
        *known = KnownTable::new(&found, closed_log(kept, file), entries);
    }
    Ok(Outcome::Recovered(Recovered {
        diagnostics,
        ..Recovered::of(kept, handled)
    }))
}

/// The length of the journal before it was read. A job on a node that does not see the lock keeps writing.
struct Begun {
    /// `None` if the journal's job is the caller, which no longer writes.
    len: Option<u64>,
}

impl Begun {
    /// Fails if the journal belongs to another job than the caller expects.
    fn of(path: &Path, lock: &File, how: How) -> Result<Self> {
        let found = lock.metadata();
        let found = found.map_err(|e| Error::io(journal::path_of(path), e))?;
        if how.journal.is_some_and(|number| number != found.ino()) {
            return Err(Error::of(path, "another job has opened it again"));
        }
        Ok(Begun {
            len: (!how.asked.is_own()).then_some(found.len()),
        })
    }

    /// Fails if the journal has grown: its job still runs.
    fn check(&self, path: &Path, lock: &File) -> Result<()> {
        let Some(len) = self.len else {
            return Ok(());
        };
        refresh(lock);
        let found = lock.metadata();
        let found = found.map_err(|e| Error::io(journal::path_of(path), e))?;
        if found.len() == len {
            return Ok(());
        }
        let reason = "a job writes it: its journal has just grown, though this node does not see that it is locked. Wait for the \
                      end of the job";
        Err(Error::of(path, reason))
    }
}

impl Recovered {
    /// The result for a log whose journal keeps these flushes.
    fn of(kept: &Recorded, unflushed: Option<Handled>) -> Self {
        Recovered {
            flushes: kept.flushes(),
            asked: kept.asked(),
            datasets: kept.datasets(),
            torn: kept.torn,
            diagnostics: Vec::new(),
            unflushed,
        }
    }
}

impl Outcome {
    /// Adds the treatment of unflushed data, which came before the close.
    fn with(self, handled: Handled) -> Self {
        match self {
            Outcome::Recovered(recovered) => Outcome::Recovered(Recovered {
                unflushed: Some(handled),
                ..recovered
            }),
            other => other,
        }
    }
}

/// Unflushed data of a log.
struct Found {
    all: Unflushed,
    /// The file of kept data that an earlier or interrupted run has made of them.
    kept: Option<Kept>,
}

/// The way on from unflushed data.
enum Next {
    Done(Option<Handled>),
    /// Start over with this journal.
    Again(HeldFile, Handled),
}

impl Found {
    fn of(files: &LogFiles<'_>, journal: &Recorded, how: How) -> Result<Self> {
        let takes_in = how.unflushed == Unflushing::TakeIn;
        let mut kept = None;
        if takes_in {
            for found in Kept::all(files)? {
                if found.is_of(files, journal)? {
                    kept = Some(found);
                }
            }
        }
        let all = Unflushed::with_kept(files, journal, takes_in, kept.as_ref())?;
        Ok(Found { all, kept })
    }

    fn discarded(self) -> Option<Handled> {
        let summary = self.all.summary();
        (summary != Summary::default()).then_some(Handled {
            summary,
            did: Did::Discarded,
        })
    }

    /// Treats the data as the caller wants.
    fn handle(
        self,
        path: &Path,
        files: &LogFiles<'_>,
        journal: &Recorded,
        how: How,
        lock: &File,
    ) -> Result<Next> {
        let summary = self.all.summary();
        if self.all.is_empty() || how.unflushed == Unflushing::Discard {
            return Ok(Next::Done(self.discarded()));
        }
        let done = |did| {
            Next::Done(Some(Handled {
                summary: summary.clone(),
                did,
            }))
        };
        if how.unflushed == Unflushing::Keep {
            let kept = if how.asked == Asked::Tell {
                path_of_kept(path, 1)
            } else {
                keep(files, journal, &self.all)?
            };
            return Ok(done(Did::Kept(kept)));
        }
        let mut all = split(journal, self.all);
        let left = match (all.apart.is_empty(), how.asked == Asked::Tell) {
            (true, _) => None,
            (false, true) => Some(path_of_kept(path, 1)),
            (false, false) => {
                let ranks = std::mem::take(&mut all.ranks);
                let left = keep(files, journal, &all)?;
                all.ranks = ranks;
                Some(left)
            }
        };
        if all.ranks.is_empty() || how.asked == Asked::Tell {
            let grown = Vec::new();
            return Ok(done(Did::TakenIn { grown, left }));
        }
        let (journal, grown) = take_in(path, files, journal, &all, lock)?;
        if let Some(kept) = &self.kept
            && left != Some(files.full_path(&kept.place))
        {
            kept.remove(files)?;
        }
        let did = Did::TakenIn { grown, left };
        Ok(Next::Again(journal, Handled { summary, did }))
    }
}

/// Removes the journal of a closed log, which the caller has locked, and files that are no longer needed. A crash of the system
/// may bring the journal back until the directory is on the disk.
fn remove_journal(path: &Path, dir: &SourceDir, how: How, lock: &File) -> Result<()> {
    if !how.asked.is_own() {
        remove_left_behind(path);
        // The data of spill files are in a flush or kept elsewhere, or are to be discarded.
        remove_spills(path).map_err(|e| Error::io(spill_dir(path), e))?;
    }
    let journal_path = journal::path_of(path);
    let name = journal_path.file_name().unwrap_or_default();
    let remove = || {
        let found = dir.open_file(Path::new(name))?.metadata()?;
        check_locked(lock, Identity::from(&found))?;
        dir.remove(name)
    };
    remove().map_err(|e| Error::io(&journal_path, e))
}

/// Whether a closed log proves by itself that it is closed. If so, a journal that a crash of the system brings back does no harm.
fn proves_its_close(files: &LogFiles<'_>) -> Result<bool> {
    let master = SourceFile::open(files.dir(), files.log())?;
    let seal = sealed(&master).map_err(|fault| Error::of(master.path(), fault))?;
    Ok(seal.is_some())
}

/// Drops the flushes after the last one to keep. The journal is shortened first: its remaining part is true of each data file,
/// both before and after the file is replaced. Returns the new journal, which is locked.
fn drop_flushes(
    path: &Path,
    kept: &Recorded,
    data_files: &[DataFile],
    mut journal: &File,
) -> Result<HeldFile> {
    let journal_path = journal::path_of(path);
    let mut shorten_journal = || {
        journal.rewind()?;
        shorten(&journal_path, journal, kept.len, &kept.id, |new| {
            journal::lock(new).map(drop)
        })
    };
    let shortened = shorten_journal().map_err(|e| Error::io(&journal_path, e))?;
    sync(parent(path))?;
    for file in data_files {
        let shorten_data = || {
            let old = File::open(&file.path)?;
            kept.id.check(&old)?;
            shorten(&file.path, &old, file.end, &kept.id, |_| Ok(()))
        };
        shorten_data().map_err(|e| Error::io(&file.path, e))?;
    }
    // All data files lie in one directory.
    if let Some(file) = data_files.first() {
        sync(parent(&file.path))?;
    }
    Ok(shortened)
}

/// Replaces a file by a new file with its first `len` bytes. `begin` is called with the new file while it is empty. A program
/// that has the old file open keeps reading the dropped flushes; in a file shortened in place it would read other bytes without
/// notice.
fn shorten(
    path: &Path,
    old: &File,
    len: u64,
    id: &FileId,
    begin: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<HeldFile> {
    HeldFile::create(path, &id.number(), true, |mut new| {
        begin(new)?;
        io::copy(&mut old.take(len), &mut new).map(drop)
    })
}

/// Removes files that dead processes left while they created files of the log. The lock of the journal keeps other processes from
/// creating files meanwhile. A failure does no harm.
fn remove_left_behind(path: &Path) {
    let log = path.file_name().unwrap_or_default();
    let beside = [log.to_owned(), journal::path_of(Path::new(log)).into()];
    let is_subfile = |name: &OsStr| subfile_number(log, name).is_some();
    let removed =
        journal::remove_left_behind(parent(path), |name| beside.iter().any(|n| n == name))
            .and_then(|()| journal::remove_left_behind(&subfile_dir(path), is_subfile));
    if let Err(e) = removed {
        log::debug!("{}: {e}", path.display());
    }
}

/// Forces all written bytes to the disk. `are_named`: the names of all files are on the disk already.
fn sync_all(path: &Path, data_files: &[DataFile], are_named: bool) -> Result<()> {
    data_files.iter().try_for_each(|file| sync(&file.path))?;
    // The job has not forced these names to the disk.
    if let Some(file) = data_files.first()
        && !are_named
    {
        sync(parent(&file.path))?;
    }
    let is_apart = |file: &DataFile| file.path != path;
    if data_files.iter().all(is_apart) {
        sync(path)?;
    }
    Ok(())
}

/// The objects of a closed log.
struct Objects<'a> {
    journal: &'a Recorded,
    made: Made<'a>,
}

/// The maker of the objects.
enum Made<'a> {
    /// Our own code, which also makes the front of the file.
    Plainly(ClosedObjects),
    /// libhdf5, with the creation properties of the new file.
    ByLibrary { image: OpenImage<'a>, creation: Id },
}

impl<'a> Made<'a> {
    fn by_library(path: &Path, journal: &'a Recorded) -> Result<Self> {
        let open = || {
            let image = OpenImage::of_journal(journal)?;
            let creation = image.creation()?;
            Ok(Made::ByLibrary { image, creation })
        };
        open().map_err(|e: Fault| Error::of(path, plain(&e.to_string())))
    }
}

/// The objects of a log in one file, unless libhdf5 has to make them.
fn plain_objects(journal: &Recorded) -> Option<ClosedObjects> {
    if journal.header.subfiles > 0 {
        return None;
    }
    ClosedObjects::of_image(&*metadata_image(journal).ok()?)
}

impl<'a> Objects<'a> {
    fn of(path: &Path, journal: &'a Recorded) -> Result<Self> {
        let made = match plain_objects(journal) {
            Some(objects) => Ok(Made::Plainly(objects)),
            None => Made::by_library(path, journal),
        };
        Ok(Objects {
            journal,
            made: made?,
        })
    }

    /// Turns the files of the log into HDF5 files, and leaves the journal in place. Returns diagnostics about objects that could
    /// not be added. `is_synced`: the front of the file with the objects is written only after all that it leads to is on the
    /// disk.
    fn write_closed(
        &self,
        path: &Path,
        data_files: &mut [DataFile],
        is_synced: bool,
    ) -> Result<Vec<Diagnostic>> {
        for file in &mut *data_files {
            let table = write_table(file, &self.journal.id);
            file.table = table.map_err(|e| Error::io(&file.path, e))?;
        }
        match (&self.made, &*data_files) {
            (Made::Plainly(objects), [file]) => {
                self.write_plainly(path, objects, closed_log(self.journal, file))
            }
            (Made::Plainly(_), _) => Err(Error::of(path, "a log that is not in one file")),
            (Made::ByLibrary { image, creation }, _) => {
                self.write_by_library(path, data_files, (image, creation), is_synced)
            }
        }
    }

    fn write_by_library(
        &self,
        path: &Path,
        data_files: &[DataFile],
        (image, creation): (&OpenImage<'_>, &Id),
        is_synced: bool,
    ) -> Result<Vec<Diagnostic>> {
        let has_seals = data_files.iter().any(|file| file.has_seals);
        let front = |role| self.front(role, has_seals);
        let of_file = |file: &DataFile| {
            let ClosedLog { data, table, .. } = closed_log(self.journal, file);
            front(Role::Log { data, table })
        };
        let is_apart = self.journal.header.subfiles > 0;
        let own = match data_files {
            [file] if !is_apart => of_file(file),
            _ => front(Role::Master),
        };
        // This step may fail, so it comes before any file says that it is closed.
        let made = WithObjects::of(path, own, creation, image)?;
        for file in data_files.iter().filter(|_| is_apart) {
            put_front(&file.path, of_file(file), creation)?;
            if is_synced {
                sync(&file.path)?;
            }
        }
        made.write(path, &self.journal.id, is_synced)?;
        Ok(made.diagnostics)
    }

    /// Writes the front and the objects of a log in one file.
    fn write_plainly(
        &self,
        path: &Path,
        objects: &ClosedObjects,
        log: ClosedLog<'_>,
    ) -> Result<Vec<Diagnostic>> {
        let metadata = objects.metadata(log, self.journal.dataset_ids());
        let metadata = metadata.map_err(|fault| Error::of(path, fault))?;
        let file = open_to_write(path, log.id)?;
        metadata.write_to(&file).map_err(|e| Error::io(path, e))?;
        Ok(Vec::new())
    }

    fn front(&self, role: Role, has_seals: bool) -> Front<'_> {
        let Recorded { header, id, .. } = self.journal;
        Front {
            header,
            id,
            datasets: self.journal.dataset_ids(),
            role,
            flush: self.journal.flushes(),
            has_seals,
        }
    }
}

/// Locks the journal of the log at `path`. Fails if a running job holds the lock, or if the journal belongs to another user.
fn lock(path: &Path, files: &LogFiles<'_>) -> Result<File> {
    let place = SourcePath::below(journal::path_of(files.log()));
    let journal_path = files.full_path(&place);
    // NFS locks only files that are open for writing.
    let opened = files.open_file(&place, OFlags::RDWR);
    let file = opened.map_err(|e| refusal::without_journal(files, e))?;
    journal::lock(&file).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => Error::of(path, refusal::running(files)),
        _ => Error::io(&journal_path, e),
    })?;
    // Bytes of the journal that this node does not see yet would be lost.
    refresh(&file);
    Ok(file)
}

/// Fails if the journal that was read is not the locked one: a new job has replaced it in between.
fn check_locked(lock: &File, read: Identity) -> io::Result<()> {
    let locked = Identity::from(&lock.metadata()?);
    if (locked.device, locked.inode) == (read.device, read.inode) {
        return Ok(());
    }
    Err(io::Error::other("another file has its name now"))
}

/// The journal up to flush `last`, or all of it. A damaged journal is read only with a `last`.
fn choose_flushes(
    path: &Path,
    files: &LogFiles<'_>,
    all: Recorded,
    last: Option<u64>,
) -> Result<Recorded> {
    let flushes = all.flushes();
    match (last, all.torn) {
        (Some(last), _) if last > flushes => {
            let reason = format!("it has {flushes} flushes, not {last}");
            Err(Error::of(path, reason))
        }
        (Some(last), _) if last < all.first_flush() => {
            let first = all.first_flush();
            let reason = format!(
                "its last append began after flush {first}, and what it had after flush {last} is no longer known"
            );
            Err(Error::of(path, reason))
        }
        (Some(last), _) => {
            let journal = files.open(&SourcePath::below(journal::path_of(files.log())))?;
            Recorded::read_until(&journal, last)
        }
        (None, Some(torn)) if torn.may_lose_flushes() => {
            let way_out = match last_whole(files, &all) {
                Some(last) if last == flushes => format!("; `--last-flush {last}` drops them"),
                last => words_of_way_out(last),
            };
            Err(Error::of(path, format!("{torn}{way_out}")))
        }
        (None, _) => Ok(all),
    }
}

/// Fails if a flush to keep cannot be read completely. Readers compare flushes to the same limit ([`MOST_DATA`]).
fn check_whole(path: &Path, files: &LogFiles<'_>, journal: &Recorded) -> Result<()> {
    if !is_sealed(journal) {
        return Ok(());
    }
    let sources = open_data_files(files, &journal.header)?;
    let Some(unseen) = first_unseen(journal, &sources, MOST_DATA) else {
        return Ok(());
    };
    let Unseen { flush, reason } = unseen;
    let way_out = last_whole(files, journal).map_or(String::new(), |last| {
        format!(". If it is damaged, `--last-flush {last}` drops it")
    });
    let reason = format!(
        "not all of flush {flush} can be read here: {reason}. Where another node wrote it a short time ago, wait, or \
         recover the log there{way_out}"
    );
    Err(Error::of(path, reason))
}

/// The error of a log whose data files lack some of its flushes. Names the option that helps.
fn with_way_out(files: &LogFiles<'_>, journal: &Recorded, damage: Error) -> Error {
    let Error::BadFile { path, reason } = damage else {
        return damage;
    };
    let last = last_whole(files, journal);
    let last = last.filter(|last| *last < journal.flushes());
    Error::BadFile {
        path,
        reason: reason + &words_of_way_out(last),
    }
}

fn words_of_way_out(last: Option<u64>) -> String {
    match last {
        Some(0) => "; no flush is whole: `--last-flush 0` leaves an empty log".to_owned(),
        Some(last) => format!("; `--last-flush {last}` drops what is damaged"),
        None => String::new(),
    }
}

/// The last flush with which the log can be closed: up to it, the data files hold everything that the journal lists. `None` if
/// the log cannot be closed with any flush.
fn last_whole(files: &LogFiles<'_>, journal: &Recorded) -> Option<u64> {
    let sources = open_data_files(files, &journal.header).ok()?;
    let is_whole = |commits: usize| {
        let has_all = |(number, source): (usize, &SourceFile)| {
            let ends = journal.ends(number).take(commits);
            let found = sections(source, number as u16, ends);
            found.is_ok_and(|found| found.diagnostics.is_empty())
        };
        sources.iter().enumerate().all(has_all)
    };
    let numbers: Vec<usize> = (1..=journal.commits.len()).collect();
    let whole = numbers.partition_point(|commits| is_whole(*commits));
    let last = match whole.checked_sub(1) {
        Some(at) => journal.commits.get(at)?.flush,
        // No flush is whole, so the log is empty. An append needs the state at its start.
        None => 0,
    };
    let unseen = is_sealed(journal)
        .then(|| first_unseen(journal, &sources, MOST_DATA))
        .flatten();
    let last = unseen.map_or(last, |unseen| last.min(unseen.flush.saturating_sub(1)));
    (last >= journal.first_flush()).then_some(last)
}

fn read_data_files(
    files: &LogFiles<'_>,
    journal: &Recorded,
    known: &mut KnownTable,
) -> Result<Vec<DataFile>> {
    let sources = open_data_files(files, &journal.header)?;
    let read = |(number, source): (usize, SourceFile)| {
        let path = source.path().to_owned();
        if source.file_id()? != Some(journal.id) {
            return Err(Error::of(path, "it belongs to another log"));
        }
        let known = match journal.header.subfiles {
            0 => {
                let flushes: Vec<_> = journal.ends(number).collect();
                let known = std::mem::take(known);
                known
                    .of_file(&source.metadata()?, &journal.id)
                    .up_to(&flushes)
            }
            _ => KnownTable::default(),
        };
        let behind = known.behind();
        let ends = journal.ends(number).filter(|(flush, _)| *flush > behind.0);
        let found = sections_after(&source, number as u16, behind, ends)?;
        if let Some(diagnostic) = found.diagnostics.first() {
            return Err(Error::of(&path, diagnostic.to_string()));
        }
        Ok(DataFile {
            path,
            sections: found.sections,
            end: journal.end(number),
            has_seals: found.has_seals || known.has_seals,
            known: known.entries,
            table: Piece { offset: 0, len: 0 },
        })
    };
    sources.into_iter().enumerate().map(read).collect()
}

/// Writes the table of a data file after its data (`docs/formats/logvol.md`, section 4): one section for each rank.
fn write_table(data_file: &mut DataFile, id: &FileId) -> io::Result<Piece> {
    let end = data_file.end;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open(&data_file.path)?;
    id.check(&file)?;
    file.set_len(end)?;
    let table = Piece {
        offset: end,
        len: data_file
            .known
            .write(&file, &data_file.sections, end, MOST_KNOWN)?,
    };
    Ok(table)
}

/// The closed form of a data file that has its table.
fn closed_log<'a>(journal: &'a Recorded, file: &DataFile) -> ClosedLog<'a> {
    ClosedLog {
        header: &journal.header,
        id: &journal.id,
        data: extents_until(file.end),
        table: file.table,
        flush: journal.flushes(),
        has_seals: file.has_seals,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::hdf5_sys::{self as h5, Link, Name, Space, Target, Values};
    use crate::scales::{ScaleAttributes, ScaleUse};
    use h5logfs_hdf5_format::Chunk;
    use h5logfs_hdf5_format::Objects as HdfObjects;
    use h5logfs_hdf5_format::filters::{Filter, OPTIONAL};
    use h5logfs_log::front::{FRONT, unclosed_front};
    use h5logfs_log::journal::datatype::Datatype;
    use h5logfs_log::journal::definition::{DatasetLayout, Definition};
    use h5logfs_log::journal::metadata_image::{LoggedDataset, image_lines};
    use h5logfs_log::journal::value::Value;
    use h5logfs_log::journal::{Commit, Header, Journal, Line};
    use h5logfs_log::scan::{ScanRequest, Settings};
    use h5logfs_log::snapshot::{Content, Snapshot, Storage};

    type Made<T> = std::result::Result<T, Fault>;

    const ID: FileId = FileId([7; 16]);

    /// A metadata image, and the header addresses of its logged datasets. `more` adds objects.
    fn metadata_image(more: impl Fn(&Id, &Id) -> Made<()>) -> Made<(Vec<u8>, Vec<u64>)> {
        let file = h5::create_in_memory(&h5::new_file_creation()?)?;
        let root = h5::open_group(&file, c"/")?;
        let group = |parent: &Id, name: &str| {
            h5::create_group(parent, &Link::ascii(name), &h5::new_group_creation()?)
        };
        let numbers = |object: &Id, name: &str| {
            let space = Space::fixed(&[2]).create()?;
            let datatype = h5::integer_type(2, false, true)?;
            h5::write_plain_attribute(object, Name::ascii(name), &datatype, &space, &[1, 2, 3, 4])
        };
        let texts = |object: &Id, name: &str, texts: &[&str]| {
            let texts: Vec<_> = texts
                .iter()
                .map(|text| CString::new(*text).unwrap())
                .collect();
            let space = Space::fixed(&[texts.len() as u64]).create()?;
            let name = Name {
                bytes: name.as_bytes(),
                utf8: true,
            };
            h5::write_texts(object, name, &space, &texts)
        };
        let (deep, many) = (group(&root, "deep")?, group(&root, "_many")?);
        let deeper = group(&deep, "deeper")?;
        group(&deeper, "empty")?;
        h5::set_comment(&deep, c"a comment")?;
        numbers(&root, "numbers")?;
        texts(&root, "_text", &["K", ""])?;
        texts(&deeper, "long", &[&"n".repeat(70_000), "short"])?;
        for number in 0..900 {
            texts(
                &group(&deep, &format!("group {number}"))?,
                "a text",
                &[&"x".repeat(number)],
            )?;
        }
        let (mut headers, integers) = (Vec::new(), h5::integer_type(4, true, false)?);
        let plain = h5::new_dataset_creation()?;
        let mut dataset = |parent: &Id, name: &str, space: Space, creation: &Id| {
            let space = space.create()?;
            let dataset =
                h5::create_dataset(parent, &Link::ascii(name), &integers, &space, creation)?;
            headers.push(h5::address(&dataset)?);
            Made::Ok(dataset)
        };
        for number in 0..700 {
            let name = format!("dataset {}", number * 7919 % 1000);
            dataset(&many, &name, Space::fixed(&[number, 3]), &plain)?;
        }
        let chunked = h5::new_dataset_creation()?;
        h5::set_storage(&chunked, &Storage::Chunked(vec![2, 3]))?;
        h5::set_fill_value(&chunked, &integers, &[1, 2, 3, 4])?;
        let shuffle = Filter {
            id: 2,
            flags: 1,
            values: vec![4],
        };
        h5::add_filter(&chunked, &shuffle)?;
        let limits = Space::with_limits(&[0, 5], &[None, Some(6)]);
        let made = dataset(&deeper, "_chunked", limits, &chunked)?;
        numbers(&made, "_n")?;
        texts(&made, "units", &["K"])?;
        h5::set_comment(&made, c"of a dataset")?;
        h5::link_object(&made, &root, &Link::ascii("another name"))?;
        let untimed = h5::new_dataset_creation()?;
        h5::track_times(&untimed, false)?;
        dataset(&root, "scalar", Space::scalar(), &untimed)?;
        let soft = Link {
            target: Target::Soft(c"/deep/deeper".into()),
            ..Link::ascii("soft")
        };
        h5::create_symbolic_link(&root, &soft)?;
        scale(&root, &deep, &made)?;
        unicode_names(&root, &made)?;
        more(&root, &made)?;
        drop((deep, many, deeper, made));
        let image = h5::file_image(&file)?;
        Ok((image, headers))
    }

    /// Makes `dataset` a dimension scale, and adds references to it and to a group.
    fn scale(root: &Id, group: &Id, dataset: &Id) -> Made<()> {
        let attributes = ScaleAttributes::new()?;
        attributes.make_scale(dataset, b"x")?;
        let uses = [root, group].map(|object| {
            Ok(ScaleUse {
                dataset: h5::address(object)?,
                dimension: 1,
            })
        });
        let uses = uses.into_iter().collect::<Made<Vec<_>>>()?;
        attributes.reference_list(dataset, &uses)?;
        let lists = [vec![h5::address(dataset)?, h5::address(root)?], Vec::new()];
        attributes.dimension_list(group, &lists)?;
        let references = [h5::address(dataset)?, 0].map(u64::to_le_bytes);
        let (reference, two) = (h5::object_reference_type()?, Space::fixed(&[2]).create()?);
        let name = Name::ascii("references");
        h5::write_plain_attribute(root, name, &reference, &two, references.as_flattened())?;
        let numbers = h5::sequence_type(&h5::integer_type(1, true, false)?)?;
        h5::write_sequences(
            root,
            Name::ascii("lists"),
            &numbers,
            &two,
            &[&[1, 2, 3], &[]],
        )
    }

    /// Makes a group with link messages in its header, because the names of its links are not ASCII.
    fn unicode_names(root: &Id, dataset: &Id) -> Made<()> {
        let creation = h5::new_group_creation()?;
        let group = h5::create_group(root, &Link::ascii("names"), &creation)?;
        let link = |name: &str, target| Link {
            name: name.as_bytes().to_vec(),
            utf8: true,
            target,
        };
        h5::link_object(dataset, &group, &link("_größe", Target::Hard(0)))?;
        h5::link_object(root, &group, &link("ascii", Target::Hard(0)))?;
        h5::link_object(root, &group, &Link::ascii("back"))?;
        h5::create_symbolic_link(&group, &link("weich", Target::Soft(c"/deep/tief".into())))
    }

    /// The journal of a log with these objects.
    fn recorded(dir: &Path, image: &[u8], headers: &[u64]) -> Recorded {
        let mut lines = image_lines(&[], image).unwrap();
        lines.extend(headers.iter().enumerate().map(|(id, header)| {
            Line::Logged(LoggedDataset {
                id: id as u32,
                header: Some(*header),
            })
        }));
        journal_of(dir, lines)
    }

    fn journal_of(dir: &Path, mut lines: Vec<Line>) -> Recorded {
        let path = dir.join("journal");
        lines.push(Line::Commit(Commit::new(1, vec![FRONT])));
        let header = Header::new(&ID, 1, 0, 0);
        Journal::create_with(&path, &header, &lines, false, false).unwrap();
        let (below, name) = SourceDir::of_file(&path).unwrap();
        Recorded::read(&SourceFile::open(&below, &name).unwrap()).unwrap()
    }

    /// The scan of a log that was closed with these objects.
    fn closed(path: &Path, objects: &Objects<'_>) -> Snapshot {
        std::fs::write(path, unclosed_front(&ID)).unwrap();
        let mut data_files = [DataFile {
            path: path.to_owned(),
            sections: Vec::new(),
            end: FRONT,
            has_seals: false,
            known: Entries::default(),
            table: Piece { offset: 0, len: 0 },
        }];
        let diagnostics = objects.write_closed(path, &mut data_files, false).unwrap();
        assert!(diagnostics.is_empty(), "{diagnostics:?}");
        let (dir, name) = SourceDir::of_file(path).unwrap();
        let settings = Settings::default();
        assert!(
            sealed(&SourceFile::open(&dir, &name).unwrap())
                .unwrap()
                .is_some()
        );
        crate::scan(ScanRequest::alone(&dir, &name, &settings)).unwrap()
    }

    #[test]
    fn objects_that_are_made_without_libhdf5_are_those_that_it_makes() {
        let dir = tempfile::tempdir().unwrap();
        let (image, headers) = metadata_image(|_, _| Ok(())).unwrap();
        let journal = recorded(dir.path(), &image, &headers);
        compare_both(dir.path(), &journal, headers.len());
    }

    /// Compares scans of two closed logs: libhdf5 made the objects of one, our code those of the other.
    fn compare_both(dir: &Path, journal: &Recorded, datasets: usize) {
        let plainly = Objects::of(dir, journal).unwrap();
        assert!(matches!(plainly.made, super::Made::Plainly(_)));
        let by_library = Objects {
            journal,
            made: super::Made::by_library(dir, journal).unwrap(),
        };
        let found = closed(&dir.join("plainly"), &plainly);
        let wanted = closed(&dir.join("by libhdf5"), &by_library);
        assert_eq!(found.datasets.len(), datasets);
        let ids = found.datasets.iter().map(|dataset| match dataset.content {
            Content::Logged { id, .. } => id,
            _ => -1,
        });
        assert!(ids.max() == Some(datasets as i64 - 1));
        assert_eq!(found.diagnostics, wanted.diagnostics);
        let mut both = found.datasets.iter().zip(&wanted.datasets);
        let differ = both.find(|(found, wanted)| found != wanted);
        assert_eq!(
            (differ, found.datasets.len()),
            (None, wanted.datasets.len())
        );
        assert!(found.image == wanted.image, "the images differ");
    }

    /// One datatype of each kind, and some that nest.
    fn datatypes() -> Vec<Datatype> {
        let mut all = Vec::new();
        for big_endian in [false, true] {
            for size in [1, 2, 4, 8] {
                all.extend([true, false].map(|signed| Datatype::Integer {
                    size,
                    signed,
                    big_endian,
                }));
                all.push(Datatype::Bitfield { size, big_endian });
            }
            all.extend([4, 8].map(|size| Datatype::Float { size, big_endian }));
        }
        for tag in ["", "7 bytes", "8 bytes.", &"t".repeat(248)] {
            let tag = tag.to_owned();
            all.push(Datatype::Opaque { size: 5, tag });
        }
        all.extend([true, false].map(|utf8| Datatype::Text { size: 9, utf8 }));
        all.push(Datatype::boolean());
        let enumeration = |big_endian| Datatype::Enumeration {
            base: Box::new(Datatype::Integer {
                size: 2,
                signed: true,
                big_endian,
            }),
            members: vec![("low".into(), -2), ("eight by".into(), 0x0102)],
        };
        all.extend([enumeration(true), enumeration(false)]);
        let array = Datatype::Array {
            base: Box::new(enumeration(true)),
            dims: vec![2, 3],
        };
        let compound = |members: Vec<(&str, Datatype)>| {
            let mut size = 0;
            let members = members.into_iter().map(|(name, datatype)| {
                let offset = size;
                size += datatype.size();
                (name.to_owned(), offset, datatype)
            });
            let members: Vec<_> = members.collect();
            Datatype::compound(size, members)
        };
        let plain = compound(vec![
            ("a", Datatype::float(8)),
            ("eight by", Datatype::integer(1, false)),
        ]);
        let with_array = compound(vec![
            ("p", plain.clone()),
            ("ä", array.clone()),
            ("e", enumeration(false)),
        ]);
        let of_compounds = Datatype::Array {
            base: Box::new(plain.clone()),
            dims: vec![4],
        };
        all.extend([array, plain, with_array, of_compounds]);
        all
    }

    /// Definitions of objects of all kinds, and the number of their datasets.
    fn definitions() -> (Vec<Definition>, usize) {
        let attribute = |object: &str, name: &str, value: Value| Definition::Attribute {
            object: object.into(),
            name: name.into(),
            value,
        };
        let group = |path: &str| Definition::Group { path: path.into() };
        let mut datasets = 0;
        let mut dataset = |path: String, layout: DatasetLayout| {
            datasets += 1;
            let layout = Box::new(layout);
            Definition::Dataset { path, layout }
        };
        let mut all = vec![group("/g"), group("/g/_deeper"), group("/g/_deeper/empty")];
        all.push(attribute("/", "title", Value::from("a title")));
        all.push(attribute("/", "_hidden", Value::from(7i32)));
        all.push(attribute("/g", "größe", Value::from(1.5f64)));
        all.push(attribute("/g", "empty", Value::from("")));
        let texts = ["one", "", "three"].map(String::from).to_vec();
        all.push(attribute("/g/_deeper", "texts", Value::Texts(texts)));
        all.push(attribute("/g/_deeper", "none", Value::Texts(Vec::new())));
        let long = Value::Texts(vec!["x".repeat(50_000), "short".into()]);
        all.push(attribute("/g/_deeper", "long", long));
        for (number, datatype) in datatypes().into_iter().enumerate() {
            let path = format!("/g/type {number}");
            let size = datatype.size() as usize;
            let fill = if number % 2 == 0 {
                vec![3; size]
            } else {
                Vec::new()
            };
            let layout = DatasetLayout {
                fill,
                ..DatasetLayout::fixed(datatype.clone(), &[2, 3])
            };
            all.push(dataset(path.clone(), layout));
            for (name, dims) in [("scalar", &[][..]), ("list", &[3]), ("no element", &[2, 0])] {
                let number: u64 = dims.iter().product();
                let value = Value::Elements {
                    datatype: datatype.clone(),
                    dims: dims.to_vec(),
                    bytes: vec![1; size * number as usize],
                };
                all.push(attribute(&path, name, value));
            }
        }
        let number = |dims: &[u64]| DatasetLayout::fixed(Datatype::integer(4, true), dims);
        let chunked = DatasetLayout {
            max_dims: vec![None, Some(9)],
            chunk: Some(vec![2, 3]),
            filters: vec![Filter {
                id: 2,
                flags: 1,
                values: vec![4],
            }],
            ..number(&[0, 5])
        };
        all.push(dataset("/g/_deeper/_chunked".into(), chunked));
        for n in 0..700 {
            let path = format!("/g/_deeper/dataset {}", n * 7919 % 1000);
            all.push(dataset(path, number(&[n, 3])));
        }
        all.push(dataset("/scalar".into(), number(&[])));
        (all, datasets)
    }

    /// Dimension scales and their uses. The IDs of the datasets begin with `first`.
    fn scales(first: u32) -> Vec<Definition> {
        let dataset = |path: &str, dims: &[u64]| Definition::Dataset {
            path: path.into(),
            layout: Box::new(DatasetLayout::fixed(Datatype::float(4), dims)),
        };
        let scale = |dataset: u32, name: &str| Definition::Scale {
            dataset: first + dataset,
            name: name.into(),
        };
        let attach = |dataset: u32, dimension, scale: u32| Definition::Attachment {
            dataset: first + dataset,
            dimension,
            scale: first + scale,
        };
        vec![
            dataset("/field", &[3, 4]),
            dataset("/x", &[4]),
            scale(1, "x"),
            dataset("/g/y", &[3]),
            scale(2, ""),
            dataset("/size", &[4]),
            scale(3, "größe"),
            attach(0, 1, 1),
            attach(0, 1, 3),
            dataset("/g/other", &[3]),
            attach(4, 0, 2),
            attach(0, 0, 2),
            Definition::Label {
                dataset: first,
                dimension: 1,
                label: "column".into(),
            },
        ]
    }

    #[test]
    fn objects_of_definitions_are_those_that_libhdf5_makes() {
        let (mut all, datasets) = definitions();
        let of_scales = scales(datasets as u32);
        let is_dataset = |one: &&Definition| matches!(one, Definition::Dataset { .. });
        let more = of_scales.iter().filter(is_dataset).count();
        all.extend(of_scales);
        // A name in the root group that is not ASCII changes the front.
        let names = ["/größe", "/größe/_a", "/größe/é"];
        let groups = names.map(|path| Definition::Group { path: path.into() });
        for groups in [&[][..], &groups] {
            let dir = tempfile::tempdir().unwrap();
            all.extend_from_slice(groups);
            let lines = all.iter().cloned().map(Line::Define).collect();
            let journal = journal_of(dir.path(), lines);
            compare_both(dir.path(), &journal, datasets + more);
        }
    }

    /// Other programs may add to a closed log with HDF5.
    #[test]
    fn libhdf5_goes_on_with_objects_that_are_made_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let (image, headers) = metadata_image(|_, _| Ok(())).unwrap();
        let journal = recorded(dir.path(), &image, &headers);
        let path = dir.path().join("log");
        let before = closed(&path, &Objects::of(dir.path(), &journal).unwrap());
        let name = h5::c_name(path.as_os_str().as_bytes()).unwrap();
        let file = h5::open_to_write(&name, 2048).unwrap();
        let many = h5::open_group(&file, c"/__many").unwrap();
        let creation = h5::new_group_creation().unwrap();
        for number in 0..100 {
            let link = Link::ascii(&format!("dataset {number}.5"));
            drop(h5::create_group(&many, &link, &creation).unwrap());
            let link = Link::ascii(&format!("dataset {}", number * 7919 % 1000));
            h5::delete_link(&many, &link).unwrap();
        }
        drop(many);
        h5::close_file(file).unwrap();
        let (below, name) = SourceDir::of_file(&path).unwrap();
        let settings = Settings::default();
        let after = crate::scan(ScanRequest::alone(&below, &name, &settings)).unwrap();
        assert_eq!(after.datasets.len(), before.datasets.len() - 100);
    }

    /// A filter that no libhdf5 has.
    const FOREIGN: Filter = Filter {
        id: 300,
        flags: OPTIONAL,
        values: Vec::new(),
    };

    /// Makes three chunked datasets that are not logged: of integers with a filter that no libhdf5 has, of texts, and of
    /// references. Each has 64 chunks of three elements, of which chunks 2 and 5 are written.
    fn unlogged(root: &Id, dataset: &Id) -> Made<()> {
        let make = |name: &str, datatype: &Id, filters: &[Filter]| {
            let creation = h5::new_dataset_creation()?;
            h5::set_storage(&creation, &Storage::Chunked(vec![3]))?;
            for filter in filters {
                h5::add_filter(&creation, filter)?;
            }
            let space = Space::with_limits(&[190], &[None]).create()?;
            h5::create_dataset(root, &Link::ascii(name), datatype, &space, &creation)
        };
        let integers = h5::integer_type(4, true, false)?;
        let foreign = make("foreign", &integers, &[FOREIGN])?;
        h5::write_chunk(&foreign, &[6], 0, b"as it is")?;
        h5::write_chunk(&foreign, &[15], 1, &[7; 12])?;
        let deflate = Filter {
            id: 1,
            flags: OPTIONAL,
            values: vec![6],
        };
        let texts = make(
            "texts",
            &h5::variable_text_type()?,
            std::slice::from_ref(&deflate),
        )?;
        let references = make("references", &h5::object_reference_type()?, &[deflate])?;
        for at in [6, 15] {
            let memory = Space::fixed(&[1]).create()?;
            let file = h5::dataset_space(&texts)?.create()?;
            h5::select_block(&file, &[at], &[1], false)?;
            let text = CString::new(format!("text {at}")).unwrap();
            let mut values = Values::zeros(h5::variable_text_type()?, memory.clone())?;
            values.set_text(&text)?;
            h5::write_elements(&texts, &values, &memory, &file)?;
            let mut values = Values::zeros(h5::object_reference_type()?, memory.clone())?;
            values.set_bytes(&h5::address(dataset)?.to_ne_bytes());
            h5::write_elements(&references, &values, &memory, &file)?;
        }
        Ok(())
    }

    /// The chunks of a dataset in an image: their first elements, filter masks and stored bytes.
    fn chunks(image: &Vec<u8>, path: &str) -> Vec<(u64, u32, Vec<u8>)> {
        let objects = HdfObjects::open(image).unwrap();
        let info = objects
            .dataset(objects.find(path).unwrap().unwrap())
            .unwrap();
        let chunks = objects.chunk_addresses(&info).unwrap();
        let chunk = |chunk: Chunk| {
            let at = chunk.address as usize;
            let stored = image[at..at + chunk.size as usize].to_vec();
            (chunk.offset[0], chunk.filter_mask, stored)
        };
        chunks.into_iter().map(chunk).collect()
    }

    #[test]
    fn chunks_are_copied_as_they_are_and_only_where_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let (image, headers) = metadata_image(unlogged).unwrap();
        let wanted = vec![(6, 0, b"as it is".to_vec()), (15, 1, vec![7; 12])];
        assert_eq!(chunks(&image, "/foreign"), wanted);
        let journal = recorded(dir.path(), &image, &headers);
        let objects = Objects::of(dir.path(), &journal).unwrap();
        assert!(matches!(objects.made, super::Made::ByLibrary { .. }));
        let scanned = closed(&dir.path().join("log"), &objects);
        // The chunks were copied twice: into the closed file, and from there into the image of its view.
        assert_eq!(chunks(&scanned.image, "/foreign"), wanted);
        let places = |path| {
            let chunks = chunks(&scanned.image, path).into_iter();
            chunks.map(|(at, ..)| at).collect::<Vec<_>>()
        };
        assert_eq!(
            [places("/texts"), places("/references")],
            [[6, 15], [6, 15]]
        );
        // The heaps of the texts are copied, too.
        let file = h5::open_image(&scanned.image).unwrap();
        let dataset = h5::open_dataset(&file, c"/texts").unwrap();
        let space = h5::dataset_space(&dataset).unwrap().create().unwrap();
        let mut values = Values::zeros(h5::dataset_type(&dataset).unwrap(), space.clone()).unwrap();
        h5::read_elements(&dataset, &mut values, &space, &space).unwrap();
        let texts = values.texts().unwrap();
        assert_eq!(
            (&*texts[6], &*texts[15], &*texts[16]),
            ("text 6", "text 15", "")
        );
    }

    /// The extent of an unlimited virtual dataset comes from its source. For a source without an extent, such as a stub dataset,
    /// libhdf5 reports whatever was in memory.
    #[test]
    fn a_virtual_dataset_has_the_extent_that_its_program_has_seen() {
        let dir = tempfile::tempdir().unwrap();
        let header = std::cell::Cell::new(0);
        let (image, mut headers) = metadata_image(|root, _| {
            let integers = h5::integer_type(4, true, false)?;
            let space = Space::with_limits(&[7, 4], &[None, Some(4)]).create()?;
            let creation = h5::new_dataset_creation()?;
            h5::set_storage(&creation, &Storage::Chunked(vec![1, 4]))?;
            let link = Link::ascii("grows");
            let grows = h5::create_dataset(root, &link, &integers, &space, &creation)?;
            header.set(h5::address(&grows)?);
            let creation = h5::new_dataset_creation()?;
            h5::set_rows_of(&creation, c"/grows", 4)?;
            let link = Link::ascii("virtual");
            h5::create_dataset(root, &link, &integers, &space, &creation).map(drop)
        })
        .unwrap();
        headers.push(header.get());
        let journal = recorded(dir.path(), &image, &headers);
        let scanned: Vec<Snapshot> = ["one", "other"]
            .map(|name| {
                let objects = Objects::of(dir.path(), &journal).unwrap();
                closed(&dir.path().join(name), &objects)
            })
            .into();
        assert!(scanned[0].image == scanned[1].image);
        let objects = HdfObjects::open(&scanned[0].image).unwrap();
        let of = |path| {
            objects
                .dataset(objects.find(path).unwrap().unwrap())
                .unwrap()
                .space
        };
        assert_eq!(of("/virtual"), of("/grows"));
    }

    /// An object without room is unreadable. All other objects stay readable.
    #[test]
    fn objects_that_are_too_large_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let (image, headers) = metadata_image(|root, dataset| {
            unlogged(root, dataset)?;
            let space = Space::fixed(&[300_000]).create()?;
            let (datatype, creation) = (h5::variable_text_type()?, h5::new_dataset_creation()?);
            let many =
                h5::create_dataset(root, &Link::ascii("many"), &datatype, &space, &creation)?;
            let mut values = Values::zeros(datatype, space.clone())?;
            values.set_text(c"a text that many elements have")?;
            h5::write_elements(&many, &values, &space, &space)
        })
        .unwrap();
        let journal = recorded(dir.path(), &image, &headers);
        let path = dir.path().join("log");
        closed(&path, &Objects::of(dir.path(), &journal).unwrap());
        let (below, name) = SourceDir::of_file(&path).unwrap();
        let scan = |most| {
            let settings = Settings {
                most,
                ..Settings::default()
            };
            crate::scan(ScanRequest::alone(&below, &name, &settings)).unwrap()
        };
        let unreadable = |snapshot: &Snapshot| {
            let reasons = snapshot.datasets.iter();
            let reasons = reasons.filter_map(|dataset| match &dataset.content {
                Content::Unreadable(reason) => Some((dataset.name.clone(), reason.clone())),
                _ => None,
            });
            reasons.collect::<Vec<_>>()
        };
        let all = scan(64 << 20);
        assert_eq!(unreadable(&all), []);
        let most = all.bytes() as u64 - (1 << 20);
        let some = scan(most);
        let [(name, reason)] = &unreadable(&some)[..] else {
            panic!("{:?}", unreadable(&some));
        };
        assert_eq!(name, "/many");
        assert!(reason.contains("index_memory"), "{reason}");
        assert!((some.bytes() as u64) < most);
        assert_eq!(
            chunks(&some.image, "/foreign"),
            chunks(&all.image, "/foreign")
        );
    }

    /// References behind a filter that no libhdf5 has cannot be translated, so their log cannot be closed.
    #[test]
    fn a_close_that_fails_leaves_the_front_as_it_was() {
        let (image, headers) = metadata_image(|root, _| {
            let creation = h5::new_dataset_creation()?;
            h5::set_storage(&creation, &Storage::Chunked(vec![3]))?;
            h5::add_filter(&creation, &FOREIGN)?;
            let (datatype, space) = (h5::object_reference_type()?, Space::fixed(&[3]).create()?);
            let link = Link::ascii("unknown");
            let dataset = h5::create_dataset(root, &link, &datatype, &space, &creation)?;
            h5::write_chunk(&dataset, &[0], 0, b"not known")
        })
        .unwrap();
        for subfiles in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let mut journal = recorded(dir.path(), &image, &headers);
            journal.header.subfiles = subfiles;
            let objects = Objects {
                journal: &journal,
                made: super::Made::by_library(dir.path(), &journal).unwrap(),
            };
            let paths = ["log", "subfile"].map(|name| dir.path().join(name));
            for path in &paths {
                std::fs::write(path, unclosed_front(&ID)).unwrap();
            }
            let mut data_files = [DataFile {
                path: paths[subfiles as usize].clone(),
                sections: Vec::new(),
                end: FRONT,
                has_seals: false,
                known: Entries::default(),
                table: Piece { offset: 0, len: 0 },
            }];
            let failed = objects.write_closed(&paths[0], &mut data_files, true);
            let reason = failed.unwrap_err().to_string();
            assert!(reason.contains("/unknown"), "{reason}");
            for path in &paths {
                let front = std::fs::read(path).unwrap();
                assert!(front == unclosed_front(&ID), "{}", path.display());
            }
        }
    }

    #[test]
    fn libhdf5_copies_what_has_other_forms() {
        let is_plain = |more: &dyn Fn(&Id, &Id) -> Made<()>| {
            let (image, headers) = metadata_image(more).unwrap();
            let logged = headers.iter().zip(0..).map(|(header, id)| (*header, id));
            ClosedObjects::of(&image, logged).is_some()
        };
        let space = || Space::fixed(&[3]).create();
        assert!(is_plain(&|_, _| Ok(())));
        assert!(!is_plain(&|root, _| {
            let datatype = h5::integer_type(4, true, false)?;
            let creation = h5::new_dataset_creation()?;
            let link = Link::ascii("not logged");
            h5::create_dataset(root, &link, &datatype, &space()?, &creation).map(drop)
        }));
        assert!(!is_plain(&|root, _| {
            let creation = h5::new_group_creation()?;
            h5::order_links(&creation)?;
            h5::create_group(root, &Link::ascii("ordered"), &creation).map(drop)
        }));
        // A reference to an object without a link.
        assert!(!is_plain(&|root, made| {
            let link = Link::ascii("unlinked");
            let unlinked = h5::create_group(root, &link, &h5::new_group_creation()?)?;
            let address = h5::address(&unlinked)?.to_le_bytes();
            let datatype = h5::object_reference_type()?;
            let (name, scalar) = (Name::ascii("reference"), Space::scalar().create()?);
            h5::write_plain_attribute(made, name, &datatype, &scalar, &address)?;
            h5::delete_link(root, &link)
        }));
        assert!(!is_plain(&|root, _| {
            let link = Link {
                target: Target::External {
                    file: c"other".into(),
                    path: c"/".into(),
                },
                ..Link::ascii("external")
            };
            h5::create_symbolic_link(root, &link)
        }));
    }
}
