//! `h5logfs ls`: the logs in directories, one line each.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use jiff::{Timestamp, tz::TimeZone};
use rustix::fs::OFlags;
use serde::{Serialize, Serializer};

use super::ViewArgs;
use super::colour::Colour;
use super::logs::joined_of;
use super::output::{Output, fail_with_last, percent};
use super::parts::Parts;
use super::table::{self, number, or_dash, text};
use super::unclosed::Unclosed;
use crate::fs::shown::ShownFile;
use h5logfs_catalog::workers::{self, Workers};
use h5logfs_catalog::{Catalog, Lookup, Presented, Wait};
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::Error;
use h5logfs_common::parallel;
use h5logfs_log::descriptors;
use h5logfs_log::find_signature;
use h5logfs_log::journal::JobState;
use h5logfs_log::journal::unflushed::Summary;
use h5logfs_log::log_dir;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::walk;
use h5logfs_view::View;

/// Most faults of a log that a person sees.
const MOST_FAULTS: usize = 4;

/// List logs: state, layout, datasets, size as HDF5, and how much is written
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Logs, or directories with logs
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    pub paths: Vec<PathBuf>,

    /// Search the directories below, too, without following symbolic links
    #[arg(short, long)]
    pub recursive: bool,

    /// The order of the lines
    #[arg(long, value_enum, default_value_t = Order::Name)]
    pub sort: Order,

    /// Reverse the order
    #[arg(long)]
    pub reverse: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

/// The sort key of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Path
    Name,
    /// Size as HDF5, the largest first
    Size,
    /// Last write, the latest first
    Time,
    /// Unreadable, left, being written, unknown, closed, no log
    State,
}

/// Lists all readable logs, and prints an error for each of the others.
pub fn run(args: LsArgs) -> Result<()> {
    descriptors::raise_limit();
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let mut files: BTreeMap<PathBuf, (SourceDir, Vec<File>)> = BTreeMap::new();
    for path in &args.paths {
        if let Err(error) = log_dir::check_complete(path) {
            rows.push(Row::unreadable(path, error.to_string()));
            continue;
        }
        match Place::of(path) {
            Ok(Place::Directory(dir)) => match list(dir, path, args.recursive, &args.view) {
                Ok(listed) => rows.extend(listed),
                Err(error) => failed.push(error),
            },
            Ok(Place::File(dir, file)) => {
                let parent = dir.path().to_owned();
                let (_, files) = files.entry(parent).or_insert_with(|| (dir, Vec::new()));
                // A set may be named by each of its members.
                let is_known = |joined| files.iter().any(|other| other.path == joined);
                if !joined_of(path).is_some_and(is_known) {
                    files.push(file);
                }
            }
            Err(error) => failed.push(error),
        }
    }
    // Files of one directory share the data of a listing.
    for (dir, files) in files.into_values() {
        match Listed::new(dir, &args.view) {
            Ok(listed) => rows.extend(listed.rows(&files, |file| Some(listed.row_of_any(file)))),
            Err(error) => failed.push(error),
        }
    }
    sort(&mut rows, args.sort);
    if args.reverse {
        rows.reverse();
    }
    let out = &mut Output::stdout();
    if args.json {
        out.json_array(rows.iter().map(Ok::<_, io::Error>))?;
    } else {
        print(&rows, out)?;
    }
    fail_with_last(failed)
}

fn sort(rows: &mut [Row], order: Order) {
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    match order {
        Order::Name => {}
        Order::Size => rows.sort_by_key(|row| Reverse(row.canonical_bytes)),
        Order::Time => rows.sort_by_key(|row| Reverse(row.written)),
        Order::State => rows.sort_by_key(|row| row.state),
    }
}

/// A file that may be a log.
struct File {
    /// Path below the listed directory.
    name: PathBuf,
    /// The user's name for the file.
    path: PathBuf,
    /// Why it cannot be read, where it is a directory that has files of a log, but no index.
    refused: Option<String>,
}

impl File {
    fn new(name: PathBuf, path: PathBuf) -> Self {
        File {
            name,
            path,
            refused: None,
        }
    }
}

/// The target of a path from the user. For root, the path is followed through no link that another user may have put there.
enum Place {
    Directory(SourceDir),
    /// A file in this directory.
    File(SourceDir, File),
}

impl Place {
    fn of(path: &Path) -> Result<Self> {
        if let Some(shown) = ShownFile::at(path) {
            anyhow::bail!("{}: this shows views of logs; {shown}", path.display());
        }
        if log_dir::named_by(path).is_some() {
            return Place::of_file(path);
        }
        log_dir::check_complete(path)?;
        match walk::directory(path) {
            Ok(dir) => Ok(Place::Directory(dir)),
            // No file has the joined name of a set.
            Err(Error::Io { cause, .. }) if is_no_directory(&cause) => Place::of_file(path),
            Err(e) => Err(e.into()),
        }
    }

