//! Plain files that libhdf5 has open for writing in this process.
//!
//! libhdf5 keeps most of such a file in memory, so its bytes on the disk are not meaningful, and reading them may fail. The
//! library itself knows the file, but it compares its open files only after a driver has opened this one once more.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use h5logfs_catalog::direct;
use h5logfs_log::netcdf;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fstat};

/// Device and inode number.
type FileNumber = (u64, u64);

/// The files by descriptor. Nothing reports when libhdf5 closes one, so an entry may be stale: its descriptor tells. The next
/// file with that descriptor replaces it. No function is called while it is locked.
static WRITTEN: Mutex<BTreeMap<RawFd, FileNumber>> = Mutex::new(BTreeMap::new());

/// Records a descriptor with which libhdf5 writes a plain file.
pub fn note(descriptor: RawFd) {
    if let Some(file) = written_by(descriptor) {
        with(|written| written.insert(descriptor, file));
    }
}

/// Whether the file at `path`, with metadata `found`, is a plain one that libhdf5 has open for writing.
pub fn is_written(path: &Path, found: &Metadata) -> bool {
    let file = (found.dev(), found.ino());
    let noted = with(|written| {
        let own = written.iter().filter(|(_, of)| **of == file);
        own.map(|(descriptor, _)| *descriptor).collect()
    });
    let noted: Vec<RawFd> = noted.unwrap_or_default();
    let mut open = noted.into_iter();
    open.any(|descriptor| written_by(descriptor) == Some(file)) && !begins_as_log(path)
}

/// Calls `act` with the list, while this process does not fork. `None` if a lock may be held for ever.
fn with<R>(act: impl FnOnce(&mut BTreeMap<RawFd, FileNumber>) -> R) -> Option<R> {
    let _inside = direct::enter().ok()?;
    Some(act(&mut WRITTEN.lock()))
}

/// The file behind a descriptor that may write.
fn written_by(descriptor: RawFd) -> Option<FileNumber> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the kernel is only asked about the descriptor, and reports an invalid one. Nothing is read, written or closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let writes = fcntl_getfl(borrowed)
        .ok()?
        .intersects(OFlags::RDWR | OFlags::WRONLY);
    let stat = fstat(borrowed).ok().filter(|_| writes)?;
    Some((stat.st_dev, stat.st_ino))
}

/// Whether the file is a log after all: libhdf5 has closed the plain file, the program has deleted it, and a log has got its
/// inode and its descriptor.
fn begins_as_log(path: &Path) -> bool {
    let begins_as_log = || {
        let (dir, name) = SourceDir::of_file(path)?;
        let source = SourceFile::open(&dir, &name)?;
        Ok::<_, h5logfs_common::error::Error>(
            source.file_id()?.is_some() || netcdf::has_magic(&source)?,
        )
    };
    begins_as_log().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_is_written_as_long_as_its_descriptor_is_open_for_that() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("a.h5"), dir.path().join("link"));
        fs::write(&path, "").expect("a file");
        fs::hard_link(&path, &link).expect("a link");
        let told = |path: &Path| is_written(path, &fs::metadata(path).expect("it is there"));
        let read = fs::File::open(&path).expect("it can be read");
        note(read.as_raw_fd());
        assert!(!told(&path));
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.expect("it can be written");
        assert!(!told(&path));
        note(file.as_raw_fd());
        assert!(told(&path) && told(&link));
        // A log that replaced the file would be shown as a log.
        fs::write(&link, "CDF\u{1}").expect("other bytes");
        assert!(!told(&path));
        fs::write(&link, "").expect("no bytes");
        assert!(told(&path));
        drop(file);
        assert!(!told(&path));
    }
}
