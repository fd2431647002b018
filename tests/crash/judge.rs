//! Judges whether a crash state keeps the promises.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::Error;
use h5logfs_log::journal::path_of;
use h5logfs_log::logvol::names::subfile_dir;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_output::Options;
use h5logfs_scan::closing::{How, Outcome, Unflushing, recover};
use h5logfs_scan::scan;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use tempfile::TempDir;

use super::common::element::{attribute, element};
use super::common::names_in;
use super::common::rows::{Course, Job};
use super::common::settled;
use super::history::Disk;
use super::promise::Promise;

/// A reader's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The state of this flush.
    Flush(u64),
    /// No log, or an unreadable one.
    Nothing(String),
    /// The state of no flush.
    Wrong(String),
}

/// The requirements for a log after a crash.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// Its name.
    pub name: &'a str,
    /// Number of ranks of the jobs that wrote it.
    pub ranks: usize,
    pub promise: &'a Promise,
    /// Processes were killed without a power failure.
    pub is_of_kill: bool,
    /// Lost elements are recognisable: all others are right.
    pub is_exact: bool,
    pub work: Work,
}

/// The purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A log of the writer, which can continue it.
    Writer,
    /// A log of an HDF5 program.
    Connector,
    /// An HDF5 file made from a log.
    Ordinary,
}

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The required state is shown, and everything works.
    Good,
    /// There is no log, and none was promised.
    Nothing,
    /// An unpromised flush is damaged; `recover --last-flush` drops it, and says so. Or nothing was promised, and the
    /// neighbours of the log prevent appends.
    ByHand,
    /// The log was about to be replaced, and is there under the name of an old log.
    Aside,
}

/// A directory in memory if possible, because commands sync their files.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// Tries everything that a user would after a crash. Fails where a promise is broken.
pub fn judge(disk: &Disk, case: Case<'_>) -> Result<Verdict, String> {
    let copy = || {
        let dir = directory();
        disk.store(dir.path()).unwrap();
        let path = dir.path().join(case.name);
        (dir, path)
    };
    let (dir, path) = copy();
    let shown = case.read(&path);
    let verdict = match case.check(&shown) {
        Ok(verdict) => verdict,
        Err(_) if case.is_aside(dir.path()) => return Ok(Verdict::Aside),
        // Data that was not synced has spoilt the rest.
        Err(_) if case.may_be_spoilt(&shown) => Verdict::ByHand,
        Err(e) => return Err(format!("it is read: {e}")),
    };
    if verdict == Verdict::Nothing {
        // A recovery must give a good log, or lost data is an error to readers.
        if let Ok(Outcome::Recovered(_)) = recover(&path, How::default()) {
            let found = case.read(&path);
            case.check(&found)
                .map_err(|e| format!("it is recovered: {e}"))?;
        }
        return Ok(verdict);
    }
    if case.work == Work::Ordinary {
        return Ok(verdict);
    }
    let mut verdict = verdict;
    if let Err(e) = recover(&path, How::default()) {
        // Its mark may be lost, so that it looks like the closed log of another writer.
        if !case.binds() && e.to_string().contains("there is nothing to recover") {
            return Ok(verdict);
        }
        verdict = Verdict::ByHand;
        case.recover_by_hand(&path, &e)?;
    }
    let flush = case.check_recovered(&path, &shown)?;
    // A log without flushes may be a remnant of another one.
    if flush == 0 && !case.binds() {
        return Ok(verdict);
    }
    case.check_settled(&path, flush)?;
    if verdict == Verdict::Good {
        let (_dir, path) = copy();
        case.take_in(&path, flush)
            .map_err(|e| format!("unflushed data are merged: {e}"))?;
    }
    if case.work == Work::Writer && verdict == Verdict::Good {
        let (_dir, path) = copy();
        match case.append(&path, flush) {
            // The journal may be damaged, or belong to the log that replaces this one. It may have flushes.
            Err(_) if !case.binds() => verdict = Verdict::ByHand,
            appended => appended.map_err(|e| format!("it is appended to: {e}"))?,
        }
    }
    Ok(verdict)
}