    fn of_file(path: &Path) -> Result<Self> {
        let (dir, name) = log_dir::walk_to(path)?;
        let path = joined_of(path).unwrap_or_else(|| path.to_owned());
        Ok(Place::File(dir, File::new(name, path)))
    }
}

fn is_no_directory(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotADirectory | NotFound)
}

/// The paths of the logs in a directory, sorted.
pub fn logs_in(path: &Path, view: &ViewArgs) -> Result<Vec<PathBuf>> {
    let Place::Directory(dir) = Place::of(path)? else {
        return Ok(vec![path.to_owned()]);
    };
    let mut rows = list(dir, path, false, view)?;
    sort(&mut rows, Order::Name);
    Ok(rows.into_iter().map(|row| row.path).collect())
}

/// Lists the logs in a directory, which the user calls `path`.
fn list(dir: SourceDir, path: &Path, recursive: bool, view: &ViewArgs) -> Result<Vec<Row>> {
    let mut files = Vec::new();
    let listed = Listed::new(dir, view)?;
    listed.files_below(path, Path::new(""), recursive, &mut files)?;
    let row = |file: &File| (!listed.is_part(&file.name)).then(|| listed.row(file));
    Ok(listed.rows(&files, |file| row(file).flatten()))
}

/// A directory to list.
struct Listed {
    catalog: Catalog,
}

impl Listed {
    fn new(dir: SourceDir, view: &ViewArgs) -> Result<Self> {
        let settings = view.settings()?;
        let dir = dir.with_further(&settings.log_dirs)?;
        let limits = workers::Limits {
            workers: workers::Limits::default().workers,
            ..view.scan_limits()
        };
        let scanner = Workers::pooled(limits)?;
        Ok(Listed {
            catalog: Catalog::new(dir, view.memory(), scanner).with_settings(settings),
        })
    }

    /// The lines of some files of the directory, in any order.
    fn rows(&self, files: &[File], row: impl Fn(&File) -> Option<Row> + Sync) -> Vec<Row> {
        let shares = parallel::shares().min(files.len()).max(1);
        let _listing = self.catalog.listing();
        let rows = parallel::share(shares, |number| {
            let own = files.iter().skip(number).step_by(shares);
            own.filter_map(&row).collect::<Vec<_>>()
        });
        rows.into_iter().flatten().collect()
    }

    /// The regular files of the directory `below`, which the user calls `path`, and the logs that are directories.
    fn files_below(
        &self,
        path: &Path,
        below: &Path,
        recursive: bool,
        files: &mut Vec<File>,
    ) -> Result<()> {
        let failed = |e: io::Error| Error::io(path, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let held = self.catalog.dir().open_below(below, flags);
        let held = held.map_err(failed)?;
        let entries = fs::read_dir(format!("/proc/self/fd/{}", held.as_raw_fd()));
        for entry in entries.map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let name = entry.file_name();
            let log = kind
                .is_dir()
                .then(|| log_dir::open_in(&held, &name))
                .flatten();
            // A file of the working directory has just its name.
            let called = |name: &OsStr| {
                let path = path.join(name);
                path.strip_prefix(".").unwrap_or(&path).to_owned()
            };
            if let Some(log) = log {
                let shown = log_dir::listed_in(&held, &name, &log).name_for(&name);
                let path = called(shown.as_deref().unwrap_or(&name));
                let name = below.join(&name).join(log_dir::FILE);
                files.push(File::new(name, path));
                continue;
            }
            if kind.is_file()
                && let Some(set) = self.catalog.set_with(below, &name)
            {
                if set.first == name {
                    let joined = &set.candidate.joined;
                    let (name, path) = (below.join(joined), called(joined));
                    files.push(File::new(name, path));
                }
                continue;
            }
            let (entry_name, shown) = (&name, called(&name));
            let path = path.join(entry_name);
            let name = below.join(entry_name);
            if kind.is_file() {
                let path = shown;
                files.push(File::new(name, path));
            } else if kind.is_dir()
                && let Some(reason) = log_dir::is_incomplete_in(&held, entry_name)
            {
                files.push(File {
                    refused: Some(reason),
                    ..File::new(name, shown)
                });
            } else if kind.is_dir() && recursive && !self.is_part(&name) {
                self.files_below(&path, &name, recursive, files)?;
            }
        }
        Ok(())
    }

