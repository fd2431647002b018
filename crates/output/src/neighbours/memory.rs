//! Memory that processes share: parts of a file without a directory entry. It disappears with the last process that has
//! it open, even after a crash.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use h5logfs_common::held_file::HeldFile;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};

/// Distance between the starts of two parts, in bytes.
pub const PART: u64 = 1 << 40;
/// Size of the first mapping of a part, in bytes. Pages take memory when they are written. A mapping that grows loses its
/// pages, which are faulted in again.
const LEAST: usize = 8 << 20;

/// A file in memory with `parts` parts, which take no memory yet.
pub fn new_file(parts: u64) -> io::Result<HeldFile> {
    let len = parts * PART;
    // The system kills a process that exceeds its file size limit.
    if getrlimit(Resource::Fsize)
        .current
        .is_some_and(|most| most < len)
    {
        return Err(io::Error::other("files of this process have a size limit"));
    }
    let file = memfd_create(c"h5logfs", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, len)?;
    // The file may stay open from one opening of a log to the next.
    HeldFile::new(file.into())
}

/// The bytes of a file from an offset on, mapped into this process.
#[derive(Debug)]
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is bound to no thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address alone; each user says why its access is sound.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps bytes that this process may change.
    fn writable(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        Self::new(file, offset, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn new(file: &File, offset: u64, len: usize, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: the system chooses a free address. The file has these bytes, and nobody truncates it.
        let at = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, offset) }?;
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("no address"))?;
        Ok(Mapping { at, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
        if let Err(e) = unmapped {
            log::warn!("shared memory stays mapped: {e}");
        }
    }
}

/// A number at the start of a file in memory.
#[derive(Debug)]
pub struct Word(Mapping);

impl Word {
    /// Maps the number for the process that changes it.
    pub fn writable(file: &File) -> io::Result<Self> {
        Mapping::writable(file, 0, size_of::<AtomicU64>()).map(Word)
    }

    /// Maps the number for the other processes.
    pub fn readable(file: &File) -> io::Result<Self> {
        Mapping::new(file, 0, size_of::<AtomicU64>(), ProtFlags::READ).map(Word)
    }

    /// The number. A process with a readable mapping must only load it.
    pub fn get(&self) -> &AtomicU64 {
        // SAFETY: a page is aligned for the number, all processes access it atomically, and the mapping lives as long as
        // `self`.
        unsafe { self.0.at.cast().as_ref() }
    }
}

/// Bytes that one process appends in a part of a file in memory. Other processes read them from the file.
#[derive(Debug)]
pub struct Bytes {
    file: Arc<HeldFile>,
    begin: u64,
    mapping: Option<Mapping>,
    len: usize,
    /// Largest length at a `clear`.
    peak: usize,
}

impl Bytes {
    /// An empty list in part `part`.
    pub fn new(file: &Arc<HeldFile>, part: u64) -> Self {
        Bytes {
            file: Arc::clone(file),
            begin: part * PART,
            mapping: None,
            len: 0,
            peak: 0,
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    fn room(&self) -> usize {
        self.mapping.as_ref().map_or(0, |mapping| mapping.len)
    }

    /// Makes room for `more` bytes.
    pub fn reserve(&mut self, more: usize) -> io::Result<()> {
        let wanted = self.len.saturating_add(more);
        if wanted <= self.room() {
            return Ok(());
        }
        let room = wanted.checked_next_power_of_two().unwrap_or(wanted);
        let room = room.max(LEAST);
        if room as u64 > PART {
            return Err(io::Error::other("too much for memory that ranks share"));
        }
        // The present bytes lie in the file.
        self.mapping = None;
        self.mapping = Some(Mapping::writable(&self.file, self.begin, room)?);
        Ok(())
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reserve(bytes.len())?;
        self.put(bytes);
        Ok(())
    }

    /// Appends words in the byte order of the machine.
    pub fn extend_words(&mut self, pieces: &[&[u64]]) -> io::Result<()> {
        self.reserve(pieces.iter().map(|words| size_of_val(*words)).sum())?;
        for words in pieces {
            // SAFETY: integers have no padding, and any byte is valid.
            let bytes =
                unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(*words)) };
            self.put(bytes);
        }
        Ok(())
    }

    /// Appends bytes. There must be room.
    fn put(&mut self, bytes: &[u8]) {
        let room = self.room() - self.len;
        if let Some(mapping) = self.mapping.as_ref().filter(|_| bytes.len() <= room) {
            // SAFETY: there is room after the present bytes, and only this process changes it.
            unsafe {
                let to = mapping.at.as_ptr().add(self.len);
                ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
            self.len += bytes.len();
        }
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.mapping {
            // SAFETY: this process alone has written them, and nothing changes them while they are borrowed.
            Some(mapping) => unsafe { std::slice::from_raw_parts(mapping.at.as_ptr(), self.len) },
            None => &[],
        }
    }

    /// Drops all bytes. Others may still read them, until more are appended.
    pub fn clear(&mut self) {
        self.peak = self.peak.max(self.len);
        self.len = 0;
    }

    /// Releases memory if there were more than `most` bytes.
    pub fn shrink_from(&mut self, most: usize) {
        if self.peak > most {
            self.shrink();
            self.peak = 0;
        }
    }

    /// Releases the memory after the bytes.
    pub fn shrink(&mut self) {
        const PAGE: usize = 1 << 16;
        let from = self.len.next_multiple_of(PAGE);
        let Some(len) = self.room().checked_sub(from).filter(|len| *len > 0) else {
            return;
        };
        let (begin, how) = (
            self.begin + from as u64,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        );
        if let Err(e) = fallocate(&**self.file, how, begin, len as u64) {
            log::debug!("shared memory stays in use: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn others_see_what_is_appended() {
        let file = Arc::new(new_file(3).unwrap());
        let (own, other) = (
            Word::writable(&file).unwrap(),
            Word::readable(&file).unwrap(),
        );
        own.get().store(7, Ordering::Release);
        assert_eq!(other.get().load(Ordering::Acquire), 7);
        let (mut first, mut second) = (Bytes::new(&file, 1), Bytes::new(&file, 2));
        let all: Vec<u8> = (0..3 * LEAST + 5).map(|i| (i * 7) as u8).collect();
        for (i, piece) in all.chunks(1000).enumerate() {
            first.extend(piece).unwrap();
            second.extend(&[i as u8]).unwrap();
        }
        let mut found = vec![0; all.len()];
        file.read_exact_at(&mut found, PART).unwrap();
        assert!(found == all && first.as_slice() == all);
        assert_eq!(second.len(), all.len().div_ceil(1000));
        first.clear();
        first.shrink();
        first.extend(b"new").unwrap();
        file.read_exact_at(&mut found, PART).unwrap();
        assert_eq!(found[..3], *b"new");
        // Released memory reads as zeros.
        assert_eq!(found[LEAST..][..9], [0; 9]);
        assert!(first.reserve(2 << 40).is_err());
    }
}
