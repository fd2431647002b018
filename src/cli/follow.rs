//! `h5logfs follow`: reports each flush of a running job.

mod writers;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use jiff::{Timestamp, tz::TimeZone};
use rustix::process::nice;
use serde::Serialize;

use super::logs;
use super::ls::last_write;
use super::output::{Output, plain};
use super::report;
use super::unclosed::job_state;
use super::{LogScanner, Scanned, ViewArgs};
use h5logfs_catalog::changes::{Changes, FollowedState, Plain};
use h5logfs_common::error::Error;
use h5logfs_log::journal::{JobState, ShownFlush};
use h5logfs_log::log_dir;
use h5logfs_log::snapshot::{Dataset, Snapshot};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::Identity;
use writers::Files;

/// Priority below that of a job. The processes that scan inherit it.
const NICE: i32 = 10;
/// Time between two looks at the job's lock.
const LOOK_AT_JOB: Duration = Duration::from_secs(1);
/// Time between two looks for a file that is not there yet.
const LOOK_FOR_FILE: Duration = Duration::from_millis(150);
/// Most flushes by which a follower may be late. Beyond that it skips to the newest flush.
const MOST_BEHIND: u64 = 32;
/// Longest time for reporting missed flushes. Then it skips to the newest flush, so that new ones are reported soon.
const MOST_CATCHING_UP: Duration = Duration::from_millis(100);
/// Most datasets named in a line.
const MOST_NAMES: usize = 4;

/// Print each flush of a running job: time, bytes, rate, and the datasets that have grown
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The command ends when the log is closed; with --stay it goes on, and reports on a job that appends to the log. With --until closed \
it also ends when the job has ended without a close; the exit status is then 3. The lock of the journal tells that. Where a log \
has no journal, the job counts as ended when nothing has changed for --timeout seconds and no process of this node that the user \
may see has the files open for writing. Nothing tells that a set of files is closed: --until closed takes it for closed under the \
same condition.")]
pub struct FollowArgs {
    /// The log file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// When to end
    #[arg(long, value_enum, value_name = "WHEN")]
    pub until: Option<Until>,

    /// Wait for a log that is not there yet, and for another one if it is removed
    #[arg(long)]
    pub wait: bool,

    /// Go on when the log is closed, until the command is interrupted
    #[arg(long, conflicts_with = "until")]
    pub stay: bool,

    /// Treat the job as dead when its journal has been unlocked, or its log unchanged, for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub timeout: u32,

    /// Print JSON: an object in a line for each event
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

/// When `follow` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// When the log is closed, or its job has ended without a close
    Closed,
}

/// The job has ended without a close.
#[derive(Debug, thiserror::Error)]
pub enum JobEnded {
    /// The lock of its journal tells it.
    #[error("{}: its job has ended without closing it: `h5logfs recover {}` closes it", _0.display(), _0.display())]
    Unlocked(PathBuf),
    /// So many seconds without a change, and without a writer on this node, tell it.
    #[error("{}: it is not closed, {}", _0.display(), silence(*_1))]
    Silent(PathBuf, u32),
}

/// Why a job without a journal counts as ended.
fn silence(seconds: u32) -> String {
    format!(
        "has not changed for {seconds} s, and no process here that can be seen writes to it: its job has ended"
    )
}

/// An event to report. Times are those of the journal.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    /// A flush is complete.
    Flush(Flush),
    /// The log has changed, and is not closed. Its layout does not number flushes.
    Unclosed(Unclosed),
    /// The log is closed.
    Closed {
        /// Whether it is an ordinary HDF5 file, whose extents are not examined.
        settled: bool,
        /// Size of the log's files, in bytes.
        bytes: u64,
        /// Datasets whose extent has changed since the last event.
        datasets: Vec<Extent>,
    },
    /// No process holds the journal any more.
    Ended,
    /// Another log has replaced the followed one.
    Replaced,
}

#[derive(Debug, Serialize)]
struct Unclosed {
    /// Size of the log's files, in bytes.
    bytes: u64,
    /// Growth since the last event, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_bytes: Option<u64>,
    /// Datasets whose extent has changed since the last event.
    datasets: Vec<Extent>,
}

#[derive(Debug, Serialize)]
struct Flush {
    flush: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    /// Whether the flush was automatic.
    automatic: bool,
    /// Size of the log's files up to the end of the flush, in bytes.
    bytes: u64,
    /// Growth since the last event, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_bytes: Option<u64>,
    /// Seconds since the flush of the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Datasets whose extent has changed since the last event.
    datasets: Vec<Extent>,
}

