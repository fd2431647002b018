//! The directory of a store: opened if it is safe to use.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Opens the directory, and makes it where it is missing. Its parent is not made, so that nothing fills a path with a
/// typing error, or one on a file system that is not mounted.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => log::info!("{}: made this index directory", path.display()),
        // A symbolic link is refused below.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let reason = "neither it nor its parent directory exists";
            return Err(io::Error::new(e.kind(), reason));
        }
        Err(e) => return Err(e),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(refusal("it is a symbolic link, or no directory".into()));
        }
        Err(e) => return Err(e.into()),
    };
    let found = directory.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refusal(format!("it belongs to user {}", found.uid())));
    }
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(refusal(format!(
            "others can get in: its mode is {mode:04o}, but must be 0700"
        )));
    }
    Ok(directory.into())
}

fn refusal(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_made_and_its_parent_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let missing = open(&dir.path().join("typo/indexes")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().contains("neither it nor"), "{missing}");
        assert!(!dir.path().join("typo").exists());
        let own = dir.path().join("indexes");
        assert!(open(&own).is_ok() && open(&own).is_ok());
        assert_eq!(own.metadata().unwrap().mode() & 0o7777, 0o700);
    }
}
