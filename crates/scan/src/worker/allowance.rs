//! The processor time of a scan. The disk space of the files that it opens sets the limit.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::confine;
use h5logfs_common::task::processor_time;
use h5logfs_log::source_file::bytes_on_disk;

/// The limits of one scan.
#[derive(Debug)]
pub struct Allowance {
    /// The processor time of this process when the scan began.
    begin: Duration,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    /// Devices and inode numbers: a file may be opened more than once.
    files: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl Allowance {
    /// The allowance of a scan that begins now.
    pub fn begin() -> io::Result<Self> {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let allowance = Allowance {
            begin: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
            opened: Mutex::default(),
        };
        allowance.set(0)?;
        Ok(allowance)
    }

    /// Adds a file that the scan has opened.
    pub fn add(&self, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        let mut opened = self
            .opened
            .lock()
            .map_err(|e| io::Error::other(e.to_string()))?;
        if opened.files.insert((found.dev(), found.ino())) {
            opened.bytes = opened.bytes.saturating_add(bytes_on_disk(&found));
        }
        self.set(opened.bytes)
    }

    fn set(&self, bytes: u64) -> io::Result<()> {
        // The kernel counts whole seconds.
        let end = self.begin + processor_time(bytes) + Duration::from_secs(1);
        confine::end_after(end.as_secs()).map_err(io::Error::other)
    }
}
