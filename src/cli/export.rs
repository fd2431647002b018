//! `h5logfs export`: writes the canonical file to disk, or to standard output.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::target::{Output, Target, Wish, originals};
use super::{ViewArgs, progress};
use h5logfs_core::view::View;

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
    let settings = args.view.settings()?;
    let originals = originals(&args.file, &settings)?;
    let wish = Wish {
        out: &args.out,
        force: args.force,
        settings: &settings,
        form: "HDF5",
    };
    let target = Target::new(&wish, originals)?;
    let view = args.view.open(&args.file)?;
    let written = target.create().and_then(|mut output| {
        write(&view, &mut output)?;
        output.finish()
    });
    written.with_context(|| format!("cannot write {}", target.name()))
}

fn write(view: &View, out: &mut Output) -> Result<()> {
    let progress = progress::bytes(view.len());
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
