//! Single logs in a process that does not know us: plug-ins and libraries open them here, and close those that the
//! process has written.
//!
//! A host forks, waits for its children, closes descriptors that it does not know, and ends without notice. So nothing
//! but some memory outlives an open log: no thread, no process, no descriptor, no signal handler. The process that
//! closes logs is an exception (`workers/one_close.rs`).
//!
//! * `shared` is the memory that open logs share.
//! * `handed_over` hands an open log to another part of the process.
//! * `fork_gate` keeps the process from forking while a thread is at work here.
//! * `deleting` deletes a log with its files.
//! * `program` looks for the program that scans and closes.

mod deleting;
mod fork_gate;
mod handed_over;
mod program;
mod shared;

use std::cmp::Ordering;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::task::StopFlag;
use h5logfs_log::log_dir;
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::tiles::named;
use h5logfs_log::walk;
use h5logfs_view::View;

use crate::lookup::{Listings, Main, unscanned};
use crate::opening::{Candidate, Opener, SCAN_ATTEMPTS, companion_states};
use crate::options::ReadOptions;
use crate::workers::{Limits, Workers, one_close};
use shared::{InUse, Remembered, Shared};

pub use fork_gate::{Broken, Inside, enter};
pub use handed_over::hand_over;
pub use program::beside_library as program_beside;

pub use crate::options::ReadOptions as Options;
pub use crate::workers::one_close::{Close, Closed};

/// The file that a path leads to.
#[derive(Debug)]
pub enum Opened {
    /// No log: the file is presented with its own bytes. A path that leads to no regular file counts as plain, too.
    Plain,
    /// A log, open as its canonical HDF5 file.
    Log(OpenLog),
}

/// An open log. Threads share it.
#[derive(Debug)]
pub struct OpenLog {
    /// `None` only during the drop.
    held: Option<Held>,
    /// State of the log that is kept for the next open.
    remembered: Option<Remembered>,
    state: State,
    options: Box<ReadOptions>,
}

/// Identity of a state of a log. Equal states show the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// State of each file of the log. The first is the log file.
    files: Vec<FileState>,
    /// Number of complete flushes of an unclosed log.
    flushes: u64,
    /// Options that decide the bytes of the view.
    settings: String,
}

/// Device and inode, size, and the time of the last change unless the file may grow.
type FileState = ((u64, u64), u64, Option<(i64, i64)>);

impl State {
    fn of(view: &View, options: &ReadOptions) -> Self {
        let snapshot = view.snapshot();
        let file = |source: &Source| {
            let found = source.identity;
            let modified = (!source.grows).then_some(found.modified);
            ((found.device, found.inode), found.size, modified)
        };
        State {
            files: snapshot.sources.iter().map(file).collect(),
            flushes: snapshot.flushes,
            settings: options.settings.to_string(),
        }
    }

    /// Compares the log files, whatever their states.
    pub fn compare_files(&self, other: &Self) -> Ordering {
        let file = |state: &State| state.files.first().map(|(file, ..)| *file);
        file(self).cmp(&file(other))
    }
}

/// The view of an open log, and its share of the memory.
#[derive(Debug)]
struct Held {
    view: Arc<View>,
    shared: InUse,
}

impl OpenLog {
    /// A log whose view this process has opened in another way. `options`: for files to which its datasets lead.
    pub fn of_view(view: Arc<View>, options: &ReadOptions) -> Self {
        OpenLog {
            remembered: None,
            state: State::of(&view, options),
            options: Box::new(options.clone()),
            held: Some(Held {
                view,
                shared: shared::of(options.memory),
            }),
        }
    }

    /// The canonical file. A caller that does more than look at its metadata calls [`OpenLog::enter`] first.
    pub fn view(&self) -> &Arc<View> {
        match &self.held {
            Some(held) => &held.view,
            None => unreachable!("a log that is being dropped is not used"),
        }
    }

    /// The options with which the log was opened.
    pub fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// The state of the log that is shown.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Closes the descriptors of a log that was opened with [`ReadOptions::on_demand`], until it is read again.
    pub fn release(&self) {
        if let Ok(_inside) = self.enter() {
            self.view().release();
        }
    }

