//! `h5logfs export`: writes the canonical file to disk, or to standard output.

use anyhow::{Context, Result};
use clap::Args;

use super::target::{FromTo, Output};
use super::{ViewArgs, called, missing, progress};
use h5logfs_log::scan::Choice;
use h5logfs_view::View;

/// Bytes written at once.
const STEP: u64 = 4 << 20;

/// Write a log file's canonical HDF5 form to a file, sparse where nothing was logged
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub paths: FromTo,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: ExportArgs) -> Result<()> {
    let target = args.paths.target(&args.view.settings()?)?;
    let scanner = args.view.scanner_for(1)?;
    let log = scanner.scan(&args.paths.file, Choice::default())?;
    let view = log.open()?;
    let written = target.create().and_then(|mut output| {
        write(&view, &mut output)?;
        output.finish()
    });
    let written = written.map_err(|e| called(&args.paths.file, e));
    written.with_context(|| format!("cannot write {}", target.name()))?;
    missing::report(&view, &args.paths.file)?;
    Ok(())
}

fn write(view: &View, out: &mut Output) -> Result<()> {
    if (0..view.snapshot().datasets.len()).any(|number| view.holes().is_sparse(number)) {
        out.make_long(view.len())?;
    }
    let progress = progress::bytes(view.len());
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
            // Nobody reads these bytes again, so no cache need keep them.
            let task = view.task(None).for_keeper();
            view.read_for(&task, at, &mut buf[..len])?;
            out.write(&buf[..len])?;
            at += len as u64;
            progress.set_position(at);
        }
    }
    progress.finish_and_clear();
    Ok(())
}