/// A dataset with its present extent.
#[derive(Debug, Serialize)]
struct Extent {
    name: String,
    dims: Vec<u64>,
}

/// The last reported state.
#[derive(Default, Clone)]
struct Reported {
    /// The last reported flush.
    flush: u64,
    is_closed: bool,
    /// The kind of ordinary file that has replaced the log.
    plain: Option<Plain>,
    bytes: u64,
    time: Option<i64>,
    dims: BTreeMap<String, Vec<u64>>,
    /// Device and inode number of the log file.
    file: Option<(u64, u64)>,
}

impl Reported {
    fn of(snapshot: &Snapshot) -> Self {
        let extent = |dataset: &Dataset| (dataset.name.clone(), dataset.dims.clone());
        let first = snapshot.sources.first().map(|source| source.identity);
        Reported {
            flush: snapshot.flushes,
            is_closed: snapshot.is_closed(),
            plain: None,
            bytes: bytes(snapshot),
            // Where flushes have no times, this is when the flush has arrived.
            time: snapshot.flushed_at.or_else(|| {
                let written = last_write(snapshot).filter(|_| snapshot.journal.is_some());
                written.map(Timestamp::as_millisecond)
            }),
            dims: snapshot.datasets.iter().map(extent).collect(),
            file: first.map(|file| (file.device, file.inode)),
        }
    }

    /// Datasets whose extents differ from an earlier state; all datasets without one.
    fn changed_since(&self, before: Option<&Reported>) -> Vec<Extent> {
        let earlier = |name| before.and_then(|before| before.dims.get(name));
        let changed = self
            .dims
            .iter()
            .filter(|(name, dims)| earlier(*name) != Some(dims));
        changed.map(Extent::from).collect()
    }
}

impl From<(&String, &Vec<u64>)> for Extent {
    fn from((name, dims): (&String, &Vec<u64>)) -> Self {
        Extent {
            name: name.clone(),
            dims: dims.clone(),
        }
    }
}

/// Size of a log's files, in bytes.
fn bytes(snapshot: &Snapshot) -> u64 {
    let sizes = snapshot.sources.iter().map(|source| source.identity.size);
    sizes.fold(0, u64::saturating_add)
}

/// Whether there is no log, or not in the requested state.
pub fn is_no_log(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(Error::NotALog { .. } | Error::NoFlush { .. })
    )
}

/// Follows one log.
struct Follower<'a, W> {
    args: &'a FollowArgs,
    scanner: LogScanner<'a>,
    changes: Changes,
    out: Output<W>,
    reported: Option<Reported>,
    /// The journal of an unclosed log, if its lock tells whether the job runs.
    journal: Option<SourcePath>,
    /// Since when no process holds the journal, and whether that was reported.
    ended: Option<(Instant, bool)>,
    /// The files of a log without such a journal.
    files: Files,
    /// The last change, or the last time that a writer was seen.
    heard: Instant,
    /// Whether the log is a set of files, which nothing tells to be closed.
    is_set: bool,
}

pub fn run(args: FollowArgs) -> Result<()> {
    let settings = args.view.settings()?;
    ensure!(
        settings.shown_flush == ShownFlush::Newest,
        "follow reports every flush, so at_flush and at_time make no sense here"
    );
    // The job has priority on its node.
    let _ = nice(NICE);
    let scanner = args.view.scanner()?;
    if args.wait {
        wait_for(&args.file);
    }
    let changes = Changes::of(&args.file);
    let changes = changes.map_err(|e| anyhow::anyhow!("{}: {e}", args.file.display()))?;
    let follower = Follower {
        scanner,
        args: &args,
        changes,
        out: Output::stdout(),
        reported: None,
        journal: None,
        ended: None,
        files: Files::default(),
        heard: Instant::now(),
        is_set: false,
    };
    follower.run()
}

/// Waits until there is a file, or a directory of a log with its index.
fn wait_for(file: &Path) {
    let is_there = || {
        Changes::of(file).is_ok()
            && !logs::is_directory(file)
            && log_dir::check_complete(file).is_ok()
    };
    if !is_there() {
        tell(&format!("waiting for {}", file.display()));
    }
    while !is_there() {
        thread::sleep(LOOK_FOR_FILE);
    }
}