    /// Length of the canonical file in bytes.
    pub fn len(&self) -> u64 {
        self.view().len()
    }

    /// Whether the canonical file is empty, which never happens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes of the canonical file from `offset` on. Returns the number of bytes read, which is
    /// smaller than asked for only at the end of the file.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _inside = self.enter()?;
        self.view().read_at(offset, buf)
    }

    /// [`OpenLog::read_at`], which fails soon after `stop` is set.
    pub fn read_until(&self, stop: &StopFlag, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _inside = self.enter()?;
        let task = self.view().task(None).stopped_by(stop.clone());
        self.view().read_for(&task, offset, buf)
    }

    /// Begins a piece of work with [`OpenLog::view`]. The process does not fork until the piece of work ends, in the
    /// same thread.
    pub fn enter(&self) -> Result<Inside> {
        fork_gate::enter().map_err(|broken| Error::of(self.view().path(), broken.to_string()))
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        let Some(Held { view, shared }) = self.held.take() else {
            return;
        };
        match fork_gate::enter() {
            Ok(_inside) => {
                let generation = view.generation();
                drop(view);
                shared.closed(generation, self.remembered.take());
                drop(shared);
            }
            // A lock may be held by a thread that does not exist in this forked process.
            Err(_) => std::mem::forget((view, shared)),
        }
    }
}

/// Opens the file at `path` in its present state. Fails with the reason for a log that cannot be presented.
pub fn open(path: &Path, options: &ReadOptions) -> Result<Opened> {
    if let Some(log) = handed_over::take(path, options) {
        return Ok(Opened::Log(log));
    }
    let open = |shared: &InUse, candidate: Candidate<'_>| {
        let view = opener(options, shared)?.open(candidate)?.view;
        Ok(OpenLog {
            remembered: Remembered::of(candidate.dir.path(), options, &view),
            state: State::of(&view, options),
            options: Box::new(options.clone()),
            held: Some(Held {
                view,
                shared: shared.clone(),
            }),
        })
    };
    let opened = of_log(path, options, open)?;
    Ok(opened.map_or(Opened::Plain, Opened::Log))
}

/// Opens a log or a plain HDF5 file in its present state. The canonical file of a plain file is the file itself. Fails
/// for any other file.
pub fn open_any(path: &Path, options: &ReadOptions) -> Result<OpenLog> {
    if let Opened::Log(log) = open(path, options)? {
        return Ok(log);
    }
    let inside = fork_gate::enter();
    let _inside = inside.map_err(|broken| Error::of(path, broken.to_string()))?;
    let (dir, relative) = log_dir::place_of(path)?;
    let file = SourceFile::open(&dir, &relative)?;
    let snapshot = unscanned::whole(SourcePath::below(&relative), &file)?;
    let shared = shared::of(options.memory);
    let view = View::open(&dir, snapshot, Arc::clone(&shared.budget), None)?;
    Ok(OpenLog::of_view(view, options))
}

/// The sets of files in a directory: the name of the file that each makes up, and the names of its members. Each of these
/// names leads to the set. Fails where the directory cannot be listed.
pub fn sets_in(directory: &Path) -> io::Result<Vec<(OsString, Vec<OsString>)>> {
    let sets = named::sets_in(directory)?.into_iter();
    Ok(sets
        .map(|set| (set.joined.clone(), set.names().collect()))
        .collect())
}

/// Scans the log at `path` in its present state, without opening its view. `None` where [`open`] returns
/// [`Opened::Plain`].
pub fn snapshot(path: &Path, options: &ReadOptions) -> Result<Option<Snapshot>> {
    of_log(path, options, |shared, candidate| {
        let snapshot = opener(options, shared)?.snapshot(candidate)?;
        Ok(snapshot.into_parts().0)
    })
}

/// Closes the log at `path`, which a job has written: makes it valid HDF5 and removes its journal. The job must have
/// released the lock of the journal. A log that is closed already is no error. After a failure the log is unchanged,
/// and the close can be repeated.
pub fn close_log(path: &Path, how: Close, options: &ReadOptions) -> Result<Closed> {
    let log = std::path::absolute(path).map_err(|e| Error::io(path, e))?;
    one_close::close(&program(options), &log, how)
}

