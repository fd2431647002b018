//! `h5logfs check`: reads everything that a view would read, and reports each fault.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::output::Output;
use super::unclosed::Unclosed;
use super::{IsView, ViewArgs};
use h5logfs_core::diagnostic::{Diagnostic, Severity};
use h5logfs_core::view::View;

/// Faults reported for one dataset. A single damaged entry can spoil any number of chunks.
const MOST_FAULTS: usize = 1000;

/// Read everything that a log file's view would read, and report each fault
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The log files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: CheckArgs) -> Result<()> {
    let out = &mut Output::stdout();
    let (mut bad, mut views) = (0, 0);
    for file in &args.files {
        let faults = match args.view.open(file) {
            Ok(view) => {
                let diagnostics = view.snapshot().diagnostics.iter();
                let notes = diagnostics.filter(|d| d.severity == Severity::Note);
                let unclosed = Unclosed::of(file, &view).map(|unclosed| unclosed.to_string());
                for note in notes.map(Diagnostic::to_string).chain(unclosed) {
                    writeln!(out, "{}: note: {note}", file.display())?;
                }
                check(&view)
            }
            Err(e) if e.is::<IsView>() => {
                writeln!(out, "{e}")?;
                views += 1;
                continue;
            }
            Err(e) => vec![e.to_string()],
        };
        for fault in &faults {
            writeln!(out, "{fault}")?;
        }
        match faults.len() {
            0 => writeln!(out, "{}: good", file.display())?,
            1 => writeln!(out, "{}: 1 fault", file.display())?,
            n => writeln!(out, "{}: {n} faults", file.display())?,
        }
        bad += usize::from(!faults.is_empty());
    }
    let files = args.files.len();
    ensure!(bad == 0, "{bad} of {files} files have faults");
    ensure!(
        views == 0,
        "{views} of {files} files are views, and were not checked"
    );
    Ok(())
}

fn check(view: &View) -> Vec<String> {
    let mut faults = check_log(view);
    let datasets = 0..view.snapshot().datasets.len();
    faults.extend(datasets.flat_map(|number| check_dataset(view, number)));
    faults
}

/// Faults of the log as a whole. They make no dataset unreadable.
fn check_log(view: &View) -> Vec<String> {
    let path = view.path();
    let named = |diagnostic: &Diagnostic| format!("{}: {diagnostic}", path.display());
    let diagnostics = view.snapshot().diagnostics.iter();
    let known = diagnostics.filter(|d| d.severity > Severity::Note);
    let mut faults: Vec<String> = known.map(named).collect();
    match view.diagnostics() {
        Ok(diagnostics) => faults.extend(diagnostics.iter().map(named)),
        // Each logged dataset reports it, too.
        Err(e) => faults.push(e.to_string()),
    }
    faults
}

/// Faults of one dataset, chunk by chunk. A fault of the whole dataset is reported once.
fn check_dataset(view: &View, number: usize) -> Vec<String> {
    let dataset = &view.snapshot().datasets[number];
    let about = || format!("{}: dataset {}", view.path().display(), dataset.name);
    if dataset.logged().is_some()
        && let Ok(index) = view.index(number)
        && !index.diagnostics().is_empty()
    {
        let diagnostics = index.diagnostics().iter();
        return diagnostics.map(|d| format!("{}: {d}", about())).collect();
    }
    let mut faults = Vec::new();
    view.check_dataset(number, &mut |e| {
        faults.push(e.to_string());
        if faults.len() < MOST_FAULTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    if faults.len() == MOST_FAULTS {
        faults.push(format!(
            "{}: not looked at further, after {MOST_FAULTS} faults",
            about()
        ));
    }
    faults
}
