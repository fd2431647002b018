//! Starts to write complete data to the disk while the program goes on, so that little is left to wait for at the close.
//!
//! The system would start after some 30 seconds, or when much of its memory is dirty. This is only a hint: the promise to the
//! program is kept by the sync at a flush or at the close.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::options::Fsync;

/// Fewest bytes that are worth a call.
const LEAST: u64 = 4 << 20;
/// Page size. The system writes pages; an incomplete one would be written twice.
const PAGE: u64 = 4096;

/// Bytes that this rank has written into its data file, without starting their write to the disk.
#[derive(Debug)]
pub(crate) struct WriteBack {
    is_wanted: bool,
    /// Range from the first byte to the last one. Other ranks may have written in between.
    range: Range<u64>,
    /// Number of own bytes in the range.
    len: u64,
}

impl WriteBack {
    /// The state of a new file. Only a file that will be synced is written back early.
    pub fn of(fsync: Fsync) -> Self {
        WriteBack {
            is_wanted: fsync != Fsync::None,
            range: 0..0,
            len: 0,
        }
    }

    /// Counts written bytes, and starts to write them to the disk if they are enough.
    pub fn written(&mut self, file: &File, range: Range<u64>) {
        if let Some(due) = self.due(range) {
            begin(file, due);
        }
    }

    fn due(&mut self, written: Range<u64>) -> Option<Range<u64>> {
        if !self.is_wanted || written.is_empty() {
            return None;
        }
        let Range { start, end } = &mut self.range;
        if self.len == 0 {
            *start = written.start;
            *end = written.end;
        } else {
            *start = written.start.min(*start);
            *end = written.end.max(*end);
        }
        self.len += written.end - written.start;
        if self.len < LEAST {
            return None;
        }
        self.len = 0;
        Some(*start..*end / PAGE * PAGE)
    }
}

/// Lets the system write a range of a file, without waiting for it.
fn begin(file: &File, range: Range<u64>) {
    let (Ok(offset), Ok(len)) = (range.start.try_into(), (range.end - range.start).try_into())
    else {
        return;
    };
    // SAFETY: the call takes numbers only, and the descriptor is open.
    let status = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
    };
    if status < 0 {
        // Some file systems do not support the call.
        log::debug!("sync_file_range: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_range_is_written_when_it_is_large() {
        let mut small = WriteBack::of(Fsync::Close);
        let pieces = (0..9).map(|n| 100 + n * MIB..100 + (n + 1) * MIB);
        let due: Vec<_> = pieces.filter_map(|piece| small.due(piece)).collect();
        assert_eq!(due, [100..4 * MIB, 100 + 4 * MIB..8 * MIB]);
        let mut large = WriteBack::of(Fsync::Flush);
        assert_eq!(large.due(0..9 * MIB), Some(0..9 * MIB));
        assert_eq!(large.due(9 * MIB..9 * MIB), None);
    }

    /// Ranks that share a file write in turn, so only own bytes count.
    #[test]
    fn what_others_write_between_does_not_count() {
        let mut own = WriteBack::of(Fsync::Close);
        for n in 0..3 {
            assert_eq!(own.due(2 * n * MIB..(2 * n + 1) * MIB), None);
        }
        assert_eq!(own.due(6 * MIB..7 * MIB), Some(0..7 * MIB));
    }

    #[test]
    fn what_nobody_forces_to_the_disk_is_left_to_the_system() {
        assert_eq!(WriteBack::of(Fsync::None).due(0..99 * MIB), None);
    }

    #[test]
    fn files_without_a_disk_are_no_error() {
        let (reader, writer) = std::io::pipe().unwrap();
        begin(&File::from(std::os::fd::OwnedFd::from(writer)), 0..LEAST);
        drop(reader);
    }
}
