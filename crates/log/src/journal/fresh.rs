//! The length and the bytes of a file that other nodes have written.
//!
//! A node may remember the length of a file for some seconds, as clients of GlusterFS do, and does not see what another node has
//! appended since. And the kernel keeps the zeros that it took for the rest of a page as long as it does not see the file
//! change. A reader is content with an older flush. What takes up a log, to close it or to go on with it, would lose the
//! flushes that it does not see.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    Advice, AtFlags, FsWord, NFS_SUPER_MAGIC, SeekFrom, StatxFlags, fadvise, fstatfs, seek, statx,
};
use rustix::io::pread;

use h5logfs_common::fault::Fault;

/// How long a node may remember a length.
const PATIENCE: Duration = Duration::from_secs(15);

/// Waits until this node knows where a file ends, and forgets what it remembers of the bytes. Moves the position of the file.
/// What a file system does not tell is not waited for. Returns which file system it is.
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

/// Forgets what this node remembers of the bytes of a file, where its file system is one in user space: those of the kernel know
/// when pages are no longer right. Returns whether it did.
fn forget(file: impl AsFd) -> bool {
    let file = file.as_fd();
    // The kernel keeps pages of which only a part is in a range.
    FileSystem::of(file).0 == Some(FUSE) && fadvise(file, 0, None, Advice::DontNeed).is_ok()
}

/// Checks bytes of a file. Where that fails, this node forgets what it remembers of them, and they are checked once more: the
/// kernel may keep zeros for the rest of a page that has been written since.
pub fn or_afresh<T>(
    file: impl AsFd,
    mut check: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let checked = check();
    if checked.is_err() && forget(file) {
        return check();
    }
    checked
}

/// tmpfs, ext2 to ext4, XFS, Btrfs: one kernel writes all files, and knows how long they are.
const LOCAL: [FsWord; 4] = [0x0102_1994, 0xEF53, 0x5846_5342, 0x9123_683E];
const FUSE: FsWord = 0x6573_5546;

/// The number of the file system that a file lies on, if the system tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem(Option<FsWord>);

impl FileSystem {
    /// That of an open file.
    pub fn of(file: impl AsFd) -> Self {
        FileSystem(fstatfs(file).ok().map(|found| found.f_type))
    }

    /// Whether one kernel writes all its files, and shows all that was written.
    pub fn is_local(self) -> bool {
        LOCAL.iter().any(|local| self.0 == Some(*local))
    }

    /// Whether it is NFS, of whatever version.
    pub fn is_nfs(self) -> bool {
        self.0 == Some(NFS_SUPER_MAGIC)
    }
}

/// Whether there are bytes behind those that this node can read. Of what a file system tells, only where a hole begins comes
/// from its server for sure.
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
        // Its last bytes are a hole.
        file.set_len(1 << 20).unwrap();
        assert!(!goes_on(&file));
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(!goes_on(&pipe));
    }
}