/// Tells the user what the command waits for. Standard output is for events.
fn tell(what: &str) {
    eprintln!("h5logfs: {}", plain(what));
}

impl<W: Write> Follower<'_, W> {
    fn run(mut self) -> Result<()> {
        let mut is_told = self.args.until.is_none();
        loop {
            let is_closed = match self.catch_up() {
                // It may become a log, or another one may take its place.
                Err(_) if self.args.wait && !self.changes.is_there() => {
                    self.wait_for_another()?;
                    continue;
                }
                Err(error) if self.args.wait && self.reported.is_none() && is_no_log(&error) => {
                    false
                }
                caught_up => caught_up?,
            };
            if is_closed && !self.args.stay {
                return Ok(());
            }
            if !std::mem::replace(&mut is_told, true) {
                self.tell_until_when();
            }
            while !self.changes.wait(Some(Instant::now() + LOOK_AT_JOB)) {
                if self.look_at_job()? {
                    return Ok(());
                }
            }
            self.ended = None;
            self.heard = Instant::now();
        }
    }

    /// Waits for a log of the name of one that is gone.
    fn wait_for_another(&mut self) -> Result<()> {
        wait_for(&self.args.file);
        self.changes = Changes::of(&self.args.file)?;
        self.heard = Instant::now();
        Ok(())
    }

    fn tell_until_when(&self) {
        let file = self.args.file.display();
        let seconds = self.args.timeout;
        let or = if self.journal.is_some() {
            format!("until no process has held the lock of its journal for {seconds} s")
        } else {
            format!("until nothing has changed for {seconds} s and no process here writes to it")
        };
        if self.is_set {
            tell(&format!("waiting {or}: {file}"));
        } else {
            tell(&format!("waiting until {file} is closed, or {or}"));
        }
    }

    /// Reports what is new. Returns whether the log is closed.
    fn catch_up(&mut self) -> Result<bool> {
        self.journal = None;
        let newest = match self.scan(ShownFlush::Newest) {
            Ok(newest) => newest,
            Err(error) => match self.changes.plain().filter(|_| is_no_log(&error)) {
                Some(plain) => {
                    let now = self.became(plain)?;
                    self.report_other(&now)?;
                    self.report_closed(now)?;
                    return Ok(true);
                }
                None => return Err(error),
            },
        };
        let found = FollowedState::of(&newest.snapshot, newest.files()?);
        self.changes.learn(&found);
        self.is_set = newest.snapshot.joined.is_some();
        self.files = Files::of(&self.args.file, newest.files()?);
        let mut now = Reported::of(&newest.snapshot);
        now.is_closed &= !self.is_set;
        self.report_other(&now)?;
        if now.is_closed {
            self.report_closed(now)?;
            return Ok(true);
        }
        if newest.snapshot.journal.is_none() {
            self.report_unclosed(now)?;
            return Ok(false);
        }
        let last = self
            .reported
            .as_ref()
            .filter(|reported| !reported.is_closed);
        let last = last.map(|reported| reported.flush);
        let begin = Instant::now();
        for flush in missed(last, now.flush) {
            if begin.elapsed() > MOST_CATCHING_UP {
                break;
            }
            match self.scan(ShownFlush::Flush(flush)) {
                // The log was closed meanwhile, and may have been opened again.
                Err(error) if is_no_log(&error) => {}
                missed => self.report_flush(&missed?.snapshot, flush)?,
            }
        }
        let newest = newest.snapshot;
        if last.is_none_or(|last| last < now.flush) {
            self.report_flush(&newest, now.flush)?;
        }
        let journal = newest.journal.as_ref().filter(|_| newest.tells_job());
        self.journal = journal.map(|journal| journal.place.clone());
        Ok(false)
    }

    /// Reports that another log has replaced the reported one.
    fn report_other(&mut self, now: &Reported) -> Result<()> {
        let is_other = |reported: &Reported| {
            reported.file != now.file || (!now.is_closed && reported.flush > now.flush)
        };
        if self.reported.as_ref().is_some_and(is_other) {
            self.print_event(&Event::Replaced)?;
            self.reported = None;
        }
        Ok(())
    }

    /// The state of a closed log that has become an ordinary file.
    fn became(&self, plain: Plain) -> Result<Reported> {
        let found = Identity::from(&self.args.file.metadata()?);
        let dims = self.reported.as_ref().map(|reported| reported.dims.clone());
        Ok(Reported {
            is_closed: true,
            plain: Some(plain),
            bytes: found.size,
            dims: dims.unwrap_or_default(),
            file: Some((found.device, found.inode)),
            ..Reported::default()
        })
    }

    /// Scans the log in one state. The log may change meanwhile.
    fn scan(&mut self, shown_flush: ShownFlush) -> Result<Scanned> {
        let file = &self.args.file;
        let scanned = self
            .changes
            .retry(|| self.scanner.scan_at(file, shown_flush));
        match scanned {
            Err(_) if !self.changes.is_there() => {
                bail!("{}: the file no longer exists", file.display())
            }
            scanned => scanned,
        }
    }

    /// Reports the state after a flush. Some logs that were closed meanwhile can still show it.
    fn report_flush(&mut self, snapshot: &Snapshot, flush: u64) -> Result<()> {
        let now = Reported {
            flush,
            is_closed: false,
            ..Reported::of(snapshot)
        };
        let before = self.reported.as_ref();
        let event = Event::Flush(Flush {
            flush: now.flush,
            time: now
                .time
                .and_then(|time| Timestamp::from_millisecond(time).ok()),
            automatic: snapshot.asked < snapshot.flushes,
            bytes: now.bytes,
            new_bytes: before.map(|before| now.bytes.saturating_sub(before.bytes)),
            // The state at the start of an append has no time.
            seconds: before.and_then(|before| seconds_between(before.time?, now.time?)),
            datasets: now.changed_since(before),
        });
        self.reported = Some(now);
        Ok(self.print_event(&event)?)
    }

    /// Reports a changed log whose layout does not number flushes.
    fn report_unclosed(&mut self, now: Reported) -> Result<()> {
        let before = self.reported.as_ref();
        let datasets = now.changed_since(before);
        let is_same = |reported: &Reported| !reported.is_closed && reported.bytes == now.bytes;
        if datasets.is_empty() && before.is_some_and(is_same) {
            return Ok(());
        }
        let event = Event::Unclosed(Unclosed {
            bytes: now.bytes,
            new_bytes: before.map(|before| now.bytes.saturating_sub(before.bytes)),
            datasets,
        });
        self.reported = Some(now);
        Ok(self.print_event(&event)?)
    }

    fn report_closed(&mut self, now: Reported) -> Result<()> {
        // Programs may go on to write into an ordinary file.
        let reported = self.reported.as_ref().and_then(|reported| reported.plain);
        if now.plain.is_some() && reported == now.plain {
            return Ok(());
        }
        let datasets = now.changed_since(self.reported.as_ref());
        let event = Event::Closed {
            settled: now.plain == Some(Plain::Hdf5),
            bytes: now.bytes,
            datasets,
        };
        let flush = self.reported.as_ref().map_or(0, |reported| reported.flush);
        self.reported = Some(Reported { flush, ..now });
        Ok(self.print_event(&event)?)
    }

    /// Reports the end of the job once, when it has lasted longer than a close may take. Returns whether the command ends.
    fn look_at_job(&mut self) -> Result<bool> {
        let Some(journal) = &self.journal else {
            return self.look_at_writers();
        };
        if job_state(&self.args.file, journal) != JobState::Ended {
            self.ended = None;
            return Ok(false);
        }
        let (since, is_reported) = *self.ended.get_or_insert((Instant::now(), false));
        if is_reported || since.elapsed() < self.timeout() {
            return Ok(false);
        }
        if self.args.until == Some(Until::Closed) {
            return Err(JobEnded::Unlocked(self.args.file.clone()).into());
        }
        self.ended = Some((since, true));
        self.print_event(&Event::Ended)?;
        Ok(false)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.args.timeout.into())
    }

    /// [`Follower::look_at_job`] for a log whose files alone tell of its job.
    fn look_at_writers(&mut self) -> Result<bool> {
        let is_open = self
            .reported
            .as_ref()
            .is_some_and(|reported| !reported.is_closed);
        let is_reported = self.ended.is_some_and(|(_, is_reported)| is_reported);
        if !is_open || is_reported || self.heard.elapsed() < self.timeout() {
            return Ok(false);
        }
        if self.files.have_writer() {
            self.heard = Instant::now();
            return Ok(false);
        }
        if self.args.until.is_none() {
            self.ended = Some((self.heard, true));
            if !self.is_set {
                self.print_event(&Event::Ended)?;
            }
            return Ok(false);
        }
        match self.reported.clone().filter(|_| self.is_set) {
            Some(reported) => {
                let closed = Reported {
                    is_closed: true,
                    ..reported
                };
                self.report_closed(closed)?;
                Ok(true)
            }
            None => Err(JobEnded::Silent(self.args.file.clone(), self.args.timeout).into()),
        }
    }

    fn print_event(&mut self, event: &Event) -> io::Result<()> {
        if self.args.json {
            return self.out.json_line(event);
        }
        match event {
            Event::Flush(flush) => writeln!(self.out, "{}", flush.line()),
            Event::Unclosed(state) => {
                let bytes = more_bytes(state.new_bytes, state.bytes);
                let what = if self.is_set { "written" } else { "not closed" };
                writeln!(self.out, "{what}: {bytes}{}", extents(&state.datasets))
            }
            Event::Closed {
                settled,
                bytes,
                datasets,
            } => {
                let settled = if *settled { " and settled" } else { "" };
                let bytes = report::bytes((*bytes).into());
                writeln!(self.out, "closed{settled}: {bytes}{}", extents(datasets))
            }
            Event::Ended if self.journal.is_none() => {
                writeln!(self.out, "it {}", silence(self.args.timeout))
            }
            Event::Ended => {
                let file = self.args.file.display();
                writeln!(
                    self.out,
                    "its job has ended: `h5logfs recover {file}` closes it"
                )
            }
            Event::Replaced => writeln!(self.out, "another log has replaced it"),
        }
    }
}

