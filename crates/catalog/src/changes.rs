//! Notices that a log has changed, for programs that follow a job.
//!
//! Nothing tells a process that another node has written to a file. So [`Changes`] compares the states of two files,
//! with a system call each, and again after a pause that grows while nothing happens. Each flush changes the journal,
//! and a close removes it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use h5logfs_log::journal;
use h5logfs_log::log_dir;
use h5logfs_log::settled;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_file::Identity;
use h5logfs_view::View;

/// Pause after a change, since the next change may follow at once.
const SHORTEST: Duration = Duration::from_millis(10);
/// Pause between two looks at an idle log. Seven looks a second take half a thousandth of a processor.
const LONGEST: Duration = Duration::from_millis(150);
/// Divisor of a pause. The quotient is the most by which the next pause is longer.
const GROWTH: u32 = 2;
/// Attempts at an operation on a log that changes meanwhile.
const ATTEMPTS: u32 = 10;

/// The last seen states of a log file, of its journal and of other files of the log.
#[derive(Debug)]
pub struct Changes {
    log: PathBuf,
    journal: PathBuf,
    seen: States,
    further: Vec<(PathBuf, Option<Identity>)>,
    /// Whether the log lay beside a main file when it was last seen. The close of such a log leaves only the main file.
    lies_beside: bool,
    /// Whether [`Changes::retry`] saw a change that the next look must report.
    is_due: bool,
    pause: Duration,
}

/// The ordinary file that a closed log has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// An HDF5 file: the log is settled.
    Hdf5,
    /// The main file beside which the log lay. It has the log's data now.
    Main,
}

/// Facts about one state of a log that its followers need.
#[derive(Debug)]
pub struct FollowedState {
    /// Whether the log was closed.
    pub is_closed: bool,
    /// Whether the log lies beside a main file, which is all that a close leaves.
    lies_beside: bool,
    /// Further places where the log changes. A layout without a journal has its log in files that only a scan finds.
    further: Vec<PathBuf>,
}

impl FollowedState {
    /// Facts from a snapshot of a log with these files.
    pub fn of(snapshot: &Snapshot, files: impl IntoIterator<Item = PathBuf>) -> Self {
        let is_closed = snapshot.is_closed();
        let mut further = Vec::new();
        if snapshot.joined.is_some() {
            // Models write to all members at once. New ones show in the directory.
            let mut files = files.into_iter();
            let first = files.next();
            further.extend(
                first
                    .as_ref()
                    .and_then(|file| Some(file.parent()?.to_owned())),
            );
            further.extend(first.into_iter().chain(files.last()));
        } else if !is_closed && snapshot.journal.is_none() {
            for file in files {
                further.extend(file.parent().map(Path::to_owned));
                further.push(file);
            }
            further.sort_unstable();
            further.dedup();
        }
        FollowedState {
            is_closed,
            lies_beside: snapshot.lies_beside(),
            further,
        }
    }

    /// Facts from an open log.
    pub fn in_view(view: &View) -> Self {
        let files = view.files().map(|(_, file)| file.path().to_owned());
        FollowedState::of(view.snapshot(), files)
    }
}

/// States of the log file and of its journal. `None` where there is no file.
type States = [Option<Identity>; 2];

impl Changes {
    /// Looks at the log at `path` for the first time. Fails where there is no file.
    pub fn of(path: &Path) -> io::Result<Self> {
        // The journal lies beside the log, not beside a link to it.
        let log = log_dir::file_of(path).canonicalize()?;
        let journal = journal::path_of(&log);
        let mut changes = Changes {
            log,
            journal,
            seen: [None; 2],
            further: Vec::new(),
            lies_beside: false,
            is_due: false,
            pause: SHORTEST,
        };
        changes.look_once();
        Ok(changes)
    }

    /// Whether the log has changed since the last look.
    pub fn look(&mut self) -> bool {
        self.look_once() | std::mem::take(&mut self.is_due)
    }

    fn look_once(&mut self) -> bool {
        let state = |path: &PathBuf| path.metadata().ok().map(|found| Identity::from(&found));
        let now = [state(&self.log), state(&self.journal)];
        let mut has_changed = now != self.seen;
        self.seen = now;
        for (path, seen) in &mut self.further {
            let now = state(path);
            has_changed |= now != *seen;
            *seen = now;
        }
        has_changed
    }