    /// Whether a neighbouring log uses this file or directory as its journal, a subfile or another companion.
    fn is_part(&self, name: &Path) -> bool {
        let Some((parent, file)) = name.parent().zip(name.file_name()) else {
            return false;
        };
        self.catalog.is_hidden(parent, file, Wait::Yes) == Lookup::Known(true)
    }

    /// The line of a file that the user has named.
    fn row_of_any(&self, file: &File) -> Row {
        self.row(file).unwrap_or_else(|| self.row_of_other(file))
    }

    /// The line of a file that is no log.
    fn row_of_other(&self, File { name, path, .. }: &File) -> Row {
        let opened = SourceFile::open(self.catalog.dir(), name);
        match opened.and_then(|file| find_signature(&file)) {
            Ok(signature) => Row {
                state: match signature {
                    Some(_) => State::PlainHdf5,
                    None => State::NoLog,
                },
                fault: None,
                ..Row::unreadable(path, String::new())
            },
            Err(error) => Row::unreadable(path, error.to_string()),
        }
    }

    /// The line of a file; `None` if the file is not a log.
    fn row(
        &self,
        File {
            name,
            path,
            refused,
        }: &File,
    ) -> Option<Row> {
        if let Some(reason) = refused {
            return Some(Row::unreadable(path, reason.clone()));
        }
        let row = match self.catalog.get(name) {
            Ok(Presented::Plain | Presented::Settled(_) | Presented::Absent) => return None,
            Ok(Presented::View { .. }) => {
                let view = self.catalog.open(name);
                view.and_then(|view| Row::of(path, &view))
            }
            Ok(Presented::Broken(error)) => Err(Error::Remembered(error)),
            Err(error) => Err(error),
        };
        Some(row.unwrap_or_else(|e| Row::unreadable(path, e.to_string())))
    }
}

/// A line: one log.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(serialize_with = "lossy")]
    path: PathBuf,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datasets: Option<usize>,
    /// Number of the files of a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<usize>,
    /// Length of the canonical file.
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical_bytes: Option<u64>,
    /// Share of the written elements, from 0 to 1. Left out if counting would take long.
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<f64>,
    /// The last complete flush of an unclosed log.
    #[serde(skip_serializing_if = "Option::is_none")]
    flush: Option<u64>,
    /// Data that no flush covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    unflushed: Option<Summary>,
    /// Time of the last write to a file of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<Timestamp>,
    /// Why the log cannot be read, or its first fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// Its other faults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    further_faults: Vec<String>,
}

/// The state of a log, in the order of interest for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Unreadable,
    /// Not closed, and its job has ended.
    Left,
    /// A job is writing the log.
    Running,
    /// Not closed. It is unknown whether its job still runs.
    Unclosed,
    Closed,
    /// An ordinary HDF5 file, and no log.
    PlainHdf5,
    /// Any other file.
    NoLog,
}

impl State {
    /// The state of a readable log.
    pub fn of(unclosed: Option<&Unclosed>, snapshot: &Snapshot) -> Self {
        match unclosed.map(Unclosed::state) {
            None if snapshot.is_closed() => State::Closed,
            // Only the layout with journals tells about its job.
            None => State::Unclosed,
            Some(JobState::Running) => State::Running,
            Some(JobState::Ended) => State::Left,
            Some(JobState::Unknown) => State::Unclosed,
        }
    }

    fn colour(self) -> Option<Colour> {
        match self {
            State::Unreadable => Some(Colour::Bad),
            State::Left | State::Unclosed => Some(Colour::Notice),
            State::Running => Some(Colour::Good),
            State::Closed | State::PlainHdf5 | State::NoLog => None,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            State::Unreadable => "unreadable",
            State::Left => "left unclosed",
            State::Running => "being written",
            State::Unclosed => "not closed",
            State::Closed => "closed",
            State::PlainHdf5 => "plain HDF5",
            State::NoLog => "not a log",
        }
    }
}

