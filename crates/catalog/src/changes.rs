//! Notices that a log has changed, for those who follow a job.
//!
//! No notice comes from a file that another node writes. So this looks at the states of two files, in a system call each,
//! and again after a pause that grows while nothing happens. Each flush changes the journal, and a close removes it.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use h5logfs_log::journal;
use h5logfs_log::source_file::Identity;

/// After a change the next one may follow at once.
const SHORTEST: Duration = Duration::from_millis(10);
/// A follower of an idle log looks seven times a second, which takes half a thousandth of a processor.
const LONGEST: Duration = Duration::from_millis(150);
/// The most that a pause grows by from one look to the next: half of it.
const GROWTH: u32 = 2;

/// The states of a log file and of its journal, as they were looked at last.
#[derive(Debug)]
pub struct Changes {
    log: PathBuf,
    journal: PathBuf,
    seen: States,
    pause: Duration,
}

/// `None` where there is no file.
type States = [Option<Identity>; 2];

impl Changes {
    /// Looks at the log at `path` for the first time. Fails where there is no file.
    pub fn of(path: &Path) -> io::Result<Self> {
        // The journal lies beside the log, not beside a link to it.
        let log = path.canonicalize()?;
        let journal = journal::path_of(&log);
        let mut changes = Changes {
            log,
            journal,
            seen: [None; 2],
            pause: SHORTEST,
        };
        changes.look();
        Ok(changes)
    }

    /// Whether the log has changed since the last look.
    pub fn look(&mut self) -> bool {
        let state = |path: &PathBuf| path.metadata().ok().map(|found| Identity::from(&found));
        let now = [state(&self.log), state(&self.journal)];
        let has_changed = now != self.seen;
        self.seen = now;
        has_changed
    }

    /// Whether the log file is there.
    pub fn is_there(&self) -> bool {
        self.seen[0].is_some()
    }

    /// Pauses, and looks again, until there is a change, or `until` has come. Returns whether there is one.
    pub fn wait(&mut self, until: Option<Instant>) -> bool {
        loop {
            if self.look() {
                self.pause = SHORTEST;
                return true;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            thread::sleep(left.map_or(self.pause, |left| left.min(self.pause)));
            self.pause = (self.pause + self.pause / GROWTH).min(LONGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_of_the_log_or_its_journal_is_noticed_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("run.h5");
        assert!(Changes::of(&log).is_err());
        fs::write(&log, "1").unwrap();
        let link = dir.path().join("link.h5");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        let mut changes = Changes::of(&link).unwrap();
        assert!(!changes.wait(Some(Instant::now())) && changes.is_there());
        let journal = changes.journal.clone();
        assert!(!journal.exists());
        let acts: [&dyn Fn(); 4] = [
            &|| fs::write(&log, "22").unwrap(),
            &|| fs::write(&journal, "1").unwrap(),
            &|| fs::remove_file(&journal).unwrap(),
            &|| fs::remove_file(&log).unwrap(),
        ];
        for act in acts {
            act();
            assert!(changes.wait(None));
            assert!(!changes.look());
        }
        assert!(!changes.is_there());
    }
}
