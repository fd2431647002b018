//! `h5logfs follow`: tells of each flush of a running job.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use jiff::{Timestamp, tz::TimeZone};
use rustix::process::nice;
use serde::Serialize;

use super::output::Output;
use super::report;
use super::unclosed::job_state;
use super::{LogScanner, ViewArgs};
use h5logfs_catalog::changes::Changes;
use h5logfs_common::error::Error;
use h5logfs_log::journal::{JobState, Moment};
use h5logfs_log::snapshot::{Dataset, Snapshot, Source};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::Identity;

/// Lower priority than that of a job. The processes that scan inherit it.
const NICE: i32 = 10;
/// How often the lock of the job is looked at.
const LOOK_AT_JOB: Duration = Duration::from_secs(1);
/// A follower that is further behind goes on with the newest flush.
const MOST_BEHIND: u64 = 32;
/// So does one that has told for so long of flushes that it had missed: the next ones are to be told of soon.
const MOST_CATCHING_UP: Duration = Duration::from_millis(100);
/// Datasets that a line names.
const MOST_NAMES: usize = 4;

/// Tell of each flush of a log as it comes: when, which datasets have grown, how many bytes, how fast
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The exit status is 3 where --until closed waits for a job that has ended without a close. Without --until the command goes on \
until it is interrupted, also when the log is closed and another job appends to it.")]
pub struct FollowArgs {
    /// The log file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// When to end
    #[arg(long, value_enum, value_name = "WHEN")]
    pub until: Option<Until>,

    /// Seconds after which a job has ended whose journal no process holds
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
#[error("{}: its job has ended, and has not closed it: `h5logfs recover {}` does", _0.display(), _0.display())]
pub struct JobEnded(pub PathBuf);

/// What there is to tell. Times are those of the journal.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    /// A flush is complete.
    Flush(Flush),
    /// The log is closed.
    Closed {
        /// It is an ordinary HDF5 file, whose extents are not looked at.
        settled: bool,
        /// Bytes of the files of the log.
        bytes: u64,
        /// Those that have another extent than at the last event.
        datasets: Vec<Extent>,
    },
    /// No process holds the journal any more.
    Ended,
    /// Another log has taken the place of the one that was followed.
    Replaced,
}

#[derive(Debug, Serialize)]
struct Flush {
    flush: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    /// The program has not asked for it.
    automatic: bool,
    /// Bytes of the files of the log, up to the end of the flush.
    bytes: u64,
    /// How many more there are than at the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_bytes: Option<u64>,
    /// Seconds since the flush of the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Those that have another extent than at the last event.
    datasets: Vec<Extent>,
}

/// A dataset, and how large it is now.
#[derive(Debug, Serialize)]
struct Extent {
    name: String,
    dims: Vec<u64>,
}

/// What was told last.
#[derive(Default)]
struct Told {
    /// The last flush that was told of.
    flush: u64,
    is_closed: bool,
    is_settled: bool,
    bytes: u64,
    time: Option<i64>,
    dims: BTreeMap<String, Vec<u64>>,
    /// Device and inode of the log file.
    file: Option<(u64, u64)>,
}

impl Told {
    fn of(snapshot: &Snapshot) -> Self {
        let extent = |dataset: &Dataset| (dataset.name.clone(), dataset.dims.clone());
        let first = snapshot.sources.first().map(|source| source.identity);
        Told {
            flush: snapshot.flushes,
            is_closed: snapshot.journal.is_none(),
            is_settled: false,
            bytes: bytes(snapshot),
            time: snapshot.flushed_at,
            dims: snapshot.datasets.iter().map(extent).collect(),
            file: first.map(|file| (file.device, file.inode)),
        }
    }

