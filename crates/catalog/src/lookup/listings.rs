//! The names of companion files in directories.
//!
//! A directory of thousands of files is listed once, not once for each file. A large directory that changes all the
//! time is listed again only after a while, and look-ups meanwhile use the earlier listing.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::sets::{Set, Sets};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::lru::Lru;
use h5logfs_common::single_flight::SingleFlight;
use h5logfs_log::part_names::named_after;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::Identity;
use h5logfs_log::tiles::named::may_be_joined;
use h5logfs_log::tiles::names::{Candidates, MemberName};

/// Bytes for all listings.
const MEMORY: usize = 16 << 20;
/// Bytes for one listing, and for the names of one log file's logs.
const LARGEST: usize = MEMORY / 2;
/// Bytes of a name besides its text.
const OVERHEAD: usize = 64;
/// Coarsest tick of a file system's clock. A directory that changed within a tick before its listing may have changed
/// once more since, with the same time. The time without a change is measured by our own clock, since that of a file
/// server may go wrong.
const TICK: Duration = Duration::from_millis(100);
/// A directory is large if its listing takes longer than this.
const LARGE: Duration = Duration::from_millis(5);
/// The listing of a large directory counts for this many times its duration, although the directory changes.
const REST: u32 = 9;
/// The longest such time.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// Lifetime of a comparison of a listing with its directory, for who lists the directory and asks for each name.
const COMPARISON_LIFETIME: Duration = Duration::from_millis(50);

type Key = (u16, PathBuf);

/// Listings of directories, cached for as long as the directories do not change.
#[derive(Debug)]
pub struct Listings {
    known: Lru<Key, Arc<Listing>>,
    /// Directories that are being listed, each by one thread.
    listing: SingleFlight<Key>,
}

#[derive(Debug)]
struct Listing {
    directory: Identity,
    /// When the directory was first seen in this state.
    since: Instant,
    /// Begin of the listing.
    begun: Instant,
    /// Duration of the listing.
    cost: Duration,
    /// Names of logs, by the names of their log files. `None` where they are too many to be kept.
    logs: Option<HashMap<OsString, Vec<OsString>>>,
    /// Sets of files; none where their names are too many to be kept.
    sets: Sets,
    /// Time of the last comparison with the directory: milliseconds after `begun`.
    compared: AtomicU64,
    memory: usize,
}

impl Default for Listings {
    fn default() -> Self {
        Listings {
            known: Lru::new(MEMORY as u64),
            listing: SingleFlight::default(),
        }
    }
}

impl Listings {
    /// The names in `directory` that belong to logs of the file `name`, sorted. `number` is that of `dir`.
    pub(super) fn logs_of(
        &self,
        dir: &SourceDir,
        number: u16,
        directory: &Path,
        name: &OsStr,
    ) -> Result<Vec<OsString>> {
        let failed = |e| Error::io(dir.full_path(directory), e);
        let listing = self.get(dir, number, directory).map_err(failed)?;
        if let Some(logs) = &listing.logs {
            return Ok(logs.get(name).cloned().unwrap_or_default());
        }
        let (mut logs, mut memory) = (Vec::new(), 0);
        let visit = |file: &OsStr, _: bool| {
            if named_after(file) == Some(name) {
                memory += file.len() + OVERHEAD;
                if memory <= LARGEST {
                    logs.push(file.to_owned());
                }
            }
        };
        dir.visit(directory, visit).map_err(failed)?;
        if memory > LARGEST {
            let reason = format!("the names of its logs take more than {LARGEST} bytes");
            return Err(Error::of(dir.full_path(&directory.join(name)), reason));
        }
        logs.sort();
        Ok(logs)
    }

    /// The set that makes up the file at `relative`, which is missing. `None` where there is none.
    pub fn set_at(&self, dir: &SourceDir, relative: &Path) -> Option<Arc<Set>> {
        let name = relative.file_name().filter(|name| may_be_joined(name))?;
        let parent = relative.parent().unwrap_or(Path::new(""));
        let set = self.get(dir, 0, parent).ok()?.sets.get(name)?;
        set.is_joined(dir, parent).then_some(set)
    }

    /// All sets in the directory `parent` that make up a file.
    pub fn sets_in(&self, dir: &SourceDir, parent: &Path) -> Vec<Arc<Set>> {
        let listing = self.get(dir, 0, parent);
        let sets = listing
            .map(|listing| listing.sets.all())
            .unwrap_or_default();
        sets.into_iter()
            .filter(|set| set.is_joined(dir, parent))
            .collect()
    }

    /// The set that has `name` in the directory `parent`. It may be the set of a moment ago. `None` where there is none.
    pub fn set_with(&self, dir: &SourceDir, parent: &Path, name: &OsStr) -> Option<Arc<Set>> {
        let joined = MemberName::parse(name)?.joined();
        let recent = self.known.get(&(0, parent.to_owned()));
        let recent = recent.filter(|listing| listing.was_just_compared());
        let listing = match recent {
            Some(listing) => listing,
            None => self.get(dir, 0, parent).ok()?,
        };
        let set = listing.sets.get(&joined)?;
        (set.candidate.has(name) && set.is_joined(dir, parent)).then_some(set)
    }

