//! Sets of files that make up a file: candidates by the names in a directory, and what the first member shows.
//!
//! Only the first member is opened here, and again only when it has changed; a few others where it cannot be read.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_log::tiles::named::TWO_FAMILIES;
use h5logfs_log::tiles::names::Candidate;
use h5logfs_log::tiles::recognition::{Recognized, recognize_any};

/// Lifetime of a look at the state of a first member. A listing asks for each member.
const JUDGED_LIFETIME: Duration = Duration::from_millis(100);

/// The candidates in a directory by joined name; `None` where names of two families have the same joined name.
#[derive(Debug, Default)]
pub(super) struct Sets(HashMap<OsString, Option<Arc<Set>>>);

/// Files that may make up a file.
#[derive(Debug)]
pub struct Set {
    /// The names.
    pub candidate: Candidate,
    /// The name of the first member.
    pub first: OsString,
    /// Whether a file has the joined name.
    is_taken: OnceLock<bool>,
    /// The lock is held while the first member is read, because waiting threads would read the same.
    judged: Mutex<Option<Judged>>,
}

#[derive(Debug, Clone)]
struct Judged {
    /// The state of the first member.
    first: Identity,
    /// The time of the last look at that.
    since: Instant,
    recognized: Recognized,
}

impl Sets {
    /// The candidates. What is known of the first members comes from an earlier listing of the directory.
    pub fn new(found: HashMap<OsString, Option<Candidate>>, before: Option<&Sets>) -> Self {
        let of = |(joined, candidate): (OsString, Option<Candidate>)| {
            let before = before.and_then(|before| before.0.get(&joined)?.clone());
            let set = candidate.map(|candidate| Arc::new(Set::new(candidate, before.as_deref())));
            (joined, set)
        };
        Sets(found.into_iter().map(of).collect())
    }

    /// The candidate with this joined name.
    pub fn get(&self, joined: &OsStr) -> Option<Arc<Set>> {
        self.0.get(joined)?.clone()
    }

    /// All candidates.
    pub fn all(&self) -> Vec<Arc<Set>> {
        self.0.values().flatten().cloned().collect()
    }

    /// Writes a line of the log about names of two families. `path` is that of the directory.
    pub fn note_ambiguous(&self, path: &Path, before: Option<&Sets>) {
        for (joined, set) in &self.0 {
            let is_known = before.is_some_and(|before| matches!(before.0.get(joined), Some(None)));
            if set.is_none() && !is_known {
                log::info!("{}: {TWO_FAMILIES}", path.join(joined).display());
            }
        }
    }
}

impl Set {
    fn new(candidate: Candidate, before: Option<&Set>) -> Self {
        let first = candidate.first();
        let before = before.filter(|before| before.first == first);
        Set {
            judged: Mutex::new(before.and_then(|before| before.judged.lock().clone())),
            is_taken: OnceLock::new(),
            candidate,
            first,
        }
    }

    /// Whether the files in the directory `parent` make up a file, whose name no other file has.
    pub fn is_joined(&self, dir: &SourceDir, parent: &Path) -> bool {
        if self.recognized(dir, parent) != Recognized::Set {
            return false;
        }
        !*self.is_taken.get_or_init(|| {
            let joined = parent.join(&self.candidate.joined);
            let is_taken = dir.stat(&joined).is_ok();
            if is_taken {
                let first = self.first.to_string_lossy();
                let joined = dir.full_path(&joined);
                log::info!(
                    "{}: this file is shown, and {first} and others are not joined",
                    joined.display()
                );
            }
            is_taken
        })
    }

    /// What the first member shows. A file that cannot be read shows nothing.
    fn recognized(&self, dir: &SourceDir, parent: &Path) -> Recognized {
        let mut judged = self.judged.lock();
        if let Some(known) = &*judged
            && known.since.elapsed() < JUDGED_LIFETIME
        {
            return known.recognized.clone();
        }
        let since = Instant::now();
        let path = parent.join(&self.first);
        let now = dir.stat(&path).map(|stat| Identity::from(&stat)).ok();
        if let Some(known) = &mut *judged
            && now == Some(known.first)
        {
            known.since = since;
            return known.recognized.clone();
        }
        let open = |name: &OsStr| SourceFile::open(dir, &parent.join(name));
        let recognized = recognize_any(&self.candidate, open).ok();
        let found = recognized.zip(now).map(|(recognized, first)| Judged {
            first,
            since,
            recognized,
        });
        *judged = found.clone();
        found.map_or(Recognized::No, |found| found.recognized)
    }

    /// The places of the members in the directory `parent`, by number.
    pub(super) fn places(&self, parent: &Path) -> Vec<SourcePath> {
        let names = self.candidate.names();
        names
            .map(|name| SourcePath::below(parent.join(name)))
            .collect()
    }
}
