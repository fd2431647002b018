//! A cache on disk: scans and indexes of log files, kept from one daemon to the next.
//!
//! ```text
//! DIR/                    mode 0700, of the daemon's user
//!   0123…cdef/            an entry: one state of one log file, by the hash of its key
//!     scan                items, each a file
//!     index-7
//! ```
//!
//! The program can make every item again, so a reader never sees an error here. An item that is missing, damaged or of
//! another version counts as absent. Items are written under a temporary name and renamed, so daemons can share a
//! directory. They are not synced to the disk, because a file that a crash has torn has a wrong checksum.
//!
//! Items are read and not mapped, because access to a mapped file that was truncated is a SIGBUS.
//!
//! * `directory` opens DIR, and refuses one that other users can write to.
//! * `key` tells the states of log files apart.
//! * `evict` keeps the store within its size limit.
//! * `flight` lets one process make what several processes lack.

mod directory;
mod evict;
mod flight;
mod key;

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use h5logfs_common::held_file::HeldFile;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::open_files::Handle;

pub use flight::Flight;
pub use key::{FileState, FileTime, StoreKey};

/// The first bytes of each item.
const MAGIC: [u8; 8] = *b"h5logkep";
/// Version of the items. It goes up with every change of the written form, here or inside the items.
const FORMAT: u32 = 15;
/// Bytes of length and checksum, between the header of an item and its contents.
const SUM: usize = 8 + 16;
/// Bytes of an item that are written at once.
const BUFFER: usize = 64 << 10;
/// First words of the names of items. A number may follow, behind `-`.
const ITEMS: [&str; 4] = ["scan", "index", "strip", "selections"];
/// First word of the names of files that are being written. A number follows.
const UNFINISHED: &str = "tmp";
/// Modes for this user alone: items tell of files that other users may not read.
const DIR_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory of items. Threads and processes can share it.
#[derive(Debug)]
pub struct Store {
    directory: Directory,
    /// Path of the directory, for messages only.
    path: PathBuf,
    /// The most bytes that all items together may have.
    size: u64,
    /// Bytes that may be written until the next eviction.
    allowance: Mutex<u64>,
    evicting: Mutex<()>,
    /// Whether a write error was reported. A full disk is reported once.
    warned: AtomicBool,
}

/// The directory of a store.
#[derive(Debug)]
enum Directory {
    Held(Arc<HeldFile>),
    /// Closed while other files are needed more.
    OnDemand(Handle),
}

impl Store {
    /// Opens the directory at `path`, which may grow to `size` bytes. Makes it where only its parent is there. Fails
    /// where other users could have put something into it.
    pub fn open(path: &Path, size: u64) -> io::Result<Self> {
        let held = HeldFile::new(directory::open(path)?.into())?;
        Ok(Store::of(Directory::Held(Arc::new(held)), path, size))
    }

    /// [`Store::open`] for a directory that is closed while other files are needed more.
    pub fn open_on_demand(path: &Path, size: u64) -> io::Result<Self> {
        let store = Store::of(Directory::OnDemand(Handle::empty()), path, size);
        store.fd()?;
        Ok(store)
    }

    fn of(directory: Directory, path: &Path, size: u64) -> Self {
        Store {
            directory,
            path: path.to_owned(),
            size,
            allowance: Mutex::new(evict::allowance(size)),
            evicting: Mutex::default(),
            warned: AtomicBool::new(false),
        }
    }

    /// Opens a directory that may be closed again, as far as it is not open. Fails where it cannot be used any more.
    pub fn reopen(&self) -> io::Result<()> {
        self.release();
        self.fd().map(drop)
    }

    /// Closes a directory that may be closed.
    fn release(&self) {
        if let Directory::OnDemand(handle) = &self.directory {
            handle.close();
        }
    }

    /// The entry of one state of a log file. It may have no items yet.
    pub fn entry(self: &Arc<Self>, key: &StoreKey) -> StoreEntry {
        let header = header(key);
        StoreEntry {
            store: Arc::clone(self),
            dir: format!("{:032x}", xxh3_128(&header)),
            header: header.into(),
            used: Arc::default(),
        }
    }

    fn open_below(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        open_below(self.fd()?.as_fd(), path, flags, Mode::empty())
    }

    /// The directory. Fails where the program has closed its descriptor, whose number may lead to another directory by
    /// now.
    fn fd(&self) -> io::Result<Arc<HeldFile>> {
        match &self.directory {
            Directory::Held(held) if held.is_there() => return Ok(Arc::clone(held)),
            Directory::Held(_) => {}
            Directory::OnDemand(handle) => {
                if let Some(open) = handle.get().filter(|open| open.is_there()) {
                    return Ok(open);
                }
                let again = HeldFile::new(directory::open(&self.path)?.into())?;
                return Ok(handle.keep(Arc::new(again)));
            }
        }
        Err(io::Error::other(
            "this program has closed the index directory",
        ))
    }

