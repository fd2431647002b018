//! `h5logfs export`: writes the canonical file to disk, or to standard output.

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;

use super::missing::{LossArgs, Made};
use super::progress::{Progress, Summary};
use super::target::{FromTo, Output};
use super::{ViewArgs, called, log_bytes};
use h5logfs_log::scan::Choice;
use h5logfs_view::View;
use h5logfs_view::cache::Budget;

/// Bytes written at once.
const STEP: u64 = 4 << 20;
/// Bytes of chunks and decoded records that stay in memory from one write to the next. No chunk is read twice, but a
/// record may have elements of several chunks.
const KEPT: u64 = 32 << 20;

/// Write the HDF5 file that a mount shows, sparse where nothing was logged
#[derive(Debug, Clone, Args)]
// Here -o names the output file.
#[command(
    override_usage = "h5logfs export [OPTIONS] FILE OUT\n       h5logfs export [OPTIONS] FILE -o OUT",
    mut_arg("options", |options| options.short(None))
)]
pub struct ExportArgs {
    #[command(flatten)]
    pub paths: FromTo,

    #[command(flatten)]
    pub losses: LossArgs,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: ExportArgs) -> Result<()> {
    let target = args.paths.target(&args.view.settings()?)?;
    let scanner = args.view.scanner_for(1)?;
    let log = scanner.scan(&args.paths.file, Choice::default())?;
    let budget = Arc::clone(&log.budget);
    let view = log.open()?;
    let summary = Summary::begin(log_bytes(&view));
    let written = target.create().and_then(|mut output| {
        write(&view, &budget, &mut output)?;
        output.finish()
    });
    let written = written.map_err(|e| called(&args.paths.file, e));
    written.with_context(|| format!("cannot write {}", target.name()))?;
    summary.print(&target.name(), view.len());
    let made = Made {
        log: &args.paths.file,
        snapshot: view.snapshot(),
        name: &target.name(),
        left_out: 0,
    };
    made.warn()?;
    Ok(made.end(&args.losses)?)
}

fn write(view: &View, budget: &Budget, out: &mut Output) -> Result<()> {
    if (0..view.snapshot().datasets.len()).any(|number| view.holes().is_sparse(number)) {
        out.make_long(view.len())?;
    }
    let progress = Progress::new("h5logfs export", view.len());
    let mut buf = vec![0; STEP as usize];
    let mut at = 0;
    while at < view.len() {
        let segment = view.holes().segment_at(at)?;
        if segment.is_hole {
            out.skip(segment.range.end - at)?;
            at = segment.range.end;
            continue;
        }
        while at < segment.range.end {
            let most = STEP.min(segment.range.end - at);
            let len = view.up_to_a_slot(at, most) as usize;
            let task = view.task(None).for_keeper();
            view.read_for(&task, at, &mut buf[..len])?;
            out.write(&buf[..len])?;
            budget.shrink_chunks_to(KEPT);
            at += len as u64;
            progress.set_position(at);
        }
    }
    progress.finish();
    Ok(())
}