impl Case<'_> {
    fn read(&self, path: &Path) -> Found {
        read_with(path, self.certain(), self.promise.includes_unflushed())
    }

    fn certain(&self) -> Option<u64> {
        (!self.is_exact).then(|| self.promise.certain(self.is_of_kill))
    }

    /// Data written after the last flush becomes a flush, each element of which is right, or as the flush before left
    /// it.
    fn take_in(&self, path: &Path, flush: u64) -> Result<(), String> {
        let how = How {
            unflushed: Unflushing::TakeIn,
            ..How::default()
        };
        recover(path, how).map_err(|e| e.to_string())?;
        match read_with(path, self.certain(), true) {
            Found::Flush(found) if found == flush => Ok(()),
            found => Err(format!("after flush {flush} {found:?}")),
        }
    }

    fn binds(&self) -> bool {
        self.promise.binds(self.is_of_kill)
    }

    /// Whether lost data may go unnoticed.
    fn may_be_spoilt(&self, shown: &Found) -> bool {
        !self.is_exact && matches!(shown, Found::Nothing(_))
    }

    fn check(&self, found: &Found) -> Result<Verdict, String> {
        match found {
            Found::Flush(flush) if self.promise.allows(self.is_of_kill, *flush) => {
                Ok(Verdict::Good)
            }
            Found::Nothing(_) if !self.binds() => Ok(Verdict::Nothing),
            found => Err(format!("{found:?}, and promised is {:?}", self.promise)),
        }
    }

    /// Whether the log is there under a name that no other log has taken.
    fn is_aside(&self, dir: &Path) -> bool {
        let begin = format!(".{}.h5logfs-old-", self.name);
        let asides = names_in(dir).into_iter();
        let mut asides = asides.filter(|name| name.starts_with(&begin));
        asides.any(|name| {
            let found = self.read(&dir.join(name));
            matches!(found, Found::Flush(_)) && self.check(&found).is_ok()
        })
    }

    /// A recovered log shows the same as before. Returns the flush.
    fn check_recovered(&self, path: &Path, shown: &Found) -> Result<u64, String> {
        let about = |e: String| format!("it was shown as {shown:?}, and is recovered: {e}");
        let found = self.read(path);
        self.check(&found).map_err(about)?;
        match (&found, shown) {
            (Found::Flush(flush), Found::Flush(before)) if flush != before => {
                Err(about(format!("flush {flush}")))
            }
            (Found::Flush(flush), _) => Ok(*flush),
            (found, _) => Err(about(format!("{found:?}"))),
        }
    }

    /// The message of `recover` must lead on: the flush that it names is whole.
    fn recover_by_hand(&self, path: &Path, refused: &Error) -> Result<(), String> {
        let said = refused.to_string();
        let number = said.split_once("`--last-flush ").map(|(_, rest)| rest);
        let digits = number.and_then(|rest| Some(rest.split_once('`')?.0));
        let last: Option<u64> = digits.and_then(|digits| digits.parse().ok());
        let is_needed = |last: &u64| !self.is_of_kill && may_drop_flush(path, &said, *last);
        let Some(last) = last.filter(is_needed) else {
            return Err(format!("recover: {said}"));
        };
        let how = How {
            last_flush: Some(last),
            ..How::default()
        };
        let recovered = recover(path, how).map(drop);
        recovered.map_err(|e| format!("recover: {said}: and with that: {e}"))
    }

    /// A closed log becomes an ordinary file.
    fn check_settled(&self, path: &Path, flush: u64) -> Result<(), String> {
        if is_plain(path) || subfile_dir(path).exists() {
            return Ok(());
        }
        settled::settle(path).map_err(|e| format!("it is settled: {e}"))?;
        let found = self.read(path);
        if !is_plain(path) || found != Found::Flush(flush) {
            return Err(format!("it is settled with flush {flush}: {found:?}"));
        }
        Ok(())
    }

    /// Another job continues and closes the log.
    fn append(&self, path: &Path, flush: u64) -> Result<(), String> {
        if is_plain(path) {
            return Ok(());
        }
        let paths = vec![path.to_owned(); self.ranks];
        let mut job = Job::reopen(&paths, &Options::default(), flush).map_err(|e| e.to_string())?;
        job.flush(Course::default());
        let next = Found::Flush(flush + 1);
        let seen = |what: &str| {
            let found = self.read(path);
            if found == next {
                Ok(())
            } else {
                Err(format!("{what}: {found:?}, and not {next:?}"))
            }
        };
        seen("after another flush")?;
        job.leave();
        recover(path, How::default()).map_err(|e| format!("its close: {e}"))?;
        seen("closed")
    }
}

/// Whether more than a part of the last flush would be dropped because the journal is damaged. If only that part did
/// not reach the disk, no promised flush is lost, and the command continues by itself. `last` is the last whole
/// flush.
fn may_drop_flush(path: &Path, said: &str, last: u64) -> bool {
    let damage = said.split_once("line ");
    let damage = damage.and_then(|(_, rest)| rest.split_once(" of the journal"));
    let Some(line) = damage.and_then(|(number, _)| number.parse::<usize>().ok()) else {
        return true;
    };
    let journal = std::fs::read(path_of(path)).unwrap();
    let journal = String::from_utf8_lossy(&journal);
    let rest: Vec<&str> = journal.split('\n').skip(line - 1).collect();
    let commits: Vec<u64> = rest.iter().copied().filter_map(flush_of).collect();
    let has_hole = rest.first().is_some_and(|line| line.contains('\0'));
    match commits[..] {
        [] => false,
        // A hole over the commits of two flushes takes both.
        [flush] => !has_hole || flush > last + 1,
        _ => true,
    }
}

