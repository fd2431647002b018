//! What was learned of log files, kept on disk from one daemon to the next.
//!
//! ```text
//! DIR/                    0700, ours
//!   0123…cdef/            one state of one log file: a hash of its key
//!     scan                items, each a file by itself
//!     index-7
//! ```
//!
//! An item is bytes that the rest of the program can make again. So nothing here is ever an error to a
//! reader: what is missing, damaged, or of another version is not there. Items are written under
//! another name and renamed, so that daemons can share a directory. They are not forced to the disk:
//! a file that a crash has torn has a wrong checksum.
//!
//! Items are read at once and not mapped: of a mapped file that somebody truncates, a read is a SIGBUS.
//!
//! * [`directory`] opens DIR, and refuses what others could have put there.
//! * [`key`] tells the states of log files apart.
//! * [`tidy`] keeps the whole within its bound.

mod directory;
mod key;
mod tidy;

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

pub use directory::default_place;
pub use key::{Key, State, Time};

/// The first bytes of each item.
const MAGIC: [u8; 8] = *b"h5logkep";
/// Counts up with every change of what is written: here, or in what is inside the items.
const FORMAT: u32 = 4;
/// Length and checksum, between the words that name an item and its bytes.
const SUM: usize = 8 + 16;
/// Files that are being written begin so; no item does.
const UNFINISHED: &str = "tmp-";
/// Only we may read what is kept: it tells of files that others may not read.
const FOLDER_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory in which things are kept. Shared by all threads, and by other processes.
#[derive(Debug)]
pub struct Store {
    fd: OwnedFd,
    /// For messages only.
    path: PathBuf,
    /// The most bytes that all items together may have.
    size: u64,
    /// Bytes that may be written before somebody has to look at what is there.
    room: Mutex<u64>,
    tidying: Mutex<()>,
    /// A full disk is told once.
    complained: AtomicBool,
}

impl Store {
    /// Opens the directory at `path`, which is made where it is missing. `size`: the most bytes that it
    /// may grow to. Fails where others could have put something into it.
    pub fn open(path: &Path, size: u64) -> io::Result<Self> {
        Ok(Store {
            fd: directory::open(path)?,
            path: path.to_owned(),
            size,
            room: Mutex::new(tidy::room(size)),
            tidying: Mutex::default(),
            complained: AtomicBool::new(false),
        })
    }

    /// What is kept of one state of a log file.
    pub fn log(self: &Arc<Self>, key: &Key) -> KeptLog {
        let front = front(key);
        KeptLog {
            store: Arc::clone(self),
            dir: format!("{:032x}", xxh3_128(&front)),
            front: front.into(),
            used: Arc::default(),
        }
    }

    fn open_below(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        open_below(&self.fd, path, flags, Mode::empty())
    }

    /// Tells, once, that nothing can be kept.
    fn complain(&self, what: &str, error: &io::Error) {
        let path = self.path.display();
        match self.complained.swap(true, Ordering::Relaxed) {
            false => log::warn!("{path}: things cannot be kept there: {what}: {error}"),
            true => log::debug!("{path}: {what}: {error}"),
        }
    }
}

/// What all items of one state of a log begin with: who wrote them, and of what.
fn front(key: &Key) -> Vec<u8> {
    let mut front = MAGIC.to_vec();
    front.extend_from_slice(&FORMAT.to_le_bytes());
    put_text(&mut front, env!("CARGO_PKG_VERSION").as_bytes());
    put_text(&mut front, &PROGRAM);
    put_text(&mut front, &key.to_bytes());
    front
}

/// This very build of the program, for what a change of its code makes of a log has no version: the
/// size of its file, and the time when that was made.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let file = std::fs::metadata("/proc/self/exe");
    let numbers = file.map_or([0; 3], |f| [f.size() as i64, f.mtime(), f.mtime_nsec()]);
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
});

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// Opens a path below a directory, without following any symbolic link.
fn open_below(fd: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(fd, path, flags, mode, beneath) {
            // A rename elsewhere raced with the look-up: the kernel asks us to try again.
            Err(Errno::AGAIN) => continue,
            other => return Ok(other?),
        }
    }
}

/// What is kept of one state of one log file, item by item.
#[derive(Debug, Clone)]
pub struct KeptLog {
    store: Arc<Store>,
    dir: String,
    /// What the items begin with.
    front: Arc<[u8]>,
    /// The time of use has been noted.
    used: Arc<AtomicBool>,
}

impl KeptLog {
    /// The same place, for items that were made of something more; those made of anything else are not
    /// there.
    pub fn with(&self, more: &[u8]) -> Self {
        let mut front = self.front.to_vec();
        put_text(&mut front, more);
        KeptLog {
            front: front.into(),
            ..self.clone()
        }
    }

    /// The bytes that were put under this name. `item`: letters, digits and `-`.
    pub fn get(&self, item: &str) -> Option<Vec<u8>> {
        match self.read(item) {
            Ok(bytes) => {
                self.note_use();
                Some(bytes)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                log::warn!("{}: not used: {e}", self.shown(item));
                if says_damage(&e) {
                    self.remove(item);
                }
                None
            }
        }
    }

