//! Whether elements of a log cannot be read, as far as a scan finds out at little cost.
//!
//! Reads find out all of it, but only when they come to it. The place of the chunks is decided before.

use super::shape::Chooser;
use crate::model::Logged;
use crate::model::Selections;
use crate::snapshot::{Content, Dataset};
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

/// Record tables of at most this many bytes are decoded. That takes 0.05 ms where each of their entries is one block.
const MOST_BYTES: u64 = 16 << 10;
/// The memory for that. A small table can ask for any amount.
const MEMORY: u64 = 4 << 20;

/// Whether some elements of the `datasets` are known to be unreadable. In larger tables, this knows only of damage that
/// the search for tiles has met.
pub fn is_known(chooser: &Chooser<'_>, datasets: &[Dataset]) -> bool {
    let is_unreadable = |d: &Dataset| matches!(d.content, Content::Unreadable(_));
    if chooser.met_unreadable() || datasets.iter().any(is_unreadable) {
        return true;
    }
    let logged: Vec<Logged<'_>> = datasets.iter().filter_map(Dataset::logged).collect();
    let is_small = chooser.log.tables_len(chooser.sources) <= MOST_BYTES;
    // Where memory, or a file, fails, nothing is known.
    !logged.is_empty() && is_small && is_in_tables(chooser, &logged).unwrap_or(false)
}

/// Decodes all entries, in the same way as reads do.
fn is_in_tables(chooser: &Chooser<'_>, datasets: &[Logged<'_>]) -> Result<bool, Fault> {
    let task = &Task::limited(MEMORY);
    let Chooser { log, sources, .. } = chooser;
    let table = log.read_tables(task, sources, datasets)?;
    let is_unreadable = |d: &Diagnostic| d.severity == Severity::Unreadable;
    if table.diagnostics().iter().any(is_unreadable) {
        return Ok(true);
    }
    let selections = Selections::default();
    for dataset in datasets {
        let found = table.records(task, sources, dataset, &selections)?;
        if !found.diagnostics.is_empty() || !found.records.faults().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
