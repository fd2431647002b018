//! Settled logs.

use std::path::Path;
use std::process::{Command, Stdio};

use h5logfs_common::error::Result;
use h5logfs_convert::settle::{Held, How, Intent, Ready, Settled, undo};
use h5logfs_log::scan::Settings;
use h5logfs_scan::InProcess;
use h5logfs_view::cache::MemoryLimits;

use super::PROGRAM;
use super::encoder::BUDGET;
use super::readers::said;

/// Number of chunks that stay, number that are appended, and the result.
pub type Outcome = (u64, u64, Settled);

/// Makes the log at `path` an ordinary file.
pub fn settle(path: &Path) -> Result<Outcome> {
    let how = How {
        scanner: &InProcess::default(),
        settings: Settings::default(),
        memory: MemoryLimits::each(BUDGET),
    };
    let ready = Ready::of(path, Intent::Change, how)?.expect("a log that is not settled");
    let counts = (ready.plan().in_place(), ready.plan().appended());
    let growth = ready.growth();
    let settled = ready.settle(&|_| ())?;
    assert!(settled.after - settled.before <= growth);
    Ok((counts.0, counts.1, settled))
}

/// The output of `h5logfs settle` for a file that it can settle, or that is settled.
#[track_caller]
pub fn settle_by_command(path: &Path) -> String {
    let output = Command::new(PROGRAM).arg("settle").arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// Turns the file at `path` back into a log.
pub fn unsettle(path: &Path) -> Result<()> {
    undo(&Held::open(path, Intent::Change)?)
}

/// Checks that `h5dump` reads the whole file without complaint.
pub fn is_silent(path: &Path) -> Result<(), String> {
    let dumped = Command::new("h5dump")
        .arg(path)
        .stdout(Stdio::null())
        .output();
    match dumped {
        Ok(dumped) if !dumped.status.success() || !dumped.stderr.is_empty() => Err(said(&dumped)),
        _ => Ok(()),
    }
}