/// The flush of a commit line in a journal.
fn flush_of(line: &str) -> Option<u64> {
    let (_, commit) = line.split_once("\"commit\":{\"flush\":")?;
    let digits = commit.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Whether libhdf5 can read the file directly.
fn is_plain(path: &Path) -> bool {
    matches!(open(path), Err(Error::NotALog { .. }))
}

fn open(path: &Path) -> Result<Arc<View>, Error> {
    let (dir, name) = SourceDir::of_file(path)?;
    let snapshot = scan(ScanRequest::alone(&dir, &name, &Settings::default()))?;
    let budget = Budget::new(MemoryLimits::each(64 << 20));
    View::open(&dir, snapshot, Arc::new(budget), None)
}

/// The bytes of an ordinary HDF5 file: the file itself, or the view of a log.
fn ordinary(path: &Path, copy: &Path) -> Result<PathBuf, String> {
    let view = match open(path) {
        Ok(view) => view,
        Err(Error::NotALog { .. }) => return Ok(path.to_owned()),
        Err(e) => return Err(e.to_string()),
    };
    let diagnostics = &view.snapshot().diagnostics;
    if let Some(worst) = diagnostics.iter().find(|d| d.severity > Severity::Note) {
        return Err(worst.to_string());
    }
    let mut bytes = vec![0; 1 << 16];
    let mut file = File::create(copy).unwrap();
    let mut at = 0;
    while at < view.len() {
        let read = view.read_at(at, &mut bytes).map_err(|e| e.to_string())?;
        file.write_all(&bytes[..read]).unwrap();
        at += read as u64;
    }
    Ok(copy.to_owned())
}

/// A reader's result. Rows of flushes after `certain` may have any elements, because they may be lost.
pub fn read(path: &Path, certain: Option<u64>) -> Found {
    read_with(path, certain, false)
}

/// A reader's result. With `taken`, parts of the flush after the last one may be there, too.
fn read_with(path: &Path, certain: Option<u64>, taken: bool) -> Found {
    let dir = directory();
    let copied = ordinary(path, &dir.path().join("view.h5"));
    let contents = copied.and_then(|path| contents(&path).map_err(|e| e.to_string()));
    match contents {
        Ok(contents) => contents.judged(certain, taken),
        Err(said) => Found::Nothing(said),
    }
}

/// Content of an HDF5 file.
struct Contents {
    /// Number of each flush, from attributes.
    numbers: Vec<u64>,
    /// The dataset with a row per flush, if it exists.
    rows: Option<Vec<Vec<f64>>>,
    /// The dataset that each flush rewrites.
    now: Vec<f64>,
}

fn contents(path: &Path) -> hdf5::Result<Contents> {
    let file = hdf5::File::open(path)?;
    let mut numbers = Vec::new();
    while file.attr(&attribute(numbers.len() as u64 + 1)).is_ok() {
        let name = attribute(numbers.len() as u64 + 1);
        numbers.push(file.attr(&name)?.read_scalar()?);
    }
    if !file.link_exists("rows") {
        return Ok(Contents {
            numbers,
            rows: None,
            now: Vec::new(),
        });
    }
    let rows = file.dataset("rows")?;
    let columns = rows.shape()[1].max(1);
    let elements = rows.read_raw::<f64>()?;
    Ok(Contents {
        numbers,
        rows: Some(elements.chunks(columns).map(<[f64]>::to_vec).collect()),
        now: file.dataset("now")?.read_raw()?,
    })
}

impl Contents {
    fn judged(&self, certain: Option<u64>, taken: bool) -> Found {
        let wrong = |e: String| Found::Wrong(e);
        let Some(rows) = &self.rows else {
            if self.numbers.is_empty() {
                return Found::Flush(0);
            }
            return wrong(format!("no rows, and the flushes {:?}", self.numbers));
        };
        let numbers = &self.numbers;
        let Some(first) = numbers.first().map(|first| first - 1) else {
            return wrong(format!("{} rows, and no flush", rows.len()));
        };
        let is_taken = taken && rows.len() == numbers.len() + 1;
        let (rows, part) = rows.split_at(rows.len() - usize::from(is_taken));
        let flushes = rows.len() as u64;
        if !numbers.iter().copied().eq(first + 1..=first + flushes) {
            return wrong(format!("{flushes} rows, and the flushes {numbers:?}"));
        }
        let certain = certain.unwrap_or(u64::MAX);
        let differs = |flush: u64, row: &[f64]| {
            let mut wanted = (0..).map(|column| element(flush, column));
            let at = row.iter().position(|value| Some(*value) != wanted.next());
            at.filter(|_| flush <= certain)
        };
        for (row, flush) in rows.iter().zip(first + 1..) {
            if let Some(at) = differs(flush, row) {
                return wrong(format!("row {flush} has {} at {at}", row[at]));
            }
        }
        let next = first + flushes + 1;
        let of_next = |at: usize, value: f64| taken && value == element(next, at as u64);
        let is_part = |(at, value): (usize, &f64)| *value == 0.0 || of_next(at, *value);
        if !part.iter().flatten().enumerate().all(is_part) {
            return wrong(format!("what was taken in of row {next}"));
        }
        let mut now = self.now.clone();
        for (at, value) in now.iter_mut().enumerate() {
            if of_next(at, *value) {
                *value = element(first + flushes, at as u64);
            }
        }
        if let Some(at) = differs(first + flushes, &now) {
            return wrong(format!("after flush {flushes} {} at {at}", self.now[at]));
        }
        Found::Flush(first + flushes)
    }
}
