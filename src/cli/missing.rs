//! Lost data: a file made from a log lacks what the log has lost, too. The command that makes it says so, and ends with an exit
//! status of its own.

use std::io;
use std::path::Path;

use clap::Args;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_log::snapshot::Snapshot;

use super::output::{Output, counted};

/// Exit status of a command whose result is there and lacks lost data.
pub const STATUS: u8 = 4;

/// Most losses that a warning names.
const MOST: usize = 8;

/// What a command does where data are lost.
#[derive(Debug, Clone, Args)]
pub struct LossArgs {
    /// End with exit status 0, and not 4, where OUT lacks data that the log has lost
    #[arg(long)]
    pub allow_incomplete: bool,
}

/// Says on standard error that a log has lost data, before it is shown.
pub fn warn(snapshot: &Snapshot, log: &Path) -> io::Result<()> {
    let lost = snapshot.diagnostics.iter();
    let lost = lost.filter(|d| d.severity == Severity::Lost).count();
    if lost == 0 {
        return Ok(());
    }
    let log = log.display();
    writeln!(
        Output::to(io::stderr().lock()),
        "h5logfs: warning: {log} has lost data: `h5logfs inspect --incomplete {log}` names them"
    )
}

/// The result of a command is there, and lacks lost data. A warning has said so.
#[derive(Debug, thiserror::Error)]
#[error("data are lost")]
pub struct LostData;

/// A file that was made from a log.
#[derive(Debug, Clone, Copy)]
pub struct Made<'a> {
    /// The user's name for the log.
    pub log: &'a Path,
    pub snapshot: &'a Snapshot,
    /// The user's name for the file.
    pub name: &'a str,
    /// Number of parts of datasets that cannot be read, and were left out.
    pub left_out: u64,
}

impl Made<'_> {
    /// Whether the file lacks data that are lost. All of its elements were read: lost ones in a dataset are an error, or a part that
    /// is left out. So losses that were counted and are not left out concern other datasets, or what later records hide.
    pub fn is_incomplete(&self) -> bool {
        self.left_out > 0
            || !self.snapshot.left_out.is_empty()
            || !self.snapshot.are_losses_counted()
    }

    /// Warns on standard error if the file lacks lost data. Adds notes about a set of files.
    pub fn warn(&self) -> io::Result<()> {
        let mut out = Output::to(io::stderr().lock());
        let log = self.log.display();
        let all = self.snapshot.diagnostics.iter();
        if self.snapshot.joined.is_some() {
            // Files that a set lacks may be those of masked processes.
            for note in all.clone().filter(|d| d.severity == Severity::Note) {
                writeln!(out, "note: {log}: {note}")?;
            }
        }
        if !self.is_incomplete() {
            return Ok(());
        }
        let lost: Vec<&Diagnostic> = all.filter(|d| d.severity == Severity::Lost).collect();
        writeln!(
            out,
            "h5logfs: warning: {log} has lost data, which {} lacks: {}",
            self.name,
            self.counts(lost.len())
        )?;
        for loss in lost.iter().take(MOST) {
            writeln!(out, "  {loss}")?;
        }
        if lost.len() > MOST {
            let more = lost.len() - MOST;
            writeln!(out, "  and {more} more: `h5logfs check {log}` lists all")?;
        }
        Ok(())
    }

    /// The numbers of what is lost.
    fn counts(&self, losses: usize) -> String {
        let left_out = self.snapshot.left_out.iter().map(|lost| lost.elements);
        let elements = left_out.fold(0, u64::saturating_add);
        let names = self.snapshot.left_out.len() as u64;
        let mut counts = Vec::new();
        if losses > 0 {
            counts.push(counted(losses as u64, "finding"));
        }
        if elements > 0 {
            let elements = counted(elements, "element");
            let names = counted(names, "dataset");
            counts.push(format!("{elements} of {names} left out"));
        }
        if self.left_out > 0 {
            let parts = counted(self.left_out, "part");
            counts.push(format!("{parts} of datasets cannot be read"));
        }
        counts.join(", ")
    }

    /// The end of a command that has made the file.
    pub fn end(&self, args: &LossArgs) -> Result<(), LostData> {
        if self.is_incomplete() && !args.allow_incomplete {
            return Err(LostData);
        }
        Ok(())
    }
}
