//! Keeping a store within its bound: what was not used for the longest goes first, all that belongs to
//! one state of a log at once.
//!
//! After a look at everything, at least an eighth of the bound is free, and each daemon may write that
//! much before it looks again. So daemons that share a directory need not know of each other, and
//! writing needs no look at what is there.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, OFlags};

use super::{Store, Time, UNFINISHED};

/// Files take whole blocks, and a directory one of its own.
const BLOCK: u64 = 4096;
/// In seconds: a file that is unfinished for so long, nobody is going to finish.
const ABANDONED: i64 = 3600;

/// What may be written before the next look.
pub(super) fn room(size: u64) -> u64 {
    size / 8
}

/// What is left after a look, at most.
pub(super) fn low_water(size: u64) -> u64 {
    size - room(size)
}

/// What a file of `len` bytes takes of the bound.
pub(super) fn charged(len: u64) -> u64 {
    len.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// All that is kept of one state of a log.
struct SourceDir {
    used: Time,
    name: Vec<u8>,
    bytes: u64,
}

impl Store {
    /// Counts what was written, and looks after the bound when it is time.
    pub(super) fn charge(&self, written: u64) {
        let exhausted = {
            let mut room = self.room.lock();
            *room = room.saturating_sub(written);
            *room == 0
        };
        if exhausted {
            self.tidy();
        }
    }

    /// Removes what is unfinished since long, and as much of the rest as is too much. It looks at every
    /// file: at the start of a daemon, and then when an eighth of the bound was written.
    pub fn tidy(&self) {
        // One look at a time is enough.
        let Some(_looking) = self.tidying.try_lock() else {
            return;
        };
        // What others write from here on counts for the next time.
        *self.room.lock() = room(self.size);
        if let Err(e) = self.shrink(low_water(self.size)) {
            log::warn!("{}: cannot be looked through: {e}", self.path.display());
        }
    }

    fn shrink(&self, most: u64) -> io::Result<()> {
        let mut dirs = self.dirs()?;
        dirs.sort_by_key(|f| std::cmp::Reverse(f.used));
        let mut total = 0u64;
        let mut removed = 0;
        for dir in &dirs {
            // What is too large by itself must not take all the rest with it.
            if dir.bytes <= most {
                total = total.saturating_add(dir.bytes);
            }
            if dir.bytes > most || total > most {
                self.remove_dir(&dir.name);
                removed += 1;
            }
        }
        log::debug!(
            "{}: {} logs are kept, {removed} were too many",
            self.path.display(),
            dirs.len() - removed
        );
        Ok(())
    }

    fn dirs(&self) -> io::Result<Vec<SourceDir>> {
        let mut dirs = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_hash(name) && entry.file_type() != FileType::RegularFile {
                // It may be gone by now, or be none.
                dirs.extend(self.weigh(name.to_bytes()).ok());
            }
        }
        Ok(dirs)
    }

    /// Removes what is unfinished on the way.
    fn weigh(&self, name: &[u8]) -> io::Result<SourceDir> {
        let fd = self.open_dir(name)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs() as i64);
        let mut bytes = BLOCK;
        // Before anything is removed, which counts as a change of the directory.
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
            let unfinished = file.to_bytes().starts_with(UNFINISHED.as_bytes());
            if unfinished && found.st_mtime.saturating_add(ABANDONED) < now {
                let _ = rustix::fs::unlinkat(&fd, file, AtFlags::empty());
                continue;
            }
            bytes = bytes.saturating_add(charged(found.st_size as u64));
        }
        Ok(SourceDir {
            used: (used.st_mtime, used.st_mtime_nsec as i64),
            name: name.to_vec(),
            bytes,
        })
    }

    fn open_dir(&self, name: &[u8]) -> io::Result<OwnedFd> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(name));
        self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Others may read in it, or write to it: they get along with that, and it is looked at again.
    fn remove_dir(&self, name: &[u8]) {
        let removed = self.open_dir(name).and_then(|fd| {
            for entry in Dir::read_from(&fd)? {
                let entry = entry?;
                let file = entry.file_name();
                // Another daemon may have been faster.
                let _ = rustix::fs::unlinkat(&fd, file, AtFlags::empty());
            }
            Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
        });
        if let Err(e) = removed {
            let name = String::from_utf8_lossy(name);
            log::debug!("{}: {e}", self.path.join(&*name).display());
        }
    }
}

/// Whether it is a name that we give to directories.
fn is_hash(name: &CStr) -> bool {
    let digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    name.to_bytes().len() == 32 && name.to_bytes().iter().all(digit)
}