    /// The datasets that had other extents at an earlier state. Without one, all.
    fn changed_since(&self, before: Option<&Told>) -> Vec<Extent> {
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

/// Bytes of the files of a log.
fn bytes(snapshot: &Snapshot) -> u64 {
    let sizes = snapshot.sources.iter().map(|source| source.identity.size);
    sizes.fold(0, u64::saturating_add)
}

/// Whether there is no log, or none in the state that was asked for.
fn is_no_log(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(Error::NotALog { .. } | Error::NoMoment { .. })
    )
}

/// Follows one log.
struct Follower<'a, W> {
    args: &'a FollowArgs,
    scanner: LogScanner<'a>,
    changes: Changes,
    out: Output<W>,
    told: Option<Told>,
    /// The log tells whether its job runs.
    tells_job: bool,
    /// Since when no process holds the journal, and whether that was told.
    ended: Option<(Instant, bool)>,
}

pub fn run(args: FollowArgs) -> Result<()> {
    let settings = args.view.settings()?;
    ensure!(
        settings.moment == Moment::Newest,
        "follow tells of every flush: it takes neither at_flush nor at_time"
    );
    // The job comes first, where it runs on this node.
    let _ = nice(NICE);
    let changes = Changes::of(&args.file);
    let changes = changes.map_err(|e| anyhow::anyhow!("{}: {e}", args.file.display()))?;
    let follower = Follower {
        scanner: args.view.scanner()?,
        args: &args,
        changes,
        out: Output::stdout(),
        told: None,
        tells_job: false,
        ended: None,
    };
    follower.run()
}

