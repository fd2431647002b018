//! Up-to-date length and content of a file that other nodes have written.
//!
//! A node may cache the length of a file for some seconds, as clients of GlusterFS do, and miss bytes that another node has
//! appended. The kernel also keeps the zeros that filled the rest of a page until it notices that the file has
//! changed. A reader can live with an older flush. A program that closes or continues a log would lose the flushes
//! that it does not see.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    Advice, AtFlags, FsWord, NFS_SUPER_MAGIC, SeekFrom, StatxFlags, fadvise, fstatfs, seek, statx,
};
use rustix::io::pread;

use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;

/// Longest time for which a node may cache a length.
const PATIENCE: Duration = Duration::from_secs(15);

/// Waits until this node knows the end of a file, and drops the cached bytes. Moves the file position. It does not
/// wait for bytes that a file system does not report. Returns the kind of file system.
pub fn refresh(file: impl AsFd) -> FileSystem {
    let file = file.as_fd();
    let system = FileSystem::of(file);
    if system.is_local() {
        return system;
    }
    let start = Instant::now();
    while goes_on(file) && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
    }
    forget(file);
    system
}

/// Drops this node's cached bytes of a file on a file system in user space. Kernel file systems notice stale pages
/// themselves. Returns whether bytes were dropped.
fn forget(file: impl AsFd) -> bool {
    let file = file.as_fd();
    // The kernel keeps pages that are only partly in a range.
    FileSystem::of(file).0 == Some(FUSE) && fadvise(file, 0, None, Advice::DontNeed).is_ok()
}

/// Checks bytes of a file. After a failure it drops the cached bytes and checks once more: the kernel may keep zeros
/// for the rest of a page that has been written since.
pub fn or_afresh<T>(
    file: &SourceFile,
    mut check: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let checked = check();
    if checked.is_err() && file.descriptor().is_some_and(forget) {
        return check();
    }
    checked
}

/// tmpfs, ext2 to ext4, XFS and Btrfs: a single kernel writes all files, and knows their lengths.
const LOCAL: [FsWord; 4] = [0x0102_1994, 0xEF53, 0x5846_5342, 0x9123_683E];
const FUSE: FsWord = 0x6573_5546;

/// The number of the file system of a file, if the system reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem(Option<FsWord>);

impl FileSystem {
    /// The file system of an open file.
    pub fn of(file: impl AsFd) -> Self {
        FileSystem(fstatfs(file).ok().map(|found| found.f_type))
    }

    /// Whether a single kernel writes all files, so that everything written is visible.
    pub fn is_local(self) -> bool {
        LOCAL.iter().any(|local| self.0 == Some(*local))
    }

    /// Whether it is NFS of any version.
    pub fn is_nfs(self) -> bool {
        self.0 == Some(NFS_SUPER_MAGIC)
    }
}

/// Whether the file has bytes past those that this node can read. Only the start of a hole is certain to come from
/// the server.
fn goes_on(file: impl AsFd) -> bool {
    let file = file.as_fd();
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let Ok(known) = statx(file, c"", flags, StatxFlags::SIZE) else {
        return false;
    };
    let known = known.stx_size;
    let is_readable = |at| pread(file, &mut [0], at) != Ok(0);
    seek(file, SeekFrom::Hole(known)).is_ok()
        || known.checked_sub(1).is_some_and(|at| !is_readable(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_whose_end_is_known_is_not_waited_for() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(!goes_on(&file));
        file.write_all(b"some").unwrap();
        assert!(!goes_on(&file));
        // The last bytes are a hole.
        file.set_len(1 << 20).unwrap();
        assert!(!goes_on(&file));
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(!goes_on(&pipe));
    }
}
