//! Comparisons of a log with its checksums, which serve a later view of the same log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::View;
use h5logfs_log::journal::guard::SealGuard;
use h5logfs_log::journal::sealed::KnownFlush;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_file::{Identity, SourceFile};

/// Comparisons of an unclosed log with its checksums. A view of a later state of the log need not repeat them.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The last flush of the view.
    pub last: KnownFlush,
    files: Vec<Identity>,
    guards: BTreeMap<usize, Arc<SealGuard>>,
    bytes: usize,
}

impl Compared {
    /// The comparisons of a view, and those that it will make. `None` where a later state of the log cannot be told
    /// from another log.
    pub fn of(view: &View) -> Option<Self> {
        let last = view.snapshot.sealed.as_ref()?.last?;
        let files: Vec<_> = view.sources.iter().map(SourceFile::identity).collect();
        let guards: usize = view.guards.values().map(|guard| guard.bytes()).sum();
        Some(Compared {
            last,
            bytes: size_of_val(&files[..]) + guards,
            files,
            guards: view.guards.clone(),
        })
    }

    /// Hands the comparisons to a later view. That view need not repeat them if its scan went on from the earlier view.
    pub fn give_to(&self, view: &View) {
        let sealed = view.snapshot.sealed.as_ref();
        if !sealed.is_some_and(|sealed| sealed.goes_on) || !self.is_of(&view.snapshot) {
            return;
        }
        for (number, own) in &view.guards {
            if let Some(guard) = self.guards.get(number) {
                own.take_over(guard);
            }
        }
    }

    /// Whether a snapshot is of the same files.
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let mut files = self.files.iter().zip(&snapshot.sources);
        self.files.len() == snapshot.sources.len()
            && files.all(|(identity, source)| identity.is_same_file(source.identity))
    }

    /// Approximate memory of the comparisons when they were collected, in bytes. It grows as the view is read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
