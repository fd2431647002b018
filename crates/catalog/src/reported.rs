//! Messages of the daemon about log files. A growing log has many states, and most of their messages differ only in
//! numbers. So a message about a file is logged once, and again at the level debug only.

use std::collections::hash_map::RandomState;
use std::fs::Metadata;
use std::hash::{BuildHasher, Hash, Hasher};

use log::Level;

use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::lru::Lru;
use h5logfs_log::source_file::individual;

use crate::opening::Opened;

/// Number of messages that are remembered, for all files together. A forgotten one is logged once more.
const MOST: u64 = 16 << 10;

/// Hashes of the messages that were logged.
#[derive(Debug)]
pub struct Reported {
    lines: Lru<u64, ()>,
    hasher: RandomState,
}

impl Default for Reported {
    fn default() -> Self {
        Reported {
            lines: Lru::new(MOST),
            hasher: RandomState::new(),
        }
    }
}

impl Reported {
    pub fn clear(&self) {
        self.lines.clear();
    }

    /// Logs a line for the state, with its notes, and a warning for each other diagnostic.
    pub fn opened(&self, file: &Metadata, opened: &Opened) {
        let Opened { view, how, time } = opened;
        let (path, snapshot) = (view.path(), view.snapshot());
        let path = path.display();
        let (notes, faults): (Vec<_>, Vec<_>) = snapshot
            .diagnostics
            .iter()
            .partition(|diagnostic| diagnostic.severity == Severity::Note);
        let mut level = self.level(file, Level::Info, None);
        let mut text = String::new();
        for note in notes {
            level = level.min(self.level(file, Level::Info, Some(note)));
            text += &format!("; {note}");
        }
        let (datasets, bytes) = (snapshot.datasets.len(), view.len());
        log::log!(
            level,
            "{path}: {how} in {time:.1?}: {datasets} datasets, {bytes} bytes as HDF5{text}"
        );
        for fault in faults {
            let level = self.level(file, Level::Warn, Some(fault));
            log::log!(level, "{path}: {fault}");
        }
    }

    /// `first` for the first message of this kind about the file, debug for later ones.
    pub fn level(&self, file: &Metadata, first: Level, diagnostic: Option<&Diagnostic>) -> Level {
        let line = self.hash(file, diagnostic);
        if self.lines.get(&line).is_some() {
            return Level::Debug;
        }
        self.lines.insert(line, (), 1);
        first
    }

    /// The hash of a message. Numbers in the text do not count, because they differ from flush to flush.
    fn hash(&self, file: &Metadata, diagnostic: Option<&Diagnostic>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        individual(file).hash(&mut hasher);
        if let Some(Diagnostic {
            severity,
            place,
            what,
            ..
        }) = diagnostic
        {
            (severity, place).hash(&mut hasher);
            let words = what.split(|c: char| c.is_ascii_digit());
            words
                .filter(|w| !w.is_empty())
                .for_each(|w| w.hash(&mut hasher));
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_only_in_numbers_is_said_once_of_each_file() {
        let reported = Reported::default();
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            path.metadata().unwrap()
        };
        let (a, b) = (file("a"), file("b"));
        let level = |file, what: &str| {
            let diagnostic = Diagnostic::lost(what);
            reported.level(file, Level::Warn, Some(&diagnostic))
        };
        assert_eq!(level(&a, "3 of 10 entries are lost"), Level::Warn);
        assert_eq!(level(&a, "4 of 112 entries are lost"), Level::Debug);
        assert_eq!(level(&a, "4 of 112 flushes are lost"), Level::Warn);
        assert_eq!(level(&b, "4 of 112 entries are lost"), Level::Warn);
        let elsewhere = Diagnostic::lost("3 of 10 entries are lost").at("rank 1");
        assert_eq!(
            reported.level(&a, Level::Warn, Some(&elsewhere)),
            Level::Warn
        );
        assert_eq!(reported.level(&a, Level::Info, None), Level::Info);
        assert_eq!(reported.level(&a, Level::Info, None), Level::Debug);
        reported.clear();
        assert_eq!(reported.level(&a, Level::Info, None), Level::Info);
    }

    #[test]
    fn memory_is_bounded() {
        let reported = Reported::default();
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        for number in 0..3 * MOST {
            let place = Diagnostic::lost("gone").at(number.to_string());
            reported.level(&file, Level::Warn, Some(&place));
        }
        assert!(reported.lines.len() as u64 <= MOST);
    }
}
