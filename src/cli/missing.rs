//! What a log is known to lack: a file made from it lacks that, too.

use std::io;
use std::path::Path;

use h5logfs_common::diagnostic::Severity;
use h5logfs_view::View;

use super::output::Output;

/// Prints what the log in `file` has lost to standard error, a line each, and notes about a set of files. Otherwise only an attribute of the new file,
/// `_h5logfs_incomplete`, says so.
pub fn report(view: &View, file: &Path) -> io::Result<()> {
    let mut out = Output::to(io::stderr().lock());
    let all = view.snapshot().diagnostics.iter();
    let is_set = view.snapshot().joined.is_some();
    for found in all {
        match found.severity {
            Severity::Lost => writeln!(out, "missing: {}: {found}", file.display())?,
            // Files that a set lacks may be those of masked processes.
            Severity::Note if is_set => writeln!(out, "note: {}: {found}", file.display())?,
            _ => {}
        }
    }
    Ok(())
}
