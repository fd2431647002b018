//! Waits for the clock of the file system: for no longer than it takes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How old the files of a log must be before anything is kept of it.
const KEPT_AFTER: Duration = Duration::from_secs(2);

/// When the inode of a file below `path`, or of `path` itself, was changed last.
fn last_change(path: &Path) -> SystemTime {
    let found = fs::symlink_metadata(path).unwrap();
    if found.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        let changes = entries.map(|entry| last_change(&entry.unwrap().path()));
        return changes.max().unwrap_or(UNIX_EPOCH);
    }
    UNIX_EPOCH + Duration::new(found.ctime() as u64, found.ctime_nsec() as u32)
}

/// Waits until all files below `path` are so old that something may be kept of them. No program can set the time of an
/// inode.
pub fn settle(path: &Path) {
    let settled = last_change(path) + KEPT_AFTER + Duration::from_millis(10);
    if let Ok(left) = settled.duration_since(SystemTime::now()) {
        thread::sleep(left);
    }
}

/// Makes a directory look as if nothing in it had changed for a while: what is read of it then is complete.
pub fn settle_listing(dir: &Path) {
    let past = SystemTime::now() - Duration::from_secs(10);
    File::open(dir).unwrap().set_modified(past).unwrap();
}

/// Waits for the next second: HDF5 objects have times in seconds.
pub fn next_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let left = Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into());
    thread::sleep(left + Duration::from_millis(10));
}
