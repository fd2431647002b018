//! What the catalog knows of a path.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Presented;
use h5logfs_core::error::Error;
use h5logfs_core::log::source_dir::SourcePath;
use h5logfs_core::snapshot::Source;
use h5logfs_core::view::View;

/// How long a failure is believed: long enough that many readers of a broken file cause one scan, not
/// so long that a file whose cause is mended elsewhere (a subfile that arrives late) stays broken.
const BROKEN_FOR: Duration = Duration::from_secs(10);

/// How long a look at the files of a log counts for who asks only which of them are hidden. Without, a listing would
/// look at all files of a log once for each of them.
const LOOKED_AT_FOR: Duration = Duration::from_millis(100);

/// What is known of a path, and of which state of its files.
#[derive(Debug)]
pub struct Known {
    /// Those of the log, and those beside it that may become a part of it without a trace elsewhere.
    pub files: Vec<Source>,
    /// The files that could make a log of it, where such files can.
    pub companions: Option<Vec<SourcePath>>,
    /// The names beside it that stand for parts of it.
    pub parts: HashSet<OsString>,
    pub presented: Presented,
    /// Of what is broken: the system refused something, which says nothing of the file. Who asks for the file asks
    /// the system again.
    passing: bool,
    since: Instant,
    /// When its files were last compared with what they were: milliseconds after `since`.
    compared: AtomicU64,
    /// Alive while somebody has the view open, or the budget keeps it.
    pub view: Weak<View>,
}

impl Known {
    /// `files`: that of the log itself first.
    pub fn new(files: Vec<Source>, presented: Presented, view: Weak<View>) -> Self {
        Known {
            parts: parts(&files).unwrap_or_default(),
            files,
            companions: None,
            passing: matches!(&presented, Presented::Broken(e) if is_passing(e)),
            presented,
            since: Instant::now(),
            compared: AtomicU64::new(0),
            view,
        }
    }

    pub fn is_believed(&self) -> bool {
        match self.presented {
            // Once was enough: it stays so as long as the file does.
            Presented::Broken(ref e) if matches!(**e, Error::ScanDied { .. }) => true,
            Presented::Broken(_) => !self.passing && self.since.elapsed() <= BROKEN_FOR,
            _ => true,
        }
    }

    pub fn was_compared(&self) {
        let now = self.since.elapsed().as_millis();
        self.compared.store(now as u64, Ordering::Relaxed);
    }

    pub fn was_just_compared(&self) -> bool {
        let last = Duration::from_millis(self.compared.load(Ordering::Relaxed));
        self.since.elapsed() < last + LOOKED_AT_FOR
    }

    /// `companions`: the files that could make a log of it, where such files can; `seen`: as they were before it was
    /// scanned.
    pub fn with_companions(
        mut self,
        companions: Option<Vec<SourcePath>>,
        seen: Vec<Source>,
    ) -> Self {
        let there: HashSet<SourcePath> = self.files.iter().map(|file| file.place.clone()).collect();
        let others = seen.into_iter().filter(|file| !there.contains(&file.place));
        self.files.extend(others);
        self.companions = companions;
        self
    }
}

/// Whether the system may grant at once what it refused.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Changed { .. })
}

/// The names beside the first file under which the others are found.
fn parts(files: &[Source]) -> Option<HashSet<OsString>> {
    let (own, others) = files.split_first()?;
    let beside = own.place.path.parent()?;
    let others = others.iter().filter(|file| file.place.dir == 0);
    let below = others.filter_map(|file| file.place.path.strip_prefix(beside).ok());
    let names = below.filter_map(|path| path.components().next());
    let names = names.map(|name| name.as_os_str().to_owned());
    Some(names.collect())
}
