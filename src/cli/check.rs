//! `h5logfs check`: reads all data of a view, and reports each fault.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use serde::Serialize;

use super::called::Called;
use super::colour::Colour;
use super::output::{Output, fail_with_last};
use super::progress::Progress;
use super::unclosed::Unclosed;
use super::{IsView, LogScanner, ViewArgs, logs};
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::Error;
use h5logfs_log::journal::unflushed::Summary;
use h5logfs_view::View;

/// Most faults reported for one dataset. A single damaged entry can spoil any number of chunks.
const MOST_FAULTS: usize = 1000;

/// Read all data of log files, and report each fault
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The log files; or directories, for the logs in them
    #[arg(value_name = "DIR|FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: CheckArgs) -> Result<()> {
    let out = &mut Output::stdout();
    let logs::Named {
        files: paths,
        mut errors,
    } = logs::named(&args.files, &args.view)?;
    let scanner = args.view.scanner_for(paths.len())?;
    let (mut bad, mut views, mut others) = (0, 0, 0);
    let mut reports = paths.iter().map(|file| {
        let report = Report::of(file, &scanner);
        bad += usize::from(!report.faults.is_empty());
        views += usize::from(report.is_view);
        others += usize::from(report.is_no_log);
        report
    });
    if args.json {
        out.json_array(reports.map(Ok::<_, io::Error>))?;
    } else {
        reports.try_for_each(|report| report.print(out))?;
    }
    let files = paths.len();
    if bad > 0 {
        errors.push(anyhow!("{bad} of {files} files have faults"));
    }
    fail_with_last(errors)?;
    ensure!(
        views == 0,
        "{views} of {files} files are views, and were not checked"
    );
    ensure!(others < files, "none of these files is a log");
    Ok(())
}

/// The faults of one file.
#[derive(Debug, Serialize)]
struct Report {
    /// The user's name for the file.
    file: String,
    /// Whether a mount shows the file, so that it was not checked.
    is_view: bool,
    /// Whether the file is no log, so that there is nothing to check. Left out for logs.
    #[serde(skip_serializing_if = "is_false")]
    is_no_log: bool,
    /// Findings that are no faults.
    notes: Vec<String>,
    faults: Vec<String>,
    /// Data that no flush covers. They were not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    unflushed: Option<Summary>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Report {
    fn of(file: &Path, scanner: &LogScanner<'_>) -> Self {
        let mut report = Report {
            file: file.display().to_string(),
            is_view: false,
            is_no_log: false,
            notes: Vec::new(),
            faults: Vec::new(),
            unflushed: None,
        };
        match scanner.open(file) {
            Ok(view) => {
                let diagnostics = view.snapshot().diagnostics.iter();
                let notes = diagnostics.filter(|d| d.severity == Severity::Note);
                let unclosed = Unclosed::of(file, &view);
                report.unflushed = unclosed.as_ref().and_then(Unclosed::unflushed).cloned();
                let unclosed = unclosed.map(|unclosed| unclosed.to_string());
                let notes = notes.map(Diagnostic::to_string).chain(unclosed);
                report.notes = notes.chain(logs::part_of(file)).collect();
                report.faults = check(&view, &Called::of(file));
            }
            Err(e) if e.is::<IsView>() => {
                report.is_view = true;
                report.notes.push(e.to_string());
            }
            Err(e) if matches!(e.downcast_ref(), Some(Error::NotALog { .. })) => {
                report.is_no_log = true;
                report.notes.push(e.to_string());
            }
            Err(e) => report.faults.push(e.to_string()),
        }
        report
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        let file = &self.file;
        if self.is_view || self.is_no_log {
            return self
                .notes
                .iter()
                .try_for_each(|note| writeln!(out, "{note}"));
        }
        for note in &self.notes {
            writeln!(out, "{file}: note: {note}")?;
        }
        for fault in &self.faults {
            writeln!(out, "{fault}")?;
        }
        let (colour, verdict) = match self.faults.len() {
            0 if self.unflushed.is_some() => (
                Colour::Notice,
                "good up to its last flush; later data are not flushed".to_owned(),
            ),
            0 => (Colour::Good, "good".to_owned()),
            1 => (Colour::Bad, "1 fault".to_owned()),
            n => (Colour::Bad, format!("{n} faults")),
        };
        out.painted(&[(None, file), (None, ": "), (Some(colour), &verdict)])
    }
}

fn check(view: &View, called: &Called) -> Vec<String> {
    let mut faults = check_log(view, called);
    let datasets = 0..view.snapshot().datasets.len();
    let progress = Progress::new("h5logfs check", view.len());
    let seen = |at| progress.set_position(at);
    faults.extend(datasets.flat_map(|number| check_dataset(view, number, called, &seen)));
    view.inspection().check_flat(&mut |e| {
        faults.push(called.error(e).to_string());
        if faults.len() < MOST_FAULTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    progress.finish();
    faults
}

/// Faults of the log as a whole. They make no dataset unreadable.
fn check_log(view: &View, called: &Called) -> Vec<String> {
    let path = called.path(&view.path());
    let named = |diagnostic: &Diagnostic| format!("{}: {diagnostic}", path.display());
    let diagnostics = view.snapshot().diagnostics.iter();
    let known = diagnostics.filter(|d| d.severity > Severity::Note);
    let mut faults: Vec<String> = known.map(named).collect();
    match view.indexes().diagnostics() {
        Ok(diagnostics) => faults.extend(diagnostics.iter().map(named)),
        // Each logged dataset reports it, too.
        Err(e) => faults.push(called.error(e).to_string()),
    }
    faults
}

/// Faults of one dataset, chunk by chunk. A fault of the whole dataset is reported once.
fn check_dataset(view: &View, number: usize, called: &Called, seen: &dyn Fn(u64)) -> Vec<String> {
    let dataset = &view.snapshot().datasets[number];
    let path = called.path(&view.path());
    let about = || format!("{}: dataset {}", path.display(), dataset.name);
    if dataset.logged().is_some()
        && let Ok(index) = view.indexes().of(number)
        && !index.diagnostics().is_empty()
    {
        let diagnostics = index.diagnostics().iter();
        return diagnostics.map(|d| format!("{}: {d}", about())).collect();
    }
    let mut faults = Vec::new();
    view.inspection().check_dataset(number, seen, &mut |e| {
        faults.push(called.error(e).to_string());
        if faults.len() < MOST_FAULTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    if faults.len() == MOST_FAULTS {
        faults.push(format!(
            "{}: checked no further after {MOST_FAULTS} faults",
            about()
        ));
    }
    faults
}