/// Seconds between two times of a journal, which may be any numbers. `None` if time does not increase: clocks may be set
/// back.
fn seconds_between(before: i64, now: i64) -> Option<f64> {
    let passed = now.checked_sub(before).filter(|passed| *passed > 0);
    passed.map(|milliseconds| milliseconds as f64 / 1e3)
}

/// The flushes between the last reported one and the newest one, if they are few.
fn missed(last: Option<u64>, newest: u64) -> std::ops::Range<u64> {
    match last {
        Some(last) if newest > last && newest - last <= MOST_BEHIND => last + 1..newest,
        _ => newest..newest,
    }
}

impl Flush {
    fn line(&self) -> String {
        let time = self.time.map(|time| time.to_zoned(TimeZone::system()));
        let time = time.map_or(String::new(), |time| time.strftime("%H:%M:%S ").to_string());
        let automatic = if self.automatic { " (automatic)" } else { "" };
        let bytes = more_bytes(self.new_bytes, self.bytes);
        let rate = self
            .new_bytes
            .zip(self.seconds)
            .map_or(String::new(), |(new, seconds)| {
                format!(
                    " in {seconds:.1} s, {}/s",
                    report::bytes(((new as f64 / seconds) as u64).into())
                )
            });
        let extents = extents(&self.datasets);
        format!(
            "{time}flush {}{automatic}: {bytes}{rate}{extents}",
            self.flush
        )
    }
}

