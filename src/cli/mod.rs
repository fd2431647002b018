//! The command line, with one module for each subcommand.

mod called;
pub mod check;
mod colour;
pub mod compact;
pub mod config;
pub mod doctor;
pub mod environment;
pub mod examples;
pub mod export;
pub mod follow;
pub mod inspect;
mod logs;
pub mod ls;
pub mod missing;
pub mod mount;
mod objects;
pub mod output;
pub mod pages;
mod parts;
mod picture;
pub mod plot;
mod progress;
pub mod recover;
pub mod report;
mod rights;
pub mod scan_server;
pub mod settle;
pub mod shared;
pub mod suggest;
mod table;
mod target;
mod unclosed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::fs::shown::ShownFile;
use called::Called;
use h5logfs_arrays::Log;
use h5logfs_catalog::direct::OpenLog;
use h5logfs_catalog::index_dir::IndexDir;
use h5logfs_catalog::lookup;
use h5logfs_catalog::options::{ReadOptions, parse_chunking, parse_size};
use h5logfs_catalog::workers::{self, Workers};
use h5logfs_common::error::Error;
use h5logfs_convert::error::Error as ConvertError;
use h5logfs_log::descriptors;
use h5logfs_log::journal::ShownFlush;
use h5logfs_log::log_dir;
use h5logfs_log::scan::{Choice, Chunking, LAYOUT_OPTIONS, ListingScans, Scanner, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};

/// Path of the running program, even if its file has been replaced since the start.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// The error of a command that needs a log and gets its view.
#[derive(Debug, thiserror::Error)]
#[error("{}: this is a view, which any program reads as HDF5; {_0}", _0.path().display())]
pub struct IsView(ShownFile);

/// Acts on a log file, which must not be a view. For a file in a mount, an error of the system names the original file: the
/// scanning process may have no access to the mount.
fn with_log_file<T>(file: &Path, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    if logs::is_directory(file) {
        log_dir::check_complete(file)?;
        let name = file.display();
        anyhow::bail!("{name}: is a directory: give a log in it; `h5logfs ls {name}` lists them");
    }
    let act = || act().map_err(|e| called(file, e));
    let Some(shown) = ShownFile::at(file) else {
        return act();
    };
    if shown.is_view() {
        return Err(IsView(shown).into());
    }
    act().map_err(|e| match e.downcast_ref() {
        Some(Error::Io { cause, .. }) if cause.kind() != io::ErrorKind::NotFound => {
            anyhow::anyhow!("{e}; {shown}")
        }
        _ => e,
    })
}

/// Replaces the path in an error by the user's name for the file. An error with a context stays, because it says more.
fn called(file: &Path, error: anyhow::Error) -> anyhow::Error {
    let has_context = error.source().is_some();
    if has_context {
        return error;
    }
    let called = |error| Called::of(file).error(error).into();
    let error = match error.downcast() {
        Ok(error) => return called(error),
        Err(other) => other,
    };
    match error.downcast() {
        Ok(ConvertError::Log(error)) => called(error),
        Ok(other) => other.into(),
        Err(other) => other,
    }
}

/// Options of the commands that read log files. [`shared`] shows them in one place.
#[derive(Debug, Clone, Args)]
pub struct ViewArgs {
    /// Memory for chunks and decoded records
    #[arg(long, hide_short_help = true, hide_long_help = true, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub cache_size: u64,

    /// Memory for the file's metadata, record tables and indexes
    #[arg(long, hide_short_help = true, hide_long_help = true, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub index_memory: u64,

    /// Chunk shape of datasets that do not record one: auto, the shape of the records if they tile the dataset, or about
    /// SIZE bytes each
    #[arg(long, hide_short_help = true, hide_long_help = true, value_name = "auto|SIZE", value_parser = parse_chunking, default_value = "auto")]
    pub chunk: Chunking,

    #[arg(
        short = 'o',
        long = "option",
        hide_short_help = true,
        hide_long_help = true,
        value_name = "OPTION=VALUE",
        help = shared::layout_help(),
        long_help = shared::layout_long_help()
    )]
    pub options: Vec<OsString>,

    /// Read an unclosed log as this flush left it
    #[arg(long, hide_short_help = true, hide_long_help = true, value_name = "NUMBER", value_parser = ShownFlush::of_flush)]
    pub at_flush: Option<ShownFlush>,

    /// Read an unclosed log as it was at this time, after the last complete flush: 2026-03-01T12:00:00 (local time), or
    /// with Z at the end
    #[arg(long, hide_short_help = true, hide_long_help = true, value_name = "TIME", value_parser = ShownFlush::of_time, conflicts_with = "at_flush")]
    pub at_time: Option<ShownFlush>,

    /// Address space for the process that scans the file
    #[arg(long, hide_short_help = true, hide_long_help = true, value_name = "SIZE", value_parser = parse_size, default_value = "2G")]
    pub scan_memory: u64,

    /// Seconds of processor time for that process, which may take five times as long by the clock
    #[arg(
        long,
        hide_short_help = true,
        hide_long_help = true,
        value_name = "SECONDS",
        default_value = "60"
    )]
    pub scan_cpu: u32,
}

