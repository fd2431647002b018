//! `h5logfs recover`: closes a log whose job has died.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;

use super::output::Output;
use super::rights::with_owners_rights;
use super::with_log_file;
use h5logfs_log::journal::words::asked_for;
use h5logfs_scan::closing::{
    Asked, Did, Handled, How, KeptFile, KeptState, Outcome, Recovered, Unflushing, recover,
};

/// Close a log file whose job ended before it could, keeping every flush that was complete
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The file is changed in place: what follows the last complete flush is moved to a file beside it, FILE.h5logfs-unflushed, the \
record table and the HDF5 metadata are added, and the journal beside it is removed. That file is for a second thought: \
`h5logfs recover --unflushed` takes it in later, too, as long as nothing was written to the log since. If this is interrupted, run it \
again: a log that is closed already is no error. A job that still writes the file is noticed by its lock on the journal, where the file system \
has locks that reach across nodes.")]
pub struct RecoverArgs {
    /// The log files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Keep the file as this flush left it, and drop those after it
    #[arg(long, value_name = "NUMBER", conflicts_with = "unflushed")]
    pub last_flush: Option<u64>,

    /// Take in what ranks have written after the last complete flush, too, whatever each of them had
    #[arg(long)]
    pub unflushed: bool,

    /// Throw away what ranks have written after the last complete flush, and what was kept of that
    #[arg(long, conflicts_with = "unflushed")]
    pub discard_unflushed: bool,

    /// Only tell what would be done
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
                writeln!(out, "{shown}: note: {}", words_of_kept(kept))?;
            }
            writeln!(out, "{shown}: closed already, nothing to do")
        }
        Outcome::Discarded(removed) => {
            for removed in removed {
                writeln!(out, "{shown}: removed {}", removed.display())?;
            }
            writeln!(out, "{shown}: closed already")
        }
        Outcome::Cleared(reason) => {
            let removed = would("removed", "would remove");
            writeln!(
                out,
                "{shown}: closed already; {removed} its journal, which {reason}"
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
                tell_unflushed(out, file, handled, dry)?;
            }
            let automatic = asked_for(*flushes, *asked);
            if !automatic.is_empty() {
                writeln!(
                    out,
                    "{shown}: note: the newest is flush {flushes}{automatic}"
                )?;
            }
            let recovered = would("recovered", "would recover");
            writeln!(
                out,
                "{shown}: {recovered} {flushes} flushes of {datasets} datasets"
            )
        }
    }
}

/// What lies beside a closed log, and what can be done with it.
fn words_of_kept(KeptFile { path, state }: &KeptFile) -> String {
    let path = path.display();
    let removes = "`--discard-unflushed` removes it";
    match state {
        KeptState::Waits => {
            format!("{path} has what no flush covered: `--unflushed` takes it in, and {removes}")
        }
        KeptState::TakenIn { rest: false } => {
            format!(
                "{path} has what no flush covered, and so has the log, which has taken it in: {removes}"
            )
        }
        KeptState::TakenIn { rest: true } => {
            format!("{path} has what no flush covered, of which no more can be taken in: {removes}")
        }
        KeptState::Late { follows, last } => format!(
            "{path} has what no flush covered after flush {follows}. The log has gone on since, to flush {last}, so it cannot be \
             taken in any more: {removes}"
        ),
        KeptState::Damaged => {
            format!(
                "{path} has what no flush covered, and is damaged, so it cannot be taken in: {removes}"
            )
        }
    }
}

/// Tells what was done, or would be, with what no flush covers.
fn tell_unflushed(
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
                "{shown}: {summary}: {would}kept in {kept}. `h5logfs recover --unflushed {shown}` takes it in, and \
                 `--discard-unflushed` removes it"
            )
        }
        Did::TakenIn { grown, left } => {
            writeln!(out, "{shown}: {summary}: {would}taken in")?;
            for grown in grown {
                writeln!(out, "{shown}: note: {grown}")?;
            }
            if let Some(left) = left {
                let left = left.display();
                writeln!(
                    out,
                    "{shown}: note: what of it cannot be taken in {} in {left}",
                    if dry { "would be kept" } else { "is kept" }
                )?;
            }
            Ok(())
        }
        Did::Discarded => writeln!(out, "{shown}: {summary}: {would}thrown away"),
    }
}