/// The growth of a log, or else its size.
fn more_bytes(new: Option<u64>, all: u64) -> String {
    match new {
        Some(new) => format!("+{}", report::bytes(new.into())),
        None => report::bytes(all.into()),
    }
}

/// The extents of some datasets, for the end of a line.
fn extents(datasets: &[Extent]) -> String {
    let mut text = String::new();
    for (number, dataset) in datasets.iter().take(MOST_NAMES).enumerate() {
        let before = if number == 0 { "; " } else { ", " };
        text += &format!("{before}{} {}", dataset.name, report::shape(&dataset.dims));
    }
    match datasets.len().saturating_sub(MOST_NAMES) {
        0 => text,
        more => text + &format!(" and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_journal_may_be_any() {
        assert_eq!(seconds_between(1000, 2500), Some(1.5));
        assert_eq!(seconds_between(2500, 1000), None);
        assert_eq!(seconds_between(i64::MIN, i64::MAX), None);
    }

    #[test]
    fn what_was_missed_is_told_in_order_unless_it_is_too_much() {
        assert!(missed(None, 9).is_empty());
        assert!(missed(Some(9), 9).is_empty() && missed(Some(8), 9).is_empty());
        assert_eq!(missed(Some(6), 9), 7..9);
        assert_eq!(missed(Some(1), 33), 2..33);
        assert!(missed(Some(1), 34).is_empty());
    }
}
