//! `h5logfs settle`: turns a log into an ordinary HDF5 file in place, and back.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use indicatif::BinaryBytes;
use serde::Serialize;

use super::output::{Output, fail_with_last};
use super::progress::{Progress, Summary};
use super::rights::with_owners_rights;
use super::{LogScanner, ViewArgs, log_bytes, with_log_file};
use h5logfs_common::parallel::cores;
use h5logfs_convert::settle::{self, Held, How, Intent, Plan, Ready};
use h5logfs_view::View;

/// Turn a log into an ordinary HDF5 file in place, without moving the chunks that HDF5 can read where they are
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The missing parts of an ordinary file are appended; the first bytes of the file change last, in one write. After an \
interruption, even a crash of the system, the file is either the log that it was or an ordinary file, and the command \
can be run again. The time that --dry-run prints assumes 500 MB/s for writing, and 50 MB/s a core for compressing chunks.

--undo restores the log, byte for byte, as long as no program has written to the file.

A log stays as it is if its data are in several files, or if some of them cannot be read.")]
pub struct SettleArgs {
    /// The log files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Only print what would be appended and how long that would take
    #[arg(long)]
    pub dry_run: bool,

    /// With --dry-run: print JSON
    #[arg(long, requires = "dry_run")]
    pub json: bool,

    /// Turn a settled file back into the log, if no program has written to it
    #[arg(long, conflicts_with = "dry_run")]
    pub undo: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: SettleArgs) -> Result<()> {
    let out = &mut Output::stdout();
    let (mut forecasts, mut failed) = (Vec::new(), Vec::new());
    // The process that forks workers starts with the rights of the caller.
    let scanner = args.view.scanner()?;
    for file in &args.files {
        let act = || {
            if args.undo {
                undo(file, out)
            } else if args.dry_run {
                Forecast::of(file, &scanner).map(|forecast| forecasts.push(forecast))
            } else {
                settle(file, &scanner, out)
            }
        };
        let done = with_owners_rights(file, || with_log_file(file, act));
        failed.extend(done.err());
    }
    if args.json {
        out.json_array(forecasts.into_iter().map(Ok::<_, io::Error>))?;
    } else {
        forecasts.iter().try_for_each(|f| f.print(out))?;
    }
    fail_with_last(failed)
}

fn undo(file: &Path, out: &mut Output<impl Write>) -> Result<()> {
    settle::undo(&Held::open(file, Intent::Change)?)?;
    writeln!(out, "{}: a log again", file.display())?;
    Ok(())
}

fn settle(file: &Path, scanner: &LogScanner<'_>, out: &mut Output<impl Write>) -> Result<()> {
    let Some(ready) = ready(file, scanner, Intent::Change)? else {
        writeln!(out, "{}: {ALREADY}, nothing to do", file.display())?;
        return Ok(());
    };
    for note in ready.notes() {
        writeln!(out, "{}: {note}", file.display())?;
    }
    let plan = ready.plan();
    let (in_place, appended) = (plan.in_place(), plan.appended());
    let summary = Summary::begin(log_bytes(ready.view()));
    let progress = Progress::new("h5logfs settle", plan.bytes());
    let settled = ready.settle(&|done| progress.set_position(done))?;
    progress.finish();
    writeln!(
        out,
        "{}: settled: {in_place} chunks stay where they lie, {appended} were appended; it has grown by {}",
        file.display(),
        BinaryBytes(settled.after - settled.before),
    )?;
    summary.print(&file.display().to_string(), settled.after);
    Ok(())
}

const ALREADY: &str = "settled already";

/// Scans the log, in a process without rights.
fn ready(file: &Path, scanner: &LogScanner<'_>, intent: Intent) -> Result<Option<Ready>> {
    let how = How {
        scanner: &*scanner.scanner,
        settings: scanner.args.settings()?,
        memory: scanner.args.memory(),
    };
    Ok(Ready::of(file, intent, how)?)
}

/// The forecast of settling a log.
#[derive(Debug, Serialize)]
struct Forecast {
    /// The user's name for the file.
    file: String,
    is_settled: bool,
    /// Number of chunks that stay in place.
    in_place: u64,
    /// Number of chunks that would be appended.
    appended: u64,
    /// Most growth of the file, in bytes.
    bytes: u64,
    /// Estimated time, at the rates in the help text.
    seconds: f64,
    datasets: Vec<DatasetForecast>,
}

#[derive(Debug, Serialize)]
struct DatasetForecast {
    name: String,
    in_place: u64,
    appended: u64,
    /// Upper bound for the appended chunks and the chunk index, in bytes.
    bytes: u64,
}

impl Forecast {
    fn of(file: &Path, scanner: &LogScanner<'_>) -> Result<Self> {
        let ready = ready(file, scanner, Intent::Look)?;
        let mut forecast = Forecast {
            file: file.display().to_string(),
            is_settled: ready.is_none(),
            in_place: 0,
            appended: 0,
            bytes: 0,
            seconds: 0.0,
            datasets: Vec::new(),
        };
        if let Some(ready) = ready {
            let (view, plan) = (ready.view(), ready.plan());
            forecast.in_place = plan.in_place();
            forecast.appended = plan.appended();
            forecast.bytes = ready.growth();
            forecast.seconds = seconds(view, plan, forecast.bytes);
            let datasets = view.snapshot().datasets.iter().zip(&plan.datasets);
            forecast.datasets = datasets
                .map(|(dataset, plan)| DatasetForecast {
                    name: dataset.name.clone(),
                    in_place: plan.in_place,
                    appended: plan.appended,
                    bytes: plan.appended_bytes + plan.index_bytes,
                })
                .collect();
        }
        Ok(forecast)
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        let file = &self.file;
        if self.is_settled {
            return writeln!(out, "{file}: {ALREADY}");
        }
        for dataset in self.datasets.iter().filter(|d| d.appended > 0) {
            writeln!(
                out,
                "{file}: {}: {} of {} chunks would be appended, with their index at most {}",
                dataset.name,
                dataset.appended,
                dataset.appended + dataset.in_place,
                BinaryBytes(dataset.bytes),
            )?;
        }
        writeln!(
            out,
            "{file}: {} chunks would stay where they lie, {} would be appended; it would grow by at most {}, in about {:.1} s",
            self.in_place,
            self.appended,
            BinaryBytes(self.bytes),
            self.seconds,
        )
    }
}

/// Estimated time to append `bytes` bytes.
fn seconds(view: &View, plan: &Plan, bytes: u64) -> f64 {
    let datasets = view.snapshot().datasets.iter().zip(&plan.datasets);
    let compressed = datasets.filter(|(dataset, _)| !dataset.filters.is_empty());
    let compressed: u64 = compressed.map(|(_, plan)| plan.appended_bytes).sum();
    bytes as f64 / WRITE_RATE + compressed as f64 / (COMPRESS_RATE * cores() as f64)
}

/// Bytes a second that a disk writes, and that a core compresses.
const WRITE_RATE: f64 = 500e6;
const COMPRESS_RATE: f64 = 50e6;
