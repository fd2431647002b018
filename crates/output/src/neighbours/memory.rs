//! Memory that a process shares with others: parts of a file that no directory has. It is gone with the last process that
//! has it open, however that ends.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use h5logfs_common::held_file::HeldFile;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};

/// Bytes from the begin of one part to that of the next one.
pub const PART: u64 = 1 << 40;
/// Bytes of the first mapping of a part. They take memory when they are written. A mapping that has to grow loses the pages that it
/// has: each is asked for again.
const LEAST: usize = 8 << 20;

/// A file in memory with so many parts, none of which takes memory yet.
pub fn new_file(parts: u64) -> io::Result<HeldFile> {
    let len = parts * PART;
    // The system ends a process that makes a file longer than it may.
    if getrlimit(Resource::Fsize)
        .current
        .is_some_and(|most| most < len)
    {
        return Err(io::Error::other("files of this process have a size limit"));
    }
    let file = memfd_create(c"h5logfs", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, len)?;
    // It may stay open from one opening of a log to the next.
    HeldFile::new(file.into())
}

/// The bytes of a file from some place on, in the memory of this process.
#[derive(Debug)]
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address alone; each user says why what it does there is sound.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Those that this process may change.
    fn writable(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        Self::new(file, offset, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn new(file: &File, offset: u64, len: usize, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: the system chooses an address where nothing lies. The file has these bytes, and nobody cuts it off.
        let at = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, offset) }?;
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("no address"))?;
        Ok(Mapping { at, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
        if let Err(e) = unmapped {
            log::warn!("shared memory stays mapped: {e}");
        }
    }
}

/// A number at the begin of a file in memory.
#[derive(Debug)]
pub struct Word(Mapping);

impl Word {
    /// For the process that changes it.
    pub fn writable(file: &File) -> io::Result<Self> {
        Mapping::writable(file, 0, size_of::<AtomicU64>()).map(Word)
    }

    /// For the others.
    pub fn readable(file: &File) -> io::Result<Self> {
        Mapping::new(file, 0, size_of::<AtomicU64>(), ProtFlags::READ).map(Word)
    }

    /// It is only loaded where it is readable.
    pub fn get(&self) -> &AtomicU64 {
        // SAFETY: a page has the alignment of the number, all processes change it as an atomic number, and it is mapped as
        // long as this lives.
        unsafe { self.0.at.cast().as_ref() }
    }
}

/// Bytes that one process appends to, one behind the other, in a part of a file in memory. Other processes read them from the
/// file.
#[derive(Debug)]
pub struct Bytes {
    file: Arc<HeldFile>,
    begin: u64,
    mapping: Option<Mapping>,
    len: usize,
    /// The most that it was when it was cleared.
    peak: usize,
}

impl Bytes {
    /// None, in the part of this number.
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

    /// Makes room for so many more.
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
        // What was there lies in the file.
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

    /// Appends pieces of words, in the byte order of the machine.
    pub fn extend_words(&mut self, pieces: &[&[u64]]) -> io::Result<()> {
        self.reserve(pieces.iter().map(|words| size_of_val(*words)).sum())?;
        for words in pieces {
            // SAFETY: numbers have no gaps, and any bytes may be read as bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(*words)) };
            self.put(bytes);
        }
        Ok(())
    }

    /// Appends bytes for which there is room.
    fn put(&mut self, bytes: &[u8]) {
        let room = self.room() - self.len;
        if let Some(mapping) = self.mapping.as_ref().filter(|_| bytes.len() <= room) {
            // SAFETY: there is room for them behind those that are there, which only this process changes.
            unsafe {
                let to = mapping.at.as_ptr().add(self.len);
                ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
            self.len += bytes.len();
        }
    }

    /// All of them.
    pub fn as_slice(&self) -> &[u8] {
        match &self.mapping {
            // SAFETY: they were written, by this process alone, and nothing changes them while they are borrowed.
            Some(mapping) => unsafe { std::slice::from_raw_parts(mapping.at.as_ptr(), self.len) },
            None => &[],
        }
    }

    /// Drops all of them. Others may still read them, until more are appended.
    pub fn clear(&mut self) {
        self.peak = self.peak.max(self.len);
        self.len = 0;
    }

    /// Gives back memory if there were more bytes than this.
    pub fn shrink_from(&mut self, most: usize) {
        if self.peak > most {
            self.shrink();
            self.peak = 0;
        }
    }

    /// Gives back the memory behind them.
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
        // What was given back is zeros.
        assert_eq!(found[LEAST..][..9], [0; 9]);
        assert!(first.reserve(2 << 40).is_err());
    }
}
