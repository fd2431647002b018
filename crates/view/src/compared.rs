//! What a view has compared of a log with its checksums, for a later view of the same log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::View;
use h5logfs_log::journal::guard::SealGuard;
use h5logfs_log::journal::sealed::KnownFlush;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_file::{Identity, SourceFile};

/// What was compared of a log that is not closed. A view of a later state of the log need not compare it again.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The last flush of the view.
    pub last: KnownFlush,
    files: Vec<Identity>,
    guards: BTreeMap<usize, Arc<SealGuard>>,
    bytes: usize,
}

impl Compared {
    /// Whether a snapshot is of the same files.
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let mut files = self.files.iter().zip(&snapshot.sources);
        self.files.len() == snapshot.sources.len()
            && files.all(|(identity, source)| identity.is_same_file(source.identity))
    }

    /// Memory that it held when it was made, in bytes, approximately. It grows as the view is read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl View {
    /// What was compared of the log so far, and what this view will compare; `None` where a later state of the log cannot be
    /// told from another log.
    pub fn compared(&self) -> Option<Compared> {
        let last = self.snapshot.sealed.as_ref()?.last?;
        let files: Vec<_> = self.sources.iter().map(SourceFile::identity).collect();
        let guards: usize = self.guards.values().map(|guard| guard.bytes()).sum();
        Some(Compared {
            last,
            bytes: size_of_val(&files[..]) + guards,
            files,
            guards: self.guards.clone(),
        })
    }

    /// Need not compare what an earlier view has compared, where the scan went on from that one.
    pub fn take_over(&self, before: &Compared) {
        let sealed = self.snapshot.sealed.as_ref();
        if !sealed.is_some_and(|sealed| sealed.goes_on) || !before.is_of(&self.snapshot) {
            return;
        }
        for (number, own) in &self.guards {
            if let Some(guard) = before.guards.get(number) {
                own.take_over(guard);
            }
        }
    }
}
