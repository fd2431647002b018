//! The message about the log of a killed job that a new file has replaced.

use std::io::{self, Write};
use std::path::Path;

/// Says on standard error that the log at `path` was kept as `kept`. The call that truncates the file succeeds, so nobody would
/// look at HDF5's error stack, and the flushes of the killed job would seem lost.
pub fn tell(path: &Path, kept: &Path) {
    let (path, kept) = (path.display(), kept.display());
    let text = format!(
        "h5logfs: {path}: the unclosed log of this name is kept as {kept}; `h5logfs recover {kept}` closes it"
    );
    // Standard error may be closed.
    drop(writeln!(io::stderr(), "{text}"));
}
