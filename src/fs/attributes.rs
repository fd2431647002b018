//! The attributes of a file in `stat`, as plain data.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

/// The unit of block counts in `stat`, for all file systems.
const STAT_BLOCK: u64 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    pub kind: FileType,
    pub size: u64,
    /// Mode without the file type.
    pub permissions: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device file, in the kernel's 32-bit form.
    pub device_number: u32,
    pub accessed: SystemTime,
    pub modified: SystemTime,
    pub changed: SystemTime,
}

impl Attributes {
    /// The attributes of a file of known kind only.
    pub fn of_kind(kind: FileType) -> Self {
        Attributes {
            kind,
            size: 0,
            permissions: 0,
            links: 1,
            uid: 0,
            gid: 0,
            device_number: 0,
            accessed: UNIX_EPOCH,
            modified: UNIX_EPOCH,
            changed: UNIX_EPOCH,
        }
    }

    pub fn with_size(self, size: u64) -> Self {
        Attributes { size, ..self }
    }

    /// The attributes with those permissions only that are in `allowed`, too.
    pub fn with_permissions_in(self, allowed: u16) -> Self {
        Attributes {
            permissions: self.permissions & allowed,
            ..self
        }
    }

    /// The attributes with this time of change: seconds and nanoseconds.
    pub fn changed_at(self, (seconds, nanoseconds): (i64, i64)) -> Self {
        let time = time(seconds, u64::try_from(nanoseconds).unwrap_or(0));
        Attributes {
            modified: time,
            changed: time,
            ..self
        }
    }

    /// The attributes with this time of change, unless the file has changed later.
    pub fn changed_since(self, when: (i64, i64)) -> Self {
        let other = self.changed_at(when);
        Attributes {
            modified: self.modified.max(other.modified),
            changed: self.changed.max(other.changed),
            ..self
        }
    }

    pub fn blocks(&self) -> u64 {
        self.size.div_ceil(STAT_BLOCK)
    }
}

impl From<&Stat> for Attributes {
    // The types of the fields of `Stat` depend on the processor.
    #[allow(clippy::unnecessary_cast)]
    fn from(stat: &Stat) -> Self {
        Attributes {
            kind: FileType::from_raw_mode(stat.st_mode),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            permissions: (stat.st_mode & 0o7777) as u16,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            device_number: device_number(stat.st_rdev as u64),
            accessed: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
            modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }
}

/// Converts a device number to the kernel's form, which differs from that of the C library.
fn device_number(rdev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}

/// Converts a time. Seconds are negative before 1970; nanoseconds always count forward.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds)))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_forward_within_the_second() {
        let t = time(-2, 500_000_000);
        assert_eq!(
            UNIX_EPOCH.duration_since(t).unwrap(),
            Duration::from_millis(1500)
        );
    }

    #[test]
    fn device_numbers_are_packed_as_the_kernel_does() {
        assert_eq!(device_number(rustix::fs::makedev(10, 229)), 0x0ae5);
        assert_eq!(device_number(rustix::fs::makedev(8, 0x123)), 0x0010_0823);
    }
}
