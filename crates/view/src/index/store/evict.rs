//! Keeps a store within its size. The entry that was not used for the longest time is removed first, with all its
//! items.
//!
//! An eviction leaves at least an eighth of the size free, and each daemon may write that much until its next eviction.
//! So daemons that share a directory need not know of each other, and a write does not list the directory.
//!
//! A user may have named a directory with other files. Only files with names of the store's own form count. Such a file
//! is removed only if it also begins as the store's files do.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{FileTime, MAGIC, Store, is_item, is_number, is_unfinished, open_below};

/// Bytes of a block. Files take whole blocks, and a directory takes one.
const BLOCK: u64 = 4096;
/// Seconds after which an unfinished file counts as left by a dead daemon.
const ABANDONED: i64 = 3600;

/// Bytes that may be written until the next eviction.
pub(super) fn allowance(size: u64) -> u64 {
    size / 8
}

/// The most bytes that an eviction leaves.
pub(super) fn low_water(size: u64) -> u64 {
    size - allowance(size)
}

/// Bytes that a file of `len` bytes counts with.
pub(super) fn charged(len: u64) -> u64 {
    len.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// The directory of one entry.
struct EntryDir {
    used: FileTime,
    name: Vec<u8>,
    bytes: u64,
}

impl Store {
    /// Counts bytes that were written. Evicts when the allowance is used up.
    pub(super) fn charge(&self, written: u64) {
        let exhausted = {
            let mut allowance = self.allowance.lock();
            *allowance = allowance.saturating_sub(written);
            *allowance == 0
        };
        if exhausted {
            self.evict();
        }
    }

    /// Removes abandoned files, and entries until the rest is small enough. This looks at every file, so call it at the
    /// start of a daemon. The store itself calls it after writing an eighth of its size.
    pub fn evict(&self) {
        // One eviction at a time is enough.
        let Some(_evicting) = self.evicting.try_lock() else {
            return;
        };
        // Bytes that other threads write from here on count for the next eviction.
        *self.allowance.lock() = allowance(self.size);
        if let Err(e) = self.shrink(low_water(self.size)) {
            log::warn!(
                "{}: old indexes cannot be removed: {e}",
                self.path.display()
            );
        }
    }

    fn shrink(&self, most: u64) -> io::Result<()> {
        let mut dirs = self.dirs()?;
        dirs.sort_by_key(|f| std::cmp::Reverse(f.used));
        let mut total = 0u64;
        let mut removed = 0;
        for dir in &dirs {
            // An entry that is too large by itself must not displace all others.
            if dir.bytes <= most {
                total = total.saturating_add(dir.bytes);
            }
            if dir.bytes > most || total > most {
                self.remove_dir(&dir.name);
                removed += 1;
            }
        }
        log::debug!(
            "{}: {} logs are kept, {removed} were removed",
            self.path.display(),
            dirs.len() - removed
        );
        Ok(())
    }

    fn dirs(&self) -> io::Result<Vec<EntryDir>> {
        let mut dirs = Vec::new();
        for entry in Dir::read_from(self.fd()?.as_fd())? {
            let entry = entry?;
            let name = entry.file_name();
            if is_hash(name) && entry.file_type() != FileType::RegularFile {
                // The entry may be gone by now, or be no directory.
                dirs.extend(self.measure(name.to_bytes()).ok());
            }
        }
        Ok(dirs)
    }

    /// Counts the bytes of an entry's own files. Removes its abandoned files.
    fn measure(&self, name: &[u8]) -> io::Result<EntryDir> {
        let fd = self.open_dir(name)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs() as i64);
        let mut bytes = BLOCK;
        // The directory's time is read first, because the removal of a file changes it.
        let used = rustix::fs::fstat(&fd)?;
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let file = entry.file_name();
            let Ok(found) = rustix::fs::statat(&fd, file, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if !FileType::from_raw_mode(found.st_mode).is_file() {
                continue;
            }
            let unfinished = is_unfinished(file.to_bytes());
            if !unfinished && !is_item(file.to_bytes()) {
                continue;
            }
            if unfinished && found.st_mtime.saturating_add(ABANDONED) < now {
                remove_own(&fd, file);
                continue;
            }
            bytes = bytes.saturating_add(charged(found.st_size as u64));
        }
        Ok(EntryDir {
            used: (used.st_mtime, used.st_mtime_nsec as i64),
            name: name.to_vec(),
            bytes,
        })
    }

    fn open_dir(&self, name: &[u8]) -> io::Result<OwnedFd> {
        let path = Path::new(OsStr::from_bytes(name));
        self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Removes an entry. Other daemons may use it meanwhile. A read then finds no item, and an item that is written
    /// keeps the directory until the next eviction.
    fn remove_dir(&self, name: &[u8]) {
        let removed = self.open_dir(name).and_then(|fd| {
            for entry in Dir::read_from(&fd)? {
                let entry = entry?;
                let file = entry.file_name();
                if is_item(file.to_bytes()) || is_unfinished(file.to_bytes()) {
                    remove_own(&fd, file);
                }
            }
            Ok(rustix::fs::unlinkat(
                self.fd()?.as_fd(),
                name,
                AtFlags::REMOVEDIR,
            )?)
        });
        if let Err(e) = removed {
            let name = String::from_utf8_lossy(name);
            log::debug!("{}: {e}", self.path.join(&*name).display());
        }
    }
}

/// Removes a file of the store, and no other.
fn remove_own(dir: &OwnedFd, name: &CStr) {
    let begins_as_own = || -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        let mut file = File::from(open_below(dir, path, flags, Mode::empty())?);
        let mut begin = Vec::new();
        if !file.metadata()?.is_file() {
            return Ok(false);
        }
        file.by_ref()
            .take(MAGIC.len() as u64)
            .read_to_end(&mut begin)?;
        // A crash of the system may have left the name and none of the bytes.
        Ok(MAGIC.starts_with(&begin) || begin.iter().all(|byte| *byte == 0))
    };
    // Another daemon may have been faster.
    if begins_as_own().unwrap_or(false) {
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
}

/// Whether `name` can be that of an entry.
fn is_hash(name: &CStr) -> bool {
    name.to_bytes().len() == 32 && is_number(name.to_bytes())
}