/// The result of scanning a log file.
struct Scanned {
    dir: SourceDir,
    snapshot: Snapshot,
    budget: Arc<Budget>,
}

impl Scanned {
    fn open(self) -> anyhow::Result<Arc<View>> {
        Ok(View::open(&self.dir, self.snapshot, self.budget, None)?)
    }

    /// The files that contain bytes of the log.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let places = self.snapshot.sources.iter().map(|source| &source.place);
        let path = |place: &SourcePath| Ok(self.dir.of(place)?.full_path(&place.path));
        places.map(path).collect()
    }
}

/// Scans log files one after the other.
struct LogScanner<'a> {
    args: &'a ViewArgs,
    scanner: Box<dyn Scanner>,
}

/// Whether a file is no log at all.
fn is_not_a_log(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::NotALog { .. }))
}

/// Bytes of the files of a log.
fn log_bytes(view: &View) -> u64 {
    let sources = view.snapshot().sources.iter();
    // Several sources may lie in one file.
    let files: BTreeMap<_, u64> = sources
        .map(|source| {
            let file = source.identity;
            ((file.device, file.inode), file.size)
        })
        .collect();
    files
        .values()
        .fold(0, |sum, size| sum.saturating_add(*size))
}

impl LogScanner<'_> {
    /// Lets scans of files in one directory share processes, until the returned value is dropped.
    fn listing(&self) -> ListingScans<'_> {
        ListingScans::begin(&*self.scanner)
    }

    /// Opens the view of one log file.
    fn open(&self, file: &Path) -> anyhow::Result<Arc<View>> {
        with_log_file(file, || self.scan_log(file, Choice::default())?.open())
    }

    /// Opens the view of one log file, or of a plain HDF5 file, whose bytes it shows as they are. What a mount shows is such a
    /// file, too.
    fn open_any(&self, file: &Path) -> anyhow::Result<Arc<View>> {
        match self.open(file) {
            Err(error) if is_not_a_log(&error) || error.is::<IsView>() => {
                self.open_plain(file).map_err(|_| error)
            }
            opened => opened,
        }
    }

    /// Opens a plain HDF5 file.
    fn open_plain(&self, file: &Path) -> anyhow::Result<Arc<View>> {
        let (dir, name) = log_dir::walk_to(file)?;
        let source = SourceFile::open(&dir, &name)?;
        let snapshot = lookup::unscanned::whole(SourcePath::below(&name), &source)?;
        let budget = Arc::new(Budget::new(self.args.memory()));
        Ok(View::open(&dir, snapshot, budget, None)?)
    }

    /// The arrays of a view that this scanner has opened.
    fn arrays(&self, view: &Arc<View>) -> anyhow::Result<Log> {
        let open = OpenLog::of_view(Arc::clone(view), &self.args.read_options()?);
        Ok(Log::of(Arc::new(open))?)
    }

    /// Scans one log file, or a part of its objects.
    fn scan(&self, file: &Path, choice: Choice) -> anyhow::Result<Scanned> {
        with_log_file(file, || self.scan_log(file, choice))
    }

    /// Scans one log file in the state that `shown_flush` selects.
    fn scan_at(&self, file: &Path, shown_flush: ShownFlush) -> anyhow::Result<Scanned> {
        let settings = Settings {
            shown_flush,
            ..self.args.settings()?
        };
        with_log_file(file, || self.scan_as(file, &settings))
    }

    fn scan_log(&self, file: &Path, choice: Choice) -> anyhow::Result<Scanned> {
        let settings = Settings {
            choice,
            ..self.args.settings()?
        };
        self.scan_as(file, &settings)
    }

    /// Scans a log. For root, the path is followed through no link that another user may have put there.
    fn scan_as(&self, file: &Path, settings: &Settings) -> anyhow::Result<Scanned> {
        let (dir, name) = log_dir::walk_to(file)?;
        let dir = dir.with_further(&settings.log_dirs)?;
        let (snapshot, budget) = self.scan_in(&dir, &name, settings)?;
        Ok(Scanned {
            dir,
            snapshot,
            budget,
        })
    }

    /// The snapshot of the log file at `name` below `dir`, and the memory for its view.
    fn scan_in(
        &self,
        dir: &SourceDir,
        name: &Path,
        settings: &Settings,
    ) -> anyhow::Result<(Snapshot, Arc<Budget>)> {
        let budget = Arc::new(Budget::new(self.args.memory()));
        let task = budget.task(None);
        let snapshot = lookup::scan_file(&task, &*self.scanner, dir, name, settings)?;
        let (snapshot, _memory) = snapshot.into_parts();
        Ok((snapshot, budget))
    }
}