    /// Reports once that items cannot be written.
    fn warn(&self, what: &str, error: &io::Error) {
        let path = self.path.display();
        if self.warned.swap(true, Ordering::Relaxed) {
            log::debug!("{path}: {what}: {error}");
        } else {
            log::warn!("{path}: indexes cannot be kept there: {what}: {error}");
        }
    }
}

/// The first bytes of all items of an entry: the program that wrote them, and the key.
fn header(key: &StoreKey) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&FORMAT.to_le_bytes());
    put_text(&mut header, env!("CARGO_PKG_VERSION").as_bytes());
    put_text(&mut header, &key.to_bytes());
    header
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// Opens a path below a directory, without following any symbolic link.
fn open_below(fd: impl AsFd + Copy, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(fd, path, flags, mode, beneath) {
            // The look-up raced with a rename elsewhere, and the kernel asks for another try.
            Err(Errno::AGAIN) => continue,
            other => return Ok(other?),
        }
    }
}

/// The items of one state of one log file.
#[derive(Debug, Clone)]
pub struct StoreEntry {
    store: Arc<Store>,
    dir: String,
    /// The first bytes of all items.
    header: Arc<[u8]>,
    /// Whether the time of use was updated.
    used: Arc<AtomicBool>,
}

impl StoreEntry {
    /// This entry, for items that depend on `more` besides the key. Items that depend on something else count as
    /// absent.
    pub fn with(&self, more: &[u8]) -> Self {
        let mut header = self.header.to_vec();
        put_text(&mut header, more);
        StoreEntry {
            header: header.into(),
            ..self.clone()
        }
    }

    /// Closes the directory of the store until it is needed again, if it may be closed.
    pub(crate) fn release(&self) {
        self.store.release();
    }

