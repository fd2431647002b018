//! The key of an entry: one state of one log file, scanned in one way.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use h5logfs_log::source_file::Identity;

/// Coarsest tick of a file system's clock. Two writes this close together may leave the same time.
const TICK: Duration = Duration::from_secs(2);

/// A time of a file, in seconds and nanoseconds since 1970.
pub type FileTime = (i64, i64);

/// The properties that tell one state of a file from another over days and reboots. While a file is watched, an
/// [`Identity`] is enough, and it survives a `chmod`. Here the change time of the inode is compared as well, because no
/// program can set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Inode, size and time of modification.
    pub identity: Identity,
    /// The inode's change time (ctime).
    pub changed: FileTime,
}

impl FileState {
    /// Whether any write before `now` would have changed the times of the file. If the times are only just past, or in
    /// the future, another write in the same tick of the clock leaves no trace.
    pub fn was_settled(&self, now: SystemTime) -> bool {
        let Some(limit) = now
            .checked_sub(TICK)
            .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
        else {
            return false;
        };
        let limit = (limit.as_secs() as i64, i64::from(limit.subsec_nanos()));
        self.changed < limit && self.identity.modified < limit
    }
}

impl From<&Metadata> for FileState {
    fn from(metadata: &Metadata) -> Self {
        FileState {
            identity: Identity::from(metadata),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl From<&Stat> for FileState {
    // The types of the fields of `Stat` differ from one processor to the next.
    #[allow(clippy::unnecessary_cast)]
    fn from(stat: &Stat) -> Self {
        FileState {
            identity: Identity::from(stat),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// The key of an entry: a log file in one state, scanned in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreKey {
    /// State of the log file itself. The items tell the states of its subfiles.
    pub main: FileState,
    /// Name of the log file in its directory. The names of its subfiles derive from it.
    pub name: Vec<u8>,
    /// Everything else on which the items depend: versions and options.
    pub settings: String,
}

impl StoreKey {
    /// The bytes of the key. Only equal keys have equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let FileState { identity, changed } = &self.main;
        let numbers = [
            identity.device,
            identity.inode,
            identity.size,
            identity.modified.0 as u64,
            identity.modified.1 as u64,
            identity.owner.into(),
            changed.0 as u64,
            changed.1 as u64,
            self.name.len() as u64,
        ];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(self.settings.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_settled_when_its_times_are_past() {
        let state = |modified: i64, changed: i64| FileState {
            identity: Identity {
                device: 1,
                inode: 2,
                size: 3,
                modified: (modified, 0),
                owner: 6,
            },
            changed: (changed, 0),
        };
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        assert!(state(997, 997).was_settled(now));
        assert!(!state(999, 997).was_settled(now));
        assert!(!state(997, 999).was_settled(now));
        assert!(!state(998, 998).was_settled(now));
        assert!(!state(5000, 997).was_settled(now));
        assert!(state(-5, 997).was_settled(now));
        assert!(!state(0, 0).was_settled(UNIX_EPOCH));
    }
}