    fn get(&self, dir: &SourceDir, number: u16, directory: &Path) -> std::io::Result<Arc<Listing>> {
        let asked = Instant::now();
        let key = (number, directory.to_owned());
        let now = Identity::from(&dir.stat(directory)?);
        let known = self.known.get(&key);
        if let Some(known) = &known
            && (known.is_complete(now) || known.may_rest())
        {
            known.set_compared();
            return Ok(Arc::clone(known));
        }
        let large = known.filter(|known| known.cost >= LARGE);
        let _flight = match large {
            Some(known) => match self.listing.try_take(key.clone()) {
                Some(flight) => flight,
                // Another thread lists it.
                None => return Ok(known),
            },
            None => self.listing.take(key.clone()),
        };
        if let Some(known) = self.known.get(&key)
            && known.begun >= asked
        {
            return Ok(known);
        }
        // The directory may change while it is listed.
        let seen = Instant::now();
        let now = Identity::from(&dir.stat(directory)?);
        let same = self.known.get(&key).filter(|known| known.directory == now);
        let since = same.map_or(seen, |known| known.since);
        let before = self.known.get(&key);
        let before = before.as_ref().map(|known| &known.sets);
        let listing = Arc::new(Listing::read(dir, directory, now, since, before)?);
        let own = size_of::<Listing>() + OVERHEAD + key.1.as_os_str().len();
        let weight = (own + listing.memory) as u64;
        self.known.insert(key, Arc::clone(&listing), weight);
        Ok(listing)
    }
}

impl Listing {
    fn read(
        dir: &SourceDir,
        path: &Path,
        directory: Identity,
        since: Instant,
        sets_before: Option<&Sets>,
    ) -> std::io::Result<Self> {
        let begun = Instant::now();
        let mut logs: HashMap<OsString, Vec<OsString>> = HashMap::new();
        let mut memory = 0;
        let (mut candidates, mut of_candidates) = (Candidates::default(), 0);
        dir.visit(path, |name, may_be_regular| {
            // A link leads elsewhere, and would not be followed.
            if may_be_regular && of_candidates <= LARGEST {
                of_candidates += candidates.add(name);
            }
            let Some(log) = named_after(name).filter(|_| memory <= LARGEST) else {
                return;
            };
            memory += name.len() + OVERHEAD;
            if let Some(names) = logs.get_mut(log) {
                names.push(name.to_owned());
            } else {
                memory += log.len() + 2 * OVERHEAD;
                logs.insert(log.to_owned(), vec![name.to_owned()]);
            }
        })?;
        logs.values_mut().for_each(|names| names.sort());
        let fits = memory <= LARGEST;
        if of_candidates > LARGEST {
            let path = dir.full_path(path);
            log::info!(
                "{}: too many numbered files: none are joined",
                path.display()
            );
            candidates = Candidates::default();
            of_candidates = 0;
        }
        let sets = Sets::new(candidates.into_sets(), sets_before);
        sets.note_ambiguous(&dir.full_path(path), sets_before);
        Ok(Listing {
            directory,
            since,
            begun,
            cost: begun.elapsed(),
            logs: fits.then_some(logs),
            sets,
            compared: AtomicU64::new(0),
            memory: of_candidates + if fits { memory } else { 0 },
        })
    }

    fn set_compared(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        self.compared.store(now, Ordering::Relaxed);
    }

    fn was_just_compared(&self) -> bool {
        let last = Duration::from_millis(self.compared.load(Ordering::Relaxed));
        self.begun.elapsed() < last + COMPARISON_LIFETIME
    }

    /// Whether the listing has all names of the directory in the state `now`. Any later change would show in the
    /// directory's time, or the listing was read just now.
    fn is_complete(&self, now: Identity) -> bool {
        let is_settled = self.begun.duration_since(self.since) >= TICK;
        self.directory == now && (is_settled || self.begun.elapsed() < TICK)
    }

    /// Whether the listing counts although the directory has changed: the directory is large, and was listed not long
    /// ago.
    fn may_rest(&self) -> bool {
        let rest = (self.cost * REST).min(LONGEST_REST);
        self.cost >= LARGE && self.begun.elapsed() < self.cost + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, FileTimes};
    use std::time::SystemTime;

    const HOUR: Duration = Duration::from_secs(3600);

    fn set_time(path: &Path, time: SystemTime) {
        let times = FileTimes::new().set_modified(time);
        File::open(path).unwrap().set_times(times).unwrap();
    }

    /// A new file leaves the time of the directory as it is, because the clock of the file server is wrong and coarse.
    #[track_caller]
    fn a_file_that_comes_is_found(time: SystemTime) {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        let dir = SourceDir::open(path).unwrap();
        let listings = Listings::default();
        let logs = || {
            let found = listings.logs_of(&dir, 0, Path::new(""), OsStr::new("a.nc"));
            found.unwrap().len()
        };
        let add = |name: &str| {
            fs::write(path.join(name), "").unwrap();
            set_time(path, time);
        };
        add("a.nc_1_0.meta");
        assert_eq!(logs(), 1);
        add("a.nc_1_0.data");
        let begun = Instant::now();
        while logs() < 2 {
            assert!(begun.elapsed() < 20 * TICK, "the second file is not found");
        }
        // The directory is not listed again.
        std::thread::sleep(TICK);
        assert_eq!(logs(), 2);
        let known = || listings.known.get(&(0, PathBuf::new())).unwrap().begun;
        let before = known();
        std::thread::sleep(TICK);
        assert_eq!((logs(), known()), (2, before));
    }

    #[test]
    fn a_file_that_comes_is_found_whatever_the_clock_says() {
        let now = SystemTime::now();
        for time in [now, now - HOUR, now + HOUR] {
            a_file_that_comes_is_found(time);
        }
    }
}