/// Adds a flush of the unflushed data of the log at `path`, as `h5logfs recover --unflushed` does. The log stays
/// unclosed. For a closed log these are the data that its close kept aside, unless the log has gone on since. Without
/// such data nothing happens.
///
/// No process may hold the lock of the journal. After a failure the call can be repeated. Returns a message about data
/// that cannot be taken in, and where they are kept.
pub fn take_in(path: &Path, options: &ReadOptions) -> Result<Option<String>> {
    let log = std::path::absolute(path).map_err(|e| Error::io(path, e))?;
    one_close::take_in(&program(options), &log)
}

/// Deletes the log at `path` with all files that belong to it, such as subfiles and journal. Returns `false` where
/// there is no log, and for a log of a single file, which is deleted as any other file. Fails where a job writes the
/// log, for a log that is a directory, and for a set of files.
pub fn delete(path: &Path, options: &ReadOptions) -> Result<bool> {
    log_dir::check_change(path)?;
    named::check_change(path, "delete them one by one")?;
    let Some(snapshot) = snapshot(path, options)? else {
        return Ok(false);
    };
    let files = snapshot.sources.iter().chain(&snapshot.journal);
    let files: Vec<_> = files.map(|file| file.place.clone()).collect();
    let (dir, log) = walk::directory_of(path)?;
    if files.iter().all(|file| *file == SourcePath::below(&log)) {
        return Ok(false);
    }
    deleting::delete(&dir, &log, files).map(|()| true)
}

/// Runs `act` on the log at `path`, and again if the log changes meanwhile. `None` where there is no log.
fn of_log<T>(
    path: &Path,
    options: &ReadOptions,
    act: impl Fn(&InUse, Candidate<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let inside = fork_gate::enter();
    let _inside = inside.map_err(|broken| Error::of(path, broken.to_string()))?;
    let metadata = log_dir::file_of(path).metadata();
    if !metadata.map_err(|e| Error::io(path, e))?.is_file() {
        return Ok(None);
    }
    let (dir, relative) = log_dir::place_of(path)?;
    let dir = dir.with_further(&options.settings.log_dirs)?;
    let dir = if options.on_demand {
        dir.closed_between_uses()?
    } else {
        dir
    };
    let once = || of_log_once(&dir, &relative, options, &act);
    for _ in 1..SCAN_ATTEMPTS {
        match once() {
            Err(Error::Changed { .. }) => {}
            Err(error) if error.is_stale() => {}
            outcome => return outcome,
        }
    }
    once()
}

fn of_log_once<T>(
    dir: &SourceDir,
    relative: &Path,
    options: &ReadOptions,
    act: impl Fn(&InUse, Candidate<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let settings = &options.settings;
    let listings = Listings::default();
    let main = Main::open(dir, relative, &listings)?;
    let look = main.look(dir, relative, settings, &listings)?;
    if !look.may_be_log {
        return Ok(None);
    }
    let (companions, _) = companion_states(dir, &look);
    let shared = shared::of(options.memory);
    let candidate = Candidate {
        dir,
        settings,
        relative,
        source: &main.source,
        look: &look,
        companions: &companions,
        before: &|snapshot| shared.before(dir, options, snapshot),
        known: None,
    };
    match act(&shared, candidate) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(Error::NotALog { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn opener(options: &ReadOptions, shared: &Shared) -> Result<Opener> {
    let limits = Limits {
        program: program(options),
        ..options.scan_limits()
    };
    let (index_dir, size) = (&options.index_dir, options.index_dir_size);
    let store = if options.on_demand {
        index_dir.open_shared(size)
    } else {
        index_dir.open(size)
    };
    Ok(Opener {
        budget: Arc::clone(&shared.budget),
        scanner: Box::new(Workers::once(limits)),
        store: store?,
    })
}

/// The program that scans. The environment variable comes first, then the program that was installed with this library.
fn program(options: &ReadOptions) -> PathBuf {
    program::beside_this_code().unwrap_or_else(|| options.scans.program.clone())
}
