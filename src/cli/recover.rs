//! `h5logfs recover`: closes a log whose job has died.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;

use super::output::{Output, counted};
use super::rights::with_owners_rights;
use super::with_log_file;
use h5logfs_log::journal::words::asked_for;
use h5logfs_scan::closing::{
    Asked, Did, Handled, How, KeptFile, KeptState, Outcome, Recovered, Unflushing, recover,
};

/// Close the log of a job that was killed, with every complete flush
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The file is changed in place. Data after the last complete flush are moved to FILE.h5logfs-unflushed, the record table \
and the HDF5 metadata are added, and the journal is removed. You can still merge that file later with `h5logfs recover \
--unflushed`, as long as nothing has been written to the log since. If the command is interrupted, run it again: a log \
that is already closed is not an error. The lock on the journal shows whether a job still writes the file, if the file \
system shares locks between nodes.")]
pub struct RecoverArgs {
    /// The log files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Keep the file as this flush left it, and drop later flushes
    #[arg(long, value_name = "NUMBER", conflicts_with = "unflushed")]
    pub last_flush: Option<u64>,

    /// Also merge the data that ranks wrote after the last complete flush, as far as each of them got
    #[arg(long)]
    pub unflushed: bool,

    /// Delete the data that ranks wrote after the last complete flush, and the file that keeps them
    #[arg(long, conflicts_with = "unflushed")]
    pub discard_unflushed: bool,

    /// Only print what would be done
    #[arg(long)]
    pub dry_run: bool,
}

pub fn run(args: RecoverArgs) -> Result<()> {
    let out = &mut Output::stdout();
    let mut bad = 0;
    let how = How {
        last_flush: args.last_flush,
        unflushed: match (args.unflushed, args.discard_unflushed) {
            (true, _) => Unflushing::TakeIn,
            (_, true) => Unflushing::Discard,
            _ => Unflushing::Keep,
        },
        asked: if args.dry_run {
            Asked::Tell
        } else {
            Asked::Close
        },
        ..How::default()
    };
    for file in &args.files {
        let outcome = with_owners_rights(file, || with_log_file(file, || Ok(recover(file, how)?)));
        match outcome {
            Ok(outcome) => tell(out, file, &outcome, args.dry_run)?,
            Err(e) => {
                writeln!(out, "{e}")?;
                bad += 1;
            }
        }
    }
    let files = args.files.len();
    ensure!(bad == 0, "{bad} of {files} files were not recovered");
    Ok(())
}

fn tell(out: &mut Output<impl Write>, file: &Path, outcome: &Outcome, dry: bool) -> io::Result<()> {
    let shown = file.display();
    let would = |said: &'static str, dry_said: &'static str| if dry { dry_said } else { said };
    match outcome {
        Outcome::Closed(kept) => {
            for kept in kept {
                writeln!(out, "{shown}: note: {}", text_of_kept(kept))?;
            }
            writeln!(out, "{shown}: already closed, nothing to do")
        }
        Outcome::Discarded(removed) => {
            for removed in removed {
                writeln!(out, "{shown}: removed {}", removed.display())?;
            }
            writeln!(out, "{shown}: already closed")
        }
        Outcome::Cleared(reason) => {
            let removed = would("removed", "would remove");
            writeln!(
                out,
                "{shown}: already closed; {removed} its journal, which {reason}"
            )
        }
        Outcome::Recovered(Recovered {
            flushes,
            asked,
            datasets,
            torn,
            diagnostics,
            unflushed,
        }) => {
            if let Some(torn) = torn {
                writeln!(out, "{shown}: note: {torn}")?;
            }
            for diagnostic in diagnostics {
                writeln!(out, "{shown}: {diagnostic}")?;
            }
            if let Some(handled) = unflushed {
                report_unflushed(out, file, handled, dry)?;
            }
            let automatic = asked_for(*flushes, *asked);
            if !automatic.is_empty() {
                writeln!(
                    out,
                    "{shown}: note: the newest is flush {flushes}{automatic}"
                )?;
            }
            let recovered = would("recovered", "would recover");
            let (flushes, datasets) = (
                counted(*flushes, "flush"),
                counted(*datasets as u64, "dataset"),
            );
            writeln!(out, "{shown}: {recovered} {flushes} of {datasets}")
        }
    }
}

/// The text about a file beside a closed log, and about what can be done with it.
fn text_of_kept(KeptFile { path, state }: &KeptFile) -> String {
    let path = path.display();
    let removes = "`--discard-unflushed` removes it";
    match state {
        KeptState::Waits => {
            format!("{path} has unflushed data: `--unflushed` merges it, and {removes}")
        }
        KeptState::TakenIn { rest: false } => {
            format!("{path} has unflushed data, which are already in the log: {removes}")
        }
        KeptState::TakenIn { rest: true } => {
            format!("{path} has unflushed data, of which no more can be merged: {removes}")
        }
        KeptState::Late { follows, last } => format!(
            "{path} has unflushed data after flush {follows}. The log has gone on since, to flush {last}, so it can no \
             longer be merged: {removes}"
        ),
        KeptState::Damaged => {
            format!("{path} has unflushed data, but is damaged, so it cannot be merged: {removes}")
        }
    }
}

/// Reports on data that no flush covers: what was done with them, or would be.
fn report_unflushed(
    out: &mut Output<impl Write>,
    file: &Path,
    Handled { summary, did }: &Handled,
    dry: bool,
) -> io::Result<()> {
    let shown = file.display();
    let would = if dry { "would be " } else { "" };
    match did {
        Did::Kept(kept) => {
            let kept = kept.display();
            writeln!(
                out,
                "{shown}: {summary}: {would}kept in {kept}. `h5logfs recover --unflushed {shown}` merges it, and \
                 `--discard-unflushed` removes it"
            )
        }
        Did::TakenIn { grown, left } => {
            writeln!(out, "{shown}: {summary}: {would}merged")?;
            for grown in grown {
                writeln!(out, "{shown}: note: {grown}")?;
            }
            if let Some(left) = left {
                let left = left.display();
                writeln!(
                    out,
                    "{shown}: note: the rest, which cannot be merged, {} in {left}",
                    if dry { "would be kept" } else { "is kept" }
                )?;
            }
            Ok(())
        }
        Did::Discarded => writeln!(out, "{shown}: {summary}: {would}deleted"),
    }
}