impl Row {
    fn of(path: &Path, view: &View) -> h5logfs_common::error::Result<Self> {
        let unclosed = Unclosed::of(path, view);
        let snapshot = view.snapshot();
        let is_flat = snapshot.log.layout().flat().is_some();
        let known = snapshot.diagnostics.iter();
        let known = known.filter(|d| d.severity > Severity::Note);
        let mut faults: Vec<String> = known.map(Diagnostic::to_string).collect();
        if faults.is_empty() && snapshot.has_unreadable {
            faults.push("elements cannot be read: `h5logfs check` lists them".to_owned());
        }
        let mut faults = faults.into_iter();
        Ok(Row {
            path: path.to_owned(),
            state: State::of(unclosed.as_ref(), snapshot),
            layout: Some(snapshot.log.layout().name()),
            // The datasets in files that are shown unchanged were not examined.
            datasets: (!is_flat).then_some(snapshot.datasets.len()),
            members: snapshot.joined.is_some().then_some(snapshot.sources.len()),
            canonical_bytes: Some(view.len()),
            covered: if is_flat {
                Parts::of(view)
                    .filter(|_| snapshot.has_losses())
                    .map(|parts| parts.share())
            } else if unclosed.is_some() && snapshot.datasets.is_empty() {
                // A log without any dataset yet has no known share.
                None
            } else {
                view.inspection().covered_in_all(&view.task(None))?
            },
            flush: unclosed.as_ref().map(|_| snapshot.flushes),
            unflushed: unclosed.and_then(|unclosed| unclosed.unflushed().cloned()),
            written: last_write(snapshot),
            fault: faults.next(),
            further_faults: faults.collect(),
        })
    }

    fn unreadable(path: &Path, reason: String) -> Self {
        Row {
            path: path.to_owned(),
            state: State::Unreadable,
            layout: None,
            datasets: None,
            members: None,
            canonical_bytes: None,
            covered: None,
            flush: None,
            unflushed: None,
            written: None,
            fault: Some(reason),
            further_faults: Vec::new(),
        }
    }

    fn cells(&self) -> [String; 7] {
        let flush = |n: u64| format!("flush {n}, ");
        let layout = self.layout.map(|layout| match self.members {
            Some(members) => format!("{layout}, {members} files"),
            None => layout.to_owned(),
        });
        let local = |time: Timestamp| time.to_zoned(TimeZone::system());
        let written = self.written.map(local);
        let written = written.map(|time| time.strftime("%Y-%m-%d %H:%M").to_string());
        [
            self.state.words().to_owned(),
            or_dash(layout),
            or_dash(self.datasets),
            or_dash(self.canonical_bytes.map(BinaryBytes)),
            or_dash(self.covered.map(percent)),
            format!(
                "{}{}",
                self.flush.map(flush).unwrap_or_default(),
                or_dash(written)
            ),
            self.path.to_string_lossy().into_owned(),
        ]
    }
}

/// Serializes a path as text, the only string form of JSON.
fn lossy<S: Serializer>(path: &Path, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// The time of the last write. A flush ends with a write to the journal, a close with a write to the log file.
pub fn last_write(snapshot: &Snapshot) -> Option<Timestamp> {
    let files = snapshot.sources.iter().chain(&snapshot.journal);
    let times = files.filter_map(|file| {
        let (seconds, nanoseconds) = file.identity.modified;
        Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()
    });
    times.max()
}

fn print(rows: &[Row], out: &mut Output<impl Write>) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = [
        text("STATE"),
        text("LAYOUT"),
        number("DATASETS"),
        number("SIZE"),
        number("COVERED"),
        text("WRITTEN"),
        text("FILE"),
    ];
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    let mut lines = table::lines(columns, &cells).into_iter();
    if let Some(head) = lines.next() {
        writeln!(out, "{head}")?;
    }
    for (row, line) in rows.iter().zip(lines) {
        let (state, rest) = line.split_at(row.state.words().len().min(line.len()));
        out.painted(&[(row.state.colour(), state), (None, rest)])?;
        for fault in row
            .fault
            .iter()
            .chain(&row.further_faults)
            .take(MOST_FAULTS)
        {
            out.painted(&[(None, "    "), (Some(Colour::Bad), fault)])?;
        }
        if row.further_faults.len() >= MOST_FAULTS {
            let more = row.further_faults.len() + 1 - MOST_FAULTS;
            writeln!(out, "    and {more} more: `h5logfs check` lists all")?;
        }
        if let Some(unflushed) = &row.unflushed {
            writeln!(out, "    {unflushed}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |path: &str, bytes, fault: Option<&str>| Row {
            layout: Some("made up"),
            datasets: Some(12),
            canonical_bytes: Some(bytes),
            covered: Some(0.99999),
            flush: Some(3),
            state: State::Left,
            fault: fault.map(str::to_owned),
            ..Row::unreadable(Path::new(path), String::new())
        };
        let mut out = Vec::new();
        let rows = [row("a.h5", 5, None), row("b\n.h5", 3 << 40, Some("bad"))];
        print(&rows, &mut Output::to(&mut out)).unwrap();
        let expected = "\
STATE          LAYOUT   DATASETS      SIZE  COVERED  WRITTEN     FILE
left unclosed  made up        12       5 B   99.9 %  flush 3, -  a.h5
left unclosed  made up        12  3.00 TiB   99.9 %  flush 3, -  b\\n.h5
    bad
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
