//! `h5logfs recover`: closes a log whose job has died.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::output::Output;
use super::rights::with_owners_rights;
use super::with_log_file;
use h5logfs_scan::closing::{How, Outcome, recover};

/// Close a log file whose job ended before it could, keeping every flush that was complete
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The file is changed in place: what follows the last complete flush is cut off, the record table and \
the HDF5 metadata are added, and the journal beside it is removed. If this is interrupted, run it \
again: a log that is closed already is no error. A job that still writes the file is noticed by its lock on the journal, where the file system \
has locks that reach across nodes.")]
pub struct RecoverArgs {
    /// The log files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Keep the file as this flush left it, and drop those after it
    #[arg(long, value_name = "NUMBER")]
    pub last_flush: Option<u64>,
}

pub fn run(args: RecoverArgs) -> Result<()> {
    let out = &mut Output::stdout();
    let mut bad = 0;
    let how = How {
        last_flush: args.last_flush,
        ..How::default()
    };
    for file in &args.files {
        let outcome = with_owners_rights(file, || with_log_file(file, || Ok(recover(file, how)?)));
        match outcome {
            Ok(Outcome::Closed) => {
                writeln!(out, "{}: closed already, nothing to do", file.display())?;
            }
            Ok(Outcome::Cleared(reason)) => writeln!(
                out,
                "{}: closed already; removed its journal, which {reason}",
                file.display()
            )?,
            Ok(Outcome::Recovered(recovered)) => {
                if let Some(torn) = &recovered.torn {
                    writeln!(out, "{}: note: {torn}", file.display())?;
                }
                for diagnostic in &recovered.diagnostics {
                    writeln!(out, "{}: {diagnostic}", file.display())?;
                }
                writeln!(
                    out,
                    "{}: recovered {} flushes of {} datasets",
                    file.display(),
                    recovered.flushes,
                    recovered.datasets
                )?;
            }
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
