//! Waits for the clock of the file system, no longer than necessary.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How old the files of a log must be before an index is kept.
const KEPT_AFTER: Duration = Duration::from_secs(2);

/// The last inode change of `path` and everything below it.
fn last_change(path: &Path) -> SystemTime {
    let found = fs::symlink_metadata(path).unwrap();
    if found.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        let changes = entries.map(|entry| last_change(&entry.unwrap().path()));
        return changes.max().unwrap_or(UNIX_EPOCH);
    }
    UNIX_EPOCH + Duration::new(found.ctime() as u64, found.ctime_nsec() as u32)
}

/// Waits until all files below `path` are old enough for an index to be kept. No program can set the change time of
/// an inode.
pub fn settle(path: &Path) {
    let settled = last_change(path) + KEPT_AFTER + Duration::from_millis(10);
    if let Ok(left) = settled.duration_since(SystemTime::now()) {
        thread::sleep(left);
    }
}

/// Makes a directory look unchanged for a while: a listing of it then counts as complete.
pub fn settle_listing(dir: &Path) {
    let past = SystemTime::now() - Duration::from_secs(10);
    File::open(dir).unwrap().set_modified(past).unwrap();
}

/// Waits for the next second: HDF5 objects store times in seconds.
pub fn next_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let left = Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into());
    thread::sleep(left + Duration::from_millis(10));
}