impl ViewArgs {
    /// A scanner for a command that may scan many times. It starts the process that forks the workers once.
    fn scanner(&self) -> anyhow::Result<LogScanner<'_>> {
        self.scanner_with(|limits| Ok(Box::new(Workers::pooled(limits)?)))
    }

    /// A scanner for a command that scans each of `files` files once. For one file it forks a worker directly.
    fn scanner_for(&self, files: usize) -> anyhow::Result<LogScanner<'_>> {
        if files > 1 {
            return self.scanner();
        }
        self.scanner_with(|limits| {
            Ok(Box::new(Workers::once_forked(
                limits,
                scan_server::serve_one,
            )))
        })
    }

    fn scanner_with(
        &self,
        start: impl FnOnce(workers::Limits) -> anyhow::Result<Box<dyn Scanner>>,
    ) -> anyhow::Result<LogScanner<'_>> {
        // Workers inherit the limit of the process that forks them.
        descriptors::raise_limit();
        Ok(LogScanner {
            args: self,
            scanner: start(self.scan_limits())?,
        })
    }

    /// The result of another process, perhaps on another node, that has scanned the same log file.
    fn scanned_elsewhere(&self, file: &Path, snapshot: &[u8]) -> anyhow::Result<Scanned> {
        descriptors::raise_limit();
        let (dir, _) = log_dir::walk_to(file)?;
        let dir = dir.with_further(&self.settings()?.log_dirs)?;
        let budget = Arc::new(Budget::new(self.memory()));
        let snapshot = Snapshot::from_bytes(&budget.task(None), snapshot);
        let (mut snapshot, _memory) = snapshot.map_err(anyhow::Error::msg)?.into_parts();
        snapshot.take_devices(&dir)?;
        Ok(Scanned {
            dir,
            snapshot,
            budget,
        })
    }

    fn memory(&self) -> MemoryLimits {
        MemoryLimits {
            cache_size: self.cache_size,
            index_memory: self.index_memory,
        }
    }

    fn scan_limits(&self) -> workers::Limits {
        let cpu = Duration::from_secs(self.scan_cpu.max(1).into());
        workers::Limits {
            memory: self.scan_memory.max(workers::SMALLEST_MEMORY),
            cpu,
            time: 5 * cpu,
            metadata: self.index_memory,
            ..workers::Limits::of(THIS_PROGRAM.into(), 1)
        }
    }

    /// The options with which sources of virtual datasets are opened.
    fn read_options(&self) -> anyhow::Result<ReadOptions> {
        Ok(ReadOptions {
            memory: self.memory(),
            settings: self.settings()?,
            scans: self.scan_limits(),
            index_dir: IndexDir::None,
            index_dir_size: 0,
            on_demand: false,
        })
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings {
            chunking: self.chunk,
            most: self.index_memory,
            ..Settings::of_environment(|variable| std::env::var_os(variable))
        };
        let options = self.options.iter();
        for option in options.flat_map(|list| list.as_bytes().split(|b| *b == b',')) {
            let at = option.iter().position(|b| *b == b'=');
            let (name, value) = option.split_at(at.unwrap_or(option.len()));
            let name = String::from_utf8_lossy(name);
            match value.strip_prefix(b"=") {
                Some(value) if LAYOUT_OPTIONS.iter().any(|o| o.name == name) => {
                    settings.set(&name, value).map_err(anyhow::Error::msg)?;
                }
                _ => {
                    let known = LAYOUT_OPTIONS.map(|o| o.name).join(", ");
                    anyhow::bail!(
                        "option {name}: expected NAME=VALUE, with one of the names {known}"
                    )
                }
            }
        }
        if let Some(shown_flush) = self.at_flush.or(self.at_time) {
            settings.shown_flush = shown_flush;
        }
        Ok(settings)
    }
}