    /// Whether there is something under this name, good or not.
    pub fn has(&self, item: &str) -> bool {
        let path = Path::new(&self.dir).join(item);
        rustix::fs::statat(&self.store.fd, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Keeps bytes under a name, in place of others. Where that is impossible they are not kept.
    pub fn put(&self, item: &str, bytes: &[u8]) {
        match self.write(item, bytes) {
            Ok(written) => self.store.charge(written),
            Err(e) => self.store.complain(item, &e),
        }
    }

    fn shown(&self, item: &str) -> String {
        let path = self.store.path.join(&self.dir).join(item);
        path.display().to_string()
    }

    /// The words in front of an item's bytes, but for length and checksum.
    fn head(&self, item: &str) -> Vec<u8> {
        let mut head = self.front.to_vec();
        put_text(&mut head, item.as_bytes());
        head
    }

    fn read(&self, item: &str) -> io::Result<Vec<u8>> {
        let path = Path::new(&self.dir).join(checked(item)?);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = File::from(self.store.open_below(&path, flags)?);
        let found = file.metadata()?;
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(damage("it is not a file of ours"));
        }
        let head = self.head(item);
        let mut front = vec![0; head.len() + SUM];
        file.read_exact(&mut front)?;
        let Some((len, sum)) = front.strip_prefix(head.as_slice()).and_then(length_and_sum) else {
            return Err(damage("it was made of something else"));
        };
        if found.len().checked_sub(front.len() as u64) != Some(len) {
            return Err(damage("it has another length than it says"));
        }
        let mut bytes = Vec::new();
        // Checked against the file's own length, which may still be a fairy tale: a sparse file.
        if len > self.store.size || bytes.try_reserve_exact(len as usize).is_err() {
            return Err(damage("it is too large"));
        }
        file.take(len).read_to_end(&mut bytes)?;
        match checksum(&head, &bytes) == sum {
            true => Ok(bytes),
            false => Err(damage("its checksum does not match")),
        }
    }

    /// Returns how much of the bound it takes.
    fn write(&self, item: &str, bytes: &[u8]) -> io::Result<u64> {
        checked(item)?;
        let head = self.head(item);
        let len = (head.len() + SUM + bytes.len()) as u64;
        if tidy::charged(len) > tidy::low_water(self.store.size) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{len} bytes are more than the directory may hold"),
            ));
        }
        let dir = self.dir()?;
        // Not to be guessed, and not the name that another daemon has taken, on whatever machine.
        let unfinished = format!(
            "{UNFINISHED}{:016x}",
            RandomState::new().build_hasher().finish()
        );
        let written = self
            .write_file(&dir, &unfinished, &head, bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&dir, &unfinished, &dir, item)?));
        if written.is_err() {
            // There may be none.
            let _ = rustix::fs::unlinkat(&dir, &unfinished, AtFlags::empty());
        }
        written.map(|()| tidy::charged(len))
    }

    fn write_file(&self, dir: &OwnedFd, name: &str, head: &[u8], bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = File::from(open_below(dir, Path::new(name), flags, FILE_MODE)?);
        let mut front = head.to_vec();
        front.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        front.extend_from_slice(&checksum(head, bytes).to_le_bytes());
        file.write_all(&front)?;
        file.write_all(bytes)
    }

    /// The directory of this state of the log, made where it is missing.
    fn dir(&self) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(&self.store.fd, &self.dir, FOLDER_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.store.open_below(Path::new(&self.dir), flags)
    }

    fn remove(&self, item: &str) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let removed = self
            .store
            .open_below(Path::new(&self.dir), flags)
            .and_then(|dir| Ok(rustix::fs::unlinkat(&dir, item, AtFlags::empty())?));
        if let Err(e) = removed {
            log::debug!("{}: cannot be removed: {e}", self.shown(item));
        }
    }

    /// What was not used for the longest goes first: the directory's time of modification says when.
    fn note_use(&self) {
        if self.used.swap(true, Ordering::Relaxed) {
            return;
        }
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Err(e) = rustix::fs::utimensat(&self.store.fd, &self.dir, &times, flags) {
            log::debug!("{}: {e}", self.shown(""));
        }
    }
}

/// Names are our own, and shall stay single ones.
fn checked(item: &str) -> io::Result<&str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    match !item.is_empty() && item.bytes().all(plain) && !item.starts_with(UNFINISHED) {
        true => Ok(item),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{item:?} is no name for an item"),
        )),
    }
}

fn damage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Whether it is the item itself that is wrong: neither the system nor the disk.
fn says_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof)
        || Errno::from_io_error(error) == Some(Errno::LOOP)
}

fn length_and_sum(bytes: &[u8]) -> Option<(u64, u128)> {
    let (len, sum) = bytes.split_first_chunk::<8>()?;
    let sum = sum.try_into().ok()?;
    Some((u64::from_le_bytes(*len), u128::from_le_bytes(sum)))
}

/// Over all words and bytes of an item.
fn checksum(head: &[u8], bytes: &[u8]) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(head);
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
    hash.digest128()
}

#[cfg(test)]
mod tests;