    /// The bytes of an item, whose name has the form of `ITEMS`. `None` where there are none, where they are damaged,
    /// and where there is no memory for them.
    pub fn get(&self, task: &Task, item: &str) -> Option<Reserved<Vec<u8>>> {
        match self.read(task, item) {
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

    /// Whether there is a file of this name, damaged or not.
    pub fn has(&self, item: &str) -> bool {
        let path = Path::new(&self.dir).join(item);
        let fd = self.store.fd();
        fd.is_ok_and(|fd| rustix::fs::statat(fd.as_fd(), &path, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Writes an item in place of an earlier one. An item that cannot be written is not kept.
    pub fn put(&self, item: &str, bytes: &[u8]) {
        self.put_spelled(item, |out| out.write_all(bytes));
    }

    /// [`StoreEntry::put`] for the bytes that `spell` writes.
    pub fn put_spelled(&self, item: &str, spell: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        match self.write(item, spell) {
            Ok(written) => self.store.charge(written),
            Err(e) => self.store.warn(item, &e),
        }
    }

    fn shown(&self, item: &str) -> String {
        let path = self.store.path.join(&self.dir).join(item);
        path.display().to_string()
    }

    /// The header of an item, without length and checksum.
    fn item_header(&self, item: &str) -> Vec<u8> {
        let mut head = self.header.to_vec();
        put_text(&mut head, item.as_bytes());
        head
    }

    fn read(&self, task: &Task, item: &str) -> io::Result<Reserved<Vec<u8>>> {
        let path = Path::new(&self.dir).join(checked(item)?);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = File::from(self.store.open_below(&path, flags)?);
        let found = file.metadata()?;
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(damage("it is not a file of ours"));
        }
        let head = self.item_header(item);
        let mut start = vec![0; head.len() + SUM];
        file.read_exact(&mut start)?;
        let Some((len, sum)) = start.strip_prefix(head.as_slice()).and_then(length_and_sum) else {
            return Err(damage("it was made from something else"));
        };
        if found.len().checked_sub(start.len() as u64) != Some(len) {
            return Err(damage("its length is not the one that it states"));
        }
        // The file has this length, but may be sparse. So the length may still be far too large.
        if len > self.store.size {
            return Err(damage("it is too large"));
        }
        let mut bytes = Vec::new();
        let mut reservation = task.reservation();
        reservation
            .make_room(&mut bytes, len as usize)
            .map_err(|e| io::Error::new(io::ErrorKind::OutOfMemory, e))?;
        file.take(len).read_to_end(&mut bytes)?;
        let mut found = Checksum::new(&head);
        found.update(&bytes);
        if found.finish() != (len, sum) {
            return Err(damage("its checksum does not match"));
        }
        Ok(Reserved::new(bytes, reservation))
    }

    /// Writes an item. Returns the bytes of the store's size that it takes.
    fn write(
        &self,
        item: &str,
        spell: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<u64> {
        checked(item)?;
        let head = self.item_header(item);
        let dir = self.dir()?;
        // The name is random, because daemons on other machines may write to the same directory.
        let unfinished = format!(
            "{UNFINISHED}-{:016x}",
            RandomState::new().build_hasher().finish()
        );
        let written = self
            .write_file(&dir, &unfinished, &head, spell)
            .and_then(|len| {
                rustix::fs::renameat(&dir, &unfinished, &dir, item)?;
                Ok(evict::charged(len))
            });
        if written.is_err() {
            // The file may not exist.
            let _ = rustix::fs::unlinkat(&dir, &unfinished, AtFlags::empty());
        }
        written
    }

    /// Writes the file of an item. Returns its length.
    fn write_file(
        &self,
        dir: &OwnedFd,
        name: &str,
        head: &[u8],
        spell: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<u64> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = File::from(open_below(dir, Path::new(name), flags, FILE_MODE)?);
        let mut start = head.to_vec();
        start.extend_from_slice(&[0; SUM]);
        file.write_all(&start)?;
        let begin = start.len() as u64;
        let contents = Contents {
            file,
            sum: Checksum::new(head),
            begin,
            most: evict::low_water(self.store.size),
        };
        let mut contents = BufWriter::with_capacity(BUFFER, contents);
        spell(&mut contents)?;
        let Contents { file, sum, .. } = contents.into_inner().map_err(|e| e.into_error())?;
        let (len, sum) = sum.finish();
        start.truncate(head.len());
        start.extend_from_slice(&len.to_le_bytes());
        start.extend_from_slice(&sum.to_le_bytes());
        file.write_all_at(&start, 0)?;
        Ok(begin + len)
    }

    /// The directory of the entry, made where it is missing.
    fn dir(&self) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(self.store.fd()?.as_fd(), &self.dir, DIR_MODE) {
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

    /// Sets the directory's time of modification. The entry that was not used for the longest time is evicted first.
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
        let noted = self
            .store
            .fd()
            .and_then(|fd| Ok(rustix::fs::utimensat(fd.as_fd(), &self.dir, &times, flags)?));
        if let Err(e) = noted {
            log::debug!("{}: {e}", self.shown(""));
        }
    }
}

fn checked(item: &str) -> io::Result<&str> {
    if is_item(item.as_bytes()) {
        return Ok(item);
    }
    let reason = format!("{item:?} is not a valid name of an item");
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

fn is_item(name: &[u8]) -> bool {
    let (word, number) = match name.iter().position(|b| *b == b'-') {
        Some(at) => (&name[..at], Some(&name[at + 1..])),
        None => (name, None),
    };
    ITEMS.iter().any(|item| item.as_bytes() == word) && number.is_none_or(is_number)
}

fn is_unfinished(name: &[u8]) -> bool {
    let number = name.strip_prefix(UNFINISHED.as_bytes());
    let number = number.and_then(|number| number.strip_prefix(b"-"));
    number.is_some_and(|number| number.len() == 16 && is_number(number))
}

/// Whether these are hexadecimal digits in the form that this program writes.
fn is_number(digits: &[u8]) -> bool {
    let is_digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    !digits.is_empty() && digits.iter().all(is_digit)
}

fn damage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Whether the error concerns the item itself, not the system or the disk.
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

/// A checksum over the header of an item, its contents, and their length.
struct Checksum {
    hash: Xxh3,
    len: u64,
}

impl Checksum {
    fn new(head: &[u8]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(head);
        Checksum { hash, len: 0 }
    }

    fn update(&mut self, contents: &[u8]) {
        self.hash.update(contents);
        self.len += contents.len() as u64;
    }

    /// The length of the contents, and the checksum.
    fn finish(mut self) -> (u64, u128) {
        self.hash.update(&self.len.to_le_bytes());
        (self.len, self.hash.digest128())
    }
}

/// Writes the contents of an item to its file.
struct Contents {
    file: File,
    sum: Checksum,
    /// Offset of the contents in the file.
    begin: u64,
    /// The most bytes that the file may have.
    most: u64,
}

impl Write for Contents {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.begin + self.sum.len + bytes.len() as u64;
        if evict::charged(len) > self.most {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{len} bytes and more are more than the directory may hold"),
            ));
        }
        self.file.write_all(bytes)?;
        self.sum.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
