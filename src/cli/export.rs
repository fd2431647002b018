//! `h5logfs export`: writes the canonical file to disk, or to standard output.

mod output;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::ViewArgs;
use crate::fs::shown::ShownFile;
use h5logfs_core::log::source_dir::SourceDir;
use h5logfs_core::scan::overwrite::Originals;
use h5logfs_core::view::View;
use output::{Output, Target};

/// Bytes written at once.
const STEP: u64 = 4 << 20;

/// Write a log file's canonical HDF5 form to a file, sparse where nothing was logged
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The log file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The file to write, which appears when it is complete; or -, for standard output
    #[arg(value_name = "OUT")]
    pub out: PathBuf,

    /// Replace OUT if it exists; but never a file of a log that is still needed
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: ExportArgs) -> Result<()> {
    let originals = originals(&args)?;
    let target = Target::new(&args, originals)?;
    let view = args.view.open(&args.file)?;
    let written = target.create().and_then(|mut output| {
        write(&view, &mut output)?;
        output.finish()
    });
    written.with_context(|| format!("cannot write {}", target.name()))
}

/// The files that are read, and those behind them if a mount shows them.
fn originals(args: &ExportArgs) -> Result<Originals> {
    let log_dirs = args.view.settings()?.log_dirs;
    let of = |file: &Path| -> Result<Originals> {
        let (dir, name) = SourceDir::of_file(file)?;
        Ok(Originals::of(&dir.with_further(&log_dirs)?, &name))
    };
    let own = of(&args.file)?;
    let shown = ShownFile::at(&args.file);
    // Where this user cannot get at the source, there is nothing to protect from this user.
    let behind = shown.and_then(|shown| of(shown.source()).ok());
    Ok(own.with(behind.unwrap_or_default()))
}

fn write(view: &View, out: &mut Output) -> Result<()> {
    let progress = progress(view.len());
    let mut buf = vec![0; STEP as usize];
    let mut at = 0;
    while at < view.len() {
        let segment = view.segment_at(at)?;
        if segment.is_hole {
            out.skip(segment.range.end - at)?;
            at = segment.range.end;
            continue;
        }
        while at < segment.range.end {
            let len = STEP.min(segment.range.end - at) as usize;
            view.read_at(at, &mut buf[..len])?;
            out.write(&buf[..len])?;
            at += len as u64;
            progress.set_position(at);
        }
    }
    progress.finish_and_clear();
    Ok(())
}

fn progress(len: u64) -> ProgressBar {
    const STYLE: &str = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(STYLE).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}