impl<W: Write> Follower<'_, W> {
    fn run(mut self) -> Result<()> {
        loop {
            let journal = self.catch_up()?;
            if journal.is_none() && self.args.until == Some(Until::Closed) {
                return Ok(());
            }
            while !self.changes.wait(Some(Instant::now() + LOOK_AT_JOB)) {
                if let Some(journal) = &journal
                    && self.tells_job
                {
                    self.look_at_job(&journal.place)?;
                }
            }
            self.ended = None;
        }
    }

    /// Tells of what is new. Returns the journal of a log that is not closed.
    fn catch_up(&mut self) -> Result<Option<Source>> {
        let newest = match self.scan(Moment::Newest) {
            Err(error) if is_no_log(&error) && self.changes.is_settled() => {
                let now = self.settled()?;
                self.notice_other(&now)?;
                self.tell_closed(now)?;
                return Ok(None);
            }
            newest => newest?,
        };
        let now = Told::of(&newest);
        self.notice_other(&now)?;
        if now.is_closed {
            self.tell_closed(now)?;
            return Ok(None);
        }
        let last = self.told.as_ref().filter(|told| !told.is_closed);
        let last = last.map(|told| told.flush);
        let begin = Instant::now();
        for flush in missed(last, now.flush) {
            if begin.elapsed() > MOST_CATCHING_UP {
                break;
            }
            match self.scan(Moment::Flush(flush)) {
                // Meanwhile the log was closed, and may have been opened again.
                Err(error) if is_no_log(&error) => {}
                missed => self.tell_flush(&missed?, flush)?,
            }
        }
        if last.is_none_or(|last| last < now.flush) {
            self.tell_flush(&newest, now.flush)?;
        }
        self.tells_job = newest.tells_job();
        Ok(newest.journal)
    }

    /// Tells where another log has taken the place of the one that was told of.
    fn notice_other(&mut self, now: &Told) -> Result<()> {
        let is_other =
            |told: &Told| told.file != now.file || (!now.is_closed && told.flush > now.flush);
        if self.told.as_ref().is_some_and(is_other) {
            self.tell(&Event::Replaced)?;
            self.told = None;
        }
        Ok(())
    }

    /// The state of a settled log.
    fn settled(&self) -> Result<Told> {
        let found = Identity::from(&self.args.file.metadata()?);
        let dims = self.told.as_ref().map(|told| told.dims.clone());
        Ok(Told {
            is_closed: true,
            is_settled: true,
            bytes: found.size,
            dims: dims.unwrap_or_default(),
            file: Some((found.device, found.inode)),
            ..Told::default()
        })
    }

    /// The log in one state, which may change while it is scanned.
    fn scan(&mut self, moment: Moment) -> Result<Snapshot> {
        let file = &self.args.file;
        let scanned = self.changes.retry(|| self.scanner.snapshot(file, moment));
        match scanned {
            Err(_) if !self.changes.is_there() => {
                bail!("{}: it is not there any more", file.display())
            }
            scanned => scanned,
        }
    }

    /// The log as a flush has left it. Some logs that were closed meanwhile can still show it.
    fn tell_flush(&mut self, snapshot: &Snapshot, flush: u64) -> Result<()> {
        let now = Told {
            flush,
            is_closed: false,
            ..Told::of(snapshot)
        };
        let before = self.told.as_ref();
        let event = Event::Flush(Flush {
            flush: now.flush,
            time: now
                .time
                .and_then(|time| Timestamp::from_millisecond(time).ok()),
            automatic: snapshot.asked < snapshot.flushes,
            bytes: now.bytes,
            new_bytes: before.map(|before| now.bytes.saturating_sub(before.bytes)),
            // The state in which an append began tells no time.
            seconds: before.and_then(|before| seconds_between(before.time?, now.time?)),
            datasets: now.changed_since(before),
        });
        self.told = Some(now);
        Ok(self.tell(&event)?)
    }

    fn tell_closed(&mut self, now: Told) -> Result<()> {
        // Programs may go on to write into a settled file.
        if now.is_settled && self.told.as_ref().is_some_and(|told| told.is_settled) {
            return Ok(());
        }
        let datasets = now.changed_since(self.told.as_ref());
        let event = Event::Closed {
            settled: now.is_settled,
            bytes: now.bytes,
            datasets,
        };
        let flush = self.told.as_ref().map_or(0, |told| told.flush);
        self.told = Some(Told { flush, ..now });
        Ok(self.tell(&event)?)
    }

    /// Tells once that the job has ended, when that is so for as long as a close may take.
    fn look_at_job(&mut self, journal: &SourcePath) -> Result<()> {
        if job_state(&self.args.file, journal) != JobState::Ended {
            self.ended = None;
            return Ok(());
        }
        let (since, is_told) = *self.ended.get_or_insert((Instant::now(), false));
        if is_told || since.elapsed() < Duration::from_secs(self.args.timeout.into()) {
            return Ok(());
        }
        if self.args.until == Some(Until::Closed) {
            return Err(JobEnded(self.args.file.clone()).into());
        }
        self.ended = Some((since, true));
        Ok(self.tell(&Event::Ended)?)
    }

    fn tell(&mut self, event: &Event) -> io::Result<()> {
        if self.args.json {
            return self.out.json_line(event);
        }
        match event {
            Event::Flush(flush) => writeln!(self.out, "{}", flush.line()),
            Event::Closed {
                settled,
                bytes,
                datasets,
            } => {
                let settled = if *settled { " and settled" } else { "" };
                let bytes = report::bytes((*bytes).into());
                writeln!(self.out, "closed{settled}: {bytes}{}", extents(datasets))
            }
            Event::Ended => {
                let file = self.args.file.display();
                writeln!(
                    self.out,
                    "its job has ended: `h5logfs recover {file}` closes it"
                )
            }
            Event::Replaced => writeln!(self.out, "another log has taken its place"),
        }
    }
}

/// The seconds between two times of a journal, which may be any numbers. `None` where they do not grow: clocks are set back.
fn seconds_between(before: i64, now: i64) -> Option<f64> {
    let passed = now.checked_sub(before).filter(|passed| *passed > 0);
    passed.map(|milliseconds| milliseconds as f64 / 1e3)
}

/// The flushes between the last one that was told of and the newest one, if they are not too many.
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
        let size = |bytes: u64| report::bytes(bytes.into());
        let bytes = match self.new_bytes {
            Some(new) => format!("+{}", size(new)),
            None => size(self.bytes),
        };
        let rate = self
            .new_bytes
            .zip(self.seconds)
            .map_or(String::new(), |(new, seconds)| {
                format!(
                    " in {seconds:.1} s, {}/s",
                    size((new as f64 / seconds) as u64)
                )
            });
        let extents = extents(&self.datasets);
        format!(
            "{time}flush {}{automatic}: {bytes}{rate}{extents}",
            self.flush
        )
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
