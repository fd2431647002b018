//! The directory of a store: where it is, and whether it is safe to use.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

const NAME: &str = "h5logfs";
/// For root without a home: a mount at boot.
const SYSTEM_CACHE: &str = "/var/cache";

/// Where a store is unless an option tells: below the user's cache directory. `None` where there is none.
pub fn default_place() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name);
    place(variable("XDG_CACHE_HOME"), variable("HOME"))
}

fn place(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // Relative ones are to be ignored (XDG Base Directory Specification).
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|p| p.is_absolute());
    if let Some(cache) = cache.and_then(absolute) {
        return Some(cache.join(NAME));
    }
    // Under sudo the home may be another user's, and that user can write to it.
    let home = home.and_then(absolute).filter(|home| is_ours(home));
    match home {
        Some(home) => Some(home.join(".cache").join(NAME)),
        None if rustix::process::geteuid().is_root() => Some(Path::new(SYSTEM_CACHE).join(NAME)),
        None => None,
    }
}

fn is_ours(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// Opens the directory. It is made with its parents where it is missing.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        // A symbolic link is refused below.
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
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
            "others can get in: its mode is {mode:04o}, and has to be 0700"
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
    fn the_default_place_is_in_our_own_home() {
        let home = tempfile::tempdir().unwrap();
        let at = |cache: &str, home: &Path| {
            let cache = (!cache.is_empty()).then(|| cache.into());
            place(cache, Some(home.into()))
        };
        let own = home.path().join(".cache/h5logfs");
        assert_eq!(at("/c", home.path()), Some("/c/h5logfs".into()));
        assert_eq!(at("", home.path()), Some(own.clone()));
        assert_eq!(at("relative", home.path()), Some(own));
        if rustix::process::geteuid().is_root() {
            let system = Some(PathBuf::from("/var/cache/h5logfs"));
            assert_eq!(place(None, None), system);
            std::os::unix::fs::chown(home.path(), Some(65534), None).unwrap();
            assert_eq!(at("", home.path()), system);
        } else {
            assert_eq!(at("", Path::new("/")), None);
        }
    }
}
