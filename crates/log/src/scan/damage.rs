//! Elements of a log that cannot be read, as far as a scan finds out at little cost.
//!
//! Reads find all of them, but only when they come to them. The place of the chunks is decided before.

use super::shape::Chooser;
use crate::model::Logged;
use crate::model::Selections;
use crate::snapshot::{Content, Dataset};
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

/// The most bytes of record tables that are decoded. This takes 0.05 ms where each entry is one block.
const MOST_BYTES: u64 = 16 << 10;
/// Memory for the decoding. A small table can ask for any amount.
const MEMORY: u64 = 4 << 20;

/// Whether some elements of the `datasets` are known to be unreadable. In larger tables, only damage that the search
/// for tiles has met is known.
pub fn is_known(chooser: &Chooser<'_>, datasets: &[Dataset]) -> bool {
    let is_unreadable = |d: &Dataset| matches!(d.content, Content::Unreadable(_));
    if chooser.met_unreadable() || datasets.iter().any(is_unreadable) {
        return true;
    }
    let logged: Vec<Logged<'_>> = datasets.iter().filter_map(Dataset::logged).collect();
    let is_small = chooser.log.tables_len(chooser.sources) <= MOST_BYTES;
    // Nothing is known where memory or a file fails.
    !logged.is_empty() && is_small && is_in_tables(chooser, &logged).unwrap_or(false)
}

/// Decodes all entries as reads do. Returns whether some element cannot be read.
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