    /// Takes in the facts about the newest state. An unclosed log without a journal is followed by its files, which
    /// replace those of an earlier state. The next look counts each new file as a change, since it may have changed
    /// before it was known.
    pub fn learn(&mut self, found: &FollowedState) {
        self.lies_beside = found.lies_beside;
        if !found.further.is_empty() {
            self.look_also_at(found.further.clone());
        }
    }

    fn look_also_at(&mut self, files: Vec<PathBuf>) {
        let known = std::mem::take(&mut self.further);
        let seen = |file: &PathBuf| known.iter().find(|(known, _)| known == file)?.1;
        let further = files.into_iter().map(|file| (seen(&file), file));
        self.further = further.map(|(seen, file)| (file, seen)).collect();
    }

    /// Whether the log file is there.
    pub fn is_there(&self) -> bool {
        self.seen[0].is_some()
    }

    /// Whether the log is closed and settled. Its path then leads to an ordinary HDF5 file.
    pub fn is_settled(&self) -> bool {
        File::open(&self.log).is_ok_and(|file| is_settled(&file).unwrap_or(false))
    }

    /// Whether the log lay beside a main file when it was last seen. The close of such a log leaves only the main file.
    pub fn lies_beside(&self) -> bool {
        self.lies_beside
    }

    /// The ordinary file that the log has become. `None` where no close explains that the log is gone.
    pub fn plain(&self) -> Option<Plain> {
        if self.is_settled() {
            return Some(Plain::Hdf5);
        }
        self.lies_beside.then_some(Plain::Main)
    }

    /// Runs `act` on the log, and again where it fails and the log has changed meanwhile. The next look reports such a
    /// change, too, since `act` may have seen an older state.
    pub fn retry<T, E>(&mut self, mut act: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        for _ in 1..ATTEMPTS {
            match act() {
                Err(_) if self.look_once() => self.is_due = true,
                outcome => return outcome,
            }
        }
        act()
    }

    /// Pauses and looks again until there is a change or `until` has come. Returns whether there is a change.
    pub fn wait(&mut self, until: Option<Instant>) -> bool {
        wait_for_any(std::slice::from_mut(self), until)
    }
}

/// Whether the file is a settled log, which is an ordinary HDF5 file.
pub fn is_settled(file: &File) -> io::Result<bool> {
    settled::is_settled(file, file.metadata()?.len())
}

/// [`Changes::wait`] for a change of any of several logs.
pub fn wait_for_any(logs: &mut [Changes], until: Option<Instant>) -> bool {
    loop {
        if logs.iter_mut().fold(false, |any, log| log.look() | any) {
            logs.iter_mut().for_each(|log| log.pause = SHORTEST);
            return true;
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return false;
        }
        let pause = logs.iter().map(|log| log.pause).min().unwrap_or(LONGEST);
        thread::sleep(left.map_or(pause, |left| left.min(pause)));
        let longer = (pause + pause / GROWTH).min(LONGEST);
        logs.iter_mut().for_each(|log| log.pause = longer);
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

    #[test]
    fn further_files_are_looked_at_as_long_as_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name| dir.path().join(name);
        let (log, a, b) = (place("run.nc"), place("a"), place("b"));
        for file in [&log, &a, &b] {
            fs::write(file, "1").unwrap();
        }
        let mut changes = Changes::of(&log).unwrap();
        fs::write(&a, "22").unwrap();
        assert!(!changes.look());
        changes.look_also_at(vec![a.clone()]);
        assert!(changes.look() && !changes.look());
        changes.look_also_at(vec![a.clone(), b.clone()]);
        assert!(changes.look() && !changes.look());
        fs::write(&a, "333").unwrap();
        fs::remove_file(&b).unwrap();
        assert!(changes.look() && !changes.look());
        changes.look_also_at(vec![b]);
        fs::write(&a, "1").unwrap();
        assert!(!changes.look());
    }

    #[test]
    fn a_change_while_something_is_tried_again_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("run.h5");
        fs::write(&log, "1").unwrap();
        let mut changes = Changes::of(&log).unwrap();
        let mut attempts = 0;
        let failed: Result<(), ()> = changes.retry(|| {
            attempts += 1;
            if attempts <= 2 {
                fs::write(&log, vec![0; 1 + attempts]).unwrap();
            }
            Err(())
        });
        assert_eq!((failed, attempts), (Err(()), 3));
        assert!(changes.look() && !changes.look());
    }
}
